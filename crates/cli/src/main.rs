//! The `hinterland` command.

fn main() {}
