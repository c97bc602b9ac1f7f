//! Certificates on both sides, from the command line to the pages: which clients are let in, and what both sides say of the others.

use super::nodes::{PATHS, Test, launch_with, trial};
use super::secured::key_file;
use anyhow::{Result, ensure};
use hinterland_testkit::HANG;
use hinterland_tests::authority::{Authority, EXPIRED, VALID};
use hinterland_tests::launch::c_program;
use hinterland_tests::node::Node;
use hinterland_tests::suite::Trial;
use hinterland_wire::{Hello, VERSION};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        add(format!("lifecycle::certificates::let_in::{path}"), Box::new(move |test| let_in(test, path)));
    }
    add("lifecycle::certificates::refusals".into(), Box::new(refusals));
    add("lifecycle::certificates::other_version".into(), Box::new(other_version));
    trials
}

/// A node with credentials.
fn node(test: &str, flags: &[&str]) -> Result<Node> {
    Node::start_with(test, "1G", &[&["--listen", "tcp://127.0.0.1:0"], flags].concat())
}

/// Each side trusts another authority, which is the other's.
fn let_in(test: &str, path: &str) -> Result<()> {
    let (ours, theirs) = (Authority::new(test, "nodes-ca")?, Authority::new(test, "clients-ca")?);
    let (own, client) = (ours.sign("node", VALID)?.tls, theirs.sign("client", VALID)?.tls);
    let node = node(test, &["--tls", &own, "--tls-ca", &theirs.ca()])?;
    let (hold, children) = (c_program("hold", &[])?, c_program("children", &[])?);
    let (hold, children) = (hold.display().to_string(), children.display().to_string());
    let (ca, cases) = (ours.ca(), [("hold", vec![&*hold, "64"], "done"), ("forks", vec![&*children, "forks"], "ok")]);
    let identity = ["--tls", &client, "--tls-ca", &ca];
    for (name, program, says) in cases {
        let far = node.patient_url();
        let flags = [&["--fault-path", path, "--far", &far], &identity[..]].concat();
        let ended = launch_with(&format!("{test}-{name}"), &flags, &program)?.run()?;
        ended.expect(0, says)?.expect_paging()?;
        let stats = ended.stats()?;
        ensure!(stats["backends"][0]["bytes_in"].as_u64() > Some(16 << 20), "hardly anything went there: {stats}");
    }
    node.told(test, "status", &identity)?.expect(0, "of 1 GiB leased")?;
    let ended = node.end()?;
    ensure!(!ended.stderr.contains("WARN"), "the node complains: {}", ended.stderr);
    Ok(())
}

/// The program's words stand on its standard error, the node's in its log, with the address of who was turned away.
fn refusals(test: &str) -> Result<()> {
    let (ca, other) = (Authority::new(test, "ca")?, Authority::new(test, "other")?);
    let [good, late] = [VALID, EXPIRED].map(|years| ca.sign(&format!("until-{}", years.1), years).map(|own| own.tls));
    let (good, late, stranger) = (good?, late?, other.sign("stranger", VALID)?.tls);
    let [key, other_key] = [1, 2].map(|byte| key_file(test, byte));
    let (key, other_key, ca) = (key?, other_key?, ca.ca());
    let of = |tls| ["--tls", tls, "--tls-ca", &ca].to_vec();
    let cases = [
        (
            "stranger",
            of(&*stranger),
            of(&*good),
            "it does not accept our certificate: no CA",
            "was not signed by the CA",
        ),
        ("late", of(&*late), of(&*good), "our certificate: it has expired", "its certificate has expired"),
        ("late-node", of(&*good), of(&*late), "its certificate has expired", "our certificate: it has expired"),
        (
            "key",
            vec!["--key-file", &*other_key],
            vec!["--key-file", &*key],
            "its key is not that of our --key-file",
            "its --key-file is another one",
        ),
    ];
    for (name, program, serves, by_program, by_node) in cases {
        let test = format!("{test}-{name}");
        let node = node(&test, &serves)?;
        let ended = launch_with(&test, &[&["--far", &node.url], &program[..]].concat(), &["true"])?.run()?;
        ended.expect(125, "")?.expect_refusal(&[by_program])?;
        ensure!(ended.stderr.contains(&node.url), "{name}: {} is not named in: {}", node.url, ended.stderr);
        let log = node.end()?.stderr;
        let said = |line: &str| line.contains("the client is not authenticated: ") && line.contains(by_node);
        let line = log.lines().find(|line| said(line));
        ensure!(line.is_some_and(|line| line.contains("127.0.0.1:")), "{name}: '{by_node}' is not in the log: {log}");
    }
    Ok(())
}

/// A client that speaks later versions only is answered with those of the node, and named in its log.
fn other_version(test: &str) -> Result<()> {
    let node = Node::start(test, "16M")?;
    let mut stream = TcpStream::connect(node.url.trim_start_matches("tcp://"))?;
    stream.set_read_timeout(Some(HANG))?;
    stream.write_all(&Hello { versions: (VERSION + 1, VERSION + 3), ..Hello::ours() }.encode())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let welcome =
        hinterland_wire::Welcome::decode(answer.first_chunk().unwrap_or(&[0; hinterland_wire::WELCOME_BYTES]));
    let refused = |welcome: &hinterland_wire::Welcome| {
        welcome.outcome == hinterland_wire::Outcome::Version && welcome.versions == (VERSION, VERSION)
    };
    ensure!(welcome.as_ref().is_ok_and(refused), "{welcome:?}");
    let (log, peer) = (node.end()?.stderr, stream.local_addr()?.to_string());
    let words = format!("no version in common: the client speaks {} to {}", VERSION + 1, VERSION + 3);
    ensure!(
        log.lines().any(|line| line.contains(&words) && line.contains(&peer)),
        "'{words}' is not in the log: {log}"
    );
    Ok(())
}
