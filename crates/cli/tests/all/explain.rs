//! `hinterland explain` as a user runs it, on figures that are made up: its words, its JSON's names, and what it refuses.

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Figures of a run that walked and jumped about.
fn stats() -> Value {
    let place = |name: u64, sequential: u64| {
        json!({
            "pid": 7, "name": name, "first_touches": 10, "major": 3000, "minor": 500, "prefetch_hits": 500,
            "sequential": sequential, "strided": 0, "step": 0, "windows": 400, "window_pages": 25_600,
            "window_pages_max": 64, "choice": 1, "fetched_pages": 20_000, "unused_pages": 20,
        })
    };
    let mut stats = json!({
        "stats_version": 2, "program": "job", "fault_path": "inline", "reason": "pages move", "process_count": 1,
        "local_budget_bytes": 1 << 27, "managed_peak_bytes": 1 << 28, "stall_seconds": 1.5, "stall_share": 0.4,
        "first_touch_faults": 20, "major_faults": 6000, "minor_faults": 1000,
        "evicted_clean_pages": 1, "evicted_dirty_pages": 1, "evicted_zero_pages": 1, "evicted_free_pages": 1,
        "prefetcher": "streams", "prefetcher_source": null, "read_ahead_pages": null,
        "prefetched_pages": 40_000, "prefetch_hits": 30_000, "prefetch_hits_observed": 1000,
        "prefetch_hits_inferred": 29_000, "prefetched_unmapped_pages": 1100, "prefetch_unused_pages": 40,
        "prefetch_accuracy": 0.909, "prefetch_coverage": 0.811, "prefetch_wait_ns": {"p50": 12_000, "p99": 90_000},
        "prefetch_late_faults": 0, "prefetch_windows": 800, "prefetch_window_pages": 51_200,
        "prefetch_window_pages_max": 64, "prefetch_window_bound_pages": 64, "load_one_ns": 6300, "load_page_ns": 1310, "prefetch_is_sparing": true, "prefetch_windows_dropped": 0, "prefetch_windows_refused": 0,
        "threads": [place(71, 3900), place(72, 100)],
        "regions": [place(0x4800_0000_0000, 3900), place(0x4800_0400_0000, 100)],
    });
    stats["random_victim_pages"] = 77.into();
    for name in ["threads", "threads_without", "batches", "pages", "left", "left_position", "left_page", "resumed"] {
        stats[format!("tape_{name}")] = 0.into();
    }
    stats
}

