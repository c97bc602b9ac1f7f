//! Plans: which functions, loops and allocation sites of a program are hinted, and how (Mira §4.1).
//!
//! ```text
//! hinterland plan, optimize, people ─▶ TOML ─▶ hinterland cc: JSON for the compiler's plugin, with the digest for the objects' notes
//!                                       └────▶ hinterland run: what was measured with it (`regression`)
//! ```

mod note;
mod regression;

pub use note::digests;
pub use regression::{Run, foreign, path_of, regression};

use crate::encode::hexadecimal;
use crate::error::Error;
use crate::toml_error;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;

/// The version of the format.
pub const VERSION: u32 = 1;
/// With this line begins what was measured, which ends a plan and is no part of its digest.
const MEASURED: &str = "[measured]";

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`VERSION`].
    #[serde(rename = "hinterland-plan")]
    pub version: u32,
    /// The file of the program that was profiled; empty: none was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// Its build-id, hexadecimal; empty: it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// Without a plan loops that follow indices or rows are hinted; with one, all of its functions.
    #[serde(default, rename = "function", skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
    /// Where memory is allocated.
    #[serde(default, rename = "site", skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Site>,
    /// What `hinterland optimize` measured with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// A function; loops of other functions that call it count as its own where it was inlined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// As in the source, demangled with or without its parameters, or mangled.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// As the linker has it; empty: not known. Either name will do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub symbol: String,
    /// The end of its source file's path; empty: any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Whether its loops are hinted.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub fetch: bool,
    /// Without it: what the compiler proves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict: Option<Eviction>,
    /// Only these patterns; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Pattern>,
    /// The file with code that it was seen in, for people; empty: not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// Why it is in the plan, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What differs for single loops.
    #[serde(default, rename = "loop", skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<Loop>,
}

/// One loop of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loop {
    /// Where it begins.
    pub line: u32,
    /// Whether it is hinted. Without it: as its function is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<bool>,
    /// Without it: as for its function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict: Option<Eviction>,
}

/// Where memory is allocated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The function whose call allocates.
    #[serde(deserialize_with = "name")]
    pub function: String,
    /// As the linker has it; empty: not known. Either name will do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub symbol: String,
    /// The line of that call; 0: not known.
    #[serde(default)]
    pub line: u32,
    /// The column there; 0: any.
    #[serde(default, skip_serializing_if = "is_none")]
    pub column: u32,
    /// What is done with it after a loop's walk; counts before what is said of functions. Without it: as is said there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict: Option<Eviction>,
    /// The most that it held, for people.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// How its faults followed one another, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pattern: String,
    /// The calls that led to it, the outermost last, as `function file:line`, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// Why it is in the plan, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What a plan brought: medians of some runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// From the start to the end.
    pub seconds: f64,
    /// The same of the program as it was built without hints.
    pub plain_seconds: f64,
    /// The part of its time that a thread waited for far memory, 0 to 1.
    pub waiting: f64,
    /// Faults that fetched a page.
    pub major_faults: u64,
    /// The local budget.
    pub local_bytes: u64,
    /// The far memory that was set; empty: the default.
    pub far: String,
}

/// When pages that a loop has walked leave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eviction {
    /// At once.
    Now,
    /// Before others, when room is needed.
    Soon,
    /// As the policy of the run has it.
    Never,
    /// After others: what a loop comes to again is kept while the loop runs ("dont-evict", Mira §4.4).
    Last,
}

/// How a loop's addresses follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
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

/// A function's name. Functions of C have no mangled name, so an empty one would be the name of all of them.
fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    if name.is_empty() { Err(D::Error::custom("a function's name is empty")) } else { Ok(name) }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

/// A plan as the compiler's plugin reads it (`compiler/src/plan.cpp`).
#[derive(Debug, Serialize)]
pub struct PluginPlan {
    /// See [`digest`].
    digest: String,
    functions: Vec<PluginFunction>,
    sites: Vec<PluginSite>,
}

#[derive(Debug, Serialize)]
struct PluginFunction {
    name: String,
    symbol: String,
    file: String,
    fetch: bool,
    evict: Option<Eviction>,
    patterns: Vec<Pattern>,
    loops: Vec<PluginLoop>,
}

#[derive(Debug, Serialize)]
struct PluginLoop {
    line: u32,
    fetch: Option<bool>,
    evict: Option<Eviction>,
}

#[derive(Debug, Serialize)]
struct PluginSite {
    function: String,
    symbol: String,
    line: u32,
    column: u32,
    evict: Option<Eviction>,
}

/// A plan's text, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// What it says.
    pub plan: Plan,
    /// See [`digest`].
    pub digest: String,
}

