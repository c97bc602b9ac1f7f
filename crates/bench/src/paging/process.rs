//! The worker's process: started in its group, spoken to through pipes.

use crate::error::BenchError;
use crate::rivals::cgroup::Cgroup;
use crate::worker::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much of what the worker and its launcher write to stderr is kept.
const STDERR_BYTES_MAX: usize = 2000;

/// A running worker.
pub struct WorkerProcess {
    child: Child,
    lines: Receiver<Message>,
    stderr: JoinHandle<String>,
}

/// Why there is no further message.
#[derive(Debug)]
pub enum Silence {
    /// The worker said why it stopped.
    Failed(String),
    /// It ended without a word.
    Ended,
    /// It said nothing for too long.
    TimedOut(Duration),
}

impl WorkerProcess {
    /// Starts `command`, whose output ends in the worker's messages, in `cgroup`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut command: Command, cgroup: Option<&Cgroup>) -> Result<WorkerProcess, BenchError> {
        let program = std::path::PathBuf::from(command.get_program());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(cgroup) = cgroup {
            cgroup.admit(&mut command)?;
        }
        let mut child = command.spawn().map_err(BenchError::io("start", &program))?;
        let (send, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or(Message::Failed { reason: line });
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().expect("piped");
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            // What was read before an error is still worth telling.
            let _ = stderr.read_to_end(&mut text);
            let tail = text.len().saturating_sub(STDERR_BYTES_MAX);
            String::from_utf8_lossy(&text[tail..]).trim().to_owned()
        });
        Ok(WorkerProcess { child, lines, stderr })
    }

    /// The process that was started.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    /// Waits for the next message, calling `meanwhile` about every `tick`.
    ///
    /// # Errors
    /// There is none.
    pub fn next(&self, limit: Duration, tick: Duration, mut meanwhile: impl FnMut()) -> Result<Message, Silence> {
        let start = Instant::now();
        loop {
            match self.lines.recv_timeout(tick) {
                Ok(Message::Failed { reason }) => return Err(Silence::Failed(reason)),
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::Ended),
                Err(RecvTimeoutError::Timeout) if start.elapsed() > limit => return Err(Silence::TimedOut(limit)),
                Err(RecvTimeoutError::Timeout) => meanwhile(),
            }
        }
    }

    /// Lets the worker go on.
    pub fn go_on(&mut self) {
        if let Some(stdin) = self.child.stdin.as_mut() {
            // A worker that is gone is noticed at its next message.
            let _ = stdin.write_all(b"go\n");
        }
    }

    /// Waits for the end; returns the status and the end of what was written to stderr.
    pub fn finish(mut self) -> (Option<ExitStatus>, String) {
        drop(self.child.stdin.take());
        let status = self.child.wait().ok();
        (status, self.stderr.join().unwrap_or_default())
    }

    /// Kills the process that was started; its children die with their group.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

/// An exit status in words.
pub fn in_words(status: Option<ExitStatus>) -> String {
    match status {
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            _ => "ended".into(),
        },
        None => "ended".into(),
    }
}
