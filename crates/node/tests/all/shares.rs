//! Two tenants on one node, one of which asks for all that it can on many lanes: the other is served all the while. And so it is where the node's link
//! is narrow, and one of them does not read what it has asked for.
//!
//! How much each gets is the rule of admission, which is tested in virtual time (`admission.rs`). Here the real scheduler, sockets and
//! lanes work, for as long as it takes. The flood needs hardly any processor on its own side: one thread serves all its lanes and has
//! the kernel throw the answers away.

use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_testkit::HANG;
use hinterland_wire::*;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: u32 = 4096;
const LONG: u32 = 256 << 10;

/// A session with some lanes, and one leased slab.
struct Tenant(Vec<TcpStream>);

impl Tenant {
    fn new(node: &Listening, lanes: usize) -> Tenant {
        let connect = || {
            let mut stream = TcpStream::connect(node.endpoint().address().expect("an address")).expect("the node");
            stream.set_nodelay(true).expect("an option");
            stream.set_read_timeout(Some(HANG)).expect("a limit");
            stream.write_all(&Hello::ours().encode()).expect("sent");
            stream.read_exact(&mut [0; WELCOME_BYTES]).expect("a welcome");
            stream
        };
        let mut first = connect();
        let grant = ask(
            &mut first,
            |into| Request::open(into, 1, "tenant", 0, 1000),
            |reply| match reply {
                Reply::Session(grant) => Some(grant),
                _ => None,
            },
        );
        ask(&mut first, |into| Request::lease(into, 2, 1), |reply| matches!(reply, Reply::Slabs(_)).then_some(()));
        let join = |_| {
            let mut lane = connect();
            let attach = |into: &mut Vec<u8>| Request::attach(into, 1, grant.session, grant.token);
            ask(&mut lane, attach, |reply| matches!(reply, Reply::Session(_)).then_some(()));
            lane
        };
        Tenant(std::iter::once(first).chain((1..lanes).map(join)).collect())
    }
}

fn ask<R>(stream: &mut TcpStream, write: impl FnOnce(&mut Vec<u8>), take: impl FnOnce(Reply<'_>) -> Option<R>) -> R {
    let mut message = Vec::new();
    write(&mut message);
    stream.write_all(&message).expect("sent");
    message.resize(HEADER_BYTES, 0);
    stream.read_exact(&mut message[..HEADER_BYTES]).expect("an answer");
    let header = Header::decode(message.first_chunk().expect("longer")).expect("a header");
    message.truncate(HEADER_BYTES);
    message.resize(HEADER_BYTES + header.control_bytes, 0);
    stream.read_exact(&mut message[HEADER_BYTES..]).expect("the rest");
    let (header, control) = Header::decode_whole(&message).expect("undamaged");
    take(Reply::decode(&header, control).expect("a reply")).expect("the answer that fits")
}

/// A read of `bytes`, page by page as programs read.
fn read_of(bytes: u32, number: u64, priority: Priority) -> Vec<u8> {
    let mut message = Vec::new();
    let ranges = (0..bytes / PAGE).map(|page| Range { address: u64::from(page * PAGE), bytes: PAGE, checksum: 0 });
    Request::read(&mut message, number, priority, ranges);
    message
}

/// Bytes of the answer.
fn answer_bytes(bytes: u32) -> usize {
    HEADER_BYTES + 4 + (bytes / PAGE) as usize * 8 + bytes as usize
}

/// Keeps `depth` reads of `LONG` under way on each lane while `goes_on`; it is told how many answers have come.
fn flood(tenant: &Tenant, depth: usize, priority: Priority, mut goes_on: impl FnMut(usize) -> bool) {
    let mut lanes: Vec<(&TcpStream, usize)> = tenant.0.iter().map(|stream| (stream, 0)).collect();
    lanes.iter().for_each(|(stream, _)| stream.set_nonblocking(true).expect("an option"));
    let (mut asked, mut answered, mut moved) = (2, 0, Instant::now());
    // Numbers count up on each lane, and may leave some out.
    let mut ask = |mut stream: &TcpStream| {
        asked += 1;
        stream.write_all(&read_of(LONG, asked, priority)).expect("sent");
    };
    lanes.iter().for_each(|(stream, _)| (0..depth).for_each(|_| ask(stream)));
    while goes_on(answered) {
        let mut idle = true;
        for (stream, arrived) in &mut lanes {
            // SAFETY: with MSG_TRUNC the kernel drops what arrived on the connection, and writes nothing.
            let got = unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), 1 << 20, libc::MSG_TRUNC) };
            let Ok(got) = usize::try_from(got) else {
                assert_eq!(std::io::Error::last_os_error().kind(), ErrorKind::WouldBlock);
                continue;
            };
            assert!(got > 0, "the node hung up");
            (idle, *arrived, moved) = (false, *arrived + got, Instant::now());
            while *arrived >= answer_bytes(LONG) {
                (*arrived, answered) = (*arrived - answer_bytes(LONG), answered + 1);
                ask(stream);
            }
        }
        if idle {
            assert!(moved.elapsed() < HANG, "{answered} answers to {priority:?}, and no more");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Ends what goes on beside, also when this side fails.
struct Over<'a>(&'a AtomicBool);

