//! Writes a trace, block by block.

use crate::frame::{self, Kind};
use crate::record::{Context, DISCARD_PAGES_MAX};
use crate::{Discard, FORMAT, Head, INDEX_MAX, Reference, Region, Written, bytes};
use std::io;
use std::time::Duration;

/// A block is written once it has so many bytes: about 10,000 references.
const BLOCK_BYTES: usize = 32 << 10;
/// Bytes of the names of files that stand in a trace's end at most.
const OPENED_BYTES_MAX: usize = 256 << 10;
/// Bits of a microset that are written: of two million references. Those of a longer one are left out.
const BITS_BYTES_MAX: usize = 256 << 10;

/// Writes a trace to `W`. What is in blocks that were written can be read whatever happens to the writer afterwards.
///
/// After an error nothing more can be written; the trace is good up to [`Writer::whole_bytes`].
pub struct Writer<W> {
    sink: W,
    seed: u64,
    blocks: u32,
    whole_bytes: u64,
    regions: u32,
    sequence: u64,
    microsets: u64,
    interval: u32,
    /// References in the microset that is not whole yet.
    open: u64,
    /// References in the blocks that were written.
    written: u64,
    /// Microsets that end in them.
    microsets_written: u64,
    /// How long the trace took, in nanoseconds; 0: not known.
    took_ns: u64,
    /// Files with code that the process has opened since it began.
    opened: Vec<String>,
    context: Context,
    payload: Vec<u8>,
    out: Vec<u8>,
}

