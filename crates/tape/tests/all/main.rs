//! Traces: the format and the imports.

mod format;
mod import;
mod plan;
mod tapes;
