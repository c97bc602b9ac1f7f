//! Ways to end, things to close: the exit code is the program's own, and the figures survive.

use anyhow::{Result, ensure};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{skips, suite};
use nix::sys::signal::Signal;

/// A way to end and the code that a shell must see.
const ENDINGS: [(&str, i32); 8] = [
    ("close-descriptors", 0),
    ("close-stderr", 0),
    ("return", 0),
    ("exit", 7),
    ("_exit", 8),
    ("abort", 128 + 6),
    ("segv", 128 + 11),
    ("kill", 128 + 9),
];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let endings = ENDINGS.iter().map(|&(way, code)| {
        let name = format!("lifecycle::endings::{way}");
        suite::trial(name.clone(), skips::no_userfaultfd, move || {
            let program = c_program("endings", &[])?.display().to_string();
            let ended = Launch::new(&name, &["--local", "16M"], &[&program, way])?.run()?;
            ended.expect(code, "verified 0")?.expect_paging()?;
            ensure!(ended.stats()?["exit_code"] == code, "the statistics have another code: {}", ended.stats()?);
            Ok(())
        })
    });
    let more = [
        suite::trial("lifecycle::endings::term_reaches_the_program", skips::no_userfaultfd, signalled),
        suite::trial("lifecycle::endings::summary_on_stderr", skips::no_userfaultfd, summary),
        suite::trial("lifecycle::endings::stats_on_stdout", skips::no_userfaultfd, stats_on_stdout),
    ];
    endings.chain(more).chain(["monitor", "inline"].map(robust)).collect()
}

/// Robust mutexes on more pages than are kept for them: said once, and all of them are mutexes.
fn robust(path: &'static str) -> Trial {
    let name = format!("lifecycle::endings::robust::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("robust", &[])?.display().to_string();
        let run = |pages| Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program, pages])?.run();
        let (few, many) = (run("1000")?, run("6000")?);
        few.expect(0, "2000 of 2000 right")?;
        many.expect(0, "12000 of 12000 right")?.expect_paging()?;
        let said = [few, many].map(|ended| ended.stderr.matches("robust mutexes").count());
        ensure!(said == [0, 1], "said {said:?} times");
        Ok(())
    })
}

/// SIGTERM to the launcher reaches the program, which catches it and goes on.
fn signalled() -> Result<()> {
    let program = c_program("endings", &[])?.display().to_string();
    let mut running = Launch::new("term", &["--local", "16M"], &[&program, "term-caught"])?.start()?;
    running.wait_for("ready")?;
    running.signal(Signal::SIGTERM)?;
    running.end()?.expect(0, "verified 15")?;
    Ok(())
}

/// The summary says what happened, on standard error only, and `--quiet` silences it.
fn summary() -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let loud = Launch::new("summary", &["--local", "16M"], &[&program, "48"])?.run()?;
    loud.expect(0, "ready\ndone\n")?;
    ensure!(loud.stdout == "ready\ndone\n", "the launcher wrote to standard output: {}", loud.stdout);
    ensure!(loud.stderr.to_lowercase().contains("major"), "no summary: {}", loud.stderr);
    let quiet = Launch::new("summary-quiet", &["--local", "16M", "--quiet"], &[&program, "48"])?.run()?;
    ensure!(quiet.stderr.is_empty(), "--quiet was not quiet: {}", quiet.stderr);
    Ok(())
}

/// `--stats -` writes the JSON to standard output, after the program's own.
fn stats_on_stdout() -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let arguments = ["run", "--local", "16M", "--stats", "-", "--", &program, "48"];
    let ended = Launch::bare("stats-on-stdout", &arguments)?.run()?;
    let json = ended.expect(0, "ready\ndone\n")?.stdout.split_once("done\n").map(|(_, json)| json.to_owned());
    let stats: serde_json::Value = serde_json::from_str(json.as_deref().unwrap_or_default())?;
    ensure!(stats["exit_code"] == 0 && stats["major_faults"].as_u64() > Some(0), "{stats}");
    Ok(())
}
