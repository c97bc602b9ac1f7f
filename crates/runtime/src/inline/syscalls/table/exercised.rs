//! Which pointers of the table the conformance programs hand to the kernel from far memory, one at a time and in every state
//! (`tests/conformance/{calls,rare}.c`, where an entry is `CALL_OF(name, argument, …)` and `P` stands for the pointer). What
//! they leave out is listed here, with the reason; a list that is too long or too short fails.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// The pointers (arguments, counted from 0) that no entry passes, and why.
const LEFT_OUT: &[(&str, &[usize], &str)] = &[
    ("execve", &[0, 1, 2], "replaces the program: waiting.c starts others with far arguments"),
    ("uselib", &[0], "not in this kernel"),
    ("_sysctl", &[0], "not in kernels since 5.5"),
    ("prctl", &[2, 3, 4], "options that change how the program's memory is described (PR_SET_MM, PR_SET_VMA)"),
    ("settimeofday", &[1], "sets the machine's time zone"),
    ("reboot", &[3], "restarts the machine"),
    ("init_module", &[2], "read when a module has been accepted"),
    ("quotactl", &[3], "needs a file system with quotas"),
    ("set_thread_area", &[0], "not for 64-bit programs"),
    ("io_getevents", &[3, 4], "needs a context, which io_setup refuses"),
    ("io_submit", &[2], "needs a context, which io_setup refuses"),
    ("io_cancel", &[1, 2], "needs a context, which io_setup refuses"),
    ("get_thread_area", &[0], "not for 64-bit programs"),
    ("set_tid_address", &[0], "written when the thread ends: strange_forks.c has a thread that ends"),
    ("kexec_load", &[2], "replaces the kernel"),
    ("keyctl", &[4], "needs a key exchange (KEYCTL_DH_COMPUTE)"),
    ("getcpu", &[2], "not used by kernels since 2.6.24"),
    ("kexec_file_load", &[3], "replaces the kernel"),
    ("execveat", &[2, 3], "replaces the program: one way with execve"),
    ("io_pgetevents", &[3, 4, 5], "needs a context, which io_setup refuses"),
    ("io_uring_enter", &[4], "needs a ring, which io_uring_setup refuses"),
    ("io_uring_register", &[2], "needs a ring, which io_uring_setup refuses"),
    ("clone3", &[0], "refused when its argument is far"),
    ("quotactl_fd", &[3], "needs a file system with quotas"),
];

const PROGRAMS: [&str; 2] = ["calls.c", "rare.c"];

/// The arguments of an entry, up to its closing parenthesis: commas in parentheses, brackets and braces are inside one.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut arguments) = (0, vec![String::new()]);
    for character in text.chars() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(String::new());
                continue;
            }
            _ => {}
        }
        arguments.last_mut().unwrap().push(character);
    }
    arguments
}

/// For each call, the arguments that an entry passes as the pointer.
fn exercised() -> BTreeMap<String, BTreeSet<usize>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for program in PROGRAMS {
        let path = format!("{}/../../tests/conformance/{program}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        for entry in text.split("CALL_OF(").skip(1) {
            let words = arguments(entry);
            let positions = words[1..].iter().enumerate().filter(|(_, word)| word.trim() == "P");
            found.entry(words[0].trim().to_owned()).or_default().extend(positions.map(|(index, _)| index));
        }
    }
    found
}

#[test]
fn every_pointer_is_exercised_or_left_out_for_a_reason() {
    let exercised = exercised();
    let mut left_out = Vec::new();
    for row in rows().filter(|row| !matches!(row.way, Way::Refused(_))) {
        let passed = exercised.get(row.name);
        let missing: Vec<usize> = (0..6)
            .filter(|index| row.pointers() >> index & 1 == 1 && passed.is_none_or(|passed| !passed.contains(index)))
            .collect();
        if !missing.is_empty() {
            left_out.push((row.name, missing));
        }
    }
    let listed: Vec<_> = LEFT_OUT.iter().map(|(name, pointers, _)| (*name, pointers.to_vec())).collect();
    assert_eq!(left_out, listed, "what no entry of the conformance programs passes, and the list");
}

#[test]
fn entries_name_calls_and_pointers_of_the_table() {
    for (name, pointers) in exercised() {
        let Some(row) = rows().find(|row| row.name == name) else {
            assert_eq!(name, "which", "a call that the table does not have");
            continue;
        };
        for index in pointers {
            assert_eq!(row.pointers() >> index & 1, 1, "{name}: argument {index} is no pointer in the table");
        }
    }
}
