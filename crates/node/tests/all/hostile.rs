//! What clients may do to a node: malformed, truncated, oversized, replayed and greedy ones end their own connection or session,
//! and never read, fill or disturb another.

use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_testkit::{HANG, Rng, wait_until};
use hinterland_wire::*;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

fn start(options: Options) -> Listening {
    Listening::start(&"tcp://127.0.0.1:0".parse().expect("an endpoint"), options).expect("a node")
}

/// A client that can say anything.
struct Client {
    stream: TcpStream,
    number: u64,
    message: Vec<u8>,
    /// Of the last data.
    sums: Vec<u64>,
}

impl Client {
    fn silent(node: &Listening) -> Client {
        let address = node.endpoint().address().expect("an address");
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(HANG)).expect("a limit");
        stream.set_nodelay(true).expect("an option");
        Client { stream, number: 0, message: Vec::new(), sums: Vec::new() }
    }

    fn greeted(node: &Listening) -> Client {
        let mut client = Client::silent(node);
        client.stream.write_all(&Hello::ours().encode()).expect("sent");
        let mut welcome = [0; WELCOME_BYTES];
        client.stream.read_exact(&mut welcome).expect("a welcome");
        assert_eq!(Welcome::decode(&welcome).map(|welcome| welcome.outcome), Ok(Outcome::Accepted));
        client
    }

    fn open(node: &Listening, quota_bytes: u64, lease_ms: u32) -> (Client, Grant) {
        let mut client = Client::greeted(node);
        let said = client.ask(|into, number| Request::open(into, number, "test", quota_bytes, lease_ms), &[]);
        let Answer::Session(grant) = said else { panic!("{said:?}") };
        (client, grant)
    }

    fn ask(&mut self, write: impl FnOnce(&mut Vec<u8>, u64), data: &[u8]) -> Answer {
        self.number += 1;
        write(&mut self.message, self.number);
        self.stream.write_all(&self.message).and_then(|()| self.stream.write_all(data)).expect("sent");
        self.answer().expect("an answer")
    }

    /// The next answer; `None` when the node hung up.
    fn answer(&mut self) -> Option<Answer> {
        let mut head = vec![0; HEADER_BYTES];
        match self.stream.read_exact(&mut head) {
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
            other => other.expect("an answer or the end"),
        }
        let header = Header::decode(head.first_chunk().expect("a header")).expect("a header");
        head.resize(HEADER_BYTES + header.control_bytes, 0);
        self.stream.read_exact(&mut head[HEADER_BYTES..]).expect("a control part");
        let mut data = vec![0; header.data_bytes];
        self.stream.read_exact(&mut data).expect("data");
        let (header, control) = Header::decode_whole(&head).expect("undamaged");
        Some(match Reply::decode(&header, control).expect("a reply") {
            Reply::Session(grant) => Answer::Session(grant),
            Reply::Slabs(numbers) => Answer::Slabs(numbers.iter().collect()),
            Reply::Data(sums) => {
                self.sums = sums.iter().collect();
                Answer::Data(data)
            }
            Reply::Done => Answer::Done,
            Reply::Recalled(recall) => Answer::Recalled(recall),
            Reply::Copies(copies) => Answer::Copies(copies.removable, copies.unknown_sessions, copies.sums),
            Reply::Certificates(certificates) => Answer::Certificates(certificates.rows().count()),
            Reply::Figures(figures) => Answer::Figures(figures.node),
            Reply::Refused { refusal, .. } => Answer::Refused(refusal),
        })
    }

    fn lease(&mut self, slabs: u32) -> Answer {
        self.ask(|into, number| Request::lease(into, number, slabs), &[])
    }

    fn read(&mut self, address: u64, bytes: u32) -> Answer {
        let range = Range { address, bytes, checksum: 0 };
        self.ask(|into, number| Request::read(into, number, Priority::Demand, [range].into_iter()), &[])
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Answer {
        let bytes = u32::try_from(data.len()).expect("short");
        let range = Range { address, bytes, checksum: checksum(address, data) };
        self.ask(|into, number| Request::write(into, number, Priority::WriteBack, [range].into_iter()), data)
    }
}

