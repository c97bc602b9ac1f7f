//! `hinterland sim` as a user runs it: the table, the JSON's names, and what it refuses.

use hinterland_tape::{Head, Reference, Region, Writer, Written};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Pages of the program: 32 MiB.
const PAGES: u32 = 8192;

fn sim(trace: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hinterland")).arg("sim").arg(trace).args(arguments).output().unwrap()
}

fn json(trace: &Path, arguments: &[&str]) -> Value {
    let output = sim(trace, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it says when it refuses.
fn refusal(trace: &Path, arguments: &[&str]) -> String {
    let output = sim(trace, arguments);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// A trace of a program that walks through its pages three times, two microseconds from each to the next.
pub(crate) fn trace(directory: &tempfile::TempDir) -> PathBuf {
    trace_of(directory, PAGES)
}

/// The same of a program with so many pages.
pub(crate) fn trace_of(directory: &tempfile::TempDir, pages: u32) -> PathBuf {
    let path = directory.path().join("walk.trace");
    std::fs::write(&path, walk(pages, 64, true)).unwrap();
    path
}

/// Such a trace's bytes, with microsets of so many pages; one that `is_closed` has an end.
pub(crate) fn walk(pages: u32, microset_pages: u32, is_closed: bool) -> Vec<u8> {
    walk_taking(2000, pages, microset_pages, is_closed)
}

/// The same, so many nanoseconds from each page to the next.
pub(crate) fn walk_taking(ns: u64, pages: u32, microset_pages: u32, is_closed: bool) -> Vec<u8> {
    let head =
        Head { program: "walk".into(), page_bytes: 4096, microset_pages, has_cpu_times: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    let region = writer.region(&Region { name: "far".into(), pages: u64::from(pages) }).unwrap();
    for (at, page) in (1..).zip((0..3).flat_map(|_| 0..pages)) {
        writer.touch(&Reference { region, page, cpu_ns: at * ns, ..Reference::default() }).unwrap();
        if at % 64 == 0 {
            writer.end_microset(Written::Unknown).unwrap();
        }
        if at % 2048 == 0 {
            writer.flush().unwrap();
        }
    }
    if is_closed {
        writer.finish().unwrap();
    }
    writer.sink().clone()
}

#[test]
fn the_table_has_a_row_for_each_combination() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        sim(&trace(&directory), &["--evict", "s3-fifo,min", "--prefetch", "none,leap", "--link", "ssd,rdma-25g"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("walk: 24576 references to 32 MiB of memory, 0.049 s"), "{text}");
    for name in ["link", "major", "by block", "accuracy", "coverage", "in time", "pollution", "slowdown"] {
        assert!(text.contains(name), "no {name}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.contains("ssd") || line.contains("rdma-25g")).count(), 6, "{text}");
}

#[test]
fn policies_close_a_share_of_the_gap_between_fifo_and_the_optimum() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let options = ["--local", "16M", "--prefetch", "none,leap", "--link", "ssd", "--evict"];
    let rows = |policies: &str| json(&path, &[&options[..], &[policies]].concat())["rows"].as_array().unwrap().clone();
    let closed = |row: &Value| row["gap_closed"].as_f64();
    let faults = |row: &Value| row["major_faults"].as_f64().unwrap();
    let all = rows("fifo,s3-fifo,min");
    let of = |evict: &str| all.iter().find(|row| row["evict"] == evict && row["prefetch"] == "none").unwrap();
    let [fifo, own, min] = ["fifo", "s3-fifo", "min"].map(of);
    assert_eq!((closed(fifo), closed(min)), (Some(0.0), Some(1.0)));
    let share = (faults(fifo) - faults(own)) / (faults(fifo) - faults(min));
    assert!(closed(own).is_some_and(|closed| (closed - share).abs() < 1e-9), "{own}");
    assert!(all.iter().filter(|row| row["prefetch"] == "leap").all(|row| closed(row).is_none()));
    assert!(rows("s3-fifo,min").iter().all(|row| closed(row).is_none()));
    let table = |policies: &str| String::from_utf8(sim(&path, &[&options[..], &[policies]].concat()).stdout).unwrap();
    assert!(table("fifo,min").contains("gap closed") && !table("s3-fifo,min").contains("gap closed"));
}

#[test]
fn a_blocks_size_asks_for_blocks_as_in_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let asked = |arguments: &[&str]| {
        let options = ["--local", "16M", "--prefetch", "none", "--evict", "fifo", "--link", "tcp-10g"];
        json(&path, &[&options[..], arguments].concat())["rows"][0]["blocks_asked"].as_u64().unwrap()
    };
    assert_eq!([asked(&[]), asked(&["--granularity", "page"]), asked(&["--block", "auto"])], [0; 3]);
    assert!(asked(&["--block", "64K"]) > 0 && asked(&["--block", "64K", "--granularity", "both"]) > 0);
    let refused = refusal(&path, &["--block", "64K", "--granularity", "page"]);
    assert!(refused.contains("--block: no blocks are asked for with --granularity page"), "{refused}");
}

#[test]
fn links_are_divided_as_a_share_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    // Windows, and pages that leave for them, on one slow link: how long demand fetches wait depends on what goes first.
    let options = ["--local", "16M", "--prefetch", "readahead", "--evict", "s3-fifo", "--link", "15us:1Gb/s:half"];
    let divided = |share: &[&str]| json(&path, &[&options[..], share].concat());
    let stalled = |report: &Value| report["rows"][0]["stall_seconds"].as_f64().unwrap();
    let [unsaid, strict, fixed] = [&[][..], &["--share", "strict"], &["--share", "fixed:10"]].map(divided);
    assert_eq!((&unsaid, &unsaid["share"]), (&strict, &"strict".into()));
    assert_eq!(fixed["share"], "fixed:10");
    assert!(stalled(&fixed) > stalled(&strict), "{} and {}", stalled(&fixed), stalled(&strict));
    let weighted = divided(&["--share", "weighted:25"]);
    assert_eq!(weighted["rows"][0]["first_touch_faults"], strict["rows"][0]["first_touch_faults"]);
}

#[test]
fn a_tape_of_the_trace_is_one_more_row_without_major_faults() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let report = json(&path, &["--local", "16M", "--prefetch", "none,tape", "--link", "rdma-25g,tcp-10g"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3);
    for row in rows.iter().filter(|row| row["prefetch"] == "tape") {
        assert_eq!((&row["evict"], &row["major_faults"]), (&"tape".into(), &0.into()), "{row}");
        assert_eq!(row["prefetched_used_pages"], row["prefetched_pages"], "{row}");
    }
    let half = directory.path().join("half.trace");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let refused = refusal(&half, &["--prefetch", "tape", "--partial"]);
    assert!(refused.contains("a tape is planned from a whole trace only"), "{refused}");
}

#[test]
fn a_tape_that_is_given_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let file = directory.path().join("walk.tape");
    let run = |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_hinterland")).args(words).output().unwrap();
    let words = [path.to_str().unwrap(), path.to_str().unwrap(), "--local", "16M", "--order", "sets"];
    let made = run(&[&["tape"], &words[..], &["-o", file.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let options = ["--local", "16M", "--prefetch", "none", "--evict", "s3-fifo", "--link", "rdma-25g"];
    let report = json(&path, &[&options[..], &["--tape", file.to_str().unwrap()]].concat());
    let [none, tape] = report["rows"].as_array().unwrap().as_slice() else { panic!("two rows: {report}") };
    assert_eq!((&none["prefetched_pages"], &tape["prefetch"]), (&0.into(), &"tape".into()));
    let faults = |row: &Value| row["major_faults"].as_u64().unwrap();
    assert!(faults(tape) * 2 < faults(none), "{report}");
    let refused = refusal(&path, &["--tape", path.to_str().unwrap()]);
    assert!(refused.contains("this is a trace, not a tape"), "{refused}");
    assert!(refusal(&path, &["--tape", "/no/such.tape"]).contains("--tape: /no/such.tape: No such file"));
}

#[test]
fn the_json_has_the_promised_names_and_every_replay_counts_every_reference() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let report = json(&path, &["--evict", "all", "--prefetch", "all", "--link", "tcp-10g"]);
    for name in ["trace", "program", "damage", "fault_path", "written_percent", "seed", "cpu_seconds"] {
        assert!(!report[name].is_null(), "{name}: {report}");
    }
    assert_eq!(
        (&report["references"], &report["pages"], &report["local_pages"]),
        (&24576.into(), &8192.into(), &4096.into())
    );
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4 * 10 + 2);
    for row in rows {
        let count = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("no {name}: {row}"));
        let kinds =
            ["resident", "first_touch_faults", "minor_faults", "major_faults", "awaited", "prefetch_hits_observed"];
        assert_eq!(kinds.map(count).iter().sum::<u64>(), 24576, "{row}");
        let moved = count("major_faults") + count("prefetched_pages") + count("evicted_dirty_pages");
        assert_eq!(count("link_bytes"), moved * 4096, "{row}");
        assert!(row["slowdown"].as_f64().unwrap() > 1.0 && row["run_seconds"].as_f64().unwrap() > 0.024, "{row}");
        for name in [
            "prefetched_unmapped_pages",
            "prefetch_hits_inferred",
            "prefetched_used_pages",
            "pollution_pages",
            "blocks_asked",
            "block_used_pages",
            "evicted_clean_pages",
            "direct_reclaims",
        ] {
            count(name);
        }
        for name in ["accuracy", "coverage", "timely", "lead_mean_ns", "late_mean_ns", "stall_seconds"] {
            assert!(row.as_object().unwrap().contains_key(name), "{name}: {row}");
        }
    }
    let major = |evict: &str, prefetch: &str| {
        let row = rows.iter().find(|row| row["evict"] == evict && row["prefetch"] == prefetch).unwrap();
        row["major_faults"].as_u64().unwrap()
    };
    assert!(major("min", "none") < major("lru", "none") && major("s3-fifo", "leap") * 4 < major("s3-fifo", "none"));
    assert_eq!(
        report,
        json(&path, &["--evict", "all", "--prefetch", "all", "--link", "tcp-10g"]),
        "the same figures again"
    );
}

#[test]
fn a_trace_without_times_has_no_slowdown_unless_somebody_says_how_long() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("text.trace");
    let mut writer = Vec::new();
    let pages: String = (0..3).flat_map(|_| 0..PAGES).map(|page| format!("{page}\n")).collect();
    let head = Head { page_bytes: 4096, microset_pages: 1, ..Head::default() };
    hinterland_tape::import::text(pages.as_bytes(), &mut writer, &head).unwrap();
    std::fs::write(&path, writer).unwrap();
    let arguments = ["--evict", "fifo", "--prefetch", "none", "--link", "ssd"];
    let report = json(&path, &arguments);
    assert!(report["cpu_seconds"].is_null() && report["rows"][0]["slowdown"].is_null(), "{report}");
    let report = json(&path, &[&arguments[..], &["--reference-ns", "500"]].concat());
    assert!(report["rows"][0]["slowdown"].as_f64() > Some(10.0), "{report}");
    assert_eq!(report["cpu_seconds"].as_f64(), Some(24576.0 * 500e-9));
    let report = json(&path, &["--cpu-seconds", "0.5"]);
    assert_eq!(report["cpu_seconds"].as_f64(), Some(0.5));
}

#[test]
fn damaged_truncated_and_foreign_files_are_refused_with_the_place_and_what_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let whole = std::fs::read(&path).unwrap();
    // Two thirds are whole blocks.
    std::fs::write(&path, &whole[..whole.len() * 2 / 3 + 5]).unwrap();
    let says = refusal(&path, &[]);
    assert!(says.contains("walk.trace: byte ") && says.contains("the file ends inside the block"), "{says}");
    assert!(says.contains("references can be read: --partial replays them"), "{says}");
    let report = json(&path, &["--partial", "--evict", "fifo", "--prefetch", "none", "--link", "ssd"]);
    let references = report["references"].as_u64().unwrap();
    assert!((1..24576).contains(&references) && says.contains(&format!("; {references} references")), "{says}{report}");
    assert_eq!(report["damage"].as_array().unwrap().len(), 1);
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    assert!(refusal(&path, &[]).contains("is damaged (its checksum does not match)"));
    std::fs::write(&path, "not a trace at all, and long enough for any head").unwrap();
    assert!(refusal(&path, &["--partial"]).contains("this is no trace"));
    assert!(refusal(Path::new("/nowhere/app.trace"), &[]).contains("/nowhere/app.trace: No such file"));
    std::fs::write(&path, &whole).unwrap();
    for (arguments, says) in [
        (&["--local", "1M"][..], "below the smallest budget"),
        (&["--evict", "random"], "'random' is no eviction policy"),
        (&["--prefetch", "leap", "--evict", "min"], "goes with prefetcher none"),
        (&["--link", "5us"], "'5us' is no link"),
    ] {
        assert!(refusal(&path, arguments).contains(says), "{arguments:?}");
    }
}

