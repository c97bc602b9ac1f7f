//! Traces of all processes of a run, each in a file of its own: programs behind a shell, and children of a fork.

use anyhow::{Context, Result, ensure};
use hinterland_tape::{Head, Reference, Trace};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use std::path::{Path, PathBuf};

/// Where the far range begins.
const FAR: u64 = hinterland_tests::frozen::FAR.start;
const PAGE: u64 = 4096;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: &str, test: fn(&str) -> Result<()>| {
        let name = format!("lifecycle::traced_trees::{name}");
        trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || test(&name)));
    };
    add("behind_a_shell", behind_a_shell);
    add("forked", |name| forked(name, &[], 2048));
    add("forked_while_memory_is_scarce", |name| forked(name, &["--local", "16M"], 6144));
    add("refused", refused);
    trials
}

/// A trace of a folder.
struct Found {
    path: PathBuf,
    head: Head,
    references: Vec<Reference>,
    whole: bool,
}

/// Runs a program with traces in a new folder, and reads them.
fn trace(name: &str, options: &[&str], program: &[&str]) -> Result<(Ended, PathBuf, Vec<Found>)> {
    let folder = places::tests().join("lifecycle").join(format!("{}-traces", name.replace("::", "-")));
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let output = format!("{}/", folder.display());
    let ended = Launch::bare(name, &[&["trace", "-o", &output], options, &["--"], program].concat())?.run()?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        let trace = Trace::open(&bytes)?;
        let mut references = trace.references();
        let seen = references.by_ref().collect::<Result<Vec<_>, _>>()?;
        found.push(Found { head: trace.head().clone(), references: seen, whole: references.is_whole(), path });
    }
    Ok((ended, folder, found))
}

/// The pages of the `mapping`-th mapping that was printed the address of, from 0, in order, and whether they were first touches.
fn walked(ended: &Ended, mapping: usize, references: &[Reference], pages: u64) -> Result<Vec<(u64, bool)>> {
    let printed = ended.stdout.lines().filter_map(|line| line.strip_prefix("0x")).nth(mapping);
    let first = (u64::from_str_radix(printed.context("the program prints an address")?, 16)? - FAR) / PAGE;
    let inside = references.iter().filter_map(|reference| {
        let page = u64::from(reference.page).checked_sub(first).filter(|page| *page < pages)?;
        Some((page, reference.is_first))
    });
    Ok(inside.collect())
}

fn show(name: &str, path: &Path) -> Result<serde_json::Value> {
    let ended = Launch::bare(name, &["trace", "show", "--json", &path.display().to_string()])?.run()?;
    ended.expect(0, "")?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// Each program behind a shell has a trace, which says whose it is; a folder is listed, and names what can be planned from.
fn behind_a_shell(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let line = format!("{program} sequential 2048 2; {program} sequential 4096 1; exit 3");
    let (ended, folder, found) = trace(name, &["--microset", "64"], &["sh", "-c", &line])?;
    ended.expect(3, "done")?;
    let mut walks: Vec<&Found> = found.iter().filter(|found| found.head.program == program).collect();
    walks.sort_by_key(|found| found.head.process);
    ensure!(walks.len() == 2, "{} traces of walks: {}", walks.len(), ended.stderr);
    for (index, (pages, rounds)) in [(2048, 2), (4096, 1)].into_iter().enumerate() {
        let found = walks[index];
        let order: Vec<u64> = walked(&ended, index, &found.references, pages)?.iter().map(|(page, _)| *page).collect();
        let expected: Vec<u64> = (0..rounds).flat_map(|_| 0..pages).collect();
        ensure!(found.whole && order == expected, "{} references of {pages} pages", order.len());
        let Head { command, is_forked, .. } = &found.head;
        ensure!(*command == format!("{program} sequential {pages} {rounds}") && !is_forked, "{command}");
    }
    let [first, second] = [0, 1].map(|index| &walks[index].head);
    ensure!(first.process != second.process && first.parent == second.parent && first.parent > 1, "{first:?}");
    let listed = show(&format!("{name}-list"), &folder)?;
    ensure!(listed.as_array().map(Vec::len) == Some(found.len()), "{listed}");
    ensure!(listed[0]["pages"].as_u64() >= Some(4096) && listed[0]["process"] == second.process, "{}", listed[0]);
    let refusal = Launch::bare(&format!("{name}-sim"), &["sim", &folder.display().to_string()])?.run()?;
    ensure!(refusal.code == 125 && refusal.stderr.contains(&walks[1].path.display().to_string()), "{}", refusal.stderr);
    let one = ["tape", &walks[1].path.display().to_string(), "--local", "50%"];
    Launch::bare(&format!("{name}-one"), &one)?.run()?.expect(0, "slowdown")?;
    Ok(())
}

/// A forked child is recorded from the fork on, page by page, and what it reads and writes is its own.
fn forked(name: &str, options: &[&str], pages: u64) -> Result<()> {
    let program = c_program("forked_walk", &[])?.display().to_string();
    let options = [&["--microset", "64"], options].concat();
    let (ended, _, found) = trace(name, &options, &[&program, &pages.to_string()])?;
    ended.expect(0, "done")?;
    ensure!(found.len() == 2 && found.iter().all(|found| found.whole), "{} traces: {}", found.len(), ended.stderr);
    let child = found.iter().find(|found| found.head.is_forked).context("no trace of a child")?;
    let parent = found.iter().find(|found| !found.head.is_forked).context("no trace of the parent")?;
    ensure!(child.head.parent == parent.head.process && child.head.command == parent.head.command, "{:?}", child.head);
    let up: Vec<(u64, bool)> =
        (0..pages).map(|page| (page, true)).chain((0..pages).map(|page| (page, false))).collect();
    ensure!(walked(&ended, 0, &parent.references, pages)? == up, "the parent's order");
    let down: Vec<(u64, bool)> = (0..2).flat_map(|_| (0..pages).rev().map(|page| (page, false))).collect();
    let seen = walked(&ended, 0, &child.references, pages)?;
    let same = seen.iter().zip(&down).take_while(|(one, other)| one == other).count();
    ensure!(seen == down, "{} of {} references; from {same} on {:?}", seen.len(), down.len(), seen.get(same..same + 4));
    Ok(())
}

/// A folder with traces is left as it is, and one that cannot be made is named.
fn refused(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let walk = [program.as_str(), "sequential", "100", "1"];
    let (ended, folder, found) = trace(name, &[], &walk)?;
    ended.expect(7, "done")?;
    ensure!(found.len() == 1 && ended.stderr.contains("1 with "), "{}", ended.stderr);
    let folder = folder.display().to_string();
    let again = [&["trace", "-o", &folder, "--"], &walk[..]].concat();
    let refusal = Launch::bare(&format!("{name}-again"), &again)?.run()?;
    ensure!(refusal.code == 125 && refusal.stderr.contains("it has traces of another run"), "{}", refusal.stderr);
    let nowhere = [&["trace", "-o", "/nowhere/traces/", "--"], &walk[..]].concat();
    let refusal = Launch::bare(&format!("{name}-nowhere"), &nowhere)?.run()?;
    ensure!(refusal.code == 125 && refusal.stderr.contains("/nowhere/traces/: No such file"), "{}", refusal.stderr);
    Ok(())
}
