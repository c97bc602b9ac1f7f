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
    let cases: [(&[&str], &str); 12] = [
        (&["--local", "12Q"], "hinterland: --local: '12Q' has an unknown unit; use K, M, G or T (powers of 1024)"),
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
    for limit in ["-v", "-d"] {
        let script = format!("ulimit {limit} 10000000; exec {} run -- true", env!("CARGO_BIN_EXE_hinterland"));
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
fn the_doctor_speaks_text_and_json_and_agrees_with_itself() {
    let (text, ..) = output(hinterland().arg("doctor"));
    let (ended, stdout, _) = output(hinterland().args(["doctor", "--format", "json"]));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let missing = json["checks"].as_array().unwrap().iter().any(|check| check["status"] == "missing");
    assert_eq!(json["ready"], !missing);
    assert_eq!(ended.status.code(), Some(i32::from(missing)));
    assert_eq!(text.status.code(), ended.status.code());
    let (ended, stdout, _) = output(hinterland().env("HINTERLAND_LIBRARY", "/no/such.so").arg("doctor"));
    assert_eq!(ended.status.code(), Some(1));
    assert!(stdout.contains("MISSING  library"), "{stdout}");
}
