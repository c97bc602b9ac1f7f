//! Links the unwinder into the launcher.
//!
//! The shared libgcc_s costs each `hinterland run` a tenth of a millisecond: one more library for the loader, and a constructor that
//! asks the processor what it can, which traps in a virtual machine. A linker script of its name takes the static archives instead.
//! Without them (another compiler's runtime) the shared one stays.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let Some(directory) = std::env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    if ["libgcc_eh.a", "libgcc.a"].into_iter().all(is_there)
        && std::fs::write(directory.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").is_ok()
    {
        println!("cargo:rustc-link-search=native={}", directory.display());
    }
}

/// Whether the C compiler, which links, knows an archive: it answers with a path.
fn is_there(archive: &str) -> bool {
    let asked = Command::new("cc").arg(format!("-print-file-name={archive}")).output();
    asked.is_ok_and(|answer| Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_absolute())
}
