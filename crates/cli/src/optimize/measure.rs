//! Running the program as it was built: some runs, of which the median counts, and one for a profile.

use super::Stop;
use super::interrupt::Interrupt;
use crate::config::flags::{Flags, Optimized};
use crate::profile::ProfileFile;
use crate::program;
use crate::report::waiting;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The members of the statistics that are read.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
struct Stats {
    wall_seconds: f64,
    stall_share: f64,
    stall_threads: u64,
    major_faults: u64,
}

/// What a round measured: each figure the median of its runs.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Measurement {
    /// From the start to the end.
    pub seconds: f64,
    /// The shortest and the longest run.
    pub seconds_min: f64,
    pub seconds_max: f64,
    /// The part of its time that a thread waited for far memory, 0 to 1.
    pub waiting: f64,
    /// Faults that fetched a page.
    pub major_faults: u64,
}

/// How the runs of a round ended.
pub enum Runs {
    /// All in order.
    Ended {
        measured: Measurement,
        /// Of what was printed; `None`: it was not the same in all runs.
        output: Option<[u8; 32]>,
    },
    /// One did not.
    Failed { how: String, said: String },
}

/// See the module.
pub struct Runner {
    launcher: PathBuf,
    settings: Vec<String>,
    program: Vec<OsString>,
    repeat: u32,
    directory: PathBuf,
    until: Interrupt,
}

impl Runner {
    /// One whose runs a signal ends.
    pub fn new(
        settings: &Flags<Optimized>,
        words: &[OsString],
        repeat: u32,
        directory: &Path,
        until: Interrupt,
    ) -> Result<Runner, Stop> {
        Ok(Runner {
            launcher: program::own_path()?,
            settings: settings.words(),
            program: words.into(),
            repeat,
            directory: directory.into(),
            until,
        })
    }

    /// The program's name, as it was written.
    pub fn name(&self) -> String {
        self.program.first().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }

    /// Runs it `repeat` times; `say` gets how far that is.
    pub fn measure(&self, say: &dyn Fn(String)) -> Result<Runs, Stop> {
        let stats = self.directory.join("stats.json");
        let (mut all, mut outputs) = (Vec::new(), Vec::new());
        for at in 1..=self.repeat {
            say(format!("run {at} of {}", self.repeat));
            let ended = self.run(&["run", "--quiet", "--stats"], &stats)?;
            if !ended.status.success() {
                return Ok(Runs::Failed { how: how(ended.status), said: ended.said });
            }
            all.push(read::<Stats>(&stats)?);
            outputs.push(ended.output);
        }
        let output = outputs[0];
        let output = outputs.iter().all(|other| *other == output).then_some(output);
        Ok(Runs::Ended { measured: medians(&all), output })
    }

    /// Takes a profile. `None`: the program did not end in order.
    pub fn profile(&self) -> Result<Option<ProfileFile>, Stop> {
        let place = self.directory.join("program.prof");
        let ended = self.run(&["profile", "--quiet", "--output"], &place)?;
        if ended.status.success() { Ok(Some(ProfileFile::read(&place)?)) } else { Ok(None) }
    }

    fn run(&self, words: &[&str], file: &Path) -> Result<Ended, Stop> {
        let system = |what| move |source| Stop::System { what, source };
        let said_place = self.directory.join("said");
        let said = File::create(&said_place).map_err(system("cannot keep what the program says"))?;
        let mut command = Command::new(&self.launcher);
        command.args(words).arg(file).args(&self.settings).arg("--").args(&self.program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
        let (mut child, _guarded) = self.until.spawn(&mut command)?;
        let output = child
            .stdout
            .take()
            .map_or(Ok([0; 32]), digest_of)
            .map_err(system("cannot read what the program prints"))?;
        let status = child.wait().map_err(system("cannot wait for the program"))?;
        self.until.check()?;
        let said = std::fs::read(&said_place).map_err(system("cannot read what the program said"))?;
        Ok(Ended { status, output, said: String::from_utf8_lossy(&said).into_owned() })
    }
}

/// One run.
struct Ended {
    status: ExitStatus,
    /// SHA-256 of its standard output.
    output: [u8; 32],
    /// Its standard error.
    said: String,
}

fn digest_of(mut from: impl Read) -> std::io::Result<[u8; 32]> {
    let (mut digest, mut bytes) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(digest.finalize().into()),
            Ok(read) => digest.update(&bytes[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Stop> {
    let text = std::fs::read(path).map_err(|source| Stop::System { what: "cannot read the run's figures", source })?;
    serde_json::from_slice(&text).map_err(|error| Stop::Words(format!("the run's figures: {error}")))
}

fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    }
}

fn medians(runs: &[Stats]) -> Measurement {
    let median = |figure: &dyn Fn(&Stats) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        let half = all.len() / 2;
        if all.len().is_multiple_of(2) { f64::midpoint(all[half - 1], all[half]) } else { all[half] }
    };
    let seconds = runs.iter().map(|run| run.wall_seconds);
    let mut faults: Vec<u64> = runs.iter().map(|run| run.major_faults).collect();
    faults.sort_unstable();
    Measurement {
        seconds: median(&|run| run.wall_seconds),
        seconds_min: seconds.clone().fold(f64::INFINITY, f64::min),
        seconds_max: seconds.fold(0.0, f64::max),
        waiting: median(&|run| waiting(run.stall_share, run.stall_threads)),
        major_faults: faults[faults.len() / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle_and_waiting_is_one_threads() {
        let run = |wall_seconds, stall_share, stall_threads, major_faults| Stats {
            wall_seconds,
            stall_share,
            stall_threads,
            major_faults,
        };
        let measured = medians(&[run(3.0, 0.5, 1, 30), run(1.0, 0.1, 0, 10), run(2.0, 0.6, 2, 90)]);
        assert_eq!(
            measured,
            Measurement { seconds: 2.0, seconds_min: 1.0, seconds_max: 3.0, waiting: 0.3, major_faults: 30 }
        );
        assert_eq!(medians(&[run(3.0, 0.0, 1, 3), run(1.0, 0.0, 1, 1)]).seconds, 2.0);
    }
}
