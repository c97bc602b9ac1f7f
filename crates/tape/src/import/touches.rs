//! Page numbers of a whole address space, as regions and pages, grouped into microsets as the tracer does it.

use super::{ImportError, Imported};
use crate::{Head, INDEX_MAX, Reference, Region, Writer, Written};
use std::collections::{HashMap, HashSet};
use std::io;

/// Pages of an imported region: 1 TiB of address space with pages of 4 KiB.
const REGION_PAGES: u64 = 1 << 28;

/// Receives an import's page numbers.
pub struct Touches<W> {
    writer: Writer<W>,
    microset_pages: usize,
    microset: HashSet<u64>,
    /// By the number of the first page.
    regions: HashMap<u64, u32>,
    /// Threads as the import names them, and as the trace does.
    threads: HashMap<u64, u32>,
}

impl<W: io::Write> Touches<W> {
    pub fn new(sink: W, head: &Head) -> Result<Touches<W>, ImportError> {
        Ok(Touches {
            writer: Writer::new(sink, head).map_err(ImportError::Write)?,
            microset_pages: head.microset_pages.max(1) as usize,
            microset: HashSet::new(),
            regions: HashMap::new(),
            threads: HashMap::new(),
        })
    }

    /// Whether the trace can have this thread.
    pub fn has_room_for(&self, thread: u64) -> bool {
        self.threads.len() < INDEX_MAX as usize || self.threads.contains_key(&thread)
    }

    /// Notes that `thread` touched a page. Inside a microset, only the first touch of each page is kept.
    pub fn touch(&mut self, thread: u64, page: u64) -> Result<(), ImportError> {
        if self.microset.contains(&page) {
            return Ok(());
        }
        if self.microset.len() == self.microset_pages {
            self.microset.clear();
            self.writer.end_microset(Written::Unknown).map_err(ImportError::Write)?;
        }
        self.microset.insert(page);
        let next = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        let thread = *self.threads.entry(thread).or_insert(next);
        let region = self.region(page / REGION_PAGES)?;
        let page = u32::try_from(page % REGION_PAGES).unwrap_or(0);
        self.writer.touch(&Reference { thread, region, page, ..Reference::default() }).map_err(ImportError::Write)
    }

    fn region(&mut self, stretch: u64) -> Result<u32, ImportError> {
        if let Some(known) = self.regions.get(&stretch) {
            return Ok(*known);
        }
        let name = format!("pages from {:#x}", stretch * REGION_PAGES);
        let number = self.writer.region(&Region { name, pages: REGION_PAGES }).map_err(ImportError::Write)?;
        self.regions.insert(stretch, number);
        Ok(number)
    }

    /// Ends the trace; `expected`: what a file without references should have had.
    pub fn finish(mut self, lines: u64, expected: &'static str) -> Result<Imported, ImportError> {
        if self.writer.references() == 0 {
            return Err(ImportError::Empty { expected });
        }
        self.writer.finish().map_err(ImportError::Write)?;
        Ok(Imported { references: self.writer.references(), microsets: self.writer.microsets(), lines })
    }
}
