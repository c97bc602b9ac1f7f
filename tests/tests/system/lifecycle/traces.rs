//! Traces of programs whose references are known, reference by reference; and traces that something went wrong with.

use super::tuning::allowed;
use anyhow::{Context, Result, ensure};
use hinterland_tape::{Cause, Entry, Reference, Trace};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the far range begins.
const FAR: u64 = hinterland_tests::frozen::FAR.start;
const PAGE: u64 = 4096;
/// What `walks` ends with.
const CODE: i32 = 7;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: &str, test: fn(&str) -> Result<()>| {
        let name = format!("lifecycle::traces::{name}");
        trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || test(&name)));
    };
    add("sequential", |name| exact(name, &["--microset", "64"], "sequential", 2048, 3, &walk(2048, 1, 3)));
    add("sequential_as_by_default", |name| exact(name, &[], "sequential", 4096, 3, &walk(4096, 1, 3)));
    add("sequential_on_6_1", |name| {
        exact(name, &["--microset", "64", "--features", "6.1"], "sequential", 1024, 2, &walk(1024, 1, 2))
    });
    // What a program keeps is recorded like any other memory.
    add("kept", |name| exact(name, &["--microset", "64", "--local", "64M"], "kept", 2048, 3, &walk(2048, 1, 3)));
    add("stride", |name| exact(name, &["--microset", "32"], "stride", 2048, 3, &walk(2048, 10, 3)));
    add("random_page_by_page", |name| exact(name, &["--microset", "1"], "random", 500, 10, &random(500, 10)));
    add("scarce_memory", |name| {
        exact(name, &["--microset", "100", "--local", "16M"], "sequential", 8192, 3, &walk(8192, 1, 3))
    });
    add("threads", threads);
    add("given_up", given_up);
    add("times", times);
    add("instructions_of_several_pages", several_pages);
    add("same_output::sort", sort);
    add("same_output::python", python);
    add("same_output::forks", forks);
    add("positions", positions);
    add("exec", exec);
    add("processors", processors);
    add("killed", killed);
    add("file_limit", file_limit);
    add("device_full", device_full);
    add("damaged", damaged);
    add("import", import);
    let root = || skips::not_root().or_else(skips::no_userfaultfd);
    trials.push(suite::trial("lifecycle::traces::disk_full", root, disk_full));
    trials
}

/// The pages of a walk by `step` through `pages`.
fn walk(pages: u64, step: usize, rounds: u64) -> Vec<u64> {
    (0..rounds).flat_map(|_| (0..pages).step_by(step)).collect()
}

/// The pages of `walks random`, but for touches of the same page in a row.
fn random(pages: u64, rounds: u64) -> Vec<u64> {
    let mut state = 42u64;
    let touches = (0..pages * rounds).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % pages
    });
    let mut touches: Vec<u64> = touches.collect();
    touches.dedup();
    touches
}

/// A run of `hinterland trace`, whose trace is `app.trace` in its directory.
fn trace(name: &str, options: &[&str], program: &[&str]) -> Result<(Ended, PathBuf)> {
    let launch = traced(name, options, program)?;
    let file = launch.directory.join("app.trace");
    Ok((launch.run()?, file))
}

fn traced(name: &str, options: &[&str], program: &[&str]) -> Result<Launch> {
    let arguments = [&["trace", "-o", "app.trace"], options, &["--"], program].concat();
    Launch::bare(name, &arguments)
}

/// The references of a trace, and whether it is whole. A trace of ours has no damage.
fn read(file: &Path) -> Result<(Vec<Reference>, bool)> {
    let bytes = std::fs::read(file).with_context(|| format!("there is no {}", file.display()))?;
    let mut references = Trace::open(&bytes)?.references();
    let seen = references.by_ref().collect::<Result<Vec<_>, _>>()?;
    ensure!(references.regions().len() <= 1, "the far range is one region: {:?}", references.regions());
    Ok((seen, references.is_whole()))
}

