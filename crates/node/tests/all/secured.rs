//! Nodes and programs with credentials: the contract over TLS, and refused connections, with the messages on both
//! sides.

use hinterland_backend::{Backend, OpenOptions, Priority, open_with};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_testkit::contract::{fork_round, fuzz_threads, load, page_of, rows, store};
use hinterland_testkit::{HANG, patient, wait_until, wait_until_or};
use hinterland_tls::{ClientConnection, ClientCredentials, NodeCredentials, Sources};
use hinterland_units::PageBytes;
use hinterland_wire::{HEADER_BYTES, Header, Hello, Kind, Reply, Request, WELCOME_BYTES};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::StreamOwned;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

fn secret(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, bytes).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    path
}

fn key_file(directory: &Path, byte: u8) -> Sources {
    Sources::SharedKey(secret(directory, &format!("key-{byte}"), &[byte; 32]))
}

/// A CA, and whom it knows.
struct Authority<'a> {
    directory: &'a Path,
    name: &'a str,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    fn new(directory: &'a Path, name: &'a str) -> Authority<'a> {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("the CA of {name}"));
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a CA").pem();
        let authority = Authority { directory, name, issuer: Issuer::new(params, key) };
        std::fs::write(authority.ca(), pem).expect("a file");
        authority
    }

    fn ca(&self) -> PathBuf {
        self.directory.join(format!("{}-ca.pem", self.name))
    }

    /// Somebody at `host`, whose files are called `name`; `years`: when that is true.
    fn sign(&self, name: &str, host: &str, years: (i32, i32)) -> Sources {
        let key = KeyPair::generate().expect("a key");
        let path = secret(self.directory, &format!("{name}.key"), key.serialize_pem().as_bytes());
        Sources::Certificates { own: (self.certify(name, &key, host, years), path), ca: self.ca() }
    }

    fn certify(&self, name: &str, key: &KeyPair, host: &str, years: (i32, i32)) -> PathBuf {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = vec![SanType::IpAddress(host.parse().expect("an address"))];
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        let path = self.directory.join(format!("{name}.pem"));
        std::fs::write(&path, params.signed_by(key, &self.issuer).expect("signed").pem()).expect("a file");
        path
    }

    /// A second certificate for the key of `sources`.
    fn renew(&self, sources: &Sources, host: &str) -> Sources {
        let Sources::Certificates { own: (_, path), ca } = sources else { panic!("no certificate") };
        let key = KeyPair::from_pem(&std::fs::read_to_string(path).expect("a key")).expect("a key");
        let renewed = self.certify("renewed", &key, host, (2021, 2119));
        Sources::Certificates { own: (renewed, path.clone()), ca: ca.clone() }
    }
}

/// A CA and somebody called `host` whom it knows; `years`: when that is true.
fn certificates(directory: &Path, host: &str, years: (i32, i32)) -> Sources {
    Authority::new(directory, host).sign(host, host, years)
}

const VALID: (i32, i32) = (2020, 2120);

fn node(sources: Option<&Sources>) -> Listening {
    start(sources, Options::new(64 * SLAB_BYTES), None)
}

fn start(sources: Option<&Sources>, options: Options, operators: Option<&Path>) -> Listening {
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    let read = |sources| NodeCredentials::read(sources, operators).unwrap_or_else(|error| panic!("{error}"));
    let credentials = sources.map(read);
    Listening::start_with(&anywhere, options, credentials, true).expect("a node")
}

fn connect(url: &str, sources: Option<&Sources>) -> Result<Arc<dyn Backend>, String> {
    let credentials = sources.map(|sources| ClientCredentials::read(sources).unwrap_or_else(|error| panic!("{error}")));
    let options =
        OpenOptions { credentials, insecure_loopback: true, answer_limit: patient(), ..OpenOptions::default() };
    let opened = open_with(&[url.to_owned()], &options).map_err(|error| error.to_string())?;
    Ok(opened)
}

#[track_caller]
fn refused(node: &Listening, sources: Option<&Sources>, words: &str) {
    let url = node.endpoint().to_string();
    let error = connect(&url, sources).err().expect("not let in");
    assert!(error.contains(&url) && error.contains(words), "'{words}' is not in: {error}");
}

