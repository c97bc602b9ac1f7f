//! Programs of others that the table of cases names, in the long form: skipped where they are not installed.

use super::field::{Who, judge, obstacle};
use anyhow::{Context, Result, ensure};
use hinterland_tests::field::{KINDS, Outcome, Proof, WAYS, Way};
use hinterland_tests::runtimes::MAJOR_FAULTS_MIN;
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of others.
struct Real {
    name: &'static str,
    budget: &'static str,
    /// Why it cannot be run here.
    missing: fn() -> Option<String>,
    /// Its command, for this user.
    words: fn(&Who) -> Result<Vec<String>>,
}

const REAL: [Real; 14] = [
    Real { name: "mpi", budget: "32M", missing: no_mpi, words: mpi },
    Real { name: "sbcl", budget: "32M", missing: || missing(&["sbcl"]), words: sbcl },
    Real { name: "file", budget: "16M", missing: no_sandbox, words: file },
    Real { name: "collector", budget: "16M", missing: || no_file("/usr/include/gc.h"), words: collector },
    Real { name: "mimalloc", budget: "24M", missing: || no_allocator("mimalloc"), words: |_| preloaded("mimalloc") },
    Real { name: "jemalloc", budget: "24M", missing: || no_allocator("jemalloc"), words: |_| preloaded("jemalloc") },
    Real { name: "racket", budget: "32M", missing: || missing(&["racket"]), words: racket },
    Real {
        name: "chromium",
        budget: "80M",
        missing: || missing(&["chromium"]),
        words: |who| chromium(who, "--no-sandbox"),
    },
    Real {
        name: "chromium_sandboxed",
        budget: "80M",
        missing: || missing(&["chromium"]),
        words: |who| chromium(who, "$([ \"$(id -u)\" != 0 ] || echo --no-sandbox)"),
    },
    Real { name: "zgc", budget: "64M", missing: || missing(&["java"]), words: zgc },
    Real { name: "python_fork", budget: "24M", missing: no_warning_python, words: python_fork },
    Real { name: "proot", budget: "16M", missing: || no_file("/usr/bin/proot"), words: proot },
    Real { name: "valgrind", budget: "16M", missing: || no_file("/usr/bin/valgrind"), words: valgrind },
    Real { name: "qemu", budget: "16M", missing: || no_file("/usr/bin/qemu-x86_64"), words: qemu },
];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    REAL.iter().flat_map(|real| WAYS.map(|way| trial(real, way))).collect()
}

fn trial(real: &'static Real, way: Way) -> Trial {
    let test = format!("lifecycle::real::{}::{}", real.name, way.name);
    let skip = move || {
        skips::not_full().or_else(|| obstacle(way)).or_else(real.missing).or_else(|| out_of_reach(real.name, way))
    };
    suite::trial(test.clone(), skip, move || {
        let outcome = outcome(real.name, way).context("the table of cases does not name it")?;
        let who = Who::new(&test, way)?;
        let words = (real.words)(&who)?;
        let ended = who.managed(way.path, real.budget, &words)?.run()?;
        let native = who.natively(&words)?.run()?;
        judge(&native, &ended, outcome, false)?;
        ensure!(native.code == 0 && !native.stdout.is_empty(), "natively: {native:?}");
        who.hand_over(&ended);
        if outcome != Outcome::AsNatively {
            return Ok(());
        }
        match real.name {
            // What it reads of its data is a mapping of a file, which is the kernel's.
            "file" => {}
            "zgc" => {
                let stats = ended.stats()?;
                let shared = stats["unmanaged"]["shared_bytes"].as_u64();
                ensure!(shared > Some(64 << 20), "its heap is not counted as shared: {stats}");
            }
            _ => drop(ended.expect_paging()?),
        }
        if real.name.starts_with("chromium") {
            let stats = ended.stats()?;
            ensure!(stats["major_faults"].as_u64() > Some(MAJOR_FAULTS_MIN), "too few major faults: {stats}");
        }
        Ok(())
    })
}

/// What the table says.
fn outcome(name: &str, way: Way) -> Option<Outcome> {
    let name = format!("lifecycle::real::{name}");
    let mut cases = KINDS.iter().flat_map(|(_, cases)| *cases);
    let case = cases.find(|case| matches!(case.proof, Proof::Test(test) if test == name))?;
    WAYS.iter().position(|other| other.name == way.name).map(|place| case.outcomes[place])
}

fn missing(programs: &[&str]) -> Option<String> {
    let missing = programs.iter().find(|name| skips::find(name).is_none());
    missing.map(|name| format!("{name} is not installed"))
}

fn no_file(path: &str) -> Option<String> {
    (!Path::new(path).exists()).then(|| format!("there is no {path}"))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Compiles a program that needs more than [`hinterland_tests::launch::c_program`] knows.
fn compiled(compiler: &str, name: &str, libraries: &[&str]) -> Result<PathBuf> {
    let built = places::tests().join("bin").join(format!("real_{name}"));
    std::fs::create_dir_all(places::tests().join("bin"))?;
    let fresh = built.with_extension(format!("{:?}", std::thread::current().id()).replace(['(', ')'], "_"));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-o"]).arg(&fresh).arg(places::program("field").join(format!("{name}.c"))).args(libraries);
    let output = command.output()?;
    ensure!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&fresh, &built)?;
    Ok(built)
}

