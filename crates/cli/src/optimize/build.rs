//! Building the program with a plan.
//!
//! A build system compiles what depends on a changed file, and does not see plans: MAKEFLAGS gets -B, by which make makes everything, and cargo finds a
//! compiler of another version.

use super::Stop;
use super::interrupt::Interrupt;
use crate::compile;
use crate::encode::shell_word;
use crate::error::Error;
use crate::plan::{Plan, digest};
use crate::profile::HEAD;
use crate::program;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// By what the build command finds the plan.
const PLAN_VARIABLE: &str = "HINTERLAND_PLAN";
/// By what GNU make finds its flags.
const MAKE_VARIABLE: &str = "MAKEFLAGS";

/// See the module.
pub struct Builder {
    command: String,
    launcher: String,
    plan: PathBuf,
    /// The compiler that cargo finds, or why there is none that loads the plugin.
    rustc: Result<PathBuf, Error>,
}

impl Builder {
    /// One that keeps the plan of each build at one place in `directory`.
    pub fn new(command: &str, directory: &Path) -> Result<Builder, Stop> {
        let launcher = program::own_path()?;
        let launcher = launcher.to_str().ok_or(Stop::Words("the hinterland command's path is not UTF-8".into()))?;
        let rustc = compile::rust_ready().map(|()| directory.join("rustc"));
        let plan = directory.join("program.plan");
        Ok(Builder { command: command.into(), launcher: shell_word(launcher), plan, rustc })
    }

    /// Why the build command finds no compiler of Rust, to stand behind what names $RUSTC; nothing where it finds one.
    pub fn without_rustc(&self) -> String {
        self.rustc.as_ref().map_or_else(|error| format!(" ($RUSTC is not set: {error})"), |_| String::new())
    }

    /// Builds the program, until a signal; returns the digest of the plan, which its objects name.
    pub fn build(&self, plan: &Plan, until: &Interrupt) -> Result<String, Stop> {
        let text = plan.text(HEAD).map_err(Stop::Words)?;
        let system = |what| move |source| Stop::System { what, source };
        std::fs::write(&self.plan, &text).map_err(system("cannot write the plan"))?;
        let digest = digest(&text);
        let place = shell_word(&self.plan.to_string_lossy());
        let compiler = |language: &str| format!("{} {language} --far-plan {place}", self.launcher);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.command]).env("CC", compiler("cc")).env("CXX", compiler("c++"));
        if let Ok(rustc) = &self.rustc {
            script(rustc, &versioned(&compiler("rustc"), &digest)).map_err(system("cannot write what $RUSTC names"))?;
            command.env("RUSTC", rustc);
        }
        command.env(MAKE_VARIABLE, making_all(&std::env::var(MAKE_VARIABLE).unwrap_or_default()));
        command.env(PLAN_VARIABLE, &self.plan);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (build, _guarded) = until.spawn(&mut command)?;
        let output = build.wait_with_output().map_err(system("cannot wait for the build"))?;
        until.check()?;
        if output.status.success() {
            return Ok(digest);
        }
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let how = match output.status.code() {
            Some(code) => format!("ended with {code}"),
            None => "was killed".into(),
        };
        Err(Stop::Build { command: self.command.clone(), how, said })
    }
}

/// A program that is `rustc`, of a version that names the plan: by its version cargo decides whether it compiles anew.
fn versioned(rustc: &str, digest: &str) -> String {
    format!(
        "#!/bin/sh\n{rustc} \"$@\" || exit\nif [ \"$*\" = -vV ]; then echo {}; fi\n",
        shell_word(&format!("hinterland-plan: {digest}"))
    )
}

fn script(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

/// Make's flags, and -B: make everything. The first word has no dash where it consists of letters.
fn making_all(flags: &str) -> String {
    let flags = flags.trim_start();
    let first = flags.split(' ').next().unwrap_or_default();
    let has_letters_alone = !first.starts_with('-') && !first.contains('=');
    format!("B{}{flags}", if has_letters_alone { "" } else { " " })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_finds_compilers_and_plan_and_says_why_it_fails() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("a 'log'");
        let say = format!(
            "printf '%s\\n' \"$CC\" \"$CXX\" \"$MAKEFLAGS\" > {}; cat \"$HINTERLAND_PLAN\" >> {0}",
            shell_word(log.to_str().unwrap())
        );
        let plan = Plan { version: 1, ..Plan::default() };
        let digest_of = Builder::new(&say, directory.path()).unwrap().build(&plan, &Interrupt::default()).unwrap();
        let said = std::fs::read_to_string(&log).unwrap();
        let mut lines = said.lines();
        let place = directory.path().join("program.plan");
        for language in ["cc", "c++"] {
            assert!(lines.next().unwrap().ends_with(&format!(" {language} --far-plan {}", place.display())), "{said}");
        }
        assert!(lines.next().unwrap().starts_with('B'), "{said}");
        assert_eq!(digest_of, digest(&plan.text(HEAD).unwrap()));
        assert!(said.ends_with("hinterland-plan = 1\n"), "{said}");
        let failing = Builder::new("echo one; echo two >&2; exit 7", directory.path()).unwrap();
        let failed = failing.build(&plan, &Interrupt::default()).unwrap_err();
        assert_eq!(failed.to_string(), "--build: 'echo one; echo two >&2; exit 7' ended with 7: one | two");
    }

    #[test]
    fn the_reason_why_there_is_no_rustc_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let mut builder = Builder::new("true", directory.path()).unwrap();
        builder.rustc = Err(Error::NoRustc { why: "the one in PATH has LLVM 21.1.0".into() });
        let said = builder.without_rustc();
        assert!(
            said.starts_with(" ($RUSTC is not set: no rustc with LLVM 22: the one in PATH has LLVM 21.1.0;"),
            "{said}"
        );
        builder.rustc = Ok(directory.path().join("rustc"));
        assert_eq!(builder.without_rustc(), "");
    }

    #[test]
    fn make_gets_its_flags_and_makes_everything() {
        for (flags, expected) in [
            ("", "B"),
            ("kw", "Bkw"),
            ("kw -- A=1", "Bkw -- A=1"),
            (" -j4 --jobserver-auth=3,4", "B -j4 --jobserver-auth=3,4"),
            ("A=kw", "B A=kw"),
        ] {
            assert_eq!(making_all(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_rust_compiler_has_another_version_with_each_plan_and_its_own_exit_code() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("rustc");
        let run = |rustc: &str, words: &[&str]| {
            script(&place, &versioned(rustc, "0123")).unwrap();
            let output = Command::new(&place).args(words).output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(run("echo", &["-vV"]), (Some(0), "-vV\nhinterland-plan: 0123\n".into()));
        assert_eq!(run("echo", &["a  b", "-vV"]), (Some(0), "a  b -vV\n".into()));
        assert_eq!(run("sh -c 'exit 7' sh", &["-vV"]), (Some(7), String::new()));
    }
}
