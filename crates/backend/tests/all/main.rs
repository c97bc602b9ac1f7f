//! The backends, each by the same contract, and what each promises beside it.

mod coded;
mod compressed;
mod decorated;
mod file;
mod sealed;
mod tiers;
