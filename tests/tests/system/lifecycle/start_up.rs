//! Starting: what `hinterland run true` costs is reported, not judged: a busy machine would fail it by chance.

use anyhow::{Result, ensure};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs of each; the median counts.
const RUNS: usize = 21;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    vec![
        suite::trial("lifecycle::start_up::cost", skips::no_userfaultfd, cost),
        suite::trial("lifecycle::start_up::auditor", skips::no_userfaultfd, auditor),
        suite::trial("lifecycle::start_up::auditor_inside", skips::no_userfaultfd, auditor_inside),
        suite::trial("lifecycle::start_up::doctor", skips::no_userfaultfd, doctor),
        suite::trial("lifecycle::start_up::variables", skips::no_userfaultfd, variables),
        suite::trial("lifecycle::start_up::saved_image", skips::no_userfaultfd, saved_image),
        suite::trial("lifecycle::start_up::covered", skips::no_userfaultfd, covered),
        suite::trial("lifecycle::start_up::wrapped_calls", skips::no_userfaultfd, wrapped_calls),
        suite::trial("lifecycle::start_up::few_descriptors", skips::no_userfaultfd, few_descriptors),
        suite::trial("lifecycle::start_up::thread_storage", skips::no_userfaultfd, thread_storage),
    ]
}

fn cost() -> Result<()> {
    let launcher = places::launcher()?.display().to_string();
    let (mut plain, mut managed) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        plain.push(timed(&["true"])?);
        managed.push(timed(&[&launcher, "run", "--quiet", "true"])?);
    }
    let (plain, managed) = (median(plain), median(managed));
    let cost = managed.saturating_sub(plain);
    eprintln!(
        "hinterland run true: {managed:.2?}, true: {plain:.2?}, cost {cost:.2?} (promised: 3 ms on an idle machine)"
    );
    Ok(())
}

