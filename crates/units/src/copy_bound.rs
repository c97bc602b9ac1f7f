//! How many stored copies of local pages are retained where they take RAM.

use std::fmt;
use std::str::FromStr;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyBound {
    /// Those of so many hundredths of the local pages (0–100).
    Percent(u8),
    /// As many as fit below the most RAM that far memory has taken so far.
    Peak,
}

impl FromStr for CopyBound {
    type Err = CopyBoundError;

    fn from_str(text: &str) -> Result<CopyBound, CopyBoundError> {
        if text == "peak" {
            return Ok(CopyBound::Peak);
        }
        let percent = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|percent| *percent <= 100);
        percent.map(CopyBound::Percent).ok_or_else(|| CopyBoundError(text.to_owned()))
    }
}

impl fmt::Display for CopyBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyBound::Percent(percent) => write!(f, "{percent}%"),
            CopyBound::Peak => f.write_str("peak"),
        }
    }
}

/// A text that bounds no copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyBoundError(String);

impl fmt::Display for CopyBoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is neither peak nor a share of the local pages from 0% to 100%", self.0)
    }
}

impl std::error::Error for CopyBoundError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_and_written() {
        for (text, bound, written) in [
            ("peak", CopyBound::Peak, "peak"),
            ("0", CopyBound::Percent(0), "0%"),
            ("12%", CopyBound::Percent(12), "12%"),
            ("100%", CopyBound::Percent(100), "100%"),
        ] {
            assert_eq!(text.parse(), Ok(bound));
            assert_eq!(bound.to_string(), written);
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_bounds() {
        for text in ["", "-1", "101", "101%", "1.5", "Peak", "1/32", "%"] {
            let error = text.parse::<CopyBound>().unwrap_err().to_string();
            assert!(error.contains("from 0% to 100%"), "{error}");
        }
    }
}
