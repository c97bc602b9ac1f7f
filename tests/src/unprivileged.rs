//! Runs of a user without privileges. Launcher, library and program are copied to a directory that every user may
//! enter, because the build directory may be closed to others; tests that run at the same time share the copies of
//! launcher and library.

use crate::launch::{Ended, Launch};
use crate::places;
use anyhow::{Context, Result};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tempfile::TempDir;

/// Somebody without rights: both as a user and as a group.
const NOBODY: u32 = 65534;

/// Launcher and library where anybody may read them; gone with the last test that uses them.
struct Copies {
    directory: TempDir,
}

impl Copies {
    /// The copies that a test at the same time has made, or new ones.
    fn get() -> Result<Arc<Copies>> {
        static MADE: Mutex<Weak<Copies>> = Mutex::new(Weak::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copies) = made.upgrade() {
            return Ok(copies);
        }
        // Those of before may be about to be removed: each has a directory of its own.
        let directory = tempfile::Builder::new().prefix("hinterland-tests-").tempdir()?;
        let copies = Arc::new(Copies { directory });
        let directory = copies.directory.path();
        std::fs::set_permissions(directory, Permissions::from_mode(0o755))?;
        let launcher = places::launcher()?;
        for name in ["hinterland", "libhinterland.so"] {
            copy(&launcher.with_file_name(name), directory)?;
        }
        *made = Arc::downgrade(&copies);
        Ok(copies)
    }
}

fn copy(file: &Path, to: &Path) -> Result<PathBuf> {
    let copied = to.join(file.file_name().context("a file has a name")?);
    places::copy_program(file, &copied)?;
    Ok(copied)
}

/// Somebody without rights, for one test.
pub struct Nobody {
    copies: Arc<Copies>,
    /// A directory of his own; the working directory of what he starts.
    pub directory: PathBuf,
}

impl Nobody {
    /// For the test called `test`.
    ///
    /// # Errors
    /// The directory cannot be made, or the launcher is not built.
    pub fn new(test: &str) -> Result<Nobody> {
        let copies = Copies::get()?;
        let directory = places::emptied(copies.directory.path().join(test.replace("::", "-")))?;
        std::fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
        Ok(Nobody { copies, directory })
    }

    /// Copies a file to his directory, and returns where it is then.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn bring(&self, file: &Path) -> Result<PathBuf> {
        copy(file, &self.directory)
    }

    /// A launch of any command by him.
    ///
    /// # Errors
    /// The directory of its output cannot be made.
    pub fn launch(&self, test: &str, mut command: Command) -> Result<Launch> {
        command.env("HOME", &self.directory).uid(NOBODY).gid(NOBODY);
        let mut launch = Launch::of(test, command)?;
        launch.set_directory(&self.directory);
        Ok(launch.with("TMPDIR", &self.directory.display().to_string()))
    }

    /// `hinterland run ARGUMENTS --stats stats.json -- WORDS` by him.
    ///
    /// # Errors
    /// As for `launch`.
    pub fn launch_managed(&self, test: &str, arguments: &[&str], words: &[String]) -> Result<Launch> {
        let mut command = Command::new(self.copies.directory.path().join("hinterland"));
        command.arg("run").args(arguments).args(["--stats", "stats.json", "--"]).args(words);
        self.launch(test, command)
    }

    /// Puts the statistics, which he wrote to his directory, where [`Ended::stats`] looks for them; there may be none.
    pub fn hand_over(&self, ended: &Ended) {
        let _ = std::fs::copy(self.directory.join("stats.json"), ended.directory().join("stats.json"));
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether anybody may serve the faults of system calls here: then the monitor path needs no privilege.
pub fn anybody_may_serve_faults() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let device = std::fs::metadata("/dev/userfaultfd").is_ok_and(|data| data.permissions().mode() & 0o006 == 0o006);
    setting.trim() == "1" || device
}
