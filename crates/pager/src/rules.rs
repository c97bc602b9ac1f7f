//! The numbers that a model of the pager must share with it: the simulator takes them from here.

pub use crate::ahead::{Coming, FRAMES_STEPS_MAX, Turns, runs_of, window_batch_pages};
pub use crate::copy_out::Scans;
pub use crate::fault::{ZERO_PAGES, is_timed};
pub use crate::held::{BUDGET_PART, KEYS_MAX};
pub use crate::reclaim::{COPIED_COMPANY, Company, MOVED_COMPANY};
pub use crate::staging::{CHUNK_SLOTS, KEY_SLOTS};
