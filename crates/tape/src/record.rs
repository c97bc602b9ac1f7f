//! References as bytes: small differences, in numbers of variable length.
//!
//! A record is a number whose low three bits say what it is:
//!
//! ```text
//!   0  touch           the rest: difference to the thread's last page (zigzag); a second number: its CPU time since then, in ticks of 64 ns
//!   1  first touch     the same; the page had no content
//!   2  run             touches that follow each other: the rest: difference from one page to the next (zigzag); their number; ns from one to the next
//!   3  run of firsts   the same; the pages had no content
//!   4  other thread    the rest: which
//!   5  other region    the rest: which, for this thread
//!   6  discard         the rest: why; region, difference to the end of the last discard (zigzag), pages: their content is given up
//!   7  end of a microset; the rest: which of its references were written to (`Written`); a bit for each may follow
//! ```
//!
//! Every block starts from zero (thread 0, and for each thread region 0, page 0, time 0), so that it can be read without the
//! blocks before it. A touch takes two to six bytes, a run three to ten, however many touches it has (256 at most). Times are rounded to ticks; in
//! a run each is up to `RUN_TOLERANCE_NS` early. Versions 1 and 2: `old_record`.

use crate::INDEX_MAX;
use crate::bytes::{Bytes, put, unzigzag, zigzag};
use crate::run::{Run, TOUCHES_MAX};

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
    /// The page had no content. Versions 1 and 2 do not tell.
    pub is_first: bool,
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

/// Why pages have no content any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The program freed them. What is not local is dropped; a local page keeps its frame for the next allocation there, unless frames are wanted.
    Freed,
    /// They read as zero from now on: madvise(2), or the allocator.
    Discarded,
    /// They are not mapped any more, or something else is.
    Unmapped,
    /// Their content is at other pages: mremap(2).
    Moved,
}

impl Cause {
    const ALL: [Cause; 4] = [Cause::Freed, Cause::Discarded, Cause::Unmapped, Cause::Moved];

    /// Whether pages that are local lose their content and frames, too.
    pub fn takes_frames(self) -> bool {
        self != Cause::Freed
    }
}

/// Pages in a [`Discard`] at most; more are several.
pub const DISCARD_PAGES_MAX: u32 = 4096;

/// Neighbouring pages whose content is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discard {
    /// Which region.
    pub region: u32,
    /// The first page inside the region.
    pub page: u32,
    /// Pages, from 1 to [`DISCARD_PAGES_MAX`].
    pub pages: u32,
    /// Why.
    pub cause: Cause,
}

impl Discard {
    /// Each of the pages.
    pub fn each(&self) -> impl Iterator<Item = u32> + use<> {
        self.page..=self.page + (self.pages - 1)
    }
}

/// Which pages of a microset were written to while they were mapped, by the order of its references.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Written<'a> {
    /// The trace does not tell.
    #[default]
    Unknown,
    /// None.
    None,
    /// All.
    All,
    /// By bits, the lowest of the first byte first; bits beyond the references are 0.
    Bits(&'a [u8]),
}