#[derive(PartialEq, Debug)]
enum Answer {
    Session(Grant),
    Slabs(Vec<u32>),
    Data(Vec<u8>),
    Done,
    Figures(NodeRow),
    Recalled(Recall),
    Copies(bool, u64, CopiesReport),
    Certificates(usize),
    Refused(Refusal),
}

/// So many random bytes.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten().take(bytes).collect()
}

/// Damage of every sort on 300 connections, while an honest client checks its bytes.
#[test]
fn damage_ends_the_connection_that_it_came_on_and_no_other() {
    let node = start(Options::new(8 * SLAB_BYTES));
    let (mut honest, grant) = Client::open(&node, 0, 0);
    assert_eq!(honest.lease(1), Answer::Slabs(vec![0]));
    let bytes = noise(1, 4096);
    assert_eq!(honest.write(8192, &bytes), Answer::Done);
    let mut ended = 0;
    for seed in 0..300 {
        let mut client = Client::greeted(&node);
        let attached = client.ask(|into, number| Request::attach(into, number, grant.session, grant.token), &[]);
        assert!(matches!(attached, Answer::Session(_)));
        let range = Range { address: 0, bytes: 4096, checksum: 0 };
        Request::read(&mut client.message, 2, Priority::Demand, [range].into_iter());
        let junk = noise(seed, 600);
        match seed % 5 {
            0 => client.message = junk,
            1 => {
                let at = usize::from(junk[0]) % client.message.len();
                client.message[at] ^= 1 << (junk[1] % 8);
            }
            // A length above its bound, a kind that there is not, and a message cut short.
            2 => client.message[4..8].copy_from_slice(&u32::MAX.to_le_bytes()),
            3 => client.message[2] = 0x7e,
            _ => client.message.truncate(40),
        }
        client.stream.write_all(&client.message).expect("sent");
        client.stream.shutdown(std::net::Shutdown::Write).expect("the end of what is said");
        match client.answer() {
            Some(answer) => {
                assert_eq!(answer, Answer::Refused(Refusal::Malformed), "seed {seed}");
                assert_eq!(client.answer(), None, "seed {seed}");
                ended += 1;
            }
            None => assert!(seed % 5 == 4 || seed % 5 == 1, "seed {seed}: nothing was said"),
        }
    }
    assert!(ended > 150, "{ended} of 300 were told why");
    assert_eq!(honest.read(8192, 4096), Answer::Data(bytes));
    drop(honest);
    wait_until("the session ends with its last lane", || node.node().used_bytes() == 0);
}

#[test]
fn a_request_out_of_place_ends_the_connection() {
    let node = start(Options::new(8 * SLAB_BYTES));
    let mut early = Client::greeted(&node);
    assert_eq!(early.read(0, 1), Answer::Refused(Refusal::Order));
    assert_eq!(early.answer(), None);
    let (mut twice, _) = Client::open(&node, 0, 0);
    let again = twice.ask(|into, number| Request::open(into, number, "again", 0, 0), &[]);
    assert_eq!((again, twice.answer()), (Answer::Refused(Refusal::Order), None));
    // A reply is no request.
    let (mut confused, _) = Client::open(&node, 0, 0);
    assert_eq!(confused.ask(Reply::done, &[]), Answer::Refused(Refusal::Malformed));
    assert_eq!(confused.answer(), None);
}

