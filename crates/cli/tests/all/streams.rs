//! Standard streams stay the program's; the figures come after.

use crate::launcher::{hinterland, output, shell};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[test]
fn stdin_and_stdout_pass_through() {
    let mut command = hinterland();
    command.args(["run", "--quiet", "--", "sort", "-n"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"10\n9\n8\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"8\n9\n10\n");
}

#[test]
fn a_standard_stream_that_is_closed_is_closed_in_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"exec 9> "$0"; for n in 0 1 2; do [ ! -e /proc/$$/fd/$n ] || echo $n >&9; done"#;
    for closed in 0..3 {
        let said = dir.path().join(closed.to_string());
        let mut command = hinterland();
        command.args(["run", "--quiet", "--", "sh", "-c", script]).arg(&said);
        // SAFETY: close(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::close(closed);
                Ok(())
            });
        }
        assert_eq!(command.status().unwrap().code(), Some(0), "{closed}");
        let open: String = (0..3).filter(|stream| *stream != closed).map(|stream| format!("{stream}\n")).collect();
        assert_eq!(std::fs::read_to_string(said).unwrap(), open, "{closed} is closed");
    }
}

#[test]
fn the_programs_own_flags_are_its_own() {
    for separator in [&["--"][..], &[]] {
        let mut command = hinterland();
        command.args(["run", "--quiet"]).args(separator).args(["echo", "--stats", "-n", "--", "--help"]);
        assert_eq!(output(&mut command).1, "--stats -n -- --help\n");
    }
}

#[test]
fn a_script_without_an_interpreter_gets_all_of_its_many_arguments() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "echo $# $1 ${50000}\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = (1..=50_000).map(|number| if number == 50_000 { "z" } else { "a" });
    let (ended, stdout, stderr) = output(hinterland().args(["run", "--quiet", "--"]).arg(&script).args(words));
    assert_eq!((ended.status.code(), &*stdout), (Some(0), "50000 a z\n"), "{stderr}");
}

#[test]
fn the_summary_goes_to_stderr_and_quiet_silences_it() {
    let (_, stdout, stderr) = output(hinterland().args(["run", "--", "echo", "words"]));
    assert_eq!(stdout, "words\n");
    assert!(stderr.contains("\n  program        echo ended with exit code 0 after "), "{stderr}");
    let (_, _, stderr) = output(hinterland().args(["run", "--quiet", "--", "echo", "words"]));
    assert!(!stderr.contains("hinterland: "), "{stderr}");
}

#[test]
fn the_figures_follow_the_programs_output() {
    let (ended, stdout, _) = output(&mut shell(&["--stats", "-", "--local", "64M"], "echo first; exit 7"));
    let json = stdout.strip_prefix("first\n").expect("the program's output comes first");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!((ended.status.code(), &json["exit_code"]), (Some(7), &7.into()));
    assert_eq!(json["local_budget_bytes"], 64 << 20);
    assert!(json["wall_seconds"].as_f64().unwrap() > 0.0);
    assert!(json["process_rss_peak_bytes"].as_u64().unwrap() > 100_000);
}

#[test]
fn figures_replace_an_older_file_and_survive_a_closed_stderr() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stats.json");
    std::fs::write(&path, "x".repeat(100_000)).unwrap();
    let (ended, ..) = output(&mut shell(&["--stats", path.to_str().unwrap()], "exec 2>&-; kill -9 $$"));
    assert!(ended.status.code().is_none());
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&json["exit_code"], &json["signal"]), (&137.into(), &9.into()));
}

/// A standard error that cannot be written: a pipe without a reader, and a full disk.
fn unwritable() -> [Stdio; 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    [writer.into(), std::fs::File::options().write(true).open("/dev/full").unwrap().into()]
}

#[test]
fn a_standard_error_that_cannot_be_written_changes_no_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    for (number, words) in ["run", "trace -o trace", "trace -o folder/", "profile -o profile"].iter().enumerate() {
        for (at, stderr) in unwritable().into_iter().enumerate() {
            let here = dir.path().join(format!("{number}-{at}"));
            std::fs::create_dir(&here).unwrap();
            let mut command = hinterland();
            command.args(words.split(' ')).args(["--local", "64M", "--", "sh", "-c", "exit 3"]);
            let ended = command.current_dir(&here).stderr(stderr).status().unwrap();
            assert_eq!(ended.code(), Some(3), "{words}: {ended:?}");
        }
    }
    let profile = std::fs::read(dir.path().join("3-0/profile")).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&profile).is_ok());
}

/// What the launcher writes while the program runs, and none can read, brings a SIGPIPE to the launcher alone. A
/// folder in the place of its socket has it write something; when it has passed on a later signal, it has dealt with
/// that one.
#[test]
fn a_broken_pipe_of_the_launchers_is_none_of_the_programs() {
    let script = r#"trap 'echo broken' PIPE; trap 'n=1' USR1; kill -USR1 $PPID
        while [ -z "$n" ]; do sleep 0.02; done; echo end"#;
    let run = |stderr: Stdio| {
        let dir = tempfile::tempdir().unwrap();
        let launcher = shell(&[], script);
        let mut command = Command::new("sh");
        command.args(["-c", r#"mkdir -p "$XDG_RUNTIME_DIR/hinterland/$$/x" && exec "$0" "$@""#]);
        command.arg(launcher.get_program()).args(launcher.get_args());
        command.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("XDG_RUNTIME_DIR", dir.path()).stdout(Stdio::piped()).stderr(stderr);
        let ended = command.spawn().unwrap().wait_with_output().unwrap();
        let [stdout, stderr] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (ended.status.code(), stdout, stderr)
    };
    let (code, stdout, stderr) = run(Stdio::piped());
    assert!(
        (code, &*stdout) == (Some(0), "end\n") && stderr.contains("will not know this run"),
        "{code:?} {stdout} {stderr}"
    );
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (code, stdout, _) = run(writer.into());
    assert_eq!((code, &*stdout), (Some(0), "end\n"));
}

#[test]
fn peaks_of_a_program_that_lives_a_while_are_sampled() {
    let lives = |seconds: u32| {
        let script = format!("x=$(head -c 20000000 /dev/zero | tr '\\0' x); sleep {seconds}");
        let unmanaged = ["--stats", "-", "--allow-unmanaged", "--features", "no-uffd"];
        let (_, stdout, _) = output(&mut shell(&unmanaged, &script));
        serde_json::from_str::<serde_json::Value>(&stdout).unwrap()
    };
    let peaks = |json: &serde_json::Value| {
        let anonymous = &json["unmanaged"]["anonymous_bytes"];
        [&json["process_rss_peak_bytes"], &json["tree_pss_peak_bytes"], anonymous].map(|peak| peak.as_u64().unwrap())
    };
    // Where the machine is too busy for a sample in so short a life, a longer one has it.
    let mut lived = [1, 4, 16, 64].into_iter().map(lives);
    let json = lived.find(|json| peaks(json).iter().all(|peak| *peak > 20_000_000)).expect("the peaks are sampled");
    assert_eq!(json["unmanaged"]["source"], "sampled");
    assert_eq!(json["managed_share_of_anonymous"], 0.0);
}