impl<'a> Written<'a> {
    /// The shortest form of bits for so many references.
    pub fn of(bits: &'a [u8], references: u64) -> Written<'a> {
        let ones: u64 = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
        match ones {
            0 => Written::None,
            ones if ones == references => Written::All,
            _ => Written::Bits(bits),
        }
    }

    /// Whether the page of the microset's `index`-th reference was written to; `None`: the trace does not tell.
    #[inline]
    pub fn get(&self, index: u64) -> Option<bool> {
        match self {
            Written::Unknown => None,
            Written::None => Some(false),
            Written::All => Some(true),
            Written::Bits(bits) => {
                let byte = usize::try_from(index / 8).ok().and_then(|byte| bits.get(byte));
                Some(byte.is_some_and(|byte| byte >> (index % 8) & 1 == 1))
            }
        }
    }

    fn code(&self) -> u64 {
        match self {
            Written::Unknown => 0,
            Written::None => 1,
            Written::All => 2,
            Written::Bits(_) => 3,
        }
    }

    /// What the number in the end of a microset with so many references says; bits follow it in `bytes`.
    pub(crate) fn take(code: u64, references: u64, bytes: &mut Bytes<'a>) -> Result<Written<'a>, &'static str> {
        Ok(match code {
            0 => Written::Unknown,
            1 => Written::None,
            2 => Written::All,
            3 => {
                let length = usize::try_from(references.div_ceil(8)).unwrap_or(usize::MAX);
                Written::Bits(bytes.take(length).ok_or("a record is cut off")?)
            }
            _ => return Err("a record of an unknown kind"),
        })
    }
}

const TOUCH: u64 = 0;
const RUN: u64 = 2;
/// Beside touches and runs: of pages without content.
const FIRST: u64 = 1;
const THREAD: u64 = 4;
const REGION: u64 = 5;
const DISCARD: u64 = 6;
const END: u64 = 7;
const KIND_BITS: u32 = 3;

/// Unit of the times of touches: a sixth of the accuracy with which a traced program's processor time is known.
pub const TICK_NS: u64 = 64;

/// What the next record of a thread differs from.
#[derive(Clone, Copy, Default)]
pub struct Last {
    pub region: u32,
    pub page: u32,
    pub cpu_ns: u64,
}

/// What both sides know in the middle of a block.
#[derive(Clone, Default)]
pub struct Context {
    pub thread: u32,
    /// By thread.
    last: Vec<Last>,
    /// Behind the last discard.
    discarded: u32,
    /// Of the writer: touches that no record has yet.
    run: Option<Run>,
    /// Of the reader: touches of its last record that are still to come.
    left: Repeat,
}

/// Touches at the same distance.
#[derive(Clone, Copy, Default)]
struct Repeat {
    touches: u32,
    step: i64,
    step_ns: u64,
    is_first: bool,
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// Sequence, microset and interval are the reader's to fill in.
    Touch(Reference),
    /// The content of pages is given up.
    Discard(Discard),
    /// The microset is whole; what [`Written::take`] needs.
    End(u64),
}

impl Context {
    /// As at the start of a block.
    pub fn clear(&mut self) {
        (self.thread, self.discarded, self.run, self.left) = (0, 0, None, Repeat::default());
        self.last.clear();
    }

