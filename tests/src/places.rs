//! Where things are: the repository, the build directory, the program under test, the tests' own directories.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The directory of the profile that this executable was built with: what belongs together is there.
fn profile() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let directory = executable.parent().unwrap_or(Path::new(""));
    let directory = if directory.ends_with("deps") { directory.parent().unwrap_or(directory) } else { directory };
    directory.to_path_buf()
}

/// The build directory that this executable came from.
pub fn target() -> PathBuf {
    profile().parent().map_or_else(|| repository().join("target"), Path::to_path_buf)
}

/// The tests' directory in the build directory: inputs, working directories, results.
pub fn tests() -> PathBuf {
    target().join("tests")
}

/// A source file of a test program.
pub fn program(name: &str) -> PathBuf {
    repository().join("tests/programs").join(name)
}

/// The launcher under test: `HINTERLAND_TEST_BIN`, else the one that was built with the same profile as this executable.
pub fn launcher() -> Result<PathBuf> {
    let path = match std::env::var_os("HINTERLAND_TEST_BIN") {
        Some(path) => PathBuf::from(path),
        None => profile().join("hinterland"),
    };
    if !path.is_file() {
        bail!(
            "{} does not exist; build it (cargo build with the same profile), or name one with HINTERLAND_TEST_BIN",
            path.display()
        );
    }
    Ok(path)
}

/// The interpreter of the repository's Python environment, or that of the one which `HINTERLAND_TEST_PYTHON` names.
pub fn python() -> PathBuf {
    std::env::var_os("HINTERLAND_TEST_PYTHON").map_or_else(|| repository().join(".venv/bin/python"), PathBuf::from)
}

/// Copies an executable file. A process of its own does it: one that another test forks meanwhile would hold the copy open for writing
/// until its exec, and whoever starts the copy before that gets `ETXTBSY`.
///
/// # Errors
/// It cannot be read or written.
pub fn copy_program(file: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("--preserve=mode").args([file, to]).status()?.success();
    ensure!(copied, "cannot copy {} to {}", file.display(), to.display());
    Ok(())
}

/// An empty directory at `path`; what was there is deleted.
pub fn emptied(path: PathBuf) -> Result<PathBuf> {
    if path.exists() {
        std::fs::remove_dir_all(&path).with_context(|| format!("cannot empty {}", path.display()))?;
    }
    std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}
