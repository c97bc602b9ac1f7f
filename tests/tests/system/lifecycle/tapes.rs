//! Programs that follow a tape: they print what they print without one, the figures say that the tape was followed, and a tape that is
//! wrong, or no tape, does no harm.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::{NamedTest, Trial};
use hinterland_tests::{places, skips, suite};
use std::path::{Path, PathBuf};

/// What `walks` ends with.
const CODE: i32 = 7;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::tapes::{name}"), skips::no_userfaultfd, test));
    };
    for path in ["monitor", "inline"] {
        add(format!("followed::{path}"), Box::new(move |name| followed(name, path, "sequential", 1)));
        add(format!("threads::{path}"), Box::new(move |name| followed(name, path, "threads", 2)));
        add(format!("threads_in_turn::{path}"), Box::new(move |name| in_turn(name, path)));
        add(format!("wrong::{path}"), Box::new(move |name| wrong(name, path)));
        add(format!("sets::{path}"), Box::new(move |name| sets(name, path)));
    }
    add("the_same_pages".into(), Box::new(the_same_pages));
    add("of_another_program".into(), Box::new(of_another_program));
    add("the_same_program_twice".into(), Box::new(the_same_program_twice));
    add("built_anew".into(), Box::new(built_anew));
    add("other_threads".into(), Box::new(other_threads));
    add("planned_for_more".into(), Box::new(planned_for_more));
    add("planned_at_start".into(), Box::new(planned_at_start));
    add("refused".into(), Box::new(refused));
    trials
}

fn walks() -> Result<String> {
    Ok(c_program("walks", &[])?.display().to_string())
}

/// Traces a program; where the trace is, and what the program printed.
fn traced(name: &str, program: &[&str]) -> Result<(PathBuf, String)> {
    let words = [&["trace", "-o", "app.trace", "--microset", "64", "--"], program].concat();
    let launch = Launch::bare(name, &words)?;
    let trace = launch.directory.join("app.trace");
    let ended = launch.run()?;
    ended.expect(CODE, "done")?;
    Ok((trace, ended.stdout))
}

/// Traces a program and plans a tape for 16 MiB; where it is, and what the program printed.
fn planned(name: &str, program: &[&str]) -> Result<(PathBuf, String)> {
    let (trace, printed) = traced(&format!("{name}-trace"), program)?;
    let directory = trace.with_file_name("");
    let mut plan = Launch::bare(&format!("{name}-plan"), &["tape", "app.trace", "--local", "16M", "-o", "app.tape"])?;
    plan.set_directory(&directory);
    plan.run()?.expect(0, "")?;
    Ok((directory.join("app.tape"), printed))
}

fn run_with(name: &str, tape: &Path, options: &[&str], program: &[&str]) -> Result<Ended> {
    let tape = tape.display().to_string();
    let options = [&["--tape", &tape, "--quiet"], options].concat();
    Launch::new(name, &options, program)?.run()
}

fn count(ended: &Ended, figure: &str) -> Result<u64> {
    ended.stats()?[figure].as_u64().with_context(|| format!("no {figure}"))
}

/// Twice as many pages as there is room for: pages that the tape names are fetched ahead.
fn followed(name: &str, path: &str, pattern: &str, threads: u64) -> Result<()> {
    let walks = walks()?;
    let program = [&walks, pattern, "8192", "3"];
    let (tape, printed) = planned(name, &program)?;
    // A share is of the recorded peak.
    let ended = run_with(name, &tape, &["--fault-path", path, "--local", "50%"], &program)?;
    ended.expect(CODE, "done")?.expect_eviction()?;
    ensure!(ended.stdout == printed, "{} instead of {printed}", ended.stdout);
    let [followed, batches, pages, fetched] =
        ["tape_threads", "tape_batches", "tape_pages", "prefetched_pages"].map(|figure| count(&ended, figure));
    let (followed, batches, pages, fetched) = (followed?, batches?, pages?, fetched?);
    ensure!(followed == threads, "{followed} threads followed the tape");
    ensure!(pages >= 4096 && (2..pages).contains(&batches), "{pages} pages in {batches} batches");
    ensure!(fetched > 0, "nothing was fetched ahead");
    ensure!(count(&ended, "local_budget_bytes")? <= 17 << 20, "half of 32 MiB, and a bit");
    Ok(())
}

