//! The glossary's rows stand in order, and the files that it names are there, with the names of code that it places in them.

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

/// The names of code that a row places in a file, each with that: `` `SWAP_CACHE_SHARE` in `paging/account.rs` ``,
/// `` `pager/pages/mod.rs` (`fatal`) ``.
fn names(row: &str) -> Vec<(&str, &str)> {
    // Every second part is quoted.
    let parts: Vec<&str> = row.split('`').collect();
    let quoted =
        parts.windows(3).skip(1).step_by(2).filter(|window| window[0].contains('/') != window[2].contains('/'));
    quoted
        .filter_map(|window| match window[1] {
            " in " => Some((window[0], window[2])),
            " (" => Some((window[2], window[0])),
            _ => None,
        })
        .collect()
}

/// What is wrong with the rows of a glossary; `is_there` says whether there is a file of that name, `has` whether it has a word.
fn faults(text: &str, is_there: impl Fn(&str) -> bool, has: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let pairs = rows.windows(2).filter(|pair| key(pair[0]) > key(pair[1]));
    let mut found: Vec<String> =
        pairs.map(|pair| format!("'{}' comes before '{}'", key(pair[1]), key(pair[0]))).collect();
    for row in &rows {
        let missing = files(row, &is_there).filter(|(name, path)| !is_there(path) && !is_there(name));
        found.extend(missing.map(|(name, _)| format!("'{}' names {name}, which is not there", key(row))));
        for (name, file) in names(row) {
            let word = name.rsplit("::").next().unwrap_or(name);
            if files(row, &is_there).any(|(other, path)| other == file && !has(&path, word) && !has(file, word)) {
                found.push(format!("'{}' places {name} in {file}, which does not have it", key(row)));
            }
        }
    }
    found
}

/// Whether a text has a word.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|other| other == word)
}

#[test]
fn terms_are_in_order_and_their_files_are_there() {
    let root = places::repository();
    let text = std::fs::read_to_string(root.join("docs/glossary.md")).expect("the glossary");
    let has = |path: &str, word: &str| std::fs::read_to_string(root.join(path)).is_ok_and(|text| has_word(&text, word));
    assert!(names(&text).len() > 20, "names of code are seen: {:?}", names(&text));
    let found = faults(&text, |path| root.join(Path::new(path)).exists(), has);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_term_out_of_order_and_a_file_or_a_name_that_is_gone_are_found() {
    let row = |term: &str, file: &str| format!("| {term} | what | `{file}` |\n");
    let head = "| term | definition | source |\n|---|---|---|\n";
    let there = ["crates/pager", "crates/pager/src/fault.rs"];
    let is_there = |path: &str| there.contains(&path);
    let has = |path: &str, word: &str| path == there[1] && has_word("fn serve() { MAX::of(1) }", word);
    let sorted = format!(
        "{head}{}{}{}",
        row("arrival", "pager/fault.rs"),
        row("ask, answer", "pager/ask.rs"),
        row("lru", "mm/x.c")
    );
    assert_eq!(faults(&sorted, is_there, has), ["'ask answer' names pager/ask.rs, which is not there"]);
    let wrong = format!("{head}{}{}", row("ask", "a"), row("arrival", "b"));
    assert_eq!(faults(&wrong, |_| true, has), ["'arrival' comes before 'ask'"]);
    let rows = "| a | `MAX` in `pager/fault.rs` | `pager/fault.rs` (`Fault::serve`) |\n\
                | b | `MIN` in `pager/fault.rs` | Linux `mm/x.c`; `pager/fault.rs` (`MA`) |\n";
    assert_eq!(
        faults(&format!("{head}{rows}"), is_there, has),
        [
            "'b' places MIN in pager/fault.rs, which does not have it",
            "'b' places MA in pager/fault.rs, which does not have it"
        ]
    );
}
