//! Reads a trace from bytes in memory.
//!
//! Blocks are checked before anything in them is believed, so an entry that comes out is one that went in. Where a block
//! cannot be read the iterator says why, once, and ends; [`References::skip_damage`] goes on behind it.

use crate::bytes::Bytes;
use crate::frame::{self, FRAME_BYTES, Frame, Kind};
use crate::record::{Context, Discard, Record, Reference, Written};
use crate::{FORMAT, Head, Region, TraceError, old_record};

/// A trace whose head is known.
#[derive(Clone, Debug)]
pub struct Trace<'a> {
    bytes: &'a [u8],
    head: Head,
    seed: u64,
    /// Where the block after the head begins.
    body: usize,
}

impl<'a> Trace<'a> {
    /// Reads the head.
    ///
    /// # Errors
    /// The bytes are no trace, of another version, or their head is cut off or damaged.
    pub fn open(bytes: &'a [u8]) -> Result<Trace<'a>, TraceError> {
        if !bytes.starts_with(&FORMAT.marker) {
            let cut = FORMAT.marker.starts_with(bytes);
            let missing = (FRAME_BYTES - bytes.len().min(FRAME_BYTES)) as u64;
            return Err(match cut {
                true => TraceError::Truncated { offset: 0, missing },
                false if bytes.starts_with(&crate::tape::FORMAT.marker) => TraceError::Tape,
                false => TraceError::Foreign,
            });
        }
        let frame = match frame::take(FORMAT, bytes, 0, 0) {
            // A later version may count its checksum otherwise.
            Err(_) if bytes.get(4).is_some_and(|version| !FORMAT.reads(*version)) => {
                return Err(TraceError::Version { found: bytes[4] });
            }
            other => other?,
        };
        let malformed = |what| TraceError::Malformed { offset: 0, what };
        if frame.kind != Kind::Head || frame.number != 0 {
            return Err(malformed("a trace begins with its head"));
        }
        let head = Head::decode(frame.payload, frame.version).ok_or(malformed("the head cannot be read"))?;
        Ok(Trace { bytes, head, seed: frame.checksum, body: FRAME_BYTES + frame.payload.len() })
    }

    /// What the trace is of.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The references, from the first one on.
    pub fn references(&self) -> References<'a> {
        References {
            bytes: self.bytes,
            seed: self.seed,
            next: self.body,
            number: 1,
            block: 0,
            left: Bytes(&[]),
            context: Context::default(),
            regions: Vec::new(),
            region_limit: 0,
            sequence: 0,
            microset: 0,
            open: 0,
            interval: 0,
            version: crate::VERSION,
            took_ns: 0,
            opened: Vec::new(),
            ending: Ending::Open,
            skipped: false,
            torn: false,
            disordered: false,
        }
    }
}

/// How far an iterator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// There may be more.
    Open,
    /// At an error.
    Stopped,
    /// At the end of the bytes, without an end of the trace.
    Broken,
    /// At the end of the trace.
    Whole,
}

/// What could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first byte that could not be read.
    pub from: u64,
    /// The byte from which on it can.
    pub to: u64,
}

/// What a trace says next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A page is touched.
    Touch(Reference),
    /// The content of pages is given up.
    Discard(Discard),
    /// The microset is whole.
    MicrosetEnd {
        /// References in it; those of blocks that were lost count.
        references: u64,
        /// Which of them were written to.
        written: Written<'a>,
    },
}

/// The references of a trace, in order; [`References::next_entry`] has the rest of what it says, too.
///
/// After `None`, [`References::is_whole`] tells whether that was the end of the trace. An error comes once, and nothing after
/// it unless the caller skips the damage.
#[derive(Clone)]
pub struct References<'a> {
    bytes: &'a [u8],
    seed: u64,
    /// Where the next block begins.
    next: usize,
    /// Which it should be.
    number: u32,
    /// Where the block that is being read begins.
    block: usize,
    left: Bytes<'a>,
    context: Context,
    regions: Vec<Region>,
    /// Regions that references may name.
    region_limit: u32,
    sequence: u64,
    microset: u64,
    /// References of the microset that is not whole yet.
    open: u64,
    interval: u32,
    /// Of the block.
    version: u8,
    took_ns: u64,
    opened: Vec<String>,
    ending: Ending,
    /// A gap was skipped: numbers need not follow each other.
    skipped: bool,
    /// Part of the microset lies in a gap.
    torn: bool,
    /// At an error: the block is whole, but not the one that should come.
    disordered: bool,
}