/// What was recorded on a lane, and is sent there again, would undo what was written since.
#[test]
fn a_request_that_is_sent_again_ends_the_connection_and_changes_nothing() {
    let node = start(Options::new(8 * SLAB_BYTES));
    let (mut honest, grant) = Client::open(&node, 0, 0);
    assert_eq!(honest.lease(1), Answer::Slabs(vec![0]));
    let (old, new) = (noise(1, 4096), noise(2, 4096));
    for replay in ["as it was recorded", "with the last number", "with a number that goes back", "with none"] {
        let mut client = Client::greeted(&node);
        let attach = |into: &mut Vec<u8>, number| Request::attach(into, number, grant.session, grant.token);
        assert!(matches!(client.ask(attach, &[]), Answer::Session(_)));
        assert_eq!(client.write(0, &old), Answer::Done);
        let recorded = [&client.message[..], &old].concat();
        assert_eq!(client.write(0, &new), Answer::Done);
        let mut anew = |number| {
            let range = Range { address: 0, bytes: 4096, checksum: checksum(0, &old) };
            Request::write(&mut client.message, number, Priority::WriteBack, [range].into_iter());
            [&client.message[..], &old].concat()
        };
        let said = match replay {
            "with the last number" => anew(client.number),
            "with a number that goes back" => anew(client.number - 2),
            "with none" => anew(0),
            _ => recorded,
        };
        client.stream.write_all(&said).expect("sent");
        assert_eq!(client.answer(), Some(Answer::Refused(Refusal::Order)), "{replay}");
        assert_eq!(client.answer(), None, "{replay}");
        assert_eq!(honest.read(0, 4096), Answer::Data(new.clone()), "{replay}");
    }
    // Numbers may leave some out, up to the last that there is.
    honest.number = u64::MAX - 1;
    assert_eq!(honest.read(0, 4096), Answer::Data(new));
    honest.number -= 1;
    assert_eq!((honest.read(0, 1), honest.answer()), (Answer::Refused(Refusal::Order), None));
}

#[test]
fn a_session_needs_its_token_and_shows_nothing_of_others() {
    let node = start(Options::new(2 * SLAB_BYTES));
    let (mut rich, grant) = Client::open(&node, 0, 0);
    assert_eq!(rich.lease(2), Answer::Slabs(vec![0, 1]));
    for page in 0..2 * SLAB_BYTES / 4096 {
        assert_eq!(rich.write(page * 4096, &[0xaa; 4096]), Answer::Done);
    }
    let mut token = grant.token;
    token.0[15] ^= 1;
    let mut thief = Client::greeted(&node);
    let attach = |session, token| move |into: &mut Vec<u8>, number| Request::attach(into, number, session, token);
    assert_eq!(thief.ask(attach(grant.session, token), &[]), Answer::Refused(Refusal::NoSession));
    assert_eq!(thief.ask(attach(SessionId(999), grant.token), &[]), Answer::Refused(Refusal::NoSession));
    let (mut next, _) = Client::open(&node, 0, 0);
    assert_eq!(next.read(0, 4096), Answer::Refused(Refusal::Range));
    assert_eq!(next.lease(1), Answer::Refused(Refusal::Full));
    assert_eq!(rich.ask(|into, number| Request::plain(into, number, Kind::Close), &[]), Answer::Done);
    assert_eq!(rich.read(0, 1), Answer::Refused(Refusal::NoSession));
    // The same memory, or other: it reads as zeros.
    assert_eq!(next.lease(2), Answer::Slabs(vec![0, 1]));
    for page in 0..2 * SLAB_BYTES / 4096 {
        assert_eq!(next.read(page * 4096, 4096), Answer::Data(vec![0; 4096]), "page {page}");
    }
}

