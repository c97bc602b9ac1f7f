//! Numbers and texts in little-endian bytes, read with every length checked.

use crate::WireError;
use hinterland_units::cut;

/// What is left of a control part.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of entries that follow, at most `bound`.
    pub(crate) fn count(&mut self, what: &'static str, bound: usize) -> Result<usize, WireError> {
        let count = self.u32()?;
        let too_long = WireError::TooLong { what, is: count.into(), bound: bound as u64 };
        usize::try_from(count).ok().filter(|count| *count <= bound).ok_or(too_long)
    }

    /// A text behind its length in one byte, at most `bound` bytes.
    pub(crate) fn text(&mut self, what: &'static str, bound: usize) -> Result<&'a str, WireError> {
        let bytes = self.u8()?;
        if usize::from(bytes) > bound {
            return Err(WireError::TooLong { what, is: bytes.into(), bound: bound as u64 });
        }
        std::str::from_utf8(self.take(bytes.into())?).map_err(|_| WireError::Value(what))
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Length) }
    }
}

/// Appends a text behind its length; what exceeds `bound` bytes is cut off at a character.
pub(crate) fn put_text(into: &mut Vec<u8>, text: &str, bound: usize) {
    let text = cut(text, bound.min(usize::from(u8::MAX)));
    into.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    into.extend_from_slice(text.as_bytes());
}

/// Appends a count of entries that follow.
pub(crate) fn put_count(into: &mut Vec<u8>, count: usize) {
    into.extend_from_slice(&u32::try_from(count).expect("lists are far shorter").to_le_bytes());
}
