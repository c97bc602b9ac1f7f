//! Memory nodes that a test starts for itself.

use crate::launch::{Ended, Launch, Running, launcher};
use crate::suite;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrIn};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A TCP address of loopback on which no process listens, and none can while this lives: another test's node took a port that was
/// merely free.
pub struct Refusing {
    /// `tcp://…`.
    pub url: String,
    _bound: OwnedFd,
}

impl Refusing {
    /// One of its own.
    ///
    /// # Errors
    /// There is no port.
    pub fn new() -> Result<Refusing> {
        let bound = socket::socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        socket::bind(bound.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0))?;
        let address: SockaddrIn = socket::getsockname(bound.as_raw_fd())?;
        Ok(Refusing { url: format!("tcp://{address}"), _bound: bound })
    }
}

/// Behind the URL of nodes whose silence a run is not about: they are waited for, however little of a processor they have.
pub const PATIENT: &str = "?timeout=300";

/// A node of its own for a test, on a free port.
pub struct Node {
    running: Running,
    /// Where it listens.
    pub url: String,
}

impl Node {
    /// On a free port of loopback.
    pub fn start(test: &str, capacity: &str) -> Result<Node> {
        Node::start_on(test, capacity, "tcp://127.0.0.1:0")
    }

    /// One that listens at `url`.
    pub fn start_on(test: &str, capacity: &str, url: &str) -> Result<Node> {
        Node::start_with(test, capacity, &["--listen", url])
    }

    /// With more flags, of which `--listen` is one.
    pub fn start_with(test: &str, capacity: &str, flags: &[&str]) -> Result<Node> {
        let arguments = [&["node", "--capacity", capacity], flags].concat();
        Node::of(Launch::bare(&format!("{test}-node"), &arguments)?)
    }

    /// One that `launch` starts.
    ///
    /// # Errors
    /// It ends before it says where it listens.
    pub fn of(launch: Launch) -> Result<Node> {
        let mut running = launch.start()?;
        running.wait_for("listening on ")?;
        let said = std::fs::read_to_string(running.directory.join("stdout"))?;
        let url = said.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        let url = url.with_context(|| format!("no address in '{said}'"))?.to_owned();
        Ok(Node { running, url })
    }

    /// Its URL for a run that is not about its silence.
    pub fn patient_url(&self) -> String {
        format!("{}{PATIENT}", self.url)
    }

    /// What `hinterland node status` says of it.
    pub fn status(&self) -> Result<serde_json::Value> {
        let output = launcher()?.args(["node", "status", "--json", &self.url]).output()?;
        ensure!(output.status.success(), "status: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Tells it something with `hinterland node`, and waits until the command ends, which must go well.
    ///
    /// # Errors
    /// It went otherwise.
    pub fn told(&self, test: &str, command: &str, arguments: &[&str]) -> Result<Ended> {
        let arguments = [&["node", command, &self.url], arguments].concat();
        let ended = Launch::bare(&format!("{test}-{command}"), &arguments)?.run()?;
        ended.expect(0, &self.url)?;
        Ok(ended)
    }

    /// Waits until nothing is leased any more.
    pub fn wait_until_free(&self) -> Result<()> {
        suite::wait_until("a node that has got everything back", || {
            let status = self.status()?;
            Ok(status["used_bytes"] == 0 && status["sessions"] == 0)
        })
    }

    /// Where it runs, and what it has written is kept.
    pub fn directory(&self) -> &Path {
        &self.running.directory
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.running.pid.as_raw()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.running.signal(signal)
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(self) -> Result<()> {
        self.running.signal(Signal::SIGKILL)?;
        self.running.end().map(drop)
    }

    /// Ends it in an orderly way.
    pub fn end(self) -> Result<Ended> {
        self.running.signal(Signal::SIGTERM)?;
        let ended = self.running.end()?;
        ended.expect(0, "listening on ")?;
        ensure!(ended.stderr.contains("ending") && ended.stderr.contains("ended"), "no end in the log: {ended:?}");
        Ok(ended)
    }
}

/// The URL of the pool of `nodes`.
pub fn pool_url(nodes: &[Node]) -> String {
    nodes.iter().map(|node| &*node.url).collect::<Vec<_>>().join(",")
}

/// A path for a socket: those of the tests' directories can be too long.
pub fn socket() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("hinterland-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Relaxed));
    std::env::temp_dir().join(name)
}
