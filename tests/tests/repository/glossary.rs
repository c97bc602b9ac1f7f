//! The glossary's rows stand in order, and the files that it names are there.

use hinterland_tests::places;
use std::path::Path;

/// What a term is sorted by.
fn key(row: &str) -> String {
    let term = row.split('|').nth(1).unwrap_or_default().trim().to_lowercase();
    term.chars().filter(|c| c.is_ascii_alphanumeric() || *c == ' ').collect()
}

/// The files and directories that a row names, of the repository or of a crate: `pager/fault.rs` is `crates/pager/src/fault.rs`.
fn files(row: &str, is_there: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, String)> {
    let quoted = row.split('`').skip(1).step_by(2).filter_map(|name| Some((name, name.split_once('/')?)));
    // Linux has files, too: `mm/vmscan.c`.
    let ours = quoted.filter(move |(_, (part, _))| is_there(part) || is_there(&format!("crates/{part}")));
    ours.map(|(name, (part, rest))| (name, format!("crates/{part}/src/{rest}")))
}

/// What is wrong with the rows of a glossary; `is_there` says whether there is a file of that name.
fn faults(text: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let pairs = rows.windows(2).filter(|pair| key(pair[0]) > key(pair[1]));
    let mut found: Vec<String> =
        pairs.map(|pair| format!("'{}' comes before '{}'", key(pair[1]), key(pair[0]))).collect();
    for row in &rows {
        let missing = files(row, &is_there).filter(|(name, path)| !is_there(path) && !is_there(name));
        found.extend(missing.map(|(name, _)| format!("'{}' names {name}, which is not there", key(row))));
    }
    found
}

#[test]
fn terms_are_in_order_and_their_files_are_there() {
    let root = places::repository();
    let text = std::fs::read_to_string(root.join("docs/glossary.md")).expect("the glossary");
    let found = faults(&text, |path| root.join(Path::new(path)).exists());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_term_out_of_order_and_a_file_that_is_gone_are_found() {
    let row = |term: &str, file: &str| format!("| {term} | what | `{file}` |\n");
    let head = "| term | definition | source |\n|---|---|---|\n";
    let sorted = format!(
        "{head}{}{}{}",
        row("arrival", "pager/fault.rs"),
        row("ask, answer", "pager/ask.rs"),
        row("lru", "mm/x.c")
    );
    assert_eq!(
        faults(&sorted, |path| ["crates/pager", "crates/pager/src/fault.rs"].contains(&path)),
        ["'ask answer' names pager/ask.rs, which is not there"]
    );
    let wrong = format!("{head}{}{}", row("ask", "a"), row("arrival", "b"));
    assert_eq!(faults(&wrong, |_| true), ["'arrival' comes before 'ask'"]);
}
