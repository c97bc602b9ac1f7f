//! Starts the program.
//!
//! The program keeps the launcher's process group, terminal and standard streams, and gets the signal mask and dispositions
//! that the launcher was started with. It dies with the launcher: PR_SET_PDEATHSIG, and a look at the parent afterwards for
//! the case that the launcher died in between. What the program leaves behind becomes the launcher's child
//! (PR_SET_CHILD_SUBREAPER), so that the launcher sees the end of the last of them.

use super::arguments;
use super::signals::Signals;
use crate::args::RunArgs;
use crate::error::Error;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The command that starts the program in `file`.
pub fn command(file: &Path, args: &RunArgs, signals: &Signals) -> Command {
    let mut command = Command::new(file);
    if let Some(name) = args.program.first() {
        command.arg0(name);
    }
    command.args(arguments(args));
    let launcher = getpid();
    let inherited = signals.inherited();
    // SAFETY: runs in the child between fork and exec: system calls only, no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != launcher {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            inherited.restore()?;
            Ok(())
        });
    }
    command
}

/// Starts it.
///
/// # Errors
/// 127 and 126 as the shells have it, for what only the kernel can tell (a missing loader, a file that is no program).
pub fn start(command: &mut Command, name: &str) -> Result<Pid, Error> {
    set_child_subreaper(true).map_err(Error::system("cannot become the parent of what the program leaves"))?;
    match command.spawn() {
        Ok(child) => Ok(Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::ProgramNotExecutable {
            name: name.to_owned(),
            why: "its interpreter or loader does not exist".into(),
        }),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => {
            Err(Error::System { what: "cannot make a process", source: error })
        }
        Err(error) => Err(Error::ProgramNotExecutable { name: name.to_owned(), why: error.to_string() }),
    }
}
