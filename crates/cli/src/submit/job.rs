//! The job of a program: the options of sbatch. Pure.

use crate::advise::Needs;
use crate::encode::shell_word;

const MIB: u64 = 1 << 20;
/// What a program takes beside far pages (code, stacks, the library and its buffers), and what the pager keeps for each far page: 1/64 of it.
const OWN_BYTES: u64 = 64 * MIB;
const TABLES_PART: u64 = 64;
/// The least budget of a run.
const LOCAL_BYTES_MIN: u64 = 16 * MIB;

/// See the module.
#[derive(PartialEq, Eq, Debug)]
pub struct Job {
    words: Vec<String>,
}

impl Job {
    /// Of a program that needs so much, where a machine `is_warm` or none is; `launcher` is the command's path, `options` go to sbatch as they are.
    ///
    /// # Errors
    /// The far memory has no URL in the cost file.
    pub fn new(
        needs: &Needs,
        is_warm: bool,
        launcher: &str,
        options: &[String],
        program: &[String],
    ) -> Result<Job, String> {
        let name = program.first().map_or("", String::as_str).rsplit('/').next().unwrap_or_default();
        let mut words = vec![format!("--job-name={name}"), format!("--mem={}M", memory_bytes(needs).div_ceil(MIB))];
        let mut command = program.to_vec();
        if !needs.is_all_local() {
            let backend = &needs.backend;
            let far =
                needs.far.as_ref().ok_or_else(|| format!("backend '{backend}' says no `far`: what is --far to be?"))?;
            words.push(format!("--constraint=far-{backend}"));
            // What no machine has, Slurm refuses to prefer.
            words.extend(is_warm.then(|| format!("--prefer={}", warm(backend))));
            let local = needs.local_bytes.max(LOCAL_BYTES_MIN).div_ceil(MIB);
            let run = [launcher, "run", "--local", &format!("{local}M"), "--far", far, "--"].map(str::to_owned);
            command = run.into_iter().chain(command).collect();
        }
        words.extend_from_slice(options);
        let quoted: Vec<String> = command.iter().map(|word| shell_word(word)).collect();
        words.push(format!("--wrap={}", quoted.join(" ")));
        Ok(Job { words })
    }

    /// The options of sbatch.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The whole command, for a shell.
    pub fn line(&self) -> String {
        let quoted: Vec<String> = self.words.iter().map(|word| shell_word(word)).collect();
        format!("sbatch {}", quoted.join(" "))
    }
}

/// The active feature of machines that have such far memory now.
pub fn warm(backend: &str) -> String {
    format!("warm-{backend}")
}

/// What the job takes of its machine: far memory that is compressed RAM of the machine as much as it costs.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "bytes below 2^53"
)]
fn memory_bytes(needs: &Needs) -> u64 {
    let far = needs.touched_bytes.saturating_sub(needs.local_bytes);
    let is_ram = needs.far.as_ref().is_some_and(|far| far.starts_with("compressed"));
    let far_here = if is_ram { (far as f64 * needs.cost).ceil() as u64 } else { 0 };
    let local = needs.local_bytes.max(LOCAL_BYTES_MIN);
    local + far_here + needs.touched_bytes / TABLES_PART + OWN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(local_mib: u64, far: Option<&str>) -> Needs {
        Needs {
            backend: "ssd".into(),
            far: far.map(str::to_owned),
            cost: 0.4,
            touched_bytes: 640 * MIB,
            local_bytes: local_mib * MIB,
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn memory_and_machines_are_asked_for_and_the_program_runs_with_that() {
        let job = Job::new(
            &needs(128, Some("file:/var/tmp?size=64G")),
            true,
            "/usr/bin/hinterland",
            &[],
            &words("./bin/job -n 3"),
        );
        assert_eq!(
            job.expect("a job").line(),
            "sbatch --job-name=job --mem=202M --constraint=far-ssd --prefer=warm-ssd \
             '--wrap=/usr/bin/hinterland run --local 128M --far '\\''file:/var/tmp?size=64G'\\'' -- ./bin/job -n 3'"
        );
    }

    #[test]
    fn compressed_memory_counts_in_part_and_what_needs_no_far_memory_asks_for_none() {
        let job =
            Job::new(&needs(140, Some("compressed:")), false, "h", &words("--time=5"), &words("job")).expect("a job");
        assert_eq!(job.words()[1], "--mem=414M", "140 + 0.4 × 500 + 10 + 64");
        assert_eq!(job.words()[2..4], ["--constraint=far-ssd", "--time=5"], "no machine is warm");
        let job = Job::new(&needs(640, None), true, "h", &[], &words("job")).expect("a job");
        assert_eq!(job.words(), ["--job-name=job", "--mem=714M", "--wrap=job"]);
        let job = Job::new(&needs(1, Some("ssd")), false, "h", &[], &words("job")).expect("a job");
        assert!(job.line().contains("run --local 16M"), "{}", job.line());
        assert!(Job::new(&needs(140, None), true, "h", &[], &words("job")).expect_err("no far").contains("'ssd'"));
    }
}
