//! Programs whose pages lie on several paths at once, and whose paths change while they run.

use super::nodes::{PATHS, Test, trial};
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, Running, c_program, launcher};
use hinterland_tests::node::Node;
use hinterland_tests::suite::{self, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        for placement in ["spread", "auto"] {
            let name = format!("lifecycle::paths::{placement}::{path}");
            add(name, Box::new(move |test| placed(test, path, placement)));
        }
        add(format!("lifecycle::paths::full::{path}"), Box::new(move |test| full(test, path)));
        add(format!("lifecycle::paths::changed::{path}"), Box::new(move |test| changed(test, path)));
        add(format!("lifecycle::paths::unnamed::{path}"), Box::new(move |test| unnamed(test, path)));
        add(format!("lifecycle::paths::changed_often::{path}"), Box::new(move |test| changed_often(test, path)));
        add(format!("lifecycle::paths::changed_tree::{path}"), Box::new(move |test| changed_tree(test, path)));
        add(format!("lifecycle::paths::obstacles::{path}"), Box::new(move |test| obstacles(test, path)));
    }
    trials
}

fn launch(test: &str, path: &str, placement: &str, far: &[&str], program: &[&str]) -> Result<Launch> {
    let mut arguments = vec!["--local", "16M", "--fault-path", path, "--placement", placement];
    far.iter().for_each(|url| arguments.extend(["--far", url]));
    Launch::new(test, &arguments, program)
}

/// Bytes that each backend has taken in.
fn bytes_in(ended: &Ended) -> Result<Vec<u64>> {
    let stats = ended.stats()?;
    let rows = stats["backends"].as_array().context("no backends")?;
    rows.iter().map(|row| row["bytes_in"].as_u64().with_context(|| format!("no figure in {row}"))).collect()
}

/// A program and its children have every page right, over a node, a file and compressed RAM at once.
fn placed(test: &str, path: &str, placement: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("children", &[])?.display().to_string();
    let far = [&node.patient_url(), "file:/tmp?size=1G", "compressed:256M"];
    let ended = launch(test, path, placement, &far, &[&program, "fork"])?.run()?;
    ended.expect(0, "child ok")?.expect_paging()?;
    let taken = bytes_in(&ended)?;
    ensure!(taken.len() == far.len() && taken.iter().all(|bytes| *bytes > 0), "{taken:?}");
    node.end()?;
    Ok(())
}

/// Paths that are full leave the others the rest, and the run ends when all are.
fn full(test: &str, path: &str) -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let far = ["compressed:8M", "file:/tmp?size=8M", "file:/tmp?size=1G"];
    launch(test, path, "spread", &far, &[&program, "96"])?.run()?.expect(0, "done")?.expect_paging()?;
    let ended = launch(&format!("{test}-all"), path, "spread", &far[..2], &[&program, "96"])?.run()?;
    ended.expect(125, "")?.expect_refusal(&["far memory is used up", "give more with --far or --local"])?;
    Ok(())
}

/// What `hinterland set` says of a change of a run's paths: its exit code, and its output.
pub(super) fn set(running: &Running, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = launcher()?;
    command.args(["set", &running.pid.to_string()]).args(arguments);
    let output = command.env("XDG_RUNTIME_DIR", running.directory.join("tmp")).stdin(Stdio::null()).output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
}

pub(super) fn expect_set(running: &Running, arguments: &[&str], code: i32, words: &str) -> Result<()> {
    let (found, said) = set(running, arguments)?;
    ensure!(
        found == Some(code) && said.contains(words),
        "{arguments:?}: {found:?} instead of {code}, '{words}': {said}"
    );
    Ok(())
}

/// Bytes that lie on each path of a run now, by URL.
pub(super) fn on_path(running: &Running, url: &str) -> Result<u64> {
    let mut command = launcher()?;
    command.args(["ps", "--json"]).env("XDG_RUNTIME_DIR", running.directory.join("tmp")).stdin(Stdio::null());
    let document: serde_json::Value = serde_json::from_slice(&command.output()?.stdout)?;
    let runs = document["runs"].as_array().context("no list")?;
    let run = runs.iter().find(|run| run["pid"] == running.pid.as_raw()).context("it is not listed")?;
    let paths = run["paths"].as_array().context("no paths")?;
    let found = paths.iter().filter(|path| path["url"].as_str().is_some_and(|other| other.starts_with(url)));
    Ok(found.filter_map(|path| path["far_bytes"].as_u64()).sum())
}

pub(super) fn started(test: &str, path: &str, far: &[&str], program: &[&str]) -> Result<Running> {
    let mut running = launch(test, path, "tiers", far, program)?.start()?;
    running.wait_for("ready")?;
    let socket = running.directory.join("tmp/hinterland").join(running.pid.to_string());
    suite::wait_until("a socket", || Ok(socket.exists()))?;
    Ok(running)
}

pub(super) fn terminated(running: Running) -> Result<()> {
    let program = *running.below().first().context("the program runs")?;
    kill(Pid::from_raw(program), Signal::SIGTERM)?;
    let ended = running.end()?;
    ended.expect(143, "ready")?.expect_paging()?;
    ensure!(!ended.stdout.contains("WRONG"), "{}", ended.stdout);
    Ok(())
}

