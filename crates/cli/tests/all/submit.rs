//! `hinterland submit` as a user runs it: the options of sbatch, and what is refused. The real Slurm is in the life cycle's tests.

use crate::sim::trace;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn submit(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().unwrap()
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let path = format!("{}", directory.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
    command.arg("submit").args(arguments).env("PATH", path).env("XDG_CACHE_HOME", directory);
    command
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn script(path: &Path, commands: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{commands}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_dry_run_prints_what_sbatch_would_be_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory).display().to_string();
    let said = |more: &[&str]| {
        let words =
            [&["--trace", &path, "--slowdown", "10", "--dry-run"][..], more, &["--", "/bin/job", "a b"]].concat();
        let output = submit(directory.path(), &words);
        assert!(output.status.success(), "{}", text(output.stderr));
        text(output.stdout)
    };
    script(&directory.path().join("sinfo"), "echo far-compressed,warm-compressed,far-ssd; echo far-ssd");
    let line = said(&["--backend", "compressed", "--sbatch=--time=5"]);
    assert!(line.starts_with("sbatch --job-name=job --mem=") && line.lines().count() == 1, "{line}");
    for word in [
        "--constraint=far-compressed --prefer=warm-compressed --time=5 ",
        " run --local ",
        "--far compressed --",
        "/bin/job",
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    // With less memory than it touches, 32 MiB, beside what a run needs of its own.
    let memory: u64 = line.split("--mem=").nth(1).and_then(|rest| rest.split('M').next()).unwrap().parse().unwrap();
    assert!((16 + 64..32 + 65).contains(&memory), "{line}");
    assert!(said(&["--backend", "ssd", "--sbatch=-Cgpu"]).contains("--constraint=gpu&far-ssd"));
    // In the example nodes are at `HOST`.
    let words = ["--trace", &path, "--slowdown", "10", "--backend", "node-25g", "--dry-run", "--", "job"];
    let output = submit(directory.path(), &words);
    let why = text(output.stderr);
    assert!(output.status.code() == Some(125) && why.contains("'tcp://HOST:7440'") && why.contains("--costs"), "{why}");
}

#[test]
fn sbatch_is_called_with_the_same_words_and_its_end_is_ours() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory).display().to_string();
    let words = ["--trace", &path, "--slowdown", "10", "--backend", "compressed", "--", "job"];
    let output = submit(directory.path(), &words);
    let said = text(output.stderr);
    assert!(output.status.code() == Some(125) && said.contains("is Slurm installed here?"), "{said}");
    script(&directory.path().join("sbatch"), "printf '%s\\n' \"$@\"; exit 7");
    let output = submit(directory.path(), &words);
    let told = text(output.stdout);
    assert_eq!(output.status.code(), Some(7));
    let told: Vec<&str> = told.lines().collect();
    assert_eq!((told.len(), told[0], told[2]), (4, "--job-name=job", "--constraint=far-compressed"));
    assert!(told[3].starts_with("--wrap=/") && told[3].ends_with(" -- job"), "{told:?}");
}

#[test]
fn what_cannot_be_submitted_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory).display().to_string();
    for (words, why) in [
        (&["--slurm", "--", "/bin/true"][..], "no trace of this program with these arguments is kept"),
        (&["--trace", "/nowhere.trace", "--", "job"], "/nowhere.trace: "),
        (&["--trace", &path, "--backend", "tape", "--", "job"], "'tape' is no backend; the cost file has compressed"),
        (&["--trace", &path, "--slowdown", "0.5", "--", "job"], "'0.5' is not a slowdown"),
        (&["--trace", &path], "PROGRAM"),
    ] {
        let output = submit(directory.path(), words);
        let said = text(output.stderr);
        assert!(output.status.code() == Some(125) && output.stdout.is_empty() && said.contains(why), "{said}");
    }
    // What is kept is of a heap, too.
    let of_large = command(directory.path(), &["--", "/bin/true"]).env("HINTERLAND_HEAP", "large").output().unwrap();
    let said = text(of_large.stderr);
    assert!(said.contains("kept for --heap large: `hinterland run --tape auto -- PROGRAM` keeps one"), "{said}");
}
