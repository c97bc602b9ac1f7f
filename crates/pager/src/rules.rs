//! The numbers and rules that a model of the pager must share with it: the simulator takes them from here.

pub use crate::copy_out::Scans;
pub use crate::fault::{ZERO_PAGES, is_timed};
pub use crate::prefetch_cache::{BUDGET_PART, KEYS_MAX};
pub use crate::read_ahead::{FRAMES_STEPS_MAX, PendingWindow, WindowQueue, runs_of, window_batch_pages};
pub use crate::reclaim::{COPY_CLUSTER, EvictionCluster, MOVE_CLUSTER};
pub use crate::staging::{CHUNK_SLOTS, KEY_SLOTS};
