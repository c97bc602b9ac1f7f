//! Runs that are listed and changed while they go on: `ps`, `set`, `top`, and whatever else comes to a launcher's socket.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, Running, c_program, launcher};
use hinterland_tests::suite::{self, Trial};
use hinterland_tests::{MIB, frozen, skips};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use std::fs::File;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The fault paths.
const PATHS: [&str; 2] = ["monitor", "inline"];
/// By how much a run may exceed its budget, in hundredths.
const SLACK_PERCENT: u64 = 5;
/// A request for figures.
const STATUS: &[u8] = b"{\"version\":1,\"request\":\"status\"}\n";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for path in PATHS {
        let mut add = |name: &str, test: fn(&str, &'static str) -> Result<()>| {
            let name = format!("lifecycle::control::{name}::{path}");
            trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || test(&name, path)));
        };
        add("budget", budget);
        add("ram", ram);
        add("ram_without_room", ram_without_room);
        add("children", children);
        add("exec", exec);
        add("behind", behind);
        add("launcher_gone", launcher_gone);
        add("clients", clients);
        add("slowdown", slowdown);
    }
    let mut add = |name: &str, obstacle: fn() -> Option<String>, test: fn(&str) -> Result<()>| {
        let name = format!("lifecycle::control::{name}");
        trials.push(suite::trial(name.clone(), obstacle, move || test(&name)));
    };
    add("top", skips::no_userfaultfd, top);
    add("top_hung_up", || None, top_hung_up);
    add("top_in_a_pipe", skips::no_userfaultfd, top_in_a_pipe);
    add("suspended", skips::no_userfaultfd, suspended);
    add("number_again", skips::no_userfaultfd, number_again);
    add("refusals", skips::no_userfaultfd, refusals);
    add("stale", skips::no_userfaultfd, stale);
    add("users", || skips::not_root().or_else(skips::no_userfaultfd), users);
    trials
}

fn launch(test: &str, path: &str, local: &str, program: &[&str]) -> Result<Launch> {
    Launch::new(test, &["--local", local, "--fault-path", path], program)
}

fn hold() -> Result<String> {
    Ok(c_program("hold", &[])?.display().to_string())
}

/// Where the sockets of a run of these tests lie.
fn runtime(running: &Running) -> PathBuf {
    running.directory.join("tmp")
}

fn socket(running: &Running) -> PathBuf {
    runtime(running).join("hinterland").join(running.pid.to_string())
}

/// How a command of the launcher ended, and what it said.
pub(super) struct Said {
    code: Option<i32>,
    pub(super) stdout: String,
    stderr: String,
}

impl Said {
    pub(super) fn of(runtime: &Path, arguments: &[&str]) -> Result<Said> {
        let mut command = launcher()?;
        let output = command.args(arguments).env("XDG_RUNTIME_DIR", runtime).stdin(Stdio::null()).output()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
    }

    fn expect(self, code: i32, words: &str) -> Result<Said> {
        let found = if code == 0 { &self.stdout } else { &self.stderr };
        let right = self.code == Some(code) && found.contains(words);
        ensure!(right, "{:?} instead of {code}, '{words}': {}{}", self.code, self.stdout, self.stderr);
        Ok(self)
    }
}

fn set(running: &Running, pid: Pid, local: &str) -> Result<Said> {
    Said::of(&runtime(running), &["set", &pid.to_string(), "--local", local])
}

fn set_ram(running: &Running, ram: &str) -> Result<Said> {
    Said::of(&runtime(running), &["set", &running.pid.to_string(), "--ram", ram, "--wait", "5"])
}

/// What `ps --json` says of a run; `None`: it is not there.
pub(super) fn listed(running: &Running) -> Result<Option<serde_json::Value>> {
    listed_at(&runtime(running), running.pid)
}

/// The same of the run of a launcher whose socket lies in `runtime`.
pub(super) fn listed_at(runtime: &Path, launcher: Pid) -> Result<Option<serde_json::Value>> {
    let said = Said::of(runtime, &["ps", "--json"])?.expect(0, "ps_version")?;
    let document: serde_json::Value = serde_json::from_str(&said.stdout)?;
    let runs = document["runs"].as_array().context("no list")?;
    Ok(runs.iter().find(|run| run["pid"] == launcher.as_raw()).cloned())
}