fn timed(words: &[&str]) -> Result<Duration> {
    let started = Instant::now();
    let status = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).status()?;
    ensure!(status.success(), "{words:?} ended with {status}");
    Ok(started.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// An auditor of the loader leaves little room for the library's thread-local storage: the launcher asks for more, and keeps what else is asked.
fn auditor() -> Result<()> {
    let auditor = c_program("field/auditor", &["-shared", "-fPIC"])?.display().to_string();
    let program = c_program("field/alone", &["-D_GNU_SOURCE"])?.display().to_string();
    for path in ["monitor", "inline"] {
        let arguments = ["--local", "16M", "--fault-path", path];
        let launch = Launch::new("lifecycle::start_up::auditor", &arguments, &[&program, "threads"])?;
        let launch = launch.with("LD_AUDIT", &auditor).with("GLIBC_TUNABLES", "glibc.malloc.perturb=0");
        launch.run()?.expect(0, "joined 1")?.expect_eviction()?;
    }
    Ok(())
}

/// So does the library where a program of the run starts another one with an auditor: by execvp, execve (a shell) and `posix_spawn`.
fn auditor_inside() -> Result<()> {
    let auditor = c_program("field/auditor", &["-shared", "-fPIC"])?.display().to_string();
    let program = c_program("field/alone", &["-D_GNU_SOURCE"])?.display().to_string();
    let variable = format!("LD_AUDIT={auditor}");
    let shell = format!("{variable} {program} threads");
    let spawn = "import os, sys; audit = dict(os.environ, LD_AUDIT=sys.argv[1]); \
                 sys.exit(os.waitpid(os.posix_spawn(sys.argv[2], sys.argv[2:], audit), 0)[1])";
    let starts: [&[&str]; 3] = [
        &["env", &variable, "GLIBC_TUNABLES=glibc.malloc.perturb=0", &program, "threads"],
        &["sh", "-c", &shell],
        &["/usr/bin/python3", "-c", spawn, &auditor, &program, "threads"],
    ];
    for (path, words) in ["monitor", "inline"].into_iter().flat_map(|path| starts.map(|words| (path, words))) {
        let arguments = ["--local", "16M", "--fault-path", path];
        let launch = Launch::new("lifecycle::start_up::auditor_inside", &arguments, words)?;
        launch.run()?.expect(0, "joined 1")?.expect_eviction()?;
    }
    Ok(())
}

/// Where programs can run, `doctor` says so, for people and for scripts.
fn doctor() -> Result<()> {
    Launch::bare("doctor", &["doctor"])?.run()?.expect(0, "userfaultfd")?;
    let json = Launch::bare("doctor-json", &["doctor", "--json"])?.run()?;
    serde_json::from_str::<serde_json::Value>(&json.expect(0, "")?.stdout)?;
    Ok(())
}

/// Settings come from flags before variables.
fn variables() -> Result<()> {
    let budget = |test: &str, arguments: &[&str]| -> Result<Option<u64>> {
        let ended = Launch::new(test, arguments, &["true"])?.with("HINTERLAND_LOCAL", "64M").run()?;
        Ok(ended.expect(0, "")?.stats()?["local_budget_bytes"].as_u64())
    };
    ensure!(budget("variable", &[])? == Some(64 << 20), "HINTERLAND_LOCAL was not heard");
    ensure!(budget("flag-first", &["--local", "32M"])? == Some(32 << 20), "a flag does not overrule the variable");
    Ok(())
}

/// A library behind Hinterland's that wraps calls of libc's, which it looks up by a handle of libc when they are made first.
fn wrapped_calls() -> Result<()> {
    let library = c_program("field/wrapped_calls", &["-DLIBRARY", "-shared", "-fPIC"])?;
    let program = c_program("field/wrapped_calls", &[])?;
    let script = format!("LD_PRELOAD=$LD_PRELOAD:{} exec {}", library.display(), program.display());
    for path in ["monitor", "inline"] {
        let arguments = ["--local", "16M", "--fault-path", path];
        let launch = Launch::new("lifecycle::start_up::wrapped_calls", &arguments, &["sh", "-c", &script])?;
        launch.run()?.expect(0, "read 8 ioctl 0 thread 0 wrapped 3")?.expect_eviction()?;
    }
    Ok(())
}

/// An executable at low addresses whose allocator takes nothing back before `main`.
fn saved_image() -> Result<()> {
    let program = image_at("0x18000")?;
    for path in ["monitor", "inline"] {
        // By itself, and started by a program that is managed already.
        for command in [&[program.as_str()][..], &["sh", "-c", &format!("{program}; exit $?")]] {
            let launch =
                Launch::new("lifecycle::start_up::saved_image", &["--local", "16M", "--fault-path", path], command)?;
            launch.run()?.expect(0, "sum 211076973068288")?.expect_eviction()?;
        }
    }
    Ok(())
}

/// One that lies where Hinterland makes its calls takes the monitor path, and is refused in words where the inline path is asked for. Behind a program
/// on the inline path, whose filter it inherits, it runs, and is named as not managed.
fn covered() -> Result<()> {
    let program = image_at("0x16000")?;
    let behind = ["sh", "-c", &format!("{program}; exit $?")];
    let run = |path: &str, command: &[&str]| {
        Launch::new("lifecycle::start_up::covered", &["--local", "16M", "--fault-path", path], command)?.run()
    };
    for command in [&[program.as_str()][..], &behind] {
        run("monitor", command)?.expect(0, "sum 211076973068288")?.expect_eviction()?;
    }
    run("auto", &[&program])?.expect(0, "sum 211076973068288")?.expect_eviction()?;
    run("inline", &[&program])?.expect_refusal(&["cannot be mapped"])?.expect(125, "")?;
    let ended = run("inline", &behind)?;
    ended.expect(0, "sum 211076973068288")?;
    let stats = ended.stats()?;
    let reasons = stats["processes"].as_array().into_iter().flatten().filter_map(|process| process["reason"].as_str());
    let reason = reasons.filter(|reason| reason.contains("whose filter of system calls it inherits")).count();
    ensure!(reason == 1 && ended.stderr.contains("(not managed)"), "{stats}{}", ended.stderr);
    Ok(())
}

/// A limit below the descriptors that the launcher waits for does not end the run: the end of the program, and of its children, is seen all the same.
fn few_descriptors() -> Result<()> {
    let limit = |limit: &str| format!("prlimit --pid $PPID --nofile={limit}: || exit 9");
    let (lowered, raised) = (limit("1"), limit("1024"));
    // The program ends when the limit is what it was, and while it is low.
    let scripts = [
        format!("{lowered}; sleep 0.3; (sleep 0.1); {raised}; echo went on; exit 7"),
        format!("{lowered}; sleep 0.3; (sleep 0.1); echo went on; exit 7"),
    ];
    for (path, script) in
        ["monitor", "inline"].into_iter().flat_map(|path| scripts.each_ref().map(|script| (path, script)))
    {
        let arguments = ["--local", "16M", "--fault-path", path];
        let launch = Launch::new("lifecycle::start_up::few_descriptors", &arguments, &["sh", "-c", script])?;
        launch.run()?.expect(7, "went on")?;
    }
    Ok(())
}

/// A megabyte of thread-local storage, which lies on each stack, leaves threads of ours theirs: the program begins, and one of them evicts.
fn thread_storage() -> Result<()> {
    let program = c_program("thread_storage", &[])?.display().to_string();
    for path in ["monitor", "inline"] {
        let arguments = ["--local", "16M", "--fault-path", path];
        let launch = Launch::new("lifecycle::start_up::thread_storage", &arguments, &[&program])?;
        launch.run()?.expect(0, "right, evictors 1")?.expect_eviction()?;
    }
    Ok(())
}

/// The program that is linked at an address of its own.
fn image_at(address: &str) -> Result<String> {
    let place = format!("-Wl,-Ttext-segment={address}");
    Ok(c_program("saved_image", &["-fno-builtin", "-no-pie", &place])?.display().to_string())
}
