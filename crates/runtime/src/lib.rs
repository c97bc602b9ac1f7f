//! The preloaded library: how an unmodified program's memory comes to live in the far range.
//!
//! | file | room |
//! |---|---|
//! | `start` | the constructor: settings, features, pager, threads |
//! | `ledger` | this process's row of the shared statistics |
//! | `fork`, `exit` | what happens when the process forks or ends |
//! | `trace` | where the tracer's records go |
//! | `census` | whose memory is what, as the kernel sees it |
//! | `inline` | faults served by the thread that takes them, and what that takes: signals, system calls |
//! | `interpose` | the names that the program calls instead of libc's |
//! | `arena` | what this library itself allocates |
//! | `heap`, `large`, `jemalloc`, `near`, `caller` | malloc and its family, far and near |
//! | `mapping`, `regions`, `brk` | private anonymous mappings |
//! | `descriptors` | our descriptors survive programs that close everything |
//!
//! The laws (DESIGN.md): the library's own memory is never far; its threads never call an interposed name, never touch far
//! memory outside the pager, and block the program's signals.
#![cfg_attr(
    feature = "local-only",
    allow(
        dead_code,
        unused_imports,
        reason = "a build that never pages has no figures, forks and descriptors to care for"
    )
)]

mod arena;
mod brk;
mod caller;
mod census;
mod descriptors;
mod devices;
mod errno;
mod exit;
mod fork;
mod heap;
#[cfg(not(feature = "local-only"))]
mod inline;
mod interpose;
mod jemalloc;
mod large;
mod ledger;
#[cfg(feature = "local-only")]
mod local;
mod mapping;
mod near;
mod regions;
#[cfg(not(feature = "local-only"))]
mod relatives;
#[cfg(not(feature = "local-only"))]
mod start;
#[cfg(not(feature = "local-only"))]
mod trace;

#[cfg(not(feature = "local-only"))]
pub(crate) use hinterland_pager::Pager;
#[cfg(not(feature = "local-only"))]
pub(crate) use inline::stacks::near::run_blocked as on_near_stack;
#[cfg(feature = "local-only")]
pub(crate) use local::{Pager, on_near_stack, pager};
#[cfg(not(feature = "local-only"))]
pub(crate) use start::pager;
