//! Looking at runs that are under way, and changing them: `ps`, `set`, `top`.
//!
//! ```text
//! ps, set, top ──► ask ──── socket of the launcher ───► clients ──► launch::control ──► ledger ──► every process of the run
//!                  message                              message                         commands
//! ```
//! A launcher listens in the user's own directory (`place`). Without it the run goes on as it is: no process waits for a launcher.

mod acceptor;
mod ask;
mod clients;
mod message;
mod place;
mod ps;
mod set;
mod top;

pub use acceptor::{Acceptor, Pause};
pub use clients::{Clients, Commanded, NAMED_MAX, Newest};
#[cfg(test)]
pub use message::Change;
pub use message::{Behind, PathStatus, Request, Status};
#[cfg(test)]
pub use place::Place;
pub use place::{Bound, listen, listen_for_files};
#[cfg(test)]
pub use ps::{PS_VERSION, Running};
pub use ps::{PsArgs, run as ps};
pub use set::{SetArgs, run as set};
pub use top::{TopArgs, run as top};
