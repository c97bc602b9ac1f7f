//! `hinterland cc`, `c++` and `rustc`: clang 22, or rustc and lld, with the plugin of `compiler/`, and a plan where one is given.
//!
//! ```text
//! words ─▶ --far-plan taken out ─▶ plan (TOML, checked) ─▶ JSON in a memfd, named by a variable ─▶ the compiler
//!                                          the plugin, which reads it there, is loaded by clang, or by the linker that rustc starts
//! ```
//!
//! The memfd is inherited by every process that the compiler starts, and is gone with the last of them.

mod clang;
mod rust;

use crate::error::{Error, complain};
use crate::launch::beside;
use crate::plan::{PluginPlan, Written};
use clang::Language;
use clap::{ArgAction, Args};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The plugin's file name; `compiler/build` makes it.
const PLUGIN: &str = "hinterland-llvm22.so";
/// By what the plugin finds the plan.
const PLAN_VARIABLE: &str = "HINTERLAND_COMPILE_PLAN";
/// What names a plan among the compiler's words.
const PLAN_FLAG: &str = "--far-plan";

/// `hinterland cc`, `c++`, `rustc`: the words are the compiler's, but `--help` before all others.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct CompileArgs {
    /// Print this help, as the first argument; among others, --help is the compiler's
    #[arg(long = "help", action = ArgAction::HelpLong)]
    _help: Option<bool>,
    /// The compiler's arguments; --far-plan FILE, anywhere among them, names a plan
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<OsString>,
}

/// What the help of `name` says after the flags: how `compiler` is used by it, and examples in that language.
pub fn after_help(name: &str, compiler: &str) -> String {
    let (file, make) = match name {
        "cc" => ("-c app.c", "\n  make CC='hinterland cc --far-plan app.plan'"),
        "c++" => ("-c app.cpp", "\n  make CXX='hinterland c++ --far-plan app.plan'"),
        _ => ("app.rs", ""),
    };
    let (optimised, remarks) = match name {
        "rustc" => ("-O", String::new()),
        _ => ("-O2", format!("\n  hinterland {name} -O2 -Rpass=hinterland -Rpass-missed=hinterland {file}")),
    };
    let said = if remarks.is_empty() {
        ""
    } else {
        " -Rpass=hinterland says which loops fetch ahead, -Rpass-missed=hinterland why others do not."
    };
    format!(
        "\
Hinterland's own argument, anywhere among the compiler's:
  --far-plan FILE  A plan: the functions whose loops are to fetch ahead, and what is evicted behind
                   them, as `hinterland plan` and `hinterland optimize` write it. Without a plan,
                   these are the loops that follow indices or rows

Everything else goes to {compiler} as it is; `{compiler} --help` shows its flags. Loops are hinted from {optimised} on.{said}

Examples:
  hinterland {name} {optimised} {file}
  hinterland {name} {optimised} --far-plan app.plan {file}{make}{remarks}

Exit code: the compiler's own; 125 when the compiler or the plugin is missing, or the plan cannot be used (the message says which)."
    )
}

/// What compiles.
#[derive(Clone, Copy)]
enum Compiler {
    Clang(Language),
    Rustc,
}

/// Becomes clang; returns only where that is not possible.
pub fn cc(args: &CompileArgs) -> ExitCode {
    run(args, Compiler::Clang(Language::C))
}

/// Becomes clang++; returns only where that is not possible.
pub fn cxx(args: &CompileArgs) -> ExitCode {
    run(args, Compiler::Clang(Language::Cxx))
}

/// Becomes rustc; returns only where that is not possible.
pub fn rustc(args: &CompileArgs) -> ExitCode {
    run(args, Compiler::Rustc)
}

fn run(args: &CompileArgs, compiler: Compiler) -> ExitCode {
    let error = match become_compiler(args, compiler) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    complain(&error);
    ExitCode::from(error.exit_code())
}

/// Whether this machine can compile.
///
/// # Errors
/// No clang of LLVM 22, or no plugin.
pub fn ready() -> Result<(), Error> {
    clang::find(Language::C).or_else(|error| clang::find(Language::Cxx).map_err(|_| error))?;
    beside(PLUGIN)?.map(drop).ok_or(Error::NoPlugin { name: PLUGIN })
}

/// Whether this machine can compile Rust, where it can compile.
///
/// # Errors
/// No rustc of LLVM 22, no clang that links, or no lld.
pub fn rust_ready() -> Result<(), Error> {
    rust::command(&[], Path::new(PLUGIN)).map(drop)
}

fn become_compiler(args: &CompileArgs, compiler: Compiler) -> Result<Infallible, Error> {
    let (words, plan) = split(&args.words)?;
    let plan = plan.map(|path| Written::read(&path)).transpose()?;
    let plugin = || beside(PLUGIN)?.ok_or(Error::NoPlugin { name: PLUGIN });
    let mut command = match compiler {
        Compiler::Clang(language) => {
            let found = clang::find(language)?;
            if optimises_unhinted(&words) {
                complain(
                    "-flto: loops that call into other files are left to the link, which hints them by lld alone: add -fuse-ld=lld",
                );
            }
            clang_command(&found, &words, &plugin()?, plan.as_ref())
        }
        Compiler::Rustc => rust::command(&words, &plugin()?)?,
    };
    match plan {
        Some(plan) => command.env(PLAN_VARIABLE, hand_on(&plan.for_plugin())?),
        None => command.env_remove(PLAN_VARIABLE),
    };
    Err(Error::System { what: "cannot start the compiler", source: command.exec() })
}

