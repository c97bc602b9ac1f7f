//! The `hinterland-bench` command, which `hinterland bench` runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    hinterland_bench::main()
}
