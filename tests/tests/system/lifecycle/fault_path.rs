//! Which fault path `auto` takes, and what happens where none is safe: decided before the program starts.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use nix::unistd::{Gid, Uid};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Exit code of a refusal.
const REFUSED: i32 = 125;
/// Somebody without rights.
const NOBODY: u32 = 65534;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let root = || skips::no_userfaultfd().or_else(skips::not_root);
    vec![
        suite::trial("lifecycle::fault_path::fit", root, fit),
        suite::trial("lifecycle::fault_path::calls_of_its_own", root, calls_of_its_own),
        suite::trial("lifecycle::fault_path::go", move || root().or_else(no_go), go),
        suite::trial("lifecycle::fault_path::no_filters", root, no_filters),
        suite::trial("lifecycle::fault_path::no_userfaultfd", root, no_userfaultfd),
        suite::trial("lifecycle::fault_path::no_path", root, no_path),
        suite::trial("lifecycle::fault_path::monitor_inside_inline", root, monitor_inside_inline),
    ]
}

/// A run of `program` ended well on `path`, and the summary gives `reason`.
fn runs_on(path: &str, reason: &str, ended: Ended) -> Result<()> {
    let line = ended.stderr.lines().find(|line| line.contains("fault path")).unwrap_or_default();
    ensure!(ended.code == 0, "ended with {}: {}", ended.code, ended.stderr);
    ensure!(line.contains(path) && line.contains(reason), "not on {path} because of '{reason}': {line}");
    Ok(())
}

fn auto(test: &str, program: &[&str]) -> Result<Ended> {
    Launch::new(&format!("fault-path-{test}"), &["--local", "64M"], program)?.run()
}

/// What makes its calls through libc runs inline, and so does what makes calls that the filter sees.
fn fit() -> Result<()> {
    runs_on("inline", "fit", auto("true", &["true"])?)?;
    let futex = c_program("own_call", &["-DFUTEX"])?.display().to_string();
    runs_on("inline", "fit", auto("futex", &[&futex])?)
}

fn calls_of_its_own() -> Result<()> {
    let mask = c_program("own_call", &["-DMASK"])?.display().to_string();
    runs_on("monitor", "makes system call 14 without libc", auto("mask", &[&mask])?)
}

fn go() -> Result<()> {
    const SOURCE: &str = "package main\n// #include <stdlib.h>\nimport \"C\"\nfunc main() { C.free(C.malloc(100)) }\n";
    let directory = places::emptied(places::tests().join("lifecycle/go"))?;
    std::fs::write(directory.join("main.go"), SOURCE)?;
    let mut command = Command::new("go");
    command.args(["build", "-o", "program", "main.go"]).current_dir(&directory);
    command.env("CGO_ENABLED", "1").env("GOCACHE", places::tests().join("go-cache")).env("GOFLAGS", "-mod=mod");
    let built = command.output().context("cannot start go")?;
    ensure!(built.status.success(), "go cannot build: {}", String::from_utf8_lossy(&built.stderr));
    let program = directory.join("program").display().to_string();
    runs_on("monitor", "written in Go", auto("go", &[&program])?)
}

fn no_go() -> Option<String> {
    skips::find("go").is_none().then(|| "go is not installed".into())
}

/// `sandbox FORBIDDEN hinterland run … true`.
fn in_sandbox(forbidden: &str, path: &str) -> Result<Ended> {
    let mut command = Command::new(c_program("sandbox", &[])?);
    command.arg(forbidden).arg(places::launcher()?);
    command.args(["run", "--local", "64M", "--fault-path", path, "--", "true"]);
    Launch::of(&format!("fault-path-{forbidden}-{path}"), command)?.run()
}

/// Where filters are forbidden, `auto` takes the monitor and says why; who insists on inline is refused.
fn no_filters() -> Result<()> {
    runs_on("monitor", "system calls cannot be trapped", in_sandbox("filters", "auto")?)?;
    in_sandbox("filters", "inline")?.expect_refusal(&["trapped", "seccomp"])?.expect(REFUSED, "")?;
    doctor_in_sandbox("filters", 0, "monitor alone: system calls cannot be trapped")
}

