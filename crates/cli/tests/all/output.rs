//! Files that commands write: none replaces what the command reads, and none is there in part.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn hinterland(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hinterland")).args(arguments).current_dir(directory).output().unwrap()
}

fn refused(output: &Output, says: &str) {
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(words.contains(says) && words.contains("name another"), "{words}");
}

/// What is in a directory, by name.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const IMPORT: [&str; 4] = ["trace", "import", "--from", "text"];
const PAGES: &str = "1\n2\n3\n";

#[test]
fn no_file_that_is_read_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (here, pages) = (directory.path(), directory.path().join("pages"));
    fs::write(&pages, PAGES).unwrap();
    symlink("pages", here.join("link")).unwrap();
    for (input, output) in [("pages", "pages"), ("./pages", "link"), ("link", "pages")] {
        let import = hinterland(here, &[&IMPORT[..], &[input, "-o", output]].concat());
        refused(&import, &format!("--output: {output} is the file that is read"));
    }
    let stdin = Command::new(env!("CARGO_BIN_EXE_hinterland"))
        .args([&IMPORT[..], &["-", "-o", "pages"]].concat())
        .current_dir(here)
        .stdin(fs::File::open(&pages).unwrap())
        .output();
    refused(&stdin.unwrap(), "--output: pages is the file that is read");
    assert_eq!(fs::read_to_string(&pages).unwrap(), PAGES);

    assert!(hinterland(here, &[&IMPORT[..], &["pages", "-o", "app.trace"]].concat()).status.success());
    let trace = fs::read(here.join("app.trace")).unwrap();
    refused(
        &hinterland(here, &["trace", "show", "app.trace", "--svg", "app.trace"]),
        "--svg: app.trace is the file that is read",
    );
    refused(
        &hinterland(here, &["tape", "app.trace", "--local", "16M", "-o", "app.trace"]),
        "--output: app.trace is the trace that is read",
    );
    assert_eq!(fs::read(here.join("app.trace")).unwrap(), trace);

    fs::write(here.join("run.json"), "{}").unwrap();
    for traces in [&["app.trace"][..], &["app.trace", "app.trace"]] {
        let words = [&["tape"], traces, &["--local", "16M", "--run", "./run.json", "-o", "run.json"]].concat();
        refused(&hinterland(here, &words), "--output: run.json is the figures that --run reads");
    }
    assert_eq!(fs::read_to_string(here.join("run.json")).unwrap(), "{}");
}

