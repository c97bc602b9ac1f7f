//! What cannot work is refused before the program starts, in words that say what to do.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program, launcher};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Exit code of a refusal; a program that does not exist or cannot be executed has the shell's codes.
const REFUSED: i32 = 125;

/// Arguments that make no sense, and a word that the message must have.
const NONSENSE: &[(&str, &[&str], &str)] = &[
    ("size", &["--local", "nonsense"], "nonsense"),
    ("empty_size", &["--local", ""], "local"),
    ("negative_size", &["--local=-5M"], "-5M"),
    ("percent", &["--local", "900%"], "900%"),
    ("share_of_the_run", &["--local", "25%"], "25%ram"),
    ("below_the_floor", &["--local", "1M"], "16"),
    ("scheme", &["--far", "nowhere:1G"], "nowhere"),
    ("far_size", &["--far", "compressed:much"], "much"),
    ("far_option", &["--far", "compressed:1G?colour=red"], "colour"),
    ("far_path", &["--far", "file:/proc/no/such/place?size=1G"], "/proc/no/such/place"),
    ("heap", &["--heap", "some"], "some"),
    ("evict", &["--evict", "random"], "random"),
    ("prefetch", &["--prefetch", "markov"], "readahead-vma"),
    ("empty_prefetch", &["--prefetch", ""], "--prefetch"),
    ("features", &["--features", "4.4"], "4.4"),
    ("no_userfaultfd", &["--features", "no-uffd"], "userfaultfd"),
];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let nothing = || None;
    let mut trials: Vec<Trial> = NONSENSE
        .iter()
        .map(|&(name, arguments, word)| {
            let name = format!("lifecycle::refusals::{name}");
            suite::trial(name.clone(), nothing, move || refused(&name, arguments, word))
        })
        .collect();
    trials.extend([
        suite::trial("lifecycle::refusals::no_such_program", nothing, || {
            let ended = Launch::new("no-such-program", &[], &["./no-such-program"])?.run()?;
            ended.expect_refusal(&["no-such-program"])?.expect(127, "")?;
            Ok(())
        }),
        suite::trial("lifecycle::refusals::not_executable", nothing, || {
            let ended = Launch::new("not-executable", &[], &["/etc/passwd"])?.run()?;
            ended.expect_refusal(&["/etc/passwd"])?.expect(126, "")?;
            Ok(())
        }),
        suite::trial("lifecycle::refusals::short_files", skips::no_userfaultfd, short_files),
        suite::trial("lifecycle::refusals::static_program", skips::no_userfaultfd, static_program),
        suite::trial("lifecycle::refusals::instrumenters", skips::no_userfaultfd, instrumenters),
        suite::trial("lifecycle::refusals::sanitized_program", no_sanitizer, sanitized_program),
        suite::trial("lifecycle::refusals::no_privilege", no_nobody, no_privilege),
    ]);
    trials
}

/// A run with `arguments` ends with 125, the message has `word`, and the program was never started.
fn refused(name: &str, arguments: &[&str], word: &str) -> Result<()> {
    let launch = Launch::new(name, arguments, &["touch", "started"])?;
    let marker = launch.directory.join("started");
    let ended = launch.run()?;
    ended.expect_refusal(&[word])?;
    ensure!(ended.code == REFUSED, "refused with {} instead of {REFUSED}: {}", ended.code, ended.stderr);
    ensure!(!marker.exists(), "the program was started all the same");
    Ok(())
}

/// A statically linked program is refused; on request it runs unmanaged, with a warning.
/// A limit on the length of files kills neither the launcher nor the program by the kernel's signal for it: the limit is named, or
/// the far file is as short as it must be.
fn short_files() -> Result<()> {
    run_with_short_files(100 << 10, &[])?.expect_refusal(&["ulimit -f"])?;
    run_with_short_files(64 << 20, &[])?.expect(0, "ran\n")?;
    run_with_short_files(64 << 20, &["--far", "file:far?size=1G"])?.expect_refusal(&["ulimit -f", "64 MiB"])?;
    Ok(())
}

fn run_with_short_files(bytes: u64, flags: &[&str]) -> Result<Ended> {
    let mut command = launcher()?;
    command.args(["run", "--quiet"]).args(flags).args(["echo", "ran"]);
    let prepare = move || {
        // Some parents ignore the signal.
        // SAFETY: no handler is set.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        Ok(setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes)?)
    };
    // SAFETY: both calls may be made between fork and exec.
    unsafe { command.pre_exec(prepare) };
    Launch::of("short-files", command)?.run()
}

