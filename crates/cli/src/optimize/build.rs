//! Building the program with a plan.

use super::{PLAN_HEAD, Stop};
use crate::error::Error;
use crate::plan::{Plan, digest};
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
        let launcher = std::env::current_exe();
        let launcher = launcher.map_err(Error::system("cannot find the hinterland command's own path"))?;
        let launcher = launcher.to_str().ok_or(Stop::Words("the hinterland command's path is not UTF-8".into()))?;
        Ok(Builder { command: command.into(), launcher: quoted(launcher), plan: directory.join("program.plan") })
    }

    /// Builds the program; returns the digest of the plan, which its objects name.
    pub fn build(&self, plan: &Plan) -> Result<String, Stop> {
        let text = plan.text(PLAN_HEAD).map_err(Stop::Words)?;
        let system = |what| move |source| Stop::System { what, source };
        std::fs::write(&self.plan, &text).map_err(system("cannot write the plan"))?;
        let place = quoted(&self.plan.to_string_lossy());
        let compiler = |language: &str| format!("{} {language} --far-plan {place}", self.launcher);
        let output = Command::new("/bin/sh")
            .args(["-c", &self.command])
            .env("CC", compiler("cc"))
            .env("CXX", compiler("c++"))
            .env(PLAN_VARIABLE, &self.plan)
            .stdin(Stdio::null())
            .output()
            .map_err(system("cannot start the build"))?;
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

/// As a word of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if word.chars().all(is_plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_finds_compilers_and_plan_and_its_failure_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("a 'log'");
        let say = format!(
            "printf '%s\\n' \"$CC\" \"$CXX\" > {}; cat \"$HINTERLAND_PLAN\" >> {0}",
            quoted(log.to_str().unwrap())
        );
        let plan = Plan { version: 1, ..Plan::default() };
        let digest_of = Builder::new(&say, directory.path()).unwrap().build(&plan).unwrap();
        let said = std::fs::read_to_string(&log).unwrap();
        let mut lines = said.lines();
        let place = directory.path().join("program.plan");
        for language in ["cc", "c++"] {
            assert!(lines.next().unwrap().ends_with(&format!(" {language} --far-plan {}", place.display())), "{said}");
        }
        assert_eq!(digest_of, digest(&plan.text(PLAN_HEAD).unwrap()));
        assert!(said.ends_with("hinterland-plan = 1\n"), "{said}");
        let failed =
            Builder::new("echo one; echo two >&2; exit 7", directory.path()).unwrap().build(&plan).unwrap_err();
        assert_eq!(failed.to_string(), "--build: 'echo one; echo two >&2; exit 7' ended with 7: one | two");
    }
}