#[test]
fn ranges_end_at_the_slab_and_damaged_data_is_not_written() {
    let node = start(Options::new(8 * SLAB_BYTES));
    let (mut client, _) = Client::open(&node, 0, 0);
    assert_eq!(client.lease(2), Answer::Slabs(vec![0, 1]));
    for (address, bytes) in [(SLAB_BYTES - 1, 2), (2 * SLAB_BYTES, 1), (u64::MAX, 1), (u64::MAX - 4096, 4096)] {
        assert_eq!(client.read(address, bytes), Answer::Refused(Refusal::Range), "{address}");
        assert_eq!(client.write(address, &vec![1; bytes as usize]), Answer::Refused(Refusal::Range), "{address}");
    }
    assert_eq!(client.write(SLAB_BYTES - 3, &[7; 3]), Answer::Done);
    assert_eq!(client.read(SLAB_BYTES - 3, 3), Answer::Data(vec![7; 3]));
    // The second range is damaged: the first is not written either.
    let whole = Range { address: 0, bytes: 4, checksum: checksum(0, &[5; 4]) };
    let damaged = Range { address: 4, bytes: 4, checksum: 1 };
    let write = |into: &mut Vec<u8>, number| {
        Request::write(into, number, Priority::WriteBack, [whole, damaged].into_iter());
    };
    assert_eq!(client.ask(write, &[5; 8]), Answer::Refused(Refusal::Damaged));
    assert_eq!(client.read(0, 8), Answer::Data(vec![0; 8]));
    let back = |numbers: &'static [u32]| move |into: &mut Vec<u8>, number| Request::give_back(into, number, numbers);
    assert_eq!(client.ask(back(&[0, 7]), &[]), Answer::Refused(Refusal::Range));
    assert_eq!(client.ask(back(&[0, 0, 0]), &[]), Answer::Done);
    assert_eq!(client.read(0, 1), Answer::Refused(Refusal::Range));
    assert_eq!(client.read(SLAB_BYTES - 3 + SLAB_BYTES, 3), Answer::Data(vec![0; 3]));
}

/// Whole pages, parts of them and what lies across them, written and read in any mixture: data and checksums are right, whether an answer was
/// computed or kept, went alone or with others, at once or in parts because the client does not take it yet.
#[test]
fn what_is_read_has_its_checksum_however_it_was_written() {
    const PAGE: u64 = 4096;
    const BYTES: u64 = 2 * SLAB_BYTES;
    let node = start(Options::new(8 * SLAB_BYTES));
    let (mut client, _) = Client::open(&node, 0, 0);
    assert_eq!(client.lease(2), Answer::Slabs(vec![0, 1]));
    let mut rng = Rng(5);
    let mut model = vec![0u8; usize::try_from(BYTES).expect("small")];
    for step in 0..400 {
        for _ in 0..8 {
            let page = rng.below(BYTES / PAGE) * PAGE;
            let (offset, bytes) = match rng.below(4) {
                0 => (rng.below(PAGE), rng.below(PAGE)),
                1 => (0, PAGE / 2),
                _ => (0, PAGE),
            };
            let address = page + offset;
            let bytes = (bytes + 1).min(PAGE).min(SLAB_BYTES - address % SLAB_BYTES);
            let data = noise(rng.next_u64(), usize::try_from(bytes).expect("small"));
            assert_eq!(client.write(address, &data), Answer::Done);
            model[usize::try_from(address).expect("small")..][..data.len()].copy_from_slice(&data);
        }
        // Every 50th time more than connections hold.
        let requests: Vec<Vec<Range>> = (0..if step % 50 == 0 { 80 } else { 1 + rng.below(4) })
            .map(|_| {
                let whole = rng.below(2) == 0;
                let range = |_| {
                    let bytes = if whole { PAGE } else { 1 + rng.below(PAGE) };
                    let address = rng.below(BYTES / PAGE) * PAGE;
                    Range { address, bytes: u32::try_from(bytes).expect("small"), checksum: 0 }
                };
                (0..1 + step % 64).map(range).collect()
            })
            .collect();
        let mut asked = Vec::new();
        for ranges in &requests {
            client.number += 1;
            Request::read(&mut client.message, client.number, Priority::Prefetch, ranges.iter().copied());
            asked.extend_from_slice(&client.message);
        }
        client.stream.write_all(&asked).expect("sent");
        for ranges in &requests {
            let Some(Answer::Data(data)) = client.answer() else { panic!("no data") };
            let mut rest = &data[..];
            assert_eq!(client.sums.len(), ranges.len());
            for (range, sum) in ranges.iter().zip(&client.sums) {
                let (piece, behind) = rest.split_at(range.bytes as usize);
                rest = behind;
                let right = &model[usize::try_from(range.address).expect("small")..][..piece.len()];
                assert!(piece == right, "wrong bytes at {} in step {step}", range.address);
                assert_eq!(
                    *sum,
                    checksum(range.address, right),
                    "at {}, {} bytes, step {step}",
                    range.address,
                    piece.len()
                );
            }
        }
    }
}

