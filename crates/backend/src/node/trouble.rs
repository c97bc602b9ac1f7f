//! What can go wrong between this process and a memory node.

use hinterland_sys::SysError;
use hinterland_wire::{Refusal, WireError};

/// Why a memory node is of no use any more, or cannot be used at all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeTrouble {
    /// Nobody listens there, or the connection broke.
    #[error("{}", std::io::Error::from_raw_os_error(*.errno))]
    Connection {
        /// The system's error number.
        errno: i32,
    },
    /// It does not answer.
    #[error("it has not answered for {limit_s} seconds")]
    Silent {
        /// How long it was waited for.
        limit_s: u64,
    },
    /// What it says is not the protocol.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// It answers something that was not asked.
    #[error("it answered another request than was made")]
    OtherAnswer,
    /// It speaks other versions of the protocol.
    #[error("it speaks versions {} to {} of the protocol, this program {}", .node.0, .node.1, hinterland_wire::VERSION)]
    Version {
        /// The node's oldest and newest.
        node: (u16, u16),
    },
    /// It lacks something that is needed.
    #[error("it cannot clone sessions, so forked processes could not go on")]
    NoClone,
    /// It has too many connections.
    #[error("it has too many connections")]
    Busy,
    /// It refused what was asked.
    #[error("it refused: {words}")]
    Refused {
        /// The reason, for programs.
        refusal: Refusal,
        /// Bytes in use, where memory is missing.
        used_bytes: u64,
        /// Bytes that may be used, where memory is missing.
        capacity_bytes: u64,
        /// The reason, for people.
        words: String,
    },
    /// The connection's descriptor stands for something else now.
    #[error("the program closed the connection to it")]
    Closed,
}

impl NodeTrouble {
    /// Whether it only means that no more fits.
    pub(super) fn is_full(&self) -> bool {
        let full = [Refusal::Full, Refusal::Quota, Refusal::Draining];
        matches!(self, NodeTrouble::Refused { refusal, .. } if full.contains(refusal))
    }
}

impl From<SysError> for NodeTrouble {
    fn from(error: SysError) -> NodeTrouble {
        match error.errno {
            libc::ETIMEDOUT => NodeTrouble::Silent { limit_s: super::lane::LIMIT.as_secs() },
            errno => NodeTrouble::Connection { errno },
        }
    }
}
