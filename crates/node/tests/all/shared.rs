//! Shared slabs: loads that are copies out of the node's memory, forks under load, and what clients can do with their descriptors.

use hinterland_abi::PathChange;
use hinterland_backend::{Backend, LoadItem, Location, OpenOptions, Priority, Timing, open, open_with};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_testkit::contract::{fuzz, fuzz_threads, load, page_of, store, with_fork};
use hinterland_testkit::{HANG, Rng, maintain_until, patient, wait_until};
use hinterland_units::{PAGE_BYTES, PageBytes};
use hinterland_wire::{
    Endpoint, Features, Grant, HEADER_BYTES, Header, Hello, Kind, Range, Reply, Request, WELCOME_BYTES, Welcome,
    checksum,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const SLAB_PAGES: u64 = 512;

fn node(slabs: u64) -> Listening {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("hinterland-shared-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let url = format!("unix:{}", std::env::temp_dir().join(name).display());
    Listening::start(&url.parse().expect("an endpoint"), Options::new(slabs * SLAB_BYTES)).expect("a node")
}

fn client(node: &Listening) -> Arc<dyn Backend> {
    client_with(node, Timing::default())
}

fn client_with(node: &Listening, timing: Timing) -> Arc<dyn Backend> {
    let options = OpenOptions { timing, insecure_loopback: true, answer_limit: patient(), ..OpenOptions::default() };
    open_with(&[node.endpoint().to_string()], &options).unwrap_or_else(|error| panic!("{error}"))
}

fn stored(backend: &dyn Backend, seeds: std::ops::Range<u64>) -> Vec<(Location, u64)> {
    let pages: Vec<PageBytes> = seeds.clone().map(page_of).collect();
    let answers = store(backend, &pages).into_iter().map(|answer| answer.unwrap_or_else(|error| panic!("{error}")));
    answers.zip(seeds).collect()
}

fn check(backend: &dyn Backend, held: &[(Location, u64)], priority: Priority) {
    let at: Vec<Location> = held.iter().map(|(location, _)| *location).collect();
    for ((_, seed), loaded) in held.iter().zip(load(backend, &at, priority)) {
        assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(*seed), "page {seed}");
    }
}

fn free(backend: &dyn Backend, held: &[(Location, u64)]) {
    backend.free(&held.iter().map(|(location, _)| *location).collect::<Vec<_>>());
}

#[test]
fn loads_are_no_messages_and_a_silent_second_ends_with_one() {
    let node = node(8);
    let reads = || node.node().figures().reads;
    let silent = |view_silence| client_with(&node, Timing { view_silence, ..Timing::default() });
    // As long as the node is not silent for too long, none; and every load is one where any silence is.
    for (backend, are_messages) in [(silent(Duration::MAX), false), (silent(Duration::ZERO), true)] {
        let held = stored(&*backend, 0..1000);
        let before = reads();
        check(&*backend, &held, Priority::Demand);
        check(&*backend, &held, Priority::Prefetch);
        assert_eq!(reads() - before, if are_messages { 2000 } else { 0 });
        // What goes elsewhere unseen is checked on its way.
        check(&*backend, &held, Priority::WriteBack);
        check(&*backend, &held, Priority::Migration);
        assert_eq!(reads() - before, if are_messages { 4000 } else { 2000 });
    }
    // One message ends a silence, and is noticed by a load in the end.
    let backend = silent(Duration::from_millis(20));
    let held = stored(&*backend, 0..1);
    let before = reads();
    wait_until("its silence is noticed", || {
        check(&*backend, &held, Priority::Demand);
        reads() > before
    });
}

#[test]
fn a_fork_under_load_shows_neither_side_the_others_writes() {
    let node = node(64);
    let backend = client(&node);
    let held = stored(&*backend, 0..SLAB_PAGES * 4);
    check(&*backend, &held, Priority::Demand);
    // Each side frees half of what both have, fills the room again with pages of its own, and reads the other half all the while.
    let live_on = |who: u64, depth: u32| {
        let (freed, kept): (Vec<_>, Vec<_>) = held.iter().partition(|(_, seed)| seed % 2 == who % 2);
        let rounds = 3;
        std::thread::scope(|scope| {
            for reader in 0..2u64 {
                let (backend, kept) = (&*backend, &kept);
                scope.spawn(move || {
                    let mut rng = Rng(reader);
                    for _ in 0..rounds * 40 {
                        let begin = rng.index(kept.len() - 30);
                        check(backend, &kept[begin..begin + 1 + rng.index(29)], Priority::Demand);
                    }
                });
            }
            for part in freed.chunks(freed.len() / rounds + 1) {
                free(&*backend, part);
                let first = 1_000_000 * (who + 1) + u64::from(depth) * 100_000;
                let own = stored(&*backend, first..first + part.len() as u64);
                check(&*backend, &own, Priority::Demand);
                free(&*backend, &own);
            }
        });
        check(&*backend, &kept, Priority::Prefetch);
    };
    with_fork(&*backend, || live_on(1, 0), || live_on(2, 0));
    // Now the parent's slabs are its own again: and once more.
    let held = stored(&*backend, 5000..5000 + SLAB_PAGES);
    with_fork(
        &*backend,
        || {
            with_fork(
                &*backend,
                || check(&*backend, &held, Priority::Demand),
                || fuzz_threads(&*backend, 9, 3, 60, 300),
            )
        },
        || fuzz_threads(&*backend, 8, 3, 60, 300),
    );
    check(&*backend, &held, Priority::Demand);
    assert!(node.node().figures().copied_slabs > 0, "nobody wrote to a slab that was shared");
}

#[test]
fn slabs_that_go_back_and_come_again_show_the_new_content() {
    let node = node(4);
    let backend = client(&node);
    for round in 0..6 {
        let held = stored(&*backend, round * 10_000..round * 10_000 + SLAB_PAGES * 3);
        check(&*backend, &held, Priority::Demand);
        free(&*backend, &held);
    }
    fuzz(&*backend, 3, 300, 1400);
}

#[test]
fn two_programs_share_a_node_and_no_slab() {
    let node = node(64);
    std::thread::scope(|scope| {
        for tenant in 0..2 {
            let backend = client(&node);
            scope.spawn(move || fuzz_threads(&*backend, 40 + tenant, 2, 150, 600));
        }
    });
}

/// A page that no other test has.
fn unique(seed: u64) -> PageBytes {
    let mut rng = Rng(seed);
    std::array::from_fn(|_| rng.next_u64().to_le_bytes()[3])
}

/// Flips a bit of every page of `seeds` in the shared slabs of this process; returns how many were found.
fn damage(seeds: std::ops::Range<u64>) -> usize {
    let pages: Vec<PageBytes> = seeds.map(unique).collect();
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten() {
        let name = std::fs::read_link(entry.path()).unwrap_or_default();
        let number = entry.file_name().to_str().and_then(|number| number.parse::<i32>().ok());
        let Some(fd) = number.filter(|_| name.to_string_lossy().contains("hinterland-slab")) else { continue };
        for at in (0..i64::try_from(SLAB_BYTES).expect("small")).step_by(PAGE_BYTES) {
            let mut page = [0; PAGE_BYTES];
            // SAFETY: the buffers are of the length that is named; the descriptor may be another by now, of which nothing is expected.
            unsafe {
                if libc::pread(fd, page.as_mut_ptr().cast(), PAGE_BYTES, at) == PAGE_BYTES.cast_signed()
                    && pages.contains(&page)
                {
                    page[100] ^= 4;
                    found +=
                        usize::from(libc::pwrite(fd, page.as_ptr().cast(), PAGE_BYTES, at) == PAGE_BYTES.cast_signed());
                }
            }
        }
    }
    found
}

#[test]
fn damage_in_shared_memory_is_repaired_by_the_other_node() {
    const SEEDS: std::ops::Range<u64> = 77_000_000..77_000_020;
    let (near, anywhere) = (node(8), "tcp://127.0.0.1:0".parse().expect("an endpoint"));
    let far = Listening::start(&anywhere, Options::new(8 * SLAB_BYTES)).expect("a node");
    let url = format!("{},{}?replicas=2", near.endpoint(), far.endpoint());
    for (url, is_repaired) in [(url, true), (near.endpoint().to_string(), false)] {
        let pool = open(&[url]).unwrap_or_else(|error| panic!("{error}"));
        let pages: Vec<PageBytes> = SEEDS.map(unique).collect();
        let held = store(&*pool, &pages).into_iter().map(|answer| answer.unwrap_or_else(|error| panic!("{error}")));
        let held: Vec<Location> = held.collect();
        assert_eq!(damage(SEEDS), 20);
        for (location, seed) in held.into_iter().zip(SEEDS) {
            let (right, mut into) = (unique(seed), [0; PAGE_BYTES]);
            let loaded = load(&*pool, &[location], Priority::Demand).remove(0).expect("what lies there");
            assert!(loaded != right || is_repaired, "page {seed} was not damaged");
            let repaired = pool.repair(LoadItem { location, into: &mut into }, &|page| *page == right);
            assert!(repaired.is_ok() == is_repaired && (!is_repaired || into == right), "page {seed}: {repaired:?}");
        }
    }
}

#[test]
fn damage_in_shared_memory_is_not_moved_to_another_path() {
    const SEEDS: std::ops::Range<u64> = 78_000_000..78_000_020;
    let (near, anywhere) = (node(8), "tcp://127.0.0.1:0".parse().expect("an endpoint"));
    let far = Listening::start(&anywhere, Options::new(8 * SLAB_BYTES)).expect("a node");
    let pool = format!("{},{}?replicas=2", near.endpoint(), far.endpoint());
    let timing = Timing { view_silence: Duration::MAX, ..Timing::default() };
    let options = OpenOptions { timing, insecure_loopback: true, answer_limit: patient(), ..OpenOptions::default() };
    let paths = open_with(&[pool.clone(), "reference:16M".into()], &options).unwrap_or_else(|error| panic!("{error}"));
    let pages: Vec<PageBytes> = SEEDS.map(unique).collect();
    let at = store(&*paths, &pages).into_iter().map(|answer| answer.unwrap_or_else(|error| panic!("{error}")));
    let at: Vec<Location> = at.collect();
    assert_eq!(damage(SEEDS), 20);
    // Some are demoted, and the others leave with their path.
    assert_eq!(paths.demote(5), 5);
    paths.change(1, vec![PathChange::Drop(pool)]);
    maintain_until(&*paths, "nothing is left there", || paths.changed_version() == 1);
    for (page, loaded) in pages.iter().zip(load(&*paths, &at, Priority::Demand)) {
        assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == *page, "what was damaged there is here");
    }
}

