//! A client that throws away what it reads, so that the server is what bounds the rate: what a read takes of a node's processor, with as
//! little as possible of waiting in it.

use hinterland_units::PAGE_BYTES;
use hinterland_wire::{
    Endpoint, HEADER_BYTES, Header, Hello, Kind, Outcome, Priority, Range, Reply, Request, WELCOME_BYTES, Welcome,
    checksum,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Pages of one request: as many as a message of read-ahead asks for.
pub const PAGES: usize = 32;
/// Requests that are under way.
pub const DEPTH: usize = 4;
/// No answer takes longer.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection to a node that keeps pages for it.
pub struct Reader {
    stream: TcpStream,
    number: u64,
    message: Vec<u8>,
    pages: u32,
}

impl Reader {
    /// Opens a session at `url` and writes `pages` pages, a multiple of `PAGES`, from address 0 on.
    ///
    /// # Errors
    /// Why not.
    pub fn fill(url: &str, pages: u32, seed: u64) -> Result<Reader, String> {
        let filled = || -> io::Result<Reader> {
            let endpoint: Endpoint = url.parse().map_err(io::Error::other)?;
            let stream = TcpStream::connect(endpoint.address().ok_or(io::ErrorKind::Unsupported)?)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LIMIT))?;
            let mut reader = Reader { stream, number: 0, message: vec![], pages };
            let slab_bytes = reader.greet()?;
            let slabs = (u64::from(pages) * PAGE_BYTES as u64).div_ceil(slab_bytes);
            reader.ask(|into, number| Request::open(into, number, "bench", 0, 0), &[])?;
            for _ in 0..slabs {
                reader.ask(|into, number| Request::lease(into, number, 1), &[])?;
            }
            let mut random = SmallRng::seed_from_u64(seed);
            for first in (0..u64::from(pages)).step_by(PAGES) {
                let data: Vec<u8> = (0..PAGES * PAGE_BYTES).map(|_| random.random()).collect();
                let ranges = data.chunks(PAGE_BYTES).enumerate().map(|(place, page)| {
                    let range = range_of(first + place as u64);
                    Range { checksum: checksum(range.address, page), ..range }
                });
                reader.ask(|into, number| Request::write(into, number, Priority::WriteBack, ranges), &data)?;
            }
            Ok(reader)
        };
        filled().map_err(|error| format!("a client of {url}: {error}"))
    }

    /// Reads random pages for `duration`; returns how many.
    ///
    /// # Errors
    /// The node refuses, or the connection fails.
    pub fn read_for(&mut self, duration: Duration, seed: u64) -> Result<u64, String> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut read = || -> io::Result<u64> {
            let begun = Instant::now();
            for _ in 1..DEPTH {
                self.request(&mut random)?;
            }
            let mut answers = 0;
            while begun.elapsed() < duration {
                self.request(&mut random)?;
                self.answer()?;
                answers += 1;
            }
            for _ in 1..DEPTH {
                self.answer()?;
                answers += 1;
            }
            Ok(answers * PAGES as u64)
        };
        read().map_err(|error| format!("a client of a node: {error}"))
    }

    fn greet(&mut self) -> io::Result<u64> {
        self.stream.write_all(&Hello::ours().encode())?;
        let mut welcome = [0; WELCOME_BYTES];
        self.stream.read_exact(&mut welcome)?;
        match Welcome::decode(&welcome).map_err(io::Error::other)? {
            Welcome { outcome: Outcome::Accepted, slab_bytes, .. } => Ok(slab_bytes),
            Welcome { outcome, .. } => Err(io::Error::other(format!("turned away: {outcome:?}"))),
        }
    }

    /// Asks, and waits until it is done.
    fn ask(&mut self, write: impl FnOnce(&mut Vec<u8>, u64), data: &[u8]) -> io::Result<()> {
        self.send(write)?;
        self.stream.write_all(data)?;
        self.answer()
    }

    fn request(&mut self, random: &mut SmallRng) -> io::Result<()> {
        let pages: [u64; PAGES] = std::array::from_fn(|_| u64::from(random.random_range(0..self.pages)));
        self.send(|into, number| Request::read(into, number, Priority::Prefetch, pages.map(range_of).into_iter()))
    }

    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>, u64)) -> io::Result<()> {
        self.number += 1;
        write(&mut self.message, self.number);
        self.stream.write_all(&self.message)
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut head = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut head)?;
        let header = Header::decode(head.first_chunk().expect("a header")).map_err(io::Error::other)?;
        head.resize(HEADER_BYTES + header.control_bytes, 0);
        self.stream.read_exact(&mut head[HEADER_BYTES..])?;
        let (header, control) = Header::decode_whole(&head).map_err(io::Error::other)?;
        match Reply::decode(&header, control).map_err(io::Error::other)? {
            Reply::Refused { words, .. } => Err(io::Error::other(words.to_owned())),
            _ => discard(&self.stream, header.data_bytes),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The node forgets the session anyway, later.
        let _ = self.ask(|into, number| Request::plain(into, number, Kind::Close), &[]);
    }
}

fn range_of(page: u64) -> Range {
    let bytes = u32::try_from(PAGE_BYTES).expect("a page is small");
    Range { address: page * PAGE_BYTES as u64, bytes, checksum: 0 }
}

/// Takes `bytes` bytes out of a connection without looking at them; TCP does not copy them then (`MSG_TRUNC`, tcp(7)).
pub fn discard(stream: &TcpStream, mut bytes: usize) -> io::Result<()> {
    while bytes > 0 {
        // SAFETY: the kernel writes nothing: with this flag TCP takes no address.
        let got = unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), bytes, libc::MSG_TRUNC) };
        match usize::try_from(got) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => bytes -= got,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
