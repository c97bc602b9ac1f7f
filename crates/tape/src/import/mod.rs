//! Traces that others recorded, turned into ours.

mod lackey;
mod text;
mod touches;

pub use lackey::lackey;
pub use text::text;

use std::io::{self, BufRead, Read};

/// Why an import stops.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line makes no sense.
    #[error("line {line}: {what}: '{text}'")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
        /// The line itself, cut short.
        text: String,
    },
    /// There is not one reference.
    #[error("there is no reference in it; {expected}")]
    Empty {
        /// What was looked for.
        expected: &'static str,
    },
    /// It cannot be read.
    #[error("cannot read: {0}")]
    Read(#[source] io::Error),
    /// The trace cannot be written.
    #[error("cannot write the trace: {0}")]
    Write(#[source] io::Error),
}

/// What an import made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imported {
    /// References in the trace.
    pub references: u64,
    /// Microsets in the trace.
    pub microsets: u64,
    /// Lines that were read.
    pub lines: u64,
}

/// Bytes of a line that are read: a comment may be longer, and nothing else that makes sense.
const LINE_BYTES_MAX: usize = 4096;

/// Of a line that is longer than [`LINE_BYTES_MAX`], the beginning.
struct Line<'a> {
    text: &'a str,
    is_cut: bool,
}

/// Calls `each` with every line, from 1; bytes that are not UTF-8 are replaced.
fn for_each_line(
    mut input: impl io::BufRead,
    mut each: impl FnMut(u64, &Line) -> Result<(), ImportError>,
) -> Result<u64, ImportError> {
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        let mut beginning = input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        if beginning.read_until(b'\n', &mut line).map_err(ImportError::Read)? == 0 {
            return Ok(number);
        }
        number += 1;
        let is_cut = line.len() > LINE_BYTES_MAX && line.last() != Some(&b'\n');
        each(number, &Line { text: String::from_utf8_lossy(&line).trim_end(), is_cut })?;
        if is_cut {
            input.skip_until(b'\n').map_err(ImportError::Read)?;
        }
    }
}

/// An error of a line.
fn refuse(line: u64, what: &'static str, text: &str) -> ImportError {
    const SHOWN: usize = 60;
    let mut chars = text.chars();
    let mut shown: String = chars.by_ref().take(SHOWN).collect();
    shown.extend(chars.next().map(|_| '…'));
    ImportError::Line { line, what, text: shown }
}
