//! The settings file: TOML with the flags' names.
//!
//! `--config` (or `HINTERLAND_CONFIG`) must exist; the default place, `$XDG_CONFIG_HOME/hinterland/config.toml`, may
//! not. The working directory is not searched: a settings file that comes with foreign data must not steer a run.

use crate::error::Error;
use crate::toml_error;
use std::io::ErrorKind;
use std::path::PathBuf;

/// A settings file that was read.
pub struct SettingsFile {
    /// Where it is.
    pub path: PathBuf,
    table: toml::Table,
}

impl SettingsFile {
    /// The text of a setting, as a flag or variable would give it.
    pub fn get(&self, name: &str) -> Option<String> {
        self.table.get(name).and_then(text)
    }
}

/// A value as text: lists become words, numbers and truth values their spelling. `None`: no setting has such a value.
fn text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Array(items) => {
            let words: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            Some(words?.join(" "))
        }
        _ => None,
    }
}

/// Reads the settings file, if there is one: `named`, or that in the default place. `names` are the settings that it may hold.
pub fn read(
    named: Option<PathBuf>,
    env: impl Fn(&str) -> Option<String>,
    names: &[String],
) -> Result<Option<SettingsFile>, Error> {
    let (path, required) = match named {
        Some(path) => (path, true),
        None => match default_path(env) {
            Some(path) => (path, false),
            None => return Ok(None),
        },
    };
    let refuse = |why: String| Error::ConfigFile { path: path.clone(), why };
    let content = match std::fs::read_to_string(&path) {
        Ok(content) => content,
        // The default place may belong to somebody else: under sudo -E, or a HOME that was inherited.
        // And HOME=/dev/null is how accounts of services have none.
        Err(error)
            if !required
                && matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
                ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(refuse(format!("the settings file cannot be read: {error}"))),
    };
    let table: toml::Table = content
        .parse()
        .map_err(|error: toml::de::Error| refuse(format!("is not TOML: {}", toml_error::describe(&content, &error))))?;
    for (name, value) in &table {
        if !names.contains(name) {
            return Err(refuse(format!("unknown setting '{name}'; choose from {}", names.join(", "))));
        }
        if text(value).is_none() {
            return Err(refuse(format!(
                "'{name}' is a {}; write a text, a number or a list of texts",
                value.type_str()
            )));
        }
    }
    Ok(Some(SettingsFile { path, table }))
}

/// Relative paths count for nothing (XDG Base Directory Specification): no file of the working directory is a setting.
fn default_path(env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let directory = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(base.join("hinterland/config.toml"))
}
