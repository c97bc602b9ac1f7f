//! Building the program with a plan.

use super::Stop;
use super::interrupt::Interrupt;
use crate::encode::shell_word;
use crate::plan::{Plan, digest};
use crate::profile::HEAD;
use crate::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// By what the build command finds the plan.
const PLAN_VARIABLE: &str = "HINTERLAND_PLAN";

/// See the module.
pub struct Builder {
    command: String,
    launcher: String,
    plan: PathBuf,
}

impl Builder {
    /// One that keeps the plan of each build at one place in `directory`.
    pub fn new(command: &str, directory: &Path) -> Result<Builder, Stop> {
        let launcher = program::own_path()?;
        let launcher = launcher.to_str().ok_or(Stop::Words("the hinterland command's path is not UTF-8".into()))?;
        Ok(Builder { command: command.into(), launcher: shell_word(launcher), plan: directory.join("program.plan") })
    }

    /// Builds the program, until a signal; returns the digest of the plan, which its objects name.
    pub fn build(&self, plan: &Plan, until: &Interrupt) -> Result<String, Stop> {
        let text = plan.text(HEAD).map_err(Stop::Words)?;
        let system = |what| move |source| Stop::System { what, source };
        std::fs::write(&self.plan, &text).map_err(system("cannot write the plan"))?;
        let place = shell_word(&self.plan.to_string_lossy());
        let compiler = |language: &str| format!("{} {language} --far-plan {place}", self.launcher);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.command]).env("CC", compiler("cc")).env("CXX", compiler("c++"));
        command.env(PLAN_VARIABLE, &self.plan);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (build, _guarded) = until.spawn(&mut command)?;
        let output = build.wait_with_output().map_err(system("cannot wait for the build"))?;
        until.check()?;
        if output.status.success() {
            return Ok(digest(&text));
        }
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let how = match output.status.code() {
            Some(code) => format!("ended with {code}"),
            None => "was killed".into(),
        };
        Err(Stop::Build { command: self.command.clone(), how, said })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_finds_compilers_and_plan_and_says_why_it_fails() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("a 'log'");
        let say = format!(
            "printf '%s\\n' \"$CC\" \"$CXX\" > {}; cat \"$HINTERLAND_PLAN\" >> {0}",
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
        assert_eq!(digest_of, digest(&plan.text(HEAD).unwrap()));
        assert!(said.ends_with("hinterland-plan = 1\n"), "{said}");
        let failing = Builder::new("echo one; echo two >&2; exit 7", directory.path()).unwrap();
        let failed = failing.build(&plan, &Interrupt::default()).unwrap_err();
        assert_eq!(failed.to_string(), "--build: 'echo one; echo two >&2; exit 7' ended with 7: one | two");
    }
}
