//! The simulator: replays worked out by hand, laws that hold for every replay, `auto` beside the other prefetchers, and blocks
//! beside pages.

mod auto;
mod blocks;
mod by_hand;
mod laws;
mod suite;
mod tapes;
