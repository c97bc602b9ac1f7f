//! The pager on a real userfaultfd: against a plain-memory model, and under hostile conditions.

mod hostile;
mod model;
mod traced;
