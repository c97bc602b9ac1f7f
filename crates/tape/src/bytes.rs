//! Numbers of variable length (LEB128), texts, and what is left of a run of bytes.

/// Bytes of the longest number.
const NUMBER_BYTES_MAX: u32 = 10;

/// Appends a number, 7 bits to a byte, lowest first.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends a text and its length.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends how many texts there are, and each of them.
pub fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    put(out, texts.len() as u64);
    texts.iter().for_each(|text| put_text(out, text));
}

/// Small numbers for small differences of either sign.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// What `zigzag` made.
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// The bytes of a payload that are not read yet.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next number; `None` where there is none.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        if first < 0x80 {
            self.0 = rest;
            return Some(first.into());
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for index in 0..NUMBER_BYTES_MAX {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if index == NUMBER_BYTES_MAX - 1 && bits > 1 {
                return None;
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The next number, if it fits 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        self.number().and_then(|value| u32::try_from(value).ok())
    }

    /// The next text.
    pub fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(length)?).ok().map(str::to_owned)
    }

    /// The next texts, which `put_texts` appended.
    pub fn texts(&mut self) -> Option<Vec<String>> {
        (0..self.number()?).map(|_| self.text()).collect()
    }

    /// So many bytes.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let edges = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX];
        let mut out = Vec::new();
        edges.iter().for_each(|value| put(&mut out, *value));
        let mut left = Bytes(&out);
        assert_eq!(edges.map(|_| left.number()), edges.map(Some));
        assert_eq!((left.is_empty(), left.number()), (true, None));
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn a_number_that_never_ends_or_is_too_large_is_none() {
        assert_eq!(Bytes(&[0xff; 20]).number(), None);
        assert_eq!(Bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).number(), None);
        assert_eq!(Bytes(&[0x80]).number(), None);
    }

    #[test]
    fn a_text_longer_than_the_rest_is_none() {
        let mut out = Vec::new();
        put_text(&mut out, "far");
        assert_eq!(Bytes(&out).text().as_deref(), Some("far"));
        assert_eq!(Bytes(&out[..3]).text(), None);
    }
}
