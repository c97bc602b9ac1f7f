//! What goes over a launcher's socket: one JSON object a line, a request and its answer ([control.md](../../../../docs/control.md)).

use crate::report::RunFeatures;
use crate::report::members::documented;
use serde::{Deserialize, Serialize};

/// The version of these messages: another one when a name changes its meaning or goes away.
pub const CONTROL_VERSION: u64 = 1;
/// Bytes in a request, its line's end included.
pub const REQUEST_BYTES_MAX: usize = 4096;
/// Bytes in an answer.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The longest that an answer to `set` is waited for, in milliseconds.
pub const WAIT_MS_MAX: u64 = 600_000;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// The run's figures.
    Status,
    /// A change.
    Set,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`CONTROL_VERSION`].
    pub version: u64,
    /// What is asked for.
    pub request: Verb,
    /// Of `set`: the local budget, as `--local` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Of `set`: the bound on RAM, as `--ram` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram: Option<String>,
    /// Of `set`: processors for the pager's own threads, as `--cpus` takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Of `set`: how much comes to a thread that waits for a page, as `--granularity` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity: Option<String>,
    /// Of `set`: the size of a block, as `--block` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Of `set`: URLs of paths to far memory that are to be opened, as `--far` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_far: Vec<String>,
    /// Of `set`: URLs of paths to far memory whose pages are to go to the others, and that are to be closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_far: Vec<String>,
    /// Of `set`: how long the answer may wait for the run's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// An answer: one of its members beside the version.
#[derive(Default, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// [`CONTROL_VERSION`].
    pub version: u64,
    /// The run's figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// A change, and the processes that have not made it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<Change>,
    /// Why the request is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

documented! {
    /// A run, now. Sums are over its processes that live, counts over those that have ended, too.
    #[derive(Clone, Debug, Deserialize)]
    pub struct Status {
        /// The launcher: what `hinterland set` takes.
        pub pid: i32,
        /// The program and its arguments, cut after 1024 bytes.
        pub command: String,
        /// `monitor` or `inline`: the fault path of the process that holds most; `none`: nothing is managed.
        pub fault_path: String,
        /// Since the program's start.
        pub wall_seconds: f64,
        /// Processes that live and are managed.
        pub process_count: u64,
        /// The local budget now.
        pub local_budget_bytes: u64,
        /// The ceiling of the local budget, which `set --local` changes where `--slowdown` finds the budget; null without `--slowdown`.
        #[serde(default)]
        pub local_ceiling_bytes: Option<u64>,
        /// The bound on RAM now, or null.
        pub ram_budget_bytes: Option<u64>,
        /// Processors that the pager's own threads may take at once now, or null for all.
        #[serde(default)]
        pub pager_cpus: Option<u32>,
        /// How much comes to a thread that waits for a page now: `page`, `block`, `both` or `auto`.
        #[serde(default)]
        pub granularity: String,
        /// The size of a block now, or null for what it is by itself: what is set, bounded to a 64th of the local budget. In a process it is bounded by its share of that budget.
        #[serde(default)]
        pub block_bytes: Option<u64>,
        /// Local memory: pages that processes share since a fork count once.
        pub local_bytes: u64,
        /// Local memory, store and metadata.
        pub total_ram_bytes: u64,
        /// Memory that the program has touched and not given back.
        pub managed_bytes: u64,
        /// Pages that backends hold, those that are local, too, included.
        pub far_bytes: u64,
        /// Of the local memory, what backends hold a copy of: it leaves without being stored as long as it does not change.
        #[serde(default)]
        pub copied_bytes: u64,
        /// Faults that waited for a backend.
        pub major_faults: u64,
        /// Faults on pages of the swap cache.
        pub minor_faults: u64,
        /// Pages that were fetched ahead.
        pub prefetched_pages: u64,
        /// Time that threads waited for faults, summed over threads.
        pub stall_seconds: f64,
        /// Of the pages whose use would be seen, those that were used; null when there were none.
        pub prefetch_accuracy: Option<f64>,
        /// The features of its pages, as far as the pager has seen them.
        #[serde(default)]
        pub features: RunFeatures,
        /// Commands that have changed the run.
        pub commands: u64,
        /// The slowdown of the run as it is measured; null without `--slowdown`.
        pub slowdown: Option<f64>,
        /// The slowdown that `--slowdown` allows, or null.
        pub slowdown_asked: Option<f64>,
        /// Local memory that is wanted to keep the slowdown, as far as is known; null without `--slowdown`.
        #[serde(default)]
        pub local_wanted_bytes: Option<u64>,
        /// The most local memory that the machine has for a run with `--slowdown` beside the other runs of its user, or null: all have what they want.
        #[serde(default)]
        pub local_share_bytes: Option<u64>,
        /// Why the run cannot keep its slowdown beside others, in words; empty: nothing keeps it from that.
        #[serde(default)]
        pub slowdown_obstacle: String,
        /// The paths to far memory, of all processes that live; of more than 128 those that hold most.
        #[serde(default)]
        pub paths: Vec<PathStatus>,
    }
}

