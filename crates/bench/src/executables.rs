//! The two executables of a measurement: this one, which is also the worker, and the launcher that manages it.

use crate::error::BenchError;
use std::env;
use std::path::{Path, PathBuf};

/// The launcher's file name.
const LAUNCHER: &str = "hinterland";

/// What a bench starts.
#[derive(Clone, Debug)]
pub struct Executables {
    /// This program: workers and servers are its hidden subcommands.
    pub bench: PathBuf,
    /// The `hinterland` that is measured.
    pub launcher: PathBuf,
}

impl Executables {
    /// This program, and the launcher beside it or in PATH.
    ///
    /// # Errors
    /// There is no launcher.
    pub fn find() -> Result<Executables, BenchError> {
        let bench = myself()?;
        let home = bench.parent().unwrap_or(Path::new("/")).to_owned();
        let search = env::var_os("PATH").unwrap_or_default();
        let launcher = std::iter::once(home.clone())
            .chain(env::split_paths(&search))
            .map(|directory| directory.join(LAUNCHER))
            .find(|path| path.is_file())
            .ok_or(BenchError::NoLauncher(home))?;
        Ok(Executables { bench, launcher })
    }
}

/// This program.
///
/// # Errors
/// /proc does not name it.
pub fn myself() -> Result<PathBuf, BenchError> {
    env::current_exe().map_err(BenchError::io("find", Path::new("/proc/self/exe")))
}
