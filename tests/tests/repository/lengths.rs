//! What readers come to first stays short: README and guide have few lines, none of them long but in tables and code, and the guide's index
//! names each of its pages.

use crate::files;
use std::path::Path;

const LINES_MAX: usize = 150;
const COLUMNS_MAX: usize = 140;
const INDEX: &str = "docs/guide/README.md";

fn is_short(document: &Path) -> bool {
    document == Path::new("README.md") || document.starts_with("docs/guide")
}

/// What is too long in a document, blocks of code that are not whole, and tables whose first lines are one.
fn too_long(text: &str) -> Vec<String> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_fence && line.trim_start().contains(' ') {
            found.push(format!("line {number} has a block of code and its fence"));
        }
        if line.contains("|---|") && line.contains(|c: char| !matches!(c, '|' | '-')) {
            found.push(format!("line {number} has the head of a table and more"));
        }
        let columns = line.chars().count();
        if !is_code && !is_fence && !line.starts_with('|') && columns > COLUMNS_MAX {
            found.push(format!("line {number} has {columns} columns, more than {COLUMNS_MAX}"));
        }
    }
    found.extend(is_code.then(|| "its last block of code has no end".to_owned()));
    let lines = text.lines().count();
    found.extend((lines > LINES_MAX).then(|| format!("it has {lines} lines, more than {LINES_MAX}")));
    found
}

#[test]
fn readme_and_guide_are_short() {
    let documents: Vec<_> = files::with_ending(&[".md"]).into_iter().filter(|document| is_short(document)).collect();
    assert!(documents.len() > 10, "{documents:?}");
    let found = documents.iter().flat_map(|document| {
        too_long(&files::text(document)).into_iter().map(move |what| format!("{}: {what}", document.display()))
    });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_guides_index_names_each_page() {
    let index = files::text(Path::new(INDEX));
    for page in files::with_ending(&[".md"]).iter().filter(|page| page.starts_with("docs/guide")) {
        let name = page.file_name().expect("a file").to_string_lossy();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "{INDEX} does not name {name}");
    }
}

#[test]
fn long_lines_and_long_documents_are_seen() {
    let long = "x".repeat(COLUMNS_MAX + 1);
    let short = format!("{}\n| {long} |\n```\n{long}\n```\n", "x".repeat(COLUMNS_MAX));
    assert!(too_long(&short).is_empty());
    assert_eq!(too_long(&format!("{short}{long}\n")).len(), 1);
    assert_eq!(too_long("``` a command ```\n```\n").len(), 1);
    assert_eq!(too_long("```\na command\n").len(), 1);
    assert!(too_long("| a | b |\n|---|---|\n| c | d |\n").is_empty());
    assert_eq!(too_long("| a | b | |---|---| | c | d |\n").len(), 1);
    assert!(too_long(&"x\n".repeat(LINES_MAX)).is_empty());
    assert_eq!(too_long(&"x\n".repeat(LINES_MAX + 1)).len(), 1);
}
