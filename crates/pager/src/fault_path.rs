//! Who serves faults, and how a program ends that cannot be served.

/// Exit code of a program that Hinterland had to end.
pub const FATAL_EXIT_CODE: i32 = 125;

/// Who serves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultPath {
    /// Monitor threads, which read them from the userfaultfd.
    Monitor,
    /// The faulting thread itself, in a signal handler (`UFFD_FEATURE_SIGBUS`).
    Inline,
}
