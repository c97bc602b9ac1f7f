//! Random C programs of loops (`tests/programs/compiler/random_loops.py`), each compiled with the compiler's plugin and without: they print the same,
//! alone, whatever the runtime answers, and in little memory. Arrays end at pages that cannot be accessed, so that one load too many is a signal.
//!
//! `HINTERLAND_TEST_SEEDS=FIRST..END` names other seeds; a failure names its own.

use super::compiled::{built, compile, no_far_llvm, no_llvm, printed, source};
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{skips, suite};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of a run, and with `--full`.
const PROGRAMS: u64 = 20;
const PROGRAMS_FULL: u64 = 1000;
/// Kernels of a program: fewer compile in less time, and more of them in the same.
const KERNELS: &str = "4";
/// The same of programs that are to page.
const FAR_PROGRAMS: u64 = 2;
const FAR_PROGRAMS_FULL: u64 = 60;
const SEEDS: &str = "HINTERLAND_TEST_SEEDS";
/// Elements of its arrays where it is to page.
const FAR_ELEMENTS: &str = "131072";
/// Their local memory, less than such arrays have.
const LOCAL: &str = "16M";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    vec![
        suite::named("lifecycle::random_loops::answered", || no_python().or_else(no_llvm), Box::new(answered)),
        suite::named("lifecycle::random_loops::far", || no_python().or_else(no_far_llvm), Box::new(far)),
    ]
}

fn no_python() -> Option<String> {
    skips::find("python3").is_none().then(|| "python3 is not installed (./dev setup)".into())
}

/// Seeds, and whether they are a test's own: of those it demands that what they are for happens.
struct Seeds {
    seeds: Range<u64>,
    are_own: bool,
}

/// The seeds of a run: so many from the first, unless others are named.
fn seeds(first: u64, count: u64) -> Result<Seeds> {
    let Ok(named) = std::env::var(SEEDS) else { return Ok(Seeds { seeds: first..first + count, are_own: true }) };
    let (from, to) = named.split_once("..").with_context(|| format!("{SEEDS}={named} is no FIRST..END"))?;
    let seeds = from.parse()?..to.parse()?;
    ensure!(!seeds.is_empty(), "{SEEDS}={named} names no program");
    Ok(Seeds { seeds, are_own: false })
}

/// A program without the plugin, and with it.
struct Builds {
    plain: PathBuf,
    hinted: PathBuf,
    loops: usize,
}

/// Builds the program of a seed, which chooses the flags, whether a plan names the kernels, and whether they are a file of their own.
fn build(test: &str, seed: u64) -> Result<Builds> {
    let [code, plan, plain, hinted] = ["loops.c", "loops.plan", "plain", "hinted"].map(|file| built(test, file));
    let generate = |words: &[&str], to: &Path| -> Result<()> {
        let (text, _) = printed(Command::new("python3").arg(source("random_loops.py")).args(words))?;
        Ok(std::fs::write(to, text)?)
    };
    std::fs::create_dir_all(code.parent().context("a folder")?)?;
    generate(&[&seed.to_string(), KERNELS], &code)?;
    generate(&["--plan", &seed.to_string()], &plan)?;
    let mut words = vec!["-w", ["-O3", "-O2", "-O2"][(seed % 3) as usize]];
    words.extend_from_slice(match seed % 5 {
        0 => &["-flto", "-fuse-ld=lld"],
        1 => &["-march=native", "-ffp-contract=off"],
        2 => &["-fno-vectorize"],
        _ => &[],
    });
    link(test, &words, &code, &plain, |words| printed(Command::new("clang-22").args(words)).map(|_| ()))?;
    let plan = plan.display().to_string();
    let planned: &[&str] = if seed.is_multiple_of(2) { &["--far-plan", &plan] } else { &[] };
    link(test, &words, &code, &hinted, |words| compile(test, "cc", &[words, planned].concat()).map(|_| ()))?;
    let (symbols, _) = printed(Command::new("nm").arg(&hinted))?;
    let loops = symbols.lines().filter(|line| line.contains(" hinterland.loop")).count();
    Ok(Builds { plain, hinted, loops })
}

