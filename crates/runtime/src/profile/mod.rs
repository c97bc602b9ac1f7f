//! A profile: where the program waits for far memory, by which calls it came there, and where that memory was allocated.
//!
//! ```text
//! fault ─▶ watch ─▶ code_position (registers of the signal, or /proc on the monitor path) ─▶ walk ─▶ rules (.eh_frame) ─▶ modules
//!              └──▶ objects: page ─▶ site ◄── malloc, mmap (large ones all, small ones sampled) ─▶ walk
//! ```
//! Everything goes to tables in memory of the launcher's (`hinterland_abi::profile`), which names functions when the run has ended.
//!
//! Invariant: all of it may run in a signal handler that interrupted anything, and on a pager's thread. It allocates nothing, takes no
//! lock that interrupted code may hold, resolves no symbol, and reads stacks by a call that fails where an instruction would fault; far
//! memory not at all, so stacks that are far have no calls.

mod code_position;
mod modules;
mod objects;
mod rules;
mod walk;
mod watch;

pub(crate) use objects::{allocated, mapped, released, unmapped};

use crate::{ledger, segment};
use hinterland_abi::profile::{PROFILE_MAGIC, PROFILE_VERSION, Profile};
use hinterland_abi::{HandoverFile, Settings};
use hinterland_pager::FaultWatch;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

static PROFILE: OnceLock<&'static Profile> = OnceLock::new();

/// Faults, or allocated bytes by the same number of pages, of which one is looked at closely.
const ONE_IN: u32 = 64;

/// Where the profile goes; `None`: none is taken.
fn profile() -> Option<&'static Profile> {
    PROFILE.get().copied()
}

/// Begins the profile, if there is to be one; returns what watches faults.
pub(crate) fn begin(settings: &Settings) -> Option<&'static dyn FaultWatch> {
    // A launcher that did not hand its ledger over would not hand this over either.
    ledger::get()?;
    let is_known = |profile: &Profile| {
        profile.magic.load(Acquire) == PROFILE_MAGIC && profile.version.load(Acquire) == PROFILE_VERSION
    };
    // SAFETY: a profile consists of atomics.
    let profile = unsafe { segment::map(settings, &settings.profile_memory, HandoverFile::Profile, is_known) }?;
    if let Err(error) = modules::begin().and_then(|()| objects::begin()) {
        profile.error.set(&error);
        return None;
    }
    profile.begun.store(1, Relaxed);
    PROFILE.get_or_init(|| profile);
    Some(&watch::Watcher)
}

/// The program's allocations begin to be far.
pub(crate) fn heap_begins() {
    if profile().is_some() {
        objects::activate();
    }
}

/// In the child of a fork, whose threads are others.
pub(crate) fn begin_child() {
    code_position::close();
}
