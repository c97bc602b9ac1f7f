//! Language runtimes beyond those of [`crate::programs`]: their collectors and allocators move, mark and reserve memory in ways of their own.
//!
//! Each holds records of 252 bytes and visits and replaces them in random order (`tests/programs/runtimes`), so that pages come back one by
//! one, which read-ahead cannot hide. A row counts for nothing unless it pages in earnest: [`MAJOR_FAULTS_MIN`], [`NATIVE_BYTES_MIN`].

use crate::managed::{BUDGET_FLOOR_BYTES, Managed};
use crate::native::Native;
use crate::scenario::no_input;
use crate::{Line, MIB, Need, Place, Scenario, places};
use anyhow::{Result, ensure};
use std::process::{Command, Stdio};

/// Peak of anonymous memory that a runtime is asked for, in bytes.
pub const SIZE_BYTES: u64 = 224 * MIB;
/// The least that it must have natively.
pub const NATIVE_BYTES_MIN: u64 = 192 * MIB;
/// Faults that wait for far memory, of which a run must have more.
pub const MAJOR_FAULTS_MIN: u64 = 10_000;

/// A runtime.
#[derive(Clone, Copy)]
pub struct Runtime {
    /// What it runs.
    pub scenario: Scenario,
    /// Whether it runs in the short form of the tests: `./dev setup` installs it anyway, and it takes seconds.
    pub short: bool,
    /// Whether a shell starts it: `auto` judges the shell, whose filter of system calls it inherits, and may itself not be fit for that path.
    pub by_shell: bool,
    /// Whether it is served on the inline path, too.
    pub inline: bool,
}

/// All of them.
pub const ALL: &[Runtime] = &[
    runtime("perl", "counted references", &[Need::Program("perl")], perl).in_short(),
    runtime("python", "counted references", &[Need::Program("python3")], python).in_short(),
    runtime("wasm", "WebAssembly in Node.js, and a worker", &[Need::Program("node")], wasm).in_short(),
    java("java-parallel", "the parallel collector", |place| jvm("-XX:+UseParallelGC", place)).in_short(),
    java("java-g1", "the collector of regions", |place| jvm("-XX:+UseG1GC", place)).in_short(),
    java("java-serial", "the serial collector", |place| jvm("-XX:+UseSerialGC", place)),
    java("java-shenandoah", "a collector beside the program", |place| jvm("-XX:+UseShenandoahGC", place)),
    runtime("sbcl", "a copying collector with write barriers", &[Need::Program("sbcl")], sbcl),
    runtime("erlang", "a table of tuples", &[Need::Program("escript")], erlang),
    runtime("ocaml", "bytecode, a generational collector", &[Need::Program("ocaml")], ocaml),
    runtime("swipl", "clauses with strings", &[Need::Program("swipl")], swipl),
    runtime("guile", "Boehm's collector", &[Need::Program("guile")], guile),
    runtime("php", "an allocator of its own", &[Need::Program("php")], php),
    runtime("ruby", "a collector that marks and sweeps", &[Need::Program("ruby")], ruby),
    runtime("lua", "an incremental collector", &[Need::Program("lua5.4")], lua),
    runtime("luajit", "an allocator of its own, an incremental collector", &[Need::Program("luajit")], luajit),
    runtime("r", "a generational collector that does not move", &[Need::Program("Rscript")], r),
    runtime("haskell", "a copying collector in blocks of a terabyte", &[Need::Program("ghc")], haskell)
        .prepared(compile_haskell),
    runtime("mono", "a collector that moves what is young", &[Need::Program("mono"), Need::Program("mcs")], mono)
        .prepared(compile_mono),
    runtime("octave", "arrays of an interpreter in C++", &[Need::Program("octave-cli")], octave),
    runtime("gawk", "strings of an interpreter in C", &[Need::Program("gawk")], gawk),
    runtime("pypy", "a collector with a nursery, a JIT", &[Need::Program("pypy3")], pypy),
    runtime("gevent", "coroutines whose stacks are copied to the heap", &[Need::Python("gevent")], gevent),
    runtime("polars", "columns, with an allocator of its own", &[Need::Python("polars")], polars),
    runtime("pytorch", "tensors, with gradients", &[Need::Python("torch")], pytorch),
    runtime("onnxruntime", "inference", &[Need::Python("onnxruntime"), Need::Python("onnx")], onnxruntime),
    runtime(
        "mariadb",
        "a server with tables in its buffer pool, and four clients",
        &[Need::Program("mariadbd")],
        mariadb,
    )
    .started_by_shell(),
    runtime(
        "go",
        "a collector beside the program, system calls of its own",
        &[Need::Program("go"), Need::Program("gcc")],
        go,
    )
    .prepared(compile_go)
    .by_the_monitor(),
];

