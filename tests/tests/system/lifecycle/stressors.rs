//! stress-ng's stressors of memory, each of which verifies what it reads back, in the long form: they end as natively.

use anyhow::{Result, ensure};
use hinterland_tests::launch::Launch;
use hinterland_tests::suite::Trial;
use hinterland_tests::{skips, suite};
use std::process::Command;

/// How long each stressor works, in seconds: how much it does by then is the machine's affair.
const SECONDS: &str = "5";
/// Takes all of the disk from whatever else runs.
const LEFT_OUT: &str = "resources";
/// A stressor by its work, which is the same on every machine, in four times local memory.
const BY_WORK: [&str; 8] =
    ["--vm", "1", "--vm-bytes", "96M", "--vm-keep", "--vm-method=incdec", "--vm-ops=100000", "--verify"];
/// Faults that wait for far memory, of which that one must have more.
const MAJOR_FAULTS_MIN: u64 = 10_000;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    ["monitor", "inline"].map(trial).into()
}

fn trial(path: &'static str) -> Trial {
    let missing = || skips::find("stress-ng").is_none().then(|| "stress-ng is not installed".into());
    let skip = move || skips::not_full().or_else(missing).or_else(skips::no_userfaultfd);
    let test = format!("lifecycle::stressors::{path}");
    suite::trial(test.clone(), skip, move || {
        let stressors = stressors()?;
        ensure!(stressors.len() > 20, "stress-ng names {} stressors of memory", stressors.len());
        let mut differ = Vec::new();
        let mut major_faults_of = |words: &[&str]| -> Result<u64> {
            let words = [&["stress-ng"], words].concat();
            let native = Launch::of(&format!("{test}::native"), command(&words))?.run()?;
            let managed = Launch::new(&test, &["--local", "24M", "--fault-path", path], &words)?.run()?;
            if managed.code != native.code {
                differ.push(format!("{words:?}: {} instead of {}\n{}", managed.code, native.code, managed.stderr));
            }
            Ok(managed.stats()?["major_faults"].as_u64().unwrap_or(0))
        };
        let by_work = major_faults_of(&BY_WORK)?;
        let mut by_time = 0;
        for stressor in stressors.iter().filter(|stressor| *stressor != LEFT_OUT) {
            by_time += major_faults_of(&[&format!("--{stressor}"), "1", "--verify", "--timeout", SECONDS])?;
        }
        println!("{} stressors: {by_time} major faults, {by_work} of the one by its work", stressors.len());
        ensure!(differ.is_empty(), "{}", differ.join("\n"));
        ensure!(by_work > MAJOR_FAULTS_MIN, "only {by_work} major faults of the stressor by its work");
        Ok(())
    })
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// The stressors of the class "memory", as stress-ng names them: `class 'memory' stressors: atomic …`, on standard error.
fn stressors() -> Result<Vec<String>> {
    let output = Command::new("stress-ng").args(["--class", "memory?"]).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let list = text.split_once("stressors:").map_or("", |(_, list)| list);
    Ok(list.split_whitespace().map(str::to_owned).collect())
}
