//! Whether a run of a program waits for much more than `hinterland optimize` measured with its plan. Then it has other input, or the plan has
//! aged.

use super::{Measured, Written, digests};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A run waits for more than was measured when its threads waited so much longer a part of their time, and so many times as long a part.
const MORE_SHARE: f64 = 0.1;
const MORE_TIMES: f64 = 1.5;

/// A file beside a program that has more bytes is no plan.
const PLAN_BYTES_MAX: u64 = 16 << 20;

/// What a run did, as `Measured` has it.
pub struct Run<'a> {
    /// The part of its time that a thread waited, 0 to 1.
    pub waiting: f64,
    /// The local budget; 0: it was no fixed number of bytes.
    pub local_bytes: u64,
    /// The far memory that was set; empty: the default.
    pub far: &'a str,
}

/// Where the plan of a program lies: beside it.
pub fn path_of(program: &Path) -> PathBuf {
    let mut name = OsString::from(program);
    name.push(".plan");
    name.into()
}

/// The plan that lies beside a program. What is no regular file is none: reading a FIFO would wait for its writer.
fn beside(program: &Path) -> Option<(PathBuf, Written)> {
    let path = path_of(program);
    std::fs::metadata(&path).ok().filter(|found| found.is_file() && found.len() <= PLAN_BYTES_MAX)?;
    let text = std::fs::read_to_string(&path).ok()?;
    Some((path, Written::parse(&text).ok()?))
}

/// What to say of a run that waited for much more than was measured with the plan that the program was compiled with, if it lies beside
/// the program. With less local memory, one that was not the same all the time, or other far memory, it is not compared.
pub fn regression(program: &Path, run: &Run<'_>) -> Option<String> {
    let (plan_path, Written { plan, digest }) = beside(program)?;
    let measured = plan.measured?;
    if !is_worse(&measured, run) || !digests(program)?.contains(&digest) {
        return None;
    }
    Some(format!(
        "waited {:.0} % of its time for far memory, and {:.0} % when its plan was measured with no more local memory; \
         `hinterland optimize --plan {}` goes on from there",
        run.waiting * 100.0,
        measured.waiting * 100.0,
        plan_path.display()
    ))
}

/// What to say of a plan that lies beside the program, where that was compiled with others alone, or without one.
pub fn foreign(program: &Path) -> Option<String> {
    let (plan_path, Written { digest, .. }) = beside(program)?;
    let digests = digests(program)?;
    let is_foreign = !digests.is_empty() && !digests.contains(&digest);
    is_foreign.then(|| {
        format!("{} is not the plan that it was compiled with (--far-plan): it has no effect", plan_path.display())
    })
}

fn is_worse(measured: &Measured, run: &Run<'_>) -> bool {
    let has_as_much = measured.local_bytes > 0 && run.local_bytes >= measured.local_bytes;
    let is_comparable = has_as_much && run.far == measured.far;
    is_comparable && run.waiting > measured.waiting + MORE_SHARE && run.waiting > measured.waiting * MORE_TIMES
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn what_is_no_file_or_too_large_for_a_plan_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("app");
        let is_there = || beside(&program).is_some();
        std::fs::write(path_of(&program), "hinterland-plan = 1\n").unwrap();
        assert!(is_there());
        let comment = "#".repeat(usize::try_from(PLAN_BYTES_MAX).unwrap());
        std::fs::write(path_of(&program), "hinterland-plan = 1\n".to_owned() + &comment).unwrap();
        assert!(!is_there());
        std::fs::remove_file(path_of(&program)).unwrap();
        nix::unistd::mkfifo(&path_of(&program), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        // Nothing writes to it.
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(foreign(&program)));
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(None));
    }

    #[test]
    fn a_run_that_waits_for_much_more_with_as_much_memory_is_worse() {
        let far = "compressed:4G";
        let measured = Measured {
            seconds: 1.0,
            plain_seconds: 2.0,
            waiting: 0.3,
            major_faults: 10,
            local_bytes: 1 << 24,
            far: far.into(),
        };
        let run = |waiting, local_bytes, far| is_worse(&measured, &Run { waiting, local_bytes, far });
        assert!(run(0.5, 1 << 24, far) && run(0.5, 1 << 25, far));
        assert!(!run(0.42, 1 << 24, far), "not half as much again");
        assert!(!run(0.5, 1 << 23, far) && !run(0.5, 1 << 24, "compressed:1G"), "not comparable");
        let any = Measured { local_bytes: 0, ..measured.clone() };
        assert!(!is_worse(&any, &Run { waiting: 0.5, local_bytes: 0, far }), "of a budget that is no number of bytes");
        let little = Measured { waiting: 0.01, ..measured.clone() };
        assert!(!is_worse(&little, &Run { waiting: 0.1, local_bytes: 1 << 24, far }), "hardly any");
    }
}
