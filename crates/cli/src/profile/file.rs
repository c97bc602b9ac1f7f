//! The file of a profile: JSON, for people and for the commands that go on from it (`report`, `plan`).
//!
//! Members that a reader does not know are kept when the file is written again: other commands add theirs.

use super::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// What the first member says.
pub const FORMAT: &str = "hinterland profile";
/// What the second one says.
pub const VERSION: u64 = 1;
/// The member with what a trace says of the program's pages: features, curve and advice, as `hinterland advise --json` writes them.
pub const PAGES: &str = "pages";

/// A profile. Durations are in nanoseconds, sizes in bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProfileFile {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u64,
    /// The program that was run.
    pub program: Program,
    /// The run.
    pub run: RunPart,
    /// The files whose code was seen.
    pub modules: Vec<Module>,
    /// The functions that waited, that which waited longest first.
    pub functions: Vec<Function>,
    /// The allocations that were waited for, in the same order.
    pub sites: Vec<Site>,
    /// The functions of the stacks.
    pub frames: Vec<StackFrame>,
    /// The calls that led to waits, that which waited longest first; a sample.
    pub stacks: Vec<Stack>,
    /// What others have added.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// A program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// As it was called.
    pub name: String,
    /// Its file.
    pub path: String,
    /// Its build-id, hexadecimal; empty: it has none.
    pub build_id: String,
}

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunPart {
    /// From its start to its end.
    pub wall_ns: u64,
    /// Its budget; absent: all that was needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_bytes: Option<u64>,
    /// All faults, of all threads and processes.
    #[serde(flatten)]
    pub waits: Waits,
    /// Of the faults on the monitor path, the instruction is known of one in so many; absent: no process was on that path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_in: Option<u32>,
    /// What is not in the file, for want of room or of a place.
    pub lost: Lost,
}

/// Faults.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Waits {
    /// All.
    pub faults: u64,
    /// Those that found the page's content far.
    pub fetches: u64,
    /// Those that found a page without content.
    pub first_touches: u64,
    /// Time in which they were served.
    pub wait_ns: u64,
}

impl Waits {
    /// Adds others.
    pub fn add(&mut self, others: Waits) {
        self.faults += others.faults;
        self.fetches += others.fetches;
        self.first_touches += others.first_touches;
        self.wait_ns += others.wait_ns;
    }
}

/// What was seen and is not in the file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Lost {
    /// Faults without a function.
    pub faults: u64,
    /// Faults without a stack, of those that were to have one.
    pub stacks: u64,
    /// Allocations without a site.
    pub allocations: u64,
    /// Allocations that were not followed until they are freed: their sites hold them as if they were nothing.
    #[serde(default)]
    pub lives: u64,
    /// Faults whose thread could not be looked at.
    pub unplaced: u64,
}

/// A file with code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Module {
    /// The last part of its path.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its build-id, hexadecimal; empty: it has none.
    pub build_id: String,
    /// Why its functions have no names; absent: they have, as far as it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unnamed_because: Option<String>,
}

/// A function that waited.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Function {
    /// Its name, as its language writes it.
    pub name: String,
    /// As the linker has it; absent: its file has no name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The file that it is in.
    pub module: String,
    /// Its source file; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its faults.
    #[serde(flatten)]
    pub waits: Waits,
    /// Its part of the time in which faults were served, 0 to 1.
    pub wait_share: f64,
    /// Where in it.
    pub lines: Vec<LineWaits>,
    /// For which sites.
    pub sites: Vec<Part>,
}

/// Where in the source a function waited.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LineWaits {
    /// The source file.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function that it was written in, where the compiler has put that into this one; absent: it is this one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlined: Option<String>,
    /// The faults there.
    #[serde(flatten)]
    pub waits: Waits,
}

/// What of a function's waits a site has, or of a site's a function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The number of the site, or of the function, in its list.
    pub index: usize,
    /// The faults.
    #[serde(flatten)]
    pub waits: Waits,
}

