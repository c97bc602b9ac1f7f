//! Process trees under one budget: builds, shells, multiprocessing, families, daemons, on both fault paths. Same output as
//! natively, and all processes together stay within the budget, as the kernel sees it.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, INSECURE_LOOPBACK, Launch, Running, c_program};
use hinterland_tests::ledger::LiveLedger;
use hinterland_tests::runtimes::MAJOR_FAULTS_MIN;
use hinterland_tests::suite::{Once, Trial};
use hinterland_tests::{MIB, frozen, places, skips, suite};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The fault paths.
const PATHS: [&str; 2] = ["monitor", "inline"];
/// By how much a tree may exceed its budget, in hundredths.
const SLACK_PERCENT: u64 = 5;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for path in PATHS {
        let mut add = |name: &str, test: fn(&str, &'static str) -> Result<()>| {
            let name = format!("lifecycle::trees::{name}::{path}");
            trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || test(&name, path)));
        };
        add("family", family);
        add("multiprocessing", multiprocessing);
        add("make", make);
        add("shell", shell);
        add("idle_gives_way", |name, path| {
            let (ours, theirs) = sharers(name, path, "idle")?;
            ensure!(ours >= 40 && theirs <= 24, "one that works on 48 MiB has {ours} MiB, one that sleeps {theirs}");
            Ok(())
        });
        add("busy_ones_share", |name, path| {
            let (ours, _) = sharers(name, path, "busy")?;
            ensure!((24..=40).contains(&ours), "one of two has {ours} MiB of 64");
            Ok(())
        });
        add("killed_gives_back", |name, path| {
            let (ours, _) = sharers(name, path, "killed")?;
            ensure!(ours >= 40, "after the other was killed, one that works on 48 MiB has {ours} MiB");
            Ok(())
        });
        add("more_floors_than_budget", more_floors_than_budget);
        add("fork_storm", fork_storm);
        add("daemon", daemon);
        add("exit_code_of_the_program", exit_code_of_the_program);
        add("exec", exec);
    }
    trials.push(suite::trial(
        "lifecycle::trees::wait_is_told_and_ended",
        skips::no_userfaultfd,
        wait_is_told_and_ended,
    ));
    for path in PATHS {
        let name = format!("lifecycle::trees::postgresql::{path}");
        trials.push(suite::trial(name.clone(), no_postgres, move || postgresql(&name, path)));
        let name = format!("lifecycle::trees::postgresql_joins::{path}");
        let skip = || skips::not_full().or_else(no_postgres);
        trials.push(suite::trial(name.clone(), skip, move || postgresql_joins(&name, path)));
    }
    trials.push(suite::trial("lifecycle::trees::ram", skips::no_userfaultfd, ram));
    trials
}

fn launch(test: &str, path: &str, local: &str, program: &[&str]) -> Result<Launch> {
    Launch::new(test, &["--local", local, "--fault-path", path], program)
}

/// Waits until the tree is at rest, when `count` processes of it have said `resting`, and its far pages are within `budget_mib`; then
/// has it end. It has used its budget.
fn run_within(mut running: Running, budget_mib: u64, resting: &str, count: usize) -> Result<Ended> {
    running.wait_for(resting)?;
    let said = running.directory.join("stdout");
    suite::wait_until("processes at rest", || Ok(std::fs::read_to_string(&said)?.matches(resting).count() >= count))?;
    wait_until_within(&running, budget_mib)?;
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    // All together as the launcher has seen them, which may look too late, or one alone, as it says itself.
    let stats = ended.stats()?;
    let own =
        stats["processes"].as_array().into_iter().flatten().map(|process| &process["resident_managed_peak_bytes"]);
    let peaks = own.chain([&stats["resident_managed_peak_bytes"]]).filter_map(|peak| peak.as_u64());
    let peak = peaks.max().context("no local peak")?;
    ensure!(peak > budget_mib * MIB / 2, "held {} MiB at most, of a budget of {budget_mib} MiB", peak / MIB);
    Ok(ended)
}

/// Waits until a tree that rests holds no more than its budget. It may hold far less: what it has freed is dropped after a second, and nothing
/// brings back what had to leave for that.
///
/// At rest, because the kernel reports no write to a page that a fork shares: a burst of them exceeds the budget until the next look.
/// How far and how long is a rule of the pager, tested there.
pub fn wait_until_within(running: &Running, budget_mib: u64) -> Result<()> {
    let budget = budget_mib * MIB;
    suite::wait_until("a tree within its budget", || {
        let held = frozen::far_bytes(running.pid);
        // The tree stands still for each look: not too often.
        std::thread::sleep(Duration::from_millis(25));
        Ok(held > 0 && held <= budget * (100 + SLACK_PERCENT) / 100)
    })
}

