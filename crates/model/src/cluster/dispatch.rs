//! Where a program goes (xDM, Algorithm 1): to a machine that is warm, if there is one. A pure function of what is free.
//!
//! ```text
//!   for each backend, the preferred one first:
//!     a machine with it that runs programs ► one with it that runs nothing ► one that runs nothing and is switched ► a new one
//! ```

use super::demands::Demands;
use super::fleet::Fleet;

/// How a program starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Beside others, on a machine that has the backend.
    Warm,
    /// On a machine that runs nothing and has it.
    Free,
    /// On a machine that runs nothing, which is switched to it.
    Switched,
    /// On a machine that was not used before.
    New,
}

/// The machine, backend and start of a program; `None`: no machine takes it now.
pub fn dispatch(fleet: &Fleet, demands: &Demands, program: usize) -> Option<(u32, usize, Start)> {
    demands.preferred(program).iter().find_map(|backend| {
        let (backend, demand) = (*backend, demands.of(program, *backend));
        let found = |machine: Option<u32>, start| machine.map(|machine| (machine, backend, start));
        found(fleet.online(backend, demand), Start::Warm)
            .or_else(|| found(fleet.free(backend, demand), Start::Free))
            .or_else(|| found(fleet.free_of_another(backend, demand), Start::Switched))
            .or_else(|| found(fleet.new_one(backend, demand), Start::New))
    })
}