/// Those that are no rows, why, and the tests that show what becomes of them.
pub const ELSEWHERE: [(&str, &str, &str); 4] = [
    ("chromium", "its processes have more than a tenth of their memory near", "lifecycle::real::chromium"),
    ("go without cgo", "it is linked statically, and refused", "lifecycle::refusals::static_program"),
    (
        "postgresql",
        "its server refuses root: it runs as another user, in 90 of 200 MiB",
        "lifecycle::trees::postgresql_joins",
    ),
    ("racket", "it asks for all of its memory with MAP_32BIT, which is the kernel's", "lifecycle::real::racket"),
];

impl Runtime {
    /// The fault paths that it runs on, of these.
    pub fn paths(&self, paths: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
        let inline = self.inline;
        paths.iter().copied().filter(move |path| inline || *path != "inline")
    }

    const fn by_the_monitor(mut self) -> Runtime {
        self.inline = false;
        self
    }

    const fn in_short(mut self) -> Runtime {
        self.short = true;
        self
    }

    const fn started_by_shell(mut self) -> Runtime {
        self.by_shell = true;
        self
    }

    const fn prepared(mut self, prepare: fn(&Place) -> Result<()>) -> Runtime {
        self.scenario.prepare = prepare;
        self
    }
}

const fn runtime(
    name: &'static str,
    about: &'static str,
    needs: &'static [Need],
    command: fn(&Place) -> Line,
) -> Runtime {
    let scenario =
        Scenario { name, about, needs, small_objects: false, prepare: no_input, command, beside: None, outputs: &[] };
    Runtime { scenario, short: false, by_shell: false, inline: true }
}

const fn java(name: &'static str, about: &'static str, command: fn(&Place) -> Line) -> Runtime {
    runtime(name, about, &[Need::Program("java"), Need::Program("javac")], command).prepared(compile_java)
}

/// Has a compiler make the program of a source file, which it gets last.
fn compile(compiler: &str, options: &[&str], source: &str) -> Result<()> {
    let mut command = Command::new(compiler);
    command.args(options).arg(places::program("runtimes").join(source)).stdout(Stdio::null());
    ensure!(command.status()?.success(), "{compiler} cannot compile {source}");
    Ok(())
}

fn compile_java(place: &Place) -> Result<()> {
    compile("javac", &["-d", &place.input("")], "Records.java")
}

fn compile_haskell(place: &Place) -> Result<()> {
    compile("ghc", &["-O", "-outputdir", &place.input("objects"), "-o", &place.input("records")], "Records.hs")
}

fn compile_mono(place: &Place) -> Result<()> {
    compile("mcs", &[&format!("-out:{}", place.input("Records.exe"))], "Records.cs")
}

/// The compiler keeps what it has built of its library.
fn compile_go(place: &Place) -> Result<()> {
    let mut command = Command::new("go");
    command.args(["build", "-o", &place.input("records")]).arg(places::program("runtimes/records.go"));
    command.env("CGO_ENABLED", "1").env("GOCACHE", places::tests().join("go-cache")).env("GOFLAGS", "-mod=mod");
    ensure!(command.status()?.success(), "go cannot compile records.go");
    Ok(())
}

/// The heap has a half more than the records.
fn jvm(collector: &str, place: &Place) -> Line {
    let bytes = place.size_bytes / MIB;
    let heap = format!("-Xmx{}m", bytes * 3 / 2);
    Line::new(["java", collector, &heap, "-cp", &place.inputs.to_string_lossy(), "Records", &bytes.to_string()])
}

