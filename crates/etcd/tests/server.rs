//! Against a real etcd server: it comes, goes and forgets.

use hinterland_etcd::{EtcdError, Member, Pool, Record, Registration, SessionRecord, Timing, Usage};
use hinterland_testkit::etcd::Etcd;
use hinterland_testkit::wait_until;
use hinterland_tls::Sources;
use hinterland_wire::Directory;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// After so long a test hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// A server in a directory of its own; `None`, and a word, where there is no etcd.
fn server(flags: impl FnOnce(&Path) -> Vec<String>) -> Option<(TempDir, Etcd)> {
    if Command::new("etcd").arg("--version").output().is_err() {
        println!("skipped: etcd is not installed (./dev setup)");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start(directory.path(), &flags(directory.path())).expect("a server");
    Some((directory, etcd))
}

fn directory(url: &str) -> Directory {
    url.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn open(url: &str, sources: Option<&Sources>) -> Pool {
    let mut pool = Pool::new(&directory(url), sources).unwrap_or_else(|error| panic!("{error}"));
    // Pauses that nobody needs to wait for.
    let soon = Duration::from_millis(50);
    pool.timing = Timing { word: soon, retry: soon, pause_min: soon, pause_max: soon, gathering: soon, ..pool.timing };
    pool
}

fn record(port: u16) -> Record {
    let sessions = vec![SessionRecord { name: "python3 77".into(), slabs: 3 }];
    let node = format!("tcp://127.0.0.1:{port}");
    let member = Member { node, capacity_bytes: 1 << 30, slab_bytes: 2 << 20, draining: false };
    Record { member, usage: Usage { used_bytes: 6 << 20, sessions } }
}

fn register(etcd: &Etcd, name: &str, port: u16) -> Registration {
    Registration::begin(open(&etcd.pool(name), None), move || record(port)).expect("a thread")
}

/// The ports of the nodes that are listed.
fn ports(nodes: &[Record]) -> Vec<u16> {
    nodes.iter().filter_map(|node| node.member.node.rsplit(':').next()?.parse().ok()).collect()
}

fn listed(pool: &Pool) -> Vec<Record> {
    pool.nodes().unwrap_or_else(|error| panic!("{error}")).nodes
}

/// Who follows a pool hears these lists.
fn follow(pool: Pool) -> Receiver<Vec<u16>> {
    let (say, heard) = channel();
    std::thread::spawn(move || pool.follow(|nodes| say.send(ports(nodes)).is_ok()));
    heard
}

/// Hears lists until one is `wanted`.
#[track_caller]
fn hear(heard: &Receiver<Vec<u16>>, wanted: &[u16]) {
    let begun = Instant::now();
    while let Ok(list) = heard.recv_timeout(LIMIT.saturating_sub(begun.elapsed())) {
        if list == wanted {
            return;
        }
    }
    panic!("nobody said {wanted:?}");
}

#[test]
fn nodes_are_listed_while_they_live_and_followers_hear_it() {
    let Some((_directory, etcd)) = server(|_| Vec::new()) else { return };
    let reader = open(&etcd.pool("pool"), None);
    assert_eq!(listed(&reader), []);
    let heard = follow(open(&etcd.pool("pool"), None));
    let first = register(&etcd, "pool", 1);
    hear(&heard, &[1]);
    // Its figures come after its name.
    wait_until("its figures", || listed(&reader) == [record(1)]);
    let second = register(&etcd, "pool", 2);
    // One of another pool is none of ours.
    let other = register(&etcd, "pool-2", 9);
    hear(&heard, &[1, 2]);
    first.end();
    assert_eq!(ports(&listed(&reader)), [2]);
    hear(&heard, &[2]);
    second.end();
    hear(&heard, &[]);
    other.end();
}

#[test]
fn what_a_node_says_of_itself_is_kept_true() {
    let Some((_directory, etcd)) = server(|_| Vec::new()) else { return };
    let used = Arc::new(AtomicU64::new(6 << 20));
    let now = used.clone();
    let say = move || {
        let mut record = record(1);
        record.usage.used_bytes = now.load(Relaxed);
        record
    };
    let registration = Registration::begin(open(&etcd.pool("pool"), None), say).expect("a thread");
    let reader = open(&etcd.pool("pool"), None);
    let is_listed_with = |bytes: u64| listed(&reader).iter().any(|node| node.usage.used_bytes == bytes);
    wait_until("the node is not listed", || is_listed_with(6 << 20));
    used.store(8 << 20, Relaxed);
    wait_until("its figures are old", || is_listed_with(8 << 20));
    registration.end();
}

#[test]
fn a_node_whose_key_was_removed_lists_itself_again() {
    let Some((_directory, etcd)) = server(|_| Vec::new()) else { return };
    let reader = open(&etcd.pool("pool"), None);
    let registration = register(&etcd, "pool", 1);
    wait_until("the node is listed", || listed(&reader) == [record(1)]);
    for _ in 0..2 {
        // The lease goes on, so nothing but a look at the list tells the node.
        etcd.remove_keys().expect("removed");
        wait_until("the node is listed again", || listed(&reader) == [record(1)]);
    }
    registration.end();
    assert_eq!(listed(&reader), []);
}

#[test]
fn a_server_that_was_away_has_the_nodes_again() {
    let Some((_directory, mut etcd)) = server(|_| Vec::new()) else { return };
    let reader = open(&etcd.pool("pool"), None);
    let heard = follow(open(&etcd.pool("pool"), None));
    let first = register(&etcd, "pool", 1);
    hear(&heard, &[1]);
    etcd.kill();
    // A node that begins meanwhile waits for it.
    let second = register(&etcd, "pool", 2);
    assert!(matches!(reader.nodes(), Err(EtcdError::Unreachable { .. })));
    etcd.start_again().expect("a server");
    hear(&heard, &[1, 2]);
    // One that has forgotten everything, too, with revisions from the beginning.
    etcd.kill();
    etcd.forget().expect("removed");
    etcd.start_again().expect("a server");
    wait_until("a node is missing", || reader.nodes().is_ok_and(|listing| ports(&listing.nodes) == [1, 2]));
    let third = register(&etcd, "pool", 3);
    hear(&heard, &[1, 2, 3]);
    [first, second, third].into_iter().for_each(Registration::end);
}

#[test]
fn of_several_servers_one_is_enough() {
    let Some((_directory, etcd)) = server(|_| Vec::new()) else { return };
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address");
    let both = open(&format!("etcd://{nobody},{}/pool", etcd.address()), None);
    let registration = register(&etcd, "pool", 1);
    wait_until("the node is not listed", || ports(&listed(&both)) == [1]);
    registration.end();
}

#[test]
fn what_is_no_etcd_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(Mutex::new(""));
    let said = answer.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(said.lock().expect("an answer").as_bytes());
        }
    });
    let reader = open(&format!("etcd://{address}/pool"), None);
    let head = "Connection: close\r\nContent-Length:";
    for (text, words) in [
        (format!("HTTP/1.1 404 Not Found\r\n{head} 3\r\n\r\nno\n"), "does not speak as etcd 3.4"),
        (format!("HTTP/1.1 200 OK\r\n{head} 3\r\n\r\nno\n"), "does not speak as etcd 3.4"),
        (format!("HTTP/1.1 401 Unauthorized\r\n{head} 17\r\n\r\n{{\"message\":\"who\"}}"), "refused: who"),
        ("\x15\x03\x01\0\x02\x02\x16".into(), "cannot be reached"),
        (String::new(), "cannot be reached"),
    ] {
        *answer.lock().expect("an answer") = text.clone().leak();
        let error = reader.nodes().expect_err("no list").to_string();
        assert!(error.contains(words) && error.contains(&address.to_string()), "{text:?}: {error}");
    }
}