documented! {
    /// A change of a run.
    #[derive(Debug, Deserialize)]
    pub struct Change {
        /// The command's number.
        pub number: u64,
        /// The local budget now.
        pub local_budget_bytes: u64,
        /// The ceiling of the local budget now; null without `--slowdown`.
        #[serde(default)]
        pub local_ceiling_bytes: Option<u64>,
        /// The bound on RAM now, or null.
        #[serde(default)]
        pub ram_budget_bytes: Option<u64>,
        /// The size of a block now, bounded by the local budget, or null for what it is by itself.
        #[serde(default)]
        pub block_bytes: Option<u64>,
        /// Processes that have not acknowledged it.
        pub behind_count: u64,
        /// These, at most 64.
        pub behind: Vec<Behind>,
    }
}

documented! {
    /// A process that has not acknowledged a command.
    #[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
    pub struct Behind {
        /// The process.
        pub pid: i32,
        /// Its program.
        pub program: String,
        /// Its local memory.
        pub local_bytes: u64,
        /// What it may hold of the local budget, when it last looked.
        pub share_bytes: u64,
        /// What keeps its paths to far memory from being as commanded; empty: nothing.
        #[serde(default)]
        pub path_obstacle: String,
    }
}

documented! {
    /// A path to far memory.
    #[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
    pub struct PathStatus {
        /// What is there: a memory node of several has a row of its own.
        pub url: String,
        /// Pages that it holds.
        pub far_bytes: u64,
        /// Bytes of pages that were stored there, by the processes of the run that had the path under this URL: each fills in the sizes that were left open.
        pub bytes_in: u64,
        /// Bytes of pages that were loaded from there, by the processes of the run that had the path under this URL: each fills in the sizes that were left open.
        pub bytes_out: u64,
    }
}

impl Request {
    /// Asks for a run's figures.
    pub fn status() -> Request {
        Request {
            version: CONTROL_VERSION,
            request: Verb::Status,
            local: None,
            ram: None,
            cpus: None,
            granularity: None,
            block: None,
            add_far: Vec::new(),
            drop_far: Vec::new(),
            wait_ms: None,
        }
    }

    /// Asks for a change, which is still to be said.
    pub fn set(wait_ms: u64) -> Request {
        Request { request: Verb::Set, wait_ms: Some(wait_ms), ..Request::status() }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, for the user.
    pub fn read(line: &[u8]) -> Result<Request, String> {
        let request: Request = serde_json::from_slice(line).map_err(|error| format!("this is no request: {error}"))?;
        if request.version != CONTROL_VERSION {
            return Err(format!("version {} is not spoken here, but {CONTROL_VERSION}", request.version));
        }
        let Request { local, ram, cpus, granularity, block, .. } = &request;
        let has_setting = [local, ram, cpus, granularity, block].iter().any(|setting| setting.is_some());
        let says_what = has_setting || !request.add_far.is_empty() || !request.drop_far.is_empty();
        match (request.request, says_what, request.wait_ms) {
            (Verb::Status, false, None) => Ok(request),
            (Verb::Status, _, _) => Err("status takes nothing".into()),
            (Verb::Set, false, _) => {
                Err("set takes what to set: local, ram, cpus, granularity, block, add_far or drop_far".into())
            }
            (Verb::Set, _, Some(wait_ms)) if wait_ms > WAIT_MS_MAX => Err(format!("wait_ms is {WAIT_MS_MAX} at most")),
            (Verb::Set, true, _) => Ok(request),
        }
    }
}

impl Answer {
    /// A refusal.
    pub fn refused(why: impl ToString) -> Answer {
        Answer { version: CONTROL_VERSION, error: Some(why.to_string()), ..Answer::default() }
    }

    /// The figures.
    pub fn of_status(status: Status) -> Answer {
        Answer { version: CONTROL_VERSION, status: Some(status), ..Answer::default() }
    }

    /// A change.
    pub fn of_change(change: Change) -> Answer {
        Answer { version: CONTROL_VERSION, set: Some(change), ..Answer::default() }
    }

    /// The line to be sent.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written_and_nothing_else_is() {
        let local = Request { local: Some("768M".into()), ..Request::set(10_000) };
        let paths = Request { add_far: vec!["unix:/a".into()], drop_far: vec!["file:/b".into()], ..Request::set(1) };
        let ram = Request { ram: Some("2G".into()), ..Request::set(10_000) };
        let cpus = Request { cpus: Some("auto".into()), ..Request::set(10_000) };
        let block = Request { block: Some("64K".into()), granularity: Some("both".into()), ..Request::set(10_000) };
        for request in [Request::status(), local, ram, cpus, block, paths] {
            assert_eq!(Request::read(&serde_json::to_vec(&request).unwrap()), Ok(request));
        }
        for (line, words) in [
            ("", "no request"),
            ("GET / HTTP/1.1", "no request"),
            ("{}", "missing field"),
            (r#"{"version":1,"request":"stop"}"#, "unknown variant"),
            (r#"{"version":1,"request":"status","more":1}"#, "unknown field"),
            (r#"{"version":2,"request":"status"}"#, "version 2 is not spoken here"),
            (r#"{"version":1,"request":"status","local":"1G"}"#, "takes nothing"),
            (r#"{"version":1,"request":"status","cpus":"1"}"#, "takes nothing"),
            (r#"{"version":1,"request":"set"}"#, "takes what to set"),
            (r#"{"version":1,"request":"set","local":"1G","wait_ms":600001}"#, "at most"),
            (r#"{"version":1,"request":"set","local":1}"#, "invalid type"),
            ("\u{fffd}\u{0}", "no request"),
        ] {
            let refused = Request::read(line.as_bytes()).expect_err(line);
            assert!(refused.contains(words), "{line}: {refused}");
        }
    }
}
