//! Runs of several processes with a folder of tapes: each process follows the tape of its own program and arguments, the others run without, and
//! what is wrong with the folder is said and does no harm.

use anyhow::{Context, Result, ensure};
use hinterland_tape::Trace;
use hinterland_tape::tape::Tape;
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::{NamedTest, Trial};
use hinterland_tests::{places, skips, suite};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What `walks` ends with.
const CODE: i32 = 7;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::taped_trees::{name}"), skips::no_userfaultfd, test));
    };
    for path in ["monitor", "inline"] {
        add(format!("each_its_own::{path}"), Box::new(move |name| each_its_own(name, path)));
        add(format!("at_once::{path}"), Box::new(move |name| at_once(name, path)));
        add(format!("after_exec::{path}"), Box::new(move |name| after_exec(name, path)));
        add(format!("in_a_user_namespace::{path}"), Box::new(move |name| in_a_user_namespace(name, path)));
        add(format!("forked::{path}"), Box::new(move |name| forked(name, path)));
        add(format!("forked_workers::{path}"), Box::new(move |name| forked_workers(name, path)));
    }
    add("forked_by_threads".into(), Box::new(forked_by_threads));
    add("other_arguments".into(), Box::new(other_arguments));
    add("without_build_id".into(), Box::new(without_build_id));
    add("of_other_programs".into(), Box::new(of_other_programs));
    add("damaged".into(), Box::new(damaged));
    add("refused".into(), Box::new(refused));
    let no_python = || {
        let missing = || skips::find("python3").is_none().then(|| "python3 is not installed (./dev setup)".into());
        skips::no_userfaultfd().or_else(missing)
    };
    trials.push(suite::named("lifecycle::taped_trees::python_workers", no_python, Box::new(python_workers)));
    trials
}

fn walks() -> Result<String> {
    Ok(c_program("walks", &[])?.display().to_string())
}

/// The traces of a run's processes, their tapes, what the run has printed, and what planning has said.
struct Planned {
    traces: PathBuf,
    tapes: PathBuf,
    printed: String,
    said: String,
}

/// Traces all processes of a shell's line, and plans a tape for each, for 16 MiB of all; where they are, and what was printed.
fn planned(name: &str, line: &str, code: i32) -> Result<(PathBuf, String)> {
    let Planned { tapes, printed, .. } = planned_with(name, line, code)?;
    Ok((tapes, printed))
}

fn planned_with(name: &str, line: &str, code: i32) -> Result<Planned> {
    let folder = |what: &str| places::tests().join("lifecycle").join(format!("{}-{what}", name.replace("::", "-")));
    let (traces, tapes) = (folder("traces"), folder("tapes"));
    for folder in [&traces, &tapes] {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
    }
    let output = format!("{}/", traces.display());
    let words = ["trace", "-o", &output, "--microset", "64", "--", "sh", "-c", line];
    let traced = Launch::bare(&format!("{name}-trace"), &words)?.run()?;
    traced.expect(code, "done")?;
    let words = ["tape", &output, "--local", "16M", "-o", &format!("{}/", tapes.display())];
    let planned = Launch::bare(&format!("{name}-plan"), &words)?.run()?;
    planned.expect(0, "fetched")?;
    Ok(Planned { traces, tapes, printed: traced.stdout, said: planned.stderr })
}

fn run(name: &str, tapes: &Path, options: &[&str], line: &str) -> Result<Ended> {
    let tapes = format!("{}/", tapes.display());
    Launch::new(name, &[&["--tape", &tapes, "--quiet"], options].concat(), &["sh", "-c", line])?.run()
}

/// The file of the tape of a program with these arguments.
fn tape_of(tapes: &Path, arguments: &str) -> Result<String> {
    tape_of_fork(tapes, arguments, "").map(|(file, _)| file)
}

/// The same of the process that came from it by these forks, and for how many pages it is planned.
fn tape_of_fork(tapes: &Path, arguments: &str, forks: &str) -> Result<(String, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(tapes)? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        let tape = Tape::open(&bytes).with_context(|| path.display().to_string())?;
        let is_of = tape.head().command.split_once(' ').is_some_and(|(_, of)| of == arguments);
        if is_of && tape.head().forks.to_string() == forks {
            ensure!(!tape.head().build_id.is_empty(), "the tape of {arguments} has no build-id");
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((file, tape.head().local_pages));
        }
    }
    ensure!(found.len() == 1, "{} tapes of {arguments}, fork {forks:?}", found.len());
    found.pop().context("no tape")
}

