//! `hinterland advise` as a user runs it: the table, the JSON, and what it refuses.

use crate::sim::{trace, trace_of, walk, walk_taking};
use hinterland_tape::{Head, Reference, Region, Writer, Written};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn advise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hinterland")).arg("advise").args(arguments).output().unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_trace_that_comes_through_a_pipe_is_read_from_its_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory);
    let mut cat = Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
    command.args(["advise", "/dev/stdin", "--json"]).stdin(cat.stdout.take().unwrap());
    let output = command.output().unwrap();
    drop(command);
    cat.wait().unwrap();
    assert!(output.status.success(), "{}", text(output.stderr));
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&advice["trace"], &advice["touched_bytes"]), (&"/dev/stdin".into(), &(32 << 20).into()));
}

#[test]
fn backends_are_ranked_by_effectiveness_and_the_cheapest_has_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory).display().to_string();
    let output = advise(&[&path, "--json", "--slowdown", "3"]);
    assert!(output.status.success(), "{}", text(output.stderr));
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&advice["advice_version"], &advice["touched_bytes"]), (&1.into(), &(32 << 20).into()));
    let backends = advice["backends"].as_array().unwrap();
    let effectiveness: Vec<f64> = backends.iter().map(|one| one["effectiveness"].as_f64().unwrap()).collect();
    assert!(effectiveness.is_sorted_by(|one, next| one >= next), "{effectiveness:?}");
    for backend in backends {
        assert_eq!(backend["slowdowns"].as_array().unwrap().len(), advice["sizes_percent"].as_array().unwrap().len());
        assert!(backend["least_local_slowdown"].as_f64() <= Some(3.0), "{backend}");
        // Of 32 MiB; a run has 16 MiB at least, and is given what was predicted and paid for.
        let known: Vec<bool> = backend["slowdowns"].as_array().unwrap().iter().map(|one| !one.is_null()).collect();
        assert_eq!(known, [true, true, false, false, false, false], "{backend}");
        let least = backend["least_local_bytes"].as_u64().unwrap();
        let (share, cost) = (least as f64 / f64::from(32 << 20), backend["cost"].as_f64().unwrap());
        assert!((16 << 20..=32 << 20).contains(&least), "{backend}");
        assert!((backend["memory_cost"].as_f64().unwrap() - (share + (1.0 - share) * cost)).abs() < 1e-9, "{backend}");
        let printed =
            backend["command"].as_str().map(|command| command.contains(&format!(" --local {}M ", least >> 20)));
        assert_eq!(printed, (least < 32 << 20).then_some(true), "{backend}");
    }
    assert_eq!(advice["least_size_bytes"], 16 << 20);
    // Of a walk that is repeated twice, LRU has nothing again unless it has all; the trace does not tell what is written to.
    let curve: Vec<(u64, f64)> = advice["miss_ratios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| (point["local_percent"].as_u64().unwrap(), point["miss_ratio"].as_f64().unwrap()))
        .collect();
    assert_eq!((curve.len(), curve[0], curve[7]), (8, (1, 2.0 / 3.0), (100, 0.0)), "{curve:?}");
    assert!(advice["features"]["written_share"].is_null(), "{advice}");
    let numa = backends.iter().find(|one| one["name"] == "numa").expect("it is one of them");
    let ssd = backends.iter().find(|one| one["name"] == "ssd").expect("it is one of them");
    assert!(numa["command"].as_str().unwrap().ends_with("--far numa:NODE -- walk") && numa["cost"] == 0.5, "{numa}");
    assert!(numa["slowdowns"][0].as_f64() < ssd["slowdowns"][0].as_f64(), "{numa} {ssd}");
    let features = &advice["features"];
    assert_eq!((&features["fragment_ratio"], &features["longest_sequential_run_pages"]), (&0.0.into(), &8192.into()));
    let regions = advice["regions"].as_array().unwrap();
    assert_eq!((regions.len(), &regions[0]["features"]), (1, features), "it lies in one");
    assert_eq!(regions[0]["miss_ratios"], advice["miss_ratios"]);
    let monitor = text(advise(&[&path, "--slowdown", "3", "--fault-path", "monitor"]).stdout);
    assert!(monitor.contains(" --fault-path monitor -- walk\n"), "what was predicted for: {monitor}");
    let table = text(advise(&[&path, "--slowdown", "3"]).stdout);
    let cheapest = advice["cheapest"].as_str().unwrap();
    assert!(table.contains(&format!("{cheapest} keeps the slowdown of 3 at the least cost")), "{table}");
    assert!(table.contains("  hinterland run --local ") && table.contains("8,192 pages"), "{table}");
}

