//! Programs that say which part of them is to be recorded, or to follow a tape, by `hinterland.h` and from Python; with Hinterland and
//! without.

use anyhow::{Context, Result, ensure};
use hinterland_tape::Trace;
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::{NamedTest, Trial};
use hinterland_tests::{places, skips, suite};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the far range begins.
const FAR: u64 = hinterland_tests::frozen::FAR.start;
const PAGE: u64 = 4096;
/// Of each mapping of `intervals`: twice what there is room for.
const PAGES: u64 = 8192;
/// What `intervals` ends with.
const CODE: i32 = 7;
/// What it prints in a run without a trace or a tape.
const NOTHING: &str = "began 0 0 0, ended 0 0";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, skip: fn() -> Option<String>, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::intervals::{name}"), skip, test));
    };
    add("native".into(), || None, Box::new(|_| native()));
    add("recorded".into(), skips::no_userfaultfd, Box::new(recorded));
    for path in ["monitor", "inline"] {
        let test = move |name: &str| followed(name, path);
        add(format!("followed::{path}"), skips::no_userfaultfd, Box::new(test));
    }
    add("modes".into(), skips::no_userfaultfd, Box::new(modes));
    let no_python = || skips::no_userfaultfd().or_else(no_python);
    add("python".into(), no_python, Box::new(python));
    trials
}

fn no_python() -> Option<String> {
    skips::find("python3").is_none().then(|| "python3 is not installed (./dev setup)".into())
}

/// The directory of the header.
fn include() -> String {
    format!("-I{}", places::repository().join("crates/runtime/include").display())
}

fn program(flags: &[&str]) -> Result<String> {
    let include = include();
    let flags = [&[include.as_str(), "-Wall", "-Wextra", "-Werror", "-pedantic"], flags].concat();
    Ok(c_program("intervals", &flags)?.display().to_string())
}

/// Without Hinterland the calls do nothing, however the program was built.
fn native() -> Result<()> {
    for flags in [&[][..], &["-no-pie", "-fno-pic"], &["-static"]] {
        let output = Command::new(program(flags)?).args(["auto", "64", "2"]).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(CODE), "{flags:?}: {printed}");
        ensure!(printed.contains(&format!("{NOTHING} 0, refused 0\ndone")), "{flags:?}: {printed}");
    }
    Ok(())
}

/// Records `intervals`; how it ended, and its trace.
fn traced(name: &str, program: &[&str]) -> Result<(Ended, PathBuf)> {
    let words = [&["trace", "-o", "app.trace", "--microset", "64", "--"], program].concat();
    let launch = Launch::bare(name, &words)?;
    let file = launch.directory.join("app.trace");
    Ok((launch.run()?, file))
}

/// Far pages by number, in the order of the trace.
fn pages(file: &Path) -> Result<Vec<u64>> {
    let bytes = std::fs::read(file)?;
    let trace = Trace::open(&bytes)?;
    ensure!(trace.head().has_intervals, "the trace does not say that it is of intervals");
    let mut references = trace.references();
    let pages = references.by_ref().map(|reference| Ok(reference?.page.into())).collect::<Result<_>>()?;
    ensure!(references.is_whole(), "the trace has no end");
    Ok(pages)
}

/// The first page of a mapping whose address is in this line of the output.
fn first_page(ended: &Ended, line: usize) -> Result<u64> {
    let printed = ended.stdout.lines().nth(line).and_then(|line| line.strip_prefix("0x"));
    Ok((u64::from_str_radix(printed.context("no address")?, 16)? - FAR) / PAGE)
}

/// The trace has the walks of both intervals, and nothing of what was allocated before.
fn recorded(name: &str) -> Result<()> {
    for flags in [&[][..], &["-no-pie", "-fno-pic"]] {
        let program = program(flags)?;
        let (ended, file) = traced(name, &[&program, "auto", "2048", "3"])?;
        ended.expect(CODE, "began 1 1 1, ended 0 0 -1, refused 1\ndone")?;
        let (inside, before) = (first_page(&ended, 0)?, first_page(&ended, 1)?);
        let seen = pages(&file)?;
        let walked: Vec<u64> =
            seen.iter().filter_map(|page| page.checked_sub(inside)).filter(|page| *page < 2048).collect();
        let expected: Vec<u64> = (0..4).flat_map(|_| 0..2048).chain((0..2048).step_by(2)).collect();
        let same = walked.iter().zip(&expected).take_while(|(one, other)| one == other).count();
        ensure!(walked == expected, "{} references, of which {same} are right", walked.len());
        ensure!(!seen.iter().any(|page| (before..before + 2048).contains(page)), "pages from before are in the trace");
        // Beside the mapping there is next to nothing that was allocated in it.
        ensure!(seen.len() < expected.len() + 100, "{} references", seen.len());
    }
    Ok(())
}

