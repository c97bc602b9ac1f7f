//! What the pager decides in real programs, the simulator decides, too: the decision logs of six programs on both fault paths are replayed,
//! and those of one that gives hints, and every decision has the same bytes. What would be found if it were otherwise is shown on a log in which one number is changed.

use anyhow::{Context, Result, bail, ensure};
use hinterland_paging::{HEAD_BYTES, Log, Step, entry_bytes};
use hinterland_sim::{ReplayError, Replayed, replay};
use hinterland_tests::launch::Launch;
use hinterland_tests::suite::Trial;
use hinterland_tests::{MIB, Scenario, native, places, programs, skips, suite};
use hinterland_units::PageNo;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Programs, and the settings that each of them has beside the defaults; with `--full` each program has all of them.
const CASES: [(&str, &[&str]); 6] = [
    ("sort", &[]),
    ("zstd", &["--evict", "2q", "--prefetch", "leap", "--granularity", "both", "--block", "64K"]),
    ("cpp-nodes", &["--evict", "second-chance", "--prefetch", "next-n", "--granularity", "block"]),
    ("gcc", &["--evict", "fifo", "--prefetch", "streams", "--read-ahead", "256"]),
    ("cpython-objects", &["--prefetch-cache", "2M"]),
    ("sqlite", &["--far", "compressed:1G?delay_us=50", "--granularity", "auto"]),
];

const PATHS: [&str; 2] = ["monitor", "inline"];

/// Native peak to aim at, and what is local of it.
const SIZE_BYTES: u64 = 40 * MIB;
const LOCAL: &str = "16M";
/// Entries of the logs that are changed.
const CHANGED_ENTRIES: usize = 50_000;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let runs = CASES.iter().enumerate().flat_map(|(at, (name, _))| {
        let settings = if suite::full() { 0..CASES.len() } else { at..at + 1 };
        settings.flat_map(move |with| PATHS.map(|path| (*name, with, path)))
    });
    let replayed = runs.filter_map(|(name, with, path)| {
        let (scenario, settings) = (programs::named(name)?, CASES[with].1);
        let number = if suite::full() { format!("::{with}") } else { String::new() };
        let test = format!("lifecycle::decisions::{name}::{path}{number}");
        let obstacle = || obstacle(scenario);
        Some(suite::trial(test.clone(), obstacle, move || is_replayed(&test, scenario, path, settings)))
    });
    let hinted = PATHS.map(|path| {
        let test = format!("lifecycle::decisions::hints::{path}");
        suite::trial(test.clone(), || notes_nothing().or_else(skips::no_userfaultfd), move || hints_are(&test, path))
    });
    replayed.chain(hinted).collect()
}

fn notes_nothing() -> Option<String> {
    let is_shipped = !cfg!(debug_assertions) || std::env::var_os("HINTERLAND_TEST_BIN").is_some();
    is_shipped.then(|| "a build as it is shipped notes no decisions".to_owned())
}

fn obstacle(scenario: &Scenario) -> Option<String> {
    notes_nothing().or_else(|| skips::missing(scenario.needs)).or_else(skips::no_userfaultfd)
}

/// The decisions of a program are those of the simulator, and a change of them would be found.
fn is_replayed(test: &str, scenario: &Scenario, path: &str, settings: &[&str]) -> Result<()> {
    let place = native::prepare(scenario, SIZE_BYTES)?;
    let line = (scenario.command)(&place);
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let logs = recorded(test, &words, &line.env, path, settings)?;
    let mut all = Replayed::default();
    for log in &logs {
        all += replay(log)?;
    }
    println!("{test}: {all:?}");
    ensure!(all.victims > 1000 && all.steps > 50 && all.windows > 0 && all.batches > 0, "hardly anything: {all:?}");
    let by_blocks = settings.contains(&"--granularity");
    ensure!(by_blocks == (all.blocks + all.with_block > 10), "blocks: {all:?}");
    let log = logs.into_iter().max_by_key(|log| log.entries.len()).context("no log")?;
    are_found(&log, &changes())?;
    a_changed_constant_is_found(log)
}

/// Runs a program; the decision logs of its processes.
fn recorded(test: &str, words: &[&str], env: &[(&str, String)], path: &str, settings: &[&str]) -> Result<Vec<Log>> {
    let arguments = [&["--local", LOCAL, "--fault-path", path][..], settings].concat();
    let mut launch = Launch::new(test, &arguments, words)?;
    let folder = places::emptied(launch.directory.join("decisions"))?;
    for (name, value) in env {
        launch = launch.with(name, value);
    }
    let ended = launch.with("HINTERLAND_TEST_DECISIONS", &folder.to_string_lossy()).run()?;
    ensure!(ended.code == 0, "it ended with {}: {}", ended.code, ended.stderr);
    let logs = std::fs::read_dir(&folder)?.map(|file| read(&file?.path())).collect::<Result<Vec<_>>>()?;
    std::fs::remove_dir_all(folder)?;
    Ok(logs)
}

