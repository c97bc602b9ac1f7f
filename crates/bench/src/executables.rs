//! The two executables of a measurement: this one, which is also the worker, and the launcher that manages it.

use crate::error::BenchError;
use hinterland_abi::{SETTINGS, Settings, variables};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The launcher's file name.
const LAUNCHER: &str = "hinterland";
/// A settings file without settings: with it the launcher reads no other.
const NO_SETTINGS: &str = "/dev/null";

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

/// A command that nothing reaches of what the user has set for Hinterland, neither in variables nor in the settings file. Only
/// `HINTERLAND_LIBRARY` stays: which library is measured is the caller's choice.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for setting in SETTINGS.iter().filter(|setting| setting.variable != variables::LIBRARY) {
        command.env_remove(setting.variable);
    }
    command.env(variables::CONFIG, NO_SETTINGS);
    command
}

/// Of settings, the variables that say something.
pub fn variables_of(settings: &Settings) -> impl Iterator<Item = (&'static str, String)> + use<> {
    settings.to_env().into_iter().filter(|(_, value)| !value.is_empty())
}

/// Makes the command end with the thread that starts it, which is to last as long as the bench.
pub fn end_with_bench(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: this is a single prctl(2).
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGTERM).map_err(Into::into)) };
}

/// This program.
///
/// # Errors
/// /proc does not name it.
pub fn myself() -> Result<PathBuf, BenchError> {
    env::current_exe().map_err(BenchError::io("find", Path::new("/proc/self/exe")))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Fails unless `command` sets, of Hinterland's variables, `given` alone, and takes the user's values and settings file away.
    pub fn assert_unreached(command: &Command, given: &[&str]) {
        let said = |name: &str| command.get_envs().find(|(variable, _)| *variable == name).map(|(_, value)| value);
        assert_eq!(said(variables::CONFIG), Some(Some(OsStr::new(NO_SETTINGS))));
        for setting in
            SETTINGS.iter().filter(|setting| ![variables::CONFIG, variables::LIBRARY].contains(&setting.variable))
        {
            let is_set =
                said(setting.variable).unwrap_or_else(|| panic!("{} is the user's", setting.variable)).is_some();
            assert_eq!(is_set, given.contains(&setting.variable), "{}", setting.variable);
        }
    }

    #[test]
    fn a_command_has_nothing_that_the_user_has_set() {
        assert_unreached(&command("hinterland"), &[]);
    }
}
