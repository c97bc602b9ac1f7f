//! Servers that the bench starts and ends: memory nodes, memcached, and the raw one.

use crate::executables;
use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::Process;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server; it is ended when this is dropped, and dies with the bench.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts `command`; with `says`, waits for its first line and returns it.
    ///
    /// # Errors
    /// It cannot be started, or ends.
    pub fn start(mut command: Command, says: bool) -> Result<(Server, String), String> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(if says { Stdio::piped() } else { Stdio::null() }).stderr(Stdio::piped());
        executables::end_with_bench(&mut command);
        let mut child = command.spawn().map_err(|error| format!("{program} cannot be started: {error}"))?;
        let stdout = child.stdout.take();
        let mut stderr = child.stderr.take().expect("piped");
        let server = Server { child };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line).map_err(|error| format!("{program}: {error}"))?;
            if line.is_empty() {
                let mut why = String::new();
                // What it wrote before it ended.
                let _ = std::io::Read::read_to_string(&mut stderr, &mut why);
                return Err(why.trim().to_owned());
            }
        }
        // Nobody reads its log, and it must not wait for somebody to do so.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Ok((server, line.trim().to_owned()))
    }

    /// Processor time of all its threads until now, ended ones too; 0 when it cannot be read.
    pub fn cpu_time(&self) -> Duration {
        clock_getcpuclockid(self.pid()).and_then(clock_gettime).map_or(Duration::ZERO, Duration::from)
    }

    /// Memory that is its own; 0 when it cannot be read.
    pub fn pss_bytes(&self) -> u64 {
        let rollup = Process::new(self.pid().as_raw()).and_then(|process| process.smaps_rollup()).ok();
        let maps = rollup.into_iter().flat_map(|rollup| rollup.memory_map_rollup.0);
        maps.filter_map(|map| map.extension.map.get("Pss").copied()).sum()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        kill(self.pid(), signal).map_err(|error| format!("a server cannot be sent {signal}: {error}"))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process number"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, or been stopped.
        let _ = kill(self.pid(), Signal::SIGTERM);
        let _ = kill(self.pid(), Signal::SIGCONT);
        let _ = self.child.wait();
    }
}

/// A memory node.
pub struct Node {
    /// The process.
    pub server: Server,
    /// Where it listens.
    pub url: String,
}

impl Node {
    /// Starts one that lends `capacity_bytes`.
    ///
    /// # Errors
    /// Why it did not start.
    pub fn start(launcher: &Path, listen: &str, capacity_bytes: u64) -> Result<Node, String> {
        let mut command = executables::command(launcher);
        command.args(["node", "--capacity", &capacity_bytes.to_string(), "--listen", listen, "--insecure-loopback"]);
        let (server, line) = Server::start(command, true)?;
        let url = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        let url = url.ok_or_else(|| format!("a node said '{line}' instead of where it listens"))?.to_owned();
        Ok(Node { server, url })
    }
}
