//! The settings: what a user may choose for a run, and how the choice reaches the program.
//!
//! ```text
//! flag ─▶ variable ─▶ settings file      the launcher takes the first that is there (crates/cli, config),
//!                 └─▶ Settings           reads it with the row's one reader,
//!                        └─▶ variable    and hands the result to the program, which reads it with the same reader
//! ```
//!
//! A setting is one row of [`table`]: its variable, flag and key, its field, its reader, its help and its default. Everything else
//! comes from the rows: the fields of [`Settings`], the flags of `hinterland run`, the keys of the settings file, and
//! docs/reference/settings.md. A setting with values of a new kind needs a [`Kind`](kind::Kind) beside its row.

mod choices;
mod kind;
mod setting;
mod table;
#[cfg(test)]
mod tests;

pub use choices::{EvictName, FaultPathName, GranularityName, HeapMode, PlacementName, PrefetchName};
pub use kind::{EnvError, parse_block, parse_cpus, parse_microset, parse_prefetch_cache, parse_switch};
pub use setting::{Form, Setting, Sources};
pub use table::{LauncherSettings, SETTINGS, Settings, variables};