/// A client that keeps what it is given.
struct Keeper {
    stream: UnixStream,
    number: u64,
    message: Vec<u8>,
}

impl Keeper {
    fn new(node: &Listening) -> Keeper {
        let Endpoint::Unix { path } = node.endpoint() else { panic!("a socket") };
        let mut stream = UnixStream::connect(path).expect("a connection");
        stream.set_read_timeout(Some(HANG)).expect("a limit");
        stream.write_all(&Hello::ours().encode()).expect("sent");
        let mut welcome = [0; WELCOME_BYTES];
        stream.read_exact(&mut welcome).expect("a welcome");
        assert!(Welcome::decode(&welcome).expect("a welcome").features.has(Features::SHARED));
        Keeper { stream, number: 0, message: Vec::new() }
    }

    /// Makes a request; returns the kind of the answer, its control part, and a descriptor if one came with it.
    fn ask(&mut self, write: impl FnOnce(&mut Vec<u8>, u64), data: &[u8]) -> (Kind, Vec<u8>, Option<File>) {
        self.number += 1;
        write(&mut self.message, self.number);
        self.stream.write_all(&self.message).and_then(|()| self.stream.write_all(data)).expect("sent");
        let mut head = vec![0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut head)];
        let received = rustix::net::recvmsg(&self.stream, parts, &mut beside, RecvFlags::empty()).expect("an answer");
        assert_eq!(received.bytes, HEADER_BYTES);
        let mut files = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let file = files.next().and_then(|mut descriptors| descriptors.next()).map(File::from);
        let header = Header::decode(head.first_chunk().expect("a header")).expect("a header");
        head.resize(HEADER_BYTES + header.control_bytes, 0);
        self.stream.read_exact(&mut head[HEADER_BYTES..]).expect("a control part");
        (header.kind, head, file)
    }

    fn open(node: &Listening) -> (Keeper, Grant) {
        let mut keeper = Keeper::new(node);
        let grant = keeper.session(|into, number| Request::open(into, number, "keeper", 0, 1000));
        (keeper, grant)
    }

    fn session(&mut self, write: impl FnOnce(&mut Vec<u8>, u64)) -> Grant {
        let (_, message, _) = self.ask(write, &[]);
        let (header, control) = Header::decode_whole(&message).expect("undamaged");
        let Ok(Reply::Session(grant)) = Reply::decode(&header, control) else { panic!("no session") };
        grant
    }

    fn write(&mut self, address: u64, byte: u8) -> Kind {
        let page = [byte; PAGE_BYTES];
        let range = Range { address, bytes: 4096, checksum: checksum(address, &page) };
        let write = |into: &mut Vec<u8>, number| {
            Request::write(into, number, hinterland_wire::Priority::WriteBack, [range].into_iter())
        };
        self.ask(write, &page).0
    }

    fn share(&mut self, slab: u32) -> Option<File> {
        self.ask(|into, number| Request::share(into, number, slab), &[]).2
    }
}