#[test]
fn a_quota_holds_for_a_session_and_its_clones_together() {
    let node = start(Options { quota_bytes: 3 * SLAB_BYTES, ..Options::new(16 * SLAB_BYTES) });
    let (mut greedy, grant) = Client::open(&node, 100 * SLAB_BYTES, 0);
    assert_eq!(grant.quota_bytes, 3 * SLAB_BYTES);
    assert_eq!(greedy.lease(4), Answer::Refused(Refusal::Quota));
    assert_eq!(greedy.lease(2), Answer::Slabs(vec![0, 1]));
    assert_eq!(greedy.write(0, &[1; 10]), Answer::Done);
    let cloned = greedy.ask(|into, number| Request::plain(into, number, Kind::Clone), &[]);
    let Answer::Session(clone) = cloned else { panic!("{cloned:?}") };
    let mut child = Client::greeted(&node);
    let attach = |into: &mut Vec<u8>, number| Request::attach(into, number, clone.session, clone.token);
    assert!(matches!(child.ask(attach, &[]), Answer::Session(_)));
    assert_eq!(child.read(0, 10), Answer::Data(vec![1; 10]));
    // The copy of slab 0 is the third; there is no fourth for slab 1.
    assert_eq!(child.write(5, &[2; 1]), Answer::Done);
    assert_eq!(child.write(SLAB_BYTES, &[2; 1]), Answer::Refused(Refusal::Quota));
    assert_eq!(greedy.read(0, 10), Answer::Data(vec![1; 10]));
    assert_eq!(child.read(0, 10), Answer::Data(vec![1, 1, 1, 1, 1, 2, 1, 1, 1, 1]));
    let (mut other, _) = Client::open(&node, 0, 0);
    assert_eq!(other.lease(3), Answer::Slabs(vec![0, 1, 2]));
    drop(greedy);
    wait_until("what only the first held is free", || node.node().used_bytes() == 5 * SLAB_BYTES);
    assert_eq!(child.write(SLAB_BYTES, &[2; 1]), Answer::Done);
}

#[test]
fn a_draining_node_gives_nothing_out_and_keeps_what_it_has() {
    let node = start(Options::new(8 * SLAB_BYTES));
    let (mut client, _) = Client::open(&node, 0, 0);
    assert_eq!(client.lease(1), Answer::Slabs(vec![0]));
    let mut operator = Client::greeted(&node);
    assert_eq!(operator.ask(|into, number| Request::drain(into, number, true), &[]), Answer::Done);
    assert_eq!(client.lease(1), Answer::Refused(Refusal::Draining));
    assert_eq!(client.write(0, &[3; 3]), Answer::Done);
    let mut late = Client::greeted(&node);
    let open = |into: &mut Vec<u8>, number| Request::open(into, number, "late", 0, 0);
    assert_eq!(late.ask(open, &[]), Answer::Refused(Refusal::Draining));
    let figures = operator.ask(|into, number| Request::plain(into, number, Kind::Statistics), &[]);
    let Answer::Figures(row) = figures else { panic!("{figures:?}") };
    assert_eq!((row.draining, row.sessions, row.used_bytes, row.written_bytes), (1, 1, SLAB_BYTES, 3));
    assert_eq!(operator.ask(|into, number| Request::drain(into, number, false), &[]), Answer::Done);
    assert_eq!(client.lease(1), Answer::Slabs(vec![1]));
}

