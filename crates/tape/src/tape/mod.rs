//! Tapes: for each thread of a program, which pages it needs next, which of them must be fetched, and which leave to make room
//! (3PO §3.2; departures from the known future go beyond it).
//!
//! ```text
//!   planner ──► TapeWriter ──► blocks, as a trace's: head, regions, parts of threads, end ──► Tape ──► arrivals, departures by thread
//!   comparison of runs ──► TapeWriter ──► blocks: head, regions, phases, end ──► Tape ──► sets of pages by phase: an unordered tape
//! ```
//!
//! The format is in docs/tape.md. Invariant: [`Tape::open`] has read every record, so nothing of an open tape is wrong.

mod error;
mod head;
mod records;
mod run;
mod sets;
mod writer;

pub use error::TapeError;
pub use head::{Order, TapeHead, ThreadTotals};
pub use records::{Arrival, Departure};
pub use sets::PageRange;
pub use writer::TapeWriter;

use crate::frame::{self, FRAME_BYTES, Format, Frame, Kind};
use crate::{Region, TraceError};
use head::TapeEnd;
use records::Part;

/// Version of the format that is written; versions 1 to 4 are read, too.
pub const VERSION: u8 = 5;
/// The frame around a tape's blocks.
pub(crate) const FORMAT: Format = Format { marker: *b"HLP\xb1", version: VERSION };

/// A whole tape.
#[derive(Clone, Debug)]
pub struct Tape<'a> {
    head: TapeHead,
    regions: Vec<Region>,
    threads: Vec<ThreadTotals>,
    /// In the order of each thread's positions.
    parts: Vec<Part<'a>>,
    /// By phase, the ranges of its pages in ascending order.
    phases: Vec<Vec<PageRange>>,
}

