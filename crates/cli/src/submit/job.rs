//! The job of a program: the options of sbatch. Pure.

use super::constraint;
use crate::advise::Needs;
use crate::encode::shell_word;
use hinterland_backend::{BackendUrl, Scheme};
use hinterland_units::ByteCount;

const MIB: u64 = 1 << 20;
/// What a program takes beside far pages (code, stacks, the library and its buffers), and what the pager keeps for each far page: 1/64 of it.
const OWN_BYTES: u64 = 64 * MIB;
const TABLES_PART: u64 = 64;

/// See the module.
#[derive(PartialEq, Eq, Debug)]
pub struct Job {
    words: Vec<String>,
}

impl Job {
    /// Of a program that needs so much, where a machine `is_warm` or none is; `launcher` is the command's path, `options` go to sbatch as they are.
    ///
    /// # Errors
    /// The far memory has no URL in the cost file, or an example's; the user's constraint cannot be joined with the job's.
    pub fn new(
        needs: &Needs,
        is_warm: bool,
        launcher: &str,
        options: &[String],
        program: &[String],
    ) -> Result<Job, String> {
        let name = program.first().map_or("", String::as_str).rsplit('/').next().unwrap_or_default();
        let far = if needs.is_all_local() { None } else { Some(Far::of(needs)?) };
        let memory = memory_bytes(needs, far.as_ref()).div_ceil(MIB);
        let mut words = vec![format!("--job-name={name}"), format!("--mem={memory}M")];
        let mut command = program.to_vec();
        let mut options = options.to_vec();
        if let Some(Far { written, .. }) = &far {
            let backend = &needs.backend;
            let (users, others) = constraint::take(&options);
            let ours = format!("far-{backend}");
            let features = users.map_or(Ok(ours.clone()), |users| constraint::both(&users, &ours))?;
            words.push(format!("--constraint={features}"));
            options = others;
            // What no machine has, Slurm refuses to prefer.
            words.extend(is_warm.then(|| format!("--prefer={}", warm(backend))));
            let local = needs.local_bytes.div_ceil(MIB);
            let run = [launcher, "run", "--local", &format!("{local}M"), "--far", written, "--"].map(str::to_owned);
            command = run.into_iter().chain(command).collect();
        }
        words.append(&mut options);
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

/// The far memory of a job.
struct Far {
    /// What `--far` says.
    written: String,
    /// Bytes that it takes of the machine's memory, which Slurm counts.
    here_bytes: u64,
}

/// Words that stand for a machine and a NUMA node in the example of a cost file.
const EXAMPLES: [&str; 2] = ["HOST", "NODE"];

impl Far {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "bytes below 2^53"
    )]
    fn of(needs: &Needs) -> Result<Far, String> {
        let backend = &needs.backend;
        let far =
            needs.far.as_ref().ok_or_else(|| format!("backend '{backend}' says no `far`: what is --far to be?"))?;
        let is_example = |word: &str| EXAMPLES.contains(&word);
        if far.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_example) {
            return Err(format!(
                "backend '{backend}' has the `far` of the example, '{far}': write what is there in your cluster into a file for --costs (it begins as \
                 `hinterland advise --example-costs` writes it), or choose another with --backend"
            ));
        }
        let bytes = needs.touched_bytes.saturating_sub(needs.local_bytes);
        let url = hinterland_backend::parse(far).map_err(|error| format!("backend '{backend}': {error}"))?;
        let here_bytes = match url.scheme {
            // As much as it costs.
            Scheme::Compressed { .. } => (bytes as f64 * needs.cost).ceil() as u64,
            Scheme::Numa { .. } | Scheme::Reference => bytes,
            _ => 0,
        };
        Ok(Far { written: sized(url, needs.touched_bytes).unwrap_or_else(|| far.clone()), here_bytes })
    }
}

/// Memory of a NUMA node whose size is left open is half of what the job may still take, which is less than it needs: with the size of all that the
/// program touches.
fn sized(mut url: BackendUrl, touched_bytes: u64) -> Option<String> {
    let is_open = matches!(url.scheme, Scheme::Numa { .. }) && url.capacity.is_none();
    is_open.then(|| {
        url.capacity = Some(ByteCount(touched_bytes.div_ceil(MIB) * MIB));
        url.to_string()
    })
}

/// What the job takes of its machine.
fn memory_bytes(needs: &Needs, far: Option<&Far>) -> u64 {
    needs.local_bytes + far.map_or(0, |far| far.here_bytes) + needs.touched_bytes / TABLES_PART + OWN_BYTES
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
            Job::new(&needs(140, Some("compressed")), false, "h", &words("--time=5"), &words("job")).expect("a job");
        assert_eq!(job.words()[1], "--mem=414M", "140 + 0.4 × 500 + 10 + 64");
        assert_eq!(job.words()[2..4], ["--constraint=far-ssd", "--time=5"], "no machine is warm");
        let job = Job::new(&needs(640, None), true, "h", &[], &words("job")).expect("a job");
        assert_eq!(job.words(), ["--job-name=job", "--mem=714M", "--wrap=job"]);
        let job = Job::new(&needs(140, Some("numa:1")), false, "h", &[], &words("job")).expect("a job");
        assert_eq!(job.words()[1], "--mem=714M", "140 + 500 + 10 + 64: plain pages in the machine");
        assert!(job.line().contains("--far numa:1:640M -- job"), "all that it touches has room: {}", job.line());
        assert!(Job::new(&needs(140, None), true, "h", &[], &words("job")).expect_err("no far").contains("'ssd'"));
    }

    #[test]
    fn what_stands_for_something_else_in_the_example_is_not_submitted() {
        for far in ["tcp://HOST:7440", "numa:NODE", "floppy:a"] {
            let refused = Job::new(&needs(140, Some(far)), false, "h", &[], &words("job")).expect_err(far);
            assert!(refused.contains("'ssd'"), "{refused}");
        }
        let job = Job::new(&needs(140, Some("tcp://hostess:7440")), false, "h", &[], &words("job"));
        assert!(job.expect("a job").line().contains("--far tcp://hostess:7440"));
    }

    #[test]
    fn the_users_constraint_and_the_jobs_are_one() {
        let options = words("--time=5 --constraint=gpu|big -c 2");
        let far = Some("file:/var/tmp");
        let job = Job::new(&needs(140, far), false, "h", &options, &words("job")).expect("a job");
        assert_eq!(job.words()[2..6], ["--constraint=(gpu|big)&far-ssd", "--time=5", "-c", "2"]);
        let job = Job::new(&needs(640, far), false, "h", &options, &words("job")).expect("a job");
        assert_eq!(job.words()[2..4], ["--time=5", "--constraint=gpu|big"], "it needs no far memory");
        assert!(Job::new(&needs(140, far), false, "h", &words("-C [a|b]"), &words("job")).is_err());
    }
}
