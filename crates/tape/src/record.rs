//! References as bytes: small differences, in numbers of variable length.
//!
//! A record is a number whose low two bits say what it is:
//!
//! ```text
//!   0  touch           the rest: difference to the thread's last page (zigzag); a second number: its CPU time since then, in ns
//!   1  other thread    the rest: which
//!   2  other region    the rest: which, for this thread
//!   3  end of a microset
//! ```
//!
//! Every block starts from zero (thread 0, and for each thread region 0, page 0, time 0), so that it can be read without the
//! blocks before it. A touch in a sequential walk takes three bytes: one for the page, two for up to 16 µs.

use crate::INDEX_MAX;
use crate::bytes::{Bytes, put, unzigzag, zigzag};

/// One page, touched by one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reference {
    /// Which reference of the program, from 0.
    pub sequence: u64,
    /// Which microset it belongs to, from 0.
    pub microset: u64,
    /// Which of the program's intervals it lies in, from 1; 0: all of the program was recorded.
    pub interval: u32,
    /// Which thread, in order of their first references, from 0.
    pub thread: u32,
    /// Which region.
    pub region: u32,
    /// Page inside the region.
    pub page: u32,
    /// Processor time that the thread had taken, in nanoseconds.
    pub cpu_ns: u64,
}

impl Reference {
    /// Region and page as one number, in the order of regions and pages.
    #[inline]
    pub fn position(&self) -> u64 {
        u64::from(self.region) << 32 | u64::from(self.page)
    }
}

const TOUCH: u64 = 0;
const THREAD: u64 = 1;
const REGION: u64 = 2;
const END: u64 = 3;

/// What the next record of a thread differs from.
#[derive(Clone, Copy, Default)]
struct Last {
    region: u32,
    page: u32,
    cpu_ns: u64,
}

/// What both sides know in the middle of a block.
#[derive(Clone, Default)]
pub struct Context {
    thread: u32,
    /// By thread.
    last: Vec<Last>,
}

impl Context {
    /// As at the start of a block.
    pub fn clear(&mut self) {
        self.thread = 0;
        self.last.clear();
    }

    #[inline]
    fn last(&mut self) -> &mut Last {
        let index = self.thread as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, Last::default());
        }
        &mut self.last[index]
    }

    /// Appends a touch.
    pub fn put_touch(&mut self, out: &mut Vec<u8>, thread: u32, region: u32, page: u32, cpu_ns: u64) {
        if thread != self.thread {
            self.thread = thread;
            put(out, u64::from(thread) << 2 | THREAD);
        }
        let last = self.last();
        if region != last.region {
            last.region = region;
            put(out, u64::from(region) << 2 | REGION);
        }
        put(out, zigzag(i64::from(page) - i64::from(last.page)) << 2 | TOUCH);
        // Time does not run backwards; where a clock says so, it stands.
        put(out, cpu_ns.saturating_sub(last.cpu_ns));
        *last = Last { region, page, cpu_ns: cpu_ns.max(last.cpu_ns) };
    }

    /// Appends the end of a microset.
    pub fn put_end(out: &mut Vec<u8>) {
        put(out, END);
    }
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// Sequence and microset are the reader's to fill in.
    Touch(Reference),
    /// The microset is whole.
    End,
}

impl Context {
    /// Takes the next touch or end; `bytes` are not empty.
    ///
    /// # Errors
    /// What makes no sense.
    #[inline]
    pub fn take(&mut self, bytes: &mut Bytes<'_>, regions: u32) -> Result<Record, &'static str> {
        loop {
            let record = bytes.number().ok_or("a record is cut off")?;
            let value = record >> 2;
            match record & 3 {
                TOUCH => {
                    let thread = self.thread;
                    let last = self.last();
                    let page = u32::try_from(i64::from(last.page).wrapping_add(unzigzag(value)));
                    last.page = page.map_err(|_| "a page lies outside its region")?;
                    let passed = bytes.number().ok_or("a record is cut off")?;
                    last.cpu_ns = last.cpu_ns.checked_add(passed).ok_or("a time is too large")?;
                    if last.region >= regions {
                        return Err("a region was never declared");
                    }
                    let Last { region, page, cpu_ns } = *last;
                    return Ok(Record::Touch(Reference {
                        sequence: 0,
                        microset: 0,
                        interval: 0,
                        thread,
                        region,
                        page,
                        cpu_ns,
                    }));
                }
                THREAD => self.thread = index(value).ok_or("a thread's number is too large")?,
                REGION => self.last().region = index(value).ok_or("a region's number is too large")?,
                _ if value == 0 => return Ok(Record::End),
                _ => return Err("a record of an unknown kind"),
            }
        }
    }
}

fn index(value: u64) -> Option<u32> {
    u32::try_from(value).ok().filter(|index| *index < INDEX_MAX)
}
