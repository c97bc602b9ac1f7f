//! Cases reported by others (`hinterland_tests::field`): each on both fault paths, as root and as a user without
//! privileges. The outcome is exactly that of the table.

use anyhow::{Context, Result, ensure};
use hinterland_tests::field::{Case, KINDS, Outcome, Proof, WAYS, Way};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::unprivileged::{Nobody, anybody_may_serve_faults};
use hinterland_tests::{places, skips, suite};
use std::path::Path;
use std::process::Command;

/// Exit code of a refusal, and of a run that was ended.
const REFUSED: i32 = 125;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    cases()
        .flat_map(|case| WAYS.iter().zip(case.outcomes).map(move |(way, outcome)| trial(case, *way, outcome)))
        .collect()
}

/// Those that only `--full` runs: where the outcome on the inline path is the same with and without privileges, these take turns.
pub fn only_in_full() -> impl Iterator<Item = String> {
    const INLINE: [usize; 2] = [1, 3];
    let same = cases().filter(|case| case.outcomes[INLINE[0]] == case.outcomes[INLINE[1]]);
    same.zip(INLINE.into_iter().cycle()).map(|(case, way)| case.test(WAYS[way]))
}

/// Those that are tests of this file.
fn cases() -> impl Iterator<Item = &'static Case> {
    KINDS.iter().flat_map(|(_, cases)| *cases).filter(|case| !matches!(case.proof, Proof::Test(_)))
}

fn trial(case: &'static Case, way: Way, outcome: Outcome) -> Trial {
    let test = case.test(way);
    suite::trial(
        test.clone(),
        move || obstacle(way),
        move || {
            let who = Who::new(&test, way)?;
            let ended = who.run(case, Some((way.path, outcome)))?;
            if let Outcome::Refused(words) = outcome {
                return refused(&ended, words);
            }
            judge(&who.run(case, None)?, &ended, outcome, case.otherwise)?;
            if case.pages && outcome == Outcome::AsNatively {
                ended.expect_eviction()?;
            }
            Ok(())
        },
    )
}

/// Why a way cannot be tried here.
pub fn obstacle(way: Way) -> Option<String> {
    let free = way.path == "monitor" && !way.privileged && anybody_may_serve_faults();
    let free = free.then(|| "anybody may serve the faults of system calls on this machine".to_owned());
    let right = if way.privileged { skips::no_userfaultfd } else { skips::not_root };
    right().or(free)
}

/// The outcome, and no other. `otherwise`: once it was named, the program may go on in another way than natively.
pub fn judge(native: &Ended, ended: &Ended, outcome: Outcome, otherwise: bool) -> Result<()> {
    let natively = || {
        let same = native.code == ended.code && native.stdout == ended.stdout;
        ensure!(same, "not as natively:\n{ended:?}\nnatively:\n{native:?}");
        Ok(())
    };
    ensure!(!ended.stdout.contains("WRONG"), "wrong bytes: {ended:?}");
    match outcome {
        Outcome::AsNatively => natively(),
        Outcome::Refused(words) => refused(ended, words),
        Outcome::Named(words) => {
            ensure!(ended.stderr.contains(words), "nothing says '{words}': {ended:?}");
            ensure!(
                ended.code == native.code || ended.code == REFUSED,
                "ended otherwise: {ended:?}\nnatively:\n{native:?}"
            );
            if ended.code == REFUSED || otherwise { Ok(()) } else { natively() }
        }
    }
}

/// The program was not started, and why is said with these words.
fn refused(ended: &Ended, words: &str) -> Result<()> {
    let refused = ended.code == REFUSED && ended.stdout.is_empty() && ended.stderr.contains(words);
    ensure!(refused, "not refused with '{words}': {ended:?}");
    Ok(())
}

/// Who runs a case: root in the test's directory, or somebody without rights in his own.
pub enum Who {
    Root(String),
    Nobody(String, Nobody),
}

impl Who {
    pub fn new(test: &str, way: Way) -> Result<Who> {
        let name = test.to_owned();
        Ok(if way.privileged { Who::Root(name) } else { Who::Nobody(name, Nobody::new(test)?) })
    }

    /// Runs the case: natively, or on a fault path with what is to happen there.
    fn run(&self, case: &Case, managed: Option<(&str, Outcome)>) -> Result<Ended> {
        let (name, words) = match case.proof {
            Proof::Program(name, words) => (name, words),
            Proof::Script(_, name) => (name, &[][..]),
            Proof::Test(name) => anyhow::bail!("{name} is a test of its own"),
        };
        let program = self.bring(&c_program(name, &["-D_GNU_SOURCE"])?)?;
        let command = match case.proof {
            Proof::Script(script, _) => ["sh", "-c", script].map(String::from).to_vec(),
            _ => std::iter::once(program.clone()).chain(words.iter().map(|word| (*word).to_owned())).collect(),
        };
        let launch = match managed {
            None => self.natively(&command)?,
            Some((path, _)) => self.managed(path, "16M", &command)?,
        };
        let running = launch.with("PROGRAM", &program).start()?;
        // Programs that wait to be named wait for this file.
        let (directory, said) = (self.directory(managed.is_some()), running.directory.join("stderr"));
        let words = match managed {
            Some((_, Outcome::Named(words))) => words,
            _ => "",
        };
        let mut enough = false;
        let ended = running.end_while(|_| {
            if !enough && std::fs::read_to_string(&said).unwrap_or_default().contains(words) {
                std::fs::write(directory.join("enough"), "")?;
                enough = true;
            }
            Ok(())
        })?;
        let _ = std::fs::remove_file(directory.join("enough"));
        self.hand_over(&ended);
        Ok(ended)
    }

    /// Puts the statistics of a run where they are looked for.
    pub fn hand_over(&self, ended: &Ended) {
        if let Who::Nobody(_, nobody) = self {
            nobody.hand_over(ended);
        }
    }

    /// A file where this user may read it.
    pub fn bring(&self, program: &Path) -> Result<String> {
        Ok(match self {
            Who::Root(_) => program.to_owned(),
            Who::Nobody(_, nobody) => nobody.bring(program)?,
        }
        .display()
        .to_string())
    }

    /// Without Hinterland.
    pub fn natively(&self, words: &[String]) -> Result<Launch> {
        let mut command = Command::new(words.first().context("a command has a program")?);
        command.args(&words[1..]);
        match self {
            Who::Root(test) => Launch::of(&format!("{test}-natively"), command),
            Who::Nobody(test, nobody) => nobody.launch(&format!("{test}-natively"), command),
        }
    }

    /// On a fault path, with this budget.
    pub fn managed(&self, path: &str, budget: &str, words: &[String]) -> Result<Launch> {
        let arguments = ["--local", budget, "--fault-path", path];
        match self {
            Who::Root(test) => Launch::new(test, &arguments, &words.iter().map(String::as_str).collect::<Vec<_>>()),
            Who::Nobody(test, nobody) => nobody.launch_managed(test, &arguments, words),
        }
    }

    /// The working directory.
    fn directory(&self, managed: bool) -> std::path::PathBuf {
        match self {
            Who::Root(test) => {
                let name = if managed { test.clone() } else { format!("{test}-natively") };
                places::tests().join("lifecycle").join(name.replace("::", "-"))
            }
            Who::Nobody(_, nobody) => nobody.directory.clone(),
        }
    }
}
