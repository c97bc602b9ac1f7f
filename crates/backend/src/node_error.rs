//! What can go wrong between this process and a memory node.

use hinterland_wire::{Refusal, WireError};
use std::time::Duration;

/// How long a node's answer is waited for by default. Two in a row stay below five seconds, after which a run must have ended.
pub(crate) const ANSWER_LIMIT_DEFAULT: Duration = Duration::from_secs(2);

/// Why a memory node is of no use any more, or cannot be used at all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeError {
    /// No node listens there, or the connection broke.
    #[error("{}", std::io::Error::from_raw_os_error(*.errno))]
    Connection {
        /// The system's error number.
        errno: i32,
    },
    /// No connection to it can be made, for a reason that lies in this process or on this machine.
    #[error("no connection can be made: {}", std::io::Error::from_raw_os_error(*.errno))]
    Local {
        /// The system's error number.
        errno: i32,
    },
    /// It does not answer.
    #[error("it has not answered for {}", spoken(*.limit))]
    Silent {
        /// How long it was waited for.
        limit: Duration,
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
    /// Its slabs have another size than those of the pool's first node.
    #[error("its slabs have {is} bytes, those of the pool's other nodes {others}")]
    SlabSize {
        /// Bytes of its slabs.
        is: u64,
        /// Bytes of the others'.
        others: u64,
    },
    /// What it sends back is not what it was given, again and again.
    #[error("it sent damaged pages {times} times")]
    Damages {
        /// How often.
        times: u32,
    },
    /// One side is not authenticated.
    #[error("{words}")]
    Credentials {
        /// What is wrong with which.
        words: String,
    },
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

impl NodeError {
    /// Whether it only means that no more fits.
    pub(crate) fn is_full(&self) -> bool {
        let full = [Refusal::Full, Refusal::Quota, Refusal::Draining];
        matches!(self, NodeError::Refused { refusal, .. } if full.contains(refusal))
    }

    /// Whether it only means that the page there is not the one that a patch was made for.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, NodeError::Refused { refusal: Refusal::Stale, .. })
    }

    /// Whether it says nothing of the node.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, NodeError::Local { .. })
    }

    /// Whether it means that the node has as many connections or sessions as it may have: others end.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, NodeError::Busy | NodeError::Refused { refusal: Refusal::Busy, .. })
    }

    /// Whether no further connection can be made now, which says nothing of those that there are. (Certificates or keys that were renewed may
    /// be read again a few seconds later on one side.)
    pub(crate) fn leaves_connections(&self) -> bool {
        self.is_local() || self.is_busy() || matches!(self, NodeError::Credentials { .. })
    }

    /// The same of an error of connecting, or those that there are find out by themselves whether the node has gone: one whose threads or
    /// descriptors are used up hangs up, too.
    pub(crate) fn may_leave_connections(&self) -> bool {
        self.leaves_connections() || matches!(self, NodeError::Connection { .. })
    }

    /// Whether it means that no process listens there.
    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self, NodeError::Connection { errno: libc::ECONNREFUSED | libc::ENOENT })
    }

    /// Whether it means that no node is there, or none that has the session.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            NodeError::Silent { .. } => true,
            NodeError::Connection { errno } => {
                // A node that ends in an orderly way removes its UNIX socket.
                [libc::ECONNREFUSED, libc::ECONNRESET, libc::EPIPE, libc::ENOENT].contains(errno)
            }
            NodeError::Refused { refusal: Refusal::NoSession, .. } => true,
            _ => false,
        }
    }

    /// What it means that no connection could be made within `limit`. (On a connection that was made, the same error means that it is
    /// broken: what was sent on it may still arrive.)
    pub(crate) fn connecting(errno: i32, limit: Duration) -> NodeError {
        const LOCAL: [i32; 8] = [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOMEM,
            libc::ENOBUFS,
            libc::EPERM,
            libc::EACCES,
            libc::ENOSYS,
            libc::EADDRNOTAVAIL,
        ];
        if LOCAL.contains(&errno) { NodeError::Local { errno } } else { NodeError::of_socket(errno, limit) }
    }

    /// What an error of a socket means, whose call may take so long without progress.
    pub(crate) fn of_socket(errno: i32, limit: Duration) -> NodeError {
        match errno {
            libc::ETIMEDOUT => NodeError::Silent { limit },
            errno => NodeError::Connection { errno },
        }
    }

    /// Whether it may pass by itself: the node is away, or has too much to do.
    pub(crate) fn may_pass(&self) -> bool {
        let passes = matches!(self, NodeError::Connection { .. } | NodeError::Silent { .. });
        passes || self.is_busy() || self.is_local() || self.is_full()
    }
}

/// A time for people.
fn spoken(time: Duration) -> String {
    match (time.subsec_millis(), time.as_secs()) {
        (0, 1) => "a second".into(),
        (0, seconds) => format!("{seconds} seconds"),
        _ => format!("{} ms", time.as_millis()),
    }
}
