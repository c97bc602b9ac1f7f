//! Memory outside the budget is named at once, with the reason: unmanaged processes, and unmanaged parts of managed
//! ones. With `--strict` it ends the run.

use anyhow::{Result, ensure};
use hinterland_tests::launch::{Ended, Launch, Running, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{MIB, frozen, places, skips, suite};

/// The fault paths.
const PATHS: [&str; 2] = ["monitor", "inline"];
/// What a line about it begins with.
const NAMED: &str = "not managed: ";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for path in PATHS {
        let mut add = |name: &str, skip: fn() -> Option<String>, test: fn(&str, &'static str) -> Result<()>| {
            let name = format!("lifecycle::outside::{name}::{path}");
            trials.push(suite::trial(name.clone(), skip, move || test(&name, path)));
        };
        add("environment_cleared", skips::no_userfaultfd, environment_cleared);
        add("another_user", skips::not_root, another_user);
        add("static_program", skips::no_userfaultfd, static_program);
        add("bare_mappings", skips::no_userfaultfd, bare_mappings);
        add("strict", skips::no_userfaultfd, strict);
        add("namespaces", skips::not_root, namespaces);
    }
    trials
}

/// Runs a shell's script; `$OUTSIDE` is a program that holds memory.
fn start(test: &str, path: &str, flags: &[&str], script: &str) -> Result<Running> {
    let given = ["--local", "32M", "--fault-path", path];
    let launch = Launch::new(test, &[&given, flags].concat(), &["sh", "-c", script])?;
    launch.with("OUTSIDE", &c_program("outside", &[])?.display().to_string()).start()
}

/// Lets a run end once somebody was named, and returns who: the program and why. Nobody else may be.
fn named(mut running: Running) -> Result<(Ended, String, String)> {
    running.wait_for("holds")?;
    let said = running.directory.join("stderr");
    suite::wait_until("memory outside the budget is named", || Ok(std::fs::read_to_string(&said)?.contains(NAMED)))?;
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "outside ok")?;
    let stats = ended.stats()?;
    let found = stats["not_managed"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(found.len() == 1, "one process should be named: {found:?}");
    let bytes = found[0]["anonymous_bytes"].as_u64().unwrap_or(0);
    ensure!((24 << 20..48 << 20).contains(&bytes), "it holds 32 MiB: {found:?}");
    let text = |name: &str| found[0][name].as_str().unwrap_or_default().to_owned();
    let (program, why) = (text("program"), text("reason"));
    ensure!(
        ended.stderr.matches(&format!("{program} ({why}), ")).count() == 2,
        "at once and at the end: {}",
        ended.stderr
    );
    Ok((ended, program, why))
}

/// Beside it runs one that is managed, which nobody names.
fn environment_cleared(test: &str, path: &'static str) -> Result<()> {
    let (_, program, why) = named(start(test, path, &[], "$OUTSIDE 64 & env -i $OUTSIDE 32; wait")?)?;
    ensure!(program == "outside" && why == "without the run's environment", "{program}: {why}");
    Ok(())
}

/// Privileges that are given up by a program that clears its environment, as su(1) and sudo(8) do.
fn another_user(test: &str, path: &'static str) -> Result<()> {
    let directory = places::emptied(std::env::temp_dir().join(test.replace("::", "-")))?;
    places::copy_program(&c_program("outside", &[])?, &directory.join("outside"))?;
    let script = format!("env -i /usr/bin/setpriv --reuid=65534 --clear-groups {}/outside 32", directory.display());
    let (_, program, why) = named(start(test, path, &[], &script)?)?;
    std::fs::remove_dir_all(&directory)?;
    ensure!(program == "outside" && why == "another user", "{program}: {why}");
    Ok(())
}

fn static_program(test: &str, path: &'static str) -> Result<()> {
    let program = c_program("outside", &["-static"])?.display().to_string();
    let (_, _, why) = named(start(test, path, &[], &format!("{program} 32; true"))?)?;
    ensure!(why.contains("static"), "{why}");
    Ok(())
}

/// What a managed program maps without libc is the kernel's.
fn bare_mappings(test: &str, path: &'static str) -> Result<()> {
    let (_, program, why) = named(start(test, path, &[], "$OUTSIDE 32 bare; true")?)?;
    ensure!(program == "outside" && why == "a part of its memory", "{program}: {why}");
    Ok(())
}

fn strict(test: &str, path: &'static str) -> Result<()> {
    let ended = start(test, path, &["--strict"], "env -i $OUTSIDE 32; echo went on")?.end()?;
    ended.expect_refusal(&["--strict"])?.expect(125, "holds")?;
    ensure!(ended.stderr.contains(NAMED) && !ended.stdout.contains("went on"), "{ended:?}");
    let code = &ended.stats()?["exit_code"];
    ensure!(code == 125, "{code}");
    Ok(())
}

/// Programs in PID namespaces, whose numbers are equal, share the budget: each has a row until its end, and nobody's is given back
/// while it lives.
fn namespaces(test: &str, path: &'static str) -> Result<()> {
    let script = "for i in 1 2 3; do unshare -pf sh -c '$OUTSIDE 48; true' & done; wait";
    let mut running = start(test, path, &[], script)?;
    let said = running.directory.join("stdout");
    running.wait_for("holds")?;
    suite::wait_until("three programs hold memory", || {
        Ok(std::fs::read_to_string(&said)?.matches("holds").count() == 3)
    })?;
    let launcher = running.pid;
    // All of them hold far more than the budget; it is kept, and stays kept while the launcher looks at them.
    for _ in 0..3 {
        suite::wait_until("a tree within its budget", || Ok(frozen::far_bytes(launcher) <= 34 * MIB))?;
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "outside ok")?;
    let stats = ended.stats()?;
    let rows = stats["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_program =
        rows.iter().filter(|row| row["program"].as_str().is_some_and(|program| program.ends_with("outside")));
    let managed: Vec<u64> = of_program.filter_map(|row| row["managed_peak_bytes"].as_u64()).collect();
    ensure!(
        managed.len() == 3 && managed.iter().all(|bytes| *bytes >= 40 * MIB),
        "three rows of almost 48 MiB: {managed:?}"
    );
    let named = stats["not_managed"].as_array().map_or(0, Vec::len);
    ensure!(named == 0 && !ended.stderr.contains(NAMED), "nobody is outside the budget: {}", ended.stderr);
    Ok(())
}
