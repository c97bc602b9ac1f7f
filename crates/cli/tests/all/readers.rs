//! Readers that go away (`| head`) end no command with words, and places that cannot be written end none well.

use crate::launcher::{hinterland, shell};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How a command ends, and what it says, when its standard output goes to `out`.
fn ended(mut command: Command, out: Stdio) -> (Option<i32>, String) {
    let output = command.stdout(out).stdin(Stdio::null()).output().expect("the command");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A pipe that nobody reads.
fn gone() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    fs::File::options().write(true).open("/dev/full").expect("the device").into()
}

/// `hinterland ARGUMENTS` in a directory that has a trace, and of whose user there is no other run.
fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = hinterland();
    command.args(arguments).current_dir(directory).env("XDG_RUNTIME_DIR", directory);
    command
}

#[test]
fn who_stops_reading_changes_neither_the_code_nor_the_words() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("pages"), (0..2000).map(|page| format!("{page}\n")).collect::<String>()).unwrap();
    let import = command(here, &["trace", "import", "--from", "text", "pages", "-o", "app.trace"]);
    assert_eq!(ended(import, Stdio::null()).0, Some(0));
    for arguments in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["ps"],
        &["ps", "--json"],
        &["top", "--count", "1"],
        &["--help"],
        &["run", "--help"],
        &["completions", "bash"],
        &["trace", "show", "app.trace"],
        &["trace", "show", "app.trace", "--json"],
        &["sim", "app.trace", "--local", "16M"],
    ] {
        let read = ended(command(here, arguments), Stdio::null());
        assert_eq!(ended(command(here, arguments), gone()), read, "{arguments:?}");
    }
    let import = command(here, &["trace", "import", "--from", "text", "pages", "-o", "/dev/stdout"]);
    assert_eq!(ended(import, gone()), (Some(0), String::new()));
    let run = || shell(&["--stats", "-"], "exit 3");
    assert_eq!(ended(run(), gone()), (Some(3), String::new()));
}

#[test]
fn a_full_disk_is_an_error_of_every_command_that_prints() {
    let directory = tempfile::tempdir().unwrap();
    let help = [&["--help"][..], &["run", "--help"], &["--version"]];
    for arguments in [&["doctor"][..], &["completions", "zsh"], &["doctor", "--json"]].into_iter().chain(help) {
        let (code, words) = ended(command(directory.path(), arguments), full());
        assert_eq!((code, words.as_str()), (Some(125), "hinterland: stdout: No space left on device (os error 28)\n"));
    }
}

/// The figures of a run that wrote "out" to standard output, which is `out`.
fn run_with(directory: &Path, stats: &str, script: &str, out: Stdio) -> (Option<i32>, String) {
    let mut command = shell(&["--stats", stats], script);
    command.current_dir(directory);
    ended(command, out)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json["stats_version"].is_number())
}

#[test]
fn figures_that_cannot_be_written_end_no_run_well_and_leave_no_empty_file() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let said = "hinterland: --stats: /dev/full: the figures cannot be written: No space left on device (os error 28)\n";
    assert_eq!(run_with(here, "/dev/full", "true", Stdio::null()), (Some(125), said.into()));
    assert_eq!(run_with(here, "/dev/full", "exit 3", Stdio::null()), (Some(3), said.into()));
    let said = said.replace("/dev/full", "-");
    assert_eq!(run_with(here, "-", "true", full()), (Some(125), said));
    // A disk with room for names alone; mounted where only this command sees it.
    let script = format!(
        "mount -t tmpfs -o size=8k tmpfs . && cd . && cd \"$PWD\" && echo old > old.json && chmod 640 old.json && \
         head -c 1M /dev/zero > filler 2> /dev/null; for file in new.json old.json; do {} run --quiet --stats $file -- true; \
         echo $?; done; ls -A; cat old.json",
        env!("CARGO_BIN_EXE_hinterland")
    );
    let mut unshared = Command::new("unshare");
    unshared.args(["-m", "sh", "-c", &script]).current_dir(here).envs(library());
    let Ok(Output { stdout, stderr, .. }) = unshared.output() else { return eprintln!("skipped: no unshare") };
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if stderr.contains("mount") || stderr.contains("unshare") {
        return eprintln!("skipped: nothing can be mounted: {stderr}");
    }
    assert_eq!(stdout, "125\n125\nfiller\nold.json\nold\n", "{stderr}");
    assert_eq!(stderr.matches("No space left on device").count(), 2, "{stderr}");
}

/// The variables with which `hinterland()` starts.
fn library() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    let set = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| Some((name.into(), value?.into()));
    hinterland().get_envs().filter_map(set).collect()
}