/// What a client with credentials says, message by message.
struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    number: u64,
    message: Vec<u8>,
}

impl Client {
    fn greeted(node: &Listening, sources: &Sources) -> Client {
        let credentials = ClientCredentials::read(sources).unwrap_or_else(|error| panic!("{error}"));
        let stream = TcpStream::connect(node.endpoint().address().expect("an address")).expect("a connection");
        stream.set_read_timeout(Some(HANG)).expect("a limit");
        let mut stream = StreamOwned::new(credentials.begin("127.0.0.1").expect("a name"), stream);
        stream.write_all(&Hello::ours().encode()).expect("sent");
        let mut welcome = [0; WELCOME_BYTES];
        stream.read_exact(&mut welcome).expect("a welcome");
        Client { stream, number: 0, message: Vec::new() }
    }

    /// The words of a refusal, and for a session its quota.
    fn ask(&mut self, write: impl FnOnce(&mut Vec<u8>, u64)) -> Result<u64, String> {
        self.number += 1;
        write(&mut self.message, self.number);
        self.stream.write_all(&self.message).expect("sent");
        let mut head = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut head).expect("an answer");
        let header = Header::decode(head.first_chunk().expect("a header")).expect("a header");
        head.resize(HEADER_BYTES + header.control_bytes, 0);
        self.stream.read_exact(&mut head[HEADER_BYTES..]).expect("a control part");
        let (header, control) = Header::decode_whole(&head).expect("undamaged");
        match Reply::decode(&header, control).expect("a reply") {
            Reply::Refused { words, .. } => Err(words.to_owned()),
            Reply::Session(grant) => Ok(grant.quota_bytes),
            _ => Ok(0),
        }
    }

    /// A client with a session, and its quota.
    fn open(node: &Listening, sources: &Sources) -> (Client, u64) {
        let mut client = Client::greeted(node, sources);
        let quota = client.ask(|into, number| Request::open(into, number, "a program", 0, 1000)).expect("let in");
        (client, quota)
    }

    fn lease(&mut self, slabs: u32) -> Result<u64, String> {
        self.ask(|into, number| Request::lease(into, number, slabs))
    }
}

/// Whoever shows the same certificate has one quota, in however many sessions; who shows another has its own.
#[test]
fn a_quota_is_the_certificates_and_not_the_sessions() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path(), "the-ca");
    let sign = |name| authority.sign(name, "127.0.0.1", VALID);
    let (ours, greedy, other) = (sign("node"), sign("greedy"), sign("other"));
    let options = Options { quota_bytes: 4 * SLAB_BYTES, ..Options::new(64 * SLAB_BYTES) };
    let node = start(Some(&ours), options, None);
    let (mut first, quota) = Client::open(&node, &greedy);
    assert_eq!(quota, 4 * SLAB_BYTES);
    first.lease(3).expect("room");
    // What is left beside the other session is what this one may have; a new certificate for the old key makes no difference.
    let (mut second, quota) = Client::open(&node, &authority.renew(&greedy, "127.0.0.1"));
    assert_eq!(quota, SLAB_BYTES);
    second.lease(1).expect("the last one");
    for client in [&mut first, &mut second] {
        let words = client.lease(1).expect_err("more than the quota");
        assert!(words.contains("the quota of 8 MiB is used up"), "{words}");
    }
    let (mut stranger, quota) = Client::open(&node, &other);
    assert_eq!(quota, 4 * SLAB_BYTES);
    stranger.lease(4).expect("its own quota");
    assert_eq!(node.node().used_bytes(), 8 * SLAB_BYTES);
    // With the key file nothing tells one program from another: each has a quota.
    let key = key_file(directory.path(), 1);
    let node = start(Some(&key), options, None);
    for (mut client, quota) in [Client::open(&node, &key), Client::open(&node, &key)] {
        assert_eq!(quota, 4 * SLAB_BYTES);
        client.lease(4).expect("its own quota");
    }
}

