//! The pager under hostile conditions, on a real userfaultfd: slow and tiny backends, several monitors, forks at any
//! moment, memory dropped behind its back.
//!
//! Every page's content follows from one number; each read checks the whole page. Nothing here has a time limit: the limit of the
//! whole run ends a test that hangs.

mod arena;
mod drops;
mod forks;
mod readers;
