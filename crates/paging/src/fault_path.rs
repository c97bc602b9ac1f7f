//! Which thread serves faults.

/// Which thread serves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultPath {
    /// Monitor threads, which read them from the userfaultfd.
    Monitor,
    /// The faulting thread itself, in a signal handler (`UFFD_FEATURE_SIGBUS`).
    Inline,
}