fn byte_of(file: &File, offset: u64) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a file of the slab's length");
    byte[0]
}

#[test]
fn a_descriptor_is_for_reading_one_slab_while_it_is_held() {
    let node = node(2);
    let (mut keeper, _) = Keeper::open(&node);
    assert_eq!(keeper.ask(|into, number| Request::lease(into, number, 1), &[]).0, Kind::Slabs);
    assert_eq!(keeper.write(4096, 7), Kind::Done);
    let file = keeper.share(0).expect("a descriptor");
    assert_eq!((file.metadata().expect("figures").len(), byte_of(&file, 4096)), (SLAB_BYTES, 7));
    assert!(file.write_at(&[1], 0).is_err() && file.set_len(0).is_err());
    assert!(keeper.share(1).is_none() && keeper.share(u32::MAX).is_none(), "slabs that it does not have");
    // Given back, its memory is free at once, whoever keeps the descriptor, and the next one gets another.
    assert_eq!(keeper.ask(|into, number| Request::give_back(into, number, &[0]), &[]).0, Kind::Done);
    assert_eq!((byte_of(&file, 4096), rustix::fs::fstat(&file).expect("figures").st_blocks), (0, 0));
    let (mut other, _) = Keeper::open(&node);
    assert_eq!(other.ask(|into, number| Request::lease(into, number, 2), &[]).0, Kind::Slabs);
    assert_eq!((other.write(4096, 9), other.write(SLAB_BYTES, 9)), (Kind::Done, Kind::Done));
    assert_eq!((byte_of(&file, 4096), byte_of(&other.share(0).expect("a descriptor"), 4096)), (0, 9));
    // The same when the session ends.
    let kept = other.share(1).expect("a descriptor");
    assert_eq!(other.ask(|into, number| Request::plain(into, number, Kind::Close), &[]).0, Kind::Done);
    assert_eq!((byte_of(&kept, 0), node.node().used_bytes()), (0, 0));
}