/// The first page of the mapping that `walks` printed the address of.
fn mapping(ended: &Ended) -> Result<u64> {
    let printed = ended.stdout.lines().next().and_then(|line| line.strip_prefix("0x"));
    let address = u64::from_str_radix(printed.context("walks prints an address")?, 16)?;
    Ok((address - FAR) / PAGE)
}

/// The pages of that mapping, from 0.
fn inside<'a>(ended: &Ended, seen: &'a [Reference], pages: u64) -> Result<Vec<(u64, &'a Reference)>> {
    let first = mapping(ended)?;
    let inside = seen.iter().filter_map(|reference| {
        let page = u64::from(reference.page).checked_sub(first).filter(|page| *page < pages)?;
        Some((page, reference))
    });
    Ok(inside.collect())
}

/// The walk has exactly these references, in this order.
fn exact(name: &str, options: &[&str], pattern: &str, pages: u64, rounds: u64, expected: &[u64]) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let (ended, file) = trace(name, options, &[&program, pattern, &pages.to_string(), &rounds.to_string()])?;
    ended.expect(CODE, "done")?;
    let (seen, whole) = read(&file)?;
    ensure!(whole, "the trace has no end");
    let walked = inside(&ended, &seen, pages)?;
    let order: Vec<u64> = walked.iter().map(|(page, _)| *page).collect();
    let same = order.iter().zip(expected).take_while(|(a, b)| a == b).count();
    ensure!(
        order == expected,
        "{} references instead of {}; from {same} on {:?} instead of {:?}",
        order.len(),
        expected.len(),
        &order[same..order.len().min(same + 9)],
        &expected[same..expected.len().min(same + 9)]
    );
    properties(&seen, options)?;
    let threads: Vec<u32> = walked.iter().map(|(_, reference)| reference.thread).collect();
    ensure!(threads.iter().all(|thread| *thread == threads[0]), "one thread walked");
    Ok(())
}

/// What holds for every trace: numbers without gaps, times that do not run backwards, and in a microset each page once and no
/// more pages than it may have.
fn properties(seen: &[Reference], options: &[&str]) -> Result<()> {
    let at = options.iter().position(|option| *option == "--microset");
    let bound: usize = at.map_or(Ok(1024), |at| options[at + 1].parse())?;
    ensure!(seen.iter().zip(0..).all(|(reference, number)| reference.sequence == number), "numbers follow each other");
    for microset in seen.chunk_by(|one, next| one.microset == next.microset) {
        let mut pages = HashSet::new();
        let twice = microset.iter().find(|reference| !pages.insert(reference.page) && !reference.is_first);
        ensure!(twice.is_none(), "a page that was not given up comes twice in a microset: {twice:?}");
        ensure!(microset.len() <= bound, "microset {} has {} pages", microset[0].microset, microset.len());
    }
    for thread in 0..=seen.iter().map(|reference| reference.thread).max().unwrap_or(0) {
        let times: Vec<u64> = seen.iter().filter(|one| one.thread == thread).map(|one| one.cpu_ns).collect();
        ensure!(times.is_sorted(), "the time of thread {thread} runs backwards");
        ensure!(times.last() > Some(&0), "thread {thread} takes no time");
    }
    Ok(())
}

/// Each of two threads is seen to walk through its own half.
fn threads(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let options = ["--microset", "64"];
    let (ended, file) = trace(name, &options, &[&program, "threads", "2048", "3"])?;
    ended.expect(CODE, "done")?;
    let (seen, whole) = read(&file)?;
    ensure!(whole, "the trace has no end");
    let walked = inside(&ended, &seen, 2048)?;
    let mut walkers: Vec<u32> = walked.iter().map(|(_, reference)| reference.thread).collect();
    walkers.sort_unstable();
    walkers.dedup();
    ensure!(walkers.len() == 2, "two threads walk, not {walkers:?}");
    for walker in walkers {
        let mut own: Vec<u64> = walked.iter().filter(|(_, r)| r.thread == walker).map(|(page, _)| *page).collect();
        // A page that others pushed out before its thread ran is touched again.
        own.dedup();
        let first = own[0];
        let expected: Vec<u64> = walk(1024, 1, 3).iter().map(|page| first + page).collect();
        ensure!(own == expected, "thread {walker} does not walk through its half: {:?}", &own[..own.len().min(20)]);
    }
    properties(&seen, &options)
}

