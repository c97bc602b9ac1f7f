//! Finds the clang whose LLVM the plugin is made for.

use crate::error::Error;
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The LLVM of the plugin: its interfaces change with each major version.
pub const MAJOR: &str = "22";

/// What is compiled.
#[derive(Clone, Copy)]
pub enum Language {
    /// C: `clang`.
    C,
    /// C++: `clang++`.
    Cxx,
}

impl Language {
    fn name(self) -> &'static str {
        match self {
            Language::C => "clang",
            Language::Cxx => "clang++",
        }
    }
}

/// `clang-22` in PATH, else `clang` there, if that is version 22.
///
/// # Errors
/// There is none, or one of another version only.
pub fn find(language: Language) -> Result<PathBuf, Error> {
    let name = language.name();
    if let Some(path) = in_path(&format!("{name}-{MAJOR}")) {
        return Ok(path);
    }
    let Some(path) = in_path(name) else { return Err(Error::NoClang { name, found: None }) };
    let said = Command::new(&path).arg("--version").output().map_err(Error::system("cannot start clang"))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    match version(&said) {
        Some(version) if version.split('.').next() == Some(MAJOR) => Ok(path),
        found => Err(Error::NoClang { name, found: Some(found.unwrap_or("of no version").to_owned()) }),
    }
}

/// A program by its name.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let search = env::var_os("PATH")?;
    env::split_paths(&search).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The version in what `clang --version` prints.
fn version(said: &str) -> Option<&str> {
    said.lines().next()?.split_once("clang version ")?.1.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_what_distributions_print() {
        for (said, expected) in [
            ("Debian clang version 22.1.8 (1~deb12u1)\nTarget: x86_64", Some("22.1.8")),
            ("Ubuntu clang version 18.1.3 (1ubuntu1)", Some("18.1.3")),
            ("clang version 22.0.0git (https://…)", Some("22.0.0git")),
            ("gcc (Debian 12.2.0-14) 12.2.0", None),
            ("", None),
        ] {
            assert_eq!(version(said), expected, "{said}");
        }
    }
}
