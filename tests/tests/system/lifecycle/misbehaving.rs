//! Memory nodes that give wrong answers to a program that has no other node to ask: a clear end, and never a wrong byte. On the inline path
//! blocks are asked for around what the program waits for. Once more with all that is between a page and its node: compressed pages, patches,
//! shares of the link.

use super::nodes::{PATHS, Test, launch_with, trial};
use anyhow::{Context, Result, ensure};
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
            let plain = format!("lifecycle::misbehaving::{name}::{path}");
            let granularity = if path == "inline" { "both" } else { "page" };
            add(plain, Box::new(move |test| ends(test, path, mode, granularity, "", &["hold", "64", "stay"])));
            let with_all = format!("lifecycle::misbehaving::with_all::{name}::{path}");
            add(with_all, Box::new(move |test| ends(test, path, mode, "auto", ALL, &["counters", "64", "0"])));
        }
        add(format!("lifecycle::misbehaving::none::{path}"), Box::new(move |test| goes_well(test, path)));
    }
    trials
}

/// All that a link to a node can do for a page.
const ALL: &str = "?link-compression=on&sub-page=auto&share=auto";

/// With all of it, and no misbehaviour: fewer bytes are sent than pages have, and of some pages only what changed.
fn goes_well(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let (program, url) = (c_program("counters", &[])?.display().to_string(), format!("{}{ALL}", node.url));
    let flags = ["--fault-path", path, "--granularity", "auto", "--far", &url];
    let ended = launch_with(test, &flags, &[&program, "64", "4"])?.run()?;
    ended.expect(0, "done")?.expect_paging()?;
    let stats = ended.stats()?;
    let count = |value: &serde_json::Value, name: &str| value[name].as_u64().with_context(|| format!("no {name}"));
    let [written, patched] = [count(&stats, "evicted_dirty_pages")?, count(&stats, "patched_pages")?];
    let sent = count(&stats["backends"][0], "sent_bytes")?;
    // Half of each other page, and a word of some of the others.
    ensure!(patched > 1_000 && patched < written, "{patched} of {written} pages were patched");
    ensure!(
        sent > 0 && sent < (written - patched) * 4096 / 10 * 9,
        "{sent} bytes for {written} pages, {patched} patched"
    );
    node.end()?;
    Ok(())
}

/// The program has checked its memory once when the node begins to misbehave, and checks it on and on.
fn ends(test: &str, path: &str, mode: Mode, granularity: &str, options: &str, program: &[&str]) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let proxy = Proxy::start(node.url.trim_start_matches("tcp://").parse()?);
    let (file, url) = (c_program(program[0], &[])?.display().to_string(), proxy.url());
    let far = format!("{url}{options}");
    let flags = ["--fault-path", path, "--granularity", granularity, "--far", &far];
    let mut running = launch_with(test, &flags, &[&[file.as_str()][..], &program[1..]].concat())?.start()?;
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
