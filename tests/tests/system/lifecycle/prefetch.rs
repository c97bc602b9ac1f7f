//! Whatever the prefetcher, a program computes the same, and the figures say what the prefetcher did.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch};
use hinterland_tests::suite::Trial;
use hinterland_tests::{MIB, places, skips, suite};
use std::path::PathBuf;
use std::process::Command;

/// Prefetchers, and whether all that they fetch waits unmapped, so that each use is seen.
const PREFETCHERS: [(&str, bool); 10] = [
    ("auto", false),
    ("none", true),
    ("next-n", false),
    ("streams", false),
    ("next-n-line", true),
    ("readahead", true),
    ("readahead-vma", true),
    ("stride", true),
    ("leap", true),
    ("leap-per-thread", true),
];

/// The temporary directory stays unused: all is sorted in memory.
const PROGRAM: &str = "sort -S 200M --parallel=2 \"$1\" | sha256sum";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let bounded = PREFETCHERS.iter().filter(|(name, _)| ["auto", "leap"].contains(name)).map(|one| (one, Some("1M")));
    let runs = PREFETCHERS.iter().map(|one| (one, None)).chain(bounded);
    runs.flat_map(|((prefetcher, seen), cache)| ["monitor", "inline"].map(|path| (*prefetcher, *seen, cache, path)))
        .map(|(prefetcher, seen, cache, path)| {
            let bounded = if cache.is_some() { "::bounded" } else { "" };
            let name = format!("lifecycle::prefetch::{prefetcher}{bounded}::{path}");
            suite::trial(name.clone(), skips::no_userfaultfd, move || sorts_alike(&name, prefetcher, seen, cache, path))
        })
        .collect()
}

/// Lines in no order: about 10 MiB, which `sort` holds in some 30 MiB.
fn lines(name: &str) -> Result<PathBuf> {
    let path = places::emptied(places::tests().join("lifecycle").join(format!("{}-input", name.replace("::", "-"))))?;
    let path = path.join("lines");
    let mut random = hinterland_units::Rng(1);
    let mut text = String::new();
    for _ in 0..500_000 {
        text += &format!("{:020}\n", random.next_u64());
    }
    std::fs::write(&path, text)?;
    Ok(path)
}

fn sorts_alike(name: &str, prefetcher: &str, seen: bool, cache: Option<&str>, path: &str) -> Result<()> {
    let input = lines(name)?.display().to_string();
    let program = ["sh", "-c", PROGRAM, "sh", &input];
    let native = Command::new(program[0]).args(&program[1..]).env("LC_ALL", "C").output().context("cannot sort")?;
    let mut arguments = vec!["--local", "16M", "--fault-path", path, "--prefetch", prefetcher];
    arguments.extend(cache.into_iter().flat_map(|size| ["--prefetch-cache", size]));
    let ended = Launch::new(name, &arguments, &program)?.with("LC_ALL", "C").run()?;
    ended.expect(0, String::from_utf8(native.stdout)?.trim())?.expect_paging()?;
    let said = &ended.stats()?["prefetch_cache_bytes"];
    ensure!(said.as_u64() == cache.map(|_| MIB), "{said} is said of the bound on prefetched pages");
    figures(&ended, prefetcher, seen)
}

/// What the statistics must say.
fn figures(ended: &Ended, prefetcher: &str, seen: bool) -> Result<()> {
    let stats = ended.stats()?;
    let count = |name: &str| stats[name].as_u64().with_context(|| format!("no {name}: {stats}"));
    let (pages, unmapped) = (count("prefetched_pages")?, count("prefetched_unmapped_pages")?);
    let (observed, inferred, unused) =
        (count("prefetch_hits_observed")?, count("prefetch_hits_inferred")?, count("prefetch_unused_pages")?);
    ensure!(stats["prefetcher"] == prefetcher, "{stats}");
    ensure!((pages > 0) == (prefetcher != "none"), "{pages} pages prefetched: {stats}");
    ensure!(count("prefetch_hits")? == observed + inferred && observed + unused <= unmapped, "{stats}");
    let (late, long) = (count("prefetch_late_faults")?, count("prefetch_long_late_faults")?);
    ensure!(
        long <= late && (stats["fault_path"] == "inline" || long == late),
        "of {late} late faults {long} took long: {stats}"
    );
    ensure!(!seen || inferred == 0 && unmapped == pages, "all of them wait unmapped: {stats}");
    ensure!(count("resident_managed_peak_bytes")? <= 17 * MIB, "the budget did not hold: {stats}");
    let accuracy = stats["prefetch_accuracy"].as_f64();
    ensure!(accuracy.is_some() == (unmapped > 0) && accuracy.is_none_or(|share| share <= 1.0), "{stats}");
    ensure!(prefetcher != "leap" || observed * 2 > unmapped, "hardly any page that leap fetched was used: {stats}");
    ensure!((stats["prefetch_wait_ns"]["p50"].as_u64() > Some(0)) == (observed > 0), "{stats}");
    Ok(())
}
