//! The native run of a scenario: the reference for its output and its memory.

use crate::process::{Finished, OFTEN, run};
use crate::scenario::{STDERR, STDOUT};
use crate::{Place, Scenario, places};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// What a native run gave.
#[derive(Clone, Debug)]
pub struct Native {
    /// Digest of everything that counts as output.
    pub digest: String,
    /// Time and memory.
    pub finished: Finished,
}

/// Makes the inputs of `scenario` at `size_bytes`, unless a run before has made them. Tests that need the same inputs at the same time
/// wait for the one that makes them.
///
/// # Errors
/// `prepare` failed; nothing half-made is left.
pub fn prepare(scenario: &Scenario, size_bytes: u64) -> Result<Place> {
    let name = format!("{}-{}m", scenario.name, size_bytes / crate::MIB);
    let all = places::tests().join("inputs");
    std::fs::create_dir_all(&all).with_context(|| format!("cannot make {}", all.display()))?;
    let (inputs, run) = (all.join(&name), places::tests().join("runs").join(&name));
    let place = Place { size_bytes, inputs: inputs.clone(), run };
    let lock = File::create(all.join(format!("{name}.lock")))?;
    lock.lock().with_context(|| format!("cannot lock the inputs of {name}"))?;
    if !inputs.join(".complete").exists() {
        places::emptied(inputs.clone())?;
        (scenario.prepare)(&place).with_context(|| format!("cannot prepare {name}"))?;
        File::create(inputs.join(".complete"))?;
    }
    Ok(place)
}

/// Runs `scenario` natively.
///
/// # Errors
/// It did not end with 0 within `limit`, or its output cannot be read.
pub fn run_native(scenario: &Scenario, place: &Place, limit: Duration) -> Result<Native> {
    let directory = places::emptied(place.run.clone())?;
    let command = (scenario.command)(place).command(&[], &directory)?;
    let finished = run_with_client(scenario, place, command, limit, OFTEN)?;
    if finished.timed_out || finished.code != 0 {
        let what = if finished.timed_out { "was too slow" } else { "failed" };
        bail!("the native run of {} {what} (code {}): {}", scenario.name, finished.code, tail(&directory.join(STDERR)));
    }
    Ok(Native { digest: digest(scenario, &directory)?, finished })
}

/// Runs `command` with the scenario's client, if it has one, with a look at its tree `every` so often.
pub fn run_with_client(
    scenario: &Scenario,
    place: &Place,
    command: std::process::Command,
    limit: Duration,
    every: Duration,
) -> Result<Finished> {
    match scenario.beside {
        Some(client) => run(command, limit, every, Some(&|ended| client(place, ended))),
        None => run(command, limit, every, None),
    }
}

/// SHA-256 over the standard output and the output files, each with its name and length.
pub fn digest(scenario: &Scenario, directory: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for name in std::iter::once(&STDOUT).chain(scenario.outputs) {
        let path = directory.join(name);
        let mut file = File::open(&path).with_context(|| format!("no output {}", path.display()))?;
        hash.update(format!("{name} {}\n", file.metadata()?.len()));
        let mut block = vec![0; 1 << 16];
        loop {
            match file.read(&mut block)? {
                0 => break,
                bytes => hash.update(&block[..bytes]),
            }
        }
    }
    Ok(hex::encode(hash.finalize()))
}

/// The last lines of a text file, for messages.
pub fn tail(path: &Path) -> String {
    let text = std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Line, MIB};
    use std::sync::atomic::{AtomicU32, Ordering};

    static PREPARED: AtomicU32 = AtomicU32::new(0);

    const SLOW: Scenario = Scenario {
        name: "prepared-once",
        about: "inputs that take a while",
        needs: &[],
        small_objects: false,
        prepare: |place| {
            PREPARED.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
            Ok(std::fs::write(place.inputs.join("input"), "whole")?)
        },
        command: |_| Line::shell(String::new()),
        beside: None,
        outputs: &[],
    };

    #[test]
    fn inputs_are_made_once_and_whole_for_all_that_need_them() {
        let _ = std::fs::remove_dir_all(places::tests().join("inputs/prepared-once-1m"));
        let read = || std::fs::read_to_string(prepare(&SLOW, MIB).unwrap().inputs.join("input")).unwrap();
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
            assert!(all.into_iter().all(|one| one.join().unwrap() == "whole"));
        });
        assert_eq!(PREPARED.load(Ordering::Relaxed), 1);
    }
}
