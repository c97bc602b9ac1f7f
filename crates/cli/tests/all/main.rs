//! The `hinterland` command from outside, as a user runs it: exit codes, signals, streams, refusals, what is written, what is left behind.
//!
//! The preloaded library is whatever the build has put beside the command; where it is missing (a build of this crate
//! alone), an empty one is compiled, because these tests are about the launcher.

mod advise;
mod balance;
mod bench;
mod compile;
mod endings;
mod explain;
mod foreign;
mod launcher;
mod manual;
mod node;
mod output;
mod readers;
mod refusals;
mod show;
mod signals;
mod sim;
mod split_debug;
mod streams;
mod submit;
mod tape;
