//! Nodes on UNIX sockets: which users may connect, which sockets are replaced, what is left behind, and pools with
//! nodes of both kinds.
//!
//! A program of their own: the child of a test that forks would hold their listening sockets.

use hinterland_backend::{Location, Priority, StoreError, open};
use hinterland_node::{Listening, NodeError, Options, SLAB_BYTES};
use hinterland_testkit::contract::{fuzz, load, page_of, rows, store};
use hinterland_units::PageBytes;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// A directory of its own for a test; gone with the value.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("hinterland-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a directory");
        Directory(path)
    }

    fn url(&self, name: &str) -> String {
        format!("unix:{}", self.0.join(name).display())
    }

    fn start(&self, name: &str) -> Result<Listening, NodeError> {
        Listening::start(&self.url(name).parse().expect("an endpoint"), Options::new(64 * SLAB_BYTES))
    }

    fn refusal(&self, name: &str) -> String {
        self.start(name).err().map(|error| error.to_string()).expect("refused")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn only_the_same_user_may_connect_and_the_socket_goes_with_the_node() {
    let directory = Directory::new("owner");
    let node = directory.start("node").expect("a node");
    assert_eq!(node.endpoint().to_string(), directory.url("node"));
    let file = fs::symlink_metadata(directory.0.join("node")).expect("a socket");
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let refused = directory.refusal("node");
    assert!(
        refused.contains("cannot listen on unix:/") && refused.contains("another process listens there"),
        "{refused}"
    );
    node.stop();
    assert!(!directory.0.join("node").exists());
    // One that is another's by now stays.
    let node = directory.start("node").expect("a node");
    fs::remove_file(directory.0.join("node")).expect("removed");
    let other = UnixListener::bind(directory.0.join("node")).expect("another");
    node.stop();
    assert!(directory.0.join("node").exists());
    drop(other);
}

#[test]
fn a_socket_without_a_node_is_replaced_and_nothing_else_is() {
    let directory = Directory::new("stale");
    drop(UnixListener::bind(directory.0.join("node")).expect("a socket that nobody listens on"));
    let node = directory.start("node").expect("a node in its place");
    UnixStream::connect(directory.0.join("node")).expect("a connection");
    drop(node);
    fs::write(directory.0.join("file"), "content").expect("a file");
    let refused = directory.refusal("file");
    assert!(refused.contains("it is no socket; it is left as it is"), "{refused}");
    assert_eq!(fs::read(directory.0.join("file")).expect("still there"), b"content");
    let refused = directory.refusal("missing/node");
    assert!(refused.contains("there is no directory") && refused.contains("make it first"), "{refused}");
}

#[test]
fn of_two_nodes_that_start_at_a_time_one_listens() {
    let directory = Directory::new("both");
    for _ in 0..20 {
        drop(UnixListener::bind(directory.0.join("node")).expect("a socket that nobody listens on"));
        let started: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| directory.start("node"))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(started.iter().filter(|started| started.is_ok()).count(), 1);
        UnixStream::connect(directory.0.join("node")).expect("the one that listens");
    }
}

#[test]
fn nobody_there_is_said_with_the_name() {
    let directory = Directory::new("nobody");
    let refused = |url: String| open(&[url]).err().map(|error| error.to_string()).expect("refused");
    let missing = refused(directory.url("node"));
    assert!(missing.contains(&directory.url("node")) && missing.contains("No such file"), "{missing}");
    drop(UnixListener::bind(directory.0.join("node")).expect("a socket that nobody listens on"));
    assert!(refused(directory.url("node")).contains("Connection refused"));
}

#[test]
fn a_pool_has_nodes_of_both_kinds() {
    let directory = Directory::new("mixed");
    let near = directory.start("near").expect("a node");
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    let far = Listening::start(&anywhere, Options::new(64 * SLAB_BYTES)).expect("a node");
    let pool = open(&[format!("{},{}?replicas=2", near.endpoint(), far.endpoint())]).expect("a pool");
    assert!(fuzz(&*pool, 1, 400, usize::MAX) == 0, "something was refused");
    let pages: Vec<PageBytes> = (0..1000).map(page_of).collect();
    let at: Vec<Location> =
        store(&*pool, &pages).into_iter().map(|answer| answer.unwrap_or_else(|error| panic!("{error}"))).collect();
    assert!(rows(&*pool).iter().all(|row| row.pages == 1000), "{:?}", rows(&*pool));
    near.stop();
    for (index, loaded) in load(&*pool, &at, Priority::Demand).into_iter().enumerate() {
        assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == pages[index], "page {index}");
    }
    let answers = store(&*pool, &pages);
    assert!(answers.iter().all(|answer| !matches!(answer, Err(StoreError::Lost { .. }))), "one node is left");
}