/// A call.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// The function that makes it.
    pub function: String,
    /// As the linker has it, where that is another name and known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The file that this is in.
    pub module: String,
    /// Its source file; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column there; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Where the line is not known: bytes behind the beginning of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// An allocation in the program, by the calls that make it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Site {
    /// The calls, the innermost outside of allocators first; none: not known.
    pub calls: Vec<Call>,
    /// `heap` or `mapping`.
    pub kind: String,
    /// How often it was made.
    pub allocations: u64,
    /// All bytes that it gave.
    pub bytes: u64,
    /// The most at once.
    pub bytes_max: u64,
    /// The most that one process held at one time.
    pub held_bytes_max: u64,
    /// How long one was held, on average; absent: none was freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life_ns: Option<u64>,
    /// The faults on its memory.
    #[serde(flatten)]
    pub waits: Waits,
    /// Its part of the time in which faults were served, 0 to 1.
    pub wait_share: f64,
    /// How these followed one another: `sequential`, `strided`, `random`; `once`: too few to say, and no page came twice.
    pub pattern: String,
    /// Of them: near the one before.
    pub sequential: u64,
    /// Of them: as far from the one before as that from the one before it.
    pub strided: u64,
    /// The others.
    pub irregular: u64,
    /// Different pages that were fetched.
    pub fetched_pages: u64,
    /// Which functions waited for it.
    pub functions: Vec<Part>,
}

/// A function on a stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct StackFrame {
    /// Its name.
    pub function: String,
    /// The file that it is in.
    pub module: String,
}

/// Calls that led to waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stack {
    /// The numbers of its functions in the list of frames, the outermost first.
    pub frames: Vec<usize>,
    /// Faults.
    pub faults: u64,
    /// Time in which they were served.
    pub wait_ns: u64,
}

impl ProfileFile {
    /// Reads a profile.
    ///
    /// # Errors
    /// What is wrong with it, where, and what to do.
    pub fn read(path: &Path) -> Result<ProfileFile, Refusal> {
        let refuse = |why: String| Refusal::File { path: path.into(), why };
        let text = fs::read(path).map_err(|error| refuse(error.to_string()))?;
        ProfileFile::of(&text).map_err(refuse)
    }