impl<W: io::Write> Writer<W> {
    /// Begins a trace: writes its head.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(sink: W, head: &Head) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            sink,
            seed: 0,
            blocks: 0,
            whole_bytes: 0,
            regions: 0,
            sequence: 0,
            microsets: 0,
            interval: 0,
            open: 0,
            written: 0,
            microsets_written: 0,
            took_ns: 0,
            opened: Vec::new(),
            context: Context::default(),
            payload: Vec::with_capacity(BLOCK_BYTES + 64),
            out: Vec::with_capacity(BLOCK_BYTES + 128),
        };
        writer.seed = writer.put(Kind::Head, &head.encode())?;
        Ok(writer)
    }

    /// Declares a region; returns its number.
    ///
    /// # Errors
    /// The sink's; `InvalidInput` beyond [`INDEX_MAX`] regions.
    pub fn region(&mut self, region: &Region) -> io::Result<u32> {
        if self.regions == INDEX_MAX {
            return Err(invalid("a trace cannot have more regions"));
        }
        self.flush()?;
        self.put(Kind::Region, &region.encode(self.regions))?;
        self.regions += 1;
        Ok(self.regions - 1)
    }

    /// Notes a touch: thread, region, page, time, and whether the page had no content; the rest of `touch` counts for nothing.
    ///
    /// # Errors
    /// The sink's; `InvalidInput` for a region that was not declared or a thread beyond [`INDEX_MAX`].
    pub fn touch(&mut self, touch: &Reference) -> io::Result<()> {
        if touch.thread >= INDEX_MAX || touch.region >= self.regions {
            return Err(invalid("no such thread or region"));
        }
        self.begin_block();
        self.context.put_touch(&mut self.payload, touch);
        self.sequence += 1;
        self.open += 1;
        self.write_full_block()
    }

    /// Notes that the content of pages is given up; here they may be more than [`DISCARD_PAGES_MAX`].
    ///
    /// # Errors
    /// The sink's; `InvalidInput` for a region that was not declared, or pages beyond the last number.
    pub fn discard(&mut self, discard: &Discard) -> io::Result<()> {
        let end = u64::from(discard.page) + u64::from(discard.pages);
        if discard.region >= self.regions || end > 1 << 32 {
            return Err(invalid("no such region or pages"));
        }
        let (mut page, mut left) = (discard.page, discard.pages);
        while left > 0 {
            let pages = left.min(DISCARD_PAGES_MAX);
            self.begin_block();
            self.context.put_discard(&mut self.payload, &Discard { page, pages, ..*discard });
            self.write_full_block()?;
            (page, left) = (page.wrapping_add(pages), left - pages);
        }
        Ok(())
    }

    /// Ends the microset; one without references does not count. Bits of `written` that are too few say that the last references were
    /// not written to.
    ///
    /// # Errors
    /// The sink's.
    pub fn end_microset(&mut self, written: Written<'_>) -> io::Result<()> {
        if self.open == 0 {
            return Ok(());
        }
        let length = usize::try_from(self.open.div_ceil(8)).unwrap_or(usize::MAX);
        let mut bits = Vec::new();
        let written = match written {
            Written::Bits(_) if length > BITS_BYTES_MAX => Written::Unknown,
            Written::Bits(given) => {
                bits.extend_from_slice(&given[..length.min(given.len())]);
                bits.resize(length, 0);
                Written::of(&bits, self.open)
            }
            other => other,
        };
        self.begin_block();
        self.context.put_end(&mut self.payload, written);
        self.open = 0;
        self.microsets += 1;
        self.write_full_block()
    }

    /// Begins an interval of the program, with a block of its own; numbers grow.
    ///
    /// # Errors
    /// The sink's; `InvalidInput` for a number that does not grow.
    pub fn begin_interval(&mut self, number: u32) -> io::Result<()> {
        if number <= self.interval {
            return Err(invalid("intervals are numbered upwards"));
        }
        self.end_microset(Written::Unknown)?;
        self.flush()?;
        self.interval = number;
        Ok(())
    }

    /// Writes the block that is not full yet.
    ///
    /// # Errors
    /// The sink's.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        self.context.put_pending(&mut self.payload);
        let payload = std::mem::take(&mut self.payload);
        let outcome = self.put(Kind::References, &payload);
        self.payload = payload;
        self.payload.clear();
        self.context.clear();
        outcome?;
        (self.written, self.microsets_written) = (self.sequence, self.microsets);
        Ok(())
    }

    /// Notes how long the process was recorded, for the trace's end.
    pub fn took(&mut self, time: Duration) {
        self.took_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Notes which files with code the process has opened while it was recorded, for the trace's end. Those for which there is no room are
    /// left out.
    pub fn opened(&mut self, mut objects: Vec<String>) {
        let mut bytes = 0;
        objects.retain(|object| {
            bytes += object.len();
            bytes <= OPENED_BYTES_MAX
        });
        self.opened = objects;
    }

    /// Ends the trace: it is whole.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(&mut self) -> io::Result<()> {
        self.end_microset(Written::Unknown)?;
        self.flush()?;
        let mut payload = Vec::new();
        bytes::put(&mut payload, self.sequence);
        bytes::put(&mut payload, self.microsets);
        bytes::put(&mut payload, self.took_ns);
        bytes::put_texts(&mut payload, &self.opened);
        self.put(Kind::End, &payload)?;
        self.sink.flush()
    }

    /// References noted.
    pub fn references(&self) -> u64 {
        self.sequence
    }

    /// References in whole blocks.
    pub fn references_written(&self) -> u64 {
        self.written
    }

    /// Microsets that are whole.
    pub fn microsets(&self) -> u64 {
        self.microsets
    }

    /// Microsets that end in whole blocks.
    pub fn microsets_written(&self) -> u64 {
        self.microsets_written
    }

    /// Bytes of the blocks that were written whole.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// What it writes to.
    pub fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    fn begin_block(&mut self) {
        if self.payload.is_empty() {
            bytes::put(&mut self.payload, self.sequence);
            bytes::put(&mut self.payload, self.microsets);
            bytes::put(&mut self.payload, self.interval.into());
            bytes::put(&mut self.payload, self.open);
        }
    }

    fn write_full_block(&mut self) -> io::Result<()> {
        if self.payload.len() < BLOCK_BYTES { Ok(()) } else { self.flush() }
    }

    fn put(&mut self, kind: Kind, payload: &[u8]) -> io::Result<u64> {
        self.out.clear();
        let checksum = frame::put(FORMAT, &mut self.out, kind, self.blocks, payload, self.seed);
        self.sink.write_all(&self.out)?;
        self.blocks = self.blocks.checked_add(1).ok_or_else(|| invalid("a trace cannot have more blocks"))?;
        self.whole_bytes += self.out.len() as u64;
        Ok(checksum)
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
