//! Judging real programs: built here, where the compiler has the pieces; the rest made by hand.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

struct Workshop(tempfile::TempDir);

impl Workshop {
    fn new() -> Workshop {
        Workshop(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles an empty program; `None`, with a word to the reader, when this machine's compiler cannot.
    fn compile(&self, name: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = self.path("empty.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let program = self.path(name);
        let done = Command::new("gcc").args(flags).arg(&source).arg("-o").arg(&program).output();
        if done.is_ok_and(|output| output.status.success()) {
            return Some(program);
        }
        eprintln!("skipped: gcc {flags:?} cannot build a program here");
        None
    }

    fn script(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn search(&self) -> OsString {
        let mut search = self.0.path().as_os_str().to_owned();
        search.push(":/usr/bin:/bin");
        search
    }

    fn classify(&self, path: &Path) -> Result<Verdict, Error> {
        classify("program", path, &self.search())
    }

    fn why(&self, path: &Path) -> Unmanageable {
        match self.classify(path) {
            Ok(Verdict::Unmanageable(why)) => why,
            other => panic!("{}: {other:?}", path.display()),
        }
    }
}

/// Changes one byte of a copy of an ELF file.
fn patched(workshop: &Workshop, original: &Path, name: &str, offset: usize, value: u8) -> PathBuf {
    let mut bytes = fs::read(original).unwrap();
    bytes[offset] = value;
    let path = workshop.path(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn an_ordinary_program_is_manageable() {
    let workshop = Workshop::new();
    let own = std::env::current_exe().unwrap();
    assert_eq!(workshop.classify(&own).unwrap(), Verdict::Manageable);
    assert_eq!(workshop.classify(Path::new("/bin/sh")).unwrap(), Verdict::Manageable);
}

#[test]
fn a_static_program_is_not() {
    let workshop = Workshop::new();
    for flags in [["-static"], ["-static-pie"]] {
        let Some(program) = workshop.compile("static", &flags) else { continue };
        assert_eq!(workshop.why(&program), Unmanageable::Static(program));
    }
}

#[test]
fn sanitizers_are_told_by_their_library_and_by_their_symbols() {
    let workshop = Workshop::new();
    let cases: [(&[&str], &str); 5] = [
        (&["-fsanitize=address"], "AddressSanitizer"),
        (&["-fsanitize=address", "-static-libasan"], "AddressSanitizer"),
        (&["-fsanitize=address", "-static-libasan", "-s"], "a sanitizer"),
        (&["-fsanitize=thread"], "ThreadSanitizer"),
        (&["-fsanitize=thread", "-static-libtsan"], "ThreadSanitizer"),
    ];
    for (flags, expected) in cases {
        let Some(program) = workshop.compile("sanitized", flags) else { continue };
        match workshop.why(&program) {
            Unmanageable::Sanitizer { sanitizer, .. } => assert_eq!(sanitizer, expected, "{flags:?}"),
            other => panic!("{flags:?}: {other:?}"),
        }
    }
    if let Some(program) = workshop.compile("undefined", &["-fsanitize=undefined"]) {
        assert_eq!(workshop.classify(&program).unwrap(), Verdict::Manageable, "UBSan leaves the heap alone");
    }
}

#[test]
fn other_loaders_machines_and_widths_are_refused() {
    let workshop = Workshop::new();
    let loader = |path: &str| format!("-Wl,--dynamic-linker={path}");
    if let Some(program) = workshop.compile("musl", &[&loader("/lib/ld-musl-x86_64.so.1")]) {
        assert_eq!(workshop.why(&program), Unmanageable::Musl(program));
    }
    if let Some(program) = workshop.compile("android", &[&loader("/system/bin/linker64")]) {
        assert!(
            matches!(workshop.why(&program), Unmanageable::OtherLoader { loader, .. } if loader.ends_with("linker64"))
        );
    }
    let own = std::env::current_exe().unwrap();
    // Bytes 18 and 19 of an ELF header are the machine (243: RISC-V), byte 4 is the class (1: 32 bits).
    let foreign = patched(&workshop, &own, "foreign", 18, 243);
    assert!(matches!(workshop.why(&foreign), Unmanageable::ForeignMachine { machine, .. } if machine == "RISC-V"));
    let narrow = patched(&workshop, &own, "narrow", 4, 1);
    assert_eq!(workshop.why(&narrow), Unmanageable::Bits32(narrow));
}

#[test]
fn damaged_files_are_unknown_not_a_crash() {
    let workshop = Workshop::new();
    let own = fs::read("/bin/sh").unwrap();
    for length in [4, 16, 63, 64, 200, 1000] {
        let path = workshop.path("cut");
        fs::write(&path, &own[..length]).unwrap();
        let verdict = workshop.classify(&path).unwrap();
        assert_ne!(verdict, Verdict::Manageable, "{length} bytes");
    }
}

#[test]
fn scripts_lead_to_their_interpreter() {
    let workshop = Workshop::new();
    let classify = |name: &str, content: &str| workshop.classify(&workshop.script(name, content));
    assert_eq!(classify("sh", "#!/bin/sh\nexit\n").unwrap(), Verdict::Manageable);
    assert_eq!(classify("plain", "exit\n").unwrap(), Verdict::Manageable);
    assert_eq!(classify("env", "#!/usr/bin/env sh\n").unwrap(), Verdict::Manageable);
    let text = classify("gone", "#!/no/such/interpreter\n").unwrap_err();
    assert_eq!(text.exit_code(), 126);
    assert!(text.to_string().contains("/no/such/interpreter does not exist"), "{text}");
    if let Some(program) = workshop.compile("interpreter", &["-static"]) {
        let direct = workshop.script("direct", &format!("#!{} -x\n", program.display()));
        assert_eq!(workshop.why(&direct), Unmanageable::Static(program.clone()));
        let by_env = workshop.script("by-env", "#!/usr/bin/env interpreter\n");
        assert_eq!(workshop.why(&by_env), Unmanageable::Static(program));
    }
}

#[test]
fn scripts_of_scripts_end_where_the_kernel_ends_them() {
    let workshop = Workshop::new();
    let mut path = PathBuf::from("/bin/sh");
    for level in 1..=5 {
        path = workshop.script(&format!("level{level}"), &format!("#!{}\n", path.display()));
        assert_eq!(workshop.classify(&path).is_ok(), level <= SCRIPT_LEVELS_MAX, "level {level}");
    }
}

#[test]
fn set_uid_programs_of_others_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making a set-uid program for somebody else needs root");
        return;
    }
    let workshop = Workshop::new();
    let path = workshop.path("raised");
    fs::copy("/bin/true", &path).unwrap();
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    assert!(matches!(workshop.why(&path), Unmanageable::SecureExecution { what: "is set-uid", .. }));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o2755)).unwrap();
    assert!(matches!(workshop.why(&path), Unmanageable::SecureExecution { what: "is set-gid", .. }));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(workshop.classify(&path).unwrap(), Verdict::Manageable);
}

#[test]
fn finds_programs_as_execvp_does() {
    let workshop = Workshop::new();
    workshop.script("tool", "#!/bin/sh\n");
    let search = workshop.search();
    let find = |name: &str| find(OsStr::new(name), &search).map_err(|error| error.exit_code());
    assert_eq!(find("tool"), Ok(workshop.path("tool")));
    assert_eq!(find("no-such-tool"), Err(127));
    assert_eq!(find("/no/such/tool"), Err(127));
    assert_eq!(find("/tmp"), Err(126));
    assert_eq!(find(""), Err(127));
    fs::write(workshop.path("data"), "").unwrap();
    assert_eq!(find("data"), Err(126));
    assert!(find("sh").is_ok());
}
