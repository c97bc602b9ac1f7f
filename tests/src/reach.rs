//! Which tests a change reaches. `./dev test` notes the sources of a pass ([`Sources`]); the next one runs the tests of the packages that
//! have changed since, of those that depend on them, and the suites of the whole system that judge them.
//!
//! Everything runs where there is no such note, and where something has changed that belongs to no package, or to the tests themselves.

use crate::places;
use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directories of the packages whose tests run, in words; unset: all. For `watched` and for the suites.
pub const PACKAGES: &str = "HINTERLAND_TEST_PACKAGES";

/// The beginnings of the names of the tests of the whole system that run, in words; unset: all.
pub const SUITES: &str = "HINTERLAND_TEST_SUITES";

/// Packages that not all suites of the whole system judge, and those that do, by the beginnings of the names of their tests. Policies decide
/// which pages move, what is prefetched and how budgets are divided, never what a page holds: six programs run under all of them on all fault
/// paths, processes share budgets, and the simulator repeats what was decided. Signals, system calls, forks, recordings, and which tape a
/// process follows, are the same whatever leaves.
const JUDGED_BY: [(&str, &[&str]); 7] = [
    (
        "policy",
        &[
            "e2e::sort::",
            "e2e::cpp-nodes::",
            "e2e::gcc::",
            "e2e::numpy-fft::",
            "e2e::sqlite::",
            "e2e::java::",
            "lifecycle::prefetch::",
            "lifecycle::explain::",
            "lifecycle::hints::",
            "lifecycle::trees::family::",
            "lifecycle::trees::make::",
            "lifecycle::trees::idle_gives_way::",
            "lifecycle::trees::busy_ones_share::",
            "lifecycle::trees::killed_gives_back::",
            "lifecycle::trees::more_floors_than_budget::",
            "lifecycle::trees::ram",
            "lifecycle::control::",
            "lifecycle::other_runs::",
            "lifecycle::tuning::",
            "lifecycle::tapes::",
            "lifecycle::intervals::",
            "lifecycle::simulated::sequential::",
            "lifecycle::simulated::stride::",
            "lifecycle::simulated::random::",
            "lifecycle::simulated::skewed::",
            "lifecycle::decisions::",
        ],
    ),
    (
        "tape",
        &[
            "lifecycle::traces::",
            "lifecycle::traced_trees::",
            "lifecycle::tapes::",
            "lifecycle::taped_trees::",
            "lifecycle::intervals::",
            "lifecycle::tape_cache::",
            "lifecycle::simulated::",
        ],
    ),
    ("sim", &["lifecycle::simulated::", "lifecycle::decisions::"]),
    ("etcd", &["lifecycle::discovery::"]),
    ("bench", &[]),
    ("model", &[]),
    ("testkit", &[]),
];

/// Packages whose tests find no difference, although they depend on the others: the bench's are about how it measures, whatever decides.
const BESIDE: [(&str, &str); 1] = [("policy", "bench")];

/// Packages whose tests run the programs of others, and those.
const RUNS: [(&str, &str); 3] = [("cli", "runtime"), ("bench", "runtime"), ("bench", "cli")];

/// Digests of what tests run on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sources {
    /// Of each package below `crates`, by its directory's name.
    packages: BTreeMap<String, String>,
    /// Of everything else but documents, which the lints read every time.
    rest: String,
}

/// What has to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Everything.
    All,
    /// The tests of some packages, and of the whole system those whose names begin with one of `suites`.
    Some {
        /// Directories below `crates`.
        packages: BTreeSet<String>,
        /// Beginnings of names.
        suites: BTreeSet<String>,
    },
}