impl Written {
    /// Reads a plan.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or says what plans do not say.
    pub fn read(path: &Path) -> Result<Written, Error> {
        let refuse = |why| Error::Plan { path: path.into(), why };
        let text = std::fs::read_to_string(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        Written::parse(&text).map_err(refuse)
    }

    /// # Errors
    /// In words: where it is no plan.
    pub fn parse(text: &str) -> Result<Written, String> {
        let plan: Plan = toml::from_str(text).map_err(|error| toml_error::describe(text, &error))?;
        if plan.version != VERSION {
            return Err(format!("plans of version {} are not known here, only of version {VERSION}", plan.version));
        }
        Ok(Written { plan, digest: digest(text) })
    }

    /// What the plugin reads.
    pub fn for_plugin(self) -> PluginPlan {
        let of_loop = |one: Loop| PluginLoop { line: one.line, fetch: one.fetch, evict: one.evict };
        let of_function = |one: Function| PluginFunction {
            name: one.name,
            symbol: one.symbol,
            file: one.file,
            fetch: one.fetch,
            evict: one.evict,
            patterns: one.patterns,
            loops: one.loops.into_iter().map(of_loop).collect(),
        };
        let of_site = |one: Site| PluginSite {
            function: one.function,
            symbol: one.symbol,
            line: one.line,
            column: one.column,
            evict: one.evict,
        };
        PluginPlan {
            digest: self.digest,
            functions: self.plan.functions.into_iter().map(of_function).collect(),
            sites: self.plan.sites.into_iter().map(of_site).collect(),
        }
    }
}

impl Plan {
    /// As TOML, under `head`, which is comments.
    ///
    /// # Errors
    /// In words: it cannot be written as TOML.
    pub fn text(&self, head: &str) -> Result<String, String> {
        let with = |plan: &Plan| toml::to_string_pretty(plan).map_err(|error| format!("the plan: {error}"));
        let mut text = head.to_owned() + &with(&Plan { measured: None, ..self.clone() })?;
        if let Some(measured) = &self.measured {
            let measured = toml::to_string(measured).map_err(|error| format!("the plan: {error}"))?;
            text += &format!("\n{MEASURED}\n{measured}");
        }
        Ok(text)
    }
}

/// SHA-256 of a plan's text without what was measured, in hexadecimal digits: by this objects name the plan that they were compiled with.
pub fn digest(text: &str) -> String {
    let (before, measured) = text.split_at(text.find(&format!("\n{MEASURED}\n")).unwrap_or(text.len()));
    // Up to the next table, which may have been written below it by hand.
    let after = measured.get(1..).and_then(|measured| measured.find("\n[").map(|next| &measured[next..])).unwrap_or("");
    hexadecimal(&Sha256::new().chain_update(before).chain_update(after).finalize())
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
column = 12
evict = "now"

[[site]]
function = "make(unsigned long)"
symbol = "_Z4makem"
line = 7
evict = "last"

[[site]]
function = "main"
"#;

    #[test]
    fn the_plugin_gets_what_people_wrote_and_its_digest() {
        let json: serde_json::Value = serde_json::to_value(Written::parse(WRITTEN).unwrap().for_plugin()).unwrap();
        assert_eq!(json["functions"][0]["loops"][0]["line"], 12);
        assert!(json["functions"][0]["loops"][0]["fetch"].is_null(), "as its function is");
        assert_eq!(json["functions"][0]["patterns"][1], "indirect");
        assert_eq!(json["functions"][0]["evict"], "soon");
        assert_eq!(json["functions"][1]["fetch"], false);
        assert_eq!((&json["sites"][0]["evict"], &json["sites"][0]["column"]), (&"now".into(), &12.into()));
        assert_eq!((&json["sites"][1]["symbol"], &json["sites"][1]["evict"]), (&"_Z4makem".into(), &"last".into()));
        assert!(json["sites"][2]["evict"].is_null());
        // printf 'hinterland-plan = 1\n' | sha256sum
        let digest = Written::parse("hinterland-plan = 1\n").unwrap().digest;
        assert_eq!(digest, "04a18ec6a03b1888677c9f63201d504d4d19a07b0347f63f8143172ce7896c93");
        assert_ne!(json["digest"], digest);
    }

    #[test]
    fn what_a_plan_cannot_say_is_refused_with_its_line() {
        const LATER: &str = "line 4: unknown variant `later`, expected one of `now`, `soon`, `never`, `last`";
        for (text, expected) in [
            ("hinterland-plan = 2", "plans of version 2 are not known here, only of version 1"),
            ("", "line 1: missing field `hinterland-plan`"),
            ("hinterland-plan = 1\n[[function]]\nfile = 'a.c'\n", "line 2: missing field `name`"),
            ("hinterland-plan = 1\n[[function]]\nname = 'f'\nevict = 'later'\n", LATER),
            ("hinterland-plan = 1\n[[site]]\nfunction = 'f'\nline = -1\nevict = 'now'\n", "line 4: "),
            ("hinterland-plan = 1\n[[functoin]]\n", "line 2: unknown field `functoin`"),
            ("hinterland-plan = 1\n[[function]]\nname = ''\n", "line "),
            ("hinterland-plan = 1\n[[site]]\nfunction = ''\nline = 3\n", "line "),
            ("hinterland-plan = 1\n[[", "line 2: "),
        ] {
            let why = Written::parse(text).unwrap_err();
            assert!(why.starts_with(expected), "{text}: {why}");
        }
    }

    #[test]
    fn what_was_measured_is_no_part_of_the_digest() {
        let measured = Measured {
            seconds: 1.5,
            plain_seconds: 3.0,
            waiting: 0.25,
            major_faults: 77,
            local_bytes: 1 << 24,
            far: "compressed:4G".into(),
        };
        let plain = Written::parse(WRITTEN).unwrap().plan;
        let with = Plan { measured: Some(measured), ..plain.clone() };
        let [plain_text, text] = [&plain, &with].map(|plan| plan.text("# A head.\n").unwrap());
        assert!(text.starts_with(&plain_text) && text.len() > plain_text.len(), "{text}");
        assert_eq!(digest(&text), digest(&plain_text));
        assert_eq!(Written::parse(&text).unwrap(), Written { plan: with, digest: digest(&plain_text) });
        assert_ne!(digest(&text), digest(&text.replace("never", "soon")));
        // What stands below is part of the plan, as if it stood above.
        let function = |name| format!("\n[[function]]\nname = \"{name}\"\n");
        assert_eq!(digest(&(text.clone() + &function("last"))), digest(&(plain_text + &function("last"))));
        assert_ne!(digest(&(text.clone() + &function("last"))), digest(&(text + &function("other"))));
    }
}
