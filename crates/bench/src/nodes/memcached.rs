//! memcached with values of a page, one thread: what a store that is known to be fast takes for a read.

use super::process::Server;
use super::reader::{DEPTH, PAGES as KEYS, discard};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 4096;
/// `VALUE kNNNNNNN 0 4096\r\n`, the value, `\r\n`.
const ITEM_BYTES: usize = 23 + VALUE_BYTES + 2;
const END: &[u8] = b"END\r\n";

/// A server with pages in it.
pub struct Memcached {
    server: Server,
    stream: TcpStream,
    pages: u32,
}

impl Memcached {
    /// Starts one and stores `pages` pages.
    ///
    /// # Errors
    /// There is none, or it fails.
    pub fn start(pages: u32) -> Result<Memcached, String> {
        let says = |error: io::Error| format!("memcached: {error}");
        // A port that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(says)?;
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-U", "0", "-t", "1"]);
        command.args(["-m", &(u64::from(pages) * 5 / 1024 + 64).to_string(), "-u", "root"]);
        let server = Server::start(command, false)?.0;
        let begun = Instant::now();
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if begun.elapsed() > Duration::from_secs(5) => return Err(says(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let mut memcached = Memcached { server, stream, pages };
        memcached.fill().map_err(says)?;
        Ok(memcached)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        self.stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut message = Vec::new();
        for page in 0..self.pages {
            write!(message, "set k{page:07} 0 0 {VALUE_BYTES} noreply\r\n")?;
            message.resize(message.len() + VALUE_BYTES, u8::try_from(page % 251).expect("small"));
            message.extend_from_slice(b"\r\n");
            if message.len() > 1 << 20 {
                self.stream.write_all(&message)?;
                message.clear();
            }
        }
        self.stream.write_all(&message)
    }

    /// Gets random pages for `duration`; returns the server's processor time for each, in microseconds.
    ///
    /// # Errors
    /// A page is missing, or the connection fails.
    pub fn get_us(&mut self, duration: Duration, seed: u64) -> Result<f64, String> {
        self.measure(duration, seed).map_err(|error| format!("memcached: {error}"))
    }

    fn measure(&mut self, duration: Duration, seed: u64) -> io::Result<f64> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut ask = |stream: &mut TcpStream| {
            let mut message = b"get".to_vec();
            for _ in 0..KEYS {
                write!(message, " k{:07}", random.random_range(0..self.pages))?;
            }
            message.extend_from_slice(b"\r\n");
            stream.write_all(&message)
        };
        let answer = |stream: &mut TcpStream| {
            let (mut first, mut last) = ([0; 7], [0; END.len()]);
            stream.read_exact(&mut first)?;
            discard(stream, KEYS * ITEM_BYTES - first.len())?;
            stream.read_exact(&mut last)?;
            let whole = first == *b"VALUE k" && last == *END;
            if whole { Ok(()) } else { Err(io::Error::other("a page is missing")) }
        };
        let (begun, cpu_before) = (Instant::now(), self.server.cpu_time());
        for _ in 1..DEPTH {
            ask(&mut self.stream)?;
        }
        let mut gets = 0_u32;
        while begun.elapsed() < duration {
            ask(&mut self.stream)?;
            answer(&mut self.stream)?;
            gets += 1;
        }
        for _ in 1..DEPTH {
            answer(&mut self.stream)?;
            gets += 1;
        }
        let cpu = self.server.cpu_time().saturating_sub(cpu_before);
        Ok(cpu.as_secs_f64() * 1e6 / f64::from(gets) / KEYS as f64)
    }
}