#[test]
fn a_node_may_go_when_every_session_says_so_and_nobody_who_is_silent() {
    let node = start(Options::new(8 * SLAB_BYTES));
    let mut operator = Client::greeted(&node);
    let mut copies = || operator.ask(|into, number| Request::plain(into, number, Kind::Copies), &[]);
    assert_eq!(copies(), Answer::Copies(true, 0, CopiesReport { spare: true, ..CopiesReport::default() }));
    let (mut one, _) = Client::open(&node, 0, 0);
    let (mut other, _) = Client::open(&node, 0, 0);
    assert!(matches!(copies(), Answer::Copies(false, 2, _)));
    let spare = |leases| CopiesReport { leases, pages: 7, spare: true, ..CopiesReport::default() };
    let says = |client: &mut Client, report: CopiesReport| {
        assert!(matches!(client.ask(|into, number| Request::report(into, number, &report), &[]), Answer::Recalled(_)));
    };
    says(&mut one, spare(0));
    assert!(matches!(copies(), Answer::Copies(false, 1, _)));
    says(&mut other, CopiesReport { last_pages: 3, spare: false, ..spare(0) });
    let said = copies();
    assert!(matches!(said, Answer::Copies(false, 0, CopiesReport { pages: 14, last_pages: 3, .. })), "{said:?}");
    says(&mut other, spare(0));
    assert!(matches!(copies(), Answer::Copies(true, 0, _)));
    // What is leased afterwards is not covered, nor by what was said before and comes later.
    assert_eq!(one.lease(1), Answer::Slabs(vec![0]));
    assert!(matches!(copies(), Answer::Copies(false, 1, _)));
    says(&mut one, spare(0));
    assert!(matches!(copies(), Answer::Copies(false, 1, _)));
    says(&mut one, spare(1));
    assert!(matches!(copies(), Answer::Copies(true, 0, _)));
    // A clone speaks for itself.
    let cloned = one.ask(|into, number| Request::plain(into, number, Kind::Clone), &[]);
    assert!(matches!(cloned, Answer::Session(_)));
    assert!(matches!(copies(), Answer::Copies(false, 1, _)));
}

#[test]
fn strangers_and_crowds_are_turned_away() {
    let node = start(Options { lanes_max: 3, ..Options::new(8 * SLAB_BYTES) });
    let mut stranger = Client::silent(&node);
    stranger.stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    assert_eq!(stranger.answer(), None);
    let mut future = Client::silent(&node);
    let hello = Hello { versions: (VERSION + 1, VERSION + 1), features: Features::ALL };
    future.stream.write_all(&hello.encode()).expect("sent");
    let mut welcome = [0; WELCOME_BYTES];
    future.stream.read_exact(&mut welcome).expect("a welcome");
    let welcome = Welcome::decode(&welcome).expect("a welcome");
    assert_eq!((welcome.outcome, welcome.versions), (Outcome::Version, (VERSION, VERSION)));
    wait_until("both are gone", || node.node().figures().lanes == 0);
    let crowd: Vec<(Client, Grant)> = (0..3).map(|_| Client::open(&node, 0, 0)).collect();
    let mut late = Client::silent(&node);
    late.stream.write_all(&Hello::ours().encode()).expect("sent");
    let mut welcome = [0; WELCOME_BYTES];
    late.stream.read_exact(&mut welcome).expect("a welcome");
    assert_eq!(Welcome::decode(&welcome).map(|welcome| welcome.outcome), Ok(Outcome::Busy));
    drop(crowd);
}

#[test]
fn a_lease_keeps_a_session_for_its_time_and_not_longer() {
    let node = start(Options::new(8 * SLAB_BYTES));
    // The longest lease that there is, and the shortest.
    let (long, short) = (u32::MAX, 1);
    for lease_ms in [long, short] {
        let (mut client, grant) = Client::open(&node, 0, lease_ms);
        assert_eq!(client.lease(1), Answer::Slabs(vec![0]));
        assert_eq!(client.write(0, &[9; 9]), Answer::Done);
        drop(client);
        let mut again = Client::greeted(&node);
        let attach = |into: &mut Vec<u8>, number| Request::attach(into, number, grant.session, grant.token);
        if lease_ms == long {
            assert!(matches!(again.ask(attach, &[]), Answer::Session(_)));
            assert_eq!(again.read(0, 9), Answer::Data(vec![9; 9]));
            assert_eq!(again.ask(|into, number| Request::plain(into, number, Kind::Close), &[]), Answer::Done);
        } else {
            wait_until("the lease ends", || node.node().used_bytes() == 0);
            assert_eq!(again.ask(attach, &[]), Answer::Refused(Refusal::NoSession));
        }
    }
}