/// Programs cannot drain or resize a node that they use; the operators can, and who has a key file or needs none.
#[test]
fn only_operators_drain_and_resize() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path(), "the-ca");
    let sign = |name| authority.sign(name, "127.0.0.1", VALID);
    let (ours, operator, program) = (sign("node"), sign("operator"), sign("program"));
    let Sources::Certificates { own: (operators, _), .. } = &operator else { panic!() };
    let node = start(Some(&ours), Options::new(8 * SLAB_BYTES), Some(operators));
    let asked = |sources: &Sources| {
        let mut client = Client::greeted(&node, sources);
        let drained = client.ask(|into, number| Request::drain(into, number, true));
        let resized = client.ask(|into, number| Request::resize(into, number, 4 * SLAB_BYTES));
        let shown = client.ask(|into, number| Request::plain(into, number, Kind::Statistics));
        (drained, resized, shown)
    };
    let (drained, resized, shown) = asked(&program);
    for refused in [drained, resized] {
        let words = refused.expect_err("a program may not");
        assert!(words.contains("--operators"), "{words}");
    }
    assert_eq!(shown, Ok(0));
    let figures = node.node().figures();
    assert_eq!((figures.draining, figures.capacity_bytes, figures.refused), (0, 8 * SLAB_BYTES, 2));
    for may in [&operator, &ours] {
        assert_eq!(asked(may), (Ok(0), Ok(0), Ok(0)));
        let figures = node.node().figures();
        assert_eq!((figures.draining, figures.capacity_bytes), (1, 4 * SLAB_BYTES));
        node.node().drain(false);
        node.node().resize(8 * SLAB_BYTES);
    }
    // Not without being named.
    let strict = start(Some(&ours), Options::new(8 * SLAB_BYTES), None);
    assert!(Client::greeted(&strict, &operator).ask(|into, number| Request::drain(into, number, true)).is_err());
    let key = key_file(directory.path(), 1);
    let keyed = start(Some(&key), Options::new(8 * SLAB_BYTES), None);
    assert_eq!(Client::greeted(&keyed, &key).ask(|into, number| Request::drain(into, number, true)), Ok(0));
    let error = NodeCredentials::read(&key, Some(operators)).expect_err("no certificates");
    assert!(error.to_string().contains("--operators"), "{error}");
}

#[test]
fn pages_come_back_over_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    for sources in [key_file(directory.path(), 1), certificates(directory.path(), "127.0.0.1", VALID)] {
        let node = node(Some(&sources));
        let backend = connect(&node.endpoint().to_string(), Some(&sources)).unwrap_or_else(|error| panic!("{error}"));
        fuzz_threads(&*backend, 5, 4, 200, 500);
        // More than a message, and more than is encrypted at once.
        let pages: Vec<PageBytes> = (0..1000).map(page_of).collect();
        let at: Vec<_> = store(&*backend, &pages).into_iter().map(|answer| answer.expect("room")).collect();
        for priority in [Priority::Demand, Priority::Prefetch, Priority::WriteBack] {
            for (index, loaded) in load(&*backend, &at, priority).into_iter().enumerate() {
                assert!(loaded.expect("stored") == pages[index], "page {index}");
            }
        }
    }
}

#[test]
fn forked_processes_connect_by_themselves() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = key_file(directory.path(), 1);
    let node = node(Some(&key));
    fork_round(&*connect(&node.endpoint().to_string(), Some(&key)).expect("a node"), 1, 2);
}

