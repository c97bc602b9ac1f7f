//! `hinterland cc` and `c++`: what is handed to clang, and what is said where there is none. A shell stands in clang's place; what the
//! plugin does is tested with the whole system.

use crate::launcher::output;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with the launcher in it, with a plugin if that is wished, and with compilers that are shell scripts.
fn installed(has_plugin: bool, compilers: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let launcher = directory.path().join("hinterland");
    fs::hard_link(env!("CARGO_BIN_EXE_hinterland"), &launcher).unwrap();
    if has_plugin {
        fs::write(directory.path().join("hinterland-llvm22.so"), "").unwrap();
    }
    fs::create_dir(directory.path().join("bin")).unwrap();
    for (name, script) in compilers {
        let path = directory.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (directory, launcher)
}

/// How `hinterland WORDS` ends, with the installed compilers alone in PATH: code and what it says.
fn said(launcher: &Path, words: &[&str]) -> (Option<i32>, String) {
    let path = launcher.with_file_name("bin");
    let (ended, stdout, stderr) =
        output(Command::new(launcher).args(words).env("PATH", path).env("HINTERLAND_COMPILE_PLAN", "/old"));
    (ended.status.code(), stdout + &stderr)
}

/// Says its words and its plan.
const SAYS: &str = r#"printf '%s,' "$0" "$@"; printf '%s' "plan=$HINTERLAND_COMPILE_PLAN="; [ -z "$HINTERLAND_COMPILE_PLAN" ] || /bin/cat "$HINTERLAND_COMPILE_PLAN"; exit 3"#;

#[test]
fn clang_gets_the_plugin_the_plan_and_every_word() {
    let (directory, launcher) = installed(true, &[("clang-22", SAYS), ("clang++-22", SAYS)]);
    let plan = directory.path().join("app.plan");
    fs::write(&plan, "hinterland-plan = 1\n[[function]]\nname = 'traverse'\nevict = 'soon'\n").unwrap();
    let plugin = directory.path().canonicalize().unwrap().join("hinterland-llvm22.so");
    for (language, compiler) in [("cc", "clang-22"), ("c++", "clang++-22")] {
        let compiler = directory.path().join("bin").join(compiler);
        let begin = |own: &str| {
            format!(
                "{},--start-no-unused-arguments,-fpass-plugin={},-Rpass=^$,-fdebug-info-for-profiling,{own}--end-no-unused-arguments,",
                compiler.display(),
                plugin.display()
            )
        };
        let (code, words) = said(&launcher, &[language, "-O2", "--help", "-c", "a b.c"]);
        assert_eq!((code, words), (Some(3), begin("") + "-O2,--help,-c,a b.c,plan=="));
        let (code, words) = said(&launcher, &[language, "-c", "--far-plan", plan.to_str().unwrap(), "a.c"]);
        assert_eq!(code, Some(3), "{words}");
        let (given, plan) = words.split_once("plan=/proc/self/fd/").expect(&words);
        let json: serde_json::Value = serde_json::from_str(plan.split_once('=').unwrap().1).unwrap();
        assert_eq!(
            (&json["functions"][0]["name"], &json["functions"][0]["evict"]),
            (&"traverse".into(), &"soon".into())
        );
        let digest = json["digest"].as_str().unwrap();
        assert_eq!(digest.len(), 64);
        assert_eq!(given, begin(&format!("-fplugin-arg-hinterland-{digest},")) + "-c,a.c,", "caches see the plan");
    }
}

#[test]
fn help_alone_is_hinterlands_and_names_the_way_to_the_compilers() {
    let (_directory, launcher) = installed(true, &[("clang-22", SAYS), ("clang++-22", SAYS)]);
    for (language, compiler) in [("cc", "clang-22"), ("c++", "clang++-22"), ("rustc", "rustc")] {
        let (code, help) = said(&launcher, &[language, "--help"]);
        assert_eq!(code, Some(0), "{help}");
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let usage = format!("Usage: hinterland {language} ");
        let others = format!("Everything else goes to {compiler} as it is; `{compiler} --help` shows its flags.");
        for part in [usage.as_str(), "--far-plan FILE", &others, "Examples: ", "Exit code: the compiler's own; 125 "] {
            assert!(help.contains(part), "{language} --help has no {part}: {help}");
        }
        assert_eq!(help.contains("-Rpass=hinterland"), language != "rustc", "{help}");
    }
    let (code, words) = said(&launcher, &["cc", "--help-hidden"]);
    assert!(code == Some(3) && words.contains(",--help-hidden,plan="), "{words}");
}

#[test]
fn a_clang_without_a_version_in_its_name_is_asked_for_it() {
    let versioned =
        |version: &str| format!("[ \"$1\" = --version ] && echo 'Debian clang version {version} (1)' || echo compiled");
    let (_directory, launcher) = installed(true, &[("clang", &versioned("22.1.8"))]);
    assert_eq!(said(&launcher, &["cc", "a.c"]), (Some(0), "compiled\n".into()));
    let (_directory, launcher) = installed(true, &[("clang", &versioned("19.1.7"))]);
    let (code, what) = said(&launcher, &["cc", "a.c"]);
    assert_eq!(code, Some(125));
    assert!(what.contains("clang-22 is not in PATH, and clang there is 19.1.7"), "{what}");
    assert!(what.contains("install the package clang-22"), "{what}");
}

#[test]
fn what_is_missing_or_wrong_is_said_before_anything_is_compiled() {
    let (_directory, bare) = installed(true, &[]);
    let (code, what) = said(&bare, &["c++", "a.cpp"]);
    assert_eq!(code, Some(125));
    assert!(what.contains("clang++-22 is not in PATH: the compiler's plugin is made for LLVM 22"), "{what}");
    let (directory, launcher) = installed(false, &[("clang-22", SAYS)]);
    let (code, what) = said(&launcher, &["cc", "a.c"]);
    assert_eq!(code, Some(125));
    assert!(what.contains("hinterland-llvm22.so is not installed with the hinterland command"), "{what}");
    let plan = directory.path().join("app.plan");
    fs::write(&plan, "hinterland-plan = 1\n[[function]]\nnmae = 'f'\n").unwrap();
    for (words, expected) in [
        (vec!["cc", "--far-plan", plan.to_str().unwrap()], "app.plan: line 3: unknown field `nmae`"),
        (vec!["cc", "--far-plan=/nowhere"], "/nowhere: cannot be read: No such file"),
        (vec!["cc", "-c", "a.c", "--far-plan"], "--far-plan: name the plan's file"),
    ] {
        let (code, what) = said(&launcher, &words);
        assert_eq!(code, Some(125), "{words:?}");
        assert!(what.contains(expected), "{words:?}: {what}");
    }
}
