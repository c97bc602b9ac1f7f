//! What a fresh machine gets: packages that its release has, and a container's build without what lies in the checkout beside the sources.

use hinterland_tests::places;
use std::collections::BTreeSet;

fn text(name: &str) -> String {
    std::fs::read_to_string(places::repository().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// One package that a release does not have ends the installation of all; others are looked for before they are installed (`setup_llvm`).
#[test]
fn no_package_is_of_one_release() {
    let dev = text("dev");
    let (_, rest) = dev.split_once("\npackages=(").expect("the list of packages");
    let (list, _) = rest.split_once("\n)").expect("its end");
    let packages: Vec<&str> =
        list.split_whitespace().filter_map(|entry| entry.split_once(':')).map(|(_, it)| it).collect();
    assert!(packages.len() > 10, "{packages:?}");
    for package in packages {
        let last = package.rsplit('-').next().unwrap_or_default();
        assert!(last.parse::<f64>().is_err(), "{package} is in some releases only");
    }
}

#[test]
fn a_container_is_built_from_the_sources_alone() {
    let ignored = text(".dockerignore");
    let ignored: BTreeSet<&str> = ignored.lines().map(|line| line.trim_start_matches("**/")).collect();
    for line in text(".gitignore").lines().map(|line| line.trim_start_matches('/')) {
        assert!(ignored.contains(line), "{line} is built from");
    }
    assert!(ignored.contains(".git"));
}

/// A flag of the entry point cannot be given again.
#[test]
fn what_users_choose_is_no_part_of_a_containers_entry_point() {
    let recipe = text("packaging/Containerfile");
    let entry = recipe.lines().find(|line| line.starts_with("ENTRYPOINT")).expect("an entry point");
    for flag in ["--capacity", "--listen", "--metrics"] {
        assert!(recipe.lines().any(|line| line.starts_with("CMD") && line.contains(flag)), "{flag}");
        assert!(!entry.contains(flag), "{entry}");
    }
}