impl Sources {
    /// Of the working tree: files that git knows, or that it would add.
    ///
    /// # Errors
    /// There is no git or no repository, or a file cannot be read.
    pub fn now() -> Result<Sources> {
        let root = places::repository();
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .context("cannot run git")?;
        ensure!(listed.status.success(), "git lists no files: {}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
        let files: BTreeSet<&str> = listed.split_terminator('\0').collect();
        let read = |file: &str| std::fs::read(root.join(file));
        // One that is removed and still known is not there.
        let there = files.into_iter().filter_map(|file| Some((file, read(file).ok()?)));
        Ok(Sources::of(there.chain(std::iter::once(("", compiler()?)))))
    }

    /// Of files, by their paths in the repository, in order.
    fn of<'a>(files: impl Iterator<Item = (&'a str, Vec<u8>)>) -> Sources {
        let mut packages: BTreeMap<String, Sha256> = BTreeMap::new();
        let mut rest = Sha256::new();
        for (path, bytes) in files {
            let package = path.strip_prefix("crates/").and_then(|below| below.split_once('/'));
            let digest = match package {
                Some((package, _)) => packages.entry(package.to_owned()).or_default(),
                None if is_document(path) => continue,
                None => &mut rest,
            };
            digest.update(path.as_bytes());
            digest.update([0]);
            digest.update(Sha256::digest(&bytes));
        }
        let packages = packages.into_iter().map(|(name, digest)| (name, hex::encode(digest.finalize()))).collect();
        Sources { packages, rest: hex::encode(rest.finalize()) }
    }

    /// Those of the last pass; `None` where there is none.
    pub fn passed() -> Option<Sources> {
        serde_json::from_slice(&std::fs::read(passed_file()).ok()?).ok()
    }

    /// What has changed since `before`, and with it what depends on that.
    pub fn reach(&self, before: &Sources, metadata: &Metadata) -> Reach {
        let gone = before.packages.keys().any(|name| !self.packages.contains_key(name));
        if self.rest != before.rest || gone {
            return Reach::All;
        }
        let changed: BTreeSet<&str> = self
            .packages
            .iter()
            .filter(|(name, digest)| before.packages.get(*name) != Some(*digest))
            .map(|(name, _)| name.as_str())
            .collect();
        let (mut packages, mut suites) = (BTreeSet::new(), BTreeSet::new());
        for changed in changed {
            match JUDGED_BY.iter().find(|(name, _)| *name == changed) {
                Some((_, some)) => suites.extend(some.iter().map(|suite| (*suite).to_owned())),
                None => _ = suites.insert(String::new()),
            }
            packages.extend(
                dependents(changed, metadata).into_iter().filter(|name| !BESIDE.contains(&(changed, name.as_str()))),
            );
        }
        Reach::Some { packages, suites }
    }
}

/// The beginnings of names that some change reaches: each is that of a test.
pub fn beginnings() -> impl Iterator<Item = &'static str> {
    JUDGED_BY.iter().flat_map(|(_, suites)| *suites).copied()
}

/// This package and all that depend on it, also for their tests alone, by the names of their directories.
fn dependents(changed: &str, metadata: &Metadata) -> BTreeSet<String> {
    let directory = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut reached = BTreeSet::from([changed.to_owned()]);
    loop {
        let before = reached.len();
        let running = RUNS.iter().filter(|(_, run)| reached.contains(*run)).map(|(name, _)| (*name).to_owned());
        reached.extend(running.collect::<Vec<_>>());
        for package in metadata.workspace_packages() {
            let needs = |path: &cargo_metadata::camino::Utf8PathBuf| reached.contains(&directory(path.as_std_path()));
            if package.dependencies.iter().filter_map(|dependency| dependency.path.as_ref()).any(needs)
                && let Some(own) = package.manifest_path.parent()
            {
                reached.insert(directory(own.as_std_path()));
            }
        }
        if reached.len() == before {
            return reached;
        }
    }
}

/// What has to run now. The sources are noted as those that run.
///
/// # Errors
/// Git or cargo does not say what there is, or the note cannot be written.
pub fn begin() -> Result<Reach> {
    let (now, file) = (Sources::now()?, running_file());
    std::fs::write(&file, serde_json::to_vec(&now)?).with_context(|| format!("cannot write {}", file.display()))?;
    let Some(before) = Sources::passed() else { return Ok(Reach::All) };
    Ok(now.reach(&before, &MetadataCommand::new().current_dir(places::repository()).no_deps().exec()?))
}

/// Notes that what ran has passed, whatever was edited meanwhile.
///
/// # Errors
/// Nothing ran, or the note cannot be written.
pub fn passed() -> Result<()> {
    std::fs::rename(running_file(), passed_file()).context("cannot note what has passed")
}

/// Whether a list in the environment has this word, or one that it begins with; without a list it has.
pub fn is_reached(variable: &str, holds: impl Fn(&str) -> bool) -> bool {
    std::env::var(variable).map_or(true, |list| list.split_whitespace().any(holds))
}

/// Documents that tests of crates compare with what they are generated from.
const GENERATED: [&str; 2] = ["docs/reference/", "docs/system-calls.md"];