#[test]
fn no_run_replaces_its_program_or_what_it_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let script = "#!/bin/sh\ncat \"$1\"\n";
    fs::write(here.join("prog"), script).unwrap();
    fs::set_permissions(here.join("prog"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(here.join("data"), PAGES).unwrap();
    for (options, says) in [
        (["trace", "-o", "prog"], "--output: prog is the program"),
        (["trace", "-o", "data"], "--output: data is an argument of the program"),
        (["profile", "-o", "prog"], "--output: prog is the program"),
        (["profile", "-o", "data"], "--output: data is an argument of the program"),
        (["run", "--stats", "prog"], "--stats: prog is the program"),
        (["run", "--stats", "data"], "--stats: data is an argument of the program"),
    ] {
        refused(&hinterland(here, &[&options[..], &["--", "./prog", "data"]].concat()), says);
    }
    assert_eq!(fs::read_to_string(here.join("prog")).unwrap(), script);
    assert_eq!(fs::read_to_string(here.join("data")).unwrap(), PAGES);
}

#[test]
fn no_run_replaces_what_it_reads_nor_one_output_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("pages"), PAGES).unwrap();
    assert!(hinterland(here, &[&IMPORT[..], &["pages", "-o", "app.trace"]].concat()).status.success());
    assert!(hinterland(here, &["tape", "app.trace", "--local", "16M", "-o", "app.tape"]).status.success());
    fs::write(here.join("far.key"), [7; 32]).unwrap();
    fs::set_permissions(here.join("far.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let costs = "version = 1\n[[backend]]\nname = \"a\"\nlink = \"ssd\"\ncost = 0.1\n";
    for (name, content) in
        [("c.toml", ""), ("prog.plan", "p"), ("lib.so", "l"), ("costs", costs), ("prog", "#!/bin/sh\n")]
    {
        fs::write(here.join(name), content).unwrap();
    }
    fs::set_permissions(here.join("prog"), fs::Permissions::from_mode(0o755)).unwrap();
    let contents = || names(here).into_iter().map(|name| (fs::read(here.join(&name)).unwrap(), name));
    let before: Vec<_> = contents().collect();
    for (words, says) in [
        ("run --config c.toml --stats ./c.toml", "--stats: ./c.toml is the settings file"),
        ("run --key-file far.key --stats far.key", "--stats: far.key is a certificate or key of the run"),
        ("trace --key-file far.key -o far.key", "--output: far.key is a certificate or key of the run"),
        ("profile --tape app.tape -o app.tape", "--output: app.tape is a tape of the run"),
        ("run --tape ./app.tape --stats app.tape", "--stats: app.tape is a tape of the run"),
        ("run --placement auto --costs costs --stats costs", "--stats: costs is the cost file of the run"),
        ("run --stats lib.so", "--stats: lib.so is the library that is preloaded"),
        ("run --stats prog.plan", "--stats: prog.plan is the plan of the program"),
        ("trace -o same --stats ./same", "--stats: ./same is the file of --output"),
        ("profile -o same --stats same", "--stats: same is the file of --output"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
        command.args(words.split(' ')).args(["--", "./prog"]).current_dir(here);
        refused(&command.env("HINTERLAND_LIBRARY", "lib.so").output().unwrap(), says);
    }
    assert_eq!(contents().collect::<Vec<_>>(), before);
}

#[test]
fn what_fails_leaves_what_was_there_and_nothing_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("pages"), "1\n2\nthree\n").unwrap();
    let import = |output: &str| hinterland(here, &[&IMPORT[..], &["pages", "-o", output]].concat());
    assert_eq!(import("new.trace").status.code(), Some(125));
    fs::write(here.join("old.trace"), "old").unwrap();
    assert_eq!(import("old.trace").status.code(), Some(125));
    assert_eq!(fs::read_to_string(here.join("old.trace")).unwrap(), "old");
    assert_eq!(names(here), ["old.trace", "pages"]);

    // No more room than 8 blocks of 512 bytes, as on a disk that is full.
    let many: String = (0..20_000u64).map(|page| format!("{}\n", page * 7919 % 65_536)).collect();
    fs::write(here.join("pages"), many).unwrap();
    let line = format!("trap '' XFSZ; ulimit -f 8; exec {} \"$@\"", env!("CARGO_BIN_EXE_hinterland"));
    let output = Command::new("/bin/sh")
        .args([&["-c", &line, "sh"], &IMPORT[..], &["pages", "-o", "old.trace"]].concat())
        .current_dir(here)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(words.contains("old.trace: File too large"), "{words}");
    assert_eq!(fs::read_to_string(here.join("old.trace")).unwrap(), "old");
    assert_eq!(names(here), ["old.trace", "pages"]);

    fs::set_permissions(here.join("old.trace"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("old.trace", here.join("link")).unwrap();
    assert!(import("link").status.success());
    let of = here.join("old.trace").metadata().unwrap();
    assert!(of.len() > 20_000 && of.permissions().mode() & 0o777 == 0o640, "{of:?}");
    assert!(here.join("link").is_symlink());
    let device = Command::new(env!("CARGO_BIN_EXE_hinterland"))
        .args([&IMPORT[..], &["pages", "-o", "/dev/stdout"]].concat())
        .current_dir(here)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(device.stdout, fs::read(here.join("old.trace")).unwrap(), "a pipe is written to as it is");
}
