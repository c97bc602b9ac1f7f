//! The first line of a script, read as the kernel reads it.
//!
//! The line ends at the first newline or after 255 bytes; the first word is the interpreter, the rest one argument.
//! Source: `fs/binfmt_script.c`, execve(2). A file that is neither ELF nor `#!` is given to /bin/sh by execvp(3).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Bytes of the first line that the kernel looks at (`BINPRM_BUF_SIZE`).
const LINE_BYTES: u64 = 256;

/// How a file begins.
#[derive(PartialEq, Eq, Debug)]
pub enum Start {
    /// A program for the kernel's ELF loader.
    Elf,
    /// A script with an interpreter.
    Interpreter(Command),
    /// Neither.
    Plain,
}

/// An interpreter and its one argument.
#[derive(PartialEq, Eq, Debug)]
pub struct Command {
    /// The interpreter.
    pub program: OsString,
    argument: Option<OsString>,
}

impl Command {
    /// An interpreter without argument.
    pub fn plain(program: &str) -> Command {
        Command { program: program.into(), argument: None }
    }

    /// The program that `env` would start, when the interpreter is `env`.
    ///
    /// Without `-S` the kernel hands everything after `env` over as one word, so that word is the program.
    pub fn behind_env(&self) -> Option<OsString> {
        if Path::new(&self.program).file_name() != Some(OsStr::new("env")) {
            return None;
        }
        let argument = self.argument.as_ref()?.as_bytes();
        let words = match argument.strip_prefix(b"-S").or_else(|| argument.strip_prefix(b"--split-string=")) {
            Some(words) => words,
            None => return (!argument.starts_with(b"-")).then(|| OsString::from_vec(argument.to_vec())),
        };
        words
            .split(u8::is_ascii_whitespace)
            .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
            .map(|word| OsStr::from_bytes(word).to_owned())
    }
}

/// Reads how `file` begins.
///
/// # Errors
/// The file cannot be opened or read.
pub fn interpreter(file: &Path) -> io::Result<Start> {
    let mut head = Vec::new();
    File::open(file)?.take(LINE_BYTES).read_to_end(&mut head)?;
    Ok(parse(&head))
}

fn parse(head: &[u8]) -> Start {
    if head.starts_with(b"\x7fELF") {
        return Start::Elf;
    }
    let Some(line) = head.strip_prefix(b"#!") else { return Start::Plain };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let split = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (program, argument) = (&line[..split], line[split..].trim_ascii());
    if program.is_empty() {
        return Start::Plain;
    }
    Start::Interpreter(Command {
        program: OsStr::from_bytes(program).to_owned(),
        argument: (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(head: &str) -> Command {
        match parse(head.as_bytes()) {
            Start::Interpreter(command) => command,
            other => panic!("{head:?}: {other:?}"),
        }
    }

    #[test]
    fn splits_the_line_as_the_kernel_does() {
        let line = command("#! /bin/sh -e -x \nexit");
        assert_eq!(line.program, "/bin/sh");
        assert_eq!(line.argument.as_deref(), Some(OsStr::new("-e -x")));
        assert_eq!(parse(b"\x7fELF\x02"), Start::Elf);
        assert_eq!(parse(b"echo hello"), Start::Plain);
        assert_eq!(parse(b"#!\n"), Start::Plain);
        assert_eq!(parse(b""), Start::Plain);
    }

    #[test]
    fn looks_behind_env() {
        let behind = |head: &str| command(head).behind_env().map(|p| p.to_string_lossy().into_owned());
        assert_eq!(behind("#!/usr/bin/env python3\n").as_deref(), Some("python3"));
        assert_eq!(behind("#!/usr/bin/env -S PYTHONUTF8=1 python3 -u\n").as_deref(), Some("python3"));
        assert_eq!(behind("#!/usr/bin/env -Snode --harmony\n").as_deref(), Some("node"));
        assert_eq!(behind("#!/usr/bin/python3\n"), None);
        assert_eq!(behind("#!/usr/bin/env\n"), None);
    }
}
