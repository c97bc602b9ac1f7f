//! Skipped tests: named, with their reason, and collected so that none passes unseen.

use crate::{Need, places};
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The file that collects skipped tests of one `./dev test`.
pub fn file() -> PathBuf {
    places::tests().join("skipped.txt")
}

/// Notes that `test` was skipped.
pub fn note(test: &str, reason: &str) {
    let _ = std::fs::create_dir_all(places::tests());
    if let Ok(mut file) = std::fs::File::options().create(true).append(true).open(file()) {
        let _ = writeln!(file, "{test}: {reason}");
    }
}

/// Why the needs cannot be met on this machine, if they cannot.
pub fn missing(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| match *need {
        Need::Program(name) if find(name).is_none() => Some(format!("{name} is not installed (./dev setup)")),
        Need::Python(package) if !has_package(package) => Some(format!("no {package} in .venv (./dev setup)")),
        _ => None,
    })
}

/// Why this test needs root, if it is not root.
pub fn not_root() -> Option<String> {
    (!Uid::effective().is_root()).then(|| "needs root".into())
}

/// Why this test is left to the long form of the suites, if that was not asked for.
pub fn not_full() -> Option<String> {
    (!crate::suite::full()).then(|| "only with --full".into())
}

/// A program on the search path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| is_program(file))
}

fn is_program(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok() && path.is_file()
}

/// Whether it can be imported, which some take long for: each is tried once.
fn has_package(package: &'static str) -> bool {
    static TRIED: Mutex<BTreeMap<&str, bool>> = Mutex::new(BTreeMap::new());
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    *tried.entry(package).or_insert_with(|| {
        let mut command = Command::new(places::python());
        command.args(["-c", &format!("import {package}")]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// Why a managed run is impossible on this machine, if the kernel gives this process no userfaultfd for kernel faults.
pub fn no_userfaultfd() -> Option<String> {
    // SAFETY: userfaultfd(2) takes flags only; the result is a new descriptor or -1.
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    match i32::try_from(descriptor) {
        Ok(descriptor) if descriptor >= 0 => {
            let _ = nix::unistd::close(descriptor);
            None
        }
        _ if std::fs::File::open("/dev/userfaultfd").is_ok() => None,
        _ => Some(format!("no userfaultfd here: {}", std::io::Error::last_os_error())),
    }
}
