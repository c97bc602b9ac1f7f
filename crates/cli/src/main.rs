//! The `hinterland` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    hinterland_cli::main()
}
