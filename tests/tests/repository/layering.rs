//! Directory order is dependency order: a crate depends only on crates of lower levels, and the pure ones forbid `unsafe`.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use std::collections::BTreeMap;

/// The level of each crate. A new crate must be given one here.
const LEVELS: &[(u32, &[&str])] = &[
    (0, &["units", "abi"]),
    (1, &["wire", "policy", "sys", "tls"]),
    (2, &["tape", "paging", "backend", "etcd", "model"]),
    (3, &["pager", "node"]),
    (4, &["runtime", "sim"]),
    (5, &["cli", "bench", "py"]),
];

/// `abi` may use `units`: the one edge inside a level, because settings and counters are written in units.
const ALLOWED_INSIDE_A_LEVEL: &[(&str, &str)] = &[("abi", "units")];

/// Crates without `unsafe`.
const PURE: &[&str] = &["units", "wire", "tls", "etcd", "tape", "policy", "paging", "node", "sim", "model"];

/// Outside the order: they may use everything and nothing may use them, but tests the test kit.
const OUTSIDE: &[&str] = &["tests", "testkit", "fuzz", "benches"];

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo metadata describes the workspace")
}

/// What the tests of every crate may use, and nothing else.
const FOR_TESTS: &str = "hinterland-testkit";

/// The edges between the workspace's crates, without the prefix: (user, used). Tests and build scripts count too.
fn edges(metadata: &Metadata) -> Vec<(String, String)> {
    let short = |name: &str| name.strip_prefix("hinterland-").map(str::to_owned);
    let uses = |package: &cargo_metadata::Package| {
        let user = short(&package.name);
        let counts = |dependency: &&cargo_metadata::Dependency| {
            dependency.name != FOR_TESTS || dependency.kind != DependencyKind::Development
        };
        let used = package.dependencies.iter().filter(counts).filter_map(|dependency| short(&dependency.name));
        let used = used.collect::<Vec<_>>();
        used.into_iter().filter_map(move |used| Some((user.clone()?, used))).collect::<Vec<_>>()
    };
    metadata.packages.iter().flat_map(uses).collect()
}

/// What is wrong with `edges`, one line each.
fn violations(edges: &[(String, String)]) -> Vec<String> {
    let levels: BTreeMap<&str, u32> =
        LEVELS.iter().flat_map(|(level, names)| names.iter().map(move |name| (*name, *level))).collect();
    let mut found = Vec::new();
    for (user, used) in edges.iter().filter(|(user, _)| !OUTSIDE.contains(&user.as_str())) {
        match (levels.get(user.as_str()), levels.get(used.as_str())) {
            (Some(above), Some(below)) if above > below => {}
            (Some(_), Some(_)) if ALLOWED_INSIDE_A_LEVEL.contains(&(user, used)) => {}
            (Some(above), Some(below)) => {
                found.push(format!("{user} (level {above}) must not use {used} (level {below})"))
            }
            _ => found.push(format!("{user} or {used} has no level: give it one in this test and in ARCHITECTURE.md")),
        }
    }
    found
}

#[test]
fn crates_depend_only_on_lower_levels() {
    let found = violations(&edges(&metadata()));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_check_sees_upward_and_sideways_edges() {
    let edge = |user: &str, used: &str| (user.to_owned(), used.to_owned());
    assert!(violations(&[edge("pager", "backend"), edge("abi", "units"), edge("tests", "cli")]).is_empty());
    assert_eq!(violations(&[edge("backend", "pager"), edge("sys", "policy"), edge("cli", "tests")]).len(), 3);
    assert_eq!(violations(&[edge("units", "abi"), edge("new", "units")]).len(), 2);
}

#[test]
fn every_crate_has_a_level() {
    let known: Vec<&str> =
        LEVELS.iter().flat_map(|(_, names)| names.iter().copied()).chain(OUTSIDE.iter().copied()).collect();
    for package in metadata().packages {
        let name = package.name.strip_prefix("hinterland-").expect("crates are named hinterland-…").to_owned();
        assert!(known.contains(&name.as_str()), "{name} has no level: give it one here and in ARCHITECTURE.md");
    }
}

#[test]
fn pure_crates_forbid_unsafe() {
    for package in metadata().packages {
        let name = package.name.strip_prefix("hinterland-").unwrap_or_default().to_owned();
        if PURE.contains(&name.as_str()) {
            let root = package.manifest_path.with_file_name("src").join("lib.rs");
            let text = std::fs::read_to_string(&root).expect("a library has a src/lib.rs");
            let forbids = text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
            assert!(forbids, "{root} must say #![forbid(unsafe_code)]");
        }
    }
}