/// Demands that the launcher's own figures keep the budget, too.
pub fn expect_figures_within(ended: &Ended, budget_mib: u64) -> Result<()> {
    let stats = ended.stats()?;
    let held = stats["resident_managed_peak_bytes"].as_u64().context("no local peak")?;
    let allowed = budget_mib * MIB * (100 + SLACK_PERCENT) / 100;
    ensure!(held <= allowed, "counted {} MiB in a budget of {budget_mib} MiB", held / MIB);
    ensure!(stats["processes_uncounted"] == 0, "processes were not counted: {stats}");
    Ok(())
}

/// A process at its budget forks three children, which rewrite what they have inherited.
fn family(name: &str, path: &'static str) -> Result<()> {
    let program = c_program("family", &[])?.display().to_string();
    let ended = run_within(launch(name, path, "40M", &[&program, "96", "3"])?.start()?, 40, "resting", 4)?;
    ended.expect(0, "3 of 3 children right")?.expect_paging()?;
    ensure!(ended.stderr.contains("all at one time"), "no table of processes: {}", ended.stderr);
    let stats = ended.stats()?;
    let rows = stats["processes"].as_array().context("no rows")?;
    ensure!(rows.len() == 4 && rows.iter().filter(|row| row["forked"] == true).count() == 3, "{stats}");
    let sum: u64 = rows.iter().filter_map(|row| row["major_faults"].as_u64()).sum();
    ensure!(stats["major_faults"].as_u64() == Some(sum), "the rows add up to {sum}: {stats}");
    Ok(())
}

fn native(directory: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(directory).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{program} failed natively: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Fork, pool and shared memory at a quarter of what they take: 160 MiB natively.
fn multiprocessing(name: &str, path: &'static str) -> Result<()> {
    let script = places::program("processes.py").display().to_string();
    let launch = launch(name, path, "40M", &["/usr/bin/python3", &script])?;
    let enough = launch.directory.join("enough");
    std::fs::write(&enough, "")?;
    let right = native(&launch.directory, "/usr/bin/python3", &[&script])?;
    std::fs::remove_file(&enough)?;
    let ended = run_within(launch.start()?, 40, "at rest", 1)?;
    ended.expect(0, &right)?.expect_paging()?;
    ensure!(ended.stdout == right, "printed something else: {}", ended.stdout);
    Ok(())
}

/// Sources and a makefile for a program of many files.
fn project(directory: &Path, files: u32) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let write = |name: String, text: String| std::fs::write(directory.join(name), text);
    let mut main = String::from("#include <stdio.h>\n");
    let mut sum = String::new();
    for file in 0..files {
        let mut text =
            String::from("#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for function in 0..60 {
            text += &format!(
                "static double f{function}(double x, const char *s) {{\n  double t[16] = {{ {file}, {function}, 3 }};\n  \
                 for (int i = 0; i < 16; i++) {{\n    t[i] += x * i + strlen(s);\n    if (i % {} == 0) t[i] /= {}.5;\n    \
                 switch (i & 7) {{ case 1: t[i] -= 1; break; case 4: t[i] *= 2; break; default: t[i] += {file}; }}\n  }}\n  \
                 return t[3] + t[{}];\n}}\n",
                function % 5 + 2,
                function + 1,
                function % 16
            );
        }
        text += &format!("double part{file}(double x) {{\n  double sum = 0;\n");
        for function in 0..60 {
            text += &format!("  sum += f{function}(x + {function}, \"part {file} {function}\");\n");
        }
        text += "  return sum;\n}\n";
        write(format!("part{file}.c"), text)?;
        main += &format!("double part{file}(double);\n");
        sum += &format!("  sum += part{file}({file});\n");
    }
    main += &format!("int main(void) {{\n  double sum = 0;\n{sum}  printf(\"%.3f\\n\", sum);\n  return 0;\n}}\n");
    write("main.c".into(), main)?;
    let makefile = "CFLAGS = -O2\nobjects = $(patsubst %.c,%.o,$(wildcard *.c))\n\
                    program: $(objects)\n\t$(CC) -o $@ $(sort $(objects)) -lm\n\t./program\n";
    Ok(write("Makefile".into(), makefile.into())?)
}