impl Over<'_> {
    fn is_so(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Of two tenants that always have more to ask, one on a single lane and one on many, each is served while the other is, whichever asks
/// for more urgent things.
#[test]
fn a_flood_leaves_others_their_share() {
    const ANSWERS: usize = 300;
    for (meek_priority, greedy_priority) in
        [(Priority::WriteBack, Priority::Demand), (Priority::Demand, Priority::Migration)]
    {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
        let node = Listening::start(&anywhere, Options::new(8 * SLAB_BYTES)).expect("a node");
        let (meek, greedy) = (Tenant::new(&node, 1), Tenant::new(&node, 48));
        let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
        // Until both have so much: whoever has it goes on, so that the other gets the rest beside it.
        let over = AtomicBool::new(false);
        let goes_on = |own: usize| {
            let (counts, over) = (&counts, Over(&over));
            move |answered| {
                counts[own].store(answered, Relaxed);
                counts.iter().any(|count| count.load(Relaxed) < ANSWERS) && !over.is_so()
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| flood(&greedy, 4, greedy_priority, goes_on(0)));
            scope.spawn(|| flood(&meek, 4, meek_priority, goes_on(1)));
        });
    }
}

/// One tenant's lanes are full of answers that it does not take; the other gets its own, and no faster than the link is.
#[test]
fn on_a_link_with_turns_who_does_not_read_holds_up_nobody() {
    const BITS_PER_SECOND: u64 = 200_000_000;
    const ANSWERS: usize = 8;
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    let options = Options { link_bits_per_second: Some(BITS_PER_SECOND), ..Options::new(8 * SLAB_BYTES) };
    let node = Listening::start(&anywhere, options).expect("a node");
    let (mute, other) = (Tenant::new(&node, 4), Tenant::new(&node, 1));
    for mut stream in &mute.0 {
        (2..12).for_each(|number| stream.write_all(&read_of(LONG, number, Priority::Demand)).expect("sent"));
    }
    let begun = Instant::now();
    flood(&other, 2, Priority::Migration, |answered| answered < ANSWERS);
    let least =
        Duration::from_secs((ANSWERS * answer_bytes(LONG) * 8) as u64) / u32::try_from(BITS_PER_SECOND).expect("fits");
    assert!(begun.elapsed() >= least, "{:?} for what takes {least:?}", begun.elapsed());
    // It could read them still.
    for stream in &mute.0 {
        stream.set_nonblocking(false).expect("an option");
        std::io::copy(&mut stream.take((10 * answer_bytes(LONG)) as u64), &mut std::io::sink()).expect("its answers");
    }
}
