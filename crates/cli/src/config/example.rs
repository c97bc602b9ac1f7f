//! `hinterland settings`: a settings file with every setting and what it means, all commented out, made from the table of settings.

use crate::error::{EXIT_REFUSED, complain};
use crate::print;
use clap::Args;
use hinterland_abi::{Form, SETTINGS, Setting, Sources};
use std::process::ExitCode;

/// `hinterland settings`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SettingsArgs {}

const EXAMPLES: &str = "\
Examples:
  mkdir -p ~/.config/hinterland && hinterland settings > ~/.config/hinterland/config.toml
  hinterland settings > job.toml && hinterland run --config job.toml -- python3 job.py

Exit code: 0, or 125 when standard output cannot be written.";

const HEAD: &str = "\
# Settings of `hinterland run`, in TOML. This file is read from
# $XDG_CONFIG_HOME/hinterland/config.toml (~/.config/hinterland/config.toml), or from where --config
# or HINTERLAND_CONFIG says. Each setting is a flag and a variable, too: --read-ahead and
# HINTERLAND_READ_AHEAD are read_ahead. A flag counts before its variable, a variable before this
# file, and this file before the default.
#
# All lines are comments: remove the # before a name to set it. Sizes are numbers with K, M, G or T
# (powers of 1024).
";

/// Columns of a comment at most, as in the head.
const COLUMNS: usize = 100;

/// Prints the file.
pub fn run(SettingsArgs {}: &SettingsArgs) -> ExitCode {
    match print::as_is(&file()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("stdout: {error}"));
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// The file.
pub fn file() -> String {
    let settings = SETTINGS.iter().filter(|setting| setting.sources == Sources::Run);
    settings.fold(HEAD.to_owned(), |text, setting| text + "\n" + &entry(setting))
}

/// What a setting means and its default, and its line, commented out: with the default, or with an example where the default is no value.
fn entry(setting: &Setting) -> String {
    let default = match (setting.default, setting.example) {
        (_, "") => "Default:".to_owned(),
        ("", _) => "Default: not set. Example:".to_owned(),
        (default, _) => format!("Default: {default}. Example:"),
    };
    let meaning = comment(&format!("{}.", setting.meaning()));
    format!("{meaning}{}#{} = {}\n", comment(&default), setting.key(), value(setting))
}

/// A setting's value, as TOML has it: yes or no, a list, a number or a text.
fn value(setting: &Setting) -> String {
    let shown = setting.shown();
    let quoted = |text: &str| format!("\"{text}\"");
    match setting.form {
        Form::Switch => shown.to_owned(),
        Form::Many(_) => format!("[{}]", shown.split(' ').map(quoted).collect::<Vec<_>>().join(", ")),
        _ if shown.parse::<u64>().is_ok() => shown.to_owned(),
        _ => quoted(shown),
    }
}

/// A text as comment lines.
fn comment(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), "#".to_owned());
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines = lines + &line + "\n";
            line = "#".to_owned();
        }
        line = line + " " + word;
    }
    lines + &line + "\n"
}