/// `make -j4` of eight files in 32 MiB, of 24 in the long form: the compilers alone take more than 100.
fn make(name: &str, path: &'static str) -> Result<()> {
    let files: u32 = if suite::full() { 24 } else { 8 };
    let launch = launch(name, path, "32M", &["make", "-s", "-j4", "-C", "project"])?;
    let (ours, theirs) = (launch.directory.join("project"), launch.directory.join("native"));
    project(&ours, files)?;
    project(&theirs, files)?;
    let right = native(&theirs, "make", &["-s", "-j4"])?;
    let ended = launch.run()?;
    ended.expect(0, &right)?.expect_paging()?;
    for file in (0..files).map(|file| format!("part{file}.o")).chain(["program".into()]) {
        ensure!(std::fs::read(ours.join(&file))? == std::fs::read(theirs.join(&file))?, "{file} differs");
    }
    expect_figures_within(&ended, 32)?;
    let stats = ended.stats()?;
    // The shell, the driver, the compiler and the assembler for each file.
    ensure!(stats["process_count"].as_u64() >= Some(3 * u64::from(files)), "{}", stats["process_count"]);
    Ok(())
}

/// Pipes, jobs in the background, job control, traps, coprocesses.
fn shell(name: &str, path: &'static str) -> Result<()> {
    let script = places::program("jobs.sh").display().to_string();
    let launch = launch(name, path, "16M", &["bash", &script])?;
    let right = native(&launch.directory, "bash", &[&script])?;
    let ended = launch.run()?;
    ended.expect(0, &right)?.expect_paging()?;
    ensure!(ended.stdout == right, "printed something else: {}", ended.stdout);
    expect_figures_within(&ended, 16)
}

/// What two processes have of 64 MiB, in MiB, when one of them has what it should.
fn sharers(name: &str, path: &str, way: &str) -> Result<(u64, u64)> {
    let program = c_program("sharers", &[])?.display().to_string();
    let ended = launch(name, path, "64M", &[&program, way])?.run()?;
    // Where one of the two was killed, the other may have had room for all its pages from the start.
    ended.expect(0, "ours ")?.expect_eviction()?;
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let [.., ours, _, theirs] = words[..] else { anyhow::bail!("printed {}", ended.stdout) };
    Ok((ours.parse()?, theirs.parse()?))
}

/// Twelve processes whose floors alone are 48 MiB, in a budget of 16: all get on, and all are right.
fn more_floors_than_budget(name: &str, path: &'static str) -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let script = format!("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do {program} 24 & done; wait; echo all ended");
    let ended = launch(name, path, "16M", &["sh", "-c", &script])?.run()?;
    ended.expect(0, "all ended")?.expect_paging()?;
    ensure!(ended.stdout.matches("done").count() == 12, "not all were right: {}", ended.stdout);
    let held = ended.stats()?["resident_managed_peak_bytes"].as_u64().context("no local peak")?;
    // 4 MiB for each of them, and what the shells hold.
    ensure!(held <= 56 * MIB, "counted {} MiB", held / MIB);
    Ok(())
}

/// Why there is no PostgreSQL to run, if so. Its server refuses root, so the test must be root to become another user.
fn no_postgres() -> Option<String> {
    let missing =
        skips::find("pg_ctlcluster").is_none().then(|| "postgresql is not installed (./dev setup)".to_owned());
    missing.or_else(skips::not_root).or_else(skips::no_userfaultfd)
}

/// A PostgreSQL server with its backends in 32 MiB: made, loaded, queried.
fn postgresql(name: &str, path: &'static str) -> Result<()> {
    static NATIVE: Once<String> = Once::new();
    PostgreSql::in_budget(name, path, &["postgres.sh"], "32M", &NATIVE).map(drop)
}

/// One whose backends sort, group and join in less than half of their memory, 200 MiB: it pages in earnest.
fn postgresql_joins(name: &str, path: &'static str) -> Result<()> {
    static NATIVE: Once<String> = Once::new();
    let stats = PostgreSql::in_budget(name, path, &["runtimes/postgresql.sh", "144"], "90M", &NATIVE)?;
    let major_faults = stats["major_faults"].as_u64().unwrap_or(0);
    ensure!(major_faults > MAJOR_FAULTS_MIN, "only {major_faults} major faults");
    Ok(())
}

