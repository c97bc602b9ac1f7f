//! What `./dev results` writes to `docs/results` from the rows of the tests' runs ([`crate::results`]).

use crate::runtimes::{self, Runtime};
use crate::{MIB, PATHS, places, skips};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

/// The last row of each program and variant of a results file; what lies in the tests' directory is named from there on.
///
/// # Errors
/// A line is no row.
pub fn last_rows(text: &str) -> Result<Vec<Value>> {
    let text = text.replace(&format!("{}/", places::tests().display()), "");
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).context("a row")?;
        let key =
            ["program", "path", "features", "far", "heap", "evict", "size_bytes"].map(|name| row[name].to_string());
        rows.insert(key, row);
    }
    Ok(rows.into_values().collect())
}

/// The language runtimes beside their native runs: a row for each run, and why there is none of the others.
pub fn runtimes(rows: &[Value]) -> Value {
    let figures = |row: &Value| {
        json!({
            "runtime": row["program"], "about": row["about"], "path": row["path"],
            "native_seconds": row["native_seconds"], "native_anonymous_peak_bytes": row["native_anonymous_peak_bytes"],
            "budget_bytes": row["budget_bytes"], "seconds": row["seconds"], "ended": row["ended"],
            "fault_path": row["stats"]["fault_path"], "major_faults": row["stats"]["major_faults"],
        })
    };
    let has_run = |runtime: &&Runtime| rows.iter().any(|row| row["program"] == runtime.scenario.name);
    let without = runtimes::ALL.iter().filter(|runtime| !has_run(runtime)).map(|runtime| {
        let reason = skips::missing(runtime.scenario.needs).unwrap_or_else(|| "was not run".into());
        json!({"runtime": runtime.scenario.name, "reason": reason})
    });
    let elsewhere = runtimes::ELSEWHERE
        .iter()
        .map(|(name, why, test)| json!({"runtime": name, "reason": format!("{why} ({test})")}));
    json!({
        "commands": ["./dev test --full e2e::runtimes", "./dev results"],
        "commit": said("git", &["-C", &places::repository().display().to_string(), "describe", "--always", "--dirty"]),
        "date": said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        "machine": {
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "cpu": processor(), "kernel": said("uname", &["-r"]),
        },
        "rows": rows.iter().map(figures).collect::<Vec<_>>(),
        "skipped": without.chain(elsewhere).collect::<Vec<_>>(),
    })
}

/// The same for readers: a line for each runtime, with both fault paths.
pub fn runtimes_table(results: &Value) -> String {
    let mut text = String::from(
        "# Language runtimes in a third of their memory\n\nMade by `./dev results` from [runtimes.json](runtimes.json), which says where and when. Each \
         visits and replaces records in random order. Seconds, and major faults, each natively and on a fault path in a third of its native \
         peak; what is not ok says so.\n\n\
         | runtime | native MiB | budget MiB | native s | monitor s | faults | inline s | faults |\n|---|---|---|---|---|---|---|---|\n",
    );
    let none = Vec::new();
    let rows = results["rows"].as_array().unwrap_or(&none);
    for runtime in runtimes::ALL {
        let of_it = || rows.iter().filter(|row| row["runtime"] == runtime.scenario.name);
        // One that was to take this path, which a run without statistics does not tell; else one that took it.
        let of = |path: &str| ["path", "fault_path"].iter().find_map(|name| of_it().find(|row| row[*name] == path));
        let found = PATHS[..2].iter().map(|path| of(path)).collect::<Vec<_>>();
        let Some(first) = of_it().next() else { continue };
        let mib = |name: &str| first[name].as_u64().unwrap_or(0) / MIB;
        let (peak, budget) = (mib("native_anonymous_peak_bytes"), mib("budget_bytes"));
        let native = first["native_seconds"].as_f64().unwrap_or(0.0);
        let _ = write!(text, "| {} | {peak} | {budget} | {native:.1} |", runtime.scenario.name);
        for row in found {
            let _ = match row {
                None => write!(text, " – | – |"),
                Some(row) if row["ended"] != "ok" => write!(text, " {} | |", row["ended"].as_str().unwrap_or("?")),
                Some(row) => {
                    write!(text, " {:.1} | {} |", row["seconds"].as_f64().unwrap_or(0.0), row["major_faults"])
                }
            };
        }
        text.push('\n');
    }
    for skipped in results["skipped"].as_array().unwrap_or(&none) {
        let word = |name: &str| skipped[name].as_str().unwrap_or("?").to_owned();
        let _ = write!(text, "\n- {}: {}", word("runtime"), word("reason"));
    }
    text.trim_end().to_owned() + "\n"
}

/// The first line that a command prints; `None`: it cannot say.
fn said(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

/// As proc_cpuinfo(5) names it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, seconds: f64, ended: &str) -> String {
        json!({
            "program": "perl", "about": "counted references", "path": path, "features": "all", "far": "compressed", "heap": "all",
            "evict": "s3-fifo", "size_bytes": 1, "ended": ended, "native_anonymous_peak_bytes": 250 * MIB, "native_seconds": 1.04,
            "budget_bytes": 83 * MIB, "seconds": seconds, "stats": {"fault_path": path, "major_faults": 12345},
        })
        .to_string()
    }

    fn table(rows: &[String]) -> String {
        runtimes_table(&runtimes(&last_rows(&rows.join("\n")).unwrap()))
    }

    #[test]
    fn the_last_run_on_each_path_is_in_the_table_and_what_did_not_run_has_a_reason() {
        let text =
            [row("monitor", 9.0, "ok"), row("monitor", 3.0, "ok"), row("inline", 2.0, "had no major fault")].join("\n");
        let results = runtimes(&last_rows(&text).unwrap());
        assert_eq!(results["rows"].as_array().unwrap().len(), 2);
        assert_eq!(results["skipped"].as_array().unwrap().len(), runtimes::ALL.len() - 1 + runtimes::ELSEWHERE.len());
        let table = runtimes_table(&results);
        assert!(table.contains("\n| perl | 250 | 83 | 1.0 | 3.0 | 12345 | had no major fault | |\n"), "{table}");
        assert!(table.contains("\n- mariadb: ") && table.contains("\n- racket: it asks"), "{table}");
    }

    #[test]
    fn a_run_that_failed_has_no_statistics_and_is_in_the_table() {
        let failed = row("inline", 0.0, "ended with 125")
            .replace(r#""stats":{"fault_path":"inline","major_faults":12345}"#, r#""stats":null"#);
        assert!(failed.contains("null"), "{failed}");
        let of_auto = |path: &str| row(path, 7.0, "ok").replacen(&format!(r#""path":"{path}""#), r#""path":"auto""#, 1);
        let [monitor, auto] = [row("monitor", 3.0, "ok"), of_auto("inline")];
        let line = "\n| perl | 250 | 83 | 1.0 | 3.0 | 12345 | ended with 125 | |\n";
        let with_auto = table(&[monitor, failed, auto.clone()]);
        assert!(with_auto.contains(line), "{with_auto}");
        let of_auto_alone = table(&[auto]);
        assert!(of_auto_alone.contains("\n| perl | 250 | 83 | 1.0 | – | – | 7.0 | 12345 |\n"), "{of_auto_alone}");
    }
}