#[test]
fn of_a_program_that_fits_into_the_smallest_budget_nothing_would_be_far() {
    let directory = tempfile::tempdir().unwrap();
    for pages in [7, 200, 2000, 4096] {
        let path = trace_of(&directory, pages).display().to_string();
        let said = text(advise(&[&path, "--slowdown", "3"]).stdout);
        assert!(
            said.contains("a run has 16 MiB of local memory at least: nothing of it would be far"),
            "{pages}: {said}"
        );
        assert!(!said.contains("hinterland run") && !said.contains("With none of them"), "{pages}: {said}");
        assert!(!said.contains("Slowdowns by local memory"), "{pages}: {said}");
        // Of a trace that is within one microset there is no curve.
        assert_eq!(said.contains("\n  misses "), pages >= 64, "{pages}: {said}");
        let advice: Value = serde_json::from_slice(&advise(&[&path, "--json"]).stdout).unwrap();
        for backend in advice["backends"].as_array().unwrap() {
            assert!(backend["least_local_bytes"].as_u64() <= advice["touched_bytes"].as_u64(), "{pages}: {backend}");
            assert!(backend["memory_cost"].as_f64() <= Some(1.0) && backend["command"].is_null(), "{pages}: {backend}");
            assert!(backend["slowdowns"].as_array().unwrap().iter().all(Value::is_null), "{pages}: {backend}");
        }
    }
}

#[test]
fn what_the_trace_cannot_tell_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd.trace");
    let said = |trace: Vec<u8>| {
        std::fs::write(&path, trace).unwrap();
        let output = advise(&[&path.display().to_string(), "--json"]);
        let advice: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), text(output.stderr), advice)
    };
    let (code, note, _) = said(walk(8192, 64, true));
    assert_eq!((code, note.as_str()), (Some(0), ""));
    let (code, note, _) = said(walk(8192, 64, false));
    assert!(code == Some(0) && note.contains("the trace has no end"), "{note}");
    let (code, note, advice) = said(walk(8192, 5_000, true));
    assert!(code == Some(0) && note.contains("up to 5000 pages") && note.contains("a smaller --microset"), "{note}");
    assert_eq!(advice["least_size_bytes"], 20 << 20);
    assert!(advice["backends"].as_array().unwrap().iter().all(|one| one["slowdowns"][1].is_null()), "{advice}");
    let (code, note, _) = said(walk(8192, 8192, true));
    assert!(code == Some(125) && note.contains("it touches no more than that"), "{note}");
}

#[test]
fn a_profile_that_has_a_trace_is_advised_from_like_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(&directory).canonicalize().unwrap().display().to_string();
    let made = directory.path().join("walk.prof").display().to_string();
    let run = |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_hinterland")).args(words).output().unwrap();
    let output = run(&["profile", "--trace", &trace, "-o", &made]);
    assert!(output.status.success(), "{}", text(output.stderr));
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let profile = json(&std::fs::read(&made).unwrap());
    assert_eq!((&profile["format"], &profile["program"]["name"]), (&"hinterland profile".into(), &"walk".into()));
    let advised = |file: &str| json(&advise(&[file, "--json"]).stdout);
    assert_eq!(profile["pages"], advised(&trace));
    assert_eq!(advised(&made), advised(&trace));
    assert!(text(run(&["report", &made]).stdout).contains("nothing was waited for"));
    let refused = |words: &[&str], why: &str| {
        let output = run(words);
        let said = text(output.stderr);
        assert!(output.status.code() == Some(125) && output.stdout.is_empty() && said.contains(why), "{said}");
    };
    refused(&["profile", "--trace", &trace, "-o", &trace], "is the file that is read");
    refused(&["profile", "--trace", &made, "-o", &trace], "is the file that is read");
    for (read, output) in [(&trace, &trace), (&made, &trace), (&made, &made)] {
        refused(&["profile", "--trace", read, "-o", output, "--", "true"], "is what --trace reads");
    }
    assert_eq!(advised(&made), profile["pages"], "trace and profile are as they were");
    refused(&["profile", "--trace", &made, "-o", "/nowhere/a.prof"], "/nowhere");
    refused(&["profile", "--trace", &trace, "-o", &made, "--local", "64M"], "--local=64M is about a run");
    // One of functions alone; another file of text.
    let mut without = profile.clone();
    without.as_object_mut().unwrap().remove("pages");
    std::fs::write(&made, without.to_string()).unwrap();
    refused(&["advise", &made], "`hinterland profile --trace FILE` puts them into a profile");
    std::fs::write(&made, "{\"format\": \"other\"}").unwrap();
    refused(&["advise", &made], "it is a file of another kind");
}

