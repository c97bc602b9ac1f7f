//! Virtual machines with a heap of their own: Java and Node.js.

use crate::scenario::no_input;
use crate::{Line, MIB, Need, Place, Scenario, places};
use anyhow::{Result, ensure};
use std::process::Command;

/// A Java program whose heap is as large as the place.
pub const JAVA: Scenario = Scenario {
    name: "java",
    about: "Java: small objects and arrays in most of a full heap, two threads",
    needs: &[Need::Program("java"), Need::Program("javac")],
    small_objects: false,
    prepare: compile,
    command: java,
    beside: None,
    outputs: &[],
};

fn compile(place: &Place) -> Result<()> {
    let mut command = Command::new("javac");
    command.arg("-d").arg(&place.inputs).arg(places::program("Heap.java"));
    ensure!(command.status()?.success(), "javac cannot compile Heap.java");
    Ok(())
}

fn java(place: &Place) -> Line {
    // A small heap is made larger: the JVM's class archive, a private file mapping that it relocates, stays near (about
    // 10 MiB) and would be too large a share of a small process.
    let heap = place.size_bytes.max(224 * MIB);
    let live = heap * 65 / 100;
    let limit = format!("-Xmx{}m", heap / MIB);
    // Collector and sizes by the machine, not by the cgroup that bounds a run: the same program in each.
    Line::new([
        "java",
        "-XX:-UseContainerSupport",
        &limit,
        "-cp",
        &place.inputs.to_string_lossy(),
        "Heap",
        &live.to_string(),
    ])
}

/// Node.js with typed arrays, objects and a map.
pub const NODE: Scenario = Scenario {
    name: "node",
    about: "Node.js: typed arrays, objects, a Map, sorting",
    needs: &[Need::Program("node")],
    small_objects: false,
    prepare: no_input,
    command: node,
    beside: None,
    outputs: &[],
};

/// What Node.js takes before the script starts, and the garbage that it lets gather.
const NODE_BYTES: u64 = 16 << 20;

fn node(place: &Place) -> Line {
    let bytes = place.size_bytes.saturating_sub(NODE_BYTES);
    Line::new(["node", &places::program("arrays.js").to_string_lossy(), &bytes.to_string()])
}
