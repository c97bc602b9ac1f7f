//! The tests that the specification names.
//!
//! A name is written as code: `crate::test`, `lifecycle::…`, `e2e::…`, `conformance::…`, `fuzz/target`, or the path of a file;
//! `{a,b}` stands for several. One with `…` in it explains how names are written.

use crate::places;
use pulldown_cmark::{Event, Parser};
use std::path::PathBuf;

/// The documents of the specification.
pub fn documents() -> Vec<PathBuf> {
    let parts = std::fs::read_dir(places::repository().join("docs/specification")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        parts.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    found.push(places::repository().join("SPECIFICATION.md"));
    found.retain(|path| path.exists());
    found.sort();
    found
}

/// Every name of the specification, braces expanded.
pub fn names() -> Vec<String> {
    let texts = documents().into_iter().map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let mut names: Vec<String> = texts.flat_map(|text| names_in(&text)).collect();
    names.sort();
    names.dedup();
    names
}

/// The names in one text.
fn names_in(text: &str) -> Vec<String> {
    let code = Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Code(code) => Some(code.into_string()),
        _ => None,
    });
    code.filter(|code| is_name(code)).flat_map(|code| expanded(&code)).collect()
}

/// Whether code is a test's name or a path: no blanks, no sign of a setting, and a `::` or `/` in it.
fn is_name(code: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-:/{},.".contains(c);
    code.chars().all(allowed)
        && (code.contains("::") || code.contains('/'))
        && !code.contains("://")
        && !code.starts_with('/')
}

/// `a{b,c}d` is `abd` and `acd`.
pub fn expanded(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    let Some((head, (choices, tail))) = parts else { return vec![name.to_owned()] };
    choices.split(',').flat_map(|choice| expanded(&format!("{head}{}{tail}", choice.trim()))).collect()
}

/// The names under `suite` that none of `trials` bears: a trial bears its own name and every beginning of it, in whole words.
pub fn without_trial(suite: &str, trials: &[String]) -> Vec<String> {
    let begins = |trial: &String, name: &String| {
        trial.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let wanted = names().into_iter().filter(|name| name.starts_with(&format!("{suite}::")));
    wanted.filter(|name| !trials.iter().any(|trial| begins(trial, name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_expanded() {
        let text = "| 1 | `--local` holds | `pager::{a_b,c}`, `lifecycle::x::{y,z}::w`, `tests/a.{c,h}`, `fuzz/wire` | `e2e::…` `tcp://x:1`";
        let right = [
            "pager::a_b",
            "pager::c",
            "lifecycle::x::y::w",
            "lifecycle::x::z::w",
            "tests/a.c",
            "tests/a.h",
            "fuzz/wire",
        ];
        assert_eq!(names_in(text), right);
    }

    #[test]
    fn a_name_without_a_trial_is_found() {
        let wanted = names().into_iter().filter(|name| name.starts_with("lifecycle::")).collect::<Vec<_>>();
        assert!(wanted.len() > 100, "{wanted:?}");
        let mut trials: Vec<String> = wanted.iter().map(|name| format!("{name}::monitor")).collect();
        assert!(without_trial("lifecycle", &trials).is_empty());
        trials.retain(|trial| !trial.starts_with(&wanted[3]));
        assert!(without_trial("lifecycle", &trials).contains(&wanted[3]));
    }
}