/// What a program discards is in its trace, and what it touches afterwards is a first touch, also in the same microset; only what it writes
/// to is written to.
fn given_up(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    for (pages, rounds, seen_twice) in [(1024_u32, 3_u32, true), (32, 10, false)] {
        let walk = [&program, "given-up", &pages.to_string(), &rounds.to_string()];
        let (ended, file) = trace(name, &["--microset", "64"], &walk)?;
        ended.expect(CODE, "done")?;
        let first = mapping(&ended)?;
        let of_walk = |page: u32| (first..first + u64::from(pages)).contains(&page.into());
        let bytes = std::fs::read(&file)?;
        let mut references = Trace::open(&bytes)?.references();
        let (mut touches, mut microset, mut discarded) = (Vec::new(), Vec::new(), 0);
        while let Some(entry) = references.next_entry() {
            match entry? {
                Entry::Touch(reference) => {
                    microset.push(of_walk(reference.page).then_some(touches.len()));
                    if of_walk(reference.page) {
                        touches.push((u64::from(reference.page) - first, reference.is_first, None));
                    }
                }
                Entry::Discard(discard) if discard.cause == Cause::Discarded => {
                    discarded += discard.each().filter(|page| of_walk(*page)).count();
                }
                Entry::Discard(_) => {}
                Entry::MicrosetEnd { written, .. } => {
                    for (index, touch) in (0..).zip(microset.drain(..)) {
                        if let Some(touch) = touch {
                            touches[touch].2 = written.get(index);
                        }
                    }
                }
            }
        }
        ensure!(references.is_whole() && discarded == (pages * rounds) as usize, "{discarded} pages were discarded");
        let passes = if seen_twice { 2 } else { 1 };
        let expected =
            (0..rounds).flat_map(|_| (0..passes).flat_map(|pass| (0..pages).map(move |page| (page, pass == 0))));
        let expected: Vec<(u64, bool)> = expected.map(|(page, is_first)| (page.into(), is_first)).collect();
        let seen: Vec<(u64, bool)> = touches.iter().map(|(page, is_first, _)| (*page, *is_first)).collect();
        ensure!(seen == expected, "{} touches: {:?}", seen.len(), &seen[..seen.len().min(40)]);
        // What is discarded before its microset ends may have been written to.
        let known = touches.iter().filter(|(page, ..)| seen_twice && page + 64 < pages.into());
        let wrong = known.into_iter().find(|(_, is_first, written)| *written != Some(*is_first));
        ensure!(wrong.is_none(), "wrong: {wrong:?}");
    }
    Ok(())
}

/// A walk that does nothing else takes hardly any time, though each of its faults took 4 µs of the thread's.
fn times(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let (ended, file) = trace(name, &["--microset", "64"], &[&program, "sequential", "4096", "20"])?;
    ended.expect(CODE, "done")?;
    let (seen, _) = read(&file)?;
    let last = seen.last().context("no reference")?;
    let each_ns = last.cpu_ns / (last.sequence + 1);
    ensure!(each_ns < 2000, "{each_ns} ns from each reference to the next");
    Ok(())
}

/// A microset smaller than what one instruction needs: the program gets on, and reads what it should.
fn several_pages(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    for microset in ["1", "2", "3"] {
        let (ended, file) = trace(name, &["--microset", microset], &[&program, "together", "400", "3"])?;
        ended.expect(CODE, "done")?;
        let (seen, whole) = read(&file)?;
        ensure!(whole && seen.len() > 400, "{} references", seen.len());
    }
    Ok(())
}

