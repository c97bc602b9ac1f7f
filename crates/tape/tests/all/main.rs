//! Traces: the format and the imports.

mod format;
mod import;
