//! Starts the program.
//!
//! The program keeps the launcher's process group, terminal and standard streams, and gets the signal mask and dispositions
//! that the launcher was started with. It dies with the launcher: PR_SET_PDEATHSIG, and a look at the parent afterwards for
//! the case that the launcher died in between. What the program leaves behind becomes the launcher's child
//! (PR_SET_CHILD_SUBREAPER), so that the launcher sees the end of the last of them.
//!
//! The child borrows the launcher's memory until it calls exec (clone(2), CLONE_VM and CLONE_VFORK, as posix_spawn(3)
//! does), because copying page tables that the child never uses costs more than the rest of a start. It makes system
//! calls only, on a stack of its own.

use super::signals::{Inherited, Signals};
use crate::args::RunArgs;
use crate::error::Error;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Pid, getpid, getppid};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// The stack of the child until it calls exec, beside the list of arguments that `execvpe` makes there for a script without an
/// interpreter.
const STACK_BYTES: usize = 64 << 10;

/// A program to be started.
pub struct Program {
    file: CString,
    arguments: Vec<CString>,
    environment: BTreeMap<OsString, OsString>,
    inherited: Inherited,
}

impl Program {
    /// The program in `file`, with the launcher's environment.
    ///
    /// # Errors
    /// A zero byte in its name or arguments.
    pub fn new(file: &Path, args: &RunArgs, signals: &Signals) -> Result<Program, Error> {
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|error| cannot_start(error.into()));
        Ok(Program {
            file: text(file.as_os_str())?,
            arguments: args.program.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?,
            environment: std::env::vars_os().collect(),
            inherited: signals.inherited(),
        })
    }

    /// Sets a variable of its environment.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) -> &mut Program {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Takes a variable out of its environment.
    pub fn unset(&mut self, name: &str) -> &mut Program {
        self.environment.remove(OsStr::new(name));
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// 127 and 126 as the shells have it, for what only the kernel can tell (a missing loader, a file that is no program).
    pub fn start(&self, name: &str) -> Result<Pid, Error> {
        set_child_subreaper(true).map_err(Error::system("cannot become the parent of what the program leaves"))?;
        self.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::ProgramNotExecutable {
                name: name.to_owned(),
                why: "its interpreter or loader does not exist".into(),
            },
            _ if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => cannot_start(error),
            _ => Error::ProgramNotExecutable { name: name.to_owned(), why: error.to_string() },
        })
    }

    fn spawn(&self) -> io::Result<Pid> {
        let variable = |(name, value): (&OsString, &OsString)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).map_err(io::Error::from)
        };
        let environment = self.environment.iter().map(variable).collect::<io::Result<Vec<CString>>>()?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).chain([null()]).collect::<Vec<_>>();
        let (arguments, environment) = (pointers(&self.arguments), pointers(&environment));
        // The shell and the file come before the arguments.
        let list_bytes = (arguments.len() + 2) * size_of::<*const libc::c_char>();
        // Not zeroed: the child touches the end of it alone.
        let mut stack = Box::<[u128]>::new_uninit_slice((STACK_BYTES + list_bytes).div_ceil(size_of::<u128>()));
        let mut child = Child { program: self, arguments, environment, launcher: getpid(), error: None };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the stack is aligned and large enough; `child` and what it points at outlive the time that the child uses it,
        // because this thread sleeps until the child has called exec or ended.
        let pid =
            unsafe { libc::clone(run_child, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut child).cast()) };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        match child.error {
            None => Ok(Pid::from_raw(pid)),
            Some(errno) => {
                // SAFETY: waits for the child just made, whose status nobody needs.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }
}

fn cannot_start(source: io::Error) -> Error {
    Error::System { what: "cannot make a process", source }
}

/// What the child works with.
struct Child<'a> {
    program: &'a Program,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    launcher: Pid,
    /// Why there is no program.
    error: Option<i32>,
}

/// The child: system calls only, no allocation, no lock.
extern "C" fn run_child(child: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a `Child` that nobody else uses meanwhile.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    let error = match prepare(child) {
        // SAFETY: the texts are C strings, and the lists end with a null pointer.
        Ok(()) => unsafe {
            let (arguments, environment) = (child.arguments.as_ptr(), child.environment.as_ptr());
            libc::execvpe(child.program.file.as_ptr(), arguments, environment);
            nix::errno::Errno::last_raw()
        },
        Err(errno) => errno as i32,
    };
    child.error = Some(error);
    // SAFETY: ends the child without the launcher's exit handlers.
    unsafe { libc::_exit(127) }
}

/// What the program is to find.
fn prepare(child: &Child<'_>) -> nix::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != child.launcher {
        return Err(nix::errno::Errno::ESRCH);
    }
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default disposition installs no handler; the language's start-up has SIGPIPE ignored.
    unsafe { sigaction(Signal::SIGPIPE, &default) }?;
    child.program.inherited.restore()
}
