//! stress-ng's stressors of memory, each of which verifies what it reads back, in the long form: they end as natively.

use anyhow::{Result, ensure};
use hinterland_tests::launch::Launch;
use hinterland_tests::suite::Trial;
use hinterland_tests::{skips, suite};
use std::process::Command;

/// How long each stressor works, in seconds.
const SECONDS: &str = "5";
/// Faults of all stressors together that wait for far memory, of which a run must have more.
const MAJOR_FAULTS_MIN: u64 = 100_000;

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
        let (mut differ, mut major_faults) = (Vec::new(), 0);
        for stressor in stressors {
            let option = format!("--{stressor}");
            let words = ["stress-ng", &option, "1", "--verify", "--timeout", SECONDS];
            let native = Launch::of(&format!("{test}::native"), command(&words))?.run()?;
            let managed = Launch::new(&test, &["--local", "24M", "--fault-path", path], &words)?.run()?;
            if managed.code != native.code {
                differ.push(format!("{stressor}: {} instead of {}\n{}", managed.code, native.code, managed.stderr));
            }
            major_faults += managed.stats()?["major_faults"].as_u64().unwrap_or(0);
        }
        ensure!(differ.is_empty(), "{}", differ.join("\n"));
        ensure!(major_faults > MAJOR_FAULTS_MIN, "only {major_faults} major faults of all stressors");
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
