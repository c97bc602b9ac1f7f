//! `hinterland run` and `doctor` from outside: exit codes, signals, streams, refusals, and what is left behind.
//!
//! The preloaded library is whatever the build has put beside the command; where it is missing (a build of this crate
//! alone), an empty one is compiled, because these tests are about the launcher.

mod bench;
mod endings;
mod launcher;
mod refusals;
mod signals;
mod streams;