impl<'a> References<'a> {
    /// The regions that were declared so far: all that the references so far name, unless a gap was skipped.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Microsets that have ended so far. Gaps count.
    pub fn microsets(&self) -> u64 {
        self.microset
    }

    /// The end of the trace was read: its program closed it.
    pub fn is_whole(&self) -> bool {
        self.ending == Ending::Whole
    }

    /// How long the process was recorded, in nanoseconds: what the trace's end says. 0: it was not read, or is of version 1 to 5 or imported.
    pub fn took_ns(&self) -> u64 {
        self.took_ns
    }

    /// Files with code that were mapped when the process closed its trace, and were not when recording began: libraries that it has opened
    /// meanwhile. What the trace's end says; empty, too, if it was not read, or is of version 1 to 6.
    pub fn opened(&self) -> &[String] {
        &self.opened
    }

    /// After an error: goes on at the next block that can be read. `None`: there is none.
    pub fn skip_damage(&mut self) -> Option<Gap> {
        if self.ending != Ending::Stopped {
            return None;
        }
        let from = self.block;
        // Not the block itself again, unless it is merely not the one that was expected.
        let mut at = if self.disordered { from } else { from + 1 };
        while let Some(found) = self.bytes[at..].windows(FORMAT.marker.len()).position(|four| four == FORMAT.marker) {
            at += found;
            if let Ok(frame) = frame::take(FORMAT, &self.bytes[at..], at as u64, self.seed)
                && frame.kind != Kind::Head
            {
                (self.next, self.number) = (at, frame.number);
                (self.ending, self.skipped, self.torn) = (Ending::Open, true, true);
                // A region's declaration may be lost.
                self.region_limit = crate::INDEX_MAX;
                self.left = Bytes(&[]);
                return Some(Gap { from: from as u64, to: at as u64 });
            }
            at += 1;
        }
        None
    }

    /// Takes the next block up. `Ok(false)`: there is none.
    #[cold]
    fn enter_block(&mut self) -> Result<bool, TraceError> {
        self.block = self.next;
        if self.next == self.bytes.len() {
            self.ending = Ending::Broken;
            return Ok(false);
        }
        let offset = self.block as u64;
        let frame = frame::take(FORMAT, &self.bytes[self.next..], offset, self.seed)?;
        if frame.number != self.number {
            return Err(TraceError::Disordered { offset, expected: self.number, found: frame.number });
        }
        self.next += FRAME_BYTES + frame.payload.len();
        self.number = self.number.wrapping_add(1);
        self.begin(frame).map_err(|what| TraceError::Malformed { offset, what })?;
        Ok(self.ending == Ending::Open)
    }