/// Runs a program natively and traced; both must print the same.
fn same_output(name: &str, options: &[&str], program: &[&str]) -> Result<PathBuf> {
    let native = Command::new(program[0]).args(&program[1..]).env("LC_ALL", "C").output().context("cannot run it")?;
    let launch = traced(name, options, program)?.with("LC_ALL", "C");
    let file = launch.directory.join("app.trace");
    let ended = launch.run()?;
    let right = String::from_utf8(native.stdout)?;
    ensure!(native.status.code() == Some(ended.code), "ended with {}: {}", ended.code, ended.stderr);
    ensure!(ended.stdout == right, "printed '{}' instead of '{right}'", ended.stdout);
    let (seen, whole) = read(&file)?;
    ensure!(whole && seen.len() > 100, "{} references, whole: {whole}", seen.len());
    properties(&seen, &options[..2])?;
    Ok(file)
}

fn sort(name: &str) -> Result<()> {
    let directory = places::tests().join("lifecycle").join("traces-sort-input");
    let input = places::emptied(directory)?.join("lines");
    let mut random = hinterland_units::Rng(1);
    let mut text = String::new();
    for _ in 0..50_000 {
        text += &format!("{:020}\n", random.next_u64());
    }
    std::fs::write(&input, text)?;
    let input = input.display().to_string();
    same_output(name, &["--microset", "256"], &["sort", "-S", "100M", "--parallel=2", &input]).map(drop)
}

fn python(name: &str) -> Result<()> {
    let script = "import hashlib\n\
                  table = {str(i): [i] * 5 for i in range(15000)}\n\
                  text = ','.join(f'{k}:{sum(v)}' for k, v in sorted(table.items()))\n\
                  print(len(table), hashlib.sha256(text.encode()).hexdigest())";
    let python = "/usr/bin/python3";
    ensure!(Path::new(python).exists(), "there is no {python}");
    same_output(name, &["--microset", "512"], &[python, "-c", script])?;
    same_output(name, &["--microset", "64", "--local", "16M"], &[python, "-c", script]).map(drop)
}

