//! A launcher as `ps`, `set` and `top` reach it: by its socket. Its own side is `server`.

use super::message::{ANSWER_BYTES_MAX, Answer, CONTROL_VERSION, Request};
use super::socket_path;
use crate::process;
use nix::unistd::{Uid, User, geteuid};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// For how long a launcher may be silent that has nothing to wait for: it looks at its sockets many times a second.
const SILENT: Duration = Duration::from_secs(5);
/// Processes between one of a run and its launcher.
const DEPTH_MAX: usize = 256;

/// Why a launcher does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// There is none of that number.
    #[error("there is no process {0}; `hinterland ps` lists running programs")]
    NoProcess(i32),
    /// Only its user can.
    #[error("process {pid} belongs to another user ({user}); only that user can look at its run or change it")]
    OtherUser {
        /// The process.
        pid: i32,
        /// Whose it is.
        user: String,
    },
    /// It is in no run.
    #[error(
        "process {pid} ({name}) is in no run of hinterland, or its launcher is gone; `hinterland ps` lists running programs"
    )]
    NoRun {
        /// The process.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// It is stopped, with its run.
    #[error(
        "the run of launcher {0} is suspended: it answers when it is continued (`fg` in its shell, or `kill -CONT {0}`)"
    )]
    Suspended(i32),
    /// It does not answer.
    #[error("the launcher {pid} does not answer: {source}; it may be stopped")]
    Silent {
        /// The launcher.
        pid: i32,
        /// The system's reason.
        source: io::Error,
    },
    /// It has ended meanwhile.
    #[error("the run of launcher {0} has ended")]
    Ended(i32),
    /// It answers in a way that is not understood.
    #[error("the launcher {pid} gives no answer that is understood: {why}")]
    Garbled {
        /// The launcher.
        pid: i32,
        /// What is wrong.
        why: String,
    },
    /// It refuses.
    #[error("{0}")]
    Refused(String),
}

/// A connection to the launcher of a run.
pub struct Launcher {
    /// Its number.
    pub pid: i32,
    stream: BufReader<UnixStream>,
}

impl Launcher {
    /// The launcher of the run that a process is in, or is the launcher of.
    ///
    /// # Errors
    /// There is no such process, it is another user's, or it is in no run.
    pub fn of(process: i32) -> Result<Launcher, LauncherError> {
        let mut pid = process;
        for _ in 0..DEPTH_MAX {
            // It would take neither a connection nor a request.
            if process::is_stopped(pid) && socket_path::has_socket(pid) {
                return Err(LauncherError::Suspended(pid));
            }
            match socket_path::connect(pid).map_err(|source| LauncherError::Silent { pid, source })? {
                Some(stream) => return Launcher::new(pid, stream),
                None => match process::parent(pid) {
                    Some(parent) if parent > 0 => pid = parent,
                    _ => break,
                },
            }
        }
        Err(why_none(process))
    }

    /// The launcher of this number, of a socket that was found; `None`: it has ended, whatever process has its number now.
    ///
    /// # Errors
    /// It does not take connections, or is another user's.
    pub fn at(pid: i32) -> Result<Option<Launcher>, LauncherError> {
        if process::is_stopped(pid) && socket_path::has_socket(pid) {
            return Err(LauncherError::Suspended(pid));
        }
        let stream = socket_path::connect(pid).map_err(|source| LauncherError::Silent { pid, source })?;
        stream.map(|stream| Launcher::new(pid, stream)).transpose()
    }

    fn new(pid: i32, stream: UnixStream) -> Result<Launcher, LauncherError> {
        match socket_path::peer(&stream) {
            Some(user) if user == geteuid() => {
                let silent = |source| LauncherError::Silent { pid, source };
                stream.set_write_timeout(Some(SILENT)).map_err(silent)?;
                Ok(Launcher { pid, stream: BufReader::new(stream) })
            }
            user => Err(LauncherError::OtherUser { pid, user: user.map_or_else(|| "unknown".into(), name_of) }),
        }
    }

    /// Asks, and waits for the answer: for `wait` longer than a launcher takes that waits for no process.
    ///
    /// # Errors
    /// It refuses, or does not answer.
    pub fn ask(&mut self, request: &Request, wait: Duration) -> Result<Answer, LauncherError> {
        let pid = self.pid;
        let mut line = serde_json::to_vec(request).unwrap_or_default();
        line.push(b'\n');
        let failed = |source: io::Error| match source.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => LauncherError::Ended(pid),
            _ => LauncherError::Silent { pid, source },
        };
        self.stream.get_ref().set_read_timeout(Some(wait + SILENT)).map_err(failed)?;
        // A launcher that refuses says why before it hangs up, and may not read any more.
        let sent = self.stream.get_mut().write_all(&line);
        let mut answer = Vec::new();
        let limit = ANSWER_BYTES_MAX as u64 + 1;
        (&mut self.stream).take(limit).read_until(b'\n', &mut answer).map_err(failed)?;
        if answer.is_empty() {
            sent.map_err(failed)?;
            return Err(LauncherError::Ended(pid));
        }
        let garbled = |why: String| LauncherError::Garbled { pid, why };
        let answer: Answer = serde_json::from_slice(&answer).map_err(|error| garbled(error.to_string()))?;
        match answer {
            Answer { error: Some(why), .. } => Err(LauncherError::Refused(why)),
            Answer { version, .. } if version != CONTROL_VERSION => {
                Err(garbled(format!("it speaks version {version}, and this command {CONTROL_VERSION}")))
            }
            answer => Ok(answer),
        }
    }
}

/// Why a process has no launcher that can be asked.
fn why_none(pid: i32) -> LauncherError {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|data| Uid::from_raw(data.uid()));
    match owner {
        Err(_) => LauncherError::NoProcess(pid),
        Ok(user) if user != geteuid() => LauncherError::OtherUser { pid, user: name_of(user) },
        Ok(_) => LauncherError::NoRun { pid, name: process::name(pid) },
    }
}

fn name_of(user: Uid) -> String {
    User::from_uid(user).ok().flatten().map_or_else(|| user.to_string(), |known| known.name)
}
