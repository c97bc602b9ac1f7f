//! Writes a tape, part by part, as the planner goes along the trace.

use super::head::TapeEnd;
use super::records::{Arrival, Departure, Records};
use super::{FORMAT, PageRange, TapeHead, ThreadTotals, sets};
use crate::Region;
use crate::frame::{self, Kind};
use std::io;

/// A part is written once it has so many bytes.
const PART_BYTES: usize = 32 << 10;

/// Writes a tape to `W`. What was written is no tape until [`TapeWriter::finish`].
#[derive(Debug)]
pub struct TapeWriter<W> {
    sink: W,
    seed: u64,
    blocks: u32,
    bytes: u64,
    /// By thread.
    parts: Vec<Records>,
    phases: u32,
    set_pages: u64,
}

impl<W: io::Write> TapeWriter<W> {
    /// Begins a tape with the regions of its trace.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(sink: W, head: &TapeHead, regions: &[Region]) -> io::Result<TapeWriter<W>> {
        let mut writer = TapeWriter { sink, seed: 0, blocks: 0, bytes: 0, parts: Vec::new(), phases: 0, set_pages: 0 };
        writer.seed = writer.put(Kind::Head, &head.encode())?;
        for (number, region) in (0..).zip(regions) {
            writer.put(Kind::Region, &region.encode(number))?;
        }
        Ok(writer)
    }

    /// Appends to a thread's tape: a page arrives, and one departs to make room for it.
    ///
    /// # Errors
    /// The sink's.
    pub fn push(&mut self, thread: u32, arrival: Arrival, departure: Option<Departure>) -> io::Result<()> {
        let index = thread as usize;
        if index >= self.parts.len() {
            self.parts.resize_with(index + 1, Records::default);
        }
        if self.parts[index].interval() != arrival.interval {
            let part = &mut self.parts[index];
            let whole = std::mem::replace(part, Records::starting_at(part.end(), arrival.interval));
            self.put_part(thread, whole)?;
        }
        let part = &mut self.parts[index];
        if let Some(departure) = departure {
            part.depart(departure);
        }
        part.arrive(arrival);
        if part.bytes() < PART_BYTES {
            return Ok(());
        }
        let full = std::mem::replace(part, Records::starting_at(arrival.position + 1, arrival.interval));
        self.put_part(thread, full)
    }

    /// Appends a phase to an unordered tape: ranges of pages, in ascending order and apart.
    ///
    /// # Errors
    /// The sink's.
    pub fn phase(&mut self, ranges: &[PageRange]) -> io::Result<()> {
        for payload in sets::encode(self.phases, ranges) {
            self.put(Kind::Phase, &payload)?;
        }
        self.phases += 1;
        self.set_pages += ranges.iter().map(|range| u64::from(range.pages)).sum::<u64>();
        Ok(())
    }

    /// Ends the tape: it is whole.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self, threads: &[ThreadTotals]) -> io::Result<u64> {
        for (thread, part) in (0..).zip(std::mem::take(&mut self.parts)) {
            self.put_part(thread, part)?;
        }
        let end = TapeEnd { threads: threads.into(), phases: self.phases.into(), set_pages: self.set_pages };
        self.put(Kind::End, &end.encode())?;
        self.sink.flush()?;
        Ok(self.bytes)
    }

    fn put_part(&mut self, thread: u32, part: Records) -> io::Result<()> {
        part.finish(thread).map_or(Ok(()), |payload| self.put(Kind::References, &payload).map(drop))
    }

    fn put(&mut self, kind: Kind, payload: &[u8]) -> io::Result<u64> {
        let mut out = Vec::with_capacity(payload.len() + frame::FRAME_BYTES);
        let checksum = frame::put(FORMAT, &mut out, kind, self.blocks, payload, self.seed);
        self.sink.write_all(&out)?;
        let more = || io::Error::new(io::ErrorKind::InvalidInput, "a tape cannot have more blocks");
        self.blocks = self.blocks.checked_add(1).ok_or_else(more)?;
        self.bytes += out.len() as u64;
        Ok(checksum)
    }
}
