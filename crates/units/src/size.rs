//! Sizes in bytes, as people write them: `512M`, `1.5GiB`, `64k`, `4096`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteCount(pub u64);

/// Why a size cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SizeError {
    /// Nothing before the unit.
    Empty,
    /// The number cannot be read; carries what was written.
    Number(String),
    /// The unit is none that we know; carries what was written.
    Unit(String),
    /// More than 2^63 bytes.
    TooLarge(String),
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeError::Empty => write!(f, "a size is empty; write for example 512M or 2G"),
            SizeError::Number(s) => write!(f, "'{s}' is not a size; write for example 512M or 2G"),
            SizeError::Unit(s) => write!(f, "'{s}' has an unknown unit; use K, M, G or T (powers of 1024)"),
            SizeError::TooLarge(s) => write!(f, "'{s}' is larger than any memory"),
        }
    }
}

impl std::error::Error for SizeError {}

impl ByteCount {
    /// What to ask somebody who wrote a number without a unit, where it must be at least `least` and is not: "512 bytes: did you mean
    /// 512M?". `None`: a unit was written, or no unit makes it enough.
    pub fn question(written: &str, least: ByteCount) -> Option<String> {
        /// From here on people count in kibibytes.
        const MANY: u64 = 16 << 10;
        let number: u64 = written.trim().parse().ok()?;
        let fits = |shift: u32| number.checked_mul(1 << shift).is_some_and(|bytes| bytes >= least.0);
        let units: &[(&str, u32)] = if number < MANY { &[("M", 20), ("G", 30)] } else { &[("K", 10)] };
        let (unit, _) = units.iter().find(|(_, shift)| fits(*shift))?;
        Some(format!("{number} bytes: did you mean {number}{unit}?"))
    }

    /// The same, with a blank behind it, where what was written is not known any more: so few bytes are a number without a unit.
    /// Empty: nothing is to be asked.
    pub fn question_before(self, least: ByteCount) -> String {
        let question = Self::question(&self.0.to_string(), least).filter(|_| self.0 < 1024);
        question.map(|question| question + " ").unwrap_or_default()
    }
}

impl FromStr for ByteCount {
    type Err = SizeError;

    /// Reads a decimal number and an optional unit, a power of 1024: `K`, `KB`, `KiB`, … `T`.
    fn from_str(written: &str) -> Result<ByteCount, SizeError> {
        let text = written.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        if number.is_empty() {
            return Err(if unit.is_empty() { SizeError::Empty } else { SizeError::Number(written.into()) });
        }
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(SizeError::Unit(written.into())),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let bad = |_| SizeError::Number(written.into());
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(bad)? };
        let mut bytes = u128::from(whole) << shift;
        if !fraction.is_empty() {
            let digits = u32::try_from(fraction.len()).unwrap_or(u32::MAX).min(18);
            let value: u64 = fraction.get(..digits as usize).unwrap_or(fraction).parse().map_err(bad)?;
            bytes += (u128::from(value) << shift) / 10u128.pow(digits);
        }
        match u64::try_from(bytes) {
            Ok(b) if b <= i64::MAX.unsigned_abs() => Ok(ByteCount(b)),
            _ => Err(SizeError::TooLarge(written.into())),
        }
    }
}

impl fmt::Display for ByteCount {
    /// Writes the largest binary unit in which the size is at least one, with at most one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, name) in units {
            let unit = 1u64 << shift;
            if self.0 >= unit {
                let tenths = (u128::from(self.0) * 10) >> shift;
                return if tenths % 10 == 0 {
                    write!(f, "{} {name}", tenths / 10)
                } else {
                    write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in
            [("4096", 4096), ("512M", 512 << 20), ("1.5G", 3 << 29), ("64k", 65536), ("2 GiB", 2 << 30), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_nonsense() {
        for text in ["", "M", "12Q", "-5", "1..2G", "1e9", "99999999999999999999T", "nonsense"] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_asked_about() {
        let least = ByteCount(16 << 20);
        let asked = |written| ByteCount::question(written, least);
        for (written, question) in [
            ("512", Some("512 bytes: did you mean 512M?")),
            ("16", Some("16 bytes: did you mean 16M?")),
            ("8", Some("8 bytes: did you mean 8G?")),
            ("524288", Some("524288 bytes: did you mean 524288K?")),
            ("0", None),
            ("512K", None),
            ("1M", None),
            ("1.5", None),
        ] {
            assert_eq!(asked(written).as_deref(), question, "{written}");
        }
    }

    #[test]
    fn writes_readable_sizes() {
        assert_eq!(ByteCount(512 << 20).to_string(), "512 MiB");
        assert_eq!(ByteCount(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(ByteCount(100).to_string(), "100 B");
    }
}
