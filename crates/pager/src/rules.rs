//! The numbers that a model of the pager must share with it: the simulator takes them from here.

pub use crate::ahead::{BATCH_PAGES, FRAMES_STEPS_MAX, WAITING_MAX, window_batch_pages};
pub use crate::fault::{ZERO_PAGES, is_timed};
pub use crate::held::{BUDGET_PART, KEYS_MAX};
pub use crate::reclaim::{Company, MOVED_COMPANY};
pub use crate::staging::{CHUNK_SLOTS, KEY_SLOTS};