/// Where the kernel puts things at random (ASLR), two runs have the same references, of the heap too.
fn positions(name: &str) -> Result<()> {
    let random = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space")?;
    ensure!(random.trim() != "0", "the kernel puts everything in the same place: see kernel.randomize_va_space");
    let input = places::emptied(places::tests().join("lifecycle").join("traces-positions-input"))?.join("lines");
    let lines: String =
        (0..20_000u64).map(|line| format!("{:020}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    std::fs::write(&input, lines)?;
    let (walks, input) = (c_program("walks", &[])?.display().to_string(), input.display().to_string());
    let sort = ["sort", "-S", "20M", "--parallel=1", "-o", "/dev/null", &input];
    for (program, code) in [(&[walks.as_str(), "random", "500", "10"][..], CODE), (&sort[..], 0)] {
        let once = || -> Result<Vec<(u32, u32)>> {
            let (ended, file) = trace(name, &["--microset", "16"], program)?;
            ended.expect(code, "")?;
            Ok(read(&file)?.0.iter().map(|reference| (reference.thread, reference.page)).collect())
        };
        let (first, second) = (once()?, once()?);
        let same = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
        ensure!(
            first == second && first.len() > 400,
            "{program:?}: {} and {} references, the same up to {same}",
            first.len(),
            second.len()
        );
    }
    Ok(())
}

/// Forked children go on untraced with the right bytes; the parent is traced on.
fn forks(name: &str) -> Result<()> {
    let program = c_program("children", &[])?.display().to_string();
    for (way, kernel) in [("forks", "all"), ("fork-exec", "all"), ("posix_spawn", "all"), ("forks", "6.1")] {
        let options = ["--microset", "1024", "--features", kernel];
        let (ended, file) = trace(name, &options, &[&program, way])?;
        ended.expect(0, "parent ok, child 0")?;
        let (seen, whole) = read(&file)?;
        ensure!(whole && seen.len() > 1000, "{way}: {} references, whole: {whole}", seen.len());
        properties(&seen, &options)?;
    }
    Ok(())
}

/// The program that the first one calls exec for is traced; the children of a shell are not.
fn exec(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let line = format!("exec {program} sequential 2048 2");
    let (ended, file) = trace(name, &["--microset", "64"], &["sh", "-c", &line])?;
    ended.expect(CODE, "done")?;
    let (seen, whole) = read(&file)?;
    ensure!(whole && inside(&ended, &seen, 2048)?.len() == 4096, "{} references", seen.len());
    ensure!(Trace::open(&std::fs::read(&file)?)?.head().program == program, "the trace is of {program}");
    let line = format!("{program} sequential 2048 2; exit 3");
    let (ended, file) = trace(name, &["--microset", "64"], &["sh", "-c", &line])?;
    ended.expect(3, "done")?;
    // The shell's own memory may lie at the same address: a few pages, and no walk.
    ensure!(inside(&ended, &read(&file)?.0, 2048)?.len() < 1024, "a child is traced");
    ensure!(ended.stderr.contains("1 other process of the run is not in the trace"), "{}", ended.stderr);
    Ok(())
}

/// A traced program gets the number of processors that it has untraced, also one that was started by exec, or that may take one alone.
fn processors(name: &str) -> Result<()> {
    let program = c_program("processors", &[])?.display().to_string();
    let native = |words: &[&str]| -> Result<String> {
        let native = String::from_utf8(Command::new(words[0]).args(&words[1..]).output()?.stdout)?;
        ensure!(native.matches("right").count() == 3, "natively {native}");
        Ok(native)
    };
    let expected = native(&[&program])?;
    for line in [vec![program.as_str()], vec!["sh", "-c", &format!("exec {program}")]] {
        trace(name, &[], &line)?.0.expect(0, &expected)?;
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let first = allowed(&status).and_then(|all| all.split([',', '-']).next()).context("a processor")?;
    let alone = ["taskset", "-c", first];
    let mut command = Command::new(alone[0]);
    command.args(&alone[1..]).arg(places::launcher()?).args(["trace", "-o", "app.trace", "--", &program]);
    let ended = Launch::of(&format!("{name}-alone"), command)?.run()?;
    ended.expect(0, &native(&[&alone[..], &[&program]].concat())?)?;
    // What it forks and what it starts is not recorded, and runs where it does untraced.
    let allowed =
        "(while read -r name value; do case $name in Cpus_allowed_list:) echo $value;; esac; done < /proc/self/status)";
    for script in [&format!("{allowed}; exit 0"), &format!("{program}; exit 0")] {
        let line = ["sh", "-c", script];
        let expected = String::from_utf8(Command::new(line[0]).args(&line[1..]).output()?.stdout)?;
        trace(name, &[], &line)?.0.expect(0, &expected)?;
    }
    // Threads that set themselves to different ones are told so, and take turns on one all the same.
    trace(name, &[], &[program.as_str(), "set"])?.0.expect(0, &"1 together\n".repeat(4))?;
    Ok(())
}

/// What was recorded of a program that was killed can be read.
fn killed(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let launch = traced(name, &["--microset", "64"], &[&program, "forever", "2048", "1"])?;
    let file = launch.directory.join("app.trace");
    let mut running = launch.start()?;
    running.wait_for("0x")?;
    // Until the file has some whole blocks: what is in the open one goes with the program.
    suite::wait_until("a trace that grows", || Ok(std::fs::metadata(&file).map_or(0, |of| of.len()) >= 8 << 10))?;
    let below = running.below();
    ensure!(!below.is_empty(), "the program has ended");
    below.iter().try_for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL))?;
    let ended = running.end()?;
    ensure!(ended.stderr.contains("did not exit normally"), "{}", ended.stderr);
    let (seen, whole) = read(&file)?;
    ensure!(!whole, "a killed program cannot have closed its trace");
    let walked = inside(&ended, &seen, 2048)?;
    ensure!(walked.len() > 5000, "{} references", walked.len());
    ensure!(walked.iter().zip((0..2048).cycle()).all(|((page, _), expected)| *page == expected), "in order");
    Ok(())
}

/// A trace that cannot grow: the program goes on and ends with its own code, and the user is told.
fn unwritten(ended: &Ended, reason: &str) -> Result<()> {
    ended.expect(CODE, "done")?;
    ensure!(ended.stderr.contains(reason), "no '{reason}' in: {}", ended.stderr);
    ensure!(ended.stderr.contains("went on without being traced"), "{}", ended.stderr);
    Ok(())
}

fn file_limit(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    // Blocks of 512 bytes: 60 KiB hold the head and one block.
    let line = format!("ulimit -f 120; exec {program} random 4096 10");
    // No far file, which the limit would not allow.
    let options = ["--microset", "16", "--far", "compressed:1G"];
    let (ended, file) = trace(name, &options, &["sh", "-c", &line])?;
    unwritten(&ended, "File too large")?;
    let (seen, whole) = read(&file)?;
    ensure!(!whole && seen.len() > 2000, "{} references", seen.len());
    ensure!(file.metadata()?.len() <= 60 << 10, "the limit holds");
    Launch::bare(&format!("{name}::show"), &["trace", "show", &file.display().to_string()])?.run()?.expect(0, "far")?;
    Ok(())
}

fn device_full(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let arguments = ["trace", "-o", "/dev/full", "--", &program, "sequential", "100", "1"];
    unwritten(&Launch::bare(name, &arguments)?.run()?, "No space left on device")?;
    let ended =
        Launch::bare(name, &["trace", "-o", "/nowhere/app.trace", "--", &program, "sequential", "1", "1"])?.run()?;
    ended.expect(125, "")?.expect_refusal(&["/nowhere/app.trace"])?;
    ensure!(!ended.stdout.contains("0x"), "refused before the program runs");
    Ok(())
}

/// Unmounts when it goes.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn disk_full() -> Result<()> {
    let point = places::emptied(places::tests().join("lifecycle").join("mount-trace"))?;
    mount(Some("tmpfs"), &point, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).context("cannot mount a tmpfs")?;
    let _mounted = Mounted(point.clone());
    let program = c_program("walks", &[])?.display().to_string();
    let file = point.join("app.trace");
    let output = file.display().to_string();
    let arguments = ["trace", "-o", &output, "--microset", "16", "--", &program, "random", "4096", "10"];
    unwritten(&Launch::bare("trace-disk-full", &arguments)?.run()?, "No space left on device")?;
    let (seen, whole) = read(&file)?;
    ensure!(!whole && seen.len() > 2000, "{} references", seen.len());
    let shown = Launch::bare("trace-disk-full-show", &["trace", "show", &output, "--json"])?.run()?;
    let figures: serde_json::Value = serde_json::from_str(&shown.expect(0, "")?.stdout)?;
    ensure!(figures["references"] == seen.len() && figures["whole"] == false, "{figures}");
    Ok(())
}