/// Where userfaultfd(2) is forbidden, the device still opens the way for those who may use it.
fn no_userfaultfd() -> Result<()> {
    if Path::new("/dev/userfaultfd").exists() {
        return runs_on("inline", "fit", in_sandbox("userfaultfd", "auto")?);
    }
    in_sandbox("userfaultfd", "auto")?.expect_refusal(&["userfaultfd", "seccomp"])?.expect(REFUSED, "")?;
    doctor_in_sandbox("userfaultfd", 1, "MISSING  userfaultfd")
}

fn doctor_in_sandbox(forbidden: &str, code: i32, words: &str) -> Result<()> {
    let mut command = Command::new(c_program("sandbox", &[])?);
    command.arg(forbidden).arg(places::launcher()?).arg("doctor");
    Launch::of(&format!("fault-path-{forbidden}-doctor"), command)?.run()?.expect(code, words)?;
    Ok(())
}

/// Without the privilege for the monitor, a program that inline does not suit is refused before it starts, or runs unmanaged
/// where that is wished; in a sandbox without filters nothing can run.
fn no_path() -> Result<()> {
    let shared = places::emptied(std::env::temp_dir().join("hl-no-path"))?;
    let built = places::launcher()?.parent().context("the launcher is in a directory")?.to_owned();
    for name in ["hinterland", "libhinterland.so"] {
        places::copy_program(&built.join(name), &shared.join(name))?;
    }
    for (name, flag) in [("own_call", "-DMASK"), ("sandbox", "-DCOPY")] {
        places::copy_program(&c_program(name, &[flag])?, &shared.join(name))?;
    }
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755))?;
    let run = |test: &str, words: &[&str]| -> Result<Ended> {
        let mut command = Command::new(shared.join(words[0]));
        command.args(&words[1..]).env("HOME", &shared).uid(Uid::from_raw(NOBODY).as_raw());
        command.gid(Gid::from_raw(NOBODY).as_raw());
        let mut launch = Launch::of(&format!("fault-path-nobody-{test}"), command)?;
        launch.set_directory(&shared);
        launch.run()
    };
    let program = shared.join("own_call").display().to_string();
    let launcher = shared.join("hinterland").display().to_string();
    let plain = run("plain", &["hinterland", "run", "--local", "64M", "--", "true"]);
    let unfit = run("unfit", &["hinterland", "run", "--local", "64M", "--", &program]);
    let allowed = run("allowed", &["hinterland", "run", "--local", "64M", "--allow-unmanaged", "--", &program]);
    let insists = run("insists", &["hinterland", "run", "--local", "64M", "--fault-path", "inline", "--", &program]);
    let sandbox = run("sandbox", &["sandbox", "filters", &launcher, "run", "--local", "64M", "--", "true"]);
    let doctor = run("doctor", &["hinterland", "doctor"]);
    std::fs::remove_dir_all(&shared)?;
    if doctor?.stdout.contains("inline and monitor") {
        return Ok(());
    }
    runs_on("inline", "the monitor is not allowed here", plain?)?;
    let unfit = unfit?;
    unfit.expect_refusal(&["without libc"])?.expect_refusal(&["--allow-unmanaged"])?.expect(REFUSED, "")?;
    ensure!(!unfit.stdout.contains("done"), "the program was started all the same");
    let allowed = allowed?;
    allowed.expect(0, "done")?;
    ensure!(allowed.stderr.contains("unmanaged"), "no warning: {}", allowed.stderr);
    runs_on("inline", "pages", insists?)?;
    sandbox?.expect_refusal(&["trapped", "seccomp"])?.expect(REFUSED, "")?;
    Ok(())
}

/// A run on the monitor path, started by a program on the inline path, would be killed by the filter that it inherits: it is
/// refused. One that may choose goes inline as well.
fn monitor_inside_inline() -> Result<()> {
    let launcher = places::launcher()?.display().to_string();
    let run = |path: &str| -> Result<Ended> {
        let inner = format!("{launcher} run --local 64M --fault-path {path} -- echo inner");
        let words = ["sh", "-c", inner.as_str()];
        Launch::new(&format!("fault-path-nested-{path}"), &["--local", "64M", "--fault-path", "inline"], &words)?.run()
    };
    run("auto")?.expect(0, "inner")?;
    let refused = run("monitor")?;
    ensure!(refused.code == REFUSED && refused.stderr.contains("inherits"), "not refused: {refused:?}");
    Ok(())
}