fn explain(stats: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
    command.args(["explain", "-"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stats.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn refusal(stats: &str) -> String {
    let output = explain(stats, &[]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn says_what_was_seen_and_done_by_thread_and_region() {
    let output = explain(&stats().to_string(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "job: prefetcher streams (the default; it follows streams of any step, several at once)",
        "77 pages were chosen at random to be evicted, because nearly all fit into local memory",
        "8,000 requests for content that was not mapped: 6,000 waited for far memory (major), 1,000 found",
        "patterns: 50.0 % sequential, 0.0 % strided, 50.0 % irregular",
        "800 windows of 64.0 pages on average, 64 at most",
        "40,000 pages were prefetched: 30,000 are known to have been used (1,000 observed, 29,000 inferred)",
        "of 1,100 prefetched pages that were left unmapped 90.9 % were used, half of them within 12.0 µs; 40 were evicted unused",
        "a load of one page took 6.3 µs, each further one 1.3 µs: so windows might have 64 pages",
        "a load takes processor time, and there are few processors: of short runs only pages were fetched that most runs reach",
        "sequential, 97.5 %",
        "irregular, 97.5 %",
        "0x480004000000",
        "nothing: prefetching covered 81.1 % of the requests for content",
    ] {
        assert!(text.contains(part), "no '{part}':\n{text}");
    }
}

#[test]
fn the_features_of_the_pages_are_told_where_they_are_known() {
    let mut stats = stats();
    let text = |stats: &Value| String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    assert!(!text(&stats).contains("what its pages did"), "figures of before there were features");
    stats["features"] = json!({
        "fragment_ratio": 0.25, "sequential_share": 0.5, "stride_share": 0.0, "longest_sequential_run_pages": 4096,
        "load_store_ratio": 3.0, "anonymous_file_ratio": null, "larger_memory": [{"local_percent": 125, "load_share": 0.75}],
    });
    let words = "what its pages did\n  25.0 % of the pages were in runs of fewer than 16; the longest sequential run had 4,096 pages\n  \
                 for each page that left changed 3.00 left unchanged\n  with more local memory so much would still be loaded: 75.0 % with 125 %\n";
    assert!(text(&stats).contains(words), "{}", text(&stats));
    let found: Value = serde_json::from_slice(&explain(&stats.to_string(), &["--json"]).stdout).unwrap();
    assert_eq!(found["features"], stats["features"]);
}

#[test]
fn a_run_that_could_not_keep_its_slowdown_beside_others_says_what_it_would_have_needed() {
    let mut stats = stats();
    let text = |stats: &Value| String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    stats["service_level"] = json!({"slowdown_asked": 1.2, "short_share_bytes": null, "short_wanted_bytes": null});
    assert!(!text(&stats).contains("what it lacked"));
    stats["service_level"]["short_share_bytes"] = (900u64 << 20).into();
    stats["service_level"]["short_wanted_bytes"] = (1u64 << 30).into();
    let words = "what it lacked\n  to keep the slowdown of 1.2 the run would have needed up to 1 GiB when its share of the machine was 900 MiB";
    assert!(text(&stats).contains(words), "{}", text(&stats));
}

#[test]
fn the_tiers_of_several_paths_are_explained_and_one_path_is_none() {
    let mut stats = stats();
    let path = |url: &str, tier: u64, one_ns: u64, changes: u64| {
        json!({
            "url": url, "stored_peak_bytes": tier << 30, "tier": tier, "tier_changes": changes, "load_one_ns": one_ns,
            "load_queue_ns": 300,
        })
    };
    let one = path("compressed:2G", 1, 4_100, 0);
    stats["backends"] = json!([one]);
    let text = |stats: &Value| String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    assert!(!text(&stats).contains("where pages went"));
    stats["backends"] = json!([one, path("unix:/node", 2, 60_000, 3), path("file:/far", 3, 0, 0)]);
    let said = text(&stats);
    for line in [
        "where pages went\n  compressed:2G: tier 1, at most 1 GiB; a page alone takes 4.1 µs, and waits 0.3 µs for others\n",
        "  unix:/node: tier 2, at most 2 GiB; a page alone takes 60.0 µs, and waits 0.3 µs for others; \
         tier changes as these times changed: 3\n",
        "  file:/far: tier 3, at most 3 GiB\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let found: Value = serde_json::from_slice(&explain(&stats.to_string(), &["--json"]).stdout).unwrap();
    assert_eq!((found["paths"].as_array().map(Vec::len), &found["paths"][1]["tier_changes"]), (Some(3), &json!(3)));
    // A pool has a row for each of its nodes.
    let pool = [path("tcp://a", 2, 0, 1), path("tcp://b", 2, 0, 1)];
    stats["backends"] = json!([one, pool[0], pool[1]]);
    let said = text(&stats);
    for node in ["a", "b"] {
        let line = format!("\n  tcp://{node}: tier 2, at most 2 GiB; tier changes as these times changed: 1\n");
        assert!(said.contains(&line), "{line}: {said}");
    }
}

#[test]
fn waiting_of_several_threads_is_that_of_each() {
    let mut stats = stats();
    (stats["stall_seconds"], stats["stall_share"], stats["stall_threads"]) = (json!(6.0), json!(1.6), json!(4));
    let text = String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    assert!(text.contains("the program waited for 6.00 s in all over 4 threads: 40.0 % of the run for each"), "{text}");
    let found: Value = serde_json::from_slice(&explain(&stats.to_string(), &["--json"]).stdout).unwrap();
    let saw = ["stall_share", "stall_threads", "waiting"].map(|name| found["saw"][name].as_f64().unwrap());
    assert_eq!(saw, [1.6, 4.0, 0.4]);
    // Each waited for less than a tenth of its time, all together for most of the run.
    let jumps = json!([stats["threads"][1]]);
    let advice = |share: f64| {
        advised(json!({"threads": jumps, "stall_share": share, "stall_threads": 8, "prefetch_coverage": 0.029}))
    };
    assert_eq!(advice(0.7), ["nothing"]);
    assert_eq!(advice(0.9), ["more --local, or faster far memory"]);
    // Of more threads than are known it is no more than all of their time.
    (stats["stall_share"], stats["stall_threads"]) = (json!(64.0), json!(16));
    let text = String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    assert!(text.contains("over 16 threads or more: at most 100.0 % of the run for each"), "{text}");
}

#[test]
fn the_json_has_the_promised_names() {
    let output = explain(&stats().to_string(), &["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["requests", "major", "minor", "prefetch_hits", "first_touches"] {
        assert!(found["saw"][name].is_u64(), "{name}");
    }
    for name in ["windows", "window_pages_max", "fetched", "used", "used_seen", "used_inferred", "wasted", "late"] {
        assert!(found["did"][name].is_u64(), "{name}");
    }
    assert_eq!(found["threads"][0]["pattern"], "sequential");
    assert_eq!(found["regions"][1]["pattern"], "irregular");
    assert_eq!(found["saw"]["patterns"]["sequential"], 0.5);
    assert_eq!(found["advice"][0]["change"], "nothing");
}

#[test]
fn says_what_was_on_a_numa_node_and_that_it_is_no_ram_of_the_run() {
    let mut stats = stats();
    stats["backends"] = json!([
        {"url": "compressed:1G?codec=lz4", "stored_peak_bytes": 5}, {"url": "numa:1:16G", "stored_peak_bytes": 3u64 << 30}
    ]);
    let output = explain(&stats.to_string(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("what was on numa:1:16G\n  at most 3 GiB: far memory, so --ram does not count it"), "{text}");
    assert!(!text.contains("what was on compressed"), "{text}");
}

#[test]
fn says_how_a_tape_was_followed_and_where_it_was_left() {
    let mut stats = stats();
    assert!(!String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap().contains("tape"));
    let figures = [("threads", 2), ("threads_without", 1), ("batches", 400), ("pages", 40_000), ("left", 3)];
    let last = [
        ("left_position", 71_234),
        ("left_page", 0x1e2f),
        ("resumed", 2),
        ("beside_faults", 77),
        ("early_faults", 1_240),
    ];
    for (name, value) in figures.into_iter().chain(last) {
        stats[format!("tape_{name}")] = value.into();
    }
    let text = String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    for part in
        ["2 of 3 threads followed it: 40,000 pages were requested in 400 batches", "left 3 times", "position 71,234"]
            .into_iter()
            .chain([
                "page 0x1e2f was requested",
                "found on it again 2 times",
                "77 faults of threads on it were for pages that it",
            ])
            .chain(["1,240 were for pages that the plan has in local memory, and that were evicted early"])
    {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

#[test]
fn says_how_many_phases_of_an_unordered_tape_began_and_were_given_up() {
    let mut stats = stats();
    for (name, value) in [("phases", 40), ("phases_begun", 31), ("batches", 300), ("pages", 9_000)] {
        stats[format!("tape_{name}")] = value.into();
    }
    let text = String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    assert!(text.contains("31 of its 40 phases began: 9,000 pages were requested in 300 batches"), "{text}");
    assert!(!text.contains("given up"), "{text}");
    stats["tape_phases_given_up"] = 4.into();
    let text = String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    assert!(text.contains("4 phases were given up, because the program touched other pages"), "{text}");
}

#[test]
fn says_what_blocks_and_patches_did_where_there_were_some() {
    let mut stats = stats();
    let before = String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    assert!(!before.contains("blocks") && !before.contains("sub-page"), "{before}");
    let figures = [("blocks_asked", 500), ("block_pages", 3000), ("block_used_pages", 1200), ("block_size_pages", 8)]
        .into_iter()
        .chain([
            ("block_faults", 70),
            ("blocks_refused_full", 6),
            ("blocks_refused_unused", 9),
            ("block_page_first", 4),
        ]);
    let patches = [("evicted_dirty_pages", 4000), ("patched_pages", 3000), ("patched_bytes", 4_288_000)];
    for (name, value) in figures.chain(patches) {
        stats[name] = value.into();
    }
    let text = String::from_utf8(explain(&stats.to_string(), &[]).stdout).unwrap();
    for part in [
        "500 blocks of 32 KiB in the end were requested around pages that the program waited for; 3,000 pages came with them, of which 40.0 % were used",
        "a page alone, 70 for a block",
        "6 blocks were not requested because those in flight filled their room",
        "9 blocks were not requested because too few pages of those before them had been used",
        "4 pages were requested alone although their block had been requested",
        "of 3,000 of 4,000 pages that were written back only what had changed was sent",
        "48.8 % of all",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let found: Value = serde_json::from_slice(&explain(&stats.to_string(), &["--json"]).stdout).unwrap();
    let saw = |name: &str| found["saw"][name].as_u64();
    assert_eq!(saw("major"), stats["major_faults"].as_u64().map(|alone| alone + 70));
    assert_eq!(saw("prefetch_hits"), Some(1000 - 70), "those had been waited for");
    assert_eq!((&found["blocks"]["used"], &found["patches"]["spared_bytes"]), (&json!(1200), &json!(8_000_000)));
}

/// The changes that are advised after some figures were changed.
fn advised(changes: Value) -> Vec<String> {
    let mut stats = stats();
    for (name, value) in changes.as_object().unwrap() {
        stats[name] = value.clone();
    }
    let found: Value = serde_json::from_slice(&explain(&stats.to_string(), &["--json"]).stdout).unwrap();
    found["advice"].as_array().unwrap().iter().map(|one| one["change"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn advice_follows_from_the_figures() {
    assert_eq!(advised(json!({"prefetcher": "none"})), ["leave --prefetch out"]);
    assert_eq!(advised(json!({"read_ahead_pages": 0})), ["leave --read-ahead 0 out"]);
    assert_eq!(advised(json!({"prefetch_accuracy": 0.2})), ["a smaller --read-ahead"]);
    assert_eq!(advised(json!({"prefetch_accuracy": 0.2, "prefetch_coverage": 0.05})), ["--prefetch none"]);
    assert_eq!(advised(json!({"prefetch_late_faults": 2000})), ["a larger --read-ahead, or faster far memory"]);
    assert_eq!(advised(json!({"prefetch_windows_refused": 300})), ["more --local, or a smaller --read-ahead"]);
    assert_eq!(advised(json!({"prefetch_windows_dropped": 300})), ["a processor for the read-ahead thread"]);
    assert_eq!(advised(json!({"minor_faults": 5000})), ["a little more --local"]);
    let slow = |mut more: Value| {
        let mut figures =
            json!({"prefetch_window_pages": 1_588_344, "prefetched_pages": 12_866, "prefetch_coverage": 0.029});
        figures.as_object_mut().unwrap().append(more.as_object_mut().unwrap());
        advised(figures)
    };
    assert_eq!(slow(json!({})), ["a free processor, fewer threads, or --fault-path monitor"]);
    assert_eq!(slow(json!({"fault_path": "monitor"})), ["a free processor, or fewer threads"]);
    assert_eq!(slow(json!({"prefetch_windows_dropped": 300})), ["a processor for the read-ahead thread"]);
    assert_eq!(advised(json!({"prefetch_coverage": 0.029})), ["another --prefetch"]);
    let jumps = json!([stats()["threads"][1]]);
    assert_eq!(advised(json!({"prefetch_coverage": 0.029, "threads": jumps, "stall_share": 0.01})), ["nothing"]);
    assert_eq!(advised(json!({"threads": jumps})), ["more --local, or faster far memory"]);
    assert_eq!(advised(json!({"major_faults": 5, "minor_faults": 5, "prefetch_hits_observed": 5})), ["nothing"]);
}

#[test]
fn what_has_nothing_to_explain_is_refused_with_the_reason() {
    assert!(refusal("exit code 0\n").contains("is not JSON"));
    assert!(refusal("{}").contains("is JSON, but not the figures of a run; `hinterland run --stats FILE"));
    let of = |name: &str, value: Value| {
        let mut stats = stats();
        stats[name] = value;
        refusal(&stats.to_string())
    };
    assert!(of("stats_version", json!(3)).contains("have version 3, and this hinterland reads version 2"));
    assert!(of("threads", json!("none")).contains("is damaged"));
    assert!(of("fault_path", json!("none")).contains("job was not managed (pages move)"));
    let mut idle = stats();
    for name in ["major_faults", "minor_faults", "prefetch_hits_observed"] {
        idle[name] = json!(0);
    }
    for name in ["evicted_clean_pages", "evicted_dirty_pages", "evicted_zero_pages", "evicted_free_pages"] {
        idle[name] = json!(0);
    }
    let says = refusal(&idle.to_string());
    assert!(says.contains("no page of job was ever evicted (256 MiB of a budget of 128 MiB)"), "{says}");
    let missing = Command::new(env!("CARGO_BIN_EXE_hinterland")).args(["explain", "/no/such/file"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such/file: No such file"));
}
