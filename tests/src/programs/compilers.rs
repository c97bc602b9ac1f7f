//! A C++ program of many small nodes, and a compiler at work on a large file.

use crate::{Line, Need, Place, Scenario, places};
use anyhow::{Result, ensure};
use std::fmt::Write;
use std::process::Command;

/// `std::map` and `std::unordered_map` in four threads.
pub const NODES: Scenario = Scenario {
    name: "cpp-nodes",
    about: "C++ std::map and std::unordered_map of small nodes, four threads",
    needs: &[Need::Program("g++")],
    small_objects: true,
    prepare: build_nodes,
    command: |place| Line::new([place.input("nodes"), (place.size_bytes / NODE_BYTES).to_string()]),
    beside: None,
    outputs: &[],
};

/// Average size of a node with its allocator's header, both containers together.
const NODE_BYTES: u64 = 74;

fn build_nodes(place: &Place) -> Result<()> {
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-O2", "-pthread", "-o"]).arg(place.inputs.join("nodes"));
    ensure!(command.arg(places::program("nodes.cpp")).status()?.success(), "g++ cannot compile nodes.cpp");
    Ok(())
}

/// `g++ -O1` on a generated file.
pub const GCC: Scenario = Scenario {
    name: "gcc",
    about: "g++ compiling a large generated file",
    needs: &[Need::Program("g++")],
    small_objects: true,
    prepare: |place| Ok(std::fs::write(place.inputs.join("large.cpp"), large_source(place.size_bytes))?),
    command: |place| Line::new(["g++", "-std=c++17", "-O1", "-c", "-o", "large.o", &place.input("large.cpp")]),
    beside: None,
    outputs: &["large.o"],
};

/// Memory that the compiler keeps for one of the generated functions, and what it takes for the headers.
const FUNCTION_BYTES: u64 = 2_900_000;
const HEADERS_BYTES: u64 = 60 << 20;

/// A source file of functions that differ in their constants and share templates of the standard library.
fn large_source(size_bytes: u64) -> String {
    let mut source = String::from("#include <map>\n#include <string>\n#include <vector>\n#include <algorithm>\n");
    for i in 0..size_bytes.saturating_sub(HEADERS_BYTES) / FUNCTION_BYTES {
        let _ = write!(
            source,
            "struct Part{i} {{ int a = {i}; long b[{size}]; std::string c; }};\n\
             long work{i}(std::vector<Part{i}> &parts, std::map<int, std::string> &names) {{\n\
             \x20 long sum = {i};\n\
             \x20 for (auto &part : parts) {{ sum += part.a * {i}L + part.b[{last}]; names[part.a] += part.c; }}\n\
             \x20 std::sort(parts.begin(), parts.end(), [](auto &x, auto &y) {{ return x.a < y.a; }});\n\
             \x20 switch (sum % 7) {{ case 0: sum ^= {i}; break; case 3: sum *= {i} + 1; break; default: sum -= {i}; }}\n\
             \x20 return sum;\n}}\n",
            size = i % 5 + 1,
            last = i % 5,
        );
    }
    source
}