fn figure(running: &Running, name: &str) -> Result<u64> {
    let run = listed(running)?.with_context(|| format!("launcher {} is not listed", running.pid))?;
    run[name].as_u64().with_context(|| format!("no {name}: {run}"))
}

/// Waits until the launcher has opened its socket.
fn wait_for_socket(running: &Running) -> Result<()> {
    let socket = socket(running);
    suite::wait_until("a socket", || Ok(socket.exists()))
}

/// Demands that a process and all below it hold no more than a budget, as the kernel sees it.
fn expect_within(root: Pid, budget_mib: u64) -> Result<()> {
    let held = frozen::far_bytes(root);
    let most = budget_mib * MIB * (100 + SLACK_PERCENT) / 100;
    ensure!(held <= most, "{} MiB are held of {budget_mib}", held / MIB);
    Ok(())
}

/// A program that verifies its memory all the time gets a smaller budget, and a larger one.
fn budget(name: &str, path: &'static str) -> Result<()> {
    let mut running = launch(name, path, "64M", &[&hold()?, "96", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    set(&running, running.pid, "24M")?.expect(0, "all processes keep the local budget of 24 MiB")?;
    expect_within(running.pid, 24)?;
    let run = listed(&running)?.context("it is listed")?;
    ensure!(run["local_budget_bytes"] == 24 * MIB && run["commands"] == 1 && run["process_count"] == 1, "{run}");
    ensure!(run["fault_path"] == path && run["far_bytes"].as_u64() > Some(60 * MIB), "{run}");
    ensure!(run["command"].as_str().is_some_and(|command| command.ends_with("hold 96 stay")), "{run}");
    let table = Said::of(&runtime(&running), &["ps"])?.expect(0, "24 MiB")?;
    let own = running.pid.to_string();
    let lines = table.stdout.lines().filter(|line| line.split_whitespace().next() == Some(&own));
    ensure!(lines.count() == 1, "{}", table.stdout);
    // By the program's own number this time.
    let program = *running.below().first().context("the program runs")?;
    set(&running, Pid::from_raw(program), "80M")?.expect(0, "budget of 80 MiB")?;
    suite::wait_until("more local memory", || Ok(figure(&running, "local_bytes")? > 70 * MIB))?;
    expect_within(running.pid, 80)?;
    kill(Pid::from_raw(program), Signal::SIGTERM)?;
    let ended = running.end()?;
    ended.expect(143, "ready")?.expect_paging()?;
    ensure!(!ended.stdout.contains("WRONG") && ended.stats()?["local_budget_bytes"] == 80 * MIB, "{}", ended.stdout);
    Ok(())
}

/// A program gets less RAM in all, so that compressed pages go on to the file, and more.
fn ram(name: &str, path: &'static str) -> Result<()> {
    let far = ["--far", "compressed:256M", "--far", "file:.?size=256M"];
    let options = [&["--ram", "120M", "--fault-path", path], &far[..]].concat();
    let mut running = Launch::new(name, &options, &[&hold()?, "96", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    for mebibytes in [40, 22] {
        set_ram(&running, &format!("{mebibytes}M"))?
            .expect(0, &format!("all processes keep the RAM budget of {mebibytes} MiB"))?;
        let run = listed(&running)?.context("it is listed")?;
        ensure!(run["ram_budget_bytes"] == mebibytes * MIB, "{run}");
        let most = mebibytes * MIB * (100 + SLACK_PERCENT) / 100;
        ensure!(run["total_ram_bytes"].as_u64() <= Some(most), "{run}");
    }
    set_ram(&running, "110M")?.expect(0, "RAM budget of 110 MiB")?;
    suite::wait_until("more local memory", || Ok(figure(&running, "local_bytes")? > 70 * MIB))?;
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    let ended = running.end()?;
    ended.expect(143, "ready")?.expect_paging()?;
    ensure!(!ended.stdout.contains("WRONG"), "{}", ended.stdout);
    Ok(())
}

/// Less RAM than the pages need that have nowhere to go: `set` says so, and the program goes on.
fn ram_without_room(name: &str, path: &'static str) -> Result<()> {
    let options = ["--ram", "160M", "--fault-path", path, "--far", "reference:256M"];
    let mut running = Launch::new(name, &options, &[&hold()?, "96", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    let said = set_ram(&running, "40M")?.expect(1, "that of RAM 40 MiB")?;
    ensure!(said.stderr.contains("the change is not made yet by hold ("), "{}", said.stderr);
    set_ram(&running, "150M")?.expect(0, "RAM budget of 150 MiB")?;
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    let ended = running.end()?;
    ended.expect(143, "ready")?.expect_paging()?;
    ensure!(!ended.stdout.contains("WRONG"), "{}", ended.stdout);
    Ok(())
}

/// Processes that share pages since a fork keep the new budget together.
fn children(name: &str, path: &'static str) -> Result<()> {
    let program = c_program("family", &[])?.display().to_string();
    let mut running = launch(name, path, "80M", &[&program, "96", "3"])?.start()?;
    running.wait_for("resting")?;
    let said = running.directory.join("stdout");
    suite::wait_until("rest", || Ok(std::fs::read_to_string(&said)?.matches("resting").count() >= 4))?;
    set(&running, running.pid, "40M")?.expect(0, "budget of 40 MiB")?;
    // Shared pages are counted at the next look of each.
    suite::wait_until("a tree within its budget", || Ok(expect_within(running.pid, 40).is_ok()))?;
    ensure!(figure(&running, "process_count")? == 4);
    std::fs::write(running.directory.join("enough"), "")?;
    running.end()?.expect(0, "3 of 3 children right")?.expect_paging()?;
    Ok(())
}

/// A program that the run starts later, by exec, has the budget that was set before.
fn exec(name: &str, path: &'static str) -> Result<()> {
    let hold = hold()?;
    let script = format!("echo waits; while [ ! -e go ]; do sleep 0.02; done; exec {hold} 96 stay");
    let mut running = launch(name, path, "64M", &["sh", "-c", &script])?.start()?;
    running.wait_for("waits")?;
    wait_for_socket(&running)?;
    set(&running, running.pid, "24M")?.expect(0, "budget of 24 MiB")?;
    std::fs::write(running.directory.join("go"), "")?;
    running.wait_for("ready")?;
    expect_within(running.pid, 24)?;
    ensure!(figure(&running, "local_budget_bytes")? == 24 * MIB);
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    running.end()?.expect(143, "ready")?;
    Ok(())
}

/// With a slowdown, memory that the program does not work in leaves by itself, the budget is written down at the end, and `--local` is the
/// ceiling, which `set` changes.
fn slowdown(name: &str, path: &'static str) -> Result<()> {
    let flags = ["--local", "160M", "--slowdown", "1.5", "--fault-path", path];
    let mut running =
        Launch::new(name, &flags, &[&c_program("hot", &[])?.display().to_string(), "96", "8"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    suite::wait_until("a smaller budget", || Ok(figure(&running, "local_budget_bytes")? < 64 * MIB))?;
    let run = listed(&running)?.context("it is listed")?;
    ensure!(run["slowdown_asked"] == 1.5 && run["slowdown"].as_f64() >= Some(1.0), "{run}");
    set(&running, running.pid, "48M")?.expect(0, "")?;
    ensure!(figure(&running, "local_budget_bytes")? <= 48 * MIB, "the ceiling holds");
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "done")?.expect_paging()?;
    let service = &ended.stats()?["service_level"];
    ensure!(service["slowdown_asked"] == 1.5 && service["slowdown"].as_f64() >= Some(1.0), "{service}");
    ensure!(service["local_budget_last_bytes"].as_u64() <= Some(48 * MIB), "{service}");
    ensure!((8 * MIB..160 * MIB).contains(&service["local_mean_bytes"].as_u64().unwrap_or(0)), "{service}");
    Ok(())
}

/// A stopped process is named; the budget holds when it goes on.
fn behind(name: &str, path: &'static str) -> Result<()> {
    let script = format!("{} 64 stay & echo $! > pid; wait", hold()?);
    let mut running = launch(name, path, "64M", &["sh", "-c", &script])?.start()?;
    running.wait_for("ready")?;
    let pid = std::fs::read_to_string(running.directory.join("pid"))?.trim().parse()?;
    kill(Pid::from_raw(pid), Signal::SIGSTOP)?;
    let launcher = running.pid.to_string();
    let arguments = ["set", launcher.as_str(), "--local", "24M", "--wait", "1"];
    let said = Said::of(&runtime(&running), &arguments)?.expect(1, &format!("hold ({pid}) holds"))?;
    ensure!(said.stderr.contains("the local budget is 24 MiB now"), "{}", said.stderr);
    kill(Pid::from_raw(pid), Signal::SIGCONT)?;
    suite::wait_until("less local memory", || Ok(figure(&running, "local_bytes")? <= 24 * MIB))?;
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    running.end()?.expect(0, "ready")?;
    Ok(())
}

/// What was set holds for processes that outlive their launcher.
fn launcher_gone(name: &str, path: &'static str) -> Result<()> {
    let script = format!("{} 96 stay & echo $! > pid; wait", hold()?);
    let mut running = launch(name, path, "64M", &["sh", "-c", &script])?.start()?;
    running.wait_for("ready")?;
    let pid = Pid::from_raw(std::fs::read_to_string(running.directory.join("pid"))?.trim().parse()?);
    set(&running, running.pid, "24M")?.expect(0, "budget of 24 MiB")?;
    let (launcher, runtime) = (running.pid, runtime(&running));
    running.signal(Signal::SIGKILL)?;
    let looked = (|| {
        suite::wait_until("a launcher that is gone", || {
            Ok(!hinterland_tests::tree::descendants(launcher.as_raw()).contains(&pid.as_raw()))
        })?;
        for _ in 0..20 {
            expect_within(pid, 24)?;
            std::thread::sleep(Duration::from_millis(25));
        }
        Said::of(&runtime, &["set", &pid.to_string(), "--local", "32M"])?.expect(125, "is in no run of hinterland")
    })();
    let killed = kill(pid, Signal::SIGKILL);
    looked?;
    // It still ran: no answer was needed.
    Ok(killed?)
}

/// Garbage, many clients, clients that go away: the program's memory is as it was, and others are answered.
fn clients(name: &str, path: &'static str) -> Result<()> {
    let mut running = launch(name, path, "48M", &[&hold()?, "96", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    let socket = socket(&running);
    let mode = |path: &Path| path.metadata().map(|data| data.permissions().mode() & 0o777);
    ensure!(mode(&socket)? == 0o600 && mode(socket.parent().context("a directory")?)? == 0o700, "open to others");
    let mut kept = Vec::new();
    for turn in 0..64u32 {
        let mut stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        // Some of these are not read any more when they are written.
        let _ = match turn % 4 {
            0 => stream.write_all(&vec![0xff; 100_000]),
            1 => stream.write_all(b"{\"version\":1,\"request\":\"set\",\"local\":\"20M\",\"wait_ms\":600000}\n"),
            2 => stream.write_all(b"{\"version\":1"),
            _ => stream.write_all(STATUS),
        };
        if turn % 8 < 4 {
            kept.push(stream);
        }
    }
    let refused = Said::of(&runtime(&running), &["set", &running.pid.to_string(), "--local", "32M"])?;
    let (code, words) = (refused.code, refused.stderr.clone());
    ensure!(code == Some(0) || code == Some(125) && words.contains("too many clients"), "{code:?}: {words}");
    drop(kept);
    suite::wait_until("an answer for others", || {
        let mut stream = UnixStream::connect(&socket)?;
        stream.write_all(STATUS)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer.starts_with("{\"version\":1,\"status\":{"))
    })?;
    set(&running, running.pid, "24M")?.expect(0, "budget of 24 MiB")?;
    expect_within(running.pid, 24)?;
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    let ended = running.end()?;
    ended.expect(143, "ready")?.expect_paging()?;
    ensure!(!ended.stdout.contains("WRONG") && !socket.exists(), "{}", ended.stdout);
    Ok(())
}

/// `top` in a terminal of 80 columns and 24 lines: it shows the run, its keys change the budget, and it leaves the terminal as it was, whether
/// it is told to end by a key or by a signal.
fn top(name: &str) -> Result<()> {
    let mut running = Launch::new(name, &["--local", "64M"], &[&hold()?, "96", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    let ends = [None, Some(Signal::SIGTERM), Some(Signal::SIGQUIT)];
    for ((keys, budget_mib), end) in [("b24M\r", 24), ("b48M\r", 48), ("b32M\r", 32)].into_iter().zip(ends) {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None)?;
        let before = tcgetattr(&pty.slave)?;
        ensure!(before.local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO), "an ordinary terminal");
        let mut command = launcher()?;
        // Other runs of this user may be listed before it.
        command.args(["top", &running.pid.to_string()]).env("XDG_RUNTIME_DIR", runtime(&running)).env("TERM", "xterm");
        command.stdin(pty.slave.try_clone()?).stdout(pty.slave.try_clone()?).stderr(Stdio::null());
        // A job of its own, as a shell makes it.
        let mut top = command.process_group(0).spawn()?;
        drop(command);
        let top_pid = Pid::from_raw(i32::try_from(top.id())?);
        let mut beside = Command::new("sleep").arg("600").process_group(top_pid.as_raw()).spawn()?;
        let beside_pid = Pid::from_raw(i32::try_from(beside.id())?);
        let mut keyboard = File::from(pty.master.try_clone()?);
        let screen = Screen::of(File::from(pty.master));
        let pid = running.pid.to_string();
        let shown = suite::wait_until("a run and its path on the screen", || {
            let text = screen.text();
            Ok(text.contains(&pid) && text.contains("compressed:"))
        });
        ensure!(
            shown.is_ok() && tcgetattr(&pty.slave)?.local_flags != before.local_flags,
            "keys are not taken: {}",
            screen.text()
        );
        keyboard.write_all(keys.as_bytes())?;
        suite::wait_until("another budget", || Ok(figure(&running, "local_budget_bytes")? == budget_mib * MIB))?;
        // Suspended by a signal and by a key, with its job: the terminal is the shell's meanwhile.
        let modes = || Ok::<_, anyhow::Error>(tcgetattr(&pty.slave)?.local_flags);
        for by_key in [false, true] {
            if by_key {
                keyboard.write_all(b"\x1a")?
            } else {
                kill(top_pid, Signal::SIGTSTP)?
            }
            suite::wait_until("the job is suspended", || Ok(is_stopped(top_pid) && is_stopped(beside_pid)))?;
            ensure!(modes()? == before.local_flags, "the terminal is not as before while top is suspended");
            let shown = screen.text().len();
            killpg(top_pid, Signal::SIGCONT)?;
            suite::wait_until("the terminal is taken again", || {
                Ok(modes()? != before.local_flags && screen.text()[shown..].contains(&pid))
            })?;
        }
        match end {
            Some(signal) => kill(top_pid, signal)?,
            None => keyboard.write_all(b"q")?,
        }
        let status = top.wait()?;
        beside.kill()?;
        beside.wait()?;
        ensure!(status.success(), "{status}: {}", screen.text());
        let after = tcgetattr(&pty.slave)?;
        ensure!(
            after.local_flags == before.local_flags && after.input_flags == before.input_flags,
            "the terminal is not as before"
        );
        suite::wait_until("the screen as it was", || Ok(screen.text().contains("\x1b[?1049l")))?;
    }
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    running.end()?.expect(143, "ready")?;
    Ok(())
}

/// `top` ends with its terminal, also where no signal tells it.
fn top_hung_up(_: &str) -> Result<()> {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None)?;
    // The terminal is gone when no process has this end.
    fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let mut command = launcher()?;
    command.arg("top").env("TERM", "xterm").process_group(0);
    command.stdin(pty.slave.try_clone()?).stdout(pty.slave).stderr(Stdio::null());
    let mut top = command.spawn()?;
    drop(command);
    let (mut screen, mut shown, mut piece) = (File::from(pty.master), Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&shown).contains("choose") {
        let bytes = screen.read(&mut piece)?;
        shown.extend_from_slice(&piece[..bytes]);
    }
    drop(screen);
    let ended = suite::wait_until("it has ended", || Ok(top.try_wait()?.is_some()));
    top.kill()?;
    top.wait()?;
    ended
}

/// Whether a process is stopped by a signal.
fn is_stopped(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// A run whose launcher is stopped is named as suspended, and is sent nothing; the others are listed.
fn suspended(name: &str) -> Result<()> {
    let mut running = Launch::new(name, &["--local", "24M"], &[&hold()?, "16", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    kill(running.pid, Signal::SIGSTOP)?;
    suite::wait_until("it is suspended", || Ok(is_stopped(running.pid)))?;
    let words = format!("the run of launcher {} is suspended", running.pid);
    let listed_then = Said::of(&runtime(&running), &["ps"])?.expect(125, &words);
    let set_then = set(&running, running.pid, "32M")?.expect(125, &words);
    kill(running.pid, Signal::SIGCONT)?;
    listed_then.and(set_then)?;
    ensure!(figure(&running, "commands")? == 0, "it was told nothing");
    set(&running, running.pid, "32M")?.expect(0, "budget of 32 MiB")?;
    let alone = top_beside_suspended(name, &running);
    kill(running.pid, Signal::SIGCONT)?;
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    running.end()?.expect(143, "ready")?;
    alone
}

/// `top` of one run says nothing of another, whose launcher is stopped, and does not ask it.
fn top_beside_suspended(name: &str, suspended: &Running) -> Result<()> {
    let mut other = Launch::new(&format!("{name}-other"), &["--local", "24M"], &[&hold()?, "16", "stay"])?;
    other = other.with("XDG_RUNTIME_DIR", &runtime(suspended).display().to_string());
    let mut other = other.start()?;
    other.wait_for("ready")?;
    let pid = other.pid.to_string();
    let socket = runtime(suspended).join("hinterland").join(&pid);
    suite::wait_until("a socket", || Ok(socket.exists()))?;
    kill(suspended.pid, Signal::SIGSTOP)?;
    suite::wait_until("it is suspended", || Ok(is_stopped(suspended.pid)))?;
    let all = Said::of(&runtime(suspended), &["top", "--count", "1"])?.expect(0, &pid)?;
    ensure!(all.stderr.contains("is suspended"), "{}", all.stderr);
    let only = Said::of(&runtime(suspended), &["top", &pid, "--count", "2", "--interval", "0.1"])?.expect(0, &pid)?;
    ensure!(only.stderr.is_empty(), "{}", only.stderr);
    kill(Pid::from_raw(*other.below().first().context("the program runs")?), Signal::SIGTERM)?;
    other.end()?.expect(143, "ready")?;
    Ok(())
}

/// The number of a launcher that was killed is that of a process in another run now, which is listed once.
fn number_again(name: &str) -> Result<()> {
    let mut running = Launch::new(name, &["--local", "24M"], &[&hold()?, "16", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    let program = *running.below().first().context("the program runs")?;
    // A socket keeps its file when its listener goes.
    drop(UnixListener::bind(runtime(&running).join("hinterland").join(program.to_string()))?);
    let listed = Said::of(&runtime(&running), &["ps"])?.expect(0, "PID")?;
    let own = running.pid.to_string();
    let lines = listed.stdout.lines().filter(|line| line.split_whitespace().next() == Some(&own)).count();
    ensure!(lines == 1, "{}", listed.stdout);
    kill(Pid::from_raw(program), Signal::SIGTERM)?;
    running.end()?.expect(143, "ready")?;
    Ok(())
}

/// What was written to a terminal, read by a thread, which ends with the terminal's last descriptor.
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Screen {
    fn of(mut terminal: File) -> Screen {
        let written = Arc::new(Mutex::new(Vec::new()));
        let screen = Screen(Arc::clone(&written));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(bytes @ 1..) = terminal.read(&mut piece) {
                written.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&piece[..bytes]);
            }
        });
        screen
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Without a terminal, `top` prints a line for each run with each update, and ends when it was told to.
fn top_in_a_pipe(name: &str) -> Result<()> {
    let mut running = Launch::new(name, &["--local", "24M"], &[&hold()?, "48", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    let said = Said::of(&runtime(&running), &["top", "--interval", "0.2", "--count", "3"])?.expect(0, "faults/s")?;
    // Other runs of this user, whose launchers know no other runtime directory, are listed too.
    let pid = running.pid.to_string();
    let is_path = |line: &&str| line.split_whitespace().nth(2) == Some("path");
    let of_run = |line: &&str| line.split_whitespace().nth(1) == Some(&pid);
    let looks = |said: &Said| {
        let lines = said.stdout.lines().filter(|line| !is_path(line) && of_run(line));
        lines.filter(|line| line.contains("24 MiB")).count()
    };
    let paths = said.stdout.lines().filter(|line| is_path(line) && of_run(line)).collect::<Vec<_>>();
    ensure!(paths.len() >= 3 && paths[0].contains("compressed:"), "{}", said.stdout);
    ensure!(looks(&said) == 3, "{}", said.stdout);
    // After its last look it does not wait for another: this would take an hour.
    let elsewhere = Said::of(&running.directory, &["top", "--count", "1", "--interval", "3600"])?.expect(0, "")?;
    ensure!(looks(&elsewhere) == 0 && elsewhere.stdout.lines().count() >= 2, "{}", elsewhere.stdout);
    let only =
        Said::of(&runtime(&running), &["top", &pid, "--interval", "0.2", "--count", "2"])?.expect(0, "faults/s")?;
    let lines = only.stdout.lines().filter(|line| !is_path(line)).count();
    ensure!(looks(&only) == 2 && lines == 3, "{}", only.stdout);
    let own = std::process::id().to_string();
    Said::of(&runtime(&running), &["top", &own])?.expect(125, "is in no run of hinterland")?;
    Said::of(&running.directory, &["top", "--interval", "0"])?
        .expect(125, "from 0.1 to 86400 seconds; write for example --interval 5")?;
    Ok(())
}

/// What cannot be done is refused in words, and changes nothing.
fn refusals(name: &str) -> Result<()> {
    let mut running = Launch::new(name, &["--local", "48M", "--ram", "256M"], &[&hold()?, "16", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    let mut other = Command::new("sleep").arg("600").spawn()?;
    let gone = {
        let mut child = Command::new("true").spawn()?;
        child.wait()?;
        child.id()
    };
    let (own, launcher) = (other.id().to_string(), running.pid.to_string());
    let cases: [(&str, &str, i32, &str); 8] = [
        (&launcher, "1M", 125, "--local: '1M' is below the smallest budget, 16 MiB"),
        (&launcher, "some", 125, "--local: "),
        (&launcher, "50%", 125, "50% of what?"),
        (&launcher, "512M", 125, "--ram (256 MiB) is smaller than --local (512 MiB)"),
        (&own, "48M", 125, "(sleep) is in no run of hinterland"),
        (&gone.to_string(), "48M", 125, "there is no process"),
        ("0", "48M", 125, "invalid value '0'"),
        ("job", "48M", 125, "invalid value 'job'"),
    ];
    let checked = cases.iter().try_for_each(|(pid, local, code, words)| {
        Said::of(&runtime(&running), &["set", pid, "--local", local])?.expect(*code, words).map(drop)
    });
    let rams: [(&[&str], &str); 3] = [
        (&["--ram", "1M"], "--ram: '1M' is below the smallest budget, 16 MiB"),
        (&["--ram", "50%"], "50% of what?"),
        (&["--ram", "32M", "--local", "64M"], "--ram (32 MiB) is smaller than --local (64 MiB)"),
    ];
    let checked = checked.and(rams.iter().try_for_each(|(words, refused)| {
        Said::of(&runtime(&running), &[&["set", &launcher], *words].concat())?.expect(125, refused).map(drop)
    }));
    other.kill()?;
    other.wait()?;
    checked?;
    let run = listed(&running)?.context("it is listed")?;
    ensure!(
        run["commands"] == 0 && run["local_budget_bytes"] == 48 * MIB && run["ram_budget_bytes"] == 256 * MIB,
        "{run}"
    );
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    running.end()?.expect(143, "ready")?;
    for slowdown in ["0.9", "1", "fast"] {
        let refused = Launch::new(name, &["--slowdown", slowdown], &["true"])?.start()?.end()?;
        let words = "is not a slowdown from 1.01 to 10";
        ensure!(refused.code == 125 && refused.stderr.contains(words), "{slowdown}: {}", refused.stderr);
    }
    Ok(())
}

/// What a launcher that was killed leaves is swept by the next command that lists runs, and nothing is listed for it.
fn stale(name: &str) -> Result<()> {
    let mut running = Launch::new(name, &["--local", "32M"], &[&hold()?, "16", "stay"])?.start()?;
    running.wait_for("ready")?;
    wait_for_socket(&running)?;
    let (socket, runtime, pid) = (socket(&running), runtime(&running), running.pid);
    running.signal(Signal::SIGKILL)?;
    let ended = running.end()?;
    ensure!(ended.code == 137 && socket.exists(), "nobody could remove it: {}", ended.code);
    let listed = Said::of(&runtime, &["ps"])?.expect(0, "")?;
    let pid = pid.to_string();
    let is_listed = listed.stdout.lines().any(|line| line.split_whitespace().next() == Some(&pid));
    ensure!(!is_listed && !socket.exists(), "it is swept: {}", listed.stdout);
    let left = std::fs::read_dir(runtime.join("hinterland"))?.count();
    ensure!(left == 0, "{left} files of a launcher that was killed are left");
    Ok(())
}

/// Another user is kept out by the directory and, where that was opened, by the launcher; and cannot be changed by root's command.
fn users(name: &str) -> Result<()> {
    const NOBODY: u32 = 65534;
    let shared = tempfile::Builder::new().prefix("hinterland-tests-").tempdir()?;
    std::fs::set_permissions(shared.path(), Permissions::from_mode(0o755))?;
    let launch = Launch::new(name, &["--local", "32M"], &[&hold()?, "16", "stay"])?;
    let mut running = launch.with("XDG_RUNTIME_DIR", &shared.path().display().to_string()).start()?;
    running.wait_for("ready")?;
    let directory = shared.path().join("hinterland");
    let socket = directory.join(running.pid.to_string());
    suite::wait_until("a socket", || Ok(socket.exists()))?;
    let script =
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint(s.makefile().readline())";
    let nobody = || -> Result<(bool, String)> {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script]).arg(&socket).uid(NOBODY).gid(NOBODY).current_dir("/");
        let output = command.output()?;
        Ok((
            output.status.success(),
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
        ))
    };
    let (connected, words) = nobody()?;
    ensure!(!connected && words.contains("PermissionError"), "another user gets in: {words}");
    // The launcher closes the directory again when it makes another file there.
    let mut words = String::new();
    suite::wait_until("another user connects", || {
        std::fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        std::fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
        let (connected, answer) = nobody()?;
        words = answer;
        Ok(connected || !words.contains("PermissionError"))
    })?;
    ensure!(words.contains("belongs to another user"), "another user is served: {words}");
    let mut theirs = Command::new("sleep").arg("600").uid(NOBODY).current_dir("/").spawn()?;
    let said = Said::of(shared.path(), &["set", &theirs.id().to_string(), "--local", "32M"])?;
    theirs.kill()?;
    theirs.wait()?;
    said.expect(125, "belongs to another user (nobody)")?;
    kill(Pid::from_raw(*running.below().first().context("the program runs")?), Signal::SIGTERM)?;
    running.end()?.expect(143, "ready")?;
    Ok(())
}
