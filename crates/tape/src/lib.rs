//! Page traces: which page a program touched, when, and in which thread. Tapes: which pages it will need, planned from a trace.
//!
//! ```text
//!   tracer, import ──► Writer ──► blocks (framed, checked, each readable by itself) ──► Trace ──► References ──► study
//!                                                                                                     ├──► plan ──► tape
//!                                                       traces of several runs ──► compare ──► unordered tape
//! ```
//!
//! The format is in docs/tape.md. Pure code over bytes: no file, no clock, no `unsafe`; a [`Writer`] writes to whatever it is
//! given, a [`Trace`] reads bytes that are in memory.
#![forbid(unsafe_code)]

mod bytes;
pub mod compare;
mod error;
mod frame;
mod head;
pub mod import;
mod old_record;
pub mod plan;
mod reader;
mod record;
mod run;
mod slots;
pub mod study;
pub mod tape;
mod writer;

pub use error::TraceError;
pub use head::{ForkPath, Head, Region, program_key};
pub use reader::{Entry, Gap, References, Trace};
pub use record::{Cause, DISCARD_PAGES_MAX, Discard, Reference, TICK_NS, Written};
pub use run::RUN_TOLERANCE_NS;
pub use slots::Slots;
pub use writer::Writer;

/// Version of the format that is written, and the last one that is read; the first is 1.
pub const VERSION: u8 = 7;
/// Whether a file that begins so is a trace, of whatever version.
pub fn is_trace(begin: &[u8]) -> bool {
    begin.starts_with(&FORMAT.marker)
}

/// The frame around a trace's blocks.
pub(crate) const FORMAT: frame::Format = frame::Format { marker: *b"HLT\xb1", version: VERSION };
/// Threads in one trace at most, and regions.
pub const INDEX_MAX: u32 = 1 << 16;
/// Pages of a microset unless the user says otherwise (3PO, §5: `MICROSET_SIZE`).
pub const MICROSET_PAGES: u32 = 1024;