#[test]
fn what_is_written_to_is_a_feature() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("written.trace");
    let head =
        Head { program: "writer".into(), page_bytes: 4096, microset_pages: 64, has_cpu_times: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    let region = writer.region(&Region { name: "far".into(), pages: 64 }).unwrap();
    for (round, written) in [Written::All, Written::None, Written::Unknown, Written::None].into_iter().enumerate() {
        for page in 0..64 {
            writer
                .touch(&Reference { region, page, cpu_ns: (round as u64 + 1) * 1_000_000, ..Reference::default() })
                .unwrap();
        }
        writer.end_microset(written).unwrap();
    }
    writer.finish().unwrap();
    std::fs::write(&path, writer.sink()).unwrap();
    let path = path.display().to_string();
    let advice: Value = serde_json::from_slice(&advise(&[&path, "--json"]).stdout).unwrap();
    let features = &advice["features"];
    assert_eq!(features["written_share"].as_f64(), Some(1.0 / 3.0), "{advice}");
    assert_eq!(features["load_store_ratio"].as_f64(), Some(2.0), "{advice}");
    let words =
        "written to       33.3 %  of the references, before the next microset; for each of these 2.00 are not\n";
    assert!(text(advise(&[&path]).stdout).contains(words));
}

#[test]
fn each_of_the_largest_regions_has_features_and_a_curve() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("regions.trace");
    let head =
        Head { program: "job".into(), page_bytes: 4096, microset_pages: 64, has_cpu_times: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    let region = writer.region(&Region { name: "far".into(), pages: 1 << 20 }).unwrap();
    // A walk through 6,000 pages of the first 64 MiB, which is written to, and every fifth page of the second, of which only the first hundred come again.
    let (walk, hundred) = (0..6_000, (0..100).map(|at| 16_384 + 5 * at));
    let others = (100..2_000).map(|at| 16_384 + 5 * at);
    let pages = hundred.clone().chain(others).chain((0..3).flat_map(|_| walk.clone().chain(hundred.clone())));
    for (at, page) in (1..).zip(pages) {
        writer.touch(&Reference { region, page, cpu_ns: at * 10_000, ..Reference::default() }).unwrap();
        if at % 50 == 0 {
            writer.end_microset(if page < 16_384 { Written::All } else { Written::None }).unwrap();
        }
        if at % 2_000 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap();
    std::fs::write(&path, writer.sink()).unwrap();
    let path = path.display().to_string();
    let advice: Value = serde_json::from_slice(&advise(&[&path, "--json"]).stdout).unwrap();
    let regions = advice["regions"].as_array().unwrap();
    let places: Vec<(&Value, u64, u64, u64)> = regions
        .iter()
        .map(|one| {
            let number = |name: &str| one[name].as_u64().unwrap();
            (&one["region"], number("offset_bytes"), number("touched_bytes") / 4096, number("references"))
        })
        .collect();
    assert_eq!(places, [(&"far".into(), 0, 6_000, 18_000), (&"far".into(), 64 << 20, 2_000, 2_300)]);
    let feature = |at: usize, name: &str| regions[at]["features"][name].as_f64();
    assert_eq!([0, 1].map(|at| feature(at, "fragment_ratio")), [Some(0.0), Some(1.0)]);
    assert_eq!([0, 1].map(|at| feature(at, "written_share")), [Some(1.0), Some(0.0)]);
    assert_eq!([0, 1].map(|at| feature(at, "load_store_ratio")), [Some(0.0), None]);
    assert_eq!(feature(0, "longest_sequential_run_pages"), Some(6_000.0));
    assert!(feature(1, "stride_share") > Some(0.9) && feature(1, "sequential_share") == Some(0.0), "{}", regions[1]);
    // At half of the memory, 4,000 pages, the walk has nothing again; with all of it both have what they touched.
    let curve = |at: usize, point: usize| regions[at]["miss_ratios"][point]["miss_ratio"].as_f64();
    assert_eq!((curve(0, 5), curve(0, 7)), (Some(12_000.0 / 18_000.0), Some(0.0)));
    assert_eq!((curve(1, 5), curve(1, 7)), (Some(300.0 / 2_300.0), Some(0.0)));
    let table = text(advise(&[&path]).stdout);
    for words in ["The largest regions of 64 MiB", "far at 0 B ", "far at 64 MiB ", " 66.7 %"] {
        assert!(table.contains(words), "no '{words}': {table}");
    }
}

#[test]
fn a_clock_that_tracing_decides_is_warned_of_and_the_programs_own_time_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fast.trace");
    // GNU sort's references are 11 ns apart in a trace, and 180 ns untraced.
    std::fs::write(&path, walk_taking(11, 8192, 64, true)).unwrap();
    let path = path.display().to_string();
    let said = |more: &[&str]| {
        let output = advise(&[&[path.as_str(), "--json"], more].concat());
        assert!(output.status.success(), "{}", text(output.stderr));
        (text(output.stderr), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let (warned, traced) = said(&[]);
    assert!(
        warned.contains("tracing them decides the processor times") && warned.contains("--cpu-seconds"),
        "{warned}"
    );
    let (warned, native) = said(&["--cpu-seconds", "0.003"]);
    assert_eq!((warned.as_str(), &native["cpu_seconds"]), ("", &0.003.into()));
    let at_half = |advice: &Value| advice["backends"][0]["slowdowns"][1].as_f64().unwrap();
    assert!(at_half(&native) < at_half(&traced), "{native} {traced}");
    let simulated = Command::new(env!("CARGO_BIN_EXE_hinterland")).args(["sim", &path]).output().unwrap();
    assert!(text(simulated.stderr).contains("tracing them decides the processor times"));
    for nonsense in ["0", "-1", "1e-10", "NaN", "inf", "1e9", "soon"] {
        let output = advise(&[&path, &format!("--cpu-seconds={nonsense}")]);
        assert!(text(output.stderr).contains("is not a time: seconds above 0 and up to 100000000"), "{nonsense}");
    }
}

#[test]
fn a_cost_file_is_taken_and_what_is_wrong_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = trace(&directory).display().to_string();
    let costs = directory.path().join("costs.toml");
    let written = text(advise(&["--example-costs"]).stdout);
    std::fs::write(&costs, written.replace("cost = 0.3", "cost = 0.001")).unwrap();
    let costs = costs.display().to_string();
    let output = advise(&[&path, "--costs", &costs, "--json"]);
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(advice["backends"][0]["name"], "node-25g", "nearly free");
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = advise(arguments);
        let said = text(output.stderr);
        assert!(output.status.code() == Some(code) && output.stdout.is_empty() && said.contains(words), "{said}");
    };
    std::fs::write(&costs, "version = 1\n[[backend]]\nname = \"a\"\nlink = \"ssd\"\ncost = -1\n").unwrap();
    refused(&[&path, "--costs", &costs], 125, "costs.toml: backend 'a': -1 is not a cost");
    refused(&[&costs], 125, "this is no trace");
    refused(&["/nowhere.trace"], 125, "/nowhere.trace: ");
    refused(&[&path, "--slowdown", "0.5"], 125, "'0.5' is not a slowdown");
    let half = directory.path().join("half.trace");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    refused(&[&half.display().to_string()], 125, "record it again");
}
