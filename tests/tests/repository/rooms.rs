//! The rooms of a crate: its modules have an order, too, and those of a large module of it. A module uses those of its own layer or of
//! lower ones, and none uses itself by way of another.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A crate, or a module of one, whose modules have layers: the lowest first, each with its name. A new module must be given one here.
struct Building {
    /// The crate.
    name: &'static str,
    /// The module whose modules these are; `None`: the crate's own.
    inside: Option<&'static str>,
    layers: &'static [(&'static str, &'static [&'static str])],
}

const BUILDINGS: &[Building] = &[
    Building {
        name: "pager",
        inside: None,
        layers: &[
            ("system", &["sys"]),
            (
                "values",
                &[
                    "backoff",
                    "state",
                    "slot",
                    "fault_path",
                    "watch",
                    "proportional_share",
                    "forward_progress",
                    "monitor_affinity",
                    "own_processors",
                ],
            ),
            ("waits", &["blocked", "decisions", "points", "waiters", "thread_state", "own_threads"]),
            ("tables", &["kernel", "staging", "account", "policy_lock", "hint_ring", "page_counts", "pin", "wp_range"]),
            ("pages", &["pages", "granules", "scratch"]),
            ("memory", &["evictor_waker", "retained_copies", "far_memory", "shared_budget", "local_memory"]),
            ("reclaim", &["copy_out", "evict_hints", "departure", "tracer", "write_back", "reclaim"]),
            ("prefetching", &["prefetch_driver", "prefetch_cache", "read_ahead"]),
            ("faults", &["fault", "inline_fault", "pinning"]),
            ("threads", &["pin_requests", "maintenance", "report", "evictor", "evictor_start", "monitor"]),
            ("calls", &["range_calls", "interval", "hints", "fork"]),
            ("pager", &["config", "pager"]),
            ("tests", &["races", "runs", "interleavings"]),
        ],
    },
    Building {
        name: "backend",
        inside: None,
        layers: &[
            (
                "contract",
                &["node_error", "contract", "counters", "shard", "sync", "mapping", "same_filled", "modelled_link"],
            ),
            ("backends", &["reference", "samples", "paths", "codec", "compressed", "file", "node", "sealed", "coded"]),
            ("around", &["decorate", "link_compression"]),
            ("by URL", &["url", "open"]),
        ],
    },
    Building {
        name: "backend",
        inside: Some("node"),
        layers: &[
            ("values", &["limits", "shared_rng", "recall_request", "link_stats", "health", "slots"]),
            ("connections", &["channel", "lane", "lanes"]),
            ("links", &["link_estimate", "views", "member", "link", "links"]),
            ("slabs", &["table", "slabs"]),
            ("slots", &["placement", "allocation"]),
            ("loads and stores", &["transfer", "link_request", "hedge", "load", "store", "patch"]),
            ("maintenance", &["returns", "membership", "pings", "report", "recalls", "rebuild", "maintenance"]),
            ("pool", &["pool"]),
        ],
    },
];

/// Who uses whom, by module.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// The files below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("a crate has sources").map(|entry| entry.expect("it can be read").path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The module that a file below `src` is, as a path from the crate's root.
fn module_of(file: &Path, src: &Path) -> Vec<String> {
    let path = file.strip_prefix(src).expect("the file is below").with_extension("");
    let mut path: Vec<String> = path.iter().map(|part| part.to_str().expect("names are ASCII").to_owned()).collect();
    path.pop_if(|last| last == "mod" || last == "lib");
    path
}