#[test]
fn whoever_has_other_credentials_is_turned_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let (key, other) = (key_file(path, 1), key_file(path, 2));
    let keyed = node(Some(&key));
    refused(&keyed, Some(&other), "--key-file");
    refused(&keyed, None, "it requires credentials; give --tls and --tls-ca, or the --key-file");
    let plain = node(None);
    refused(&plain, Some(&key), "perhaps it was started without --tls and --key-file");
    // Certificates of another CA, for another name, expired; and certificates where there is a key.
    let (here, elsewhere) = (certificates(path, "127.0.0.1", VALID), certificates(path, "127.0.0.2", VALID));
    let (old, ours) = (certificates(path, "127.0.0.3", (2020, 2021)), node(Some(&here)));
    refused(&ours, Some(&elsewhere), "was not signed by the CA");
    refused(&ours, None, "it requires credentials");
    refused(&node(Some(&elsewhere)), Some(&elsewhere), "for another name");
    refused(&node(Some(&old)), Some(&old), "has expired");
    refused(&keyed, Some(&here), "certificates");
    // The client finds nothing wrong with the node, and the node something with the client.
    let (Sources::Certificates { own, .. }, Sources::Certificates { ca, .. }) = (&elsewhere, &here) else { panic!() };
    let stranger = Sources::Certificates { own: own.clone(), ca: ca.clone() };
    refused(&ours, Some(&stranger), "it does not accept our certificate: no CA");
    assert_eq!(ours.node().figures().sessions, 0);
    assert!(connect(&ours.endpoint().to_string(), Some(&here)).is_ok(), "the right ones still get in");
}

/// Time that a node has for those who do not end a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_millis(400);

/// Clients that begin a handshake and never end it, or trickle, are gone after their time; others are served meanwhile.
#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = key_file(directory.path(), 1);
    let options = Options { handshake_limit: HANDSHAKE_LIMIT, ..Options::new(64 * SLAB_BYTES) };
    let node = start(Some(&key), options, None);
    let address = node.endpoint().address().expect("an address");
    let mut silent = TcpStream::connect(address).expect("a connection");
    let mut half = TcpStream::connect(address).expect("a connection");
    // A record that announces 16 KiB.
    half.write_all(&[0x16, 3, 1, 0x40, 0]).expect("sent");
    let mut trickling = half.try_clone().expect("a second handle");
    let trickle = std::thread::spawn(move || {
        while trickling.write_all(&[1]).is_ok() {
            std::thread::sleep(HANDSHAKE_LIMIT / 20);
        }
    });
    // However short the time for it is.
    wait_until("others are served", || {
        let backend = connect(&node.endpoint().to_string(), Some(&key));
        backend.is_ok_and(|backend| store(&*backend, &[page_of(1)])[0].is_ok())
    });
    let mut read = Vec::new();
    for stream in [&mut silent, &mut half] {
        stream.set_read_timeout(Some(HANG)).expect("a limit");
        // The end, however it is said.
        let ended = stream.read_to_end(&mut read);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    }
    drop((silent, half));
    trickle.join().expect("it ends");
}

/// Who says a hello without TLS bit by bit is given up when its time is over, also where nobody needs credentials.
#[test]
fn a_hello_that_trickles_is_not_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = key_file(directory.path(), 1);
    std::thread::scope(|scope| {
        let options = Options { handshake_limit: HANDSHAKE_LIMIT, ..Options::new(64 * SLAB_BYTES) };
        for node in [start(Some(&key), options, None), start(None, options, None)] {
            scope.spawn(move || {
                let address = node.endpoint().address().expect("an address");
                let mut stream = TcpStream::connect(address).expect("a connection");
                stream.set_read_timeout(Some(HANG)).expect("a limit");
                // Four times as long, and never a quarter of it without a byte.
                for byte in Hello::ours().encode() {
                    std::thread::sleep(HANDSHAKE_LIMIT / 8);
                    if stream.write_all(&[byte]).is_err() {
                        break;
                    }
                }
                let mut said = Vec::new();
                let ended = stream.read_to_end(&mut said);
                assert!(said.is_empty(), "it got an answer: {ended:?}, {said:?}");
            });
        }
    });
}

/// A hello of TLS 1.2 is answered with the alert that says so.
#[test]
fn older_versions_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = node(Some(&key_file(directory.path(), 1)));
    let mut stream = TcpStream::connect(node.endpoint().address().expect("an address")).expect("a connection");
    let mut hello = vec![0x16, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2f, 1, 0, 0, 0]);
    stream.write_all(&hello).expect("sent");
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).expect("an answer");
    assert_eq!((alert[0], alert[5]), (21, 2), "a fatal alert: {alert:?}");
}

