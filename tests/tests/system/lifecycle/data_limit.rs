//! A limit on private writable memory (`RLIMIT_DATA`) that was there before the run: far memory counts against it as it is used.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program, launcher};
use hinterland_tests::suite::Trial;
use hinterland_tests::{MIB, skips, suite};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What far memory may take of such a limit before the program uses any: its need as readiness states it (256 MiB), less what is kept for the pager.
const IDLE_BYTES: u64 = 192 * MIB;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let on_both = ["monitor", "inline"].into_iter().flat_map(|path| {
        let name = |what: &str| format!("lifecycle::data_limit::{what}::{path}");
        [
            suite::trial(name("idle"), skips::no_userfaultfd, move || idle(path)),
            suite::trial(name("fill"), skips::no_userfaultfd, move || fill(path)),
            suite::trial(name("reach"), skips::no_userfaultfd, move || reach(path)),
            suite::trial(name("raise"), skips::no_userfaultfd, move || raise(path)),
            suite::trial(name("spread"), skips::no_userfaultfd, move || spread(path)),
            suite::trial(name("move"), skips::no_userfaultfd, move || moves(path)),
            suite::trial(name("threads"), skips::no_userfaultfd, move || threads(path)),
            suite::trial(name("refused"), skips::no_userfaultfd, move || refused(path)),
            suite::trial(name("unseen"), skips::no_userfaultfd, move || unseen(path)),
            suite::trial(name("end"), skips::no_userfaultfd, move || end(path)),
        ]
    });
    on_both.collect()
}

/// Runs `command` below a soft limit, which it may raise.
fn limited(test: &str, mut command: Command, bytes: u64) -> Result<Ended> {
    let (_, hard) = getrlimit(Resource::RLIMIT_DATA)?;
    // SAFETY: the call may be made between fork and exec.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_DATA, bytes.min(hard), hard)?)) };
    Launch::of(test, command)?.run()
}

fn natively(test: &str, words: &[&str], bytes: u64) -> Result<Ended> {
    let mut command = Command::new(c_program("data_limit", &[])?);
    command.args(words);
    limited(&format!("data-limit-{test}-natively"), command, bytes)
}

fn managed(test: &str, flags: &[&str], words: &[&str], bytes: u64) -> Result<Ended> {
    let mut command = launcher()?;
    command.arg("run").args(flags).args(["--stats", "stats.json", "--"]).arg(c_program("data_limit", &[])?).args(words);
    limited(&format!("data-limit-{test}"), command, bytes)
}

/// `VmData` of a program that has done nothing yet is that of a program, and a bounded part for far memory, whatever that is.
fn idle(path: &str) -> Result<()> {
    let told = |ended: &Ended| -> Result<u64> {
        ended.expect(0, "\n")?;
        Ok(ended.stdout.trim().parse::<u64>().context("no VmData")? * 1024)
    };
    let own = told(&natively(&format!("idle-{path}"), &["idle"], RLIM_INFINITY)?)?;
    let kinds: [(&str, &[&str]); 3] = [
        ("compressed", &["--far", "compressed:64G"]),
        ("tiers", &["--far", "compressed:1G", "--far", "file:far?size=8G"]),
        ("plain", &["--far", "reference:64G"]),
    ];
    for (kind, far) in kinds {
        let flags = [&["--fault-path", path][..], far].concat();
        let all = told(&managed(&format!("idle-{path}-{kind}"), &flags, &["idle"], RLIM_INFINITY)?)?;
        ensure!(all - own < IDLE_BYTES, "{kind}: {} KiB of private writable memory", (all - own) / 1024);
    }
    Ok(())
}

/// Below a limit of as much as it needs natively and far memory needs beside, a program pages, and prints what it prints natively.
fn fill(path: &str) -> Result<()> {
    // Natively: 192 MiB on the heap, 48 in a mapping, and what a program has.
    const OWN_BYTES: u64 = 264 * MIB;
    let native = natively(&format!("fill-{path}"), &["fill", "192"], OWN_BYTES)?;
    native.expect(0, "done\n")?;
    for (kind, far, store_bytes) in [("file", "file:far?size=1G", 0), ("compressed", "compressed:1G", 256 * MIB)] {
        let flags = ["--local", "32M", "--fault-path", path, "--far", far];
        let bytes = OWN_BYTES + 256 * MIB + store_bytes;
        let ended = managed(&format!("fill-{path}-{kind}"), &flags, &["fill", "192"], bytes)?;
        ended.expect(0, &native.stdout)?.expect_paging()?;
    }
    Ok(())
}

