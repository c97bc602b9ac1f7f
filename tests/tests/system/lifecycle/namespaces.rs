//! Programs that are started in namespaces in which the ledger cannot be opened by its path: the launcher hands it over, and they are of the
//! run as all others. Where it cannot, they go on by themselves.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, Running, c_program};
use hinterland_tests::suite::{NamedTest, Trial};
use hinterland_tests::{MIB, frozen, places, skips, suite, tree};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

/// The fault paths.
const PATHS: [&str; 2] = ["monitor", "inline"];
/// Somebody without rights.
const NOBODY: u32 = 65534;
/// Programs that hold memory at once.
const PROGRAMS: usize = 3;
/// The same files as outside, without `/proc`, and without the directory of the launcher's sockets; `$PROGRAM` there.
const OTHER_ROOT: &str = "mount --rbind / root && mount -t tmpfs none root/proc && mount -t tmpfs none root$XDG_RUNTIME_DIR && \
    exec chroot root sh -c \"cd $PWD; $PROGRAM\"";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: &str, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::namespaces::{name}"), skips::not_root, test));
    };
    for path in PATHS {
        for (name, unshare) in [
            ("user", "unshare -Ur"),
            ("user_proc", "unshare -Urpf --mount-proc"),
            ("user_network", "unshare -Urpfn --mount-proc"),
            ("proc", "unshare -pf --mount-proc"),
        ] {
            let command = format!("{unshare} sh -c \"$PROGRAM; true\"");
            add(&format!("{name}::{path}"), Box::new(move |test| shared(test, path, &command)));
        }
        let other_root = format!("unshare -Urm sh -c '{OTHER_ROOT}'");
        add(&format!("user_root::{path}"), Box::new(move |test| shared(test, path, &other_root)));
        add(&format!("no_threads::{path}"), Box::new(move |test| no_threads(test, path)));
        add(&format!("confined::{path}"), Box::new(move |test| confined(test, path)));
        add(&format!("own_malloc::{path}"), Box::new(move |test| own_malloc(test, path)));
        add(&format!("out_of_reach::{path}"), Box::new(move |test| out_of_reach(test, path)));
        add(&format!("filter_of_sockets::{path}"), Box::new(move |test| filter_of_sockets(test, path)));
        add(&format!("launcher_gone::{path}"), Box::new(move |test| launcher_gone(test, path)));
        add(&format!("launcher_silent::{path}"), Box::new(move |test| launcher_silent(test, path)));
        add(&format!("socket_of_another::{path}"), Box::new(move |test| socket_of_another(test, path)));
    }
    add("strangers", Box::new(strangers));
    trials
}

/// A process that can start no thread, because its children are to be in another PID namespace, makes a call for processes with one thread: ours
/// stay where they are needed, and the kernel says what it says to a process with several.
fn no_threads(test: &str, path: &str) -> Result<()> {
    let program = c_program("thread_settings", &[])?.display().to_string();
    let ended = Launch::new(test, &["--local", "16M", "--fault-path", path], &[&program, "processes"])?.run()?;
    ended.expect(0, &format!("processes {}", libc::EINVAL))?.expect_paging()?;
    Ok(())
}

/// The same for a process that has confined itself.
fn confined(test: &str, path: &str) -> Result<()> {
    let program = c_program("field/alone", &[])?.display().to_string();
    let ended = Launch::new(test, &["--local", "16M", "--fault-path", path], &[&program, "confined"])?.run()?;
    ended.expect(0, "unshare -1 Invalid argument\nchild is one of many\nchild 1 0\n")?.expect_paging()?;
    Ok(())
}

/// The same on the monitor path for a program with an allocator of its own, which libc would ask for memory to start a thread; inline threads
/// of ours leave.
fn own_malloc(test: &str, path: &str) -> Result<()> {
    let allocator = places::program("c/own_malloc.c").display().to_string();
    let program = c_program("field/alone", &["-DLIBRARY", &allocator])?.display().to_string();
    let answer = if path == "inline" { "0 " } else { "-1 Invalid argument" };
    let ended = Launch::new(test, &["--local", "16M", "--fault-path", path], &[&program, "user"])?.run()?;
    ended.expect(0, &format!("unshare {answer}\nchild is one of many\nchild 1 0\n"))?.expect_paging()?;
    Ok(())
}

/// A run of a shell's script, and the directory of its launcher's sockets, whose name is short. `$PROGRAM` holds `mebibytes`.
struct Held {
    running: Running,
    runtime: TempDir,
}