fn tokens(file: &Path) -> TokenStream {
    let text = std::fs::read_to_string(file).expect("a source file can be read");
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Calls `found` with each path that begins at the crate's root, as far as it is written out. `here`: the module of `tokens`.
fn paths_from_root(tokens: TokenStream, here: &[String], found: &mut impl FnMut(&[String])) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "crate" || word == "super" => {
                let up = tokens[at..].chunks(3).take_while(|part| part[0].to_string() == "super").count();
                let mut path =
                    if word == "crate" { Vec::new() } else { here[..here.len().saturating_sub(up)].to_vec() };
                at += if word == "crate" { 1 } else { 3 * up - 2 };
                while let [TokenTree::Punct(one), TokenTree::Punct(two), rest, ..] = &tokens[at..]
                    && (one.as_char(), two.as_char()) == (':', ':')
                {
                    at += 3;
                    match rest {
                        TokenTree::Ident(word) => path.push(word.to_string()),
                        TokenTree::Group(group) => branches(group.stream(), &path, found),
                        _ => {}
                    }
                }
                found(&path);
            }
            // A module inside the file.
            TokenTree::Ident(word) if word == "mod" => {
                if let [TokenTree::Ident(name), TokenTree::Group(body), ..] = &tokens[at + 1..] {
                    let inside: Vec<String> = here.iter().cloned().chain([name.to_string()]).collect();
                    paths_from_root(body.stream(), &inside, found);
                    at += 2;
                }
                at += 1;
            }
            TokenTree::Group(group) => {
                paths_from_root(group.stream(), here, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// The first names of the branches of `use path::{…}`.
fn branches(group: TokenStream, path: &[String], found: &mut impl FnMut(&[String])) {
    let mut begins = true;
    for token in group {
        match &token {
            TokenTree::Ident(word) if begins => {
                found(&path.iter().cloned().chain([word.to_string()]).collect::<Vec<_>>());
                begins = false;
            }
            TokenTree::Punct(mark) => begins = mark.as_char() == ',',
            _ => begins = false,
        }
    }
}

/// Names that the root of a crate takes from its modules: by name, the module.
fn reexports(root: TokenStream) -> BTreeMap<String, String> {
    let tokens: Vec<TokenTree> = root.into_iter().collect();
    let mut names = BTreeMap::new();
    for part in tokens.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';')) {
        let Some(at) = part.iter().position(|token| token.to_string() == "use") else { continue };
        let mut words = Vec::new();
        let mut flat = |token: &TokenTree| match token {
            TokenTree::Ident(word) => words.push(word.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                words.extend(group.stream().into_iter().filter_map(|inner| match inner {
                    TokenTree::Ident(word) => Some(word.to_string()),
                    _ => None,
                }));
            }
            _ => {}
        };
        part[at + 1..].iter().for_each(&mut flat);
        if let Some((module, taken)) = words.split_first() {
            names.extend(taken.iter().map(|name| (name.clone(), module.clone())));
        }
    }
    names
}

/// The edges between the modules of a crate with sources in `src`, or between those of its module `inside`.
fn edges(src: &Path, inside: Option<&str>) -> Edges {
    let (folder, root) = match inside {
        None => (src.to_owned(), src.join("lib.rs")),
        Some(module) => (src.join(module), src.join(module).join("mod.rs")),
    };
    let depth = usize::from(inside.is_some());
    let files = files(&folder);
    let top = |file: &PathBuf| module_of(file, src).into_iter().nth(depth);
    let mut edges: Edges = files.iter().filter_map(top).map(|module| (module, BTreeSet::new())).collect();
    let known: BTreeSet<String> = edges.keys().cloned().collect();
    let (taken_by_crate, taken) = (reexports(tokens(&src.join("lib.rs"))), reexports(tokens(&root)));
    for file in &files {
        let module = module_of(file, src);
        // The root uses all of them.
        let Some(user) = module.get(depth) else { continue };
        paths_from_root(tokens(file), &module, &mut |path| {
            // By way of the crate's root, too, a name of the module is one of it.
            let is_there = |first: &&String| taken_by_crate.get(*first).map(String::as_str) == inside;
            let name = match (inside, path) {
                (None, _) => path.first(),
                (Some(module), [first, rest @ ..]) if first == module => rest.first(),
                (Some(_), [first, ..]) => Some(first).filter(is_there),
                (Some(_), []) => None,
            };
            let Some(first) = name else { return };
            let used = if known.contains(first) { first } else { taken.get(first).unwrap_or(first) };
            if used != user {
                edges.get_mut(user).expect("each module is known").insert(used.clone());
            }
        });
    }
    edges
}

/// What is wrong with the modules of a crate that has these layers, one line each.
fn violations(layers: &[(&str, &[&str])], edges: &Edges) -> Vec<String> {
    let layer_of: BTreeMap<&str, usize> =
        (0..).zip(layers).flat_map(|(at, (_, modules))| modules.iter().map(move |module| (*module, at))).collect();
    let mut found = Vec::new();
    for (user, used) in edges.iter().flat_map(|(user, all)| all.iter().map(move |used| (user, used))) {
        match (layer_of.get(user.as_str()), layer_of.get(used.as_str())) {
            (Some(above), Some(below)) if above >= below => {}
            (Some(above), Some(below)) => {
                let (above, below) = (layers[*above].0, layers[*below].0);
                found.push(format!("{user} (layer “{above}”) must not use {used} (layer “{below}”)"));
            }
            _ => found.push(format!("{user} uses {used}: one of them has no layer")),
        }
    }
    found.extend(
        edges
            .keys()
            .filter(|module| !layer_of.contains_key(module.as_str()))
            .map(|module| format!("{module} has no layer")),
    );
    found.extend(cycle(edges).map(|modules| format!("a cycle: {}", modules.join(" → "))));
    found
}

/// Modules each of which uses the next one, and the last one the first.
fn cycle(edges: &Edges) -> Option<Vec<&str>> {
    let mut left: BTreeMap<&str, &BTreeSet<String>> = edges.iter().map(|(user, used)| (user.as_str(), used)).collect();
    // A module that uses none of those that are left is in no cycle.
    while let Some(module) =
        left.iter().find(|(_, used)| !used.iter().any(|one| left.contains_key(one.as_str()))).map(|(module, _)| *module)
    {
        left.remove(module);
    }
    let mut path = vec![*left.keys().next()?];
    loop {
        let next = left[path[path.len() - 1]].iter().find(|used| left.contains_key(used.as_str()))?;
        if let Some(at) = path.iter().position(|module| module == next) {
            return Some(path.split_off(at));
        }
        path.push(next);
    }
}

#[test]
fn modules_use_lower_layers_and_there_is_no_cycle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for building in BUILDINGS {
        let edges = edges(&crates.join(building.name).join("src"), building.inside);
        let name = building.inside.map_or_else(String::new, |module| format!("::{module}"));
        let name = format!("{}{name}", building.name);
        assert!(edges.values().flatten().count() > edges.len(), "{name}: its edges are seen");
        let found = violations(building.layers, &edges);
        assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
    }
}

