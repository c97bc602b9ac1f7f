//! Plans: which functions, loops and allocation sites of a program are hinted, and how (Mira §4.1).
//!
//! People write and edit them as TOML; the compiler's plugin gets the same as JSON, with the digest that goes into the objects' notes.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::Path;

/// The version of the format that is read.
const VERSION: u32 = 1;

/// A plan, checked.
#[derive(Debug, PartialEq, Serialize)]
pub struct Plan {
    /// SHA-256 of the text, in hexadecimal digits.
    digest: String,
    functions: Vec<Function>,
    sites: Vec<Site>,
}

/// The file. Without a plan every loop that the compiler understands is hinted; with one, those of its functions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(rename = "hinterland-plan")]
    version: u32,
    #[serde(default, rename = "function")]
    functions: Vec<Function>,
    #[serde(default, rename = "site")]
    sites: Vec<Site>,
}

/// A function; loops of other functions that call it count as its own where it was inlined.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    /// As in the source, demangled with or without its parameters, or mangled.
    name: String,
    /// The end of its file's path.
    #[serde(default)]
    file: String,
    /// Whether its loops are hinted.
    #[serde(default = "yes")]
    fetch: bool,
    /// Without it: what the compiler proves.
    #[serde(default)]
    evict: Option<Eviction>,
    /// Only these patterns; none: all.
    #[serde(default)]
    patterns: Vec<Pattern>,
    /// What differs for single loops.
    #[serde(default, rename(deserialize = "loop"))]
    loops: Vec<Loop>,
}

/// One loop of a function.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loop {
    /// Where it begins.
    line: u32,
    #[serde(default = "yes")]
    fetch: bool,
    #[serde(default)]
    evict: Option<Eviction>,
}

/// Where memory is allocated.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Site {
    function: String,
    line: u32,
    /// What is done with it after a loop's walk; counts before what is said of functions.
    evict: Eviction,
}

/// When pages that a loop has walked leave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Eviction {
    /// At once.
    Now,
    /// Before others, when room is needed.
    Soon,
    /// As the policy of the run has it.
    Never,
}

/// How a loop's addresses follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Pattern {
    /// One element after the other.
    Sequential,
    /// One step of less than a page.
    Strided,
    /// A range for each iteration.
    Nest,
    /// Through loaded indices, hashes, or steps of a page and more.
    Indirect,
    /// Along pointers.
    Chain,
}

fn yes() -> bool {
    true
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or says what plans do not say.
    pub fn read(path: &Path) -> Result<Plan, Error> {
        let refuse = |why| Error::Plan { path: path.into(), why };
        let text = std::fs::read_to_string(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        Plan::parse(&text).map_err(refuse)
    }

    fn parse(text: &str) -> Result<Plan, String> {
        let read: Text = toml::from_str(text).map_err(|error| complaint(text, &error))?;
        if read.version != VERSION {
            return Err(format!("plans of version {} are not known here, only of version {VERSION}", read.version));
        }
        let digest = Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        });
        Ok(Plan { digest, functions: read.functions, sites: read.sites })
    }
}

/// The parser's complaint without its picture of the line.
fn complaint(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().lines().collect::<Vec<_>>().join(" ");
    match error.span() {
        Some(span) => format!("line {}: {what}", text[..span.start.min(text.len())].matches('\n').count() + 1),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = r#"
hinterland-plan = 1

[[function]]
name = "traverse"
file = "graph.cpp"
evict = "soon"
patterns = ["sequential", "indirect"]

[[function.loop]]
line = 12
evict = "never"

[[function]]
name = "Table::rehash(unsigned long)"
fetch = false

[[site]]
function = "main"
line = 30
evict = "now"
"#;

    #[test]
    fn the_plugin_gets_what_people_wrote_and_its_digest() {
        let plan = Plan::parse(WRITTEN).unwrap();
        let json: serde_json::Value = serde_json::to_value(&plan).unwrap();
        assert_eq!(json["functions"][0]["loops"][0]["line"], 12);
        assert_eq!(json["functions"][0]["patterns"][1], "indirect");
        assert_eq!(json["functions"][0]["evict"], "soon");
        assert_eq!(json["functions"][1]["fetch"], false);
        assert_eq!(json["sites"][0]["evict"], "now");
        // printf 'hinterland-plan = 1\n' | sha256sum
        let digest = Plan::parse("hinterland-plan = 1\n").unwrap().digest;
        assert_eq!(digest, "04a18ec6a03b1888677c9f63201d504d4d19a07b0347f63f8143172ce7896c93");
        assert_ne!(json["digest"], digest);
    }

    #[test]
    fn what_a_plan_cannot_say_is_refused_with_its_line() {
        for (text, expected) in [
            ("hinterland-plan = 2", "plans of version 2 are not known here, only of version 1"),
            ("", "line 1: missing field `hinterland-plan`"),
            ("hinterland-plan = 1\n[[function]]\nfile = 'a.c'\n", "line 2: missing field `name`"),
            ("hinterland-plan = 1\n[[function]]\nname = 'f'\nevict = 'later'\n", "line 4: unknown variant `later`"),
            ("hinterland-plan = 1\n[[site]]\nfunction = 'f'\nline = -1\nevict = 'now'\n", "line 4: "),
            ("hinterland-plan = 1\n[[functoin]]\n", "line 2: unknown field `functoin`"),
            ("hinterland-plan = 1\n[[", "line 2: "),
        ] {
            let why = Plan::parse(text).unwrap_err();
            assert!(why.starts_with(expected), "{text}: {why}");
        }
    }
}
