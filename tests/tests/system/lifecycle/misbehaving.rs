//! Memory nodes that give wrong answers to a program that has no other node to ask: a clear end, and never a wrong byte. On the inline path
//! blocks are asked for around what the program waits for.

use super::nodes::{PATHS, Test, launch_with, trial};
use anyhow::Result;
use hinterland_testkit::proxy::{Mode, Proxy};
use hinterland_tests::launch::c_program;
use hinterland_tests::node::Node;
use hinterland_tests::suite::Trial;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        for (name, mode) in [
            ("other", Mode::Other),
            ("twice", Mode::Twice),
            ("cut", Mode::Cut),
            ("flip", Mode::Flip),
            ("lie", Mode::Lie),
        ] {
            let name = format!("lifecycle::misbehaving::{name}::{path}");
            add(name, Box::new(move |test| ends(test, path, mode)));
        }
    }
    trials
}

/// The program has checked its memory once when the node begins to misbehave, and checks it on and on.
fn ends(test: &str, path: &str, mode: Mode) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let proxy = Proxy::start(node.url.trim_start_matches("tcp://").parse()?);
    let (program, url) = (c_program("hold", &[])?.display().to_string(), proxy.url());
    let granularity = if path == "inline" { "both" } else { "page" };
    let flags = ["--fault-path", path, "--granularity", granularity, "--far", &url];
    let mut running = launch_with(test, &flags, &[&program, "64", "stay"])?.start()?;
    running.wait_for("ready")?;
    proxy.set(mode);
    let ended = running.end()?;
    let words = match mode {
        // Right by every checksum of the protocol: the pager's own tells, and cannot know who changed the page.
        Mode::Lie => vec!["came back changed from far memory (checksum mismatch)".to_owned()],
        _ => vec![format!("the memory node {url} is lost: "), format!("{url} holds a damaged page")],
    };
    ended.expect(125, "ready")?.expect_refusal(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    node.end()?;
    Ok(())
}
