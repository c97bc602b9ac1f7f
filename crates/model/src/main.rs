//! The `hinterland-model` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    hinterland_model::main()
}
