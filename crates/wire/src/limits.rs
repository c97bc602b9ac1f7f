//! How much one message may hold: what is larger is refused by the decoder, and never sent.

/// Ranges in one read or write.
pub const RANGES_MAX: usize = 64;
/// Bytes of data in one message: 64 pages.
pub const DATA_BYTES_MAX: usize = 256 << 10;
/// Bytes of a control part: what the longest, a full list of sessions, needs.
pub const CONTROL_BYTES_MAX: usize = 16 << 10;
/// Slabs named in one message.
pub const SLABS_MAX: usize = 256;
/// Bytes of a session's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of the words in a refusal.
pub const WORDS_BYTES_MAX: usize = 240;
/// Sessions in one statistics reply; a node with more names the largest.
pub const SESSION_ROWS_MAX: usize = 96;
