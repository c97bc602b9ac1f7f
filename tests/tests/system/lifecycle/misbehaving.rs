//! Memory nodes that give wrong answers to a program that has no other node to ask: a clear end, and never a wrong byte. On the inline path
//! blocks are asked for around what the program waits for. Once more with all that is between a page and its node: compressed pages, patches,
//! shares of the link. And while a switch of far memory to the node, or away from it, is under way.

use super::nodes::{PATHS, Test, launch_with, trial};
use super::paths::{expect_set, on_path, started};
use anyhow::{Context, Result, ensure};
use hinterland_testkit::proxy::{Mode, Proxy};
use hinterland_tests::launch::c_program;
use hinterland_tests::node::{Node, PATIENT};
use hinterland_tests::suite::{Trial, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What the pager says of a page that is right by every checksum of the protocol.
const CHANGED: &str = "came back changed from far memory (checksum mismatch)";

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
        for is_target in [true, false] {
            let side = if is_target { "to" } else { "from" };
            for (name, bad) in
                [("flip", Bad::Answers(Mode::Flip)), ("lie", Bad::Answers(Mode::Lie)), ("killed", Bad::Killed)]
            {
                let name = format!("lifecycle::misbehaving::switch_{side}_{name}::{path}");
                add(name, Box::new(move |test| switching(test, path, is_target, bad)));
            }
        }
    }
    trials
}

/// All that a link to a node can do for a page.
const ALL: &str = "&link-compression=on&sub-page=auto&share=auto";

/// With all of it, and no misbehaviour: fewer bytes are sent than pages have, and of some pages only what changed.
fn goes_well(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let (program, url) = (c_program("counters", &[])?.display().to_string(), format!("{}{ALL}", node.patient_url()));
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
    // None of these modes is silent.
    let far = format!("{url}{PATIENT}{options}");
    let flags = ["--fault-path", path, "--granularity", granularity, "--far", &far];
    let mut running = launch_with(test, &flags, &[&[file.as_str()][..], &program[1..]].concat())?.start()?;
    running.wait_for("ready")?;
    proxy.set(mode);
    let ended = running.end()?;
    let words = match mode {
        // Right by every checksum of the protocol: the pager's own tells, and cannot know who changed the page.
        Mode::Lie => vec![CHANGED.to_owned()],
        _ => vec![format!("the memory node {url} is lost: "), format!("{url} holds a damaged page")],
    };
    ended.expect(125, "ready")?.expect_refusal(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    node.end()?;
    Ok(())
}

/// How a node goes bad in the middle of a switch.
#[derive(Clone, Copy)]
enum Bad {
    Answers(Mode),
    Killed,
}

/// The program's pages are on their way to the node, or away from it, over a slow link when that goes bad, and the program checks them on and on.
fn switching(test: &str, path: &str, is_target: bool, bad: Bad) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let proxy = Proxy::start(node.url.trim_start_matches("tcp://").parse()?);
    // A row of figures is a node's, without what the URL says of its link.
    let (here, there) = ("compressed:256M", proxy.url());
    let slow = format!("{there}{PATIENT}&link=100us:400Mb/s");
    let (from, to, goal) = if is_target { (here, slow.as_str(), there.as_str()) } else { (slow.as_str(), here, here) };
    let program = c_program("hold", &[])?.display().to_string();
    let running = started(test, path, &[from], &[&program, "96", "stay"])?;
    expect_set(&running, &["--add-far", to], 0, "have the new paths")?;
    expect_set(&running, &["--drop-far", from, "--wait", "0"], 1, "")?;
    wait_until("a part of the pages at their new place", || Ok(on_path(&running, goal)? > 8 << 20))?;
    let lost = format!("the memory node {there}");
    let (words, node) = match bad {
        Bad::Answers(mode) => {
            proxy.set(mode);
            (vec![lost, format!("{there} holds a damaged page"), CHANGED.to_owned()], Some(node))
        }
        Bad::Killed => {
            node.kill()?;
            (vec![lost], None)
        }
    };
    if !is_target {
        // On a busy machine the last page may have left the node before; then the program goes on without it.
        wait_until("its end, or no page there", || {
            Ok(on_path(&running, &there).is_ok_and(|bytes| bytes > 0)).map(|left| !left)
        })?;
        running.below().first().map(|program| kill(Pid::from_raw(*program), Signal::SIGTERM));
    }
    let ended = running.end()?;
    ensure!(!ended.stdout.contains("WRONG"), "{}", ended.stdout);
    if is_target || ended.code != 143 {
        ended.expect(125, "ready")?.expect_refusal(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    node.map_or(Ok(()), |node| node.end().map(drop))
}
