//! What can be wrong with a trace: where, and what it was. Offsets are bytes from the start of the file.

use crate::frame::FRAME_BYTES;

/// Why a trace cannot be read, or not further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// It is something else.
    #[error(
        "this is no trace: it does not begin as one; `hinterland trace import` reads Valgrind lackey's output and text"
    )]
    Foreign,
    /// A tape.
    #[error("this is a tape, planned from a trace, and not a trace: `hinterland tape show` says what is in it")]
    Tape,
    /// Another version wrote it.
    #[error("this trace has format version {found}; this program reads versions 1 to {read}", read = crate::VERSION)]
    Version {
        /// The version that stands in it.
        found: u8,
    },
    /// The file ends inside a block.
    #[error("{}", cut_off(*offset, *missing))]
    Truncated {
        /// Where the block begins.
        offset: u64,
        /// Bytes that are missing at least.
        missing: u64,
    },
    /// The checksum of a block is wrong, or there is no block.
    #[error("byte {offset}: the block that begins here is damaged (its checksum does not match)")]
    Damaged {
        /// Where the block begins.
        offset: u64,
    },
    /// A block is whole, but not the one that should come here.
    #[error(
        "byte {offset}: block {found} stands here instead of block {expected}: something is missing or twice there"
    )]
    Disordered {
        /// Where the block begins.
        offset: u64,
        /// The number that it should have.
        expected: u32,
        /// The number that it has.
        found: u32,
    },
    /// A block is whole, but what is in it makes no sense: a program wrote it that is not ours.
    #[error("byte {offset}: the block that begins here makes no sense: {what}")]
    Malformed {
        /// Where the block begins.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

fn cut_off(offset: u64, missing: u64) -> String {
    match (offset, missing) {
        (0, missing) if missing == FRAME_BYTES as u64 => "the file is empty".into(),
        _ => format!("byte {offset}: the file ends inside the block that begins here ({missing} bytes are missing)"),
    }
}
