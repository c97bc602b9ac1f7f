//! Flags, environment and settings file, merged: of each setting the value that counts, and where it was written.

use super::file;
use crate::args::RunArgs;
use crate::error::Error;
use crate::file_magic;
use hinterland_abi::{Form, LEDGER_MAGIC, SETTINGS, Setting, Sources, variables};
use std::env::VarError;
use std::path::PathBuf;

/// A value and where it was written.
pub struct Found {
    /// The value.
    pub text: String,
    /// The flag, the variable, or the file and its key.
    pub origin: String,
}

/// The sources, merged: at most one value for each variable.
pub struct Merged {
    found: Vec<(&'static str, Found)>,
    /// Variables that were put aside.
    pub aside: Vec<&'static str>,
    /// The settings file, if there is one.
    pub file: Option<PathBuf>,
}

impl Merged {
    /// What was written for a setting.
    pub fn get(&self, variable: &str) -> Option<&Found> {
        self.found.iter().find(|(name, _)| *name == variable).map(|(_, found)| found)
    }

    /// Its value.
    pub fn text(&self, variable: &str) -> Option<&str> {
        self.get(variable).map(|found| found.text.as_str())
    }

    /// Where it was written; nowhere: its variable.
    pub fn origin(&self, variable: &str) -> String {
        self.get(variable).map_or_else(|| variable.to_owned(), |found| found.origin.clone())
    }

    /// Whether a flag says it.
    pub fn is_flag(&self, variable: &str) -> bool {
        self.get(variable).is_some_and(|found| found.origin.starts_with("--"))
    }

    /// Refuses a setting where it was written.
    pub fn refuse(&self, variable: &str, why: impl ToString) -> Error {
        Error::Setting { origin: self.origin(variable), why: why.to_string() }
    }
}

/// Settings that limit each other. In a run within a run, a flag for one of them puts aside what variables say of the others, where both together
/// are refused.
pub const TOGETHER: [&[&str]; 5] = [
    &[variables::LOCAL, variables::RAM],
    &[variables::FAR, variables::REPLICAS],
    &[variables::GRANULARITY, variables::BLOCK],
    &[variables::READ_AHEAD, variables::PREFETCH_CACHE],
    &[variables::TLS, variables::TLS_CA, variables::KEY_FILE],
];

/// Whether a path leads to the ledger of a run that goes on.
pub fn is_ledger(path: &str) -> bool {
    file_magic::of(path).map(u64::from_le_bytes) == Some(LEDGER_MAGIC)
}

/// Merges flags, environment and file; of the environment, what is in one of the `groups` with a flag is put aside.
pub fn merge(
    args: &RunArgs,
    variable: &impl Fn(&str) -> Result<String, VarError>,
    groups: &[&[&str]],
) -> Result<Merged, Error> {
    let env = |name: &str| match variable(name) {
        Err(VarError::NotUnicode(_)) => Err(Error::Setting {
            origin: name.into(),
            why: "is not UTF-8; write its value in UTF-8, or unset it".into(),
        }),
        // An empty one counts as unset.
        value => Ok(value.ok().filter(|value| !value.is_empty())),
    };
    let of_a_run = || SETTINGS.iter().filter(|setting| setting.sources == Sources::Run);
    let keys: Vec<String> = of_a_run().map(Setting::key).collect();
    let named = match args.settings.value(variables::CONFIG) {
        Some("") => return Err(Error::Setting { origin: "--config".into(), why: EMPTY.into() }),
        Some(path) => Some(path.into()),
        None => env(variables::CONFIG)?.map(PathBuf::from),
    };
    let is_flag = |variable: &&str| !args.settings.values(variable).is_empty();
    let is_aside = |variable| groups.iter().any(|group| group.contains(&variable) && group.iter().any(is_flag));
    let file = file::read(named, |name| env(name).ok().flatten(), &keys)?;
    let (mut all, mut aside) = (Vec::new(), Vec::new());
    for setting in of_a_run() {
        let found = match flag(args, setting)? {
            Some(text) => Some(Found { text, origin: setting.flag() }),
            None => env(setting.variable)?
                .filter(|_| {
                    let is_aside = is_aside(setting.variable);
                    aside.extend(is_aside.then_some(setting.variable));
                    !is_aside
                })
                .map(|text| Found { text, origin: setting.variable.into() })
                .or_else(|| {
                    let (file, key) = (file.as_ref()?, setting.key());
                    Some(Found { text: file.get(&key)?, origin: format!("{}: {key}", file.path.display()) })
                }),
        };
        all.extend(found.map(|found| (setting.variable, found)));
    }
    Ok(Merged { found: all, aside, file: file.map(|file| file.path) })
}

/// What is wrong with a flag without a value.
const EMPTY: &str = "is empty; leave the flag out or give it a value";

/// A flag's text. An empty value is a mistake here, whereas an empty variable counts as unset.
fn flag(args: &RunArgs, setting: &Setting) -> Result<Option<String>, Error> {
    let values = args.settings.values(setting.variable);
    let refuse = |why: String| Err(Error::Setting { origin: setting.flag(), why });
    let blank = |value: &&String| matches!(setting.form, Form::Many(_)) && value.contains(char::is_whitespace);
    if let Some(value) = values.iter().find(blank) {
        return refuse(format!(
            "'{value}' contains a space; give each tier its own {}, and write %20 for a blank in a path",
            setting.flag()
        ));
    }
    if values.iter().any(String::is_empty) {
        return refuse(EMPTY.into());
    }
    Ok((!values.is_empty()).then(|| values.join(" ")))
}
