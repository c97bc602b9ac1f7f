//! What the tests of an installation share: the scripts of `packaging/` with the build under test, and what lies in a directory tree.

use crate::places;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A script of `packaging/`.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(places::repository().join("packaging").join(name));
    command.env_remove("DESTDIR");
    command
}

/// The directory of the build under test: the command and its library.
///
/// # Errors
/// It is not built.
pub fn build() -> Result<PathBuf> {
    Ok(places::launcher()?.with_file_name(""))
}

/// Runs a command to its end; what it wrote to standard output, and then to standard error.
///
/// # Errors
/// It cannot be started, or did not end with 0.
pub fn said(command: &mut Command) -> Result<String> {
    let (code, said) = ended(command)?;
    ensure!(code == Some(0), "{command:?} ended with {code:?}: {said}");
    Ok(said)
}

/// Its exit code, and what it wrote.
///
/// # Errors
/// It cannot be started.
pub fn ended(command: &mut Command) -> Result<(Option<i32>, String)> {
    let output = command.output().with_context(|| format!("{command:?} cannot be started"))?;
    Ok((output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
}

/// All that is in a directory, by paths that begin with `/`; directories end with it.
///
/// # Errors
/// A directory cannot be read.
pub fn listing(root: &Path) -> Result<BTreeSet<String>> {
    let (mut found, mut open) = (BTreeSet::new(), vec![root.to_path_buf()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
            let entry = entry?;
            let mut name = format!("/{}", entry.path().strip_prefix(root)?.display());
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
                name.push('/');
            }
            found.insert(name);
        }
    }
    Ok(found)
}

/// Demands that two listings are the same.
///
/// # Errors
/// What is in one of them only.
pub fn same(when: &str, found: &BTreeSet<String>, wanted: &BTreeSet<String>) -> Result<()> {
    let [too_much, missing] =
        [(found, wanted), (wanted, found)].map(|(one, other)| one.difference(other).collect::<Vec<_>>());
    ensure!(
        too_much.is_empty() && missing.is_empty(),
        "{when}: there, and should not be: {too_much:?}; missing: {missing:?}"
    );
    Ok(())
}

/// The manual pages that the build under test has, as they are installed.
///
/// # Errors
/// It makes none.
pub fn manual_pages() -> Result<BTreeSet<String>> {
    let directory = tempfile::tempdir()?;
    said(Command::new(places::launcher()?).arg("man").arg(directory.path()))?;
    let pages: BTreeSet<String> =
        listing(directory.path())?.into_iter().map(|page| format!("/share/man/man1{page}.gz")).collect();
    ensure!(pages.contains("/share/man/man1/hinterland-run.1.gz"), "{pages:?}");
    Ok(pages)
}

/// Files of an installation beside its manual pages, below the prefix.
///
/// # Errors
/// Nothing is built.
pub fn installed_files() -> Result<BTreeSet<String>> {
    let mut files: BTreeSet<String> = FILES.into_iter().map(str::to_owned).collect();
    if build()?.join(PLUGIN).exists() {
        files.insert(format!("/lib/hinterland/{PLUGIN}"));
    }
    Ok(files)
}

/// The compiler's plugin, which is built and installed where there is LLVM 22.
pub const PLUGIN: &str = "hinterland-llvm22.so";

const FILES: [&str; 19] = [
    "/bin/hinterland",
    "/lib/hinterland/libhinterland.so",
    "/lib/hinterland/slurm/features",
    "/lib/hinterland/slurm/prolog",
    "/lib/systemd/system/hinterland-node.service",
    "/lib/systemd/system/hinterland-node.socket",
    "/lib/sysusers.d/hinterland.conf",
    "/share/bash-completion/completions/hinterland",
    "/share/fish/vendor_completions.d/hinterland.fish",
    "/share/doc/hinterland/examples/config.toml",
    "/include/hinterland.h",
    "/share/pkgconfig/hinterland.pc",
    "/share/hinterland/python/hinterland.py",
    "/share/hinterland/python/pyproject.toml",
    "/share/hinterland/rust/Cargo.toml",
    "/share/hinterland/rust/src/lib.rs",
    "/share/hinterland/advice.schema.json",
    "/share/hinterland/ps.schema.json",
    "/share/hinterland/stats.schema.json",
];
