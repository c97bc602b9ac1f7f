//! Secrets are nowhere but in their files: not in what launcher, program and node say at their most talkative, nor in what everybody on
//! the machine can see of them.

use super::nodes::{PATHS, Test, launch_with, trial};
use anyhow::{Context, Result, ensure};
use hinterland_tests::authority::{Authority, VALID, write_secret};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::needles::Needles;
use hinterland_tests::node::Node;
use hinterland_tests::places;
use hinterland_tests::suite::{self, Trial};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    // Each path with one of the two formats of a node's log.
    for (path, format) in PATHS.into_iter().zip(["text", "json"]) {
        let names = ["key", "certificates"].map(|kind| format!("lifecycle::secrets::{kind}::{path}"));
        let [key, certificates] = names;
        add(key, Box::new(move |test| stays(test, path, format, &Identity::key(test)?)));
        add(certificates, Box::new(move |test| stays(test, path, format, &Identity::certificates(test)?)));
    }
    trials
}

/// How node and program prove who they are, and what nobody may see of it.
struct Identity {
    node: Vec<String>,
    program: Vec<String>,
    /// What is refused.
    stranger: Vec<String>,
    secrets: Vec<Needles>,
}

fn words(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

impl Identity {
    fn key(test: &str) -> Result<Identity> {
        let directory = places::emptied(places::tests().join("lifecycle").join(test.replace("::", "-") + "-keys"))?;
        let make = |name: &str| -> Result<(Vec<String>, Needles)> {
            let (mut secret, path) = ([0; 48], directory.join(name));
            fastrand::fill(&mut secret);
            write_secret(&path, &secret)?;
            Ok((words(&["--key-file", &path.display().to_string()]), Needles::of(name, &secret)))
        };
        let ((flags, secret), (stranger, other)) = (make("shared")?, make("another")?);
        Ok(Identity { node: flags.clone(), program: flags, stranger, secrets: vec![secret, other] })
    }

    fn certificates(test: &str) -> Result<Identity> {
        let (ca, other) = (Authority::new(test, "ca")?, Authority::new(test, "other")?);
        let mut secrets = Vec::new();
        let mut make = |authority: &Authority, name: &str| -> Result<Vec<String>> {
            let own = authority.sign(name, VALID)?;
            secrets.push(Needles::of(name, &own.key_der));
            Ok(words(&["--tls", &own.tls, "--tls-ca", &ca.ca()]))
        };
        let (node, program, stranger) = (make(&ca, "node")?, make(&ca, "program")?, make(&other, "stranger")?);
        Ok(Identity { node, program, stranger, secrets })
    }

    /// Demands that nothing of the secrets is in `bytes`.
    fn keeps_out_of(&self, what: &str, bytes: &[u8]) -> Result<()> {
        ensure!(!bytes.is_empty(), "{what}: there was nothing to look at");
        let found = self.secrets.iter().find_map(|secret| secret.find(bytes));
        found.map_or(Ok(()), |found| Err(anyhow::anyhow!("{what} has a secret ({found})")))
    }

    /// The same for all that everybody may see of a process.
    fn keeps_out_of_process(&self, what: &str, pid: i32) -> Result<()> {
        for file in ["cmdline", "environ"] {
            let path = format!("/proc/{pid}/{file}");
            let bytes = std::fs::read(&path).with_context(|| path.clone())?;
            self.keeps_out_of(&format!("{file} of the {what}"), &bytes)?;
        }
        Ok(())
    }

    /// The same for the files of a directory and those below; returns how many have something in them.
    fn keeps_out_of_files(&self, directory: &Path) -> Result<usize> {
        let mut looked_at = 0;
        for entry in std::fs::read_dir(directory)?.flatten() {
            if entry.file_type()?.is_dir() {
                looked_at += self.keeps_out_of_files(&entry.path())?;
                continue;
            }
            let bytes = std::fs::read(entry.path())?;
            if !bytes.is_empty() {
                self.keeps_out_of(&entry.path().display().to_string(), &bytes)?;
                looked_at += 1;
            }
        }
        Ok(looked_at)
    }
}

fn texts(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// What the node answers on the port for its figures.
pub fn metrics(node: &Node) -> Result<Vec<u8>> {
    let mut place = None;
    suite::wait_until("a place for figures", || {
        let said = std::fs::read_to_string(node.directory().join("stdout"))?;
        let found = said.split_once("figures at http://").and_then(|(_, rest)| rest.split_once("/metrics\n"));
        place = found.map(|(address, _)| address.to_owned());
        Ok(place.is_some())
    })?;
    let mut stream = TcpStream::connect(place.context("an address")?)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    Ok(answer)
}

fn stays(test: &str, path: &str, format: &str, identity: &Identity) -> Result<()> {
    let listen = ["node", "--capacity", "1G", "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let talkative = ["--verbose", "--log-format", format];
    let launch = Launch::bare(&format!("{test}-node"), &[&listen[..], &talkative, &texts(&identity.node)].concat())?;
    let node = Node::of(launch.with("RUST_LOG", "trace"))?;
    let program = c_program("hold", &[])?.display().to_string();
    let far = node.patient_url();
    let flags = ["--fault-path", path, "--far", &far, "--encrypt"];
    let with = |name: &str, own: &[String], program: &[&str]| {
        let launch = launch_with(&format!("{test}-{name}"), &[&flags, &texts(own)[..]].concat(), program)?;
        Ok::<Launch, anyhow::Error>(launch.with("RUST_LOG", "trace").with("RUST_BACKTRACE", "full"))
    };
    let mut running = with("run", &identity.program, &[&program, "64", "stay"])?.start()?;
    running.wait_for("ready")?;
    let below = running.below();
    ensure!(!below.is_empty(), "there is no program");
    identity.keeps_out_of_process("launcher", running.pid.as_raw())?;
    below.into_iter().try_for_each(|pid| identity.keeps_out_of_process("program", pid))?;
    identity.keeps_out_of_process("node", node.pid())?;
    identity.keeps_out_of("the node's figures", &metrics(&node)?)?;
    let status = node.told(test, "status", &[&["--json"], &texts(&identity.program)[..]].concat())?;
    // Who is refused is said why, and who the node is.
    let refused = with("stranger", &identity.stranger, &["true"])?.run()?;
    refused.expect(125, "")?.expect_refusal(&[&node.url])?;
    let directories = [running.directory.clone(), node.directory().to_owned()];
    running.signal(Signal::SIGTERM)?;
    let (ended, served) = (running.end()?, node.end()?);
    ensure!(ended.stats()?["backends"][0]["encrypted"] == true, "{}", ended.stats()?);
    let is_json = served.stderr.lines().all(|line| line.starts_with('{'));
    ensure!(is_json == (format == "json") && served.stderr.contains("is not authenticated"), "{}", served.stderr);
    for (what, Ended { stdout, stderr, .. }) in
        [("status", &status), ("the refused program", &refused), ("the program", &ended), ("the node", &served)]
    {
        identity.keeps_out_of(what, format!("{stdout}{stderr}").as_bytes())?;
    }
    // Statistics among them: standard output and error, stats.json; output and log.
    let [of_program, of_node] = directories.map(|directory| identity.keeps_out_of_files(&directory));
    ensure!(of_program? >= 2 && of_node? == 2, "there are files missing");
    Ok(())
}