/// Whether only the lints read a file, which run every time.
fn is_document(path: &str) -> bool {
    let text = path.ends_with(".md") && !GENERATED.iter().any(|generated| path.starts_with(generated));
    text || path.starts_with("docs/results/")
}

fn passed_file() -> PathBuf {
    places::tests().join("passed.json")
}

fn running_file() -> PathBuf {
    places::tests().join("running.json")
}

/// The compiler's version: another one builds other tests.
fn compiler() -> Result<Vec<u8>> {
    Ok(Command::new("rustc").arg("-vV").output().context("cannot run rustc")?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EVICTS, PATHS, runs};

    fn sources(files: &[(&str, &str)]) -> Sources {
        Sources::of(files.iter().map(|(path, text)| (*path, text.as_bytes().to_vec())))
    }

    fn reach(before: &[(&str, &str)], now: &[(&str, &str)]) -> Reach {
        let metadata = MetadataCommand::new().current_dir(places::repository()).no_deps().exec().unwrap();
        sources(now).reach(&sources(before), &metadata)
    }

    const BEFORE: [(&str, &str); 6] = [
        ("crates/policy/a", "1"),
        ("crates/pager/a", "1"),
        ("dev", "1"),
        ("docs/results/x.json", "1"),
        ("docs/reference/x.md", "1"),
        ("docs/system-calls.md", "1"),
    ];

    /// [`BEFORE`] with one file changed.
    fn with(index: usize, path: &'static str, text: &'static str) -> [(&'static str, &'static str); 6] {
        let mut files = BEFORE;
        files[index] = (path, text);
        files
    }

    #[test]
    fn what_has_not_changed_is_not_reached() {
        let nothing = Reach::Some { packages: BTreeSet::new(), suites: BTreeSet::new() };
        assert_eq!(reach(&BEFORE, &BEFORE), nothing);
        assert_eq!(reach(&BEFORE, &with(3, "docs/results/x.json", "2")), nothing);
    }

    #[test]
    fn a_policy_reaches_what_depends_on_it_and_the_suites_that_judge_it() {
        let Reach::Some { packages, suites } = reach(&BEFORE, &with(0, "crates/policy/a", "2")) else { panic!("all") };
        for name in ["policy", "paging", "pager", "sim", "runtime", "cli", "tests"] {
            assert!(packages.contains(name), "{name} in {packages:?}");
        }
        for name in ["wire", "etcd", "tls", "units", "abi", "backend", "node", "bench"] {
            assert!(!packages.contains(name), "{name} in {packages:?}");
        }
        assert!(suites.contains("lifecycle::decisions::") && !suites.contains(""), "{suites:?}");
    }

    #[test]
    fn programs_that_judge_policies_run_under_each_on_each_fault_path() {
        let Reach::Some { suites, .. } = reach(&BEFORE, &with(0, "crates/policy/a", "2")) else { panic!("all") };
        let judges =
            runs::pairwise().into_iter().filter(|run| suites.contains(&format!("e2e::{}::", run.scenario.name)));
        let met: BTreeSet<_> = judges.map(|run| (run.variant.path, run.variant.evict)).collect();
        assert_eq!(met.len(), PATHS.len() * EVICTS.len(), "{met:?}");
    }

    #[test]
    fn the_pager_reaches_every_suite() {
        let Reach::Some { packages, suites } = reach(&BEFORE, &with(1, "crates/pager/a", "2")) else { panic!("all") };
        assert!(packages.contains("bench") && !packages.contains("policy"), "{packages:?}");
        assert!(suites.contains(""), "{suites:?}");
    }

    #[test]
    fn what_belongs_to_no_package_reaches_everything() {
        assert_eq!(reach(&BEFORE, &with(2, "dev", "2")), Reach::All);
        assert_eq!(reach(&BEFORE, &with(4, "docs/reference/x.md", "2")), Reach::All);
        assert_eq!(reach(&BEFORE, &with(5, "docs/system-calls.md", "2")), Reach::All);
        assert_eq!(reach(&BEFORE, &BEFORE[1..]), Reach::All, "a package is gone");
        assert_ne!(reach(&BEFORE, &with(0, "crates/policy/b", "1")), reach(&BEFORE, &BEFORE));
    }

    #[test]
    fn every_package_with_suites_of_its_own_is_there() {
        for name in JUDGED_BY.iter().map(|(name, _)| *name).chain(BESIDE.iter().flat_map(|(one, other)| [*one, *other]))
        {
            assert!(places::repository().join("crates").join(name).is_dir(), "{name}");
        }
    }
}
