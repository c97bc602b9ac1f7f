//! The tests that the specification names exist: functions marked as tests in the crate that is named, fuzz targets, files. Those of
//! the whole system, whose names are made while it runs, are looked for in the suites themselves.

use crate::files;
use hinterland_tests::{places, promises};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// Suites that look for their own names.
const SUITES: [&str; 3] = ["lifecycle", "e2e", "conformance"];
/// How names are explained.
const EXAMPLE: &str = "crate::test";

/// The names of the functions marked as tests in a source text.
fn tests_in(text: &str) -> Vec<String> {
    let (mut found, mut marked) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            marked = true;
        } else if marked && let Some((_, rest)) = line.split_once("fn ") {
            found.extend(rest.split(['(', '<']).next().map(str::to_owned));
            marked = false;
        }
    }
    found
}

/// The names of the modules inside a source text.
fn modules_in(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| line.trim().strip_prefix("mod ")?.strip_suffix(" {").map(str::to_owned))
}

/// What can be named in each crate: its tests, its modules that have some, and those that are written inside a file.
fn known() -> BTreeMap<String, HashSet<String>> {
    let mut known: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for file in files::with_ending(&[".rs"]) {
        let mut parts = file.iter().map(|part| part.to_string_lossy().into_owned());
        let krate = match parts.next().as_deref() {
            Some("crates") => parts.next().unwrap_or_default(),
            Some(other) => other.to_owned(),
            None => continue,
        };
        let text = files::text(&file);
        let names = known.entry(krate).or_default();
        names.extend(modules_in(&text));
        let tests = tests_in(&text);
        if tests.is_empty() {
            continue;
        }
        let module = file.with_extension("");
        names.extend(module.iter().rev().take(2).map(|part| part.to_string_lossy().into_owned()));
        names.extend(tests);
    }
    known
}

/// Whether what the specification calls `name` exists.
fn exists(name: &str, known: &BTreeMap<String, HashSet<String>>, root: &Path) -> bool {
    match name.split_once("::") {
        Some((krate, test)) => {
            SUITES.contains(&krate)
                || known.get(krate).is_some_and(|names| test.split("::").all(|part| names.contains(part)))
        }
        None => match name.split_once('/') {
            Some(("fuzz", target)) => root.join("fuzz/targets").join(target).with_extension("rs").exists(),
            // A source file may be written from its crate or its module on.
            _ => {
                root.join(name).exists()
                    || root.join("crates").join(name).exists()
                    || files::with_ending(&[".rs"]).iter().any(|file| file.ends_with(name))
            }
        },
    }
}

#[test]
fn every_test_that_the_specification_names_exists() {
    let (known, root, names) = (known(), places::repository(), promises::names());
    assert!(names.len() > 300, "only {} names were found", names.len());
    let missing: Vec<&String> = names.iter().filter(|name| *name != EXAMPLE && !exists(name, &known, &root)).collect();
    assert!(missing.is_empty(), "named in the specification, and not there:\n{missing:#?}");
}

#[test]
fn tests_are_told_from_other_functions() {
    let text = "fn helper() {}\n#[test]\n#[ignore = \"slow\"]\nfn one() {\n fn inner() {}\n}\n    #[test]\n    fn two<T>() {}\n";
    assert_eq!(tests_in(text), ["one", "two"]);
    assert!(modules_in("    mod one {\nmod two;\n// mod three {\n").eq(["one"]));
    let (known, root) = (known(), places::repository());
    for name in ["tests::tests_are_told_from_other_functions", "fuzz/wire", "tests/conformance/run.sh"] {
        assert!(exists(name, &known, &root), "{name}");
    }
    for name in ["tests::no_such_test", "nowhere::tests_are_told_from_other_functions", "fuzz/no", "tests/no.c"] {
        assert!(!exists(name, &known, &root), "{name}");
    }
}

/// Of each area: its promises, and how many of them are pending.
fn counted() -> Vec<(String, usize, usize)> {
    let areas = promises::documents().into_iter().filter(|path| !path.ends_with("SPECIFICATION.md"));
    areas
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a document");
            let is_row = |line: &&str| {
                let number = line.strip_prefix("| ").and_then(|rest| rest.split(' ').next()).unwrap_or("");
                number.split('.').count() == 2 && number.split('.').all(|part| part.parse::<u32>().is_ok())
            };
            let rows: Vec<&str> = text.lines().filter(is_row).collect();
            let pending = rows.iter().filter(|row| row.contains("*pending*")).count();
            (path.file_name().expect("a file").to_string_lossy().into_owned(), rows.len(), pending)
        })
        .collect()
}

#[test]
fn the_specification_counts_its_promises() {
    let text = std::fs::read_to_string(places::repository().join("SPECIFICATION.md")).expect("the specification");
    let areas = counted();
    let all: usize = areas.iter().map(|(_, promises, _)| promises).sum();
    assert!(text.contains(&format!("Numbered promises, {all} of them")), "there are {all} promises");
    for (file, promises, pending) in areas {
        let pending = if pending == 0 { String::new() } else { format!("{pending} ") };
        let row = format!("(docs/specification/{file}) | {promises} | {pending}|");
        assert!(text.contains(&row), "SPECIFICATION.md has no row with '{row}'");
    }
}