impl Held {
    fn start(test: &str, path: &str, mebibytes: u32, script: &str) -> Result<Held> {
        let runtime = tempfile::Builder::new().prefix("hl-").tempdir_in("/tmp")?;
        let launch = Launch::new(test, &["--local", "32M", "--fault-path", path], &["sh", "-c", script])?;
        std::fs::create_dir(launch.directory.join("root"))?;
        let launch = launch.with("XDG_RUNTIME_DIR", &runtime.path().display().to_string());
        let program = format!("{} {mebibytes}", c_program("outside", &[])?.display());
        Ok(Held { running: launch.with("PROGRAM", &program).start()?, runtime })
    }

    /// How many programs have said something.
    fn said(&self, what: &str) -> usize {
        std::fs::read_to_string(self.running.directory.join("stdout")).unwrap_or_default().matches(what).count()
    }

    /// Waits until a program has ended that the launcher may not know.
    fn wait_for_end(&self) -> Result<()> {
        std::fs::write(self.running.directory.join("enough"), "")?;
        suite::wait_until("a program that ends well", || Ok(self.said("outside ok") == 1))
    }

    /// Lets the run end once somebody was named as outside the budget, and returns why.
    fn named(mut self) -> Result<String> {
        self.running.wait_for("holds")?;
        let errors = self.running.directory.join("stderr");
        suite::wait_until("a program that is named", || {
            Ok(std::fs::read_to_string(&errors)?.contains("not managed: "))
        })?;
        std::fs::write(self.running.directory.join("enough"), "")?;
        let ended = self.running.end()?;
        ended.expect(0, "outside ok")?;
        let stats = ended.stats()?;
        let found = stats["not_managed"].as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(found.len() == 1, "one process should be named: {found:?}");
        Ok(found[0]["reason"].as_str().context("a reason")?.to_owned())
    }
}

/// Three programs, each started by `command`, hold far more than the budget, which is kept; each has a row, which ends with it.
fn shared(test: &str, path: &str, command: &str) -> Result<()> {
    let script = format!("for i in 1 2 3; do {command} & done; wait; echo all ended");
    let mut held = Held::start(test, path, 48, &script)?;
    held.running.wait_for("holds")?;
    suite::wait_until("three programs hold memory", || Ok(held.said("holds") == PROGRAMS))?;
    for _ in 0..3 {
        let launcher = held.running.pid;
        suite::wait_until("a tree within its budget", || Ok(frozen::far_bytes(launcher) <= 34 * MIB))?;
        std::thread::sleep(Duration::from_millis(300));
    }
    std::fs::write(held.running.directory.join("enough"), "")?;
    let ended = held.running.end()?;
    ended.expect(0, "all ended")?;
    ensure!(ended.stdout.matches("outside ok").count() == PROGRAMS, "{ended:?}");
    let stats = ended.stats()?;
    let rows = stats["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Where there is no `/proc`, a row has no name.
    let peaks = rows.iter().filter_map(|row| row["managed_peak_bytes"].as_u64());
    let managed: Vec<u64> = peaks.filter(|bytes| *bytes >= 40 * MIB).collect();
    ensure!(managed.len() == PROGRAMS, "three rows of almost 48 MiB: {rows:?}");
    let named = stats["not_managed"].as_array().map_or(0, Vec::len);
    ensure!(named == 0 && !ended.stderr.contains("not managed"), "nobody is outside the budget: {}", ended.stderr);
    Ok(())
}

/// Neither socket can be reached: the program is as one of another run, and named.
fn out_of_reach(test: &str, path: &str) -> Result<()> {
    let why = Held::start(test, path, 32, &format!("unshare -Urmn sh -c '{OTHER_ROOT}'; true"))?.named()?;
    ensure!(why == "the library did not report", "{why}");
    Ok(())
}

/// A filter of the program's that ends whoever makes a socket ends nobody.
fn filter_of_sockets(test: &str, path: &str) -> Result<()> {
    let sandbox = c_program("sandbox", &[])?.display().to_string();
    let why = Held::start(test, path, 32, &format!("unshare -Ur {sandbox} sockets $PROGRAM; true"))?.named()?;
    ensure!(why == "the library did not report", "{why}");
    Ok(())
}

/// What is started once the launcher has been killed.
fn launcher_gone(test: &str, path: &str) -> Result<()> {
    // The launcher's own child ends with it.
    let script =
        "(while [ ! -e go ]; do sleep 0.05; done; exec unshare -Ur $PROGRAM) & echo $! > pid; echo ready; wait";
    let mut held = Held::start(test, path, 24, script)?;
    held.running.wait_for("ready")?;
    let program: i32 = std::fs::read_to_string(held.running.directory.join("pid"))?.trim().parse()?;
    let launcher = held.running.pid.as_raw();
    held.running.signal(Signal::SIGKILL)?;
    suite::wait_until("a launcher that is gone", || Ok(!tree::descendants(launcher).contains(&program)))?;
    let socket = held.runtime.path().join(format!("hinterland/{launcher}.files"));
    ensure!(socket.exists(), "nobody could remove it");
    std::fs::write(held.running.directory.join("go"), "")?;
    let ended = held.wait_for_end();
    if ended.is_err() {
        let _ = kill(Pid::from_raw(program), Signal::SIGKILL);
    }
    ended
}

/// What is started while the launcher is stopped.
fn launcher_silent(test: &str, path: &str) -> Result<()> {
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done; unshare -Ur $PROGRAM; echo ended";
    let mut held = Held::start(test, path, 24, script)?;
    held.running.wait_for("ready")?;
    held.running.signal(Signal::SIGSTOP)?;
    std::fs::write(held.running.directory.join("go"), "")?;
    let ended = held.wait_for_end();
    held.running.signal(Signal::SIGCONT)?;
    ended?;
    held.running.end()?.expect(0, "ended").map(drop)
}

/// Sends a file to each who connects to a path.
const SENDS: &str = "import array, os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen()
file = os.memfd_create('ledger')
os.truncate(file, 1 << 30)
print('listens', flush=True)
while True:
    other = listener.accept()[0]
    print('asked', flush=True)
    try: other.sendmsg([b'l'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [file]))])
    except OSError: pass
