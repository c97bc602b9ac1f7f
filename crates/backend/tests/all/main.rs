//! The backends, each by the same contract, and what each promises beside it.

mod changes;
mod coded;
mod compressed;
mod decorated;
mod file;
mod paths;
mod promotion;
mod recompressed;
mod sealed;
mod telling;
