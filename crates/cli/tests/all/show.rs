//! `hinterland trace show` as a user runs it.

use hinterland_tape::{Head, Reference, Region, Writer, Written, import};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn show(trace: &Path, arguments: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_hinterland")).args(["trace", "show"]).arg(trace).args(arguments).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(trace: &Path) -> String {
    String::from_utf8(show(trace, &[]).stdout).unwrap()
}

/// A trace of a walk through 1000 pages, three times.
fn walk(directory: &tempfile::TempDir, microset_pages: u32) -> PathBuf {
    let pages: String = (0..3).flat_map(|_| 0..1000).map(|page| format!("{page}\n")).collect();
    let head = Head { page_bytes: 4096, microset_pages, ..Head::default() };
    let mut trace = Vec::new();
    import::text(pages.as_bytes(), &mut trace, &head).unwrap();
    let path = directory.path().join("walk.trace");
    std::fs::write(&path, trace).unwrap();
    path
}

/// A trace of this head, with what `write` writes of a region.
fn written(directory: &tempfile::TempDir, head: &Head, write: impl Fn(&mut Writer<Vec<u8>>, u32)) -> PathBuf {
    let mut writer = Writer::new(Vec::new(), head).unwrap();
    let region = writer.region(&Region { name: "far".into(), pages: 20 }).unwrap();
    write(&mut writer, region);
    writer.finish().unwrap();
    let path = directory.path().join("written.trace");
    std::fs::write(&path, writer.sink()).unwrap();
    path
}

#[test]
fn no_misses_are_told_for_memory_below_a_microset() {
    let directory = tempfile::tempdir().unwrap();
    let trace = walk(&directory, 200);
    let figures: Value = serde_json::from_slice(&show(&trace, &["--json"]).stdout).unwrap();
    let rows = figures["miss_ratios"].as_array().unwrap();
    for row in rows {
        let below = row["local_pages"].as_u64().unwrap() < 200;
        assert_eq!((row["misses"].is_null(), row["ratio"].is_null()), (below, below), "{row}");
    }
    assert_eq!((rows.len(), &rows[3]["misses"], &rows[7]["misses"]), (8, &3000.into(), &1000.into()));
    let said = text(&trace);
    assert_eq!(said.matches("below a microset").count(), 3, "{said}");
    assert!(said.contains("– with 10 % local (400 KiB): below a microset\n"), "{said}");
    assert!(!text(&walk(&directory, 1)).contains("below a microset"));
}

#[test]
fn what_was_written_to_is_a_share_of_what_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let head = Head { page_bytes: 4096, microset_pages: 10, ..Head::default() };
    // Of the microset in which the program ends it is not known.
    let path = written(&directory, &head, |writer, region| {
        for page in 0..20 {
            writer.touch(&Reference { region, page, ..Reference::default() }).unwrap();
            if page == 9 {
                writer.end_microset(Written::All).unwrap();
            }
        }
    });
    let figures: Value = serde_json::from_slice(&show(&path, &["--json"]).stdout).unwrap();
    assert_eq!((&figures["written"], &figures["written_known"]), (&10.into(), &10.into()));
    let said = text(&path);
    let words = "100.0 % of the references are of pages that were written to meanwhile (of 10 it is not known)";
    assert!(said.contains(words), "{said}");
}

#[test]
fn what_a_forked_child_has_of_its_parent_is_no_first_touch() {
    let directory = tempfile::tempdir().unwrap();
    let head = Head { page_bytes: 4096, microset_pages: 1, process: 7, is_forked: true, ..Head::default() };
    let path = written(&directory, &head, |writer, region| {
        for page in (0..2).flat_map(|_| 0..20) {
            writer.touch(&Reference { region, page, is_first: page < 5, ..Reference::default() }).unwrap();
            writer.end_microset(Written::None).unwrap();
        }
    });
    let figures: Value = serde_json::from_slice(&show(&path, &["--json"]).stdout).unwrap();
    assert_eq!((&figures["first_touches"], &figures["inherited_pages"]), (&5.into(), &15.into()));
    assert_eq!(
        (&figures["miss_ratios"][7]["misses"], &figures["miss_ratios"][7]["first_touches"]),
        (&20.into(), &5.into())
    );
    let said = text(&path);
    assert!(said.contains("5, 0 of them of pages that had lost their content"), "{said}");
    assert!(said.contains("15 pages, which its parent had before the fork"), "{said}");
}

#[test]
fn a_folder_without_traces_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [&[][..], &["--json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
        let refused = command.args(["trace", "show"]).arg(directory.path()).args(flags).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), refused.stdout.as_slice()), (Some(125), &b""[..]), "{said}");
        let place = directory.path().display();
        assert!(
            said.starts_with(&format!("hinterland: {place}: a folder without traces, whose names would end in .trace")),
            "{said}"
        );
        assert!(said.contains("`hinterland trace -o FOLDER/ -- PROGRAM` records one of each process"), "{said}");
    }
}

#[test]
fn of_a_trace_without_references_only_that_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty.trace");
    let mut writer = Writer::new(Vec::new(), &Head::default()).unwrap();
    writer.finish().unwrap();
    std::fs::write(&path, writer.sink()).unwrap();
    let said = text(&path);
    assert!(said.ends_with("  references     none: nothing that can be far was touched\n"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}
