//! The simulator: replays worked out by hand, laws that hold for every replay, and `auto` beside the other prefetchers.

mod auto;
mod by_hand;
mod laws;
mod suite;
mod tapes;
