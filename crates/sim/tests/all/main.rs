//! The simulator: replays worked out by hand, laws that hold for every replay, `auto` beside the other prefetchers, blocks
//! beside pages, and the features that a run tells beside those of its trace.

mod auto;
mod blocks;
mod by_hand;
mod features;
mod laws;
mod suite;
mod tapes;