/// A server as another user: neither the build nor the repository need be readable for that user.
struct PostgreSql {
    name: String,
    shared: PathBuf,
    /// What the script gets after its directory.
    arguments: Vec<String>,
}

impl PostgreSql {
    /// A script and what it gets after its directory.
    fn new(name: &str, words: &[&str]) -> Result<PostgreSql> {
        let shared = places::emptied(std::env::temp_dir().join(name.replace("::", "-")))?;
        places::copy_program(&places::program(words[0]), &shared.join("script.sh"))?;
        std::fs::create_dir(shared.join("cluster"))?;
        for open in [&shared, &shared.join("cluster")] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777))?;
        }
        let arguments = words[1..].iter().map(|word| (*word).to_owned()).collect();
        Ok(PostgreSql { name: name.to_owned(), shared, arguments })
    }

    /// Runs a script natively, once for both fault paths, and in this much local memory: it prints the same. The figures of the run.
    fn in_budget(
        name: &str,
        path: &str,
        words: &[&str],
        local: &str,
        native: &Once<String>,
    ) -> Result<serde_json::Value> {
        let native = native.get(|| {
            let server = PostgreSql::new(&name.replace(path, "native"), words)?;
            Ok(server.run(&[])?.expect(0, "stopped")?.stdout.clone())
        })?;
        let server = PostgreSql::new(name, words)?;
        let built = places::launcher()?.parent().context("the launcher is in a directory")?.to_owned();
        for file in ["hinterland", "libhinterland.so"] {
            places::copy_program(&built.join(file), &server.shared.join(file))?;
        }
        let launcher = server.shared.join("hinterland").display().to_string();
        let stats = server.shared.join("cluster/stats.json");
        let stats_file = stats.display().to_string();
        let run = [&launcher, "run", "--local", local, "--fault-path", path, "--stats", &stats_file, "--"];
        let managed = server.run(&run)?;
        managed.expect(0, native)?;
        ensure!(managed.stdout == *native, "printed something else: {}", managed.stdout);
        ensure!(managed.stderr.contains(&format!("fault path     {path}")), "{}", managed.stderr);
        let stats = serde_json::from_slice(&std::fs::read(stats)?)?;
        std::fs::remove_dir_all(&server.shared)?;
        Ok(stats)
    }

    /// Runs the script, after the words of a launcher, with the right to serve the faults of system calls.
    fn run(&self, before: &[&str]) -> Result<Ended> {
        let user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
        let right = ["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace", "--"];
        let mut command = Command::new("setpriv");
        command.args(user).args(right).args(before).arg("bash");
        command.arg(self.shared.join("script.sh")).arg(self.shared.join("cluster")).args(&self.arguments);
        let mut launch = Launch::of(&self.name, command)?.with("TMPDIR", "/tmp");
        launch.set_directory(&self.shared);
        launch.run()
    }
}

/// Thousands of children, eight at a time, over far memory with delays; one in ten is killed at any moment. All are right, and all
/// are counted, although there are fewer rows.
fn fork_storm(name: &str, path: &'static str) -> Result<()> {
    let children: u64 = if suite::full() { 10_000 } else { 600 };
    let program = c_program("fork_storm", &[])?.display().to_string();
    let settings = ["--local", "16M", "--fault-path", path, "--far", "compressed:1G?delay_us=20"];
    let ended = Launch::new(name, &settings, &[&program, &children.to_string(), "8", "10"])?.run()?;
    ended.expect(0, &format!("{children} of {children} children right, 0 pages wrong"))?.expect_paging()?;
    let stats = ended.stats()?;
    // One that was killed before it had begun is in no row.
    let counted = stats["process_count"].as_u64().unwrap_or(0);
    ensure!((children * 9 / 10..=children + 1).contains(&counted) && stats["processes_uncounted"] == 0, "{counted}");
    let others = counted - 256;
    ensure!(stats["processes"].as_array().map(Vec::len) == Some(256) && stats["processes_others"]["count"] == others);
    Ok(())
}

