//! The node as operators meet it: figures for Prometheus, health, readiness, the log, and the files in `packaging/`.

use crate::launcher::{TIMEOUT, wait_until};
use hinterland_wire::*;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A node that is killed when the test ends.
pub struct Node {
    child: Child,
    /// `HOST:PORT` of both.
    pub node: String,
    metrics: String,
}

impl Node {
    pub fn start(arguments: &[&str], notify: Option<&std::path::Path>) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
        command.arg("node").args(arguments).env_remove("NOTIFY_SOCKET").env("HINTERLAND_INSECURE_LOOPBACK", "1");
        if let Some(socket) = notify {
            command.env("NOTIFY_SOCKET", socket);
        }
        Node::begin(command)
    }

    /// Starts one with figures, and reads where it listens.
    fn begin(mut command: Command) -> Node {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut next = |begin: &str| {
            let line = lines.next().unwrap_or_else(|| panic!("no '{begin}': {:?}", child.wait())).expect("text");
            line.strip_prefix(begin).unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let node = next("listening on ").split(',').next().expect("an address").replace("tcp://", "");
        let metrics = next("figures at http://").replace("/metrics", "");
        Node { child, node, metrics }
    }

    pub fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.metrics).expect("the address of the figures");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (head.to_owned(), body.to_owned())
    }

    /// Opens a session, and leaves its lane open.
    pub fn session(&self, name: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.node).expect("the node");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        stream.write_all(&Hello::ours().encode()).expect("sent");
        stream.read_exact(&mut [0; WELCOME_BYTES]).expect("a welcome");
        ask(&mut stream, |into| Request::open(into, 1, name, 0, 100), &[]);
        stream
    }

    /// A client that has said half of a request, in a session or without one; nothing: it was not let in.
    fn half(&self, joins: bool) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(&self.node).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a limit");
        stream.write_all(&Hello::ours().encode()).ok()?;
        stream.read_exact(&mut [0; WELCOME_BYTES]).ok()?;
        if joins {
            let mut message = Vec::new();
            Request::open(&mut message, 1, "half 1", 0, 100);
            stream.write_all(&message).ok()?;
            stream.read_exact(&mut [0; HEADER_BYTES]).ok()?;
        }
        // The node may have taken it for too many already.
        let _ = stream.write_all(&half_a_write(2));
        Some(stream)
    }

    /// Ends it in an orderly way; what it logged.
    pub fn end(mut self) -> String {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
        assert_eq!(self.child.wait().expect("its end").code(), Some(0));
        let mut log = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
        log
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(stream: &mut (impl Read + Write), write: impl FnOnce(&mut Vec<u8>), data: &[u8]) {
    let (header, _) = exchange(stream, write, data);
    assert_ne!(header.kind, Kind::Refused);
}

/// Makes a request; the answer's header, and what follows it.
fn exchange(stream: &mut (impl Read + Write), write: impl FnOnce(&mut Vec<u8>), data: &[u8]) -> (Header, Vec<u8>) {
    let mut message = Vec::new();
    write(&mut message);
    stream.write_all(&message).and_then(|()| stream.write_all(data)).expect("sent");
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).expect("an answer");
    let header = Header::decode(&head).expect("a header");
    let mut rest = vec![0; header.control_bytes + header.data_bytes];
    stream.read_exact(&mut rest).expect("the rest");
    (header, rest)
}

pub const ANYWHERE: [&str; 6] = ["--capacity", "64M", "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"];

/// The value of a sample, which must be there.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in:\n{text}")).parse().expect("a number")
}

#[test]
fn lending_more_than_there_is_gets_a_warning() {
    let log = |capacity| {
        Node::start(&["--listen", "tcp://127.0.0.1:0", "--capacity", capacity, "--metrics", "0"], None).end()
    };
    let (modest, immodest) = (log("16M"), log("1000T"));
    assert!(!modest.contains("more is lent than there is"), "{modest}");
    assert!(immodest.contains("more is lent than there is") && immodest.contains("lends=1000 TiB"), "{immodest}");
}

