//! `hinterland explain` says of a real run what the program did: a walk is a walk, a stride a stride, chance is chance.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program, launcher};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Output;

/// Pages of the program, 64 MiB, of which a quarter is local; touches between its first and last walk through all of them.
const PAGES: u64 = 16_384;
const TOUCHES: u64 = 4 * PAGES;

/// Orders, and what their requests are called.
const ORDERS: [(&str, &str); 3] = [("sequential", "sequential"), ("stride", "strided"), ("random", "irregular")];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = Vec::new();
    for path in ["monitor", "inline"] {
        for (order, pattern) in ORDERS {
            for prefetch in ["none", "streams"] {
                let name = format!("lifecycle::explain::{order}::{prefetch}::{path}");
                let run = move |name: &str| tells(name, order, pattern, prefetch, path);
                trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || run(&name)));
            }
        }
    }
    for path in ["monitor", "inline"] {
        let name = format!("lifecycle::explain::two_processes::{path}");
        trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || keeps_apart(&name, path)));
    }
    let name = "lifecycle::explain::nothing_paged";
    trials.push(suite::trial(name, skips::no_userfaultfd, || refuses(name)));
    trials
}

fn walked(name: &str, order: &str, touches: u64, arguments: &[&str]) -> Result<Ended> {
    let program = c_program("walker", &[])?.display().to_string();
    let (pages, touches) = (PAGES.to_string(), touches.to_string());
    Launch::new(name, arguments, &[&program, &pages, order, &touches])?.run()
}

fn explained(name: &str, arguments: &[&str]) -> Result<Output> {
    let stats = places::tests().join("lifecycle").join(name.replace("::", "-")).join("stats.json");
    Ok(launcher()?.arg("explain").arg(stats).args(arguments).output()?)
}