#[test]
fn what_the_figures_cannot_say_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let said = |arguments: &[&str]| {
        let output = sim(&path, &[arguments, &["--link", "ssd", "--prefetch", "none"]].concat());
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["--local", "1G"]).contains("all that it touches (32 MiB) is local"));
    assert_eq!(said(&["--local", "16M"]), "");
    let notes =
        |local: &str| json(&path, &["--local", local, "--link", "ssd", "--prefetch", "none"])["notes"].to_string();
    assert_eq!(notes("16M"), "[]");
    assert!(notes("1G").contains("all that it touches (32 MiB) is local"), "{}", notes("1G"));
    let table = |prefetch: &str| {
        let output = sim(&path, &["--link", "ssd", "--evict", "fifo", "--prefetch", prefetch]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(table("leap").contains("Read-ahead is taken to have a processor"));
    assert!(!table("none").contains("Read-ahead is taken"));
    let threads = directory.path().join("threads.trace");
    let mut writer = Vec::new();
    let head = Head { page_bytes: 4096, microset_pages: 1, ..Head::default() };
    hinterland_tape::import::text("1 1\n2 2\n".as_bytes(), &mut writer, &head).unwrap();
    std::fs::write(&threads, writer).unwrap();
    let output = sim(&threads, &["--link", "ssd", "--prefetch", "none"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("its threads ran in turns on one processor"));
    let name = format!("{}: 2 references", threads.display());
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with(&name),
        "a trace without a program has its file's name"
    );
}
