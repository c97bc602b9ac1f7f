//! Several runs of a user on one machine whose budgets follow a slowdown.

use super::control::{Said, listed_at};
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, Running, c_program};
use hinterland_tests::suite::{self, Trial};
use hinterland_tests::{MIB, skips};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;

/// What all of them may hold together, and what each of them has.
const ROOM: &str = "100M";
const HAS_MIB: u64 = 96;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    ["monitor", "inline"]
        .map(|path| {
            let name = format!("lifecycle::other_runs::share::{path}");
            suite::trial(name.clone(), || is_shipped().or_else(skips::no_userfaultfd), move || share(&name, path))
        })
        .into()
}

fn is_shipped() -> Option<String> {
    let is_shipped = !cfg!(debug_assertions) || std::env::var_os("HINTERLAND_TEST_BIN").is_some();
    is_shipped.then(|| "a build as it is shipped shares the machine that it runs on".to_owned())
}

/// A program that uses all of its memory all the time, beside runs whose sockets lie in `runtime`.
fn start(name: &str, path: &str, runtime: Option<&Path>) -> Result<Running> {
    let program = c_program("hold", &[])?.display().to_string();
    let options = ["--local", "160M", "--slowdown", "1.05", "--fault-path", path];
    let mut launch = Launch::new(name, &options, &[&program, &HAS_MIB.to_string(), "stay"])?;
    if let Some(runtime) = runtime {
        launch = launch.with("XDG_RUNTIME_DIR", &runtime.display().to_string());
    }
    launch.with("HINTERLAND_TEST_ROOM", ROOM).start()
}

/// Ends the program of a run.
fn end(running: &Running) -> Result<()> {
    Ok(kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?)
}

/// Two runs that do not fit on the machine together have half of it each and are named; what the one that ends had is the other's.
fn share(name: &str, path: &'static str) -> Result<()> {
    let mut first = start(name, path, None)?;
    first.wait_for("ready")?;
    let runtime = first.directory.join("tmp");
    let mut second = start(&format!("{name}::second"), path, Some(&runtime))?;
    second.wait_for("ready")?;
    let said = |running: &Running| listed_at(&runtime, running.pid)?.context("it is listed");
    for running in [&first, &second] {
        suite::wait_until("a run that has half and is short of memory", || {
            let run = said(running)?;
            let obstacle = run["slowdown_obstacle"].as_str().context("words, or none")?;
            Ok(obstacle.starts_with("cannot keep 1.05: would need ")
                && obstacle.ends_with(", its share is 50 MiB beside 1 other run")
                && run["local_share_bytes"] == 50 * MIB
                && run["local_budget_bytes"] == 50 * MIB
                && run["local_wanted_bytes"].as_u64() > Some(50 * MIB)
                && run["local_bytes"].as_u64() <= Some(50 * MIB))
        })?;
    }
    let (pid, table) = (first.pid.to_string(), Said::of(&runtime, &["ps"])?.stdout);
    ensure!(table.contains(&format!("\n{pid} cannot keep 1.05: would need ")), "{table}");
    end(&second)?;
    let ended = second.end()?;
    ended.expect(143, "ready")?.expect_paging()?;
    ensure!(ended.stderr.contains("hinterland: the run cannot keep 1.05: would need "), "{}", ended.stderr);
    let service = &ended.stats()?["service_level"];
    ensure!(service["short_share_bytes"] == 50 * MIB, "{service}");
    ensure!(service["short_wanted_bytes"].as_u64() > Some(50 * MIB), "{service}");
    suite::wait_until("a run that has the machine", || {
        let run = said(&first)?;
        let has_all = run["slowdown_obstacle"] == "" && run["local_share_bytes"].is_null();
        Ok(has_all && run["local_bytes"].as_u64() > Some(80 * MIB))
    })?;
    end(&first)?;
    let ended = first.end()?;
    ended.expect(143, "ready")?.expect_paging()?;
    ensure!(ended.stderr.contains("the run keeps the slowdown of 1.05 again"), "{}", ended.stderr);
    let words = "when its share of the machine was 50 MiB beside 1 other run";
    ensure!(ended.stderr.contains(words) && !ended.stdout.contains("WRONG"), "{}{}", ended.stderr, ended.stdout);
    Ok(())
}