    /// Reads a profile that is in memory.
    ///
    /// # Errors
    /// As above, in words.
    pub fn of(text: &[u8]) -> Result<ProfileFile, String> {
        let make = "make one with `hinterland profile -o FILE -- PROGRAM`";
        if text.is_empty() {
            return Err(format!(
                "it is empty: a run that is under way, or that was killed, has no profile yet; {make}"
            ));
        }
        let value: Value = serde_json::from_slice(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Eof => {
                format!("it is cut off at line {}, column {}; {make} again", error.line(), error.column())
            }
            _ => format!(
                "it is no profile of Hinterland's: it is not JSON (line {}, column {}); {make}",
                error.line(),
                error.column()
            ),
        })?;
        match value.get("format").and_then(Value::as_str) {
            Some(FORMAT) => {}
            Some(other) => return Err(format!("it is a file of another kind (\"{other}\"); {make}")),
            None => return Err(format!("it is no profile of Hinterland's: it has no \"format\"; {make}")),
        }
        match value.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(version) if version > VERSION => {
                return Err(format!(
                    "it has version {version}, of a newer Hinterland; this one reads {VERSION}: {make}"
                ));
            }
            version => return Err(format!("it has version {version:?}, and there is none before {VERSION}; {make}")),
        }
        let file: ProfileFile =
            serde_json::from_value(value).map_err(|error| format!("it is damaged: {error}; {make} again"))?;
        match file.wrong_number() {
            Some(list) => Err(format!("it is damaged: a number is beyond the end of its {list}; {make} again")),
            None => Ok(file),
        }
    }

    /// Of a program that did not run: what its trace says of its pages ([`PAGES`]).
    pub fn of_pages(pages: Value) -> ProfileFile {
        let name = pages["program"].as_str().unwrap_or_default().to_owned();
        let waits = Waits::default();
        ProfileFile {
            format: FORMAT.into(),
            version: VERSION,
            program: Program { name, path: String::new(), build_id: String::new() },
            run: RunPart { wall_ns: 0, local_bytes: None, waits, one_in: None, lost: Lost::default() },
            modules: Vec::new(),
            functions: Vec::new(),
            sites: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            others: Map::from_iter([(PAGES.into(), pages)]),
        }
    }

    /// The trace that says what the program's pages do, if it was made with one.
    pub fn trace(&self) -> Option<PathBuf> {
        self.others.get(PAGES)?.get("trace")?.as_str().map(PathBuf::from)
    }

    /// The list that a number of the file is beyond.
    fn wrong_number(&self) -> Option<&'static str> {
        let beyond = |parts: &[Part], len| parts.iter().any(|part| part.index >= len);
        if self.functions.iter().any(|function| beyond(&function.sites, self.sites.len())) {
            return Some("sites");
        }
        if self.sites.iter().any(|site| beyond(&site.functions, self.functions.len())) {
            return Some("functions");
        }
        let frames = self.stacks.iter().flat_map(|stack| &stack.frames);
        frames.clone().any(|frame| *frame >= self.frames.len()).then_some("frames")
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// A small one.
    pub fn example() -> Value {
        let waits = |ns: u64| json!({"faults": 10, "fetches": 8, "first_touches": 1, "wait_ns": ns});
        let with = |mut value: Value, ns: u64| {
            value.as_object_mut().unwrap().extend(waits(ns).as_object().unwrap().clone());
            value
        };
        json!({
            "format": FORMAT,
            "version": VERSION,
            "program": {"name": "./app", "path": "/work/app", "build_id": "0a0b"},
            "run": with(json!({"wall_ns": 5_000_000_000u64, "lost": Lost::default()}), 900_000),
            "modules": [],
            "functions": [
                with(json!({"name": "walk(int*)", "symbol": "_Z4walkPi", "module": "app", "file": "app.cpp", "wait_share": 0.9,
                    "lines": [with(json!({"file": "app.cpp", "line": 7}), 700_000),
                        with(json!({"file": "vector.h", "line": 90, "inlined": "at"}), 100_000)],
                    "sites": [with(json!({"index": 0}), 800_000)]}), 800_000),
                with(json!({"name": "sum", "module": "app", "wait_share": 0.1,
                    "lines": [with(json!({"file": "vector.h", "line": 90, "inlined": "at"}), 60_000)], "sites": []}), 100_000),
            ],
            "sites": [with(json!({"calls": [{"function": "make", "module": "app", "file": "app.cpp", "line": 3}], "kind": "heap",
                "allocations": 1, "bytes": 4096, "bytes_max": 4096, "held_bytes_max": 4096, "wait_share": 0.9,
                "pattern": "random", "sequential": 1, "strided": 0, "irregular": 9, "fetched_pages": 8,
                "functions": [with(json!({"index": 0}), 800_000)]}), 800_000)],
            "frames": [{"function": "main", "module": "app"}, {"function": "walk(int*)", "module": "app"},
                {"function": "step", "module": "app"}, {"function": "memcpy", "module": "libc.so.6"}],
            "stacks": [{"frames": [0, 1], "faults": 64, "wait_ns": 800_000},
                {"frames": [0, 1, 2, 3], "faults": 64, "wait_ns": 70_000}],
            "features": {"added": "by others"},
        })
    }

    fn read(value: &Value) -> Result<ProfileFile, String> {
        ProfileFile::of(value.to_string().as_bytes())
    }

    #[test]
    fn what_others_added_is_kept() {
        let file = read(&example()).unwrap();
        assert_eq!(serde_json::to_value(&file).unwrap(), example());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_what_to_do() {
        let whole = example().to_string();
        let with = |name: &str, value: Value| {
            let mut changed = example();
            changed[name] = value;
            changed.to_string()
        };
        for (text, said) in [
            (String::new(), "empty"),
            (whole[..whole.len() / 2].to_owned(), "cut off at line 1"),
            ("{}".to_owned(), "no \"format\""),
            ("[1, 2]".to_owned(), "no \"format\""),
            ("HLTRACE\0\u{1}".to_owned(), "no profile"),
            (with("format", json!("something")), "another kind (\"something\")"),
            (with("version", json!(2)), "version 2, of a newer Hinterland"),
            (with("version", json!(0)), "none before 1"),
            (with("functions", json!([{"name": "f"}])), "damaged: missing field"),
            (with("sites", json!(7)), "damaged: invalid type"),
            (with("sites", json!([])), "beyond the end of its sites"),
            (with("frames", json!([])), "beyond the end of its frames"),
        ] {
            let refused = ProfileFile::of(text.as_bytes()).unwrap_err();
            assert!(refused.contains(said) && refused.contains("hinterland profile"), "{said}: {refused}");
        }
    }
}