impl<'a> Tape<'a> {
    /// Reads and checks a tape.
    ///
    /// # Errors
    /// It is no tape, of another version, cut off, damaged, or does not make sense.
    pub fn open(bytes: &'a [u8]) -> Result<Tape<'a>, TapeError> {
        let frame = first(bytes)?;
        let malformed =
            |offset: usize| move |what| TapeError::Block(TraceError::Malformed { offset: offset as u64, what });
        let head = match frame.kind {
            Kind::Head if frame.number == 0 => TapeHead::decode(frame.payload, frame.version),
            _ => None,
        };
        let (head, order) = head.ok_or("the head cannot be read").map_err(malformed(0))?;
        let head = TapeHead { order: Order::of(order).ok_or(TapeError::Order { found: order })?, ..head };
        let mut tape = Tape { head, regions: Vec::new(), threads: Vec::new(), parts: Vec::new(), phases: Vec::new() };
        let mut totals = Vec::new();
        let (mut at, mut number) = (FRAME_BYTES + frame.payload.len(), 1);
        let seed = frame.checksum;
        let TapeEnd { threads, phases, set_pages } = loop {
            let offset = at as u64;
            if at == bytes.len() {
                return Err(TapeError::NoEnd { length: offset });
            }
            let frame = frame::take(FORMAT, &bytes[at..], offset, seed).map_err(TapeError::Block)?;
            if frame.number != number {
                return Err(TapeError::Block(TraceError::Disordered { offset, expected: number, found: frame.number }));
            }
            let end = tape.take(&frame, &mut totals).map_err(malformed(at))?;
            at += FRAME_BYTES + frame.payload.len();
            number = number.wrapping_add(1);
            if let Some(end) = end {
                break end;
            }
        };
        tape.threads = threads;
        if at != bytes.len() {
            return Err(malformed(at)("something stands behind the end of the tape"));
        }
        let sets = (tape.phases.len() as u64, tape.set_pages());
        if totals.len() > tape.threads.len() || !agree(&tape.threads, &totals) || sets != (phases, set_pages) {
            return Err(malformed(at)("the end does not match what came before it"));
        }
        Ok(tape)
    }

    /// Takes a block in; what the end says, if it was that.
    fn take(&mut self, frame: &Frame<'a>, totals: &mut Vec<Counted>) -> Result<Option<TapeEnd>, &'static str> {
        match frame.kind {
            Kind::Head => return Err("a second head"),
            Kind::Region => {
                let (number, region) = Region::decode(frame.payload).ok_or("a region cannot be read")?;
                if number as usize != self.regions.len() || number >= crate::INDEX_MAX {
                    return Err("a region is missing or declared twice");
                }
                self.regions.push(region);
            }
            Kind::References if self.head.order == Order::Sets => return Err("a thread's part on an unordered tape"),
            Kind::Phase if self.head.order == Order::Ordered => return Err("a phase on an ordered tape"),
            Kind::Phase => sets::decode(frame.payload, self.region_count(), &mut self.phases)?,
            Kind::References => {
                let part = Part::decode(frame.payload, frame.version).ok_or("a part cannot be read")?;
                let index = part.thread as usize;
                if index >= totals.len() {
                    totals.resize(index + 1, Counted::default());
                }
                totals[index].part(&part, self.region_count())?;
                self.parts.push(part);
            }
            Kind::End => {
                let end = TapeEnd::decode(frame.payload, frame.version).ok_or("the end cannot be read")?;
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn region_count(&self) -> u32 {
        u32::try_from(self.regions.len()).unwrap_or(crate::INDEX_MAX)
    }

    /// What it was planned from and for.
    pub fn head(&self) -> &TapeHead {
        &self.head
    }

    /// The regions of its pages, by number.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// What it has, by thread.
    pub fn threads(&self) -> &[ThreadTotals] {
        &self.threads
    }

    /// Of an unordered tape, by phase: the ranges of its pages, in ascending order and apart.
    pub fn phases(&self) -> &[Vec<PageRange>] {
        &self.phases
    }

    /// Pages of all phases.
    pub fn set_pages(&self) -> u64 {
        self.phases.iter().flatten().map(|range| u64::from(range.pages)).sum()
    }

    /// The pages that come to local memory for a thread, in the order of positions.
    pub fn arrivals(&self, thread: u32) -> impl Iterator<Item = Arrival> {
        let regions = self.region_count();
        let parts = self.parts.iter().filter(move |part| part.thread == thread);
        parts.flat_map(move |part| part.arrivals(regions).map_while(Result::ok))
    }

    /// The pages that leave for them, in the order of positions.
    pub fn departures(&self, thread: u32) -> impl Iterator<Item = Departure> {
        let regions = self.region_count();
        let parts = self.parts.iter().filter(move |part| part.thread == thread);
        parts.flat_map(move |part| part.departures(regions).map_while(Result::ok))
    }
}

/// The first block; tells what is no tape from a tape that is damaged.
fn first(bytes: &[u8]) -> Result<Frame<'_>, TapeError> {
    let Format { marker, .. } = FORMAT;
    if !bytes.starts_with(&marker) {
        let missing = (FRAME_BYTES - bytes.len().min(FRAME_BYTES)) as u64;
        return Err(match bytes {
            _ if marker.starts_with(bytes) => TapeError::Block(TraceError::Truncated { offset: 0, missing }),
            _ if bytes.starts_with(&crate::FORMAT.marker) => TapeError::Trace,
            _ => TapeError::Foreign,
        });
    }
    match frame::take(FORMAT, bytes, 0, 0) {
        // A later version may count its checksum otherwise.
        Err(_) if bytes.get(4).is_some_and(|found| !FORMAT.reads(*found)) => {
            Err(TapeError::Version { found: bytes[4] })
        }
        Err(error) => Err(TapeError::Block(error)),
        Ok(frame) => Ok(frame),
    }
}

/// What was read for a thread.
#[derive(Clone, Copy, Default, Debug)]
struct Counted {
    fetched: u64,
    first_touches: u64,
    left: u64,
    /// Behind the last arrival, and the last departure.
    ends: [u64; 2],
}

impl Counted {
    fn part(&mut self, part: &Part<'_>, regions: u32) -> Result<(), &'static str> {
        let in_order = |end: &mut u64, position: u32| {
            let order = u64::from(position) >= *end;
            *end = u64::from(position) + 1;
            order.then_some(()).ok_or("positions run backwards")
        };
        for arrival in part.arrivals(regions) {
            let arrival = arrival?;
            in_order(&mut self.ends[0], arrival.position)?;
            *(if arrival.fetched { &mut self.fetched } else { &mut self.first_touches }) += 1;
        }
        for departure in part.departures(regions) {
            in_order(&mut self.ends[1], departure?.position)?;
            self.left += 1;
        }
        Ok(())
    }
}

fn agree(stated: &[ThreadTotals], counted: &[Counted]) -> bool {
    let none = Counted::default();
    stated.iter().zip(counted.iter().chain(std::iter::repeat(&none))).all(|(stated, counted)| {
        let Counted { fetched, first_touches, left, ends } = *counted;
        (stated.fetched, stated.first_touches, stated.left) == (fetched, first_touches, left)
            && ends.iter().all(|end| *end <= stated.references)
    })
}