/// Sorts `some` of all processes of a run.
fn in_order_of_forks(some: &mut [Value], all: &[Value]) -> Result<()> {
    let numbers = std::fs::read_to_string("/proc/sys/kernel/pid_max")?.trim().parse::<u64>()?;
    let first = all.iter().find(|process| all.iter().all(|other| other["pid"] != process["parent_pid"]));
    let first = count(first.context("no first process")?, "pid")?;
    some.sort_by_key(|process| process["pid"].as_u64().map(|pid| (pid + numbers - first) % numbers));
    Ok(())
}

/// The processes that ran a program, in the order in which they were forked: that of their numbers from the number of the first process on, as the
/// kernel begins again at its greatest one.
fn processes(ended: &Ended, program: &str) -> Result<Vec<Value>> {
    let stats = ended.stats()?;
    let all = stats["processes"].as_array().context("no processes")?;
    let mut found: Vec<Value> = all.iter().filter(|process| process["program"] == program).cloned().collect();
    in_order_of_forks(&mut found, all)?;
    Ok(found)
}

fn count(of: &Value, figure: &str) -> Result<u64> {
    of[figure].as_u64().with_context(|| format!("no {figure}"))
}

/// A process followed the tape to its end without once leaving it. How many pages the prefetcher fetched before the program needed them is for the
/// machine to say: on a busy one the program fetches some itself, which is not leaving the tape.
fn followed(process: &Value, tape: &str) -> Result<()> {
    let left = count(process, "tape_left")?;
    ensure!(left == 0, "left {tape} {left} times");
    fetched_by(process, tape)
}

/// A process that shares memory with another took the tape, and fetched by it. How much of the memory each has when is for the machine to say: how
/// many pages leave early is, too.
fn fetched_by(process: &Value, tape: &str) -> Result<()> {
    ensure!(process["tape"] == tape, "{} instead of {tape}", process["tape"]);
    let (threads, pages) = (count(process, "tape_threads")?, count(process, "tape_pages")?);
    ensure!(threads == 1 && pages >= 1000, "{threads} threads, {pages} pages by {tape}");
    Ok(())
}

/// A program that cannot open the launcher's memory is given the tapes.
fn in_a_user_namespace(name: &str, path: &str) -> Result<()> {
    let walks = walks()?;
    let line = format!("{walks} sequential 8192 3");
    let (tapes, printed) = planned(name, &line, CODE)?;
    let ended = run(name, &tapes, &["--local", "20M", "--fault-path", path], &format!("exec unshare -Ur {line}"))?;
    ended.expect(CODE, "done")?.expect_eviction()?;
    ensure!(ended.stdout == printed, "{} instead of {printed}", ended.stdout);
    let found = processes(&ended, &walks)?;
    ensure!(found.len() == 1, "{} rows of {walks}", found.len());
    followed(&found[0], &tape_of(&tapes, "sequential 8192 3")?)
}

/// Two programs behind a shell, the second in the background: on another's tape each would be lost at once.
fn each_its_own(name: &str, path: &str) -> Result<()> {
    let walks = walks()?;
    let line = format!("{walks} sequential 8192 3; {walks} permuted-5 8192 3 & wait $!");
    let (tapes, printed) = planned(name, &line, CODE)?;
    let ended = run(name, &tapes, &["--local", "20M", "--fault-path", path], &line)?;
    ended.expect(CODE, "done")?.expect_eviction()?;
    ensure!(ended.stdout == printed, "{} instead of {printed}", ended.stdout);
    let found = processes(&ended, &walks)?;
    ensure!(found.len() == 2, "{} processes", found.len());
    followed(&found[0], &tape_of(&tapes, "sequential 8192 3")?)?;
    followed(&found[1], &tape_of(&tapes, "permuted-5 8192 3")?)?;
    // The other way round each finds its own just as well.
    let line = format!("{walks} permuted-5 8192 3; {walks} sequential 8192 3");
    let ended = run(&format!("{name}-turned"), &tapes, &["--local", "20M", "--fault-path", path], &line)?;
    ended.expect(CODE, "done")?;
    let found = processes(&ended, &walks)?;
    followed(&found[0], &tape_of(&tapes, "permuted-5 8192 3")?)?;
    followed(&found[1], &tape_of(&tapes, "sequential 8192 3")?)
}

