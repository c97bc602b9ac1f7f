//! The launcher ends as the program ended.

use crate::launcher::{child_of, hinterland, output, send, shell, start_until_ready, state, wait_until};
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

#[test]
fn every_exit_code_is_passed_on() {
    for code in 0..=255 {
        let (ended, ..) = output(&mut shell(&[], &format!("exit {code}")));
        assert_eq!(ended.status.code(), Some(code));
    }
}

#[test]
fn death_by_a_signal_is_passed_on() {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGINT, libc::SIGABRT, libc::SIGPIPE] {
        let (ended, ..) = output(&mut shell(&[], &format!("kill -{signal} $$")));
        assert_eq!(ended.status.signal(), Some(signal));
    }
    // One that no shell can name and no table knows.
    let (ended, ..) = output(&mut shell(&[], "kill -40 $$"));
    assert_eq!(ended.status.code(), Some(128 + 40));
}

#[test]
fn programs_that_cannot_be_started() {
    for (program, code) in [("/no/such/program", 127), ("no-such-program", 127), ("/tmp", 126), ("/etc/passwd", 126)] {
        let (ended, _, stderr) = output(hinterland().args(["run", "--", program]));
        assert_eq!(ended.status.code(), Some(code), "{program}");
        assert!(stderr.starts_with(&format!("hinterland: {program}: ")), "{stderr}");
    }
    // Executable by its permissions, and nothing would ever write into it.
    let dir = tempfile::tempdir().unwrap();
    let (fifo, search) = (dir.path().join("true"), dir.path().display());
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (ended, _, stderr) = output(hinterland().args(["run", "--"]).arg(&fifo));
    assert_eq!(ended.status.code(), Some(126), "{stderr}");
    assert!(stderr.contains("cannot be executed: it is no regular file"), "{stderr}");
    let next = format!("{search}:{}", std::env::var("PATH").unwrap());
    for (search, code) in [(search.to_string(), 126), (next, 0)] {
        let (ended, _, stderr) = output(hinterland().env("PATH", search).args(["run", "--quiet", "--", "true"]));
        assert_eq!(ended.status.code(), Some(code), "{stderr}");
    }
    // Executable by its permissions, refused by the kernel alone: the ELF header promises a loader that is not there.
    let path = dir.path().join("orphan");
    let mut gcc = Command::new("gcc");
    gcc.args(["-x", "c", "-", "-Wl,--dynamic-linker=/nonexistent/ld-linux-x86-64.so.2", "-o"]).arg(&path);
    let mut gcc = gcc.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut gcc.stdin.take().unwrap(), b"int main(void) { return 0; }").unwrap();
    assert!(gcc.wait().unwrap().success());
    let (ended, _, stderr) = output(hinterland().args(["run", "--"]).arg(&path));
    assert_eq!(ended.status.code(), Some(126), "{stderr}");
    assert!(stderr.contains("loader does not exist"), "{stderr}");
}

#[test]
fn a_killed_launcher_leaves_nothing_behind() {
    let listing = |directory: &str| {
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        names.retain(|name| name.contains("hinterland"));
        names.sort();
        names
    };
    let before = (listing("/dev/shm"), listing("/tmp"));
    let mut launcher = start_until_ready(&mut shell(&["--local", "64M"], "printf ready; exec sleep 1000"));
    let program = child_of(launcher.id());
    send(launcher.id(), Signal::SIGKILL);
    launcher.wait().unwrap();
    wait_until("the program dies with its launcher", || matches!(state(program), None | Some('Z' | 'X')));
    assert_eq!((listing("/dev/shm"), listing("/tmp")), before);
}

#[test]
fn the_program_knows_its_own_name_and_settings() {
    let script = r#"echo "$HINTERLAND_LOCAL $HINTERLAND_HEAP ${HINTERLAND_STATS-unset} ${LD_PRELOAD##*/}"; test -e "$HINTERLAND_LEDGER" && echo ledger"#;
    let mut command = shell(&["--local", "64M", "--heap", "large", "--stats", "/dev/null"], script);
    let (_, stdout, stderr) = output(command.env_remove("LD_PRELOAD"));
    assert!(stdout.starts_with("67108864 large unset lib"), "{stdout}{stderr}");
    assert!(stdout.ends_with("ledger\n"), "{stdout}{stderr}");
    // What is as it is by itself is not said: a launcher inside would take it for the user's word.
    let (_, stdout, _) = output(&mut shell(&[], "echo ${HINTERLAND_PREFETCH-unset}"));
    assert_eq!(stdout, "unset\n");
    // What is said is, also where it is as it is by itself: else the settings file would count inside.
    let (_, stdout, _) = output(&mut shell(&["--prefetch", "auto"], "echo ${HINTERLAND_PREFETCH-unset}"));
    assert_eq!(stdout, "auto\n");
    let (_, stdout, _) = output(hinterland().args(["run", "--quiet", "--", "cat", "/proc/self/cmdline"]));
    assert_eq!(stdout, "cat\0/proc/self/cmdline\0");
}
