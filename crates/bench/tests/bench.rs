//! The bench as a user runs it: its JSON's names, its refusals, and that it leaves the machine as it was, however it ends.

use hinterland_testkit::{HANG, wait_until};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// There is one device.
static ZRAM: Mutex<()> = Mutex::new(());

/// `hinterland bench WHAT`.
fn bench(what: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland-bench"));
    command.arg(what);
    command
}

/// The launcher that the bench looks for beside itself: a build of this crate alone has none.
fn with_launcher() {
    let bench = Path::new(env!("CARGO_BIN_EXE_hinterland-bench"));
    if bench.with_file_name("hinterland").is_file() {
        return;
    }
    let built = bench.parent().expect("a directory of the profile");
    let profile = match built.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", "hinterland-cli", "--profile", profile, "--target-dir"]);
    assert!(build.arg(built.parent().expect("target")).status().unwrap().success());
}

#[test]
fn the_json_has_the_promised_names() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let status = bench("paging")
        .args(["--rivals-only", "--against", "all-local", "--size", "32M", "--threads", "1,2", "--repeat", "3"])
        .args(["--pattern", "sequential,random,stride-10,zipf,write,hot-scan", "--json", "--output"])
        .arg(&file)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(report["size_bytes"], 32 << 20);
    assert_eq!(report["local_bytes"], 16 << 20);
    for name in ["command", "date", "machine", "ratios"] {
        assert!(!report[name].is_null(), "{name}");
    }
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    for row in rows {
        assert_eq!((row["system"].as_str(), row["ended"].as_str()), (Some("all-local"), Some("ok")), "{row}");
        let seconds = ["min", "median", "max"].map(|name| row["seconds"][name].as_f64().unwrap());
        assert!(seconds[0] > 0.0 && seconds.is_sorted(), "{row}");
        for name in
            ["pattern", "threads", "accesses", "major_faults", "us_per_access", "cpu_seconds", "total_ram_bytes"]
        {
            assert!(!row[name].is_null(), "{name}: {row}");
        }
        assert!(row.as_object().unwrap().contains_key("us_per_major_fault"));
        assert!(
            row["total_ram_bytes"].as_u64().unwrap() >= 32 << 20,
            "the data is resident when RAM is measured: {row}"
        );
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_set_up() {
    for (arguments, says) in [
        (&["--size", "64M", "--local", "64M"][..], "nothing would be paged"),
        (&["--pattern", "backwards"], "backwards"),
        (&["--threads", "0"], "at least 1"),
    ] {
        let output = bench("paging").args(arguments).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    let output = bench("programs").args(["--program", "tetris"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no program 'tetris': sqlite"));
    let help = bench("programs").arg("--help").output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--page-cluster"));
}

/// Each script that starts programs, after it has imported what it needs.
#[test]
fn scripts_take_nothing_that_the_user_has_set() {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches");
    let files = fs::read_dir(&benches).unwrap().map(|entry| entry.unwrap().path());
    let scripts = files.filter(|path| path.extension().is_some_and(|extension| extension == "py"));
    let starts =
        |path: &Path| ["subprocess", "posix_spawn"].iter().any(|word| fs::read_to_string(path).unwrap().contains(word));
    let mut count = 0;
    for script in scripts.filter(|path| starts(path)) {
        let name = script.file_stem().unwrap().to_str().unwrap().to_owned();
        let said = "import os; print(*sorted(f'{name}={value}' for name, value in os.environ.items() if name.startswith('HINTERLAND_')))";
        let output = Command::new("python3")
            .current_dir(&benches)
            .args(["-B", "-c", &format!("import {name}; {said}")])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs([("HINTERLAND_TAPE", "auto"), ("HINTERLAND_CONFIG", "/etc/mine.toml"), ("HINTERLAND_CPUS", "1")])
            .envs([("HINTERLAND_LIBRARY", "/lib/mine.so"), ("HINTERLAND_TEST_FULL", "0")])
            .output()
            .unwrap();
        let environment = String::from_utf8_lossy(&output.stdout).into_owned();
        let wanted = "HINTERLAND_CONFIG=/dev/null HINTERLAND_LIBRARY=/lib/mine.so HINTERLAND_TEST_FULL=0\n";
        assert_eq!(environment, wanted, "{name}: {}", String::from_utf8_lossy(&output.stderr));
        count += 1;
    }
    assert!(count > 10, "{count} scripts in {}", benches.display());
}

#[test]
fn a_wrong_command_line_is_a_refusal_and_help_names_the_users_command() {
    let output = bench("nonsense").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let output = bench("--help").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    assert!(said.contains("Usage: hinterland bench <COMMAND>"), "{said}");
    let output = bench("paging").arg("--help").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Usage: hinterland bench paging"), "{said}");
}

#[test]
fn prefetching_is_not_measured_over_nonsense() {
    for (arguments, says) in [
        (&["--size", "8M"][..], "half of it is local, and that must be at least 16 MiB"),
        (&["--link", "5us"], "'5us' is no link"),
        (&["--prefetcher", "oracle"], "'oracle' is no prefetcher"),
        (&["--repeat", "0"], "at least 1"),
    ] {
        let output = bench("prefetch").args(arguments).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn a_report_of_prefetchers_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let (report, picture) = (directory.path().join("report.json"), directory.path().join("picture.svg"));
    let row = |prefetcher: &str, us: f64| {
        serde_json::json!({
            "link": "5us:25Gb/s", "pattern": "interleaved-2", "prefetcher": prefetcher, "cut_short": false, "ended": "ok",
            "distribution": [[0.5, us], [0.99, us * 10.0]], "round_us": [], "round_quantiles_us": [],
            "round_major_faults_per_access": [],
        })
    };
    let machine = serde_json::json!({"cpu": "", "cores": 1, "ram_bytes": 0, "kernel": ""});
    let text = serde_json::json!({
        "bench": "prefetch", "command": [], "version": "", "date": "", "machine": machine, "size_bytes": 1 << 26,
        "far": "compressed", "fault_path": "auto", "repeat": 1, "seed": 1, "targets": [],
        "rows": [row("none", 7.0), row("streams", 0.1)],
    });
    fs::write(&report, text.to_string()).unwrap();
    let status = bench("plot").args([&report, &Path::new("-o").into(), &picture]).status().unwrap();
    assert!(status.success());
    let picture = fs::read_to_string(&picture).unwrap();
    assert!(["interleaved-2, 5us:25Gb/s", "none", "streams"].iter().all(|words| picture.contains(words)));
}

#[test]
fn reports_of_scripts_that_have_figures_are_drawn_as_panels() {
    let directory = tempfile::tempdir().unwrap();
    let (report, picture) = (directory.path().join("report.json"), directory.path().join("picture.svg"));
    for name in ["daemon", "tape-sweeps", "granularity", "placement", "slowdown", "features", "xdm"] {
        let figure = serde_json::json!({
            "figure": "1", "caption": "A panel", "measure": "MiB", "groups": ["stream"], "series": {"least by hand": [64.0]},
        });
        let text = serde_json::json!({"bench": name, "what": format!("of {name}"), "figures": [figure]});
        fs::write(&report, text.to_string()).unwrap();
        let status = bench("plot").args([&report, &Path::new("-o").into(), &picture]).status().unwrap();
        assert!(status.success(), "{name}");
        let picture = fs::read_to_string(&picture).unwrap();
        assert!(
            [&format!("of {name}"), "Figure 1: A panel", "least by hand"].iter().all(|words| picture.contains(*words))
        );
    }
}

/// Here is no library that could manage a program, so what needs one is left out and said.
#[test]
fn nodes_are_measured_without_a_program_too() {
    with_launcher();
    let output = bench("nodes").args(["--repeat", "1", "--scale", "10", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in [
        "raw_round_trip_us_p50",
        "raw_stream_bytes_per_second",
        "tcp_load_us_p50",
        "node_cpu_us_per_read",
        "node_beside_slabs_bytes",
        "write_back_bytes_per_second",
        "write_back_2_replicas_bytes_per_second",
    ] {
        assert!(report["figures"][name]["median"].as_f64().is_some_and(|figure| figure != 0.0), "{name}: {report}");
    }
    let has = |name: &str| !report["figures"][name].is_null() || !report["skipped"][name].is_null();
    for name in ["tcp_fault_us_p50", "encrypted_fault", "scan_bytes_per_second", "memcached_cpu_us_per_get"] {
        assert!(has(name) || has(&format!("{name}_us_p50")), "{name}: {report}");
    }
    assert!(report["targets"].as_array().is_some_and(|targets| targets.len() >= 3), "{report}");
}

/// What the bench may change on a machine.
#[derive(PartialEq, Debug)]
struct Machine {
    swaps: String,
    page_cluster: String,
    zram: String,
    groups: Vec<String>,
    files: usize,
}

impl Machine {
    fn look(disk: &Path) -> Machine {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
        let groups = roots.iter().filter_map(|root| fs::read_dir(root).ok()).flatten().flatten();
        let names = groups.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Machine {
            swaps: text("/proc/swaps").lines().skip(1).collect(),
            page_cluster: text("/proc/sys/vm/page-cluster"),
            zram: text("/sys/block/zram0/initstate"),
            groups: names.filter(|name| name.starts_with("hinterland-bench")).collect(),
            files: fs::read_dir(disk).map_or(0, Iterator::count),
        }
    }

    /// Whether the kernel's rivals can be tried here.
    fn can_swap(&self) -> bool {
        nix::unistd::geteuid().is_root() && self.swaps.is_empty() && self.zram.trim() == "0" && self.groups.is_empty()
    }
}

fn start_rivals(disk: &Path) -> Child {
    bench("paging")
        .args(["--rivals-only", "--against", "zram,ssd-swap", "--size", "64M", "--local", "32M", "--pattern", "random"])
        .args(["--repeat", "1000", "--disk"])
        .arg(disk)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// While it runs a program, it has a directory with what that reads and writes. The program does not end by itself, and writes until it ends.
#[test]
fn a_bench_that_is_ended_leaves_neither_files_nor_programs() {
    use nix::sys::signal::{Signal, kill};
    use procfs::process::{Process, all_processes};
    with_launcher();
    let (temporary, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sort = programs.path().join("sort");
    // Its fifth argument is the file to write.
    let writes =
        "#!/bin/sh\nexec 2>/dev/null\nfile=0\nwhile :; do file=$(((file + 1) % 1000)); echo > \"$5.$file\"; done\n";
    fs::write(&sort, writes).unwrap();
    fs::set_permissions(&sort, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let mut child = bench("programs-local")
        .args(["--program", "sort"])
        .envs([("TMPDIR", temporary.path().as_os_str()), ("PATH", path.as_ref())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bench = i32::try_from(child.id()).unwrap();
    let program = || {
        let mut stats = all_processes().unwrap().flatten().filter_map(|process| process.stat().ok());
        stats.find(|stat| stat.ppid == bench && stat.comm == "sort").map(|stat| stat.pid)
    };
    wait_until("a program", || program().is_some());
    let program = program().unwrap();
    let directories: Vec<_> = fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(directories.len(), 1);
    wait_until("files of the program", || fs::read_dir(&directories[0]).unwrap().count() > 100);
    kill(nix::unistd::Pid::from_raw(bench), Signal::SIGTERM).unwrap();
    assert!(!child.wait().unwrap().success());
    let is_left = || Process::new(program).and_then(|process| process.stat()).is_ok_and(|stat| stat.state != 'Z');
    let begun = Instant::now();
    while is_left() && begun.elapsed() < HANG {
        std::thread::sleep(Duration::from_millis(2));
    }
    let was_left = is_left();
    if was_left {
        kill(nix::unistd::Pid::from_raw(program), Signal::SIGKILL).unwrap();
    }
    assert!(!was_left, "the program goes on");
    wait_until("no files", || fs::read_dir(temporary.path()).unwrap().count() == 0);
}

#[test]
fn a_program_is_measured_beside_the_kernel_at_equal_ram() {
    if std::env::var_os("HINTERLAND_TEST_FULL").is_none_or(|value| value != "1") {
        eprintln!("skipped: only with --full");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let _zram = ZRAM.lock().unwrap();
    let before = Machine::look(directory.path());
    if !before.can_swap() {
        eprintln!("skipped: needs root, a free zram0, and no swap in use");
        return;
    }
    with_launcher();
    let (file, picture) = (directory.path().join("report.json"), directory.path().join("report.svg"));
    let output = bench("programs")
        .args([
            "--program",
            "sqlite",
            "--size",
            "64M",
            "--local",
            "50",
            "--rounds",
            "1",
            "--page-cluster",
            "0",
            "--json",
        ])
        .arg("--output")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let row = &report["rows"][0];
    assert_eq!((row["program"].as_str(), row["ended"].as_str()), (Some("sqlite"), Some("ok")), "{said}");
    for system in ["native", "hinterland", "zram"] {
        let run = &row["runs"][system][0];
        assert!(
            run["seconds"].as_f64().unwrap() > 0.0 && run["cpu_seconds"].as_f64().unwrap() > 0.0,
            "{system}: {run}"
        );
        let faults = run["major_faults"].as_u64().unwrap();
        assert!(system == "native" || faults > 100, "{system}: {run}");
    }
    let ram = |system: &str| row["runs"][system][0]["total_ram_peak_bytes"].as_f64().unwrap();
    assert!(ram("zram") > 0.9 * ram("hinterland") && ram("hinterland") < ram("native") * 1.5, "{row}");
    let drawn =
        Command::new(env!("CARGO_BIN_EXE_hinterland-bench")).arg("plot").arg(&file).arg("-o").arg(&picture).status();
    assert!(drawn.unwrap().success() && fs::read_to_string(&picture).unwrap().contains("sqlite"));
    fs::remove_file(&file).and_then(|()| fs::remove_file(&picture)).unwrap();
    assert_eq!(Machine::look(directory.path()), before);
}

#[test]
fn a_command_of_another_bench_gets_the_limit_with_which_it_takes_as_much_ram_as_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let _zram = ZRAM.lock().unwrap();
    let before = Machine::look(directory.path());
    if !before.can_swap() {
        eprintln!("skipped: needs root, a free zram0, and no swap in use");
        return;
    }
    let measured = |options: &[&str]| -> Value {
        let made = "made = [(b'%d' % i) * 600 for i in range(25000)]; print(sum(map(sum, made)))";
        let output = bench("measure").args(options).args(["--", "python3", "-c", made]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let bytes = |of: &Value| of.as_u64().unwrap();
    let native = measured(&[]);
    let total = bytes(&native["run"]["total_ram_peak_bytes"]);
    let found = measured(&["--ram", &(total / 4 * 3).to_string()]);
    let (chosen, peak) = (&found["chosen"], bytes(&found["native"]["anonymous_peak_bytes"]));
    assert!(bytes(&chosen["limit_bytes"]) < total && bytes(&chosen["total_ram_peak_bytes"]) < total, "{found}");
    let limit = bytes(&chosen["limit_bytes"]).to_string();
    let limited = measured(&["--limit", &limit, "--peak", &peak.to_string()]);
    assert!(bytes(&limited["run"]["zram_peak_bytes"]) > 1 << 20, "{limited}");
    assert!(native["digest"] == found["digest"] && native["digest"] == limited["digest"], "{native} {limited}");
    assert!(bytes(&limited["run"]["swapped_out_bytes"]) > 1 << 20, "{limited}");
    assert_eq!(Machine::look(directory.path()), before);
    // A directory on a disk: /tmp may be no place to swap to.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let on_disk = ["--swap-file", disk.path().to_str().unwrap(), "--page-cluster", "0,3"];
    let found = measured(&[&on_disk[..], &["--ram", &(total / 4 * 3).to_string()]].concat());
    let clusters: Vec<_> = found["trials"].as_array().unwrap().iter().map(|trial| &trial["page_cluster"]).collect();
    assert!(clusters.contains(&&0.into()) && clusters.contains(&&3.into()), "{found}");
    assert!(bytes(&found["chosen"]["limit_bytes"]) < total, "{found}");
    assert!(bytes(&found["chosen"]["swap_peak_bytes"]) > 1 << 20 && found["chosen"]["zram_peak_bytes"] == 0, "{found}");
    assert_eq!(native["digest"], found["digest"]);
    let bounded = measured(&["--bound", "16M"]);
    assert!(bounded["failed"].as_str().is_some_and(|why| why.contains("killed by its memory limit")), "{bounded}");
    assert_eq!((Machine::look(directory.path()), fs::read_dir(disk.path()).unwrap().count()), (before, 0));
}

#[test]
fn the_machine_is_as_before_however_the_bench_ends() {
    let _zram = ZRAM.lock().unwrap();
    // A directory on a disk: /tmp may be no place to swap to.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let before = Machine::look(disk.path());
    if !before.can_swap() {
        eprintln!("skipped: needs root, a free zram0, and no swap in use");
        return;
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let mut child = start_rivals(disk.path());
        wait_until("swap in use", || {
            let now = Machine::look(disk.path());
            !now.swaps.is_empty() && !now.groups.is_empty()
        });
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::try_from(signal).unwrap()).unwrap();
        let status = child.wait().unwrap();
        assert!(!status.success());
        if signal == libc::SIGKILL {
            wait_until("the machine as before", || Machine::look(disk.path()) == before);
        }
        assert_eq!(Machine::look(disk.path()), before, "after signal {signal}");
    }
}