#[test]
fn other_machines_are_let_in_with_credentials_only() {
    let everywhere = "tcp://0.0.0.0:0".parse().expect("an endpoint");
    let start = |credentials| Listening::start_with(&everywhere, Options::new(SLAB_BYTES), credentials, true);
    let error = start(None).err().expect("refused").to_string();
    assert!(error.contains("--key-file") && error.contains("ssh -N -L"), "{error}");
    let directory = tempfile::tempdir().expect("a directory");
    let key = key_file(directory.path(), 1);
    let node = start(Some(NodeCredentials::read(&key, None).expect("a key"))).expect("a node");
    let port = node.endpoint().address().expect("a TCP endpoint").port();
    assert!(connect(&format!("tcp://127.0.0.1:{port}"), Some(&key)).is_ok());
    // A name that somebody has resolved; the address of another machine, which is only refused without credentials.
    assert!(connect(&format!("tcp://localhost=127.0.0.1:{port}"), Some(&key)).is_ok());
    let error = connect("tcp://192.0.2.1:7440", None).err().expect("refused");
    assert!(error.contains("--key-file"), "{error}");
}

/// Stands before a node, whose answers it keeps while it is told to: it sees nothing of what they are.
struct Pausing {
    url: String,
    pauses: Arc<AtomicBool>,
}

impl Pausing {
    fn before(node: &Listening) -> Pausing {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("tcp://{}", listener.local_addr().expect("an address"));
        let (pauses, upstream) = (Arc::new(AtomicBool::new(false)), node.endpoint().address().expect("an address"));
        let paused = pauses.clone();
        std::thread::spawn(move || {
            for program in listener.incoming().flatten() {
                let Ok(node) = TcpStream::connect(upstream) else { return };
                [&program, &node].into_iter().for_each(|stream| stream.set_nodelay(true).expect("an option"));
                let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                let (from, to) = (clone(&program), clone(&node));
                std::thread::spawn(move || pass(from, to, &AtomicBool::new(false)));
                let paused = paused.clone();
                std::thread::spawn(move || pass(node, program, &paused));
            }
        });
        Pausing { url, pauses }
    }

    fn pause(&self, pauses: bool) {
        self.pauses.store(pauses, Relaxed);
    }
}

/// Passes bytes on until one side hangs up.
fn pass(mut from: TcpStream, mut to: TcpStream, paused: &AtomicBool) {
    let mut bytes = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while paused.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn a_page_that_is_late_comes_from_another_node_over_tls_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = key_file(directory.path(), 1);
    let nodes = [node(Some(&key)), node(Some(&key))];
    let pausing = nodes.each_ref().map(Pausing::before);
    let pool = format!("{},{}?replicas=2", pausing[0].url, pausing[1].url);
    let pool = connect(&pool, Some(&key)).unwrap_or_else(|error| panic!("{error}"));
    let pages: Vec<PageBytes> = (0..500).map(page_of).collect();
    let at: Vec<_> = store(&*pool, &pages).into_iter().map(|answer| answer.expect("room")).collect();
    let check = |index: usize| {
        let loaded = load(&*pool, &at[index..=index], Priority::Demand).remove(0);
        assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == pages[index], "page {index}");
    };
    let hedged = || rows(&*pool).iter().map(|row| row.hedged_loads).sum::<u64>();
    for round in 0..6 {
        let before = hedged();
        // Which of them is asked is chance; none is asked as long as it owes an answer.
        wait_until_or(
            "a second node is asked",
            || format!("{:?}", rows(&*pool)),
            || {
                (0..pages.len()).for_each(check);
                std::thread::scope(|scope| {
                    pausing[round % 2].pause(true);
                    // Not until the loads have ended: where the other one is late, too, they wait for this one.
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(30));
                        pausing[round % 2].pause(false);
                    });
                    (0..20).for_each(check);
                });
                hedged() > before
            },
        );
    }
    (0..pages.len()).for_each(check);
    assert!(rows(&*pool).iter().all(|row| row.losses == 0), "{:?}", rows(&*pool));
}
