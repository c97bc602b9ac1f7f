//! The command as it is run.

use std::process::{Command, Output};

fn model(line: &str) -> Output {
    let words = line.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_hinterland-model")).args(words).output().expect("the command starts")
}

const SMALL: &str = "--size 4096 --references 100000 --warm-up 20000";

#[test]
fn the_json_has_a_row_for_each_scheme_and_link_and_is_the_same_each_time() {
    let line = format!("daemon pr --scheme remote,daemon --bandwidth 1/2,1/8 --switch 100ns,400ns --json {SMALL}");
    let first = model(&line);
    assert!(first.status.success(), "{first:?}");
    let report: serde_json::Value = serde_json::from_slice(&first.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), report["means"].as_array().expect("means").len()), (8, 8));
    assert_eq!((&rows[0]["scheme"], &rows[0]["speedup"]), (&"remote".into(), &1.0.into()));
    assert_eq!((&rows[7]["bandwidth"], &rows[7]["switch_ns"]), (&"1/8".into(), &400.into()));
    assert!(rows.iter().all(|row| row["instructions_per_cycle"].as_f64() > Some(0.0)), "{rows:?}");
    assert_eq!(report["programs"][0]["references"], 120_000);
    assert_eq!(first.stdout, model(&line).stdout);
}

#[test]
fn a_measured_part_without_a_miss_is_refused() {
    // 16,384 vertices have 1.3 MiB, which the caches hold after the warm-up.
    let answer = model("daemon tr --size 16384 --warm-up 3000000 --references 1000");
    let stderr = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(125), "{answer:?}");
    assert!(stderr.contains("tr: the 1000 references after 3000000 of warm-up"), "{stderr}");
    assert!(stderr.contains("a larger --size or a smaller --warm-up"), "{stderr}");
    let text = " L 1000,8\n".repeat(30);
    let path = recorded("cached.lines", &text);
    let answer = model(&format!("daemon --lines {path} --warm-up 10"));
    let stderr = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.code() == Some(125) && stderr.contains("take a smaller --warm-up"), "{stderr}");
}

#[test]
fn local_memory_beside_the_last_level_cache_is_noted() {
    // Of 4 MiB and of 20 MiB a fifth is local; 40 % of 12 MiB are more than the cache.
    let lines = |pages: u64| (0..pages).map(|page| format!(" L {:x},8\n", page * 4096)).collect::<String>();
    for (pages, local, note) in [
        (1024, 20, "has room for all 4096 KiB that were touched"),
        (1025, 20, "local memory of 820 KiB is smaller than the last-level cache of 4096 KiB"),
        (3072, 40, ""),
    ] {
        let path = recorded(&format!("{pages}.lines"), &(lines(pages) + "==1== Exit code:       0\n"));
        let line = format!("daemon --lines {path} --scheme remote --warm-up 0 --local {local}%");
        let table = String::from_utf8(model(&line).stdout).expect("text");
        assert_eq!(table.contains("note: "), !note.is_empty(), "{pages}: {table}");
        assert!(table.contains(note), "{pages}: {table}");
        let report: serde_json::Value = serde_json::from_slice(&model(&format!("{line} --json")).stdout).expect("JSON");
        let notes = report["notes"].as_array().expect("a list");
        assert_eq!(notes.len(), usize::from(!note.is_empty()), "{pages}: {notes:?}");
    }
}

#[test]
fn several_workloads_have_means() {
    let answer = model(&format!("daemon sl bf --scheme local {SMALL}"));
    let text = String::from_utf8(answer.stdout).expect("text");
    assert!(text.contains("workload") && text.contains("mean"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("local")).count(), 3, "{text}");
}

#[test]
fn the_papers_ratio_changes_what_is_compressed_alone() {
    let of = |ratio: &str| {
        let answer = model(&format!("daemon sp --scheme pq,lc --ratio {ratio} --json {SMALL}"));
        let report: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
        (report["rows"][0]["down_bytes"].clone(), report["rows"][1]["down_bytes"].clone())
    };
    let (measured, paper) = (of("measured"), of("paper"));
    assert_eq!(measured.0, paper.0);
    assert_ne!(measured.1, paper.1);
}

#[test]
fn each_compressor_has_a_ratio_of_its_own_and_changes_nothing_else() {
    let of = |compressor: &str| {
        let answer = model(&format!(
            "daemon hp --scheme pq,lc --compressor {compressor} --json --size 16 --references 50000 --warm-up 0"
        ));
        let report: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
        assert_eq!(report["compressor"], compressor);
        let ratio = report["programs"][0]["measured_ratio"].as_f64().expect("a number");
        (ratio, report["rows"][0].clone(), report["rows"][1]["down_bytes"].clone())
    };
    let [lz, fpc_bdi, fve] = ["lz", "fpc-bdi", "fve"].map(of);
    assert!(lz.0 > fpc_bdi.0 && lz.0 > fve.0 && fpc_bdi.0 > 1.0 && fve.0 > 1.0, "{} {} {}", lz.0, fpc_bdi.0, fve.0);
    // PQ does not compress, LC carries what the compressor leaves.
    let speed = |row: &serde_json::Value| row["instructions_per_cycle"].clone();
    assert!([&fpc_bdi, &fve].iter().all(|other| speed(&other.1) == speed(&lz.1)));
    assert!(lz.2 != fpc_bdi.2 && lz.2 != fve.2 && fpc_bdi.2 != fve.2);
}