/// Threads one after the other, of which libc gives each the stack of the one before: each has a tape of its own.
fn in_turn(name: &str, path: &str) -> Result<()> {
    let walks = walks()?;
    let program = [&walks, "in-turn", "8192", "3"];
    let (tape, printed) = planned(name, &program)?;
    let ended = run_with(name, &tape, &["--fault-path", path, "--local", "50%"], &program)?;
    ended.expect(CODE, "done")?.expect_eviction()?;
    ensure!(ended.stdout == printed, "{} instead of {printed}", ended.stdout);
    let [followed, without, pages] =
        ["tape_threads", "tape_threads_without", "tape_pages"].map(|figure| count(&ended, figure));
    let (followed, without, pages) = (followed?, without?, pages?);
    ensure!((followed, without) == (4, 0), "{followed} threads followed the tape, {without} had none");
    ensure!(pages > 0, "nothing was asked for ahead");
    Ok(())
}

/// The sets of two runs, which touch the pages of each phase in orders of their own, serve a third run in an order of its own.
fn sets(name: &str, path: &str) -> Result<()> {
    let walks = walks()?;
    let program = |seed: &'static str| [walks.clone(), seed.into(), "8192".into(), "4".into()];
    let mut words = vec!["tape".to_owned()];
    for seed in ["permuted-1", "permuted-2"] {
        let program = program(seed);
        let (trace, _) = traced(&format!("{name}-{seed}"), &program.each_ref().map(String::as_str))?;
        words.push(trace.display().to_string());
    }
    words.extend(["--local", "16M", "-o", "app.tape"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let plan = Launch::bare(&format!("{name}-plan"), &words)?;
    let tape = plan.directory.join("app.tape");
    let planned = plan.run()?;
    planned.expect(0, "")?;
    ensure!(planned.stdout.contains("2 runs compared: set: "), "{}", planned.stdout);
    let program = program("permuted-3");
    let program = program.each_ref().map(String::as_str);
    let alone = Launch::new(&format!("{name}-alone"), &["--quiet", "--local", "16M"], &program)?.run()?;
    let ended = run_with(name, &tape, &["--fault-path", path, "--local", "16M"], &program)?;
    ended.expect(CODE, "done")?.expect_paging()?;
    ensure!(ended.stdout == alone.stdout, "{} instead of {}", ended.stdout, alone.stdout);
    let [phases, begun, pages, fetched] =
        ["tape_phases", "tape_phases_begun", "tape_pages", "prefetched_pages"].map(|figure| count(&ended, figure));
    let (phases, begun, pages, fetched) = (phases?, begun?, pages?, fetched?);
    ensure!(phases == 32, "{phases} phases: eight in each of four rounds");
    ensure!((16..=32).contains(&begun), "{begun} of 32 phases began");
    ensure!(pages >= 4096 && fetched > 0, "{pages} pages were asked for, {fetched} fetched");
    Ok(())
}

/// Which freed pages an allocation gets depends on the order of calls alone: neither while the program is traced nor when it follows a tape on how
/// long they have been free.
fn the_same_pages(name: &str) -> Result<()> {
    let reused = c_program("reused", &[])?.display().to_string();
    let (tape, printed) = planned(name, &[&reused, "0"])?;
    ensure!(printed.contains("in the first"), "the pages that were freed first are used again first: {printed}");
    // As long as it takes an allocator that drops what is free for a second.
    let (_, slow) = traced(&format!("{name}-slow"), &[&reused, "4000"])?;
    ensure!(slow == printed, "traced, with a pause: {slow} instead of {printed}");
    let ended = run_with(name, &tape, &["--fault-path", "inline", "--local", "16M"], &[&reused, "4000"])?;
    ended.expect(CODE, "done")?;
    ensure!(ended.stdout == printed, "with a tape, and a pause: {} instead of {printed}", ended.stdout);
    ensure!(count(&ended, "tape_threads")? == 1 && count(&ended, "tape_left")? == 0, "it follows its tape to the end");
    Ok(())
}

/// The tape of another walk of the same program.
fn wrong(name: &str, path: &str) -> Result<()> {
    let walks = walks()?;
    let (tape, _) = planned(name, &[&walks, "random", "8192", "3"])?;
    let options = ["--fault-path", path, "--local", "16M"];
    let ended = run_with(name, &tape, &options, &[&walks, "stride-7", "16384", "9"])?;
    // It checks what it reads.
    ended.expect(CODE, "done")?;
    let pages = count(&ended, "tape_pages")?;
    ensure!(pages < 16_384, "{pages} pages of a wrong tape were asked for");
    Ok(())
}

/// Whatever the tape is of, the program runs, and the user is told.
fn of_another_program(name: &str) -> Result<()> {
    let walks = walks()?;
    let (tape, _) = planned(name, &[&walks, "sequential", "8192", "1"])?;
    let ended = run_with(name, &tape, &["--local", "16M"], &["sh", "-c", "echo native"])?;
    ended.expect(0, "native")?;
    ensure!(ended.stderr.contains("walks, and no process of the run was that program"), "{}", ended.stderr);
    // Behind a shell the program follows it.
    let script = format!("{walks} sequential 8192 3; exit $?");
    let ended = run_with(&format!("{name}-shell"), &tape, &["--local", "16M"], &["sh", "-c", &script])?;
    ended.expect(CODE, "done")?;
    ensure!(count(&ended, "tape_threads")? == 1, "the program behind the shell did not follow the tape");
    Ok(())
}

/// The same program twice, with the same arguments: both follow. With other arguments the second one does not.
fn the_same_program_twice(name: &str) -> Result<()> {
    let walks = walks()?;
    let (tape, printed) = planned(name, &[&walks, "sequential", "8192", "2"])?;
    let script = format!("({walks} sequential 8192 2); {walks} sequential 8192 2");
    let ended = run_with(name, &tape, &["--local", "16M"], &["sh", "-c", &script])?;
    ended.expect(CODE, "done")?;
    ensure!(ended.stdout == printed.repeat(2), "{}", ended.stdout);
    ensure!(count(&ended, "tape_processes")? == 2 && count(&ended, "tape_left")? == 0, "both follow it to the end");
    let script = format!("({walks} sequential 8192 2); {walks} sequential 8192 3");
    let ended = run_with(&format!("{name}-other"), &tape, &["--local", "16M"], &["sh", "-c", &script])?;
    ended.expect(CODE, "done")?;
    ensure!(count(&ended, "tape_processes")? == 1, "it is another's");
    Ok(())
}

/// A program of the same name that was built anew is another one: it runs without, and the user is told.
fn built_anew(name: &str) -> Result<()> {
    let walks = walks()?;
    let (tape, _) = planned(name, &[&walks, "sequential", "8192", "1"])?;
    let other = c_program("walks", &["-O1"])?;
    let place = places::emptied(places::tests().join("lifecycle").join("tapes-built-anew"))?.join("walks");
    std::fs::copy(other, &place)?;
    let program = place.display().to_string();
    let ended = run_with(name, &tape, &["--local", "16M"], &[&program, "sequential", "8192", "1"])?;
    ended.expect(CODE, "done")?;
    ensure!(count(&ended, "tape_processes")? == 0 && ended.stderr.contains("built anew"), "{}", ended.stderr);
    Ok(())
}

/// A run with fewer threads than the tape has, or with more, says so.
fn other_threads(name: &str) -> Result<()> {
    let walks = walks()?;
    let (one, two) = ([walks.as_str(), "sequential", "8192", "2"], [walks.as_str(), "threads", "8192", "2"]);
    let (tape, _) = planned(name, &two)?;
    let fewer = run_with(&format!("{name}-fewer"), &tape, &["--local", "16M"], &one)?;
    fewer.expect(CODE, "done")?;
    ensure!(fewer.stderr.contains("is of 2 threads, and 1 followed it: "), "{}", fewer.stderr);
    ensure!(fewer.stderr.contains("if there are fewer now, trace the program with as many"), "{}", fewer.stderr);
    let as_many = run_with(&format!("{name}-as-many"), &tape, &["--local", "16M"], &two)?;
    as_many.expect(CODE, "done")?;
    ensure!(!as_many.stderr.contains("--tape"), "{}", as_many.stderr);
    let (tape, _) = planned(&format!("{name}-one"), &one)?;
    let more = run_with(&format!("{name}-more"), &tape, &["--local", "16M"], &two)?;
    more.expect(CODE, "done")?;
    ensure!(more.stderr.contains("is of 1 threads; 1 more were prefetched for without one"), "{}", more.stderr);
    Ok(())
}

/// A run that is given a trace plans its tape from it, for the local memory that it has.
fn planned_at_start(name: &str) -> Result<()> {
    let walks = walks()?;
    let program = [walks.as_str(), "sequential", "8192", "3"];
    let (trace, printed) = traced(&format!("{name}-trace"), &program)?;
    let ended = run_with(name, &trace, &["--local", "50%"], &program)?;
    ended.expect(CODE, "done")?.expect_eviction()?;
    ensure!(ended.stdout == printed, "{} instead of {printed}", ended.stdout);
    let (followed, left) = (count(&ended, "tape_threads")?, count(&ended, "tape_left")?);
    ensure!((followed, left) == (1, 0), "{followed} threads followed it, left {left} times");
    ensure!(count(&ended, "local_budget_bytes")? <= 17 << 20, "half of what the trace touches, and a bit");
    let stats = ended.stats()?;
    let source = stats["tape_source"].as_str().unwrap_or_default();
    ensure!(source.starts_with("planned in ") && source.ends_with("app.trace"), "{source}");
    Ok(())
}

/// A tape for more local memory than the run has is warned of before the program starts.
fn planned_for_more(name: &str) -> Result<()> {
    let walks = walks()?;
    let program = [walks.as_str(), "sequential", "8192", "2"];
    let (trace, _) = traced(&format!("{name}-trace"), &program)?;
    let mut plan = Launch::bare(&format!("{name}-plan"), &["tape", "app.trace", "--local", "24M", "-o", "app.tape"])?;
    plan.set_directory(&trace.with_file_name(""));
    plan.run()?.expect(0, "")?;
    let warning = "was planned for 24 MiB of local memory, and this run has 16 MiB";
    for (local, is_less) in [("24M", false), ("16M", true)] {
        let ended = run_with(name, &trace.with_file_name("app.tape"), &["--local", local], &program)?;
        ended.expect(CODE, "done")?;
        ensure!(ended.stderr.contains(warning) == is_less, "{local}: {}", ended.stderr);
    }
    Ok(())
}

/// What is no whole tape is refused before the program starts.
fn refused(name: &str) -> Result<()> {
    let walks = walks()?;
    let (tape, _) = planned(name, &[&walks, "sequential", "8192", "2"])?;
    let bytes = std::fs::read(&tape)?;
    let directory = places::emptied(places::tests().join("lifecycle").join("tapes-refused"))?;
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let mut later = bytes.clone();
    later[4] = 9;
    let trace = std::fs::read(tape.with_file_name("app.trace"))?;
    let cases: [(&str, &[u8], &str); 5] = [
        ("truncated", &bytes[..bytes.len() - 10], "plan the tape again"),
        ("damaged", &damaged, "plan the tape again"),
        ("later", &later, "format version 9"),
        ("cut-trace", &trace[..trace.len() / 2], "a tape is planned from a whole trace only"),
        ("text", b"no tape at all", "this is no tape"),
    ];
    for (what, content, says) in cases {
        let file = directory.join(what);
        std::fs::write(&file, content)?;
        must_refuse(&run_with(&format!("{name}-{what}"), &file, &[], &["sh", "-c", "echo started"])?, says)?;
    }
    must_refuse(&run_with(&format!("{name}-nowhere"), &directory.join("nowhere"), &[], &["true"])?, "No such file")?;
    must_refuse(&Launch::new(&format!("{name}-share"), &["--local", "20%"], &["true"])?.run()?, "20% of what")
}

fn must_refuse(ended: &Ended, says: &str) -> Result<()> {
    let Ended { code, stdout, stderr, .. } = ended;
    ensure!(*code == 125 && stdout.is_empty(), "ended with {code}: {stdout}{stderr}");
    ensure!(stderr.contains("--tape") && stderr.contains(says), "no word of {says}: {stderr}");
    Ok(())
}
