//! A server without any protocol: a client asks for a number of bytes and gets them. What TCP itself takes, to compare with:
//! with sides that sleep until a message is there, and with sides that look for it first, as ours do (decision 0032).

use super::process::Server;
use hinterland_wire::AdaptivePoll;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Bytes of a request; the first eight say how many bytes are wanted. About those of a read of one page.
const REQUEST_BYTES: usize = 64;
/// Where a request says whether the server is to look for the next one.
const LOOKS: usize = 8;
/// Bytes that are written, and read, at once.
const CHUNK_BYTES: usize = 128 << 10;
/// No answer takes longer.
const LIMIT: Duration = Duration::from_secs(10);

/// Serves until it is ended.
pub fn serve() -> ExitCode {
    let served = || -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        println!("{}", listener.local_addr()?);
        loop {
            let stream = listener.accept()?.0;
            // A client that leaves ends its connection and nothing else.
            std::thread::spawn(move || answer(stream));
        }
    };
    match served() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let bytes = vec![7; CHUNK_BYTES];
    let (mut poll, mut looks) = (AdaptivePoll::default(), false);
    loop {
        let mut request = [0; REQUEST_BYTES];
        if looks {
            poll.poll(|| has_arrived(&stream));
        }
        stream.read_exact(&mut request)?;
        looks = request[LOOKS] != 0;
        let mut left = u64::from_le_bytes(*request.first_chunk().expect("longer"));
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            stream.write_all(&bytes[..now])?;
            left -= now as u64;
        }
    }
}

fn has_arrived(stream: &TcpStream) -> bool {
    let mut byte = 0u8;
    // SAFETY: the kernel writes at most the one byte.
    let got = unsafe { libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    got >= 0 || io::Error::last_os_error().kind() != ErrorKind::WouldBlock
}

/// A raw server and a connection to it.
pub struct Raw {
    _server: Server,
    stream: TcpStream,
}

impl Raw {
    /// Starts the server, and connects.
    ///
    /// # Errors
    /// Why not.
    pub fn start(bench: &Path) -> Result<Raw, String> {
        let mut command = Command::new(bench);
        command.arg("raw-server");
        let (server, address) = Server::start(command, true)?;
        let connect = || -> io::Result<TcpStream> {
            let stream = TcpStream::connect(&address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LIMIT))?;
            Ok(stream)
        };
        Ok(Raw { _server: server, stream: connect().map_err(|error| error.to_string())? })
    }

    /// Asks for `bytes` and waits for all of them, perhaps after polling for the first.
    fn fetch(&mut self, bytes: u64, into: &mut [u8], poll: Option<&mut AdaptivePoll>) -> io::Result<()> {
        let mut request = [0; REQUEST_BYTES];
        request[..8].copy_from_slice(&bytes.to_le_bytes());
        request[LOOKS] = poll.is_some().into();
        self.stream.write_all(&request)?;
        let mut left = usize::try_from(bytes).map_err(io::Error::other)?;
        if let Some(poll) = poll {
            poll.poll(|| has_arrived(&self.stream));
        }
        while left > 0 {
            let now = left.min(into.len());
            self.stream.read_exact(&mut into[..now])?;
            left -= now;
        }
        Ok(())
    }

    /// Durations of `count` round trips for `bytes`, in order of length, in microseconds; whether both sides look first.
    ///
    /// # Errors
    /// The connection's.
    pub fn round_trips_us(&mut self, count: usize, bytes: usize, looks: bool) -> Result<Vec<f64>, String> {
        let mut into = vec![0; bytes];
        let mut poll = looks.then(AdaptivePoll::default);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            self.fetch(bytes as u64, &mut into, poll.as_mut()).map_err(|error| error.to_string())?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Bytes a second when `bytes` are asked for at once.
    ///
    /// # Errors
    /// The connection's.
    #[allow(clippy::cast_precision_loss, reason = "bytes of a measurement lie far below 2^52")]
    pub fn stream_rate(&mut self, bytes: u64) -> Result<f64, String> {
        let begun = Instant::now();
        self.fetch(bytes, &mut vec![0; CHUNK_BYTES], None).map_err(|error| error.to_string())?;
        Ok(bytes as f64 / begun.elapsed().as_secs_f64())
    }
}
