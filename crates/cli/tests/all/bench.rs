//! `hinterland bench` is another program, which lies beside the launcher or in PATH.

use crate::launcher::output;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with the launcher in it. (A link: /proc/self/exe names it by the place that it was started from.)
fn installed() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let launcher = directory.path().join("hinterland");
    fs::hard_link(env!("CARGO_BIN_EXE_hinterland"), &launcher).unwrap();
    (directory, launcher)
}

/// `hinterland bench`, with a shell in the bench's place that says what it was given.
fn said(launcher: &Path, search: &Path) -> String {
    let mut command = Command::new(launcher);
    command.args([
        "bench",
        "-c",
        r#"printf '%s,' "$@"; exit 7"#,
        "sh",
        "--help",
        "paging",
        "--size",
        "1 G",
        "--",
        "-x",
    ]);
    let (ended, stdout, stderr) = output(command.env("PATH", search));
    assert_eq!(ended.status.code(), Some(7), "{stderr}");
    stdout
}

#[test]
fn the_bench_gets_every_word_and_its_exit_code_is_passed_on() {
    let (directory, launcher) = installed();
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for place in [&elsewhere, directory.path()] {
        symlink("/bin/sh", place.join("hinterland-bench")).unwrap();
        assert_eq!(said(&launcher, &elsewhere), "--help,paging,--size,1 G,--,-x,");
    }
}

#[test]
fn where_the_bench_is_not_installed_the_way_to_it_is_named() {
    let (directory, launcher) = installed();
    let (_, help, _) = output(Command::new(&launcher).arg("--help"));
    assert!(help.contains("doctor") && !help.contains("bench"), "{help}");
    for words in [&["bench"][..], &["bench", "--help"], &["bench", "paging", "--size", "1G"]] {
        let (ended, stdout, stderr) = output(Command::new(&launcher).args(words).env("PATH", directory.path()));
        assert_eq!((ended.status.code(), stdout.as_str()), (Some(125), ""), "{words:?}: {stderr}");
        let home = directory.path().canonicalize().unwrap();
        let place = format!("hinterland-bench is not installed: it is neither in {} nor in PATH", home.display());
        assert!(stderr.contains(&place), "{stderr}");
        assert!(stderr.contains("cargo build --release -p hinterland-bench"), "{stderr}");
    }
}