/// Processes that run at the same time, two of them the same program with the same arguments.
fn at_once(name: &str, path: &str) -> Result<()> {
    let walks = walks()?;
    let (walk, other) = (format!("{walks} sequential 8192 3"), format!("{walks} permuted-5 8192 3"));
    let line = format!("{walk} & {other} & {walk} & wait; echo done");
    let (tapes, _) = planned(name, &line, 0)?;
    let ended = run(name, &tapes, &["--local", "24M", "--fault-path", path], &line)?;
    ended.expect(0, "done")?.expect_eviction()?;
    ensure!(ended.stdout.matches("done").count() == 4 && !ended.stdout.contains("WRONG"), "{}", ended.stdout);
    let found = processes(&ended, &walks)?;
    let mut names: Vec<&str> = found.iter().filter_map(|process| process["tape"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    ensure!(found.len() == 3 && names.len() == 3, "{} processes took {names:?}", found.len());
    let permuted = tape_of(&tapes, "permuted-5 8192 3")?;
    ensure!(names.contains(&permuted.as_str()), "{names:?}");
    // How much of the memory each has when is for the machine to say: how often it leaves its tape is, too.
    ensure!(found.iter().all(|process| process["tape_threads"] == 1), "{found:?}");
    Ok(())
}

/// A program that a process calls exec for follows its own tape, from its beginning.
fn after_exec(name: &str, path: &str) -> Result<()> {
    let walks = walks()?;
    let line = format!("{walks} permuted-5 8192 3; exec {walks} sequential 8192 3");
    let (tapes, _) = planned(name, &line, CODE)?;
    let ended = run(name, &tapes, &["--local", "20M", "--fault-path", path], &line)?;
    ended.expect(CODE, "done")?;
    let (walk, other) = (tape_of(&tapes, "sequential 8192 3")?, tape_of(&tapes, "permuted-5 8192 3")?);
    // The shell's number is the first one.
    let found = processes(&ended, &walks)?;
    ensure!(found.len() == 2 && found[0]["pid"] != found[1]["pid"], "{found:?}");
    followed(&found[0], &walk)?;
    followed(&found[1], &other)
}

/// A forked child has its own trace, and follows its own tape; its parent does, too. Each is planned for what it has beside the other.
fn forked(name: &str, path: &str) -> Result<()> {
    let program = c_program("forked_walk", &[])?.display().to_string();
    let (tapes, printed) = planned(name, &format!("{program} 6144; exit $?"), 0)?;
    let [(parent, parent_pages), (child, child_pages)] =
        [tape_of_fork(&tapes, "6144", "")?, tape_of_fork(&tapes, "6144", "1")?];
    // Half of what the shell leaves them.
    ensure!(parent_pages == child_pages && (1900..=2048).contains(&parent_pages), "{parent_pages}, {child_pages}");
    let ended = run(name, &tapes, &["--local", "16M", "--fault-path", path], &format!("{program} 6144; exit $?"))?;
    ended.expect(0, "done")?;
    ensure!(ended.stdout == printed, "{} instead of {printed}", ended.stdout);
    let found = processes(&ended, &program)?;
    let (children, parents): (Vec<&Value>, Vec<&Value>) = found.iter().partition(|process| process["forked"] == true);
    ensure!(children.len() == 1 && parents.len() == 1, "{found:?}");
    fetched_by(parents[0], &parent)?;
    fetched_by(children[0], &child)
}

/// Each worker follows the tape of the worker that was forked as the same one, whatever order they walk in; so does the child of one.
fn forked_workers(name: &str, path: &str) -> Result<()> {
    let program = c_program("forked_workers", &[])?.display().to_string();
    let line = format!("{program} 6144 3 2 0; exit $?");
    let (tapes, _) = planned(name, &line, 0)?;
    let ended = run(name, &tapes, &["--local", "16M", "--fault-path", path], &line)?;
    ended.expect(0, "done")?.expect_eviction()?;
    let found: Vec<Value> =
        processes(&ended, &program)?.into_iter().filter(|process| process["forked"] == true).collect();
    ensure!(found.len() == 4, "{} forked processes", found.len());
    // In the order in which they were forked, which is that of their numbers.
    for (process, forks) in found.iter().zip(["1", "2", "2.1", "3"]) {
        fetched_by(process, &tape_of_fork(&tapes, "6144 3 2 0", forks)?.0)?;
    }
    Ok(())
}

/// What other threads than the first fork is not known again: it has a trace, and neither a tape nor a wrong one.
fn forked_by_threads(name: &str) -> Result<()> {
    let program = c_program("forked_workers", &[])?.display().to_string();
    let line = format!("{program} 4608 1 2 1; exit $?");
    let Planned { traces, tapes, said, .. } = planned_with(name, &line, 0)?;
    ensure!(said.contains("no tapes of 1 traces, each of a forked child of which it is not known"), "{said}");
    let ended = run(name, &tapes, &["--local", "16M"], &line)?;
    ended.expect(0, "done")?;
    let child = processes(&ended, &program)?.into_iter().find(|process| process["forked"] == true);
    let child = child.context("no forked process")?;
    ensure!(child["tape"].is_null() && count(&child, "tape_threads")? == 0, "{child}");
    ensure!(count(&ended.stats()?, "tape_processes_without")? >= 1, "the child is not counted");
    // Nor does another process follow the tape of its trace, where one was planned.
    let mut trace = None;
    for entry in std::fs::read_dir(&traces)? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        trace = trace.or(Trace::open(&bytes)?.head().is_forked.then_some(path));
    }
    let (trace, tape) = (trace.context("no trace of a child")?, tapes.join("child.tape"));
    let (trace, tape) = (trace.display().to_string(), tape.display().to_string());
    let words = ["tape", &trace, "--local", "16M", "-o", &tape];
    Launch::bare(&format!("{name}-one"), &words)?.run()?.expect(0, "fetch")?;
    let refused = Launch::new(&format!("{name}-refused"), &["--tape", &tape], &["sh", "-c", &line])?.run()?;
    refused.expect_refusal(&["not known by which forks it came (another thread"])?.expect(125, "")?;
    Ok(())
}

/// Workers that Python's multiprocessing forks, one after the other.
fn python_workers(name: &str) -> Result<()> {
    const SCRIPT: &str = r#"
import multiprocessing
data = bytearray(b"x") * (20 << 20)
def worker(step):
    pages = len(data) // 4096
    assert sum(data[at * step % pages * 4096] for at in range(pages)) == pages * ord("x")
context = multiprocessing.get_context("fork")
for step in (1, 617):
    process = context.Process(target=worker, args=(step,))
    process.start()
    process.join()
    assert process.exitcode == 0
print("done")
"#;
    let script = places::emptied(places::tests().join("lifecycle").join("taped-trees-python"))?.join("workers.py");
    std::fs::write(&script, SCRIPT)?;
    let python = skips::find("python3").context("python3")?.display().to_string();
    let line = format!("{python} {}; exit $?", script.display());
    let (tapes, _) = planned(name, &line, 0)?;
    let ended = run(name, &tapes, &["--local", "16M"], &line)?;
    ended.expect(0, "done")?.expect_eviction()?;
    let stats = ended.stats()?;
    let all = stats["processes"].as_array().context("no processes")?;
    let follows = |process: &&Value| process["forked"] == true && count(process, "tape_pages").unwrap_or(0) > 0;
    let mut found: Vec<Value> = all.iter().filter(follows).cloned().collect();
    in_order_of_forks(&mut found, all)?;
    ensure!(found.len() == 2, "{} workers followed a tape", found.len());
    for (process, forks) in found.iter().zip(["1", "2"]) {
        let (tape, _) = tape_of_fork(&tapes, &script.display().to_string(), forks)?;
        fetched_by(process, &tape)?;
    }
    Ok(())
}

/// With other arguments than any tape has, a program takes one of those that no other has taken; one more has none, and is counted.
fn other_arguments(name: &str) -> Result<()> {
    let walks = walks()?;
    let (tapes, _) = planned(name, &format!("{walks} sequential 8192 2; exit $?"), CODE)?;
    // More rounds of the same, as with another input.
    let line = format!("{walks} sequential 8192 3; {walks} stride-3 8192 3; {walks} sequential 8192 2");
    let ended = run(name, &tapes, &["--local", "20M"], &line)?;
    ended.expect(CODE, "done")?;
    let tape = tape_of(&tapes, "sequential 8192 2")?;
    let found = processes(&ended, &walks)?;
    ensure!(found.len() == 3, "{} processes", found.len());
    ensure!(found[0]["tape"] == tape && found[1]["tape"].is_null(), "{found:?}");
    followed(&found[2], &tape)?;
    let stats = ended.stats()?;
    let without = count(&stats, "tape_processes_without")?;
    let followed = count(&stats, "tape_processes")?;
    ensure!(followed >= 2 && without >= 1, "{followed} followed one, {without} had none");
    let explained = Launch::bare(
        &format!("{name}-explain"),
        &["explain", &ended.directory().join("stats.json").display().to_string()],
    )?
    .run()?;
    explained.expect(0, &format!("{followed} of {} processes followed one", followed + without))?;
    Ok(())
}

/// A program that has no build-id is known by the name of its file.
fn without_build_id(name: &str) -> Result<()> {
    let walks = c_program("walks", &["-Wl,--build-id=none"])?.display().to_string();
    let line = format!("{walks} sequential 8192 2; exit $?");
    let (tapes, _) = planned(name, &line, CODE)?;
    let ended = run(name, &tapes, &["--local", "20M"], &line)?;
    ended.expect(CODE, "done")?;
    let process = processes(&ended, &walks)?.pop().context("no process")?;
    let file = process["tape"].as_str().context("it followed none")?;
    let bytes = std::fs::read(tapes.join(file))?;
    let tape = Tape::open(&bytes)?;
    ensure!(tape.head().build_id.is_empty() && tape.head().program == walks, "{:?}", tape.head());
    followed(&process, file)
}

/// Tapes of none of the run's programs: it runs as without, and the user is told.
fn of_other_programs(name: &str) -> Result<()> {
    let walks = walks()?;
    let (tapes, _) = planned(name, &format!("exec {walks} sequential 8192 1"), CODE)?;
    let keep = tape_of(&tapes, "sequential 8192 1")?;
    for entry in std::fs::read_dir(&tapes)? {
        let path = entry?.path();
        if path.file_name() != Some(keep.as_ref()) {
            std::fs::remove_file(path)?;
        }
    }
    let ended = run(name, &tapes, &["--local", "16M"], "echo native")?;
    ended.expect(0, "native")?;
    ensure!(ended.stderr.contains("has tapes of walks, and no process of the run was"), "{}", ended.stderr);
    ensure!(count(&ended.stats()?, "tape_processes")? == 0, "one was followed");
    Ok(())
}

/// What is damaged, foreign or of a later version is named and left out; what is whole is followed.
fn damaged(name: &str) -> Result<()> {
    let walks = walks()?;
    let line = format!("{walks} sequential 8192 2; {walks} permuted-5 8192 2");
    let (tapes, printed) = planned(name, &line, CODE)?;
    let (whole, cut) = (tape_of(&tapes, "sequential 8192 2")?, tape_of(&tapes, "permuted-5 8192 2")?);
    let bytes = std::fs::read(tapes.join(&cut))?;
    std::fs::write(tapes.join(&cut), &bytes[..bytes.len() / 2])?;
    let mut later = bytes.clone();
    later[4] = 9;
    std::fs::write(tapes.join("later.tape"), later)?;
    std::fs::write(tapes.join("text.tape"), "no tape at all")?;
    std::fs::create_dir(tapes.join("folder.tape"))?;
    let ended = run(name, &tapes, &["--local", "20M"], &line)?;
    ended.expect(CODE, "done")?;
    ensure!(ended.stdout == printed, "{} instead of {printed}", ended.stdout);
    for (file, why) in [
        (cut.as_str(), "plan the tape again"),
        ("later.tape", "format version 9"),
        ("text.tape", "this is no tape"),
        ("folder.tape", "a tape is a file"),
    ] {
        let said =
            ended.stderr.lines().any(|line| line.contains(file) && line.contains(why) && line.contains("left out"));
        ensure!(said, "no word of {file}: {}", ended.stderr);
    }
    followed(&processes(&ended, &walks)?[0], &whole)
}

/// What has no tape at all is refused before the program starts, and so is a share of what is not known.
fn refused(name: &str) -> Result<()> {
    let walks = walks()?;
    let (tapes, _) = planned(name, &format!("exec {walks} sequential 8192 1"), CODE)?;
    let share = run(&format!("{name}-share"), &tapes, &["--local", "20%"], "echo started")?;
    share.expect_refusal(&["which of these run at the same time"])?.expect(125, "")?;
    let empty = places::emptied(places::tests().join("lifecycle").join("taped-trees-empty"))?;
    run(&format!("{name}-empty"), &empty, &[], "echo started")?.expect_refusal(&["a folder without tapes"])?;
    std::fs::write(empty.join("text.tape"), "no tape at all")?;
    run(&format!("{name}-text"), &empty, &[], "echo started")?.expect_refusal(&["no tape in it can be used"])?;
    run(&format!("{name}-nowhere"), &empty.join("nowhere"), &[], "echo started")?.expect_refusal(&["No such file"])?;
    Ok(())
}