#[test]
fn figures_are_those_of_the_node_and_follow_the_conventions() {
    let node = Node::start(&ANYWHERE, None);
    let mut lane = node.session("first 1");
    ask(&mut lane, |into| Request::lease(into, 2, 3), &[]);
    let data = [7; 4096];
    let range = Range { address: 0, bytes: 4096, checksum: checksum(0, &data) };
    for number in 3..8 {
        ask(&mut lane, |into| Request::write(into, number, Priority::WriteBack, [range].into_iter()), &data);
    }
    ask(&mut lane, |into| Request::read(into, 8, Priority::Demand, [range, range].into_iter()), &[]);
    // A read that was answered from where its bytes lie is counted behind its answer.
    let counted = |text: &str| value(text, "hinterland_node_request_duration_seconds_count{kind=\"read\"}") > 0.0;
    let scraped = (0..200).map(|_| node.get("/metrics")).find(|(_, text)| counted(text));
    let (head, text) = scraped.expect("the read is counted");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    for (sample, is) in [
        ("hinterland_node_capacity_bytes", f64::from(64 << 20)),
        ("hinterland_node_used_bytes", f64::from(6 << 20)),
        ("hinterland_node_sessions", 1.0),
        ("hinterland_node_connections", 1.0),
        ("hinterland_node_draining", 0.0),
        ("hinterland_node_removable", 0.0),
        ("hinterland_node_unknown_sessions", 1.0),
        ("hinterland_node_lacking_pages", 0.0),
        ("hinterland_node_last_pages", 0.0),
        ("hinterland_node_copied_pages_per_second", 0.0),
        ("hinterland_node_reads_total", 2.0),
        ("hinterland_node_read_bytes_total", 8192.0),
        ("hinterland_node_writes_total", 5.0),
        ("hinterland_node_written_bytes_total", 5.0 * 4096.0),
        ("hinterland_node_refusals_total", 0.0),
        ("hinterland_node_request_duration_seconds_count{kind=\"read\"}", 1.0),
        ("hinterland_node_request_duration_seconds_bucket{le=\"+Inf\",kind=\"write\"}", 1.0),
        ("hinterland_node_session_held_bytes{session=\"1\",name=\"first 1\"}", f64::from(6 << 20)),
        ("hinterland_node_session_written_bytes_total{session=\"1\",name=\"first 1\"}", 5.0 * 4096.0),
    ] {
        assert_eq!(value(&text, sample), is, "{sample}");
    }
    assert!(value(&text, "hinterland_node_request_duration_seconds_sum{kind=\"write\"}") > 0.0);
    let described = |word: &str| -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix(word)?.split(' ').next()).collect()
    };
    let (typed, helped) = (described("# TYPE "), described("# HELP "));
    assert_eq!(typed, helped);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        assert!(typed.iter().any(|family| name.starts_with(family)), "{line} is not described");
        assert!(name.starts_with("hinterland_node_"), "{line}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(node.get("/healthz").1, "ok\n");
    assert!(node.get("/").0.starts_with("HTTP/1.1 404"));
    let mut operator = TcpStream::connect(&node.node).expect("the node");
    operator.write_all(&Hello::ours().encode()).expect("sent");
    operator.read_exact(&mut [0; WELCOME_BYTES]).expect("a welcome");
    ask(&mut operator, |into| Request::drain(into, 1, true), &[]);
    assert_eq!(node.get("/healthz").1, "draining\n");
}

/// What long messages need is given back when a connection is silent; it is there again for the next one.
#[test]
fn silent_connections_keep_little() {
    let node = Node::start(&["--capacity", "128M", "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"], None);
    let anonymous_kib = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", node.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    let before_kib = anonymous_kib();
    let data = vec![7; 256 << 10];
    let range = Range { address: 0, bytes: 256 << 10, checksum: checksum(0, &data) };
    let mut lanes: Vec<TcpStream> = (0..40).map(|number| node.session(&format!("lane {number}"))).collect();
    for lane in &mut lanes {
        ask(lane, |into| Request::lease(into, 2, 1), &[]);
        ask(lane, |into| Request::write(into, 3, Priority::WriteBack, [range].into_iter()), &data);
    }
    // Slabs hold the 256 KiB that each has written; a connection that kept the buffer of its message would hold as much again.
    let stored_kib = 40 * 256;
    wait_until("silent connections keep less than 64 KiB each", || anonymous_kib() < before_kib + stored_kib + 40 * 64);
    for lane in &mut lanes {
        ask(lane, |into| Request::write(into, 4, Priority::WriteBack, [range].into_iter()), &data);
    }
}

