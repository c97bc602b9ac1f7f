//! The launcher stops with its program, and goes on with it, also when only the program is continued.
//!
//! A shell continues the whole group; a debugger, a job scheduler or `kill -CONT` may continue the program alone. A stopped launcher
//! cannot see that, so a small process watches both while it is stopped, and continues the launcher when the program is not stopped
//! any more. In a group of its own, because a stop of the launcher's group must not stop it.

use super::ending::take_default;
use crate::error::Error;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

/// Between two looks at the program.
const LOOK_MICROSECONDS: libc::useconds_t = 20_000;

/// Stops the launcher by `signal`, as its program was, until somebody continues one of them.
///
/// # Errors
/// A process cannot be made, or the launcher cannot be stopped.
pub fn stop_with(program: Pid, signal: Signal) -> Result<(), Error> {
    let launcher = nix::unistd::getpid();
    let stat = |pid: Pid| CString::new(format!("/proc/{pid}/stat")).unwrap_or_default();
    let (of_launcher, of_program) = (stat(launcher), stat(program));
    // SAFETY: the child makes system calls only.
    let watcher = unsafe { libc::fork() };
    if watcher == 0 {
        watch(launcher, &of_launcher, &of_program);
    }
    let stopped = take_default(signal).map_err(Error::system("cannot stop with the program"));
    if watcher > 0 {
        // SAFETY: the child has not been waited for, so the number is its own; nobody needs its status.
        unsafe {
            libc::kill(watcher, libc::SIGKILL);
            libc::waitpid(watcher, null_mut(), 0);
        }
    }
    stopped
}

/// The watching process: until the launcher is stopped and the program is not.
fn watch(launcher: Pid, of_launcher: &CStr, of_program: &CStr) -> ! {
    // SAFETY: system calls without memory of ours. The launcher may have died before its end was to be told.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != launcher.as_raw() {
            libc::_exit(0);
        }
    }
    while !is_stopped(of_launcher) || is_stopped(of_program) {
        // SAFETY: sleeps.
        unsafe { libc::usleep(LOOK_MICROSECONDS) };
    }
    // SAFETY: an all-zero siginfo is a valid value; the call reads it. Marked as no signal of a person's (`signals`): the launcher
    // passes those on to the program, which has been continued already.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (info.si_signo, info.si_code) = (libc::SIGCONT, libc::SI_MESGQ);
        libc::syscall(libc::SYS_rt_sigqueueinfo, launcher.as_raw(), libc::SIGCONT, &raw const info);
        libc::_exit(0)
    }
}

/// Whether the process is stopped, by its line in `/proc` (proc_pid_stat(5), field 3). One that is gone is not. Without allocation:
/// it is asked between fork and exec.
fn is_stopped(stat: &CStr) -> bool {
    let mut line = [0u8; 512];
    // SAFETY: the path is a C string; the buffer has room for what is read.
    let bytes = unsafe {
        let fd = libc::open(stat.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let bytes = libc::read(fd, line.as_mut_ptr().cast(), line.len());
        libc::close(fd);
        bytes
    };
    let line = line.get(..usize::try_from(bytes).unwrap_or(0)).unwrap_or_default();
    let name_end = line.iter().rposition(|byte| *byte == b')');
    let state = name_end.and_then(|end| line.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}