fn static_program() -> Result<()> {
    let program = c_program("hold", &["-static"])?.display().to_string();
    let ended = Launch::new("static", &["--local", "16M"], &[&program, "32"])?.run()?;
    ended.expect_refusal(&["static"])?.expect(REFUSED, "")?;
    let ended = Launch::new("static-allowed", &["--local", "16M", "--allow-unmanaged"], &[&program, "32"])?.run()?;
    ended.expect(0, "done")?;
    ensure!(ended.stderr.contains("static"), "no warning: {}", ended.stderr);
    Ok(())
}

/// Programs that run others by means of their own, here shells with their names, are refused; on request they run unmanaged. In a run they and
/// what they start run unmanaged; where a guest would die of the filter of the inline path, that is said instead.
fn instrumenters() -> Result<()> {
    let directory = places::emptied(places::tests().join("lifecycle/instrumenters-named"))?;
    for name in ["qemu-x86_64", "proot", "rr", "drrun"] {
        let program = directory.join(name);
        places::copy_program(Path::new("/bin/sh"), &program)?;
        let program = program.display().to_string();
        let guest = "echo settings ${HINTERLAND_LOCAL:-none}";
        let launch = |flags: &[&str], words: &[&str]| {
            let flags = [&["--local", "16M"], flags].concat();
            Launch::new("instrumenters", &flags, words)?.run()
        };
        let itself = [program.as_str(), "-c", guest];
        launch(&[], &itself)?.expect_refusal(&[&format!("not started: {name} ")])?.expect(REFUSED, "")?;
        launch(&["--allow-unmanaged"], &itself)?.expect(0, "settings none\n")?;
        let script = format!("'{program}' -c '{guest}'; echo code $?");
        for path in ["monitor", "inline"] {
            let ended = launch(&["--fault-path", path], &["sh", "-c", &script])?;
            if (name, path) == ("proot", "inline") {
                ended.expect_refusal(&["its guests would die of; --fault-path monitor"])?;
                ended.expect(REFUSED, &format!("code {REFUSED}\n"))?;
            } else {
                ended.expect(0, "settings none\ncode 0\n")?;
            }
        }
    }
    Ok(())
}

fn sanitized_program() -> Result<()> {
    let program = c_program("hold", &["-fsanitize=address"])?.display().to_string();
    let ended = Launch::new("sanitized", &["--local", "16M"], &[&program, "32"])?.run()?;
    ended.expect_refusal(&["sanitizer", "asan"])?.expect(REFUSED, "")?;
    Ok(())
}

fn no_sanitizer() -> Option<String> {
    c_program("hold", &["-fsanitize=address"]).err().map(|_| "gcc has no AddressSanitizer here".into())
}

/// Somebody without the privilege who insists on the monitor gets the remedy instead of a half-managed program; otherwise the
/// program runs on the inline path.
fn no_privilege() -> Result<()> {
    // The build directory need not be readable for everybody: a copy is.
    let shared = places::emptied(std::env::temp_dir().join("hl-no-privilege"))?;
    let built = places::launcher()?.parent().context("the launcher is in a directory")?.to_owned();
    for name in ["hinterland", "libhinterland.so"] {
        places::copy_program(&built.join(name), &shared.join(name))?;
    }
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755))?;
    let run = |path: &str| -> Result<_> {
        let mut command = Command::new(shared.join("hinterland"));
        command.args(["run", "--local", "16M", "--fault-path", path, "--", "sleep", "0"]).env("HOME", &shared);
        let nobody = 65534;
        command.uid(Uid::from_raw(nobody).as_raw()).gid(Gid::from_raw(nobody).as_raw());
        let mut launch = Launch::of(&format!("no-privilege-{path}"), command)?;
        launch.set_directory(&shared);
        launch.run()
    };
    let (monitor, auto) = (run("monitor"), run("auto"));
    std::fs::remove_dir_all(&shared)?;
    monitor?.expect_refusal(&["privilege", "userfaultfd"])?.expect(REFUSED, "")?;
    let auto = auto?;
    ensure!(auto.code == 0, "auto ended with {}: {}", auto.code, auto.stderr);
    ensure!(auto.stderr.contains("fault path     inline"), "not on the inline path: {}", auto.stderr);
    Ok(())
}

fn no_nobody() -> Option<String> {
    let allowed = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let open = std::fs::metadata("/dev/userfaultfd").is_ok_and(|data| data.permissions().mode() & 0o006 != 0);
    let free = allowed.trim() == "1" || open;
    skips::not_root().or_else(|| free.then(|| "everybody may use userfaultfd on this machine".into()))
}
