//! Where a program goes (xDM, Algorithm 1): to a machine that is warm, if there is one. A pure function of what is free.
//!
//! ```text
//!   for each backend, the preferred one first, and without far memory:
//!     a machine with it that runs programs ► one with it that runs nothing ► one that runs nothing and is switched ► a new one
//! ```
//!
//! A program whose preferred path is full runs with the next, or with all of its memory local: it does not wait for far memory while there
//! is other memory.

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

/// Where a program goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The number of the machine.
    pub machine: u32,
    /// Its far memory there; `None`: all of its memory is local.
    pub backend: Option<usize>,
    /// What has to happen first.
    pub start: Start,
}

/// The place of a program; `None`: no machine takes it now.
pub fn dispatch(fleet: &Fleet, demands: &Demands, program: usize) -> Option<Assignment> {
    demands.preferred(program).iter().find_map(|backend| {
        let (backend, demand) = (*backend, demands.of(program, *backend)?);
        let found = |machine: Option<u32>, start| machine.map(|machine| Assignment { machine, backend, start });
        let switched = || backend.and_then(|backend| fleet.free_of_another(backend, demand));
        found(fleet.online(backend, demand), Start::Warm)
            .or_else(|| found(fleet.free(backend, demand), Start::Free))
            .or_else(|| found(switched(), Start::Switched))
            .or_else(|| found(fleet.new_one(backend, demand), Start::New))
    })
}
