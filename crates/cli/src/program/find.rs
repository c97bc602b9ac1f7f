//! Finds the file that a command names, as execvp(3) does.

use crate::error::Error;
use nix::unistd::{AccessFlags, access};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The hinterland command itself.
///
/// # Errors
/// The system does not say where it is.
pub fn own_path() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::system("cannot find the hinterland command's own path"))
}

/// The file that `name` names: itself when it has a slash, else the first executable of that name in `search`.
///
/// # Errors
/// No such file, or one that cannot be executed.
pub fn find(name: &OsStr, search: &OsStr) -> Result<PathBuf, Error> {
    let shown = || name.to_string_lossy().into_owned();
    if name.is_empty() {
        return Err(Error::ProgramNotFound { name: "''".into() });
    }
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match std::fs::metadata(&path) {
            Ok(_) => executable(&path).map(|()| path).map_err(|why| Error::ProgramNotExecutable { name: shown(), why }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::ProgramNotFound { name: shown() }),
            Err(error) => Err(Error::ProgramNotExecutable { name: shown(), why: error.to_string() }),
        };
    }
    let mut refused = None;
    for directory in std::env::split_paths(search) {
        let path = if directory.as_os_str().is_empty() { Path::new(".").join(name) } else { directory.join(name) };
        if std::fs::metadata(&path).is_ok() {
            match executable(&path) {
                Ok(()) => return Ok(path),
                Err(why) => refused = refused.or(Some(format!("{}: {why}", path.display()))),
            }
        }
    }
    Err(match refused {
        Some(why) => Error::ProgramNotExecutable { name: shown(), why },
        None => Error::ProgramNotFound { name: shown() },
    })
}

/// Whether the kernel would try to execute `path`; if not, why.
fn executable(path: &Path) -> Result<(), String> {
    // As execve(2) has it. To look into a FIFO would wait for its writer.
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err("it is a directory".into()),
        Ok(found) if !found.is_file() => return Err("it is no regular file".into()),
        _ => {}
    }
    access(path, AccessFlags::X_OK).map_err(|errno| match errno {
        nix::errno::Errno::EACCES => "it has no execute permission (chmod +x)".into(),
        other => std::io::Error::from(other).to_string(),
    })
}