/// A program that looks at its memory all the time has it moved from one path to another and back: not a byte is wrong.
fn changed(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let hold = c_program("hold", &[])?.display().to_string();
    let running = started(test, path, &["compressed:256M"], &[&hold, "96", "stay"])?;
    let new = ["--add-far", &node.patient_url(), "--drop-far", "compressed:256M", "--wait", "60"];
    expect_set(&running, &new, 0, "all processes have the new paths to far memory, and nothing on the old ones")?;
    ensure!(on_path(&running, "compressed")? == 0 && on_path(&running, &node.url)? > 40 << 20, "nothing has moved");
    ensure!(node.status()?["written_bytes"].as_u64() > Some(40 << 20), "hardly anything reached the node");
    let back = ["--add-far", "file:/tmp?size=1G", "--drop-far", &node.patient_url(), "--local", "24M", "--wait", "60"];
    expect_set(&running, &back, 0, "keep the local budget of 24 MiB, and have the new paths")?;
    ensure!(on_path(&running, &node.url)? == 0 && on_path(&running, "file")? > 40 << 20, "nothing has moved back");
    node.wait_until_free()?;
    // Nothing depends on the node any more.
    node.end()?;
    terminated(running)
}

/// However often the paths were changed, the one that has the pages is told.
fn changed_often(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let url = |turn: u32| format!("compressed:{}M", 256 + turn);
    let running = started(test, path, &[&url(0)], &[&hold, "48", "stay"])?;
    for turn in 1..=20 {
        let (old, new) = (url(turn - 1), url(turn));
        let change = ["--add-far", &new, "--drop-far", &old, "--wait", "60"];
        expect_set(&running, &change, 0, "all processes have the new paths to far memory")?;
        let (left, moved) = (on_path(&running, &old)?, on_path(&running, &new)?);
        ensure!(left == 0 && moved > 8 << 20, "change {turn}: {left} bytes on the old path, {moved} on the new one");
    }
    terminated(running)
}

/// Where the user has named no path, those of the start are known before a page has left, and stay known.
fn unnamed(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let running = started(test, path, &[], &[&hold, "2", "stay"])?;
    let new = "file:/tmp?size=64M";
    expect_set(&running, &["--add-far", new], 0, "all processes have the new paths")?;
    expect_set(&running, &["--drop-far", new], 0, "nothing on the old ones")?;
    expect_set(&running, &["--drop-far", new], 125, "there is no path 'file:/tmp?size=64M'; there are compressed:")?;
    let program = *running.below().first().context("the program runs")?;
    kill(Pid::from_raw(program), Signal::SIGTERM)?;
    running.end()?.expect(143, "ready")?;
    Ok(())
}

/// Children that hold pages of their own, and one that starts afterwards, have the new paths, too.
fn changed_tree(test: &str, path: &str) -> Result<()> {
    let program = c_program("children", &[])?.display().to_string();
    let far = ["compressed:256M", "file:/tmp?size=1G"];
    let running = launch(test, path, "spread", &far, &[&program, "forks"])?.start()?;
    let socket = running.directory.join("tmp/hinterland").join(running.pid.to_string());
    suite::wait_until("a socket", || Ok(socket.exists()))?;
    // In whatever moment of its life: the program may end before all have acknowledged.
    for _ in 0..4 {
        for arguments in [["--drop-far", far[0], "--wait", "5"], ["--add-far", far[0], "--wait", "5"]] {
            let _ = set(&running, &arguments)?;
        }
    }
    let ended = running.end()?;
    ended.expect(0, "ok")?;
    Ok(())
}

/// What cannot be done is said in words, and the program goes on.
fn obstacles(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let running = started(test, path, &["compressed:256M", "file:/tmp?size=8M"], &[&hold, "96", "stay"])?;
    let refused = |arguments: &[&str], words: &str| expect_set(&running, arguments, 125, words);
    refused(
        &["--drop-far", "unix:/none"],
        "there is no path 'unix:/none'; there are compressed:256M, file:/tmp?size=8M",
    )?;
    refused(&["--drop-far", "compressed:256M", "--drop-far", "file:/tmp?size=8M"], "is the only path to far memory")?;
    refused(&["--add-far", "floppy:a"], "there is no backend 'floppy'")?;
    refused(&["--add-far", "file:/nowhere/at/all"], "/nowhere/at/all cannot be used")?;
    // Nobody is there: the old path stays, and says so.
    let gone = ["--add-far", "unix:/nowhere/node.sock", "--drop-far", "compressed:256M", "--wait", "2"];
    expect_set(&running, &gone, 1, "unix:/nowhere/node.sock cannot be used")?;
    let undo = ["--drop-far", "unix:/nowhere/node.sock", "--add-far", "compressed:256M", "--wait", "10"];
    expect_set(&running, &undo, 0, "have the new paths")?;
    // Too small for what is there.
    let full = ["--drop-far", "compressed:256M", "--wait", "3"];
    expect_set(&running, &full, 1, "pages on compressed:256M have no other place: file:/tmp?size=8M is full")?;
    expect_set(&running, &["--add-far", "compressed:300M", "--wait", "60"], 0, "nothing on the old ones")?;
    terminated(running)
}