#[test]
fn paths_are_seen_however_they_are_written() {
    let text = "use crate::a::{B, c::D}; use crate::{Name, e::F}; mod tests { use super::*; use super::super::g::H; \
                fn f() { crate::i::j(); println!(\"{}\", crate::k::L); } } /// crate::no\n use super::m::N;";
    let mut seen = Vec::new();
    let here = ["file".to_owned()];
    paths_from_root(text.parse().unwrap(), &here, &mut |path| seen.push(path.first().cloned().unwrap_or_default()));
    seen.retain(|name| !name.is_empty() && name != "file");
    assert_eq!(seen, ["a", "a", "a", "Name", "e", "g", "i", "k", "m"]);
    let taken = reexports("mod a; pub use a::{B, C as D}; pub use e::F;".parse().unwrap());
    assert_eq!((taken["B"].as_str(), taken["D"].as_str(), taken["F"].as_str()), ("a", "a", "e"));
}

#[test]
fn modules_inside_a_module_are_seen_by_every_way_to_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let src = folder.path();
    std::fs::create_dir(src.join("node")).expect("a folder");
    let files = [
        ("lib.rs", "mod node; mod sync; pub use node::{Pool, Secured};"),
        ("sync.rs", "use crate::node::Pool;"),
        ("node/mod.rs", "mod low; mod high; mod pool; pub use low::Secured; pub use pool::Pool; pub struct Here;"),
        ("node/low.rs", "use crate::sync::lock; use super::Here; mod tests { use super::super::high::Links; }"),
        ("node/high.rs", "use crate::Pool; use crate::node::low;"),
        ("node/pool.rs", "use super::Secured; use super::pool::Pool; use crate::Location;"),
    ];
    files.iter().for_each(|(file, text)| std::fs::write(src.join(file), text).expect("it can be written"));
    let seen: Vec<String> = edges(src, Some("node"))
        .iter()
        .flat_map(|(user, all)| all.iter().map(move |used| format!("{user} {used}")))
        .collect();
    assert_eq!(seen, ["high low", "high pool", "low Here", "low high", "pool low"]);
    assert_eq!(edges(src, None)["sync"].iter().collect::<Vec<_>>(), ["node"]);
}

#[test]
fn upward_edges_and_cycles_are_violations() {
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges = Edges::new();
        for (user, used) in pairs {
            edges.entry((*user).to_owned()).or_default().insert((*used).to_owned());
            edges.entry((*used).to_owned()).or_default();
        }
        edges
    };
    let layers: &[(&str, &[&str])] = &[("low", &["a", "b"]), ("high", &["c", "d", "e"])];
    assert!(violations(layers, &edges(&[("c", "a"), ("d", "c"), ("b", "a")])).is_empty());
    assert_eq!(violations(layers, &edges(&[("a", "c")])).len(), 1);
    assert_eq!(violations(layers, &edges(&[("c", "d"), ("d", "e"), ("e", "c"), ("c", "a")])).len(), 1);
    assert_eq!(violations(layers, &edges(&[("new", "a")])).len(), 2);
}
