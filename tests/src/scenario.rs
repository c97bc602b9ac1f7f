//! A scenario: one real program with its input, its command line and the places where its output appears.

use crate::process::Ended;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Something that a scenario cannot do without. A machine that lacks it skips the scenario and says so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Need {
    /// A program on the search path.
    Program(&'static str),
    /// A package in the repository's Python environment.
    Python(&'static str),
}

/// Where one scenario at one size finds its input and leaves its output.
#[derive(Clone, Debug)]
pub struct Place {
    /// Peak of anonymous memory to aim at, in bytes.
    pub size_bytes: u64,
    /// Made once by `prepare`, read-only afterwards.
    pub inputs: PathBuf,
    /// The program's working directory; empty when it starts.
    pub run: PathBuf,
}

impl Place {
    /// The same inputs, and a working directory of its own for one of several runs at a time.
    pub fn in_slot(&self, number: usize) -> Place {
        let mut run = self.run.clone().into_os_string();
        run.push(format!("-{number}"));
        Place { run: run.into(), ..self.clone() }
    }

    /// An input as an argument.
    pub fn input(&self, name: &str) -> String {
        self.inputs.join(name).to_string_lossy().into_owned()
    }
}

/// A command line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Variables to set.
    pub env: Vec<(&'static str, String)>,
}

impl Line {
    /// A command line without variables.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Line {
        Line { words: words.into_iter().map(Into::into).collect(), env: Vec::new() }
    }

    /// A script for `/bin/sh`.
    pub fn shell(script: impl Into<String>) -> Line {
        Line::new(["sh".into(), "-ec".into(), script.into()])
    }

    /// With one variable more.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Line {
        self.env.push((name, value.into()));
        self
    }

    /// The command, to be run in `directory` with its output in files there, behind `launcher` if there is one.
    pub fn command(&self, launcher: &[String], directory: &Path) -> Result<Command> {
        let words: Vec<&String> = launcher.iter().chain(&self.words).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(directory).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", directory).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdout(std::fs::File::create(directory.join(STDOUT))?);
        command.stderr(std::fs::File::create(directory.join(STDERR))?);
        Ok(command)
    }
}

/// File that the program's standard output goes to, in its working directory.
pub const STDOUT: &str = "stdout.txt";
/// File that the program's and the launcher's standard error go to.
pub const STDERR: &str = "stderr.txt";

/// One program of the list.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Name in test names and tables.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// What it cannot do without.
    pub needs: &'static [Need],
    /// Whether most of its memory is in allocations below 64 KiB, which stay near with `--heap large`.
    pub small_objects: bool,
    /// Makes the inputs in `Place::inputs`. Called once for each size.
    pub prepare: fn(&Place) -> Result<()>,
    /// The command line.
    pub command: fn(&Place) -> Line,
    /// What the harness does while the program runs (the client of a server); it must make the program end, and give up when
    /// the program has ended by itself.
    pub beside: Option<fn(&Place, &Ended) -> Result<()>>,
    /// Files in the working directory that count as output, besides the standard output.
    pub outputs: &'static [&'static str],
}

/// A `prepare` for programs that need no input.
pub fn no_input(_: &Place) -> Result<()> {
    Ok(())
}
