//! `hinterland bench`: hands over to `hinterland-bench`, a program of its own, where that is installed.

use crate::error::{Error, complain};
use clap::Args;
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The measurements' file name.
const NAME: &str = "hinterland-bench";

/// `hinterland bench`: the words are `hinterland-bench`'s, `--help` too.
#[derive(Args)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub struct BenchArgs {
    /// What to measure, and how; `hinterland bench --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  hinterland bench --help
  hinterland bench paging --size 1G --local 50% --pattern random --against zram

Exit code: that of hinterland-bench: 0, 1 when something cannot be measured, 125 for a wrong command line; 125 also when it is not installed.";

/// Becomes `hinterland-bench`; returns only where that is not possible.
pub fn run(args: &BenchArgs) -> ExitCode {
    let error = match become_bench(args) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    complain(&error);
    ExitCode::from(error.exit_code())
}

fn become_bench(args: &BenchArgs) -> Result<std::convert::Infallible, Error> {
    let launcher = crate::program::own_path()?;
    let home = launcher.parent().unwrap_or(Path::new("/"));
    let search = env::var_os("PATH").unwrap_or_default();
    let bench = find(home, env::split_paths(&search)).ok_or_else(|| Error::NoBench { home: home.into() })?;
    let source = Command::new(&bench).args(&args.words).exec();
    Err(Error::System { what: "cannot start hinterland-bench", source })
}

/// Beside the launcher, else in PATH.
fn find(home: &Path, search: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    std::iter::once(home.to_owned()).chain(search).map(|directory| directory.join(NAME)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_bench_beside_the_launcher_comes_before_that_in_path() {
        let dir = tempfile::tempdir().unwrap();
        let [home, first, second] = ["home", "first", "second"].map(|name| dir.path().join(name));
        for directory in [&home, &first, &second] {
            fs::create_dir(directory).unwrap();
        }
        let found = || find(&home, [first.clone(), second.clone()].into_iter());
        assert_eq!(found(), None);
        fs::write(second.join(NAME), "").unwrap();
        assert_eq!(found(), Some(second.join(NAME)));
        fs::create_dir(first.join(NAME)).unwrap();
        assert_eq!(found(), Some(second.join(NAME)), "a directory is no program");
        fs::write(home.join(NAME), "").unwrap();
        assert_eq!(found(), Some(home.join(NAME)));
    }
}
