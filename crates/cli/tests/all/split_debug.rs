//! `packaging/split-debug`: a small executable, and its debug information in a file of its own that debuggers and backtraces find.

use crate::launcher::output;
use object::{Object, ObjectSection};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Sections of a file with content, as their names.
fn has_section(file: &Path, name: &str) -> bool {
    let bytes = fs::read(file).unwrap();
    let object = object::File::parse(&*bytes).unwrap();
    object.section_by_name(name).is_some_and(|section| section.data().is_ok_and(|data| !data.is_empty()))
}

fn split(file: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/split-debug");
    let (ended, stdout, stderr) = output(Command::new(script).arg(file));
    assert_eq!((ended.status.code(), stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn debug_information_lies_beside_the_command_and_is_found() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [whole, command] = [Path::new(env!("CARGO_BIN_EXE_hinterland")), &directory.path().join("hinterland")];
    fs::hard_link(whole, command).unwrap();
    assert!(has_section(whole, ".debug_line"));
    split(command);
    let debug = directory.path().join("hinterland.debug");
    assert!(has_section(whole, ".debug_line"), "the other name of the file keeps its own");
    assert!(!has_section(command, ".debug_line") && has_section(&debug, ".debug_line"));
    assert!(has_section(command, ".symtab"), "functions have names without the debug file");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    let (ended, ..) = output(Command::new(command).arg("--version"));
    assert_eq!(ended.status.code(), Some(0));
    let split_at = fs::metadata(command).unwrap().modified().unwrap();
    split(command);
    assert_eq!(fs::metadata(command).unwrap().modified().unwrap(), split_at, "what is split is left alone");
    let mut gdb = Command::new("gdb");
    let Ok(said) = gdb.args(["-nx", "-batch", "-ex", "info line crates/cli/src/lib.rs:1"]).arg(command).output() else {
        return eprintln!("skipped: gdb is not installed");
    };
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.starts_with("Line 1 of \"crates/cli/src/lib.rs\""), "{said}");
}
