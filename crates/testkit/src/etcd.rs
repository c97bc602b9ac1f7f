//! A real etcd server for a test: on loopback, in a directory of its own, on ports that it keeps when it is started again.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server, killed when it is dropped.
pub struct Etcd {
    child: Option<Child>,
    data: PathBuf,
    /// Of clients and of other servers.
    ports: [u16; 2],
    flags: Vec<String>,
    scheme: &'static str,
}

impl Etcd {
    /// Starts a server that keeps its data in `directory`, with more flags: those of TLS have clients come by `https`.
    pub fn start(directory: &Path, flags: &[String]) -> io::Result<Etcd> {
        // Nobody takes a port that was just free: the kernel gives them out in turn.
        let free = || Ok::<_, io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let scheme = if flags.is_empty() { "http" } else { "https" };
        let (data, ports) = (directory.join("etcd"), [free()?, free()?]);
        let mut etcd = Etcd { child: None, data, ports, flags: flags.to_vec(), scheme };
        etcd.start_again()?;
        Ok(etcd)
    }

    /// `HOST:PORT` for clients.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// The URL of a pool.
    pub fn pool(&self, name: &str) -> String {
        let scheme = if self.scheme == "https" { "etcds" } else { "etcd" };
        format!("{scheme}://{}/{name}", self.address())
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Has it forget everything; it must not run.
    pub fn forget(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.data)
    }

    /// Removes every key, as an operator can by mistake; leases stay. Only without TLS.
    pub fn remove_keys(&self) -> io::Result<()> {
        // From the zero byte, in base64, to the end.
        let body = r#"{"key":"AA==","range_end":"AA=="}"#;
        let mut stream = TcpStream::connect(self.address())?;
        let head = format!("POST /v3/kv/deleterange HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let is_done = answer.split(' ').nth(1) == Some("200");
        if is_done { Ok(()) } else { Err(io::Error::other(answer)) }
    }

    /// Starts the server that was killed, with its data, and waits until it can be used.
    pub fn start_again(&mut self) -> io::Result<()> {
        let [clients, peers] = self.ports;
        let (client, peer) = (format!("{}://127.0.0.1:{clients}", self.scheme), format!("http://127.0.0.1:{peers}"));
        let log = std::fs::File::create(self.data.with_extension("log"))?;
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(&self.data).arg("--name").arg("one");
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("one={peer}")]).args(&self.flags);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        while !self.is_ready() {
            let ended = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended {
                return Err(io::Error::other(format!("etcd has ended; see {}.log", self.data.display())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether it says that it serves clients. (Its port is open before it does.)
    fn is_ready(&self) -> bool {
        let log = std::fs::read_to_string(self.data.with_extension("log")).unwrap_or_default();
        log.contains("ready to serve client requests")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
