//! The preloaded library.
#![allow(dead_code, unused_imports, reason = "the start, which calls all of this, is not in place yet")]

mod brk;
mod caller;
mod descriptors;
mod errno;
mod heap;
mod interpose;
mod jemalloc;
mod large;
#[cfg(feature = "local-only")]
mod local;
mod mapping;
mod near;
mod regions;

#[cfg(not(feature = "local-only"))]
pub(crate) use hinterland_pager::Pager;
#[cfg(feature = "local-only")]
pub(crate) use local::{Pager, pager};

/// The pager, once the library is ready; `None` before and when the process is not managed.
#[cfg(not(feature = "local-only"))]
pub(crate) fn pager() -> Option<&'static Pager> {
    None
}