/// A tape of the program for 16 MiB.
fn planned(name: &str, program: &str) -> Result<String> {
    let pages = PAGES.to_string();
    let (ended, file) = traced(&format!("{name}-trace"), &[program, "auto", &pages, "3"])?;
    ended.expect(CODE, "began 1 1 1")?;
    let mut plan = Launch::bare(&format!("{name}-plan"), &["tape", "app.trace", "--local", "16M", "-o", "app.tape"])?;
    plan.set_directory(file.parent().context("a directory")?);
    plan.run()?.expect(0, "")?;
    Ok(file.with_extension("tape").display().to_string())
}

fn run_with(name: &str, tape: &str, options: &[&str], program: &[&str]) -> Result<Ended> {
    let options = [&["--tape", tape, "--local", "16M", "--quiet"], options].concat();
    Launch::new(name, &options, program)?.run()
}

fn count(ended: &Ended, figure: &str) -> Result<u64> {
    ended.stats()?[figure].as_u64().with_context(|| format!("no {figure}"))
}

/// In its intervals the program follows the tape, and outside it does not.
fn followed(name: &str, path: &str) -> Result<()> {
    let program = program(&[])?;
    let (tape, pages) = (planned(name, &program)?, PAGES.to_string());
    let ended = run_with(name, &tape, &["--fault-path", path], &[&program, "auto", &pages, "3"])?;
    ended.expect(CODE, "began 2 2 2, ended 0 0 -1, refused 1\ndone")?.expect_paging()?;
    let (threads, batches, intervals) =
        (count(&ended, "tape_threads")?, count(&ended, "tape_batches")?, count(&ended, "intervals")?);
    ensure!(
        (threads, intervals) == (1, 2) && batches > 10,
        "{threads} threads, {batches} batches, {intervals} intervals"
    );
    ensure!(count(&ended, "tape_left")? == 0, "what it touches outside counts as leaving the tape");
    Ok(())
}

/// The program's mode goes before what the run was started for; where the run was started for nothing, nothing is done.
fn modes(name: &str) -> Result<()> {
    let program = program(&[])?;
    let (tape, pages) = (planned(name, &program)?, PAGES.to_string());
    let ended = run_with(&format!("{name}-record"), &tape, &[], &[&program, "record", &pages, "2"])?;
    ended.expect(CODE, NOTHING)?;
    ensure!(count(&ended, "tape_pages")? == 0, "a tape was followed");
    let (ended, file) = traced(&format!("{name}-prefetch"), &[&program, "prefetch", "2048", "2"])?;
    ended.expect(CODE, NOTHING)?;
    ensure!(self::pages(&file)?.is_empty(), "something was recorded");
    let launch = Launch::new(&format!("{name}-run"), &["--local", "16M"], &[&program, "auto", &pages, "2"])?;
    launch.run()?.expect(CODE, NOTHING)?;
    Ok(())
}

/// A region of a Python program, in the three kinds of runs; a wrong mode has its words.
fn python(name: &str) -> Result<()> {
    const SCRIPT: &str = r#"
import hinterland
with hinterland.region("walk") as walk:
    data = bytearray(40 << 20)
    for at in range(3 * len(data) // 4096):
        data[at * 4096 % len(data)] = at & 255
    print("in force", walk.in_force, sum(data[::4096]))
try:
    hinterland.region("walk", mode="recrod")
except ValueError as error:
    print(error)
"#;
    let python = skips::find("python3").context("python3")?.display().to_string();
    let script = [python.as_str(), "-c", SCRIPT];
    let package = places::repository().join("packaging/python").display().to_string();
    let output = Command::new(&python).args(&script[1..]).env("PYTHONPATH", &package).output()?;
    let native = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        native.starts_with("in force None ") && native.contains("mode 'recrod' is none of record, prefetch, auto"),
        "{output:?}"
    );

    let words = [&["trace", "-o", "app.trace", "--"], &script[..]].concat();
    let launch = Launch::bare(name, &words)?.with("PYTHONPATH", &package);
    let directory = launch.directory.clone();
    let ended = launch.run()?;
    ended.expect(0, &native.replace("None", "record"))?;
    let seen = pages(&directory.join("app.trace"))?;
    // It is filled with zeros, walked through three times, and added up.
    ensure!((5 * 10_240..60_000).contains(&seen.len()), "{} references of five walks", seen.len());

    let mut plan = Launch::bare(&format!("{name}-plan"), &["tape", "app.trace", "--local", "16M", "-o", "app.tape"])?;
    plan.set_directory(&directory);
    plan.run()?.expect(0, "")?;
    let options = ["--tape", &directory.join("app.tape").display().to_string(), "--local", "16M"];
    let ended = Launch::new(&format!("{name}-tape"), &options, &script)?.with("PYTHONPATH", &package).run()?;
    ended.expect(0, &native.replace("None", "prefetch"))?;
    ensure!(count(&ended, "tape_batches")? > 10, "no batches of the tape");
    Ok(())
}