#[test]
fn of_many_sessions_some_are_told_apart_and_no_name_breaks_the_text() {
    let node = Node::start(&ANYWHERE, None);
    let lanes: Vec<TcpStream> = (0..40).map(|_| node.session("a\"} 1\nhinterland_node_used_bytes 2\\")).collect();
    let (_, text) = node.get("/metrics");
    assert_eq!(value(&text, "hinterland_node_sessions"), 40.0);
    let rows = text.lines().filter(|line| line.starts_with("hinterland_node_session_held_bytes{"));
    assert_eq!(rows.count(), 32);
    assert_eq!(text.lines().filter(|line| line.starts_with("hinterland_node_used_bytes ")).count(), 1);
    assert!(text.contains(r#"name="a\"} 1\\nhinterland_node_used_bytes 2\\"} "#), "{text}");
    drop(lanes);
}

#[test]
fn the_log_is_json_and_the_service_manager_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    let heard = || {
        let mut bytes = [0; 256];
        let count = manager.recv(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..count]).trim().to_owned()
    };
    let node = Node::start(&[&ANYWHERE[..], &["--log-format", "json", "--link", "10Gb/s"]].concat(), Some(&path));
    assert_eq!(heard(), "READY=1");
    drop(node.session("first 1"));
    let log = node.end();
    assert_eq!(heard(), "STOPPING=1");
    let events: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for message in ["listening", "session opened", "ending", "ended"] {
        assert!(events.iter().any(|event| event["message"] == message), "no '{message}' in {log}");
    }
    assert!(events.iter().all(|event| event["level"] == "INFO" && event["timestamp"].is_string()), "{log}");
}

