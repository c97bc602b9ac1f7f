//! The kernel's own swap as a rival: set up for a run, taken back after it, whatever happens.

pub mod cgroup;
pub mod swap_area;
pub mod swapfile;
pub mod sysctl;
pub mod undo;
pub mod zram;