#[test]
fn who_writes_after_a_clone_has_another_descriptor_from_then_on() {
    let node = node(4);
    let (mut parent, _) = Keeper::open(&node);
    parent.ask(|into, number| Request::lease(into, number, 1), &[]);
    parent.write(0, 1);
    let before = parent.share(0).expect("a descriptor");
    let clone = parent.session(|into, number| Request::plain(into, number, Kind::Clone));
    let mut child = Keeper::new(&node);
    child.session(|into, number| Request::attach(into, number, clone.session, clone.token));
    assert_eq!(child.write(0, 2), Kind::Done);
    assert_eq!((byte_of(&before, 0), byte_of(&parent.share(0).expect("its own"), 0)), (1, 1));
    assert_eq!(byte_of(&child.share(0).expect("its own"), 0), 2);
    // The parent alone has it now, and writes where it is.
    assert_eq!(parent.write(0, 3), Kind::Done);
    assert_eq!(byte_of(&before, 0), 3);
}

#[test]
fn by_tcp_nothing_is_shared() {
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    let node = Listening::start(&anywhere, Options::new(SLAB_BYTES)).expect("a node");
    let mut stream =
        std::net::TcpStream::connect(node.endpoint().address().expect("an address")).expect("a connection");
    stream.write_all(&Hello::ours().encode()).expect("sent");
    let mut welcome = [0; WELCOME_BYTES];
    stream.read_exact(&mut welcome).expect("a welcome");
    assert!(!Welcome::decode(&welcome).expect("a welcome").features.has(Features::SHARED));
    let mut message = Vec::new();
    Request::share(&mut message, 1, 0);
    stream.write_all(&message).expect("sent");
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).expect("an answer");
    assert_eq!(Header::decode(&head).map(|header| header.kind), Ok(Kind::Refused));
}