#[test]
fn resize_and_drain_say_what_is_left_to_move() {
    let node = Node::start(&ANYWHERE, None);
    let url = format!("tcp://{}", node.node);
    let say = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
        let command = command.arg("node").args(arguments).arg("--insecure-loopback").output();
        let output = command.expect("the command");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let mut lane = node.session("first 1");
    ask(&mut lane, |into| Request::lease(into, 2, 4), &[]);
    assert_eq!(say(&["resize", &url, "128M"]), (Some(0), format!("{url} lends 128 MiB\n  nothing is to be moved\n")));
    assert_eq!(say(&["resize", &url, "5M"]), (Some(0), format!("{url} lends 4 MiB\n  4 MiB to move\n")));
    let (_, status) = say(&["status", &url]);
    assert!(status.contains("8 MiB of 4 MiB leased") && status.contains("over by 4 MiB"), "{status}");
    let (code, words) = say(&["resize", &url, "1M"]);
    assert!(code == Some(125) && words.contains("give at least 2M"), "{words}");
    let (_, words) = say(&["drain", &url]);
    assert!(words.ends_with("programs that use it go on\n  8 MiB to move\n"), "{words}");
    let (_, status) = say(&["status", &url]);
    assert!(status.contains("draining: 8 MiB to move"), "{status}");
    assert!(status.contains("safe to remove now: no: of 1 sessions it is not known"), "{status}");
    assert!(status.contains("no other node with room is known for the pages of first 1\n"), "{status}");
    // `--wait` goes on after what is to move, until the node is empty.
    let mut drain = Command::new(env!("CARGO_BIN_EXE_hinterland"));
    let mut drain = drain
        .args(["node", "drain", &url, "--wait", "--insecure-loopback"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command");
    let mut lines = BufReader::new(drain.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert_eq!(lines.by_ref().nth(1).as_deref(), Some("  8 MiB to move"));
    ask(&mut lane, |into| Request::give_back(into, 3, &[0, 1, 2, 3]), &[]);
    assert_eq!(lines.collect::<Vec<_>>(), ["  nothing is to be moved"]);
    assert_eq!(drain.wait().expect("its end").code(), Some(0));
    let (_, status) = say(&["status", &url]);
    assert!(status.contains("drained: it can be stopped") && status.contains("remove now: yes, unless"), "{status}");
}

#[test]
fn a_limit_on_the_length_of_files_costs_sharing_and_not_the_node() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("node");
    // Half a MiB, or one: the units are the shell's.
    let script = format!("ulimit -f 1024; exec \"$0\" node --capacity 64M --listen unix:{}", socket.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_hinterland")]).env_remove("NOTIFY_SOCKET");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    assert!(line.starts_with("listening on"), "{line}");
    let node = Node { child, node: socket.display().to_string(), metrics: String::new() };
    let mut lane = UnixStream::connect(&socket).expect("the node");
    lane.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    lane.write_all(&Hello::ours().encode()).expect("sent");
    lane.read_exact(&mut [0; WELCOME_BYTES]).expect("a welcome");
    ask(&mut lane, |into| Request::open(into, 1, "first 1", 0, 100), &[]);
    ask(&mut lane, |into| Request::lease(into, 2, 3), &[]);
    let data = [7; 4096];
    let address = 2 * hinterland_node::SLAB_BYTES - 4096;
    let range = Range { address, bytes: 4096, checksum: checksum(address, &data) };
    ask(&mut lane, |into| Request::write(into, 3, Priority::WriteBack, [range].into_iter()), &data);
    let (header, words) = exchange(&mut lane, |into| Request::share(into, 4, 1), &[]);
    let words = String::from_utf8_lossy(&words).into_owned();
    assert!(header.kind == Kind::Refused && words.contains("ulimit"), "{words}");
    let log = node.end();
    assert_eq!(log.matches("ulimit").count(), 1, "{log}");
}

#[test]
fn a_place_that_cannot_be_used_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    for (place, words) in [("nowhere", "write for example 127.0.0.1:9440"), (taken.as_str(), "cannot listen on")] {
        let arguments =
            ["node", "--capacity", "64M", "--listen", "tcp://127.0.0.1:0", "--insecure-loopback", "--metrics", place];
        let output = Command::new(env!("CARGO_BIN_EXE_hinterland")).args(arguments).output().expect("the command");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && said.contains("--metrics: ") && said.contains(words), "{said}");
    }
}

/// Certificates that nobody has signed are refused when they are read: so all three names have arrived.
#[test]
fn the_ca_of_the_clients_has_a_name_of_its_own_where_a_node_is_started() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_hinterland")).args(arguments).output().expect("the command");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let start = ["node", "--capacity", "64M", "--listen", "tcp://0.0.0.0:0", "--tls", "/none.pem,/none.key"];
    let taken = run(&[&start[..], &["--tls-ca", "/none-ca.pem"]].concat());
    assert!(taken.0 == Some(125) && taken.1.contains("/none.pem: No such file"), "{taken:?}");
    assert_eq!(run(&[&start[..], &["--clients", "/none-ca.pem"]].concat()), taken);
    let loopback = ["node", "--capacity", "64M", "--listen", "tcp://127.0.0.1:0", "--operators", "/ops.pem"];
    let nobody = run(&loopback);
    assert_eq!(nobody.0, Some(125));
    assert!(nobody.1.contains("--operators names certificates"), "{}", nobody.1);
    let twice = run(&[&start[..], &["--clients", "/a.pem", "--tls-ca", "/b.pem"]].concat());
    assert!(twice.0 == Some(125) && twice.1.contains("cannot be used with"), "{twice:?}");
    let alone = run(&["node", "--capacity", "64M", "--clients", "/none-ca.pem"]);
    assert!(alone.0 == Some(125) && alone.1.contains("give both"), "{alone:?}");
    let asking = run(&["node", "status", "--clients", "/none-ca.pem"]);
    assert!(asking.0 == Some(125) && asking.1.contains("--clients"), "{asking:?}");
}