/// A script that takes its size in MiB.
fn script(words: &[&str], name: &str, place: &Place) -> Line {
    let script = places::program("runtimes").join(name).to_string_lossy().into_owned();
    let words = words.iter().map(|word| (*word).to_owned());
    Line::new(words.chain([script, (place.size_bytes / MIB).to_string()]))
}

fn perl(place: &Place) -> Line {
    script(&["perl"], "records.pl", place)
}

fn python(place: &Place) -> Line {
    script(&["python3"], "records.py", place)
}

fn wasm(place: &Place) -> Line {
    script(&["node"], "wasm.js", place)
}

fn sbcl(place: &Place) -> Line {
    script(&["sbcl", "--dynamic-space-size", "1024", "--script"], "records.lisp", &eighths(12, place))
}

fn erlang(place: &Place) -> Line {
    script(&["escript"], "records.erl", place)
}

fn ocaml(place: &Place) -> Line {
    script(&["ocaml"], "records.ml", place)
}

fn swipl(place: &Place) -> Line {
    script(&["swipl"], "records.prolog", place)
}

fn guile(place: &Place) -> Line {
    script(&["guile", "--no-auto-compile"], "records.scm", place)
}

fn php(place: &Place) -> Line {
    script(&["php"], "records.php", place)
}

fn ruby(place: &Place) -> Line {
    script(&["ruby"], "records.rb", place)
}

fn lua(place: &Place) -> Line {
    script(&["lua5.4"], "records.lua", place)
}

fn luajit(place: &Place) -> Line {
    script(&["luajit"], "records.lua", place)
}

fn r(place: &Place) -> Line {
    script(&["Rscript", "--vanilla"], "records.R", place)
}

/// The records are copied from one half of the memory to the other.
fn haskell(place: &Place) -> Line {
    Line::new([place.input("records"), (place.size_bytes / MIB).to_string()])
}

fn go(place: &Place) -> Line {
    Line::new([place.input("records"), (place.size_bytes / MIB).to_string()])
}

fn mono(place: &Place) -> Line {
    Line::new(["mono".into(), place.input("Records.exe"), (place.size_bytes / MIB).to_string()])
}

fn octave(place: &Place) -> Line {
    script(&["octave-cli", "--norc", "--no-history"], "records.m", place)
}

fn gawk(place: &Place) -> Line {
    script(&["gawk", "-f"], "records.awk", place)
}

fn pypy(place: &Place) -> Line {
    script(&["pypy3"], "records.py", place)
}

/// A program of the repository's Python environment, where a package is that not every installation has.
fn packaged(name: &str, place: &Place) -> Line {
    script(&[&places::python().to_string_lossy()], name, place)
}

fn gevent(place: &Place) -> Line {
    packaged("greenlets.py", place)
}

fn polars(place: &Place) -> Line {
    packaged("columns.py", place).with("POLARS_MAX_THREADS", "2")
}

fn pytorch(place: &Place) -> Line {
    packaged("tensors.py", &eighths(24, place))
}

fn onnxruntime(place: &Place) -> Line {
    packaged("inference.py", place)
}

/// As many eighths of the size: static data of these, from 11 MiB to 100 where PyTorch brings libraries for GPUs, is the kernel's, and 90 % are
/// to be managed.
fn eighths(eighths: u64, place: &Place) -> Place {
    Place { size_bytes: place.size_bytes * eighths / 8, ..place.clone() }
}

fn mariadb(place: &Place) -> Line {
    script(&["bash"], "mariadb.sh", &eighths(16, place))
}

/// A third of the native peak of anonymous memory, not below the floor, in whole pages.
pub fn budget_bytes(native: &Native) -> u64 {
    (native.finished.anonymous_peak_bytes / 3).max(BUDGET_FLOOR_BYTES) / 4096 * 4096
}

/// Why a pair of runs shows too little, if it does.
pub fn too_little(native: &Native, managed: &Managed) -> Option<String> {
    let native_bytes = native.finished.anonymous_peak_bytes;
    if native_bytes < NATIVE_BYTES_MIN {
        return Some(format!("needs {} MiB natively, too little to show anything", native_bytes / MIB));
    }
    let faults = managed.stats.as_ref().map_or(0, |stats| stats.major_faults);
    (faults <= MAJOR_FAULTS_MIN).then(|| format!("had {faults} major faults, too few to show anything"))
}
