//! Traces: the format and the imports.

mod compare;
mod format;
mod import;
mod plan;
mod tapes;