/// A file of `packaging/`.
fn packaged(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines that the unit's comment tells to add for a node with a key.
fn with_key(unit: &str) -> String {
    unit.lines().filter_map(|line| line.strip_prefix("#   ")).map(|line| format!("{line}\n")).collect()
}

/// Writes a key that nobody else can read.
fn secret(path: &std::path::Path) {
    std::fs::write(path, [7; 32]).expect("written");
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("our own file");
}

/// Starts a node with these flags, but on free ports.
fn starts_with(flags: &[String]) {
    let directory = tempfile::tempdir().expect("a directory");
    let free = |flag: &String| match flag.as_str() {
        "unix:/run/hinterland/node.sock" => format!("unix:{}/node.sock", directory.path().display()),
        "tcp://0.0.0.0:7440" => "tcp://127.0.0.1:0".to_owned(),
        "127.0.0.1:9440" => "127.0.0.1:0".to_owned(),
        other => other.to_owned(),
    };
    let mut flags: Vec<String> = flags.iter().map(free).collect();
    if !flags.iter().any(|flag| flag == "--listen") {
        flags.extend(["--listen".into(), "tcp://127.0.0.1:0".into()]);
    }
    let node = Node::start(&flags.iter().map(String::as_str).collect::<Vec<_>>(), None);
    assert_eq!(node.get("/healthz").1, "ok\n");
}

#[test]
fn the_flags_of_the_service_and_the_container_are_real() {
    let unit = packaged("hinterland-node.service");
    let directory = tempfile::tempdir().expect("a directory");
    secret(&directory.path().join("far.key"));
    let credentials = directory.path().display().to_string();
    for text in [&unit, &with_key(&unit)] {
        let command =
            text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/hinterland node ")).expect("a command");
        let command = command.replace("${CAPACITY}", "64M").replace("%d", &credentials);
        starts_with(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
    }
    // A node drains before it ends; it must not be killed meanwhile.
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).expect("a time to stop");
    assert!(stop.parse::<u32>().expect("seconds") > 20, "{stop}");
    let container = packaged("Containerfile");
    let list = |word: &str| -> Vec<String> {
        let line = container.lines().find_map(|line| line.strip_prefix(word)).expect(word);
        serde_json::from_str(line).expect("a list")
    };
    let flags: Vec<String> = list("ENTRYPOINT ").into_iter().skip(2).chain(list("CMD ")).collect();
    starts_with(&flags);
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("hinterland-node.service");
    // `verify` looks for the command, too.
    let unit = packaged("hinterland-node.service").replace("/usr/bin/hinterland", env!("CARGO_BIN_EXE_hinterland"));
    std::fs::write(&path, &unit).expect("written");
    std::fs::write(path.with_extension("socket"), packaged("hinterland-node.socket")).expect("written");
    verify(&path);
    verify(&path.with_extension("socket"));
    let more = directory.path().join("hinterland-node.service.d");
    std::fs::create_dir(&more).expect("a directory");
    std::fs::write(more.join("key.conf"), with_key(&unit)).expect("written");
    verify(&path);
}

/// What systemd says of a unit, with what is added to it.
fn verify(path: &std::path::Path) {
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output() else {
        return eprintln!("skipped: systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("/hinterland-node."), "{said}");
}

#[test]
fn a_node_without_a_rate_of_its_link_says_that_replies_go_out_as_they_come() {
    let says = |more: &[&str]| {
        Node::start(&[&ANYWHERE[..], more].concat(), None).end().contains("--link RATE has them take turns")
    };
    assert!(says(&[]) && !says(&["--link", "10Gb/s"]));
}

#[test]
fn a_flood_of_clients_does_not_flood_the_log() {
    const CLIENTS: usize = 100;
    let node = Node::start(&ANYWHERE, None);
    let begun = Instant::now();
    let sessions: Vec<TcpStream> = (0..CLIENTS).map(|number| node.session(&format!("flood {number}"))).collect();
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("few") + 2;
    drop(sessions);
    let log = node.end();
    let opened = log.matches("session opened").count();
    assert!(opened <= 10 * seconds, "{opened} lines in {seconds} seconds: {log}");
    let counts = log.lines().filter(|line| line.contains("were left out of the log"));
    let left_out: usize =
        counts.map(|line| line.rsplit_once("count=").expect("a count").1.parse::<usize>().expect("a number")).sum();
    assert!(opened + left_out >= CLIENTS, "{opened} lines and {left_out} left out: {log}");
    assert!(log.contains("listening") && log.contains("ended"), "{log}");
}

/// Starts a node that a service manager hands these sockets over to, with descriptor 3 as the first.
fn handed_over(sockets: &[std::os::fd::RawFd], flags: &[&str]) -> Command {
    let (first, count) = (sockets[0], sockets.len());
    let script = format!("LISTEN_FDS={count} LISTEN_PID=$$ exec \"$0\" node --capacity 64M --metrics 0 \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_hinterland")]).args(flags).env_remove("NOTIFY_SOCKET");
    let pass = move || {
        // SAFETY: plain calls on descriptors that are open. The number is 3 already in some test: another one loses FD_CLOEXEC.
        let passed = unsafe { [3, 4].map(|number| libc::dup2(libc::fcntl(first, libc::F_DUPFD_CLOEXEC, 10), number)) };
        if passed == [3, 4] { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: these two calls are all that the child makes before it executes the shell.
    unsafe { command.pre_exec(pass) };
    command
}

#[test]
fn a_service_managers_socket_is_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("node.sock");
    let socket = UnixListener::bind(&path).expect("a socket");
    let node = Node::begin(handed_over(&[socket.as_raw_fd()], &[]));
    assert_eq!(node.node, format!("unix:{}", path.display()));
    let mut lane = UnixStream::connect(&path).expect("the node");
    lane.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    lane.write_all(&Hello::ours().encode()).expect("sent");
    lane.read_exact(&mut [0; WELCOME_BYTES]).expect("a welcome");
    ask(&mut lane, |into| Request::open(into, 1, "first 1", 0, 100), &[]);
    node.end();
    assert!(path.exists(), "the file is the service manager's");
    let refused = |sockets: &[std::os::fd::RawFd], words: &str| {
        let output = handed_over(sockets, &[]).output().expect("the command");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && said.contains(words), "{said}");
    };
    let (tcp, (one, _other)) = (TcpListener::bind("127.0.0.1:0").expect("a port"), UnixStream::pair().expect("a pair"));
    refused(&[tcp.as_raw_fd()], "--insecure-loopback");
    refused(&[one.as_raw_fd()], "it is no socket that takes connections");
    refused(&[socket.as_raw_fd(), socket.as_raw_fd()], "hands over 2 sockets");
}

#[test]
fn loopback_without_credentials_needs_the_users_word() {
    let said = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
        let output = command.args(arguments).env_remove("HINTERLAND_INSECURE_LOOPBACK").output().expect("the command");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in [
        &["node", "--capacity", "64M", "--listen", "tcp://127.0.0.1:0"][..],
        &["node", "status", "tcp://127.0.0.1:1"],
        &["node", "drain", "tcp://localhost:1"],
        &["node", "resize", "tcp://[::1]:1", "64M"],
        &["run", "--far", "tcp://127.0.0.1:1", "--", "true"],
    ] {
        let (code, words) = said(arguments);
        assert!(code == Some(125) && words.contains("any user of this machine can connect"), "{arguments:?}: {words}");
        assert!(words.contains("unix:/PATH") && words.contains("--insecure-loopback"), "{words}");
    }
    let (code, words) = said(&["node", "status", "tcp://127.0.0.1:1", "--insecure-loopback"]);
    assert!(code == Some(125) && words.contains("Connection refused"), "{words}");
    let (code, words) = said(&["node", "status", "tcp://192.0.2.1:1", "--insecure-loopback"]);
    assert!(code == Some(125) && words.contains("is not a loopback address"), "{words}");
}

/// Whoever may open a service manager's socket uses the node; only root and the node's own user drain and resize it.
#[test]
fn by_a_socket_only_the_nodes_user_and_root_operate() {
    if !nix::unistd::Uid::effective().is_root() {
        return eprintln!("skipped: needs root");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("node.sock");
    let socket = UnixListener::bind(&path).expect("a socket");
    let all = |path: &std::path::Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    all(&path, 0o666).and_then(|()| all(directory.path(), 0o755)).expect("our own files");
    let node = Node::begin(handed_over(&[socket.as_raw_fd()], &[]));
    let other = move || {
        // SAFETY: setresuid(2) itself changes the calling thread alone, and the thread ends here.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) }, 0);
        let mut lane = UnixStream::connect(&path).expect("the node");
        lane.write_all(&Hello::ours().encode()).expect("sent");
        lane.read_exact(&mut [0; WELCOME_BYTES]).expect("a welcome");
        let operate: [fn(&mut Vec<u8>); 2] =
            [|into| Request::drain(into, 1, true), |into| Request::resize(into, 2, 8 << 20)];
        for write in operate {
            let (header, words) = exchange(&mut lane, write, &[]);
            let words = String::from_utf8_lossy(&words).into_owned();
            assert!(header.kind == Kind::Refused && words.contains("by a socket, its user and root"), "{words}");
        }
        ask(&mut lane, |into| Request::open(into, 3, "first 1", 0, 100), &[]);
        ask(&mut lane, |into| Request::lease(into, 4, 1), &[]);
    };
    std::thread::spawn(other).join().expect("another user");
    assert!(node.end().contains("no operator asked for it"));
}

/// Who drained and resized a node stands in its log.
#[test]
fn the_log_says_who_drained_and_resized() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("unix:{}/node.sock", directory.path().display());
    let node = Node::start(&["--capacity", "64M", "--listen", &url, "--metrics", "0"], None);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
        let child = command.arg("node").args(arguments).stdout(Stdio::null()).spawn().expect("the command");
        let (process, output) = (child.id(), child.wait_with_output().expect("its end"));
        assert!(output.status.success());
        format!("by=process {process} of user {}", nix::unistd::Uid::effective())
    };
    let (drained, resized) = (run(&["drain", &url]), run(&["resize", &url, "32M"]));
    let log = node.end();
    for (words, by) in [("drain", drained), ("resized", resized)] {
        assert!(log.lines().any(|line| line.contains(words) && line.contains(&by)), "{words} {by}: {log}");
    }
}