/// A CA, and a certificate of it for this machine that is good for both sides: PEM files in `directory`.
fn certificates(directory: &Path) -> Sources {
    let write = |name: &str, text: String| -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        path
    };
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let ca = write("ca.pem", params.self_signed(&key).expect("a CA").pem());
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().expect("an address"))];
    let key = KeyPair::generate().expect("a key");
    let own = write("own.pem", params.signed_by(&key, &issuer).expect("signed").pem());
    Sources::Certificates { own: (own, write("own.key", key.serialize_pem())), ca }
}

#[test]
fn over_tls_both_sides_prove_who_they_are() {
    let others = tempfile::tempdir().expect("a directory");
    let stranger = certificates(others.path());
    let mut own = None;
    let flags = |directory: &Path| {
        own = Some(certificates(directory));
        let file = |name: &str| directory.join(name).display().to_string();
        let files = [("--cert-file", "own.pem"), ("--key-file", "own.key"), ("--trusted-ca-file", "ca.pem")];
        let flags = files.into_iter().flat_map(|(flag, name)| [flag.to_owned(), file(name)]);
        flags.chain(["--client-cert-auth".to_owned()]).collect()
    };
    let Some((_directory, etcd)) = server(flags) else { return };
    let url = etcd.pool("pool");
    let reader = open(&url, own.as_ref());
    let registration = Registration::begin(open(&url, own.as_ref()), || record(1)).expect("a thread");
    wait_until("the node is not listed", || ports(&listed(&reader)) == [1]);
    registration.end();
    assert!(matches!(open(&url, Some(&stranger)).nodes(), Err(EtcdError::Unreachable { .. })));
    // What takes the place of a stranger's files is read by the pool that there is.
    let renewed = open(&url, Some(&stranger));
    assert!(renewed.nodes().is_err());
    let (Some(from), Sources::Certificates { own: to, ca }) = (&own, &stranger) else { panic!("no certificates") };
    for (from, to) in from.paths().iter().zip([&to.0, &to.1, ca]) {
        std::fs::copy(from, to).expect("a file");
    }
    wait_until("the renewed certificates are not read", || renewed.nodes().is_ok());
    let key = Sources::SharedKey(others.path().join("own.key"));
    for sources in [None, Some(&key)] {
        let refused = Pool::new(&directory(&url), sources);
        assert!(matches!(refused, Err(EtcdError::NoCertificate(_))));
    }
}