#[test]
fn a_session_that_was_closed_serves_nobody_any_more() {
    let node = start(Options::new(8 * SLAB_BYTES));
    let (mut client, grant) = Client::open(&node, 0, 700);
    let mut second = Client::greeted(&node);
    let attach = |into: &mut Vec<u8>, number| Request::attach(into, number, grant.session, grant.token);
    assert!(matches!(second.ask(attach, &[]), Answer::Session(_)));
    assert_eq!(client.lease(2), Answer::Slabs(vec![0, 1]));
    assert_eq!(client.ask(|into, number| Request::plain(into, number, Kind::Close), &[]), Answer::Done);
    assert_eq!(node.node().used_bytes(), 0);
    for lane in [&mut client, &mut second] {
        let over = Answer::Refused(Refusal::NoSession);
        assert_eq!(lane.lease(1), over);
        assert_eq!(lane.write(0, &[1; 8]), over);
        assert_eq!(lane.read(0, 8), over);
        assert_eq!(lane.ask(|into, number| Request::plain(into, number, Kind::Clone), &[]), over);
        assert_eq!(lane.ask(|into, number| Request::plain(into, number, Kind::Close), &[]), Answer::Done);
    }
    assert_eq!((node.node().used_bytes(), node.node().figures().sessions), (0, 0));
}

/// Of a node's sessions a client has a quarter at most, however it makes them, and its clones cost next to nothing until they differ.
#[test]
fn nobody_takes_all_sessions() {
    let node = start(Options { sessions_max: 400, ..Options::new(64 * SLAB_BYTES) });
    let (mut greedy, _) = Client::open(&node, 0, 700);
    assert_eq!(greedy.lease(64), Answer::Slabs((0..64).collect()));
    let mut clone = |_| greedy.ask(|into, number| Request::plain(into, number, Kind::Clone), &[]);
    let clones = (0..200).map(&mut clone).take_while(|answer| matches!(answer, Answer::Session(_))).count();
    assert_eq!((clones, clone(0)), (99, Answer::Refused(Refusal::Busy)));
    assert_eq!(node.node().used_bytes(), 64 * SLAB_BYTES);
    let (_other, grant) = Client::open(&node, 0, 700);
    assert_eq!(node.node().figures().sessions, 101, "{grant:?}");
}

/// When all connections are used that sessions may have, an operator still gets in.
#[test]
fn connections_are_left_for_who_opens_no_session() {
    let node = start(Options { lanes_max: 128, ..Options::new(8 * SLAB_BYTES) });
    let mut crowd = Vec::new();
    loop {
        let mut client = Client::greeted(&node);
        let said = client.ask(|into, number| Request::open(into, number, "one of many", 0, 700), &[]);
        let is_in = matches!(said, Answer::Session(_));
        crowd.push(client);
        if !is_in {
            assert_eq!(said, Answer::Refused(Refusal::Busy));
            break;
        }
    }
    assert_eq!(crowd.len(), 127);
    let mut operator = Client::greeted(&node);
    let figures = operator.ask(|into, number| Request::plain(into, number, Kind::Statistics), &[]);
    assert!(matches!(figures, Answer::Figures(row) if row.sessions == 126));
    assert_eq!(operator.ask(|into, number| Request::drain(into, number, true), &[]), Answer::Done);
}

#[test]
fn only_loopback_addresses_are_listened_on() {
    let refused = |url: &str, bytes| {
        let endpoint = url.parse().expect("an endpoint");
        Listening::start(&endpoint, Options::new(bytes)).map(drop).expect_err(url).to_string()
    };
    assert!(refused("tcp://0.0.0.0:0", SLAB_BYTES).contains("ssh -N -L /run"));
    assert!(refused("tcp://localhost:0", SLAB_BYTES).contains("is a name"));
    assert!(refused("tcp://127.0.0.1:0", 4096).contains("at least 2M"));
    let node = start(Options::new(SLAB_BYTES));
    assert!(refused(&node.endpoint().to_string(), SLAB_BYTES).contains("cannot listen on"));
}
