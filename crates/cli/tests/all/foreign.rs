//! Text from elsewhere reaches no terminal, log or label as it is: a node's words, a client's name, a program's name, a file's.

use crate::launcher::{TIMEOUT, hinterland, output};
use crate::node::{ANYWHERE, Node};
use hinterland_wire::*;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;

/// Clears the screen, sets a title, turns the direction, begins a line, hides.
const HOSTILE: &str = "\x1b[2J\x1b]0;x\x07\u{202e}\u{9b}31m\nhinterland: all is well\r\u{200b}";
const SHOWN: &str = "\\u{1b}[2J\\u{1b}]0;x\\u{7}\\u{202e}\\u{9b}31m\\nhinterland: all is well\\r\\u{200b}";

/// Nothing but line breaks steers whoever reads it.
fn harmless(what: &str, text: &str) {
    let hidden = |c: char| c != '\n' && hinterland_units::is_hidden(c);
    assert!(!text.contains(hidden), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line == "hinterland: all is well"), "{what}: {text:?}");
}

#[test]
fn a_nodes_words_are_shown_escaped() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let refuse = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        stream.read_exact(&mut [0; HELLO_BYTES]).expect("a hello");
        stream.write_all(&Welcome::answer(&Hello::ours(), Features(0), 2 << 20, false).encode()).expect("sent");
        stream.read_exact(&mut [0; HEADER_BYTES]).expect("a request");
        let mut answer = Vec::new();
        Reply::refused(&mut answer, 1, Refusal::Order, (0, 0), HOSTILE);
        stream.write_all(&answer).expect("sent");
        // Until the client hangs up: what was not read would end the connection before the answer is heard.
        let _ = stream.read_to_end(&mut Vec::new());
    };
    // As often as it is asked.
    std::thread::spawn(move || listener.incoming().flatten().for_each(refuse));
    let (ended, _, stderr) =
        output(hinterland().args(["node", "status", "--insecure-loopback", &format!("tcp://{address}")]));
    harmless("stderr", &stderr);
    assert_eq!(ended.status.code(), Some(125));
    assert_eq!(stderr, format!("hinterland: the node tcp://{address} cannot be asked: {SHOWN}\n"));
}

#[test]
fn a_sessions_name_is_shown_escaped_in_answers_figures_and_log() {
    let name = &HOSTILE[..HOSTILE.floor_char_boundary(NAME_BYTES_MAX)];
    for format in ["text", "json"] {
        let node = Node::start(&[&ANYWHERE[..], &["--log-format", format]].concat(), None);
        let lane = node.session(name);
        let (_, metrics) = node.get("/metrics");
        assert!(metrics.contains("\\\\u{1b}[2J"), "{metrics}");
        harmless("metrics", &metrics);
        for arguments in
            [&["node", "status", "--insecure-loopback"][..], &["node", "status", "--insecure-loopback", "--json"]]
        {
            let (ended, stdout, _) = output(hinterland().args(arguments).arg(format!("tcp://{}", node.node)));
            assert!(ended.status.success());
            harmless("status", &stdout);
            if let Ok(json) = serde_json::from_str::<serde_json::Value>(&stdout) {
                assert_eq!(json["largest_sessions"][0]["name"], name, "whoever reads the JSON has the name");
            } else {
                assert!(stdout.contains("\\u{1b}[2J\\u{1b}]0;x"), "{stdout}");
            }
        }
        drop(lane);
        let log = node.end();
        harmless("log", &log);
        assert!(log.contains("session opened"), "{log}");
        if format == "json" {
            let events = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
            let names: Vec<_> = events.filter(|event| event["message"] == "session opened").collect();
            assert_eq!(names[0]["name"], name);
        }
    }
}

#[test]
fn names_of_programs_and_files_are_shown_escaped() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join(format!("a{HOSTILE}"));
    symlink("/bin/true", &program).unwrap();
    let (ended, _, stderr) = output(hinterland().args(["run", "--"]).arg(&program));
    assert!(ended.status.success(), "{stderr}");
    harmless("summary", &stderr);
    assert!(stderr.contains(SHOWN), "{stderr}");
    let stats = directory.path().join("stats.json");
    let (_, stdout, _) = output(hinterland().args(["run", "--quiet", "--stats", "-", "--"]).arg(&program));
    harmless("figures", &stdout);
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["program"], program.to_str().unwrap());
    fs::write(&stats, stdout).unwrap();
    let missing = directory.path().join(format!("none{HOSTILE}"));
    for arguments in [["explain", stats.to_str().unwrap()], ["trace", "show"], ["explain", missing.to_str().unwrap()]] {
        let (_, stdout, stderr) = output(hinterland().args(arguments));
        harmless(arguments[0], &(stdout + &stderr));
    }
}
