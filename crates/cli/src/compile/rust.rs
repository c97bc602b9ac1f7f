//! `hinterland rustc`: rustc emits bitcode, and lld optimises it with the plugin when it links (linker-plugin LTO).
//!
//! rustc's own LLVM loads no plugins, and differs from the distribution's by name; what it emits, the distribution's lld of the same major
//! version reads.

use super::clang::{self, Language, MAJOR};
use crate::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The flags that make rustc and its linker do so, and the program itself.
///
/// # Errors
/// There is no rustc, clang or lld, or rustc has another LLVM.
pub fn command(words: &[&OsStr], plugin: &Path) -> Result<Command, Error> {
    let rustc = clang::in_path("rustc").ok_or(Error::NoRustc { why: "there is none in PATH".into() })?;
    let said = Command::new(&rustc).arg("-vV").output().map_err(Error::system("cannot start rustc"))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    match llvm(&said) {
        Some(version) if version.split('.').next() == Some(MAJOR) => {}
        Some(version) => return Err(Error::NoRustc { why: format!("the one in PATH has LLVM {version}") }),
        None => return Err(Error::NoRustc { why: "the one in PATH does not say its LLVM (-vV)".into() }),
    }
    let linker = clang::find(Language::C)?;
    let lld = lld().ok_or(Error::NoLld { major: MAJOR })?;
    let mut command = Command::new(rustc);
    command.arg("-Clinker-plugin-lto").arg(flag("-Clinker=", &linker)).arg(flag("-Clink-arg=-fuse-ld=", &lld));
    command.arg(flag("-Clink-arg=-Wl,--load-pass-plugin=", plugin));
    if !words.iter().any(|word| names_debug_information(word)) {
        // Loops are named by lines, and functions that were inlined by debug information.
        command.arg("-Cdebuginfo=line-tables-only");
    }
    command.args(words);
    Ok(command)
}

fn flag(begin: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(begin);
    flag.push(path);
    flag
}

fn names_debug_information(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    word == "-g" || word.contains("debuginfo=")
}

fn lld() -> Option<PathBuf> {
    clang::in_path(&format!("ld.lld-{MAJOR}"))
}

/// The LLVM in what `rustc -vV` prints.
fn llvm(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("LLVM version: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustc_says_its_llvm_and_debug_information_is_asked_for_once() {
        assert_eq!(llvm("rustc 1.95.0\nrelease: 1.95.0\nLLVM version: 22.1.2\n"), Some("22.1.2"));
        assert_eq!(llvm("rustc 1.95.0\n"), None);
        let named = |word: &str| names_debug_information(OsStr::new(word));
        assert!(named("-g") && named("-Cdebuginfo=2") && named("debuginfo=0") && !named("-O"));
    }
}
