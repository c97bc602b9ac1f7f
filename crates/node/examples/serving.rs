//! What an answer of a page costs a server by how it waits for requests: a thread for each connection that blocks (or looks first), one
//! thread with epoll, one with io_uring. Decision 0042 has what came out.
//!
//! ```text
//! cargo run --release -p hinterland-node --example serving [SECONDS]
//! request: 64 bytes ──► answer: 48 bytes and a page of 4 KiB, from a random place of 256 MiB
//! ```
//! Each case: connections × requests under way on each. The rate of all together, the server's processor time for each answer, and
//! with one request under way how long it took. The clients are threads of the same process, counted apart.

use hinterland_wire::AdaptivePoll;
use io_uring::{IoUring, opcode, types};
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const REQUEST: usize = 64;
const HEAD: usize = 48;
const PAGE: usize = 4096;
const ANSWER: usize = HEAD + PAGE;
const MEMORY: usize = 256 << 20;
/// Requests that a server takes in at a time.
const BATCH: usize = 32;

/// Where pages come from, and the place of the next one.
#[derive(Clone, Copy)]
struct Pages<'a> {
    memory: &'a [u8],
    state: u64,
}

impl<'a> Pages<'a> {
    fn new(memory: &'a [u8], seed: u64) -> Pages<'a> {
        Pages { memory, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    fn next(&mut self) -> &'a [u8] {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let page = usize::try_from(self.state % (MEMORY / PAGE) as u64).expect("below the pages") * PAGE;
        &self.memory[page..page + PAGE]
    }
}

/// Processor time of the calling thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).expect("below a second"))
}

fn has_arrived(stream: &TcpStream) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one byte into a byte.
    let seen = unsafe { libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
    seen >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::WouldBlock
}

/// Answers `count` requests with one system call, as long as the socket takes them.
fn answer(mut stream: &TcpStream, count: usize, pages: &mut Pages<'_>) -> std::io::Result<()> {
    let head = [7; HEAD];
    let pages: Vec<&[u8]> = (0..count).map(|_| pages.next()).collect();
    let mut parts: Vec<IoSlice<'_>> = pages.iter().flat_map(|page| [IoSlice::new(&head), IoSlice::new(page)]).collect();
    let mut parts = &mut parts[..];
    while !parts.is_empty() {
        match stream.write_vectored(parts) {
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            // Only epoll's sockets do not block: as rare as a client that does not read.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A thread for each connection; `looks`: each looks for a request for a moment before it sleeps.
fn blocking(streams: &[TcpStream], memory: &[u8], looks: bool) -> Duration {
    let serve = |mut stream: &TcpStream, seed: usize| {
        let (mut pages, mut poll) = (Pages::new(memory, seed as u64 + 1), AdaptivePoll::default());
        let mut requests = [0; REQUEST * BATCH];
        let mut have = 0;
        loop {
            if looks {
                poll.poll(|| has_arrived(stream));
            }
            match stream.read(&mut requests[have..]) {
                Ok(0) | Err(_) => return thread_time(),
                Ok(read) => have += read,
            }
            if answer(stream, have / REQUEST, &mut pages).is_err() {
                return thread_time();
            }
            have %= REQUEST;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            streams.iter().enumerate().map(|(index, stream)| scope.spawn(move || serve(stream, index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    })
}

/// One thread that waits for all.
fn epoll(streams: &[TcpStream], memory: &[u8]) -> Duration {
    // SAFETY: a descriptor of our own.
    let all = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    for (index, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true).expect("an option");
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: index as u64 };
        // SAFETY: both descriptors are open.
        assert_eq!(unsafe { libc::epoll_ctl(all, libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &raw mut event) }, 0);
    }
    let mut pages = Pages::new(memory, 1);
    let mut held = vec![([0; REQUEST * BATCH], 0); streams.len()];
    let mut open = streams.len();
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; streams.len()];
    while open > 0 {
        let room = i32::try_from(events.len()).expect("few");
        // SAFETY: room for so many.
        let ready = unsafe { libc::epoll_wait(all, events.as_mut_ptr(), room, -1) };
        for event in &events[..usize::try_from(ready).unwrap_or(0)] {
            let index = usize::try_from(event.u64).expect("few");
            let (mut stream, (requests, have)) = (&streams[index], &mut held[index]);
            match stream.read(&mut requests[*have..]) {
                Ok(0) => {
                    open -= 1;
                    // SAFETY: both are open.
                    unsafe { libc::epoll_ctl(all, libc::EPOLL_CTL_DEL, stream.as_raw_fd(), std::ptr::null_mut()) };
                }
                Ok(read) => {
                    *have += read;
                    answer(stream, *have / REQUEST, &mut pages).expect("it reads");
                    *have %= REQUEST;
                }
                Err(_) => {}
            }
        }
    }
    // SAFETY: ours.
    unsafe { libc::close(all) };
    thread_time()
}

/// What one connection of `uring` points at.
struct Wire<'a> {
    requests: [u8; REQUEST * BATCH],
    have: usize,
    head: [u8; HEAD],
    pages: [&'a [u8]; BATCH],
    parts: [libc::iovec; 2 * BATCH],
    message: libc::msghdr,
    left: usize,
}

/// One thread that submits and waits for all in the same call.
fn uring(streams: &[TcpStream], memory: &[u8]) -> Duration {
    const SEND: u64 = 1 << 32;
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .build(256)
        .expect("io_uring");
    let mut pages = Pages::new(memory, 1);
    // SAFETY: plain data.
    let zero = || unsafe { (std::mem::zeroed::<[libc::iovec; 2 * BATCH]>(), std::mem::zeroed::<libc::msghdr>()) };
    let mut wires: Vec<Box<Wire<'_>>> = streams
        .iter()
        .map(|_| {
            let (parts, message) = zero();
            let (requests, pages) = ([0; REQUEST * BATCH], [&memory[..PAGE]; BATCH]);
            Box::new(Wire { requests, have: 0, head: [7; HEAD], pages, parts, message, left: 0 })
        })
        .collect();
    let fd = |index: usize| types::Fd(streams[index].as_raw_fd());
    let receive = |index: usize, wire: &mut Wire<'_>| {
        let room = wire.requests.len() - wire.have;
        opcode::Recv::new(fd(index), wire.requests[wire.have..].as_mut_ptr(), u32::try_from(room).expect("small"))
            .build()
            .user_data(index as u64)
    };
    let send = |index: usize, wire: &mut Wire<'_>| {
        wire.message.msg_iov = wire.parts.as_mut_ptr();
        opcode::SendMsg::new(fd(index), &raw const wire.message)
            .flags(libc::MSG_WAITALL.cast_unsigned())
            .build()
            .user_data(index as u64 | SEND)
    };
    for (index, wire) in wires.iter_mut().enumerate() {
        // SAFETY: what it points at lives as long as the ring.
        unsafe { ring.submission().push(&receive(index, wire)).expect("room") };
    }
    let mut open = streams.len();
    while open > 0 {
        ring.submit_and_wait(1).expect("io_uring");
        let done: Vec<(u64, i32)> = ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (name, result) in done {
            let index = usize::try_from(name & !SEND).expect("few");
            let wire = &mut *wires[index];
            let Ok(bytes) = usize::try_from(result) else {
                open -= 1;
                continue;
            };
            let next = if name & SEND != 0 {
                assert_eq!(bytes, wire.left, "sent in part");
                wire.have %= REQUEST;
                receive(index, wire)
            } else if bytes == 0 {
                open -= 1;
                continue;
            } else {
                wire.have += bytes;
                let count = wire.have / REQUEST;
                if count == 0 {
                    receive(index, wire)
                } else {
                    for at in 0..count {
                        wire.pages[at] = pages.next();
                        let part = |bytes: &[u8]| libc::iovec {
                            iov_base: bytes.as_ptr().cast_mut().cast(),
                            iov_len: bytes.len(),
                        };
                        (wire.parts[2 * at], wire.parts[2 * at + 1]) = (part(&wire.head), part(wire.pages[at]));
                    }
                    wire.message.msg_iovlen = 2 * count;
                    wire.left = ANSWER * count;
                    send(index, wire)
                }
            };
            // SAFETY: as above.
            unsafe { ring.submission().push(&next).expect("room") };
        }
    }
    thread_time()
}

/// Asks for `duration` with `depth` requests under way; the times of all in microseconds.
fn client(mut stream: TcpStream, depth: usize, duration: Duration) -> Vec<f64> {
    let (request, mut into, mut times) = (vec![1; REQUEST * depth], vec![0; ANSWER * depth], Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < duration {
        let asked = Instant::now();
        stream.write_all(&request).expect("the server reads");
        stream.read_exact(&mut into).expect("the server answers");
        let took = asked.elapsed().as_secs_f64() * 1e6;
        times.extend(std::iter::repeat_n(took, depth));
    }
    times
}

type Server = (&'static str, fn(&[TcpStream], &[u8]) -> Duration);

fn main() {
    let seconds = std::env::args().nth(1).map_or(2.0, |word| word.parse().expect("a number of seconds"));
    let memory: Vec<u8> = (0..MEMORY).map(|at| (at * 31).to_le_bytes()[0]).collect();
    let servers: [Server; 4] = [
        ("blocking", |streams, memory| blocking(streams, memory, false)),
        ("blocking, looks", |streams, memory| blocking(streams, memory, true)),
        ("epoll", epoll),
        ("io_uring", uring),
    ];
    println!(
        "{:<18} {:>12} {:>12} {:>14} {:>9} {:>9}",
        "server", "connections", "under way", "answers/s", "CPU µs", "p50 µs"
    );
    for (connections, depth) in [(1, 1), (4, 1), (16, 1), (1, 16), (4, 16)] {
        for (name, serve) in servers {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            let ends: Vec<(TcpStream, TcpStream)> = (0..connections)
                .map(|_| {
                    let client = TcpStream::connect(address).expect("a connection");
                    let server = listener.accept().expect("a connection").0;
                    [&client, &server].iter().for_each(|stream| stream.set_nodelay(true).expect("an option"));
                    (client, server)
                })
                .collect();
            let (clients, streams): (Vec<TcpStream>, Vec<TcpStream>) = ends.into_iter().unzip();
            let duration = Duration::from_secs_f64(seconds);
            let (cpu, mut times) = std::thread::scope(|scope| {
                let server = scope.spawn(|| serve(&streams, &memory));
                let clients: Vec<_> =
                    clients.into_iter().map(|stream| scope.spawn(move || client(stream, depth, duration))).collect();
                let times: Vec<f64> = clients.into_iter().flat_map(|client| client.join().expect("it ends")).collect();
                (server.join().expect("it ends"), times)
            });
            times.sort_by(f64::total_cmp);
            let count = times.len() as f64;
            let (rate, each) = (count / seconds, cpu.as_secs_f64() * 1e6 / count);
            println!(
                "{name:<18} {connections:>12} {depth:>12} {rate:>14.0} {each:>9.2} {:>9.1}",
                times[times.len() / 2]
            );
        }
    }
}
