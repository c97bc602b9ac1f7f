//! `hinterland tape` as a user runs it: the plan, the tape, what `show` says of it, and what is refused.

use crate::sim::walk;
use hinterland_tape::tape::Tape;
use hinterland_tape::{ForkPath, Head, Reference, Region, Writer, Written};
use hinterland_units::Rng;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Pages of the program: 32 MiB.
const PAGES: u32 = 8192;
const ROUNDS: u32 = 3;

fn tape(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hinterland")).arg("tape").args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = tape(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it says when it refuses.
fn refusal(arguments: &[&str]) -> String {
    let output = tape(arguments);
    assert_eq!(output.status.code(), Some(125), "{arguments:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// A trace of a program that walks through its pages three times, 20 µs from each to the next.
fn trace(directory: &Path, has_cpu_times: bool) -> PathBuf {
    let head = Head { program: "walk".into(), page_bytes: 4096, microset_pages: 64, has_cpu_times, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    let region = writer.region(&Region { name: "far".into(), pages: u64::from(PAGES) }).unwrap();
    for (at, page) in (1..).zip((0..ROUNDS).flat_map(|_| 0..PAGES)) {
        let cpu_ns = if has_cpu_times { at * 20_000 } else { 0 };
        writer.touch(&Reference { region, page, cpu_ns, ..Reference::default() }).unwrap();
        if at % 64 == 0 {
            writer.end_microset(Written::Unknown).unwrap();
        }
        if at % 2048 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap();
    let path = directory.join("walk.trace");
    std::fs::write(&path, writer.sink()).unwrap();
    path
}

#[test]
fn a_plan_names_what_to_fetch_where_it_waits_and_from_which_link_on_it_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(directory.path(), true);
    let file = directory.path().join("walk.tape");
    let words = [path.to_str().unwrap(), "--local", "50%", "--processors", "2"];
    let report = json(&[&words[..], &["-o", file.to_str().unwrap()]].concat());
    assert_eq!((&report["pages"], &report["references"]), (&PAGES.into(), &(PAGES * ROUNDS).into()));
    let wanted = &report["wanted"];
    assert_eq!((&wanted["local_pages"], &wanted["eviction"]), (&4096.into(), &"min".into()));
    let count = |size: &Value, name: &str| size[name].as_u64().unwrap_or_else(|| panic!("no {name}: {size}"));
    // LRU misses every page of a walk that does not fit; MIN keeps what does: 4096 less 384 that the pager needs, less an eighth of the rest
    // that is fetched ahead.
    assert_eq!(count(&report["other_eviction"], "fetched_pages"), u64::from(PAGES * (ROUNDS - 1)));
    let kept = u64::from(PAGES) - count(wanted, "fetched_pages") / u64::from(ROUNDS - 1);
    assert!((3_152..=3_248).contains(&kept), "{kept} of 8192 pages are kept for each round");
    assert_eq!(count(wanted, "bytes_in"), count(wanted, "fetched_pages") * 4096);
    assert_eq!(
        count(wanted, "hidden_from_mbit"),
        5_000,
        "26 µs for two pages at 2.5 Gb/s are more than 20, 13 are less"
    );
    let sizes: Vec<u64> = report["sizes"].as_array().unwrap().iter().map(|size| count(size, "local_pages")).collect();
    assert_eq!(sizes, [8192, 4915], "20 % and less are below the smallest budget");
    let slowdown = wanted["slowdown"].as_f64().unwrap();
    assert!((1.0..1.2).contains(&slowdown), "{slowdown}");
    // The tape has what the plan says.
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(report["tape_bytes"], bytes.len());
    let tape_read = Tape::open(&bytes).unwrap();
    assert_eq!(tape_read.head().program, "walk");
    assert_eq!(tape_read.threads()[0].fetched, count(wanted, "fetched_pages"));
    let text = String::from_utf8(tape(&words).stdout).unwrap();
    for part in ["walk: 24576 references of 1 thread to 32 MiB", "hidden         from 5 Gb/s on", "of the peak", "lru"]
    {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

/// The figures of a run of the walk in which 10,000 pages came and 12,000 left, 10 µs each beside all else.
fn figures() -> Value {
    let (cpu_seconds, first_touch_seconds) = (f64::from(PAGES * ROUNDS) * 20e-6, f64::from(PAGES) * 760e-9);
    serde_json::json!({
        "program": "/usr/bin/link", "processes": [{"program": "/usr/bin/walk"}], "fault_path": "inline", "processor_seconds": cpu_seconds + first_touch_seconds + 22_000.0 * 10e-6,
        "touched_pages": PAGES, "first_touch_faults": 0, "major_faults": 1_000, "prefetched_pages": 9_000, "evicted_clean_pages": 1_000,
        "evicted_dirty_pages": 10_000, "evicted_zero_pages": 500, "evicted_free_pages": 500, "compression_ratio": 2.0, "process_count": 1,
        "backends": [{"url": "compressed:1G"}],
    })
}

#[test]
fn a_run_says_what_the_pagers_work_costs_on_the_processors_that_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(directory.path(), true);
    let run = directory.path().join("run.json");
    let [path, run] = [&path, &run].map(|path| path.to_str().unwrap());
    std::fs::write(run, figures().to_string()).unwrap();
    let on = |processors: &str, more: &[&str]| {
        json(&[&[path, "--local", "50%", "--link", "1us:400Gb/s", "--processors", processors], more].concat())
    };
    let report = on("1", &["--run", run]);
    let costs = &report["costs"];
    let near = |value: &Value, of: u64| value.as_u64().unwrap().abs_diff(of) <= 10;
    assert!(near(&costs["come_ns"], 10_000) && near(&costs["leave_ns"], 10_000), "{costs}");
    assert!(near(&costs["first_touch_ns"], 760), "{costs}");
    assert_eq!((&costs["run"], &costs["processors"], &costs["drops_copies"]), (&run.into(), &1.into(), &true.into()));
    // On one processor the run takes all of the work, one after the other.
    let seconds = |value: &Value| value.as_f64().unwrap();
    let wanted = &report["wanted"];
    let [fetched, left] = [&wanted["fetched_pages"], &report["threads"][0]["left_pages"]].map(seconds);
    let all = seconds(&report["cpu_seconds"]) + seconds(&wanted["fault_seconds"]) + (fetched + left) * 10e-6;
    let run_seconds = seconds(&wanted["run_seconds"]);
    assert!((run_seconds / all - 1.0).abs() < 0.01, "{run_seconds} and {all}");
    assert!(seconds(&wanted["crowded_seconds"]) > 0.1, "{wanted}");
    // Far memory that keeps no copies is sent what leaves.
    assert_eq!(seconds(&wanted["bytes_out"]), left * 4096.0);
    // 20 µs of the program's work beside 20 of the pager's, on a processor each.
    let beside = seconds(&on("2", &["--run", run])["wanted"]["crowded_seconds"]);
    assert!(beside < 0.1 * run_seconds, "{beside}");
    // The program's part of the run is what the trace says, also where a plan has other times.
    let slower = on("1", &["--run", run, "--reference-ns", "40000"]);
    assert!(near(&slower["costs"]["come_ns"], 10_000) && slower["cpu_seconds"] != report["cpu_seconds"], "{slower}");
    let usual = on("2", &[]);
    assert!(usual["costs"]["run"].is_null() && usual["costs"]["leave_ns"].as_u64().unwrap() < 10_000, "{usual}");
    let text = String::from_utf8(tape(&[path, "--local", "50%"]).stdout).unwrap();
    assert!(text.contains("times are lower bounds (--run)"), "{text}");
    let text = String::from_utf8(tape(&[path, "--local", "50%", "--processors", "2", "--run", run]).stdout).unwrap();
    assert!(
        text.contains("10.0 µs for a page that comes, 10.0 for one that leaves, on 2 processors (as in "),
        "{text}"
    );
}

/// Figures of a run of the same program in which all was local, and which took that much of the trace's processor time.
fn local_figures(times: f64) -> Value {
    let mut figures = figures();
    for name in ["major_faults", "prefetched_pages"] {
        figures[name] = 0.into();
    }
    for kind in ["clean", "dirty", "zero", "free"] {
        figures[format!("evicted_{kind}_pages")] = 0.into();
    }
    figures["processor_seconds"] = (f64::from(PAGES * ROUNDS) * 20e-6 * times + f64::from(PAGES) * 760e-9).into();
    figures
}

#[test]
fn times_are_scaled_to_a_run_in_which_all_is_local_and_the_pagers_work_is_beside_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(directory.path(), true);
    let [run, local] = ["run.json", "local.json"].map(|name| directory.path().join(name));
    let [path, run, local] = [&path, &run, &local].map(|path| path.to_str().unwrap());
    // The program takes three times as long as in the trace, in both runs.
    let mut paged = figures();
    let trace_seconds = f64::from(PAGES * ROUNDS) * 20e-6;
    paged["processor_seconds"] = (paged["processor_seconds"].as_f64().unwrap() + 2.0 * trace_seconds).into();
    std::fs::write(run, paged.to_string()).unwrap();
    std::fs::write(local, local_figures(3.0).to_string()).unwrap();
    let words = [path, "--local", "50%", "--link", "1us:400Gb/s", "--processors", "1"];
    let seconds = |report: &Value, name: &str| report[name].as_f64().unwrap();
    let [traced, scaled] = [&[][..], &["--untraced", local]].map(|more| json(&[&words[..], more].concat()));
    assert!((seconds(&scaled, "cpu_seconds") / seconds(&traced, "cpu_seconds") - 3.0).abs() < 1e-6, "{scaled}");
    let run_seconds = |report: &Value| seconds(&report["wanted"], "run_seconds");
    assert!((run_seconds(&scaled) - run_seconds(&traced) - 2.0 * trace_seconds).abs() < 0.001, "{scaled}");
    assert_eq!((&scaled["costs"]["untraced"], &traced["costs"]["untraced"]), (&local.into(), &Value::Null));
    // What the trace lacks is not the pager's.
    let with_run = json(&[&words[..], &["--run", run, "--untraced", local]].concat());
    assert!(with_run["costs"]["come_ns"].as_u64().unwrap().abs_diff(10_000) <= 10, "{with_run}");
    let without = json(&[&words[..], &["--run", run]].concat());
    assert!(without["costs"]["come_ns"].as_u64().unwrap() > 50_000, "{without}");
    let text = String::from_utf8(tape(&[&words[..], &["--untraced", local]].concat()).stdout).unwrap();
    assert!(text.contains(&format!("times are those of {local}, untraced")), "{text}");
}

/// With one figure after the other changed in the file, the command is refused with these words.
fn each_is_refused<const N: usize>(words: &[&str], file: &str, figures: &Value, wrong: [(&str, Value, &str); N]) {
    for (name, value, says) in wrong {
        let mut other = figures.clone();
        other[name] = value;
        std::fs::write(file, other.to_string()).unwrap();
        let refusal = refusal(words);
        assert!(refusal.contains(says), "{name}: {refusal}");
    }
}

#[test]
fn a_run_that_does_not_tell_what_the_program_takes_untraced_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(directory.path(), true);
    let local = directory.path().join("local.json");
    let [path, local] = [&path, &local].map(|path| path.to_str().unwrap());
    let words = [path, "--local", "50%", "--untraced", local];
    let wrong = [
        ("evicted_dirty_pages", 200.into(), "--untraced: "),
        ("evicted_dirty_pages", 200.into(), "200 pages left in that run; take one in which all is local"),
        ("processor_seconds", 0.001.into(), "first touches leave no processor time for the program"),
        ("process_count", 2.into(), "2 processes ran"),
        ("first_touch_faults", u64::MAX.into(), "no figures of a run"),
    ];
    each_is_refused(&words, local, &local_figures(1.0), wrong);
    std::fs::write(local, local_figures(1.0).to_string()).unwrap();
    assert!(refusal(&[&words[..], &["-o", local]].concat()).contains("is the figures that --untraced reads"));
    let output = tape(&[&words[..], &["--reference-ns", "100"]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"));
    let folder = directory.path().to_str().unwrap();
    assert!(refusal(&[folder, "--local", "50%", "--untraced", local]).contains("of a folder"));
}

#[test]
fn figures_that_do_not_tell_what_the_pagers_work_costs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(directory.path(), true);
    let run = directory.path().join("run.json");
    let [path, run] = [&path, &run].map(|path| path.to_str().unwrap());
    let words = [path, "--local", "50%", "--run", run];
    assert!(refusal(&words).contains("No such file"));
    let wrong = [
        (
            "processes",
            serde_json::json!([{"program": "/usr/bin/run"}]),
            "a run of /usr/bin/link, and the trace is of walk",
        ),
        ("fault_path", "none".into(), "was not managed"),
        ("backends", serde_json::json!([{"url": "compressed:1G?link=5us:25Gb/s"}]), "take a run without link="),
        ("evicted_dirty_pages", Value::Null, "no figures of a run"),
        (
            "process_count",
            2.into(),
            "2 processes ran, and processor time is of all of them together; run walk by itself",
        ),
        // The trace has 0.492 s.
        ("processor_seconds", 0.3.into(), "the run took 0.300 s of processor time"),
        ("processor_seconds", 0.492.into(), "leave nothing for the pager"),
        ("processor_seconds", (-1.0).into(), "leave nothing for the pager"),
        // What no run can have.
        ("processor_seconds", 1e6.into(), "no figures of a run"),
        ("processor_seconds", 1e300.into(), "no figures of a run"),
        ("evicted_dirty_pages", u64::MAX.into(), "no figures of a run"),
        ("touched_pages", u64::MAX.into(), "no figures of a run"),
        ("first_touch_faults", u64::MAX.into(), "no figures of a run"),
    ];
    each_is_refused(&words, run, &figures(), wrong);
    let mut few = figures();
    ["prefetched_pages", "major_faults", "evicted_dirty_pages"].iter().for_each(|name| few[*name] = 0.into());
    few["evicted_clean_pages"] = 0.into();
    few["evicted_zero_pages"] = 9_499.into();
    std::fs::write(run, few.to_string()).unwrap();
    assert!(refusal(&words).contains("9999 pages came and left"));
    // Without times in the trace, the program's part of the run is not known, whatever a plan takes it for.
    std::fs::write(run, figures().to_string()).unwrap();
    let imported = directory.path().join("imported");
    std::fs::create_dir(&imported).unwrap();
    let imported = trace(&imported, false);
    let words = [imported.to_str().unwrap(), "--local", "50%", "--run", run, "--reference-ns", "20000"];
    assert!(refusal(&words[..5]).contains("the trace has no times"));
    assert!(refusal(&words).contains("the trace has no times"));
    let folder = directory.path().to_str().unwrap();
    assert!(refusal(&[folder, "--local", "50%", "--run", run]).contains("of a folder"));
}

#[test]
fn show_says_what_is_in_a_tape() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(directory.path(), true);
    let file = directory.path().join("walk.tape");
    let (path, file) = (path.to_str().unwrap(), file.to_str().unwrap());
    assert!(tape(&[path, "--local", "16M", "--evict", "lru", "-o", file]).status.success());
    let shown = json(&["show", file]);
    assert_eq!((&shown["program"], &shown["eviction"]), (&"walk".into(), &"lru".into()));
    assert_eq!((&shown["local_pages"], &shown["peak_pages"]), (&4096.into(), &PAGES.into()));
    let thread = &shown["threads"][0];
    assert_eq!(thread["fetched_pages"], PAGES * (ROUNDS - 1));
    assert_eq!(thread["first_touches"], PAGES);
    assert_eq!(thread["share_pages"], 4096 - 384);
    let text = String::from_utf8(tape(&["show", file]).stdout).unwrap();
    assert!(text.contains("16 MiB local of 32 MiB (lru)") && text.contains("16384 pages to fetch"), "{text}");
}

/// A trace of a program with eight phases of 1024 pages, whose pages it touches in an order that the seed says; 0: in order of address.
fn phased(directory: &Path, program: &str, seed: u64) -> String {
    let head = Head { program: program.into(), page_bytes: 4096, microset_pages: 64, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    let region = writer.region(&Region { name: "far".into(), pages: u64::from(PAGES) }).unwrap();
    let mut random = Rng(seed);
    for turn in 0..8 * ROUNDS {
        let mut pages: Vec<u32> = (0..PAGES / 8).collect();
        for at in (1..pages.len()).rev().filter(|_| seed > 0) {
            pages.swap(at, random.index(at + 1));
        }
        for page in pages {
            writer.touch(&Reference { region, page: turn % 8 * (PAGES / 8) + page, ..Reference::default() }).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    let path = directory.join(format!("{program}-{seed}.trace"));
    std::fs::write(&path, writer.sink()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn several_traces_say_how_oblivious_a_program_is_and_sets_are_written_to_an_unordered_tape() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second, third] = [1, 2, 3].map(|seed| phased(directory.path(), "query", seed));
    let file = directory.path().join("query.tape").to_str().unwrap().to_owned();
    let words = [first.as_str(), &second, &third, "--local", "50%"];
    let report = json(&[&words[..], &["-o", &file]].concat());
    assert_eq!((&report["verdict"], &report["program"]), (&"set".into(), &"query".into()));
    assert_eq!((&report["common_percent"], &report["agreeing_percent"]), (&100.0.into(), &100.0.into()));
    let in_order = report["in_order_percent"].as_f64().unwrap();
    assert!((1.0..10.0).contains(&in_order), "{in_order}");
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 24);
    for phase in phases {
        assert_eq!((&phase["pages"], &phase["set_pages"], &phase["ranges"]), (&1024.into(), &1024.into(), &1.into()));
        assert_eq!(phase["agrees"], true);
    }
    assert_eq!(report["traces"][2]["pages"], PAGES);
    assert!(report["plan"].is_null());
    assert_eq!(report["tape_bytes"], std::fs::read(&file).unwrap().len());
    let text = String::from_utf8(tape(&words).stdout).unwrap();
    for part in ["query: 3 runs compared: set: the pages of phases agree", "100.0 % are touched by all runs", "8 more"]
    {
        assert!(text.contains(part), "no {part}: {text}");
    }
    // No times are predicted for sets, so no figures of a run are used.
    let run = directory.path().join("run.json").to_str().unwrap().to_owned();
    let with_run = [&words[..], &["--run", &run]].concat();
    assert!(refusal(&with_run).contains("No such file"));
    std::fs::write(&run, figures().to_string()).unwrap();
    let output = tape(&with_run);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("--run is not used"));
    assert!(refusal(&[&with_run[..], &["--order", "sets"]].concat()).contains("leave --run out with --order sets"));
    // What show says of it.
    let shown = json(&["show", &file]);
    assert_eq!((&shown["order"], &shown["local_pages"]), (&"sets".into(), &4096.into()));
    assert_eq!(
        (&shown["phases"][9]["pages"], &shown["phases"][9]["first"]),
        (&1024.into(), &serde_json::json!([0, 1024]))
    );
    assert!(shown["threads"].as_array().unwrap().is_empty());
    let text = String::from_utf8(tape(&["show", &file]).stdout).unwrap();
    assert!(text.contains("16 MiB local of 32 MiB (sets)") && text.contains("1024 pages (4 MiB) in 1 range"), "{text}");
}

#[test]
fn runs_in_the_same_order_are_planned_and_what_has_nothing_in_common_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let (ordered, first, second) = (
        phased(directory.path(), "query", 0),
        phased(directory.path(), "query", 1),
        phased(directory.path(), "query", 2),
    );
    let other = phased(directory.path(), "other", 1);
    let file = directory.path().join("query.tape").to_str().unwrap().to_owned();
    let report = json(&[&ordered, &ordered, "--local", "50%", "-o", &file]);
    assert_eq!((&report["verdict"], &report["in_order_percent"]), (&"ordered".into(), &100.0.into()));
    assert_eq!(report["plan"]["wanted"]["local_pages"], 4096);
    assert_eq!(json(&["show", &file])["order"], "ordered");
    // A tape of either kind can be had of any runs.
    assert!(tape(&[&ordered, &ordered, "--local", "50%", "--order", "sets", "-o", &file]).status.success());
    assert_eq!(json(&["show", &file])["order"], "sets");
    assert!(tape(&[&first, &second, "--local", "50%", "--order", "ordered", "-o", &file]).status.success());
    assert_eq!(json(&["show", &file])["order"], "ordered");
    std::fs::remove_file(&file).unwrap();
    // The sets of its phases have no room in 16 MiB of a program that uses all of its 32 at once.
    let all = |seed| {
        let path = directory.path().join(format!("all-{seed}.trace"));
        let mut writer = Writer::new(Vec::new(), &Head { page_bytes: 4096, ..Head::default() }).unwrap();
        let region = writer.region(&Region { name: "far".into(), pages: u64::from(PAGES) }).unwrap();
        let mut random = Rng(seed);
        for _ in 0..4 * PAGES {
            let page = random.below_u32(PAGES);
            writer.touch(&Reference { region, page, ..Reference::default() }).unwrap();
        }
        writer.finish().unwrap();
        std::fs::write(&path, writer.sink()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, two) = (all(1), all(2));
    assert_eq!(json(&[&one, &two, "--local", "50%"])["verdict"], "neither");
    let output = tape(&[&one, &two, "--local", "50%", "-o", &file]);
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(125) && says.contains("no tape was written; --order ordered"), "{says}");
    assert!(!Path::new(&file).exists());
    for (words, says) in [
        (vec![first.as_str(), "--local", "50%", "--order", "sets"], "name two traces of the program, or more"),
        (vec![&first, &other, "--local", "50%"], "runs of one program are compared"),
        (vec![&one, &two, "--local", "50%", "--order", "sets", "-o", &file], "no phase of the runs agrees"),
        (vec![&first, &second, "--local", "50%", "-o", &second], "--output: "),
        (vec![&first, "/no/such.trace", "--local", "50%"], "No such file"),
        (vec![&first, &second], "--local <SIZE|PCT%>"),
    ] {
        let refusal = refusal(&words);
        assert!(refusal.contains(says), "{words:?}: {refusal}");
    }
    assert!(!Path::new(&file).exists());
}

#[test]
fn a_trace_without_times_is_planned_without_predictions() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(directory.path(), false);
    let path = path.to_str().unwrap();
    let output = tape(&[path, "--local", "50%", "--json"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no times"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["wanted"]["slowdown"].is_null() && report["wanted"]["hidden_from_mbit"].is_null(), "{report}");
    assert!(json(&[path, "--local", "50%", "--reference-ns", "20000"])["wanted"]["slowdown"].as_f64().unwrap() > 1.0);
}

#[test]
fn what_cannot_be_planned_or_shown_is_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let path = trace(directory.path(), true);
    let path = path.to_str().unwrap();
    let (good, cut, damaged, half) = (at("good.tape"), at("cut.tape"), at("damaged.tape"), at("half.trace"));
    assert!(tape(&[path, "--local", "50%", "-o", &good]).status.success());
    let bytes = std::fs::read(&good).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 3]).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    std::fs::write(&damaged, flipped).unwrap();
    let whole = std::fs::read(path).unwrap();
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    for (words, says) in [
        (vec!["show", &cut], "the file ends inside the block"),
        (vec!["show", &damaged], "plan the tape again from its trace"),
        (vec!["show", path], "this is a trace, not a tape: `hinterland tape TRACE"),
        (vec!["show", "/dev/null"], "the file is empty; plan the tape again from its trace"),
        (vec![&good, "--local", "50%"], "this is a tape, planned from a trace"),
        (vec![&half, "--local", "50%"], "a tape is planned from a whole trace only"),
        (vec![path, "--local", "1M"], "below the smallest budget"),
        (vec![path, "--local", "50%", "--evict", "fifo"], "possible values: lru, min"),
        (vec![path, "--local", "50%", "--link", "ethernet"], "'ethernet' is no link"),
        (vec![path, "--local", "50%", "-o", path], "--output: "),
        (vec![path], "--local <SIZE|PCT%>"),
        (vec!["/no/such.trace", "--local", "50%"], "No such file"),
    ] {
        let refusal = refusal(&words);
        assert!(refusal.contains(says), "{words:?}: {refusal}");
    }
    assert_eq!(std::fs::read(&good).unwrap(), bytes);
}

#[test]
fn what_a_tape_lacks_because_of_its_trace_is_said_by_a_run_that_plans_it_too() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    std::fs::write(here.join("app.trace"), walk(8192, 4096, false)).unwrap();
    std::fs::write(here.join("lib.so"), "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
    // It is refused before the program starts.
    command.args(["run", "--tape", "app.trace", "--local", "16M", "--stats", "./app.trace", "--", "/bin/true"]);
    let output = command.env("HINTERLAND_LIBRARY", "lib.so").current_dir(here).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    for words in [
        "--tape: app.trace: the trace has no end: ",
        "--tape: app.trace: its microsets have up to 4096 pages, and a thread's share of local memory no more",
        "--stats: ./app.trace is the trace of the run",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let planned = tape(&[here.join("app.trace").to_str().unwrap(), "--local", "16M"]);
    assert!(String::from_utf8(planned.stderr).unwrap().contains("its microsets have up to 4096 pages"));
}

#[test]
fn a_folder_of_traces_is_planned_for_as_many_tapes_and_what_cannot_be_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let whole = std::fs::read(trace(directory.path(), true)).unwrap();
    let (traces, tapes) = (at("traces"), at("tapes"));
    std::fs::create_dir(&traces).unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(Path::new(&traces).join(name), bytes).unwrap();
    let words = [traces.as_str(), "--local", "50%", "-o", &tapes];
    assert!(refusal(&words).contains("a folder without traces"));
    put("13.trace", &whole[..whole.len() / 2]);
    assert!(refusal(&words).contains("no trace in it can be planned"));
    put("12.trace", &whole);
    put("14.trace", b"no trace");
    for (name, is_forked) in [("15.trace", true), ("16.trace", false)] {
        let forks = if is_forked { ForkPath::UNKNOWN } else { ForkPath::default() };
        let program = "walk".into();
        let head = Head { program, page_bytes: 4096, microset_pages: 64, is_forked, forks, ..Head::default() };
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        writer.finish().unwrap();
        put(name, writer.sink());
    }
    let output = tape(&[&words[..], &["--json"]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    for part in [
        "13.trace",
        "14.trace",
        "there is no tape of it",
        "of 1 traces, each of a forked child of which it is not known by which forks it came",
        "of 1 traces, each without a reference",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports.as_array().map(Vec::len), Some(1), "{reports}");
    let planned = at("tapes/12.tape");
    assert_eq!((&reports[0]["tape"], &reports[0]["pages"]), (&planned.as_str().into(), &PAGES.into()));
    let shown = json(&["show", &tapes]);
    assert_eq!((&shown[0]["tape"], &shown[0]["program"]), (&planned.as_str().into(), &"walk".into()));
    assert_eq!(shown[0]["fetched_pages"], reports[0]["wanted"]["fetched_pages"]);
    std::fs::write(at("tapes/17.tape"), b"no tape").unwrap();
    let text = String::from_utf8(tape(&["show", &tapes]).stdout).unwrap();
    assert!(text.contains("12.tape") && text.contains("damaged") && text.contains("walk"), "{text}");
    assert!(refusal(&words).contains("it has tapes of another run"));
    assert!(refusal(&[&traces, "--local", "50%", "--order", "sets"]).contains("name two traces of the program"));
    let none = "a folder without tapes, whose names would end in .tape; `hinterland tape TRACES/";
    assert!(refusal(&["show", &traces]).contains(&format!("{traces}: {none}")));
    assert!(refusal(&["show", &traces, "--json"]).contains(none));
    let text = String::from_utf8(tape(&words[..3]).stdout).unwrap();
    assert!(text.contains("12.trace"), "{text}");
    // A trace that cannot be read is named, whether its share is to be known or not.
    std::fs::create_dir(Path::new(&traces).join("18.trace")).unwrap();
    for local in ["50%", "16M"] {
        let refusal = refusal(&[&traces, "--local", local]);
        assert!(refusal.contains("18.trace: the trace cannot be read"), "{refusal}");
    }
}

#[test]
fn a_size_is_divided_among_the_processes_of_a_folder_that_lived_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let traces = directory.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    // Name, process, when it began and how long it took, whether it has closed its trace; then it has called exec.
    for (name, process, begun_unix_s, seconds, is_whole) in [
        ("1.trace", 1, 100, 20, true),
        ("2.trace", 2, 110, 5, true),
        ("3.trace", 3, 200, 20, true),
        ("4.trace", 4, 230, 0, false),
        ("4-2.trace", 4, 240, 10, true),
        // As versions 1 to 5 are: closed, and it does not say how long it took.
        ("5.trace", 5, 110, 0, true),
    ] {
        let program = "walk".into();
        let head = Head { program, page_bytes: 4096, microset_pages: 64, process, begun_unix_s, ..Head::default() };
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        writer.region(&Region { name: "far".into(), pages: 1 << 20 }).unwrap();
        for (touch, page) in (0..6_000).chain(0..6_000).enumerate() {
            writer.touch(&Reference { page, is_first: touch < 6_000, ..Reference::default() }).unwrap();
            if touch % 64 == 63 {
                writer.end_microset(Written::All).unwrap();
            }
        }
        writer.took(Duration::from_secs(seconds));
        if is_whole {
            writer.finish().unwrap()
        } else {
            writer.flush().unwrap()
        }
        std::fs::write(traces.join(name), writer.sink()).unwrap();
    }
    let shares = |local: &str| {
        let reports = json(&[traces.to_str().unwrap(), "--local", local]);
        let mut shares: Vec<(String, u64)> = reports
            .as_array()
            .unwrap()
            .iter()
            .map(|report| {
                let trace = Path::new(report["trace"].as_str().unwrap()).file_name().unwrap();
                (trace.to_str().unwrap().to_owned(), report["wanted"]["local_pages"].as_u64().unwrap())
            })
            .collect();
        shares.sort();
        shares.into_iter().map(|(_, pages)| pages).collect::<Vec<_>>()
    };
    assert_eq!(
        shares("16M"),
        [2_048, 2_048, 4_096, 4_096, 4_096, 4_096],
        "the first two side by side; of the last it is not known"
    );
    let said = tape(&[traces.to_str().unwrap(), "--local", "16M"]).stderr;
    assert!(String::from_utf8(said).unwrap().contains("of 1 traces it is not known when their processes lived"));
    assert_eq!(shares("64M"), [16_384; 6], "all have room");
    assert_eq!(shares("50%"), [4_096; 6], "of each one's own peak, and the least there may be");
}