/// The memory of a process, in bytes: what the kernel counts as resident.
fn resident_bytes(pid: u32) -> u64 {
    let status =
        procfs::process::Process::new(i32::try_from(pid).expect("a number")).and_then(|process| process.status());
    status.expect("a process of ours").vmrss.expect("a figure") << 10
}

/// A write of as much as a message holds, of which only half is sent.
fn half_a_write(number: u64) -> Vec<u8> {
    let data = vec![7; DATA_BYTES_MAX];
    let range = Range { address: 0, bytes: u32::try_from(data.len()).expect("small"), checksum: checksum(0, &data) };
    let mut message = Vec::new();
    Request::write(&mut message, number, Priority::WriteBack, [range].into_iter());
    message.extend_from_slice(&data);
    message.truncate(message.len() / 2);
    message
}

#[test]
fn crowds_with_half_requests_take_little_memory() {
    const CROWD: usize = 4096;
    const CAPACITY: u64 = 64 << 20;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    if most < 2 * CROWD as u64 {
        return eprintln!("skipped: needs {} descriptors (ulimit -Hn)", 2 * CROWD);
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("our own limit");
    let node = Node::start(&ANYWHERE, None);
    let mut honest = node.session("honest 1");
    ask(&mut honest, |into| Request::lease(into, 2, 32), &[]);
    let data = vec![7; DATA_BYTES_MAX];
    for (number, address) in (3..).zip((0..CAPACITY).step_by(DATA_BYTES_MAX)) {
        let range =
            Range { address, bytes: u32::try_from(data.len()).expect("small"), checksum: checksum(address, &data) };
        ask(&mut honest, |into| Request::write(into, number, Priority::WriteBack, [range].into_iter()), &data);
    }
    for joins in [false, true] {
        let (mut crowd, mut most) = (Vec::new(), 0);
        for number in 0..CROWD {
            crowd.extend(node.half(joins));
            if number % 64 == 0 || number + 1 == CROWD {
                most = most.max(resident_bytes(node.child.id()));
            }
        }
        assert!(most <= CAPACITY + (64 << 20), "{} MiB are resident", most >> 20);
        // Whoever is honest is served meanwhile, short requests and long ones.
        let number = if joins { 2_000 } else { 1_000 };
        let range = Range { address: 0, bytes: 4096, checksum: 0 };
        ask(&mut honest, |into| Request::read(into, number, Priority::Demand, [range].into_iter()), &[]);
        let range =
            Range { address: 0, bytes: u32::try_from(data.len()).expect("small"), checksum: checksum(0, &data) };
        ask(&mut honest, |into| Request::write(into, number + 1, Priority::WriteBack, [range].into_iter()), &data);
    }
}
