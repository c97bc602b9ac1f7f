//! The preloaded library: how an unmodified program's memory comes to live in the far range.
//!
//! | file | what it holds |
//! |---|---|
//! | `start` | the constructor: settings, features, pager, threads |
//! | `ledger` | this process's row of the shared statistics |
//! | `fork`, `exit` | what happens when the process forks or ends |
//! | `confine` | filters of system calls that the program installs for itself |
//! | `fork_group` | memory that is shared since a fork, by `Pss` |
//! | `trace` | where the tracer's records go |
//! | `tape`, `build_id` | the tape that the program follows, and what tells it from others |
//! | `census`, `smaps` | whose memory is what, as the kernel sees it |
//! | `inline` | faults served by the thread that takes them, and what that takes: signals, system calls |
//! | `interpose` | the names that the program calls instead of libc's |
//! | `arena` | what this library itself allocates |
//! | `heap`, `large`, `jemalloc`, `libc_heap`, `caller` | malloc and its family, far and near |
//! | `heap_account` | what the far heap holds by size class, in builds that count it |
//! | `loaded_file` | which loaded file code belongs to |
//! | `mapping`, `region_map`, `brk` | private anonymous mappings |
//! | `instrumenter` | programs that run others by means of their own |
//! | `auditors` | programs that are started with auditors of the loader |
//! | `pin_requests` | pages of other processes of the run |
//! | `device_pins` | devices that keep pages of the program |
//! | `descriptors` | our descriptors survive programs that close everything |
//! | `descriptor_limit` | numbers for the descriptors of a child, below a limit that the program lowers |
//! | `kernel_limit` | limits as the kernel has them |
//! | `memory_limit` | limits on address space and data that the program sets |
//! | `parent_death` | the program ends with its launcher |
//! | `capabilities` | what a thread may do |
//! | `single_thread` | calls for which threads of ours are away |
//! | `thread_vectors` | what libc allocates when it starts a thread of ours |
//! | `segment` | shared memory of the launcher's |
//! | `profile` | where the program waits for far memory, and for which |
//! | `proc_file` | files of `/proc` that stay open |
//! | `own_stat` | `/proc/self/stat` without threads of ours |
//!
//! The invariants (ARCHITECTURE.md): the library's own memory is never far; its threads never call an interposed name, never touch far
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
#[cfg(not(feature = "local-only"))]
mod auditors;
mod brk;
#[cfg(not(feature = "local-only"))]
mod build_id;
mod caller;
mod capabilities;
mod census;
#[cfg(not(feature = "local-only"))]
mod confine;
#[cfg(not(feature = "local-only"))]
mod descriptor_limit;
mod descriptors;
mod device_pins;
mod errno;
mod escaped;
mod exit;
mod extents;
mod fork;
#[cfg(not(feature = "local-only"))]
mod fork_group;
#[cfg(not(feature = "local-only"))]
mod handover;
mod heap;
#[cfg(feature = "heap-account")]
mod heap_account;
#[cfg(not(feature = "local-only"))]
mod inline;
#[cfg(not(feature = "local-only"))]
mod instrumenter;
mod interpose;
mod jemalloc;
mod kernel_limit;
mod large;
mod ledger;
mod libc_heap;
mod loaded_file;
#[cfg(feature = "local-only")]
mod local_only;
mod mapping;
mod memory_limit;
#[cfg(not(feature = "local-only"))]
mod own_stat;
#[cfg(not(feature = "local-only"))]
mod parent_death;
#[cfg(not(feature = "local-only"))]
mod pin_requests;
mod proc_file;
#[cfg(not(feature = "local-only"))]
mod profile;
mod region_map;
#[cfg(not(feature = "local-only"))]
mod segment;
#[cfg(not(feature = "local-only"))]
mod single_thread;
mod smaps;
#[cfg(not(feature = "local-only"))]
mod start;
#[cfg(not(feature = "local-only"))]
mod tape;
#[cfg(not(feature = "local-only"))]
mod thread_processor;
mod thread_vectors;
#[cfg(not(feature = "local-only"))]
mod trace;

#[cfg(not(feature = "local-only"))]
pub(crate) use hinterland_pager::Pager;
#[cfg(not(feature = "local-only"))]
pub(crate) use inline::stacks::stack_switch::run_blocked as on_near_stack;
#[cfg(not(feature = "local-only"))]
pub(crate) use inline::user_copy;
#[cfg(feature = "local-only")]
pub(crate) use local_only::{Pager, on_near_stack, pager, profile, user_copy};
#[cfg(not(feature = "local-only"))]
pub(crate) use start::pager;