/// daemon(3): the program's first process has gone, the launcher waits for the second.
fn daemon(name: &str, path: &'static str) -> Result<()> {
    let program = c_program("leaver", &[])?.display().to_string();
    let ended = launch(name, path, "16M", &[&program, "daemon", "1.5", "0"])?.run()?;
    ended.expect(0, "the one that was left is right")?.expect_paging()?;
    let stats = ended.stats()?;
    ensure!(stats["process_count"] == 2 && stats["processes_left_running"] == 0, "{stats}");
    ensure!(stats["wall_seconds"].as_f64() > Some(1.5), "{stats}");
    ensure!(ended.stderr.contains("the last process that it left after"), "{}", ended.stderr);
    Ok(())
}

/// What is left ends with 77 and later: the program's own code counts.
fn exit_code_of_the_program(name: &str, path: &'static str) -> Result<()> {
    let program = c_program("leaver", &[])?.display().to_string();
    let ended = launch(name, path, "16M", &[&program, "fork", "0.5", "7"])?.run()?;
    ended.expect(7, "the one that was left is right")?.expect_paging()?;
    ensure!(ended.stats()?["exit_code"] == 7);
    Ok(())
}

/// A dynamically linked program is managed after exec, under the same budget and with the same settings; a static one and one
/// whose environment was emptied run untouched, and hold nothing of the budget.
fn exec(name: &str, path: &'static str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let fixed = c_program("hold", &["-static"])?.display().to_string();
    let script =
        format!("env | grep ^HINTERLAND_ | cut -d = -f 1 | sort; {fixed} 24 && env -i {hold} 24 && exec {hold} 40");
    let ended = launch(name, path, "16M", &["sh", "-c", &script])?.without(INSECURE_LOOPBACK).run()?;
    ended.expect(0, "HINTERLAND_LOCAL")?.expect_paging()?;
    ensure!(ended.stdout.matches("done").count() == 3, "{}", ended.stdout);
    let names: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("HINTERLAND_")).collect();
    // What is as by default is not handed on.
    let documented = ["FAULT_PATH", "FILTERS", "HANDOVER", "LEDGER", "LOCAL"];
    ensure!(names == documented.map(|name| format!("HINTERLAND_{name}")), "passed on: {names:?}");
    let stats = ended.stats()?;
    let rows = stats["processes"].as_array().context("no rows")?;
    let managed = rows.iter().filter(|row| row["managed_peak_bytes"].as_u64() > Some(24 * MIB)).count();
    ensure!(managed == 1, "{managed} processes managed more than 24 MiB: {stats}");
    expect_figures_within(&ended, 16)
}

/// A process that never ends: the user is told, and Ctrl-C ends the wait.
fn wait_is_told_and_ended() -> Result<()> {
    let script = "setsid sleep 3600 & exit 3";
    let running = Launch::new("wait-is-told", &["--local", "16M"], &["sh", "-c", script])?.start()?;
    let told = running.directory.join("stderr");
    suite::wait_until("a word to the user", || {
        Ok(std::fs::read_to_string(&told)?.contains("waiting for a process that it left: sleep"))
    })?;
    let below = running.below();
    running.signal(Signal::SIGINT)?;
    let ended = running.end()?;
    ensure!(ended.code == 3 && ended.stats()?["processes_left_running"] == 1, "{ended:?}");
    for pid in below {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).context("the process goes on")?;
    }
    Ok(())
}

/// `--ram` bounds local memory, stores and tables of all processes. Looked at when they rest: while memory moves from one to another, a look
/// counts some of it twice.
fn ram() -> Result<()> {
    let program = c_program("family", &[])?.display().to_string();
    let script = format!("for i in 1 2 3; do {program} 40 0 & done; wait; echo all ended");
    let far = ["--far", "compressed:1G", "--far", "file:far?size=1G"];
    let arguments = [&["--ram", "48M"][..], &far].concat();
    let mut running = Launch::new("tree-ram", &arguments, &["sh", "-c", &script])?.start()?;
    running.wait_for("resting")?;
    let said = running.directory.join("stdout");
    suite::wait_until("processes at rest", || Ok(std::fs::read_to_string(&said)?.matches("resting").count() == 3))?;
    let ledger = LiveLedger::of(running.pid)?;
    suite::wait_until("a tree within its RAM", || {
        let held = ledger.held_bytes();
        Ok(held > 24 * MIB && held <= 48 * MIB * (100 + SLACK_PERCENT) / 100)
    })?;
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "all ended")?.expect_paging()?;
    ensure!(ended.stdout.matches("0 of 0 children right").count() == 3, "not all were right: {}", ended.stdout);
    Ok(())
}
