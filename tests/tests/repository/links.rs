//! Relative links in every document lead to a file or directory, and anchors to a heading of it. Sources that a document names are there.

use crate::files;
use hinterland_tests::places;
use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The destinations of all links and pictures of a text. One whose label is defined nowhere is no link to the parser: it stays
/// text, as a reader would see it.
fn destinations(text: &str) -> Vec<String> {
    let link = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
        _ => None,
    };
    Parser::new(text).filter_map(link).collect()
}

/// The anchors of a text's headings, as GitHub names them: small letters, digits, `-` and `_`, a blank as `-`; a repeated one
/// gets a number.
fn anchors(text: &str) -> HashSet<String> {
    let (mut found, mut heading): (HashSet<String>, Option<String>) = (HashSet::new(), None);
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let plain = slug(&heading.take().unwrap_or_default());
                let numbered = (1..).map(|number| format!("{plain}-{number}"));
                let name = std::iter::once(plain.clone()).chain(numbered).find(|name| !found.contains(name));
                found.extend(name);
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            _ => {}
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Why `link` in the document `from` leads nowhere, if so. Links to other hosts are not looked at.
fn broken(root: &Path, from: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let file = match path {
        "" => root.join(from),
        _ => root.join(from.parent().unwrap_or(Path::new(""))).join(path),
    };
    let Ok(file) = file.canonicalize() else {
        return Some(format!("{}: {link}: there is no such file", from.display()));
    };
    if !file.starts_with(root) {
        return Some(format!("{}: {link}: leads out of the repository", from.display()));
    }
    let anchor = anchor.filter(|_| file.extension().is_some_and(|ending| ending == "md"))?;
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    (!anchors(&text).contains(anchor)).then(|| format!("{}: {link}: no such heading there", from.display()))
}

/// Decisions name the files of their day.
const HISTORY: &str = "docs/decisions";

/// The sources in Rust that code spans of a text name.
fn named_sources(text: &str) -> Vec<String> {
    let source = |event| match event {
        Event::Code(name) if name.ends_with(".rs") && !name.contains([' ', '{', '*']) => Some(name.into_string()),
        _ => None,
    };
    Parser::new(text).filter_map(source).collect()
}

/// Whether one of the sources has that name, which may be its end: `pager/fault.rs` and `fault.rs` are `crates/pager/src/fault.rs`.
fn has_source(sources: &[PathBuf], name: &str) -> bool {
    let of_a_crate = name.split_once('/').map(|(part, rest)| PathBuf::from(format!("crates/{part}/src/{rest}")));
    sources.iter().any(|source| source.ends_with(name) || Some(source) == of_a_crate.as_ref())
}

#[test]
fn relative_links_lead_somewhere() {
    let root = places::repository().canonicalize().expect("the repository is there");
    let (mut seen, mut wrong) = (0, Vec::new());
    for document in files::with_ending(&[".md"]) {
        for link in destinations(&files::text(&document)) {
            seen += 1;
            wrong.extend(broken(&root, &document, &link));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "only {seen} links were found");
}

#[test]
fn sources_that_documents_name_are_there() {
    let sources = files::with_ending(&[".rs"]);
    let (mut seen, mut missing) = (0, Vec::new());
    for document in files::with_ending(&[".md"]).iter().filter(|document| !document.starts_with(HISTORY)) {
        let named = named_sources(&files::text(document));
        seen += named.len();
        let absent = named.into_iter().filter(|name| !has_source(&sources, name));
        missing.extend(absent.map(|name| format!("{}: {name}", document.display())));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(seen > 500, "only {seen} names were found");
}

#[test]
fn names_of_sources_that_are_gone_are_seen() {
    let text = "| `pager/fault.rs`, `fault.rs` | `src/fault.rs` |\n\n`rustc -O app.rs`, `{a,b}.rs`, `pager/gone.rs`\n\n\
                ```\nblock.rs\n```\n";
    let named = named_sources(text);
    assert_eq!(named, ["pager/fault.rs", "fault.rs", "src/fault.rs", "pager/gone.rs"]);
    let sources = [PathBuf::from("crates/pager/src/fault.rs")];
    let found: Vec<bool> = named.iter().map(|name| has_source(&sources, name)).collect();
    assert_eq!(found, [true, true, true, false]);
    assert!(!has_source(&sources, "ault.rs"), "a name ends a path at a directory");
}

#[test]
fn broken_links_are_seen() {
    let root = places::repository().canonicalize().expect("the repository is there");
    let broken = |link: &str| broken(&root, &PathBuf::from("docs/glossary.md"), link);
    for link in ["../README.md", "../Cargo.toml", ".", "https://example.org/x", "../CONTRIBUTING.md#contributing"] {
        assert_eq!(broken(link), None);
    }
    for link in ["README.md", "../README.md#no-such-heading", "../../../../../etc/passwd", "#no-such-heading"] {
        assert!(broken(link).is_some(), "{link}");
    }
    let text =
        "# A `b` c\n\n[one](x.md), ![two](y.svg)\n[three][there]\n\n`[no](code)`\n\n[there]: z.md#q\n\n## A b c\n";
    assert_eq!(destinations(text), ["x.md", "y.svg", "z.md#q"]);
    assert_eq!(anchors(text), HashSet::from(["a-b-c", "a-b-c-1"].map(String::from)));
}
