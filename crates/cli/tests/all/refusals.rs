//! Refusals come before the program starts, say what to do, and have their own exit code.

use crate::launcher::{hinterland, output};

/// Runs `touch FILE` with the flags and expects a refusal: the message, and no file.
fn refusal(flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("started");
    let (ended, _, stderr) = output(hinterland().arg("run").args(flags).args(["--", "touch"]).arg(&file));
    assert_eq!(ended.status.code(), Some(125), "{flags:?}: {stderr}");
    assert!(!file.exists(), "{flags:?}: the program was started all the same");
    stderr
}

#[test]
fn nonsense_is_refused_with_what_may_be_written() {
    let cases: [(&[&str], &str); 14] = [
        (&["--local", "12Q"], "hinterland: --local: '12Q' has an unknown unit; use K, M, G or T (powers of 1024)"),
        (
            &["--local", "-5"],
            "hinterland: --local: '-5' is not a size; write for example 512M or 2G, or a share such as 25%ram",
        ),
        (&["--local", "99999999T"], "hinterland: --local: '99999999T' is larger than any memory\n"),
        (&["--local", "1M"], "below the smallest budget, 16 MiB"),
        (&["--ram", "1G", "--local", "2G"], "--ram (1 GiB) is smaller than --local (2 GiB)"),
        (&["--far", "nonsense"], "hinterland: --far: 'nonsense'"),
        (&["--far", "file:/no/such/directory/far?size=1G"], "hinterland: --far: 'file:/no/such/directory/far?size=1G'"),
        (&["--stats", "/no/such/directory/stats.json"], "hinterland: --stats: /no/such/directory/stats.json"),
        (&["--fault-path", "sideways"], "'sideways' is no fault path; choose from auto, monitor, inline"),
        (&["--read-ahead", "9999"], "hinterland: --read-ahead: '9999' is not a number of pages from 0 to 512"),
        (
            &["--prefetch-cache", "512K"],
            "hinterland: --prefetch-cache: 512 KiB is below the smallest prefetch cache, 1 MiB",
        ),
        (&["--prefetch-cache", "1M", "--read-ahead", "65"], "four windows of --read-ahead 65 take more than 1 MiB"),
        (&["--evict", "random"], "choose from fifo, second-chance, s3-fifo, 2q"),
        (&["--config", "/no/such/file"], "hinterland: /no/such/file: the settings file cannot be read"),
    ];
    for (flags, message) in cases {
        let stderr = refusal(flags);
        assert!(stderr.contains(message), "{flags:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn far_memory_that_cannot_be_had_is_refused_where_it_is_written() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("c.toml");
    std::fs::write(&file, "far = \"file:/no/such/place\"\n").unwrap();
    let of_file = file.display().to_string();
    for (name, value, origin) in [
        ("HINTERLAND_FAR", "file:/no/such/place", "HINTERLAND_FAR".to_owned()),
        ("HINTERLAND_CONFIG", &of_file, format!("{of_file}: far")),
    ] {
        let (ended, _, stderr) = output(hinterland().env(name, value).args(["run", "--", "true"]));
        assert_eq!(ended.status.code(), Some(125), "{stderr}");
        assert!(stderr.starts_with(&format!("hinterland: {origin}: 'file:/no/such/place': ")), "{stderr}");
    }
}

#[test]
fn without_userfaultfd_the_remedy_is_named() {
    let stderr = refusal(&["--features", "no-uffd"]);
    assert!(stderr.contains("userfaultfd is switched off by --features no-uffd; leave that out"), "{stderr}");
}

#[test]
fn allow_unmanaged_runs_with_a_warning() {
    let flags = ["run", "--features", "no-uffd", "--allow-unmanaged", "--", "sh", "-c", "echo \"[$LD_PRELOAD]\""];
    let (ended, stdout, stderr) = output(hinterland().env_remove("LD_PRELOAD").args(flags));
    assert_eq!((ended.status.code(), stdout.as_str()), (Some(0), "[]\n"));
    assert!(stderr.contains("hinterland: warning: sh runs unmanaged"), "{stderr}");
    assert!(stderr.contains("not managed    userfaultfd is switched off"), "{stderr}");
}

#[test]
fn a_missing_library_is_refused() {
    let (ended, _, stderr) = output(hinterland().env("HINTERLAND_LIBRARY", "/no/such.so").args(["run", "--", "true"]));
    assert_eq!(ended.status.code(), Some(125));
    assert!(stderr.contains("/no/such.so is not a file; install libhinterland.so"), "{stderr}");
}

#[test]
fn a_small_address_space_is_refused() {
    for (limit, kibibytes) in [("-v", 10_000_000), ("-d", 100_000)] {
        let script = format!("ulimit {limit} {kibibytes}; exec {} run -- true", env!("CARGO_BIN_EXE_hinterland"));
        let mut command = std::process::Command::new("sh");
        let (ended, _, stderr) = output(command.args(["-c", &script]).env("XDG_CONFIG_HOME", "/nonexistent"));
        assert_eq!(ended.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(&format!("`ulimit {limit} unlimited`")), "{stderr}");
    }
}

#[test]
fn a_wrong_command_line_is_a_refusal_and_help_is_not() {
    let (ended, ..) = output(hinterland().args(["run", "--no-such-flag", "--", "true"]));
    assert_eq!(ended.status.code(), Some(125));
    let (ended, ..) = output(hinterland().arg("run"));
    assert_eq!(ended.status.code(), Some(125));
    for flags in [&["--help"][..], &["--version"], &["run", "--help"], &["doctor", "--help"]] {
        let (ended, stdout, _) = output(hinterland().args(flags));
        assert_eq!(ended.status.code(), Some(0), "{flags:?}");
        assert!(stdout.contains("hinterland"), "{stdout}");
    }
}

#[test]
fn what_is_wrong_with_words_and_files_is_said_with_what_to_do() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("text"), "hello\n").unwrap();
    std::fs::write(here.path().join("empty"), "").unwrap();
    let cases = [
        ("set job --local 1G", "invalid value 'job' for '<PID>': not the number of a process; write for example 4711"),
        ("set 4711 --local 1G --wait long", "not a whole number from 0 to 600; write for example --wait 60"),
        ("top --count 0", "not a whole number of at least 1; write for example --count 12"),
        ("top --interval 0", "not a time from 0.1 to 86400 seconds; write for example --interval 5"),
        ("tape text --local 50% --processors x", "not a whole number of at least 1; write for example --processors 2"),
        ("node --capacity 1G --drain-seconds 65536", "not a whole number from 0 to 65535"),
        ("node --capacity 1G --listen unix:sock --metrics x", "--metrics: 'x' is not HOST:PORT; write for example"),
        ("trace show empty", "hinterland: empty: the file is empty\n"),
        ("tape show empty", "hinterland: empty: the file is empty; plan the tape again from its trace\n"),
        (
            "sim .",
            "hinterland: .: a folder without traces, whose names would end in .trace; `hinterland trace -o FOLDER/",
        ),
        (
            "trace -o none/x.trace -- true",
            "--output: none/x.trace: its folder does not exist; make it first (mkdir -p)\n",
        ),
        (
            "run --stats . -- true",
            "--stats: .: the figures cannot be written: is a folder; name a file, which may be in it\n",
        ),
        ("tape text --local 50% -o", "a value is required for '--output <FILE>'"),
        (
            "report text",
            "it is no profile of Hinterland's: it is not JSON (line 1, column 1); make one with `hinterland profile",
        ),
        (
            "explain empty",
            "hinterland: empty: is empty; `hinterland run --stats FILE -- PROGRAM` writes such figures\n",
        ),
        ("run --config text -- true", "hinterland: text: is not TOML: line 1: "),
        (
            "man text",
            "hinterland: text: this is no folder, and the pages are files in one; name a folder, which is made",
        ),
        (
            "optimize --build= -- ./x",
            "hinterland: --build: is empty; write the command that builds the program, for example",
        ),
    ];
    for (words, message) in cases {
        let (ended, stdout, stderr) = output(hinterland().args(words.split(' ')).current_dir(here.path()));
        assert_eq!((ended.status.code(), stdout.as_str()), (Some(125), ""), "{words}: {stderr}");
        assert!(stderr.contains(message), "{words}: {stderr}");
    }
    let (ended, _, stderr) = output(hinterland().args(["run", "--", "--local", "1G", "true"]));
    assert_eq!(ended.status.code(), Some(127));
    assert!(
        stderr.contains("--local: no such program in PATH; Hinterland's own flags stand before the program"),
        "{stderr}"
    );
}

#[test]
fn the_doctor_speaks_text_and_json_and_agrees_with_itself() {
    let (text, ..) = output(hinterland().arg("doctor"));
    let (ended, stdout, _) = output(hinterland().args(["doctor", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let missing = json["checks"].as_array().unwrap().iter().any(|check| check["status"] == "missing");
    assert_eq!(json["ready"], !missing);
    assert_eq!(ended.status.code(), Some(i32::from(missing)));
    assert_eq!(text.status.code(), ended.status.code());
    let (ended, stdout, _) = output(hinterland().env("HINTERLAND_LIBRARY", "/no/such.so").arg("doctor"));
    assert_eq!(ended.status.code(), Some(1));
    assert!(stdout.contains("MISSING  library"), "{stdout}");
}
