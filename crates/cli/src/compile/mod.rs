//! `hinterland cc` and `hinterland c++`: clang 22 with the plugin of `compiler/`, and a plan where one is given.
//!
//! ```text
//! words ─▶ --far-plan taken out ─▶ plan (TOML, checked) ─▶ JSON in a memfd, named by a variable ─▶ clang, which loads the plugin
//! ```
//!
//! The memfd is inherited by every process that clang starts, and is gone with the last of them.

mod clang;
mod plan;

use crate::error::{Error, complain};
use crate::launch::beside;
use clang::Language;
use clap::Args;
use nix::sys::memfd::{MFdFlags, memfd_create};
use plan::Plan;
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

/// `hinterland cc`, `hinterland c++`: the words are clang's, `--help` too.
#[derive(Args)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub struct CompileArgs {
    /// clang's arguments; --far-plan FILE, anywhere among them, names a plan
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  hinterland cc -O2 -c app.c
  hinterland c++ -O2 --far-plan app.plan -c app.cpp
  make CC='hinterland cc --far-plan app.plan'
  hinterland cc -O2 -Rpass=hinterland -Rpass-missed=hinterland -c app.c";

/// Becomes clang; returns only where that is not possible.
pub fn cc(args: &CompileArgs) -> ExitCode {
    run(args, Language::C)
}

/// Becomes clang++; returns only where that is not possible.
pub fn cxx(args: &CompileArgs) -> ExitCode {
    run(args, Language::Cxx)
}

fn run(args: &CompileArgs, language: Language) -> ExitCode {
    let error = match become_clang(args, language) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    complain(&error);
    ExitCode::from(error.exit_code())
}

fn become_clang(args: &CompileArgs, language: Language) -> Result<Infallible, Error> {
    let (words, plan) = split(&args.words)?;
    let plan = plan.map(|path| Plan::read(&path)).transpose()?;
    let compiler = clang::find(language)?;
    let plugin = beside(PLUGIN)?.ok_or(Error::NoPlugin { name: PLUGIN })?;
    let mut command = Command::new(&compiler);
    // A link alone loads no plugin. The remark that is none makes clang keep lines, by which loops are named, as its other remarks do.
    let mut load = OsString::from("-fpass-plugin=");
    load.push(&plugin);
    command.arg("--start-no-unused-arguments").arg(load).args(["-Rpass=^$", "--end-no-unused-arguments"]).args(words);
    match plan {
        Some(plan) => command.env(PLAN_VARIABLE, hand_on(&plan)?),
        None => command.env_remove(PLAN_VARIABLE),
    };
    Err(Error::System { what: "cannot start clang", source: command.exec() })
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
fn hand_on(plan: &Plan) -> Result<PathBuf, Error> {
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
