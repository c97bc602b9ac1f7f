//! What the tests of several crates share: the contract of backends, nodes that misbehave, an etcd server, random messages,
//! patterns of page touches, a handler of SIGBUS, and one way to wait.
//!
//! **Invariant**: no verdict depends on how fast the machine is. A test waits until something holds, for as long as it takes, and states
//! what must never hold; `wait_until` ends a test that hangs, and says where it hung.

mod blocks;
pub mod contract;
pub mod etcd;
pub mod messages;
pub mod patterns;
pub mod proxy;
pub mod sigbus;
mod wait;

pub use blocks::{append_block, seal_head};
pub use hinterland_units::Rng;
pub use wait::{HANG, maintain_until, maintained, patient, wait_until, wait_until_or};
