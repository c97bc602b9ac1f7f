//! What can be wrong with a tape.

use crate::TraceError;

/// Why a tape cannot be used. A tape is used whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TapeError {
    /// A trace.
    #[error("this is a trace, not a tape: `hinterland tape TRACE --local SIZE -o FILE` plans a tape from it")]
    Trace,
    /// Something else.
    #[error("this is no tape: it does not begin as one; `hinterland tape` plans one from a trace")]
    Foreign,
    /// Another version planned it.
    #[error(
        "this tape has format version {found}; this program reads versions 1 to {read}: plan it again from its trace",
        read = crate::tape::VERSION
    )]
    Version {
        /// The version that stands in it.
        found: u8,
    },
    /// Its pages are neither in an order nor in sets.
    #[error(
        "this tape is of kind {found}; this program reads ordered tapes (0) and unordered ones (1): plan it again from its traces"
    )]
    Order {
        /// The number that stands in it.
        found: u64,
    },
    /// It has no end.
    #[error("the tape ends at byte {length} without an end: it was not written whole; plan it again from its trace")]
    NoEnd {
        /// Bytes that there are.
        length: u64,
    },
    /// A block cannot be used.
    #[error("{0}; plan the tape again from its trace")]
    Block(TraceError),
}
