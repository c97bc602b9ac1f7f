//! A simulated machine: the pager's own code runs on it as on the kernel, one thread at a time, and which thread goes on is drawn from a
//! seed at every step. So a seed replays a whole run.
//!
//! ```text
//!   program threads ── load, store, system calls ─┐                          ┌─ memory: frames, protection, threads in a fault
//!   the pager's own threads ── crate::sys ────────┴─► calls ──► turns (seed) ┴─ clock: moves with the steps, jumps when all sleep
//! ```
//! A *step* is a call on the machine, a word that threads share (`watched::atomic`), a lock, or a point (`points`). Between two steps no
//! other thread runs: what is explored are the orders of steps, as if memory were sequentially consistent.
//!
//! Sources of what the calls answer: fs/userfaultfd.c, mm/userfaultfd.c and mm/madvise.c of Linux 6.18; decision 0018.

pub(crate) mod access;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod machine;
pub(crate) mod memory;
mod tests;
pub(crate) mod turns;

pub(crate) use machine::Chances;
pub(crate) use turns::{Current, Report, current, simulate};

/// What was leaked in a simulation, and is dropped at its end.
pub(crate) struct Kept {
    address: usize,
    drop_at: fn(usize),
}

impl Drop for Kept {
    fn drop(&mut self) {
        (self.drop_at)(self.address);
    }
}

fn drop_box<T>(address: usize) {
    // SAFETY: `end_with_simulation` took the address from a leaked box of this type, and all threads that know it have ended.
    drop(unsafe { Box::from_raw(address as *mut T) });
}

/// Drops `kept`, which came out of a box, when the simulation of the calling thread has ended; outside of a simulation never.
pub(crate) fn end_with_simulation<T: 'static>(kept: &'static mut T) -> &'static T {
    let pointer = std::ptr::from_mut(kept);
    if let Some(current) = current() {
        current.with(|state| state.kept.push(Kept { address: pointer.expose_provenance(), drop_at: drop_box::<T> }));
    }
    // SAFETY: leaked just now.
    unsafe { &*pointer }
}