/// mpicc is there without what it compiles with.
fn no_mpi() -> Option<String> {
    let mut command = Command::new("mpicc");
    command.args(["-E", "-x", "c", "-include", "mpi.h", "/dev/null"]).stdout(Stdio::null()).stderr(Stdio::null());
    let no_header = || (!command.status().is_ok_and(|status| status.success())).then(|| "there is no mpi.h".into());
    missing(&["mpicc", "mpirun"]).or_else(no_header)
}

/// Two ranks of Open MPI.
fn mpi(who: &Who) -> Result<Vec<String>> {
    let program = who.bring(&compiled("mpicc", "ranks", &[])?)?;
    let mpirun = skips::find("mpirun").context("mpirun")?.display().to_string();
    Ok(words(&[&mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", &program]))
}

fn racket(who: &Who) -> Result<Vec<String>> {
    let program = who.bring(&places::program("field/records.rkt"))?;
    let racket = skips::find("racket").context("racket")?.display().to_string();
    Ok(words(&[&racket, &program]))
}

fn sbcl(who: &Who) -> Result<Vec<String>> {
    let script = who.bring(&places::program("field/table.lisp"))?;
    let sbcl = skips::find("sbcl").context("sbcl")?.display().to_string();
    Ok(words(&[&sbcl, "--script", &script]))
}

/// file(1) confines itself, where it was built to.
fn file(_: &Who) -> Result<Vec<String>> {
    Ok(words(&["/usr/bin/file", "/usr/bin/env", "/etc/passwd"]))
}

/// Chromium without a screen, in several processes: a script of a page holds records of 160 MiB. Names of its sockets are to be short. Root
/// has no sandbox of Chromium's.
fn chromium(who: &Who, sandbox: &str) -> Result<Vec<String>> {
    let page = who.bring(&places::program("runtimes/records.html"))?;
    let chromium = skips::find("chromium").context("chromium")?.display().to_string();
    let script = format!(
        "own=$(mktemp -d -p /tmp) && HOME=\"$own\" TMPDIR=\"$own\" '{chromium}' --headless {sandbox} --user-data-dir=\"$own\" \
         --dump-dom 'file://{page}#160'; code=$?; rm -rf \"$own\"; exit $code"
    );
    Ok(words(&["sh", "-c", &script]))
}

/// The JVM compiles its program itself.
fn zgc(who: &Who) -> Result<Vec<String>> {
    let source = who.bring(&places::program("runtimes/Records.java"))?;
    let java = skips::find("java").context("java")?.display().to_string();
    Ok(words(&[&java, "-XX:+UseZGC", "-Xmx240m", &source, "100"]))
}

/// A CPython that warns when a process with several threads forks.
fn warning_python() -> Option<String> {
    let search = ["python3", "python3.12", "python3.13", "python3.14"].iter().filter_map(|name| skips::find(name));
    let warns = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import sys; sys.exit(sys.version_info < (3, 12))"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    search.chain([places::python()]).find(warns).map(|python| python.display().to_string())
}

fn no_warning_python() -> Option<String> {
    warning_python().is_none().then(|| "there is no CPython 3.12 or newer".into())
}

/// The only such CPython may be one that is installed for root alone.
fn out_of_reach(name: &str, way: Way) -> Option<String> {
    let is_private = || warning_python().is_some_and(|python| python.starts_with("/root/"));
    (name == "python_fork" && way.name.ends_with("unprivileged") && is_private())
        .then(|| "CPython 3.12 or newer is root's alone".into())
}

/// It warns where it has a second thread of its own, and not before.
fn python_fork(who: &Who) -> Result<Vec<String>> {
    let python = warning_python().context("it was there")?;
    Ok(words(&[&python, &who.bring(&places::program("field/warned.py"))?]))
}

fn proot(_: &Who) -> Result<Vec<String>> {
    Ok(words(&["/usr/bin/proot", "-r", "/", "/bin/echo", "emulated"]))
}

fn valgrind(_: &Who) -> Result<Vec<String>> {
    Ok(words(&["/usr/bin/valgrind", "-q", "/bin/echo", "emulated"]))
}

fn qemu(_: &Who) -> Result<Vec<String>> {
    Ok(words(&["/usr/bin/qemu-x86_64", "/bin/echo", "emulated"]))
}

fn no_sandbox() -> Option<String> {
    let output = Command::new("ldd").arg("/usr/bin/file").output().ok();
    let linked = output.is_some_and(|output| String::from_utf8_lossy(&output.stdout).contains("libseccomp"));
    (!linked).then(|| "file(1) is not here, or was built without its sandbox".into())
}

fn collector(who: &Who) -> Result<Vec<String>> {
    Ok(vec![who.bring(&compiled("gcc", "collector", &["-lgc"])?)?])
}

/// Another preloaded allocator, behind ours and before it.
fn allocator(name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir("/usr/lib/x86_64-linux-gnu").ok()?;
    let mut found = entries.flatten().map(|entry| entry.path());
    found.find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("lib{name}.so"))))
}

fn no_allocator(name: &str) -> Option<String> {
    allocator(name).is_none().then(|| format!("lib{name} is not installed"))
}

fn preloaded(name: &str) -> Result<Vec<String>> {
    let library = allocator(name).context("it was there")?.display().to_string();
    let program = "b = bytearray(48 << 20); print(sum(b[::4096]), len([str(i) for i in range(200000)]))";
    let script = format!(
        "export PYTHONMALLOC=malloc; LD_PRELOAD=\"$LD_PRELOAD:{library}\" /usr/bin/python3 -c '{program}' && \
         LD_PRELOAD=\"{library}:$LD_PRELOAD\" /usr/bin/python3 -c '{program}'"
    );
    Ok(words(&["sh", "-c", &script]))
}