#[test]
fn what_is_no_file_is_written_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    // A pipe: after the program's own words.
    for stats in ["-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"] {
        let output = shell(&["--stats", stats], "echo out").output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let json = stdout.strip_prefix("out\n").unwrap_or_else(|| panic!("{stats}: {stdout}"));
        assert!(is_json(json) && output.status.success() && output.stderr.is_empty(), "{stats}: {output:?}");
    }
    // A file behind the same names: what is there stays.
    for stats in ["-", "/dev/stdout"] {
        let out = fs::File::create(here.join("out")).unwrap();
        assert_eq!(run_with(here, stats, "echo out", out.into()), (Some(0), String::new()));
        let written = fs::read_to_string(here.join("out")).unwrap();
        assert!(written.strip_prefix("out\n").is_some_and(is_json), "{written}");
    }
    // A FIFO, and another descriptor.
    let script = format!(
        "mkfifo fifo; cat fifo > read & {} run --quiet --stats fifo -- true && wait && exec 7> seven && {} run --quiet --stats \
         /dev/fd/7 -- true",
        env!("CARGO_BIN_EXE_hinterland"),
        env!("CARGO_BIN_EXE_hinterland")
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(here).envs(library()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    for name in ["read", "seven"] {
        assert!(is_json(&fs::read_to_string(here.join(name)).unwrap()), "{name}");
    }
    assert!(fs::symlink_metadata(here.join("fifo")).unwrap().file_type().is_fifo());
    let (code, words) = run_with(here, "/dev/fd/0", "true", Stdio::null());
    assert!(code == Some(125) && words.contains("/dev/fd/0: the figures cannot be written: Bad file"), "{words}");
}

/// What a shell that traces a program in this folder leaves, and its standard error. `None`: skipped.
fn traced(directory: &Path, script: &str) -> Option<(Output, String)> {
    let output = Command::new("sh").args(["-c", script]).current_dir(directory).envs(library()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("was not managed") || words.contains("userfaultfd") {
        eprintln!("skipped: nothing is managed here: {words}");
        return None;
    }
    Some((output, words))
}

/// A trace has one writer, from its first byte to its last: a FIFO is not opened before.
#[test]
fn a_trace_goes_through_a_fifo() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "mkfifo fifo; cat fifo > read & {} trace --quiet -o fifo --local 16M -- true && wait",
        env!("CARGO_BIN_EXE_hinterland")
    );
    let Some((output, words)) = traced(directory.path(), &script) else { return };
    assert!(output.status.success() && words.is_empty(), "{words}");
    let trace = fs::read(directory.path().join("read")).unwrap();
    assert!(trace.starts_with(b"HLT"), "{trace:?}");
}

/// The reader of a trace goes away while the program runs: the program is traced no further, and does not learn of it.
#[test]
fn a_trace_without_a_reader_ends_and_the_program_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "mkfifo fifo; {{ : < fifo; : > gone; }} > /dev/null 2>&1 & {} trace --quiet -o fifo --local 16M -- \
         sh -c 'until [ -e gone ]; do :; done; exit 7'; code=$?; kill $! 2> /dev/null; exit $code",
        env!("CARGO_BIN_EXE_hinterland")
    );
    let Some((output, words)) = traced(directory.path(), &script) else { return };
    assert!(output.status.code() == Some(7) && words.contains("Broken pipe"), "{output:?}");
}

/// What is mounted, as containers do with one file, cannot be replaced by another: it is written over.
#[test]
fn a_file_that_is_mounted_is_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("outside.json"), "x".repeat(100_000)).unwrap();
    let script = format!(
        "touch stats.json && mount --bind outside.json stats.json && exec {} run --quiet --stats stats.json -- true",
        env!("CARGO_BIN_EXE_hinterland")
    );
    let mut unshared = Command::new("unshare");
    unshared.args(["-m", "sh", "-c", &script]).current_dir(here).envs(library());
    let Ok(output) = unshared.output() else { return eprintln!("skipped: no unshare") };
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("mount") || words.contains("unshare") {
        return eprintln!("skipped: nothing can be mounted: {words}");
    }
    assert!(output.status.success() && words.is_empty(), "{words}");
    assert!(is_json(&fs::read_to_string(here.join("outside.json")).unwrap()));
    assert_eq!(fs::read_dir(here).unwrap().count(), 2, "nothing is left beside it");
}

#[test]
fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("stats.json"), "old").unwrap();
    fs::set_permissions(here.join("stats.json"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("stats.json", here.join("link")).unwrap();
    // The program sees the old one to its end.
    let (code, words) = run_with(here, "link", "test $(cat stats.json) = old", Stdio::null());
    assert_eq!((code, words.as_str()), (Some(0), ""));
    let mode = fs::metadata(here.join("stats.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(is_json(&fs::read_to_string(here.join("stats.json")).unwrap()) && here.join("link").is_symlink());
    assert_eq!(fs::read_dir(here).unwrap().count(), 2, "nothing is left beside it");
    // What is not there yet is not there before the figures are.
    assert_eq!(run_with(here, "new.json", "test ! -e new.json", Stdio::null()).0, Some(0));
    assert!(is_json(&fs::read_to_string(here.join("new.json")).unwrap()));
}
