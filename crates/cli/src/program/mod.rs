//! What a command names: the file that the kernel will execute, and whether a preloaded library can take hold of it.
//!
//! ```text
//! name ──PATH──▶ file ──#!, env──▶ … ──▶ ELF file ──▶ managed by the preloaded library, or why not
//! ```
//! Everything is decided before the program starts. "Cannot be read" is not "cannot be managed": an executable without read
//! permission is given the benefit of the doubt, and the summary tells what became of it.

mod elf;
mod find;
mod script;
mod secure;

pub use find::{find, own_path};

use crate::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Why a preloaded library cannot take hold of a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unmanageable {
    /// No dynamic loader, so nothing is preloaded.
    #[error("{} is statically linked, so nothing can be preloaded into it", .0.display())]
    Static(PathBuf),
    /// Another C library.
    #[error("{} is built for musl libc; Hinterland's library needs glibc", .0.display())]
    Musl(PathBuf),
    /// A loader that is not glibc's.
    #[error("{} is started by {loader}, which is not glibc's loader", path.display())]
    OtherLoader {
        /// The program.
        path: PathBuf,
        /// Its loader.
        loader: String,
    },
    /// 32 bits.
    #[error("{} is a 32-bit program; far memory needs a 64-bit address space", .0.display())]
    Bits32(PathBuf),
    /// Another processor.
    #[error("{} is built for another processor architecture ({machine})", path.display())]
    ForeignMachine {
        /// The program.
        path: PathBuf,
        /// Its architecture.
        machine: String,
    },
    /// The address space belongs to a sanitizer.
    #[error("{} is built with {sanitizer}, which takes hold of the heap and the address space itself", path.display())]
    Sanitizer {
        /// The program.
        path: PathBuf,
        /// Which.
        sanitizer: &'static str,
    },
    /// The loader ignores LD_PRELOAD.
    #[error("{} {what}, so the loader ignores preloaded libraries", path.display())]
    SecureExecution {
        /// The program.
        path: PathBuf,
        /// What raises its rights.
        what: &'static str,
    },
}

impl Unmanageable {
    /// What the user can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Unmanageable::Static(_) => "use a dynamically linked build",
            Unmanageable::Musl(_) | Unmanageable::OtherLoader { .. } => "use a build for glibc",
            Unmanageable::Bits32(_) | Unmanageable::ForeignMachine { .. } => "use a build for this 64-bit processor",
            Unmanageable::Sanitizer { .. } => "use a build without the sanitizer",
            Unmanageable::SecureExecution { .. } => "run it as the user whose rights it takes, or a copy without them",
        }
    }
}

/// What stands at the end of a command's chain of interpreters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The library can be preloaded.
    Manageable,
    /// It cannot.
    Unmanageable(Unmanageable),
    /// Nothing can be said; carries why.
    Unknown(String),
}

/// Interpreters that the kernel follows, at most (`BINPRM` recursion, `fs/exec.c`: 5 levels, the last of them the program).
const SCRIPT_LEVELS_MAX: usize = 4;

/// Judges the program in `file`, following interpreters. `name` is what the user wrote; `search` the PATH.
///
/// # Errors
/// An interpreter that does not exist, or an interpreter chain that the kernel would refuse.
pub fn classify(name: &str, file: &Path, search: &OsStr) -> Result<Verdict, Error> {
    let mut file = file.to_owned();
    for _ in 0..=SCRIPT_LEVELS_MAX {
        let interpreter = match script::interpreter(&file) {
            Ok(script::Start::Elf) => return Ok(judge(&file)),
            Ok(script::Start::Interpreter(command)) => command,
            Ok(script::Start::Plain) => script::Command::plain("/bin/sh"),
            Err(error) => return Ok(Verdict::Unknown(format!("{} cannot be read: {error}", file.display()))),
        };
        let missing = |wanted: &OsString| Error::ProgramNotExecutable {
            name: name.to_owned(),
            why: format!("its interpreter {} does not exist", wanted.display()),
        };
        file = find(&interpreter.program, search).map_err(|_| missing(&interpreter.program))?;
        if let Some(program) = interpreter.behind_env() {
            file = find(&program, search).map_err(|_| missing(&program))?;
        }
    }
    Err(Error::ProgramNotExecutable { name: name.to_owned(), why: "its interpreters are scripts of scripts".into() })
}

fn judge(file: &Path) -> Verdict {
    match elf::judge(file) {
        Verdict::Manageable => match secure::raises_rights(file) {
            Some(what) => Verdict::Unmanageable(Unmanageable::SecureExecution { path: file.to_owned(), what }),
            None => Verdict::Manageable,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests;