/// Files that are no trace, or not a whole one, are refused with the place; what can be read is offered.
fn damaged(name: &str) -> Result<()> {
    let program = c_program("walks", &[])?.display().to_string();
    let (ended, file) = trace(name, &["--microset", "64"], &[&program, "sequential", "4096", "8"])?;
    ended.expect(CODE, "done")?;
    let whole = std::fs::read(&file)?;
    let all = read(&file)?.0.len() as u64;
    let place = places::emptied(places::tests().join("lifecycle").join("traces-damaged"))?;
    let write = |name: &str, bytes: &[u8]| -> Result<String> {
        let path = place.join(name);
        std::fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    };
    let show = |arguments: &[&str]| Launch::bare(name, &[&["trace", "show"], arguments].concat())?.run();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for (name, bytes, words) in [
        ("flipped", flipped.as_slice(), "checksum"),
        ("cut", &whole[..whole.len() - 5], "the file ends inside the block"),
    ] {
        let path = write(name, bytes)?;
        let refused = show(&[&path])?;
        refused.expect(125, "")?.expect_refusal(&[words])?;
        ensure!(refused.stderr.contains("byte ") && refused.stderr.contains("--partial"), "{}", refused.stderr);
        let shown = show(&[&path, "--partial", "--json"])?;
        let figures: serde_json::Value = serde_json::from_str(&shown.expect(0, "")?.stdout)?;
        let readable = figures["references"].as_u64().context("a number of references")?;
        ensure!(readable > all / 3 && readable <= all && figures["damage"][0]["from"].is_u64(), "{figures}");
    }
    let foreign = write("foreign", b"#!/bin/sh\necho no trace\n")?;
    show(&[&foreign])?.expect(125, "")?.expect_refusal(&["this is no trace"])?;
    let mut later = whole.clone();
    later[4] = 9;
    show(&[&write("later", &later)?])?.expect(125, "")?.expect_refusal(&["format version 9"])?;
    show(&[&write("empty", b"")?])?.expect(125, "")?.expect_refusal(&["the file is empty"])?;
    show(&["/nowhere"])?.expect(125, "")?.expect_refusal(&["/nowhere"])?;
    let good = write("good", &whole)?;
    let picture = place.join("map.svg");
    let shown = show(&[&good, "--json", "--svg", &picture.display().to_string()])?;
    let figures: serde_json::Value = serde_json::from_str(&shown.expect(0, "")?.stdout)?;
    ensure!(figures["patterns"]["sequential"].as_f64() > Some(0.95), "{figures}");
    ensure!(figures["references"] == all && figures["whole"] == true, "{figures}");
    // Eight rounds over a little more than 4096 pages: LRU memory of half of them misses every time.
    ensure!(figures["miss_ratios"][5]["ratio"].as_f64() > Some(0.95), "{figures}");
    ensure!(figures["miss_ratios"][7]["misses"] == figures["pages"], "{figures}");
    ensure!(std::fs::read_to_string(&picture)?.contains("</svg>"), "the picture is whole");
    show(&[&good])?.expect(0, "sequential")?;
    Ok(())
}