    fn begin(&mut self, frame: Frame<'a>) -> Result<(), &'static str> {
        let mut left = Bytes(frame.payload);
        match frame.kind {
            Kind::Head => return Err("a second head"),
            Kind::Region => {
                let (number, region) = Region::decode(frame.payload).ok_or("a region cannot be read")?;
                let lost = u32::try_from(self.regions.len()).ok().and_then(|known| number.checked_sub(known));
                match lost {
                    Some(0) => {}
                    Some(_) if self.region_limit == crate::INDEX_MAX => {}
                    _ => return Err("a region is missing or declared twice"),
                }
                if number >= crate::INDEX_MAX {
                    return Err("a region's number is too large");
                }
                self.regions.resize(number as usize, Region { name: "unknown".into(), pages: 0 });
                self.regions.push(region);
                self.region_limit = self.region_limit.max(number + 1);
            }
            Kind::References => {
                let sequence = left.number().ok_or("a block of references is cut off")?;
                let microset = left.number().ok_or("a block of references is cut off")?;
                if !self.skipped && (sequence, microset) != (self.sequence, self.microset) {
                    return Err("references are missing before it");
                }
                if sequence < self.sequence || microset < self.microset {
                    return Err("references are numbered backwards");
                }
                if frame.version > 1 {
                    let interval = left.small().ok_or("a block of references is cut off")?;
                    if interval < self.interval {
                        return Err("intervals are numbered backwards");
                    }
                    self.interval = interval;
                }
                let open = if frame.version > 2 {
                    left.number().ok_or("a block of references is cut off")?
                } else {
                    self.open
                };
                if !self.skipped && open != self.open || open > sequence {
                    return Err("references of its microset are missing before it");
                }
                (self.sequence, self.microset, self.open, self.skipped) = (sequence, microset, open, false);
                self.version = frame.version;
                self.left = left;
                self.context.clear();
            }
            Kind::End => {
                let counts = (left.number(), left.number());
                if frame.version > 5 {
                    self.took_ns = left.number().ok_or("the end is cut off")?;
                }
                if frame.version > 6 {
                    self.opened = left.texts().ok_or("the end is cut off")?;
                }
                let expected = (Some(self.sequence), Some(self.microset));
                if !left.is_empty() || !self.skipped && counts != expected {
                    return Err("the end does not match what came before it");
                }
                if self.next != self.bytes.len() {
                    return Err("something stands behind the end of the trace");
                }
                self.ending = Ending::Whole;
            }
            Kind::Phase => return Err("a block of a tape"),
        }
        Ok(())
    }

    fn stop(&mut self, error: TraceError) -> TraceError {
        self.ending = Ending::Stopped;
        self.disordered = matches!(error, TraceError::Disordered { .. });
        self.left = Bytes(&[]);
        self.context.clear();
        error
    }

    /// What comes next. Ends and fails as the iterator does.
    #[inline]
    pub fn next_entry(&mut self) -> Option<Result<Entry<'a>, TraceError>> {
        if let Some(pending) = self.context.take_pending() {
            return Some(self.entry(pending));
        }
        while self.left.is_empty() {
            if self.ending != Ending::Open {
                return None;
            }
            match self.enter_block() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(self.stop(error))),
            }
        }
        let record = match self.version {
            ..3 => old_record::take(&mut self.context, &mut self.left, self.region_limit),
            _ => self.context.take(&mut self.left, self.region_limit),
        };
        Some(self.entry(record))
    }

    #[inline]
    fn entry(&mut self, record: Result<Record, &'static str>) -> Result<Entry<'a>, TraceError> {
        let entry = match record {
            Ok(Record::Touch(reference)) => {
                let (sequence, microset, interval) = (self.sequence, self.microset, self.interval);
                self.sequence += 1;
                self.open += 1;
                return Ok(Entry::Touch(Reference { sequence, microset, interval, ..reference }));
            }
            Ok(Record::Discard(discard)) => Ok(Entry::Discard(discard)),
            Ok(Record::End(code)) => self.end_microset(code),
            Err(what) => Err(what),
        };
        entry.map_err(|what| self.stop(TraceError::Malformed { offset: self.block as u64, what }))
    }

    fn end_microset(&mut self, code: u64) -> Result<Entry<'a>, &'static str> {
        let (references, torn) = (std::mem::take(&mut self.open), std::mem::take(&mut self.torn));
        let written = Written::take(code, references, &mut self.left)?;
        self.microset += 1;
        Ok(Entry::MicrosetEnd { references, written: if torn { Written::Unknown } else { written } })
    }
}

impl Iterator for References<'_> {
    type Item = Result<Reference, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_entry()? {
                Ok(Entry::Touch(reference)) => return Some(Ok(reference)),
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
