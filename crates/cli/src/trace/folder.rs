//! A folder of traces: one of each process of a run.

use super::Refusal;
use crate::print;
use crate::table::table;
use hinterland_tape::{Head, Trace};
use hinterland_units::{ByteCount, Foreign};
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Traces that are listed for people.
const LISTED_MAX: usize = 32;
/// How the names of traces end.
const ENDING: &str = "trace";
/// What is wrong with a folder that has none.
pub const WITHOUT_TRACES: &str = "a folder without traces, whose names would end in .trace; `hinterland trace -o FOLDER/ -- PROGRAM` records one of \
                                  each process";

/// One trace of a folder.
#[derive(Serialize)]
pub struct Listed {
    /// Where it is.
    pub trace: PathBuf,
    /// The process; 0: not known.
    pub process: u32,
    /// Its parent when recording began; 0: not known.
    pub parent: u32,
    /// It was forked, and went on in its parent's program.
    pub forked: bool,
    /// By which forks it came from that program: `2.1` is the first child of its second; `?`: not known.
    pub forks: String,
    /// The program.
    pub program: String,
    /// Program and arguments; cut where they are long.
    pub command: String,
    /// Different pages.
    pub pages: u64,
    /// References that can be read.
    pub references: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Its program closed it.
    pub whole: bool,
    /// Why it cannot be read, or not to its end.
    pub damage: Option<String>,
}

impl Listed {
    fn of(path: PathBuf) -> io::Result<Listed> {
        let bytes = fs::read(&path)?;
        let mut listed = Listed {
            trace: path,
            process: 0,
            parent: 0,
            forked: false,
            forks: String::new(),
            program: String::new(),
            command: String::new(),
            pages: 0,
            references: 0,
            bytes: bytes.len() as u64,
            whole: false,
            damage: None,
        };
        match Trace::open(&bytes) {
            Ok(trace) => listed.read(&trace),
            Err(error) => listed.damage = Some(error.to_string()),
        }
        Ok(listed)
    }

    fn read(&mut self, trace: &Trace<'_>) {
        let Head { program, command, process, parent, is_forked, forks, .. } = trace.head().clone();
        self.forks = forks.to_string();
        (self.process, self.parent, self.forked, self.program, self.command) =
            (process, parent, is_forked, program, command);
        let (mut pages, mut references) = (HashSet::new(), trace.references());
        for reference in references.by_ref() {
            match reference {
                Ok(reference) => {
                    self.references += 1;
                    pages.insert((reference.region, reference.page));
                }
                Err(error) => self.damage = Some(error.to_string()),
            }
        }
        (self.pages, self.whole) = (pages.len() as u64, references.is_whole());
    }

    /// How it ended.
    fn end(&self) -> &str {
        match &self.damage {
            Some(_) => "damaged",
            None if self.whole => "whole",
            None => "not closed",
        }
    }
}

/// The traces of a folder, those of most pages first.
///
/// # Errors
/// The folder, or a file in it, cannot be read.
pub fn list(folder: &Path) -> io::Result<Vec<Listed>> {
    let paths = paths(folder)?;
    let mut traces = paths.into_iter().map(Listed::of).collect::<io::Result<Vec<_>>>()?;
    traces.sort_by(|one, other| (other.pages, &one.trace).cmp(&(one.pages, &other.trace)));
    Ok(traces)
}

/// The files of a folder that are called traces.
///
/// # Errors
/// It cannot be read.
pub fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    with_ending(folder, ENDING)
}

/// The files of a folder whose names end so; pipes, which would be waited for, sockets and devices are passed over.
///
/// # Errors
/// It cannot be read.
pub fn with_ending(folder: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // A folder, and a link that leads nowhere, are missed when they are read.
        let can_be_read = path.metadata().map_or(true, |found| found.is_file() || found.is_dir());
        if can_be_read && path.extension().is_some_and(|found| found == ending) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// A trace's bytes; of a folder, an error that says which trace to name.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !path.is_dir() {
        return fs::read(path);
    }
    Err(io::Error::new(
        io::ErrorKind::IsADirectory,
        match list(path)?.first() {
            Some(largest) => format!(
                "a folder of traces; name one of them: `hinterland trace show` lists them, and the one of most pages is {}",
                largest.trace.display()
            ),
            None => WITHOUT_TRACES.into(),
        },
    ))
}

/// Shows what is in a folder.
pub(super) fn show(folder: &Path, json: bool) -> Result<(), Refusal> {
    let traces = list(folder).map_err(Refusal::io(folder))?;
    if traces.is_empty() {
        return Err(Refusal::NoTraces { folder: folder.into() });
    }
    let written = if json {
        let json = serde_json::to_string_pretty(&traces).map_err(|error| Refusal::Words(error.to_string()))?;
        print::json(&(json + "\n"))
    } else {
        print::text(&text(&traces))
    };
    written.map(drop).map_err(Refusal::io("stdout"))
}

fn text(traces: &[Listed]) -> String {
    let names = ["trace", "process", "parent", "pages", "references", "size", "end", "command"];
    let mut rows = table(&names, 1..6);
    for of in traces.iter().take(LISTED_MAX) {
        let command = if of.command.is_empty() { &of.program } else { &of.command };
        let forked = if of.forked { format!("fork {} of ", of.forks) } else { String::new() };
        rows.add_row([
            of.trace.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            of.process.to_string(),
            of.parent.to_string(),
            of.pages.to_string(),
            of.references.to_string(),
            ByteCount(of.bytes).to_string(),
            of.end().to_owned(),
            format!("{forked}{}", Foreign(command)),
        ]);
    }
    let more = match traces.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!("{more} more: --json lists all\n"),
    };
    format!("{rows}\n{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn pipes_and_the_like_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = |name: &str| folder.path().join(name);
        let _socket = UnixListener::bind(in_folder("b.trace")).unwrap();
        fs::write(in_folder("c.trace"), "damaged").unwrap();
        fs::write(in_folder("d.tape"), "").unwrap();
        assert_eq!(paths(folder.path()).unwrap(), [in_folder("c.trace")]);
        assert_eq!(list(folder.path()).unwrap().len(), 1);
    }
}
