//! Looking at runs that are under way, and changing them: `ps`, `set`, `top`.
//!
//! ```text
//! ps, set, top ──► launcher ──── socket of the launcher ───► clients ──► launch::control ──► ledger ──► every process of the run
//!                  message                                   message                         commands
//! ```
//! A launcher listens in the user's own directory (`socket_path`), where it also says what memory its run has (`share_file`). Without it the run goes on
//! as it is: no process waits for a launcher.

mod acceptor;
mod client;
mod file_lock;
mod message;
mod ps;
mod server;
mod set;
mod share_file;
mod socket_path;
mod top;

pub use acceptor::{Acceptor, Pause};
#[cfg(test)]
pub use message::Change;
pub use message::{Behind, PathStatus, Request, Status};
#[cfg(test)]
pub use ps::{PS_VERSION, Running};
pub use ps::{PsArgs, run as ps};
pub use server::{Clients, Commanded, FarUrls, LookUp, NAMED_MAX, Newest};
pub use set::{SetArgs, run as set};
pub use share_file::{Share, ShareFile};
#[cfg(test)]
pub use socket_path::SocketDirectory;
pub use socket_path::{Bound, listen, listen_for_files};
pub use top::{TopArgs, run as top};

/// Reads the number of a process.
fn process(written: &str) -> Result<i32, String> {
    let number = written.parse().ok().filter(|pid| *pid > 0);
    number.ok_or_else(|| {
        "not the number of a process; write for example 4711 (`hinterland ps` lists the runs with their PIDs)".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_number_above_zero() {
        assert_eq!(process("4711"), Ok(4711));
        for written in ["", "job", "0", "-1", "2147483648", "4711,4712"] {
            let why = process(written).unwrap_err();
            assert!(
                why.starts_with("not the number of a process") && why.contains("`hinterland ps`"),
                "{written}: {why}"
            );
        }
    }
}
