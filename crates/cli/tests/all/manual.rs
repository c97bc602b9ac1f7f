//! Manual pages, completions and the settings file with all settings are made from the real command line, and work.

use crate::launcher::{hinterland, output};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The subcommands that `--help` lists under these words, and theirs, as the names of their pages.
fn subcommands(words: &[String], found: &mut BTreeSet<String>) {
    found.insert([&["hinterland".to_owned()], words].concat().join("-") + ".1");
    let (_, help, _) = output(hinterland().arg("help").args(words));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for line in commands.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().expect("a subcommand").to_owned();
        if name != "help" {
            subcommands(&[words, &[name]].concat(), found);
        }
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_subcommand_has_a_manual_page_that_the_formatter_takes() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    let (ended, stdout, stderr) = output(hinterland().arg("man").arg(&pages));
    assert_eq!((ended.status.code(), stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
    let mut wanted = BTreeSet::new();
    subcommands(&[], &mut wanted);
    assert!(["hinterland-run.1", "hinterland-node-drain.1"].iter().all(|page| wanted.contains(*page)), "{wanted:?}");
    let written: BTreeSet<String> = names(&pages).into_iter().filter(|name| !name.contains("-help")).collect();
    assert_eq!(written, wanted);
    let run = fs::read_to_string(pages.join("hinterland-run.1")).unwrap();
    assert!(run.contains(".SH OPTIONS") && run.contains("\\-\\-local") && run.contains("\\-\\-prefetch"), "{run}");
    for page in names(&pages) {
        let mut format = Command::new("groff");
        match format.args(["-K", "utf8", "-man", "-Tutf8", "-ww", "-z"]).arg(pages.join(&page)).output() {
            Err(_) => return eprintln!("skipped: groff is not installed"),
            Ok(said) => {
                let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
                assert_eq!(said, "", "{page}");
            }
        }
    }
    let (ended, _, stderr) = output(hinterland().args(["man", "/dev/null/man1"]));
    assert!(ended.status.code() == Some(125) && stderr.contains("/dev/null/man1: Not a directory"), "{stderr}");
}

/// What bash completes the last word to.
fn completes(script: &Path, line: &str) -> Vec<String> {
    let complete = r#"
source "$1"
words=($2)
[[ $2 == *" " ]] && words+=("")
COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1)) COMP_LINE=$2 COMP_POINT=${#2}
function=$(complete -p hinterland | sed 's/.*-F \([^ ]*\).*/\1/')
"$function" hinterland "${words[-1]}" "${words[-2]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;
    let mut bash = Command::new("bash");
    let (ended, stdout, stderr) = output(bash.args(["--norc", "-uc", complete, "bash"]).arg(script).arg(line));
    assert_eq!((ended.status.code(), stderr.as_str()), (Some(0), ""), "{line}");
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_subcommands_and_flags() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("hinterland.bash");
    let (ended, text, _) = output(hinterland().args(["completions", "bash"]));
    assert_eq!(ended.status.code(), Some(0));
    fs::write(&script, text).unwrap();
    assert_eq!(completes(&script, "hinterland tr"), ["trace"]);
    assert_eq!(completes(&script, "hinterland run --loc"), ["--local"]);
    assert_eq!(completes(&script, "hinterland node dr"), ["drain"]);
    assert_eq!(completes(&script, "hinterland trace import --from "), ["lackey", "text"]);
    assert_eq!(completes(&script, "hinterland xyz"), [""; 1]);
}

#[test]
fn zsh_and_fish_have_completions_and_other_shells_are_refused() {
    for (shell, says) in [("zsh", "#compdef hinterland"), ("fish", "complete -c hinterland")] {
        let (ended, text, _) = output(hinterland().args(["completions", shell]));
        assert!(ended.status.code() == Some(0) && text.contains(says), "{text}");
        assert!(text.contains("prefetch-cache"), "{text}");
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, &text).unwrap();
        match Command::new(shell).arg("-n").arg(&script).output() {
            Err(_) => eprintln!("skipped: {shell} is not installed"),
            Ok(checked) => assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr)),
        }
    }
    let (ended, _, stderr) = output(hinterland().args(["completions", "csh"]));
    assert!(ended.status.code() == Some(125) && stderr.contains("[possible values: bash, zsh, fish]"), "{stderr}");
}

#[test]
fn settings_are_printed() {
    let (ended, file, stderr) = output(hinterland().arg("settings"));
    assert_eq!((ended.status.code(), stderr.as_str()), (Some(0), ""));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    let set = |text: &str| {
        fs::write(&path, text).unwrap();
        output(hinterland().args(["run", "--config"]).arg(&path).args(["--", "true"]))
    };
    // As it is it says nothing; a setting counts when its mark is removed.
    assert!(file.contains("\n#quiet = false\n"), "{file}");
    assert!(set(&file).2.contains("ended with exit code 0"), "no summary");
    assert_eq!(set(&file.replace("\n#quiet = false\n", "\nquiet = true\n")).2, "");
    let (ended, _, stderr) = set(&file.replace("\n#local = \"1G\"\n", "\nlocal = \"1M\"\n"));
    assert!(ended.status.code() == Some(125) && stderr.contains("config.toml: local: "), "{stderr}");
}