#[test]
fn threads_programs_at_once_links_and_disturbances_are_in_the_json() {
    let report = |line: &str| -> serde_json::Value {
        let answer = model(&format!("daemon {line} --scheme remote,daemon --json {SMALL}"));
        assert!(answer.status.success(), "{line}: {answer:?}");
        assert_eq!(
            answer.stdout,
            model(&format!("daemon {line} --scheme remote,daemon --json {SMALL}")).stdout,
            "{line}"
        );
        serde_json::from_slice(&answer.stdout).expect("JSON")
    };
    let [alone, threads] = ["bf", "bf --threads 8"].map(report);
    assert_eq!((&alone["threads"], &threads["threads"]), (&1.into(), &8.into()));
    let ipc = |report: &serde_json::Value| report["rows"][0]["instructions_per_cycle"].as_f64().expect("a number");
    assert!(ipc(&threads) > ipc(&alone), "{} on one core, {} on eight", ipc(&alone), ipc(&threads));
    let together = report("bf sl --together --local 15%");
    let rows = together["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| (&row["workload"], &row["scheme"])).collect();
    assert_eq!(names.len(), 4);
    assert_eq!((names[0], names[3]), ((&"bf".into(), &"remote".into()), (&"sl".into(), &"daemon".into())));
    assert_eq!((&together["together"], &rows[0]["down_bytes"]), (&true.into(), &rows[1]["down_bytes"]));
    assert!(ipc(&together) < ipc(&alone), "{} beside another, {} alone", ipc(&together), ipc(&alone));
    let utilisation = alone["rows"][0]["utilisation"].as_f64().expect("of one program");
    assert!((1.0..=100.0).contains(&utilisation) && rows[0]["utilisation"].is_null(), "{utilisation}");
    let links = report("bf --links 1/4:100ns,1/8:300ns");
    assert_eq!((&links["components"], &links["rows"][0]["bandwidth"]), (&2.into(), &"1/4:100ns+1/8:300ns".into()));
    assert_eq!(links["rows"][0]["switch_ns"], 200);
    let disturbed = report("bf --disturbance 80% --disturbance-interval 50us");
    assert!(disturbed["disturbance_percent"] == 80 && ipc(&disturbed) < ipc(&alone));
}

/// A file of loads and stores, as lackey writes them.
fn recorded(name: &str, text: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("a plain path").to_owned()
}

#[test]
fn loads_and_stores_of_any_program_are_replayed_and_wrong_ones_named_with_their_line() {
    let accesses =
        (0..3000).map(|number| format!("I  04001000,4\n L {:x},8\n", 0x4a0_0000 + number * 4160)).collect::<String>();
    let path = recorded("app.lines", &format!("==1== Lackey, an example Valgrind tool\n{accesses}"));
    let answer = model(&format!("daemon --lines {path} --scheme remote,daemon --warm-up 1000 --json"));
    assert!(answer.status.success(), "{answer:?}");
    let report: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let program = &report["programs"][0];
    assert_eq!(
        (&program["name"], &program["references"], &program["instructions"]),
        (&path.as_str().into(), &3000.into(), &3000.into())
    );
    assert_eq!(
        (&program["llc_misses"], &program["unit"], &program["measured_ratio"]),
        (&3000.into(), &"pages".into(), &serde_json::Value::Null)
    );
    assert!(report["rows"].as_array().expect("rows").iter().all(|row| row["access_ns"].as_f64() > Some(0.0)));
    // Whether a recording that ends with a line is whole, lackey's last message says; with --references it is not looked for.
    let noted = |more: &str| {
        String::from_utf8(model(&format!("daemon --lines {path} --scheme remote --warm-up 1000 {more}")).stdout)
            .expect("text")
    };
    assert!(noted("").contains("the recording does not say that the program has ended"));
    assert!(!noted("--references 1000").contains("has ended"));
    for (text, said) in [
        (&accesses[..accesses.len() - 5], "line 6000 ends without a line break"),
        ("I  04001000,4\nT 1\n", "line 2 is 'T 1', not lackey's"),
        ("", "no loads and stores"),
    ] {
        let answer = model(&format!("daemon --lines {}", recorded("wrong.lines", text)));
        assert_eq!(answer.status.code(), Some(125), "{said}");
        let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(stderr.contains(said) && stderr.contains("wrong.lines"), "{said}: {stderr}");
    }
    let answer = model("daemon --lines no/such.lines");
    assert!(
        answer.status.code() == Some(125) && String::from_utf8_lossy(&answer.stderr).contains("cannot be opened"),
        "{answer:?}"
    );
}

/// A file of two programs, of which the first is friendly.
fn measured(file: &str, cpu_seconds: f64) -> String {
    let point = |percent, slowdown| serde_json::json!({"backend": "ssd", "local_percent": percent, "slowdown": slowdown, "far_bytes_per_second": 1e6});
    let program = |name, points: &[serde_json::Value]| serde_json::json!({"name": name, "touched_bytes": 1 << 30, "cpu_seconds": cpu_seconds, "points": points});
    let ssd =
        serde_json::json!({"name": "ssd", "bytes_per_second": 5e8, "capacity_gib": 1024, "local_bytes_per_byte": 0.0});
    let programs = [program("a", &[point(50, 1.1), point(20, 1.4)]), program("b", &[point(80, 1.4)])];
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let text = serde_json::json!({"version": 1, "backends": [ssd], "programs": programs}).to_string();
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// New machines are there after a minute, which is longer than these programs run: figures are taken when they are.
#[test]
fn programs_that_are_shorter_than_a_machine_takes_to_be_made_are_measured_on_machines_that_are_there() {
    let programs = measured("short.json", 0.1);
    let answer = model(&format!("cluster --programs {programs} --machines 50 --slowdown 1.2 --friendly 100 --json"));
    let report: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    // Seven programs of 9.1 GiB fit into 64, and each runs for 0.1 s × 9.1.
    let (wanted, got) =
        (50.0 * 7.0 * 3600.0 / 0.91, report["rows"][0]["programs_per_hour"].as_f64().expect("a number"));
    assert!((got / wanted - 1.0).abs() < 0.05, "{got} an hour, not {wanted}");
}

#[test]
fn a_cluster_is_simulated_and_its_json_has_a_row_for_each_mix_and_slowdown() {
    let programs = format!("cluster --programs {}", measured("programs.json", 10.0));
    let line = &format!("{programs} --machines 20 --slowdown 1.2,1.4 --friendly 0,50,100 --json");
    let first = model(line);
    assert!(first.status.success(), "{first:?}");
    let report: serde_json::Value = serde_json::from_slice(&first.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0]["slowdown"], &rows[0]["gain"]), (9, &serde_json::Value::Null, &1.0.into()));
    assert!(rows.iter().all(|row| row["programs_per_hour"].as_f64() > Some(0.0)), "{rows:?}");
    assert_eq!(first.stdout, model(line).stdout);
    for (words, said) in [
        ("--slowdown 0.9", "is no slowdown"),
        ("--backends tape", "is no backend"),
        (
            "--machines 1 --cores 1 --load 1 --friendly 50",
            "no program ends in the measured time, 50 % of them friendly",
        ),
        ("--mean 0.001 --machines 1000000 --cores 1024", "arrive, too many"),
    ] {
        let answer = model(&format!("{programs} {words}"));
        assert_eq!(answer.status.code(), Some(125), "{words}");
        assert!(String::from_utf8_lossy(&answer.stderr).contains(said), "{words}: {answer:?}");
    }
    let too_long = model(&format!("cluster --programs {}", measured("long.json", 9e8)));
    assert_eq!(too_long.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&too_long.stderr).contains("a program runs for 8190000000 s"), "{too_long:?}");
}

#[test]
fn nonsense_ends_with_125_and_help_with_0() {
    for (line, said) in [("daemon zz", "is no workload"), ("daemon pr --bandwidth 2", "1/1 to 1/1024"), ("", "Usage")] {
        let answer = model(line);
        assert_eq!(answer.status.code(), Some(125), "{line}");
        assert!(String::from_utf8_lossy(&answer.stderr).contains(said), "{line}: {answer:?}");
    }
    let help = model("daemon --help");
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).expect("text");
    let examples: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  hinterland-model ")).collect();
    assert_eq!(examples.len(), 12, "{help}");
    let lines = recorded("help.lines", " L 1000,8\n S 2000,8\n");
    for example in examples {
        // The first column is the command; what follows two spaces is a remark. A later flag of the same name would be refused.
        let command = example.split("  ").next().expect("a command");
        let small = if command.contains("--references") { "" } else { " --references 1000 --warm-up 0" };
        let size = if command.contains("--size") || command.contains("--lines") { "" } else { " --size 64" };
        let answer = model(
            &format!("{command}{small}{size}")
                .replace("--references 2000000", "--references 1000")
                .replace("app.lines", &lines),
        );
        assert!(answer.status.success(), "{command}: {answer:?}");
    }
}
