//! The pager under hostile conditions, on a real userfaultfd: slow and tiny backends, several monitors, forks at any
//! moment, memory dropped behind its back.
//!
//! Every page's content follows from one number; each read checks the whole page. A test that hangs is ended by its own
//! watchdog, because a hung fault cannot be interrupted.

mod arena;
mod drops;
mod forks;
#[path = "../inline/mod.rs"]
mod inline;
mod readers;