/// Other traces become ours.
fn import(name: &str) -> Result<()> {
    let place = places::emptied(places::tests().join("lifecycle").join("traces-import"))?;
    let (input, output) = (place.join("pages"), place.join("app.trace"));
    std::fs::write(&input, "1 0x10\n1 17\n2 16\n")?;
    let (input, output) = (input.display().to_string(), output.display().to_string());
    let arguments = ["trace", "import", "--from", "text", &input, "-o", &output];
    Launch::bare(name, &arguments)?.run()?.expect(0, "")?;
    let (seen, whole) = read(Path::new(&output))?;
    let seen: Vec<(u32, u32)> = seen.iter().map(|reference| (reference.thread, reference.page)).collect();
    ensure!(whole && seen == [(0, 16), (0, 17), (1, 16)], "{seen:?}");
    std::fs::write(&input, "I  04001090,3\n S 1ffeffe7e0,8\nsomething\n")?;
    let arguments = ["trace", "import", "--from", "lackey", &input, "-o", &output];
    Launch::bare(name, &arguments)?.run()?.expect(0, "")?;
    ensure!(read(Path::new(&output))?.0.len() == 1, "one access");
    let arguments = ["trace", "import", "--from", "text", &input, "-o", &output];
    Launch::bare(name, &arguments)?.run()?.expect(125, "")?.expect_refusal(&["line 1"])?;
    Ok(())
}