fn clang_command(compiler: &Path, words: &[&OsStr], plugin: &Path, plan: Option<&Written>) -> Command {
    let mut command = Command::new(compiler);
    // The remark that is none makes clang keep lines, by which loops are named, as its other remarks do; and
    // what is for sample profiles, the linker's names of functions that are inlined.
    let mut load = OsString::from("-fpass-plugin=");
    load.push(plugin);
    command.arg("--start-no-unused-arguments").arg(load).args(["-Rpass=^$", "-fdebug-info-for-profiling"]);
    if let Some(plan) = plan {
        // For caches of compilers, which look at words: no plugin of clang's has this name.
        command.arg(format!("-fplugin-arg-hinterland-{}", plan.digest));
    }
    if names_lld(words) {
        let mut load = OsString::from("-Wl,--load-pass-plugin=");
        load.push(plugin);
        command.arg(load);
    }
    command.arg("--end-no-unused-arguments").args(words);
    command
}

/// The last word that is such a one: the compiler goes by it.
fn last<'a>(words: &[&'a OsStr], is_it: impl Fn(&[u8]) -> bool) -> Option<&'a [u8]> {
    words.iter().map(|word| word.as_bytes()).rfind(|word| is_it(word))
}

/// Whether lld links, where these words link. It optimises all bitcode that it is given, also without `-flto`, and inlines what loops call in other
/// files.
fn names_lld(words: &[&OsStr]) -> bool {
    let linker = last(words, |word| word.starts_with(b"-fuse-ld=") || word.starts_with(b"--ld-path="));
    let name = linker.and_then(|word| word.rsplit(|byte| matches!(byte, b'=' | b'/' | b'.')).next());
    name.is_some_and(|name| name.starts_with(b"lld"))
}

/// Whether a link with these words optimises without the plugin: by another linker than lld.
fn optimises_unhinted(words: &[&OsStr]) -> bool {
    let makes_no_link = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"];
    let has_file = words.iter().any(|word| !word.as_bytes().starts_with(b"-"));
    let is_link = has_file && !words.iter().any(|word| makes_no_link.iter().any(|flag| word == flag));
    let lto = last(words, |word| word == b"-flto" || word.starts_with(b"-flto=") || word == b"-fno-lto");
    is_link && lto.is_some_and(|word| word != b"-fno-lto") && !names_lld(words)
}

/// The compiler's own words, and the plan among them.
fn split(words: &[OsString]) -> Result<(Vec<&OsStr>, Option<PathBuf>), Error> {
    let (mut kept, mut plan) = (Vec::new(), None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let file = match word.as_bytes().strip_prefix(PLAN_FLAG.as_bytes()) {
            Some(b"") => words.next().map(PathBuf::from),
            Some([b'=', file @ ..]) => Some(PathBuf::from(OsString::from_vec(file.to_vec()))),
            _ => {
                kept.push(word.as_os_str());
                continue;
            }
        };
        let file = file.filter(|file| file.as_os_str() != "");
        plan = Some(file.ok_or(Error::Setting { origin: PLAN_FLAG.into(), why: "name the plan's file".into() })?);
    }
    Ok((kept, plan))
}

/// Where the processes that follow can read the plan.
fn hand_on(plan: &PluginPlan) -> Result<PathBuf, Error> {
    let what = Error::system("cannot hand the plan on");
    let write = || -> std::io::Result<PathBuf> {
        let mut file = File::from(memfd_create(c"hinterland-plan", MFdFlags::empty())?);
        file.write_all(&serde_json::to_vec(plan)?)?;
        let path = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        let _ = file.into_raw_fd(); // clang's from here on
        Ok(path)
    };
    write().map_err(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_gets_the_plugin_where_it_is_lld_and_another_one_that_optimises_is_named() {
        let of = |words: &str| {
            let words: Vec<_> = words.split(' ').map(OsStr::new).collect();
            (names_lld(&words), optimises_unhinted(&words))
        };
        for words in [
            "-flto -fuse-ld=lld a.o",
            "-fuse-ld=/usr/bin/ld.lld -flto=thin a.o",
            "-fuse-ld=lld-22 a.o",
            "--ld-path=/usr/bin/ld.lld a.o",
            "-fno-lto -fuse-ld=bfd -fuse-ld=lld a.o",
        ] {
            assert_eq!(of(words), (true, false), "{words}");
        }
        for words in ["-flto a.o", "-flto=thin -fuse-ld=lld -fuse-ld=bfd a.o", "-fno-lto -flto a.c b.c -o a"] {
            assert_eq!(of(words), (false, true), "{words}");
        }
        for words in ["-O2 a.c", "-flto -c a.c", "-flto -fno-lto a.o", "-flto-jobs=4 a.o", "-flto --version"] {
            assert_eq!(of(words), (false, false), "{words}");
        }
    }

    fn split_words(words: &[&str]) -> Result<(Vec<String>, Option<PathBuf>), String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        split(&words)
            .map(|(kept, plan)| (kept.iter().map(|word| word.to_string_lossy().into_owned()).collect(), plan))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_plan_is_named_anywhere_and_the_other_words_stay_in_order() {
        let words = |kept: &[&str]| kept.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(split_words(&["-O2", "-c", "a.c"]).unwrap(), (words(&["-O2", "-c", "a.c"]), None));
        let plan = Some(PathBuf::from("a plan"));
        assert_eq!(split_words(&["-O2", "--far-plan", "a plan", "-c"]).unwrap(), (words(&["-O2", "-c"]), plan.clone()));
        assert_eq!(split_words(&["--far-plan=a plan", "--help"]).unwrap(), (words(&["--help"]), plan));
        assert_eq!(split_words(&["--far-planet"]).unwrap(), (words(&["--far-planet"]), None));
        for unnamed in [&["--far-plan"][..], &["-c", "--far-plan="]] {
            assert_eq!(split_words(unnamed).unwrap_err(), "--far-plan: name the plan's file");
        }
    }
}
