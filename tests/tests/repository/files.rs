//! The files under version control, and those that are about to be.

use hinterland_tests::places;
use std::path::PathBuf;
use std::process::Command;

/// The files, relative to the repository's root, whose names end with one of `endings`.
pub fn with_ending(endings: &[&str]) -> Vec<PathBuf> {
    let mut command = Command::new("git");
    command.current_dir(places::repository()).args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let output = command.output().expect("git is installed");
    assert!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let wanted = |name: &&str| endings.iter().any(|ending| name.ends_with(ending));
    // A file that was deleted and not yet committed is still listed.
    names
        .split('\0')
        .filter(wanted)
        .map(PathBuf::from)
        .filter(|name| places::repository().join(name).exists())
        .collect()
}

/// The text of a file of [`with_ending`].
pub fn text(name: &std::path::Path) -> String {
    let bytes = std::fs::read(places::repository().join(name)).expect("a listed file can be read");
    String::from_utf8(bytes).unwrap_or_else(|error| panic!("{}: {error}", name.display()))
}