/// A program of one file, or of two that are optimised together.
fn link(test: &str, words: &[&str], code: &Path, to: &Path, compiler: impl Fn(&[&str]) -> Result<()>) -> Result<()> {
    let (code, to) = (code.display().to_string(), to.display().to_string());
    if !words.contains(&"-flto") {
        return compiler(&[words, &[&code, "-o", &to]].concat());
    }
    let parts = ["1.o", "2.o"].map(|part| built(test, part).display().to_string());
    for (number, part) in ["-DPART=1", "-DPART=2"].iter().zip(&parts) {
        compiler(&[words, &[number, "-c", &code, "-o", part]].concat())?;
    }
    compiler(&[words, &[&parts[0], &parts[1], "-o", &to]].concat())
}

/// Checks the program of each seed, which is part of what went wrong. `check` says how many loops have hints.
fn each(seeds: &Seeds, mut check: impl FnMut(u64) -> Result<usize>) -> Result<()> {
    let programs = seeds.seeds.end - seeds.seeds.start;
    let (mut with_hints, mut loops) = (0, 0);
    for seed in seeds.seeds.clone() {
        let of_program = check(seed).with_context(|| {
            format!(
                "{SEEDS}={seed}..{} (random_loops.py {seed} {KERNELS}; the plan is random_loops.py --plan {seed})",
                seed + 1
            )
        })?;
        with_hints += u64::from(of_program > 0);
        loops += of_program;
    }
    println!("{with_hints} of {programs} programs have hints, in {loops} loops");
    // Programs without hints would show nothing.
    ensure!(!seeds.are_own || with_hints * 2 >= programs, "{with_hints} of {programs} programs have hints");
    Ok(())
}

/// Without Hinterland, and beside a runtime that gives all sorts of answers.
fn answered(test: &str) -> Result<()> {
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    each(&seeds(1, if suite::full() { PROGRAMS_FULL } else { PROGRAMS })?, |seed| {
        let builds = build(test, seed)?;
        let (expected, _) = printed(&mut Command::new(&builds.plain))?;
        ensure!(printed(&mut Command::new(&builds.hinted))?.0 == expected, "alone it prints something else");
        for distances in [["1", "64,0,1000", "later,3"], ["7", "1000000", "later,64,0"]][(seed / 2 % 2) as usize] {
            let mut command = Command::new(&builds.hinted);
            command.env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distances);
            ensure!(printed(&mut command)?.0 == expected, "{distances}: it prints something else");
        }
        Ok(builds.loops)
    })
}

/// Under Hinterland, with arrays that local memory does not hold.
fn far(test: &str) -> Result<()> {
    let seeds = seeds(5001, if suite::full() { FAR_PROGRAMS_FULL } else { FAR_PROGRAMS })?;
    let paths = ["inline", "monitor"];
    let mut paged = [0; 2]; // pages that came back, by path
    each(&seeds, |seed| {
        let builds = build(test, seed)?;
        let (expected, _) = printed(Command::new(&builds.plain).arg(FAR_ELEMENTS))?;
        let program = [builds.hinted.to_str().context("a path")?, FAR_ELEMENTS];
        let path = (seed % 2) as usize;
        let options = ["--local", LOCAL, "--fault-path", paths[path], "--quiet"];
        let ended = Launch::new(test, &options, &program)?.run()?;
        let stats = ended.expect(0, &expected)?.stats()?;
        paged[path] +=
            ["major_faults", "prefetched_pages"].iter().filter_map(|figure| stats[figure].as_u64()).sum::<u64>();
        Ok(builds.loops)
    })?;
    println!("{paged:?} pages came back, by {paths:?}");
    ensure!(!seeds.are_own || paged.iter().all(|pages| *pages > 0), "{paged:?} pages came back, by {paths:?}");
    Ok(())
}
