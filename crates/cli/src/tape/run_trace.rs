//! A trace from which a run plans its tape when it starts, for the local memory that it has.

use super::planned::{open, refuse, tape_of};
use crate::error::complain;
use crate::file_magic;
use crate::launch::tape::CheckedTape;
use hinterland_tape::plan::Recording;
use hinterland_tape::{Trace, is_trace};
use hinterland_units::{ByteCount, PAGE_BYTES, PageCount};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// See the module.
pub struct RunTrace {
    path: PathBuf,
    bytes: Vec<u8>,
    /// What was read of it.
    pub recording: Recording,
}

impl RunTrace {
    /// Reads a trace.
    ///
    /// # Errors
    /// No tape can be planned from it, in words.
    pub fn read(path: &Path) -> Result<RunTrace, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let trace = open(path, &bytes).map_err(|error| words(&error))?;
        let recording = Recording::read(&trace, None).map_err(refuse(path)).map_err(|error| words(&error))?;
        Ok(RunTrace { path: path.into(), bytes, recording })
    }

    /// The same; `None`: the file is none.
    ///
    /// # Errors
    /// The same.
    pub fn read_if_it_is_one(path: &Path) -> Result<Option<RunTrace>, String> {
        let is_one = path.is_file() && file_magic::of::<4>(path).is_some_and(|begin| is_trace(&begin));
        is_one.then(|| RunTrace::read(path)).transpose()
    }

    /// All pages that the program touched when it was traced, and the file that says so.
    pub fn recorded_peak(&self) -> (ByteCount, PathBuf) {
        (ByteCount(PageCount(self.recording.pages()).bytes()), self.path.clone())
    }

    /// The bytes of a tape for so many pages of local memory, and what it lacks because of the trace.
    ///
    /// # Errors
    /// As above.
    pub fn plan(&self, local_pages: u64) -> Result<(Vec<u8>, Vec<String>), String> {
        let words = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let trace = Trace::open(&self.bytes).map_err(|error| words(&error))?;
        tape_of(&trace, &self.recording, local_pages).map_err(|error| words(&error))
    }

    /// The tape of a run with so much local memory, and where it comes from; says what it lacks.
    ///
    /// # Errors
    /// As above.
    pub fn tape(&self, local: ByteCount) -> Result<(CheckedTape, String), String> {
        let begun = Instant::now();
        let (bytes, lacks) = self.plan((local.0 / PAGE_BYTES as u64).min(self.recording.pages()))?;
        for what in lacks {
            complain(format_args!("--tape: {}: {what}", self.path.display()));
        }
        let tape = CheckedTape::of(&self.path, bytes)?;
        Ok((tape, format!("planned in {:.1} s from {}", begun.elapsed().as_secs_f64(), self.path.display())))
    }
}
