//! A cluster whose machines have far memory: what dispatching programs to it brings (xDM, Algorithm 1 and figure 16).
//!
//! ```text
//!   programs (measured curves) ──► demands at a slowdown ──┐
//!   arrivals (seed, share of friendly programs) ───────────┴─► simulate: dispatch (Algorithm 1) ──► fleet of machines ──► ClusterStats
//! ```
//!
//! Machines have processors, local memory, and one kind of far memory at a time, with a capacity and a bandwidth. A program takes of them what it
//! was measured to need for a slowdown. No clock: the only time is that of the events.

mod arrivals;
pub(crate) mod cli;
mod demands;
mod dispatch;
mod fleet;
mod programs;
mod report;
mod simulate;

pub use arrivals::{Arrivals, Mix};
pub use demands::{Demand, Demands};
pub use dispatch::{Assignment, Start, dispatch};
pub use fleet::{Fleet, Limits, Machine};
pub use programs::{Backend, Point, Program, Programs};
pub use simulate::{ClusterStats, Run, simulate};