fn tells(name: &str, order: &str, pattern: &str, prefetch: &str, path: &str) -> Result<()> {
    let arguments = ["--local", "16M", "--far", "compressed", "--fault-path", path, "--prefetch", prefetch];
    walked(name, order, TOUCHES, &arguments)?.expect(0, "done")?.expect_paging()?;
    let output = explained(name, &["--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let number = |value: &Value| value.as_u64().with_context(|| format!("no number: {value}"));
    let sum = |place: &Value| -> Result<u64> {
        Ok(number(&place["major"])? + number(&place["minor"])? + number(&place["prefetch_hits"])?)
    };
    ensure!(found["prefetcher"] == prefetch, "{found}");
    let thread = &found["threads"][0];
    let share = |pattern: &str| thread["patterns"][pattern].as_f64().context("no share");
    if prefetch == "none" {
        ensure!(
            share(pattern)? > 0.6 && thread["pattern"] == pattern,
            "{order} was not seen to be {pattern}: {thread}"
        );
        ensure!(pattern != "strided" || thread["step"] == 10, "the step is 10: {thread}");
    } else {
        // Mapped pages make no request: how many are left of a walk or a stride depends on who gets a processor.
        ensure!((share("irregular")? < 0.4) == (pattern != "irregular"), "{order} was seen otherwise: {thread}");
    }
    featured(&found["features"], order)?;
    // One thread made all the requests, in one or two regions.
    let (requests, regions) = (number(&found["saw"]["requests"])?, found["regions"].as_array().context("no regions")?);
    let in_regions = regions.iter().map(&sum).sum::<Result<u64>>()?;
    for all in [sum(thread)?, in_regions] {
        ensure!(all.abs_diff(requests) * 100 <= requests, "{all} of {requests} requests have a row: {found}");
    }
    let windows = number(&found["did"]["windows"])?;
    ensure!(
        (windows > 0) == (prefetch != "none" && order != "random") || order == "random",
        "{windows} windows: {found}"
    );
    let advice = found["advice"][0]["change"].as_str().context("no advice")?;
    ensure!(prefetch != "none" || order == "random" || advice == "leave --prefetch out", "{advice}");
    words(name)
}

/// Its features, whatever was fetched ahead. Before and after its touches it walks, and within 65,536 of them it comes to all pages. What comes again
/// in turn has left longer ago than twice the memory would have held; of what comes at random a part has not.
fn featured(features: &Value, order: &str) -> Result<()> {
    let feature = |name: &str| features[name].as_f64().with_context(|| format!("no {name}: {features}"));
    ensure!((feature("sequential_share")? > 0.6) == (order == "sequential"), "{order}: {features}");
    ensure!((feature("stride_share")? > 0.4) == (order == "stride"), "{order}: {features}");
    ensure!(feature("fragment_ratio")? < 0.2, "{order}: {features}");
    ensure!(feature("longest_sequential_run_pages")? > 1_000.0, "{order}: {features}");
    ensure!(feature("load_store_ratio")? >= 0.0 && feature("anonymous_file_ratio")? > 1.0, "{order}: {features}");
    let left: Vec<f64> = features["larger_memory"]
        .as_array()
        .context("no curve")?
        .iter()
        .map(|point| point["load_share"].as_f64().context("no loads"))
        .collect::<Result<_>>()?;
    ensure!(left.len() == 4 && left.is_sorted_by(|one, next| one >= next), "{order}: {features}");
    let expected = if order == "random" { 0.5..0.85 } else { 0.85..1.01 };
    ensure!(expected.contains(&left[2]), "twice the memory: {order}: {features}");
    Ok(())
}

/// Two processes of one run at the same time, with steps of their own: each is seen to have its own, and has windows of its own.
fn keeps_apart(name: &str, path: &str) -> Result<()> {
    /// Of 10,000 pages each, which both touch ten times: a fifth of them are local.
    const WALKS: &str = "\"$1\" stride-3 30000 10 & \"$1\" stride-7 70000 10 & wait";
    let program = c_program("walks", &[])?.display().to_string();
    let options = ["--local", "16M", "--far", "compressed", "--fault-path", path, "--prefetch", "leap"];
    let ended = Launch::new(name, &options, &["sh", "-c", WALKS, "sh", &program])?.run()?;
    ended.expect(0, "done")?.expect_paging()?;
    let stats = ended.stats()?;
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or(0);
    let requests = |row: &Value| ["major", "minor", "prefetch_hits"].iter().map(|part| number(row, part)).sum::<u64>();
    let mut busiest: BTreeMap<i64, &Value> = BTreeMap::new();
    for row in stats["threads"].as_array().context("no threads")?.iter().filter(|row| requests(row) > 10_000) {
        busiest.insert(row["step"].as_i64().context("no step")?, row);
    }
    ensure!(busiest.keys().eq(&[3, 7]), "steps of 3 and 7 are not what was seen: {}", stats["threads"]);
    ensure!(busiest[&3]["pid"] != busiest[&7]["pid"], "one process has both: {}", stats["threads"]);
    for (step, row) in busiest {
        let strided = number(row, "strided");
        ensure!(strided * 10 > requests(row) * 6, "{strided} requests of the process with step {step}: {row}");
        ensure!(number(row, "windows") > 0 && number(row, "prefetch_hits") > 0, "no window of step {step}: {row}");
    }
    Ok(())
}

/// The same in words.
fn words(name: &str) -> Result<()> {
    let text = String::from_utf8(explained(name, &[])?.stdout)?;
    for part in ["what it saw", "what it did", "by thread", "by region of 64 MiB", "what might be changed"] {
        ensure!(text.contains(part), "no '{part}':\n{text}");
    }
    Ok(())
}

fn refuses(name: &str) -> Result<()> {
    walked(name, "sequential", PAGES, &["--local", "256M", "--far", "compressed"])?.expect(0, "done")?;
    let output = explained(name, &[])?;
    let says = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(125) && says.contains("no page of "), "{says}");
    Ok(())
}
