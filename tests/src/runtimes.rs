//! Language runtimes beyond those of [`crate::programs`]: their collectors and allocators move, mark and reserve memory in ways of their own.
//!
//! Each holds records of 252 bytes and visits and replaces them in random order (`tests/programs/runtimes`), so that pages come back one by
//! one, which read-ahead cannot hide. A row counts for nothing unless it pages in earnest: [`MAJOR_FAULTS_MIN`], [`NATIVE_BYTES_MIN`].

use crate::managed::{BUDGET_FLOOR_BYTES, Managed};
use crate::native::Native;
use crate::scenario::no_input;
use crate::{Line, MIB, Need, Place, Scenario, places};
use anyhow::{Result, ensure};
use std::process::Command;

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
];

impl Runtime {
    const fn in_short(mut self) -> Runtime {
        self.short = true;
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
    Runtime { scenario, short: false }
}

const fn java(name: &'static str, about: &'static str, command: fn(&Place) -> Line) -> Runtime {
    let mut java = runtime(name, about, &[Need::Program("java"), Need::Program("javac")], command);
    java.scenario.prepare = compile;
    java
}

fn compile(place: &Place) -> Result<()> {
    let mut command = Command::new("javac");
    command.arg("-d").arg(&place.inputs).arg(places::program("runtimes/Records.java"));
    ensure!(command.status()?.success(), "javac cannot compile Records.java");
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
    script(&["sbcl", "--dynamic-space-size", "1024", "--script"], "records.lisp", place)
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