    #[inline]
    pub fn last(&mut self) -> &mut Last {
        let index = self.thread as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, Last::default());
        }
        &mut self.last[index]
    }

    /// Appends a touch, which may stay pending until [`Context::put_pending`].
    pub fn put_touch(&mut self, out: &mut Vec<u8>, touch: &Reference) {
        if self.run.as_mut().is_some_and(|run| run.takes(touch)) {
            return;
        }
        self.put_pending(out);
        if touch.thread != self.thread {
            self.thread = touch.thread;
            put(out, u64::from(touch.thread) << KIND_BITS | THREAD);
        }
        let last = self.last();
        if touch.region != last.region {
            last.region = touch.region;
            put(out, u64::from(touch.region) << KIND_BITS | REGION);
        }
        self.run = Some(Run::begin(*self.last(), touch));
    }

    /// Appends what is pending.
    pub fn put_pending(&mut self, out: &mut Vec<u8>) {
        let Some(run) = self.run.take() else { return };
        let first = if run.is_first { FIRST } else { 0 };
        let step = zigzag(run.step) << KIND_BITS;
        if run.touches == 1 {
            // Time does not run backwards; where a clock says so, it stands.
            put(out, step | TOUCH | first);
            put(out, run.ticks());
        } else {
            put(out, step | RUN | first);
            put(out, run.touches.into());
            put(out, run.step_ns());
        }
        *self.last() = run.end();
    }

    /// Appends a discard.
    pub fn put_discard(&mut self, out: &mut Vec<u8>, discard: &Discard) {
        self.put_pending(out);
        put(out, (discard.cause as u64) << KIND_BITS | DISCARD);
        put(out, discard.region.into());
        put(out, zigzag(i64::from(discard.page) - i64::from(self.discarded)));
        put(out, discard.pages.into());
        self.discarded = discard.page.saturating_add(discard.pages);
    }

    /// Appends the end of a microset.
    pub fn put_end(&mut self, out: &mut Vec<u8>, written: Written<'_>) {
        self.put_pending(out);
        put(out, written.code() << KIND_BITS | END);
        if let Written::Bits(bits) = written {
            out.extend_from_slice(bits);
        }
    }

    /// The next touch of the record that was taken last.
    #[inline]
    pub fn take_pending(&mut self) -> Option<Result<Record, &'static str>> {
        self.left.touches = self.left.touches.checked_sub(1)?;
        let Repeat { step, step_ns, is_first, .. } = self.left;
        Some(self.touch(step, step_ns, is_first))
    }

    /// Takes the next record; `bytes` are not empty.
    ///
    /// # Errors
    /// What makes no sense.
    #[inline]
    pub fn take(&mut self, bytes: &mut Bytes<'_>, regions: u32) -> Result<Record, &'static str> {
        const CUT: &str = "a record is cut off";
        loop {
            let record = bytes.number().ok_or(CUT)?;
            let (kind, value) = (record & ((1 << KIND_BITS) - 1), record >> KIND_BITS);
            if kind < THREAD {
                if self.last().region >= regions {
                    return Err("a region was never declared");
                }
                let (step, is_first) = (unzigzag(value), kind & FIRST != 0);
                if kind < RUN {
                    let ns = bytes.number().ok_or(CUT)?.checked_mul(TICK_NS).ok_or("a time is too large")?;
                    return self.touch(step, ns, is_first);
                }
                let touches = bytes.number().ok_or(CUT)?;
                let touches = u32::try_from(touches).ok().filter(|touches| (2..=TOUCHES_MAX).contains(touches));
                let touches = touches.ok_or("a run has too few touches or too many")?;
                let step_ns = bytes.number().ok_or(CUT)?;
                self.left = Repeat { touches: touches - 1, step, step_ns, is_first };
                return self.touch(step, step_ns, is_first);
            }
            match kind {
                THREAD => self.thread = index(value).ok_or("a thread's number is too large")?,
                REGION => self.last().region = index(value).ok_or("a region's number is too large")?,
                DISCARD => return self.take_discard(value, bytes, regions).map(Record::Discard),
                _ => return Ok(Record::End(value)),
            }
        }
    }

    /// A touch of the thread, so far from its last one.
    #[inline]
    pub fn touch(&mut self, step: i64, ns: u64, is_first: bool) -> Result<Record, &'static str> {
        let thread = self.thread;
        let last = self.last();
        let page = u32::try_from(i64::from(last.page).wrapping_add(step));
        last.page = page.map_err(|_| "a page lies outside its region")?;
        last.cpu_ns = last.cpu_ns.checked_add(ns).ok_or("a time is too large")?;
        let Last { region, page, cpu_ns } = *last;
        Ok(Record::Touch(Reference { thread, region, page, cpu_ns, is_first, ..Reference::default() }))
    }

    #[cold]
    fn take_discard(&mut self, value: u64, bytes: &mut Bytes<'_>, regions: u32) -> Result<Discard, &'static str> {
        const CUT: &str = "a discard is cut off";
        let cause = usize::try_from(value).ok().and_then(|value| Cause::ALL.get(value)).copied();
        let cause = cause.ok_or("a discard for an unknown reason")?;
        let region = bytes.small().filter(|region| *region < regions).ok_or("a discard in a region never declared")?;
        let step = unzigzag(bytes.number().ok_or(CUT)?);
        let page = u32::try_from(i64::from(self.discarded).wrapping_add(step));
        let page = page.map_err(|_| "a discard lies outside its region")?;
        let pages = bytes.small().filter(|pages| (1..=DISCARD_PAGES_MAX).contains(pages));
        let pages = pages.ok_or("a discard of no pages or too many")?;
        self.discarded = page.checked_add(pages - 1).ok_or("a discard lies outside its region")?.saturating_add(1);
        Ok(Discard { region, page, pages, cause })
    }
}

pub fn index(value: u64) -> Option<u32> {
    u32::try_from(value).ok().filter(|index| *index < INDEX_MAX)
}