/// A program that reaches the limit is refused more, as natively, and goes on: with what it has, and with what it gives back.
fn reach(path: &str) -> Result<()> {
    const LIMIT_BYTES: u64 = 512 * MIB;
    let native = natively(&format!("reach-{path}"), &["reach"], LIMIT_BYTES)?;
    native.expect(0, "refused: Cannot allocate memory\nheap: 0\nagain: 1\ndone\n")?;
    let flags = ["--local", "32M", "--fault-path", path, "--far", "file:far?size=1G"];
    let ended = managed(&format!("reach-{path}"), &flags, &["reach"], LIMIT_BYTES)?;
    ended.expect(0, &native.stdout)?.expect_paging()?;
    ensure!(!ended.stderr.contains("max_map_count"), "the limit is taken for another one: {}", ended.stderr);
    Ok(())
}

/// A limit that is there before the run, and that the program raises, is raised.
fn raise(path: &str) -> Result<()> {
    const LIMIT_BYTES: u64 = 300 * MIB;
    let native = natively(&format!("raise-{path}"), &["raise", "384"], LIMIT_BYTES)?;
    native.expect(0, "300 MiB, refused 1\nraised 1\n1536 MiB, refused 0\ndone\n")?;
    let flags = ["--local", "32M", "--fault-path", path, "--far", "file:far?size=1G"];
    let ended = managed(&format!("raise-{path}"), &flags, &["raise", "384"], LIMIT_BYTES)?;
    ended.expect(0, &native.stdout)?.expect_paging()?;
    Ok(())
}

/// Below a limit that a program sets for itself, what becomes writable of the tables is not the program's: 28 MiB for each 4 GiB of which it uses a little.
fn spread(path: &str) -> Result<()> {
    let native = natively(&format!("spread-{path}"), &["spread", "128"], RLIM_INFINITY)?;
    native.expect(0, "set 1\nhad 16, refused 1\ndone\n")?;
    let flags = ["--local", "16M", "--fault-path", path];
    managed(&format!("spread-{path}"), &flags, &["spread", "128"], RLIM_INFINITY)?.expect(0, &native.stdout)?;
    Ok(())
}

/// Runs the program natively, where it is `printed`, and in the same limit on a fault path.
fn as_natively(path: &str, words: &[&str], bytes: u64, printed: &str) -> Result<()> {
    let name = format!("{}-{path}", words[0]);
    let native = natively(&name, words, bytes)?;
    native.expect(0, printed)?;
    let flags = ["--local", "32M", "--fault-path", path, "--far", "file:far?size=2G"];
    managed(&name, &flags, words, bytes)?.expect(0, &native.stdout)?.expect_paging()?;
    Ok(())
}

/// A mapping that is larger than half of the limit grows by a move, and moves where it may not be written to.
fn moves(path: &str) -> Result<()> {
    let printed = "grown 1, moved 1\nrefused 1\nin place 1\nwritable 1\ndone\n";
    as_natively(path, &["move", "280"], 640 * MIB, printed)
}

/// Stacks of threads leave the pager what is kept for it.
fn threads(path: &str) -> Result<()> {
    let printed = "refused: Resource temporarily unavailable\nanother: 2\nagain: 0\ndone\n";
    as_natively(path, &["threads"], 512 * MIB, printed)
}

/// Mappings that are refused leave no tables behind.
fn refused(path: &str) -> Result<()> {
    as_natively(path, &["refused"], 512 * MIB, "grown by less than 40 MiB: 1\ndone\n")
}

/// Nor do those that the kernel alone refuses.
fn unseen(path: &str) -> Result<()> {
    as_natively(path, &["unseen"], RLIM_INFINITY, "set 1, refused 1\ngrown by less than 20 MiB: 1\ndone\n")
}

/// A process that leaves the pager no memory, by calls of libc's own, ends with words.
fn end(path: &str) -> Result<()> {
    let flags = ["--local", "16M", "--fault-path", path, "--far", "file:far?size=1G"];
    let ended = managed(&format!("end-{path}"), &flags, &["end", "256"], 560 * MIB)?;
    ended.expect(125, "")?.expect_refusal(&["ulimit -d"])?;
    Ok(())
}
