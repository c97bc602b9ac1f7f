//! Nodes that want to know who connects: a shared key on both sides, children too, and what is said to those without.

use super::nodes::{PATHS, Test, launch_with, trial};
use anyhow::{Result, ensure};
use hinterland_tests::launch::{Launch, c_program, launcher};
use hinterland_tests::node::Node;
use hinterland_tests::places;
use hinterland_tests::suite::Trial;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        add(format!("lifecycle::secured::key::{path}"), Box::new(move |test| key(test, path)));
    }
    add("lifecycle::secured::refusals".into(), Box::new(refusals));
    trials
}

/// A key file of the test's own.
pub fn key_file(test: &str, byte: u8) -> Result<String> {
    let name = format!("{}-key-{byte}", test.replace("::", "-"));
    let path = places::emptied(places::tests().join("lifecycle").join(name))?.join("key");
    std::fs::write(&path, [byte; 32])?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(path.display().to_string())
}

fn key(test: &str, path: &str) -> Result<()> {
    let key = key_file(test, 1)?;
    let node = Node::start_with(test, "1G", &["--listen", "tcp://127.0.0.1:0", "--key-file", &key])?;
    let (hold, children) = (c_program("hold", &[])?, c_program("children", &[])?);
    let (hold, children) = (hold.display().to_string(), children.display().to_string());
    let far = node.patient_url();
    let flags = ["--fault-path", path, "--far", &far, "--key-file", &key];
    let cases: [(&str, &[&str], &[&str]); 4] = [
        ("hold", &[&hold, "64"], &[]),
        ("fork", &[&children, "fork"], &[]),
        ("popen", &[&children, "popen"], &[]),
        ("encrypted", &[&children, "forks"], &["--encrypt"]),
    ];
    for (name, program, more) in cases {
        let ended = launch_with(&format!("{test}-{name}"), &[&flags, more].concat(), program)?.run()?;
        ended.expect(0, if name == "hold" { "done" } else { "ok" })?.expect_paging()?;
    }
    node.end()?;
    Ok(())
}

/// Who has no key, another one, or one that others can read; on both sides.
fn refusals(test: &str) -> Result<()> {
    let (key, other, open) = (key_file(test, 1)?, key_file(test, 2)?, key_file(test, 3)?);
    std::fs::set_permissions(&open, Permissions::from_mode(0o644))?;
    let node = Node::start_with(test, "64M", &["--listen", "tcp://127.0.0.1:0", "--key-file", &key])?;
    let plain = Node::start(&format!("{test}-plain"), "64M")?;
    let run = |name: &str, far: &str, flags: &[&str], words: &str| -> Result<()> {
        let flags = [&["--far", far], flags].concat();
        let ended = launch_with(&format!("{test}-{name}"), &flags, &["true"])?.run()?;
        ended.expect(125, "")?.expect_refusal(&[words])?;
        Ok(())
    };
    run("none", &node.url, &[], "it requires credentials; give --tls and --tls-ca, or the --key-file")?;
    run("other", &node.url, &["--key-file", &other], "its key is not that of our --key-file")?;
    run("open", &node.url, &["--key-file", &open], "others can read this secret; chmod 600")?;
    run("nothing", &node.url, &["--key-file", "/nonexistent"], "--key-file: /nonexistent: No such file")?;
    run("plain", &plain.url, &["--key-file", &key], "perhaps it was started without --tls and --key-file")?;
    run("half", &node.url, &["--tls", "a,b"], "give both")?;
    run("far", "tcp://192.0.2.1:7440", &[], "or a --key-file")?;
    let listen = ["node", "--capacity", "16M", "--listen", "tcp://127.0.0.1:0", "--key-file", &open];
    Launch::bare(&format!("{test}-listen"), &listen)?.run()?.expect(125, "")?.expect_refusal(&["chmod 600"])?;
    let asked: [(&[&str], i32, &str); 4] = [
        (&["node", "status", &node.url], 125, "it requires credentials"),
        (&["node", "status", &node.url, "--key-file", &other], 125, "its key is not that of our --key-file"),
        (&["node", "status", &node.url, "--key-file", &key], 0, "of 64 MiB leased"),
        (&["node", "drain", &node.url, "--key-file", &key], 0, "leases no more memory"),
    ];
    for (arguments, code, words) in asked {
        let output = launcher()?.args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code) && said.contains(words), "{arguments:?}: {said}");
    }
    node.end()?;
    plain.end()?;
    Ok(())
}