";

/// Whoever else listens there gives no ledger.
fn socket_of_another(test: &str, path: &str) -> Result<()> {
    let theirs = tempfile::Builder::new().prefix("hl-").tempdir_in("/tmp")?;
    std::os::unix::fs::chown(theirs.path(), Some(NOBODY), Some(NOBODY))?;
    let socket = theirs.path().join("other");
    let log = std::fs::File::create(theirs.path().join("log"))?;
    let mut listener = Command::new("/usr/bin/python3");
    listener.args(["-c", SENDS]).arg(&socket).uid(NOBODY).gid(NOBODY).current_dir("/").stdout(log);
    let mut listener = listener.spawn()?;
    let log = || -> Result<String> { Ok(std::fs::read_to_string(theirs.path().join("log"))?) };
    let why = suite::wait_until("a socket of somebody else", || Ok(log()?.contains("listens"))).and_then(|()| {
        let script = format!("HINTERLAND_HANDOVER={} unshare -Ur $PROGRAM; true", socket.display());
        Held::start(test, path, 32, &script)?.named()
    });
    listener.kill()?;
    listener.wait()?;
    let why = why?;
    ensure!(why == "the library did not report" && log()?.contains("asked"), "{why}: {}", log()?);
    Ok(())
}

/// Connects to a path, or to a name in the abstract namespace, and tells how many descriptors come.
pub(super) const ASKS: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1].replace('@', chr(0)))
print('connected', file=sys.stderr, flush=True)
count = 0
while True:
    said, beside = s.recvmsg(1, 64)[:2]
    count += len(beside)
    if not said: break
print('files', count)
";

/// Strangers get nothing: another user by the path is kept out, by the name is sent away, as is who is not of the run. One of the run gets it.
fn strangers(test: &str) -> Result<()> {
    let script = "echo ready; while [ ! -e enough ]; do sleep 0.05; done; /usr/bin/python3 -c \"$ASKS\" $HINTERLAND_HANDOVER; \
        /usr/bin/python3 -c \"$ASKS\" @$HINTERLAND_HANDOVER";
    let runtime = tempfile::Builder::new().prefix("hl-").tempdir_in("/tmp")?;
    let launch = Launch::new(test, &["--local", "32M"], &["sh", "-c", script])?;
    let launch = launch.with("XDG_RUNTIME_DIR", &runtime.path().display().to_string()).with("ASKS", ASKS);
    let mut running = launch.start()?;
    running.wait_for("ready")?;
    let socket = runtime.path().join(format!("hinterland/{}.files", running.pid));
    let asks = |path: &Path, is_name: bool, user: u32| -> Result<Output> {
        let address = format!("{}{}", if is_name { "@" } else { "" }, path.display());
        let mut command = Command::new("/usr/bin/python3");
        Ok(command.args(["-c", ASKS, &address]).uid(user).gid(user).current_dir("/").output()?)
    };
    for (is_name, user) in [(false, 0), (true, 0), (true, NOBODY)] {
        let output = asks(&socket, is_name, user)?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(said.trim() == "files 0", "user {user}, by name {is_name}: {said} {output:?}");
    }
    ensure!(!asks(&socket, false, NOBODY)?.status.success(), "another user reaches the path");
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "files 1\nfiles 1")?;
    ensure!(!socket.exists(), "it goes with its launcher");
    Ok(())
}