/// Reads a log. Its file is as large as it may become.
fn read(path: &Path) -> Result<Log> {
    let (mut file, mut head) = (File::open(path)?, [0; HEAD_BYTES]);
    file.read_exact(&mut head)?;
    let mut bytes = head.to_vec();
    file.take(entry_bytes(&head)?).read_to_end(&mut bytes)?;
    let log = Log::read(&bytes)?;
    ensure!(!log.is_full, "{} is full", path.display());
    Ok(log)
}

/// The decisions of a program that gives hints: pages named ahead of their use, by a place that loses, and behind it.
fn hints_are(test: &str, path: &str) -> Result<()> {
    let program = super::hints::program(&[])?;
    let mut all = Replayed::default();
    let changes: [(&str, Change); 2] = [
        ("a batch that is not fetched", |step| {
            let Step::Hinted { batch, .. } = step else { return false };
            batch.take().is_some()
        }),
        ("a page that was given up and stays", |step| {
            let Step::GivenUp { victims, .. } = step else { return false };
            victims.pop().is_some()
        }),
    ];
    let runs = [["walk", "1", "128"], ["useless", "1", "64"], ["evict", "2", "0"], ["evict", "2", "1"]];
    for [what, rounds, argument] in runs {
        let words = [&program, what, "8192", rounds, argument];
        for log in recorded(test, &words, &[], path, &["--far", super::hints::LINK])? {
            all += replay(&log)?;
            are_found(&log, &changes[usize::from(what == "evict")..][..1])?;
        }
    }
    println!("{test}: {all:?}");
    ensure!(all.hinted > 100 && all.given_up > 1000 && all.waited > 50, "hardly anything: {all:?}");
    Ok(())
}

/// Changes an entry, if it is one of those.
type Change = fn(&mut Step) -> bool;

/// Another policy, other windows, an answer and decisions that were not given: each is found in the replay.
fn changes() -> [(&'static str, Change); 5] {
    [
        ("another eviction policy", |step| {
            let Step::Begins { with } = step else { return false };
            with.eviction = if with.eviction == "fifo" { "second-chance" } else { "fifo" }.into();
            true
        }),
        ("windows of other sizes", |step| {
            let Step::Begins { with } = step else { return false };
            with.window_pages_max = Some(with.window_pages_max.map_or(4, |pages| pages / 8));
            true
        }),
        ("a claim that failed", |step| {
            let Step::Victims { answers, .. } = step else { return false };
            let granted = answers.iter_mut().find(|answer| **answer == 0);
            granted.map(|answer| *answer = 2).is_some()
        }),
        ("a victim that leaves otherwise", |step| {
            let Step::Leaves { by_copy, .. } = step else { return false };
            if by_copy.pop().is_none() {
                by_copy.push(PageNo(0));
            }
            true
        }),
        ("a victim more", |step| {
            let Step::Victims { victims, .. } = step else { return false };
            victims.extend(victims.first().copied());
            !victims.is_empty()
        }),
    ]
}

/// Changes of the beginning of a log are found in the replay.
fn are_found(log: &Log, changes: &[(&str, Change)]) -> Result<()> {
    let entries: Vec<_> = log.entries.iter().take(CHANGED_ENTRIES).cloned().collect();
    for (what, change) in changes {
        let mut changed = Log { entries: entries.clone(), ..*log };
        ensure!(changed.entries.iter_mut().any(|entry| change(&mut entry.step)), "{what}: there is no such entry");
        ensure!(matches!(replay(&changed), Err(ReplayError::Differs(_))), "{what}: not found");
    }
    Ok(())
}

/// The probation of `s3-fifo` is a tenth of the pages for which it is shaped: it is an eighth smaller, and nothing else is changed.
fn a_changed_constant_is_found(mut log: Log) -> Result<()> {
    let Some(Step::Begins { with }) = log.entries.first().map(|entry| &entry.step) else { bail!("no beginning") };
    if with.eviction != "s3-fifo" {
        return Ok(());
    }
    for entry in &mut log.entries {
        if let Step::Resized { pages } = &mut entry.step {
            *pages -= *pages / 8;
        }
    }
    ensure!(matches!(replay(&log), Err(ReplayError::Differs(_))), "a smaller probation: not found");
    Ok(())
}
