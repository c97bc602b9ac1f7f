//! A memory budget: a size, or a share of what the program has touched so far.

use crate::{ByteCount, SizeError};
use std::fmt;
use std::str::FromStr;

/// A bound on local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// So many bytes.
    Bytes(ByteCount),
    /// So many hundredths of the memory that the program has touched so far (1–100).
    PercentOfTouched(u8),
}

/// Why a budget cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BudgetError {
    /// Neither a size nor a percentage.
    Size(SizeError),
    /// A percentage outside 1–100; carries what was written.
    Percent(String),
    /// Smaller than `Budget::FLOOR`; carries what was written.
    BelowFloor(String),
}

impl Budget {
    /// No budget is smaller than this: below it the pager's own batches would not fit.
    pub const FLOOR: ByteCount = ByteCount(16 << 20);

    /// The budget in bytes, when `touched` bytes have been touched so far; never below the floor.
    pub fn bytes(self, touched: ByteCount) -> ByteCount {
        let wanted = match self {
            Budget::Bytes(bytes) => bytes.0,
            Budget::PercentOfTouched(percent) => touched.0 / 100 * u64::from(percent),
        };
        ByteCount(wanted.max(Budget::FLOOR.0))
    }
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BudgetError::Size(e) => write!(f, "{e}, or a percentage such as 25%"),
            BudgetError::Percent(s) => write!(f, "'{s}' is not a percentage from 1% to 100%"),
            BudgetError::BelowFloor(s) => match ByteCount::question(s, Budget::FLOOR) {
                Some(question) => write!(f, "{question} The smallest budget is {}", Budget::FLOOR),
                None => write!(f, "'{s}' is below the smallest budget, {}", Budget::FLOOR),
            },
        }
    }
}

impl std::error::Error for BudgetError {}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(written: &str) -> Result<Budget, BudgetError> {
        if let Some(number) = written.trim().strip_suffix('%') {
            return match number.trim().parse() {
                Ok(percent @ 1..=100) => Ok(Budget::PercentOfTouched(percent)),
                _ => Err(BudgetError::Percent(written.into())),
            };
        }
        let bytes: ByteCount = written.parse().map_err(BudgetError::Size)?;
        if bytes < Budget::FLOOR { Err(BudgetError::BelowFloor(written.into())) } else { Ok(Budget::Bytes(bytes)) }
    }
}

impl fmt::Display for Budget {
    /// Writes the budget so that it can be read back exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Bytes(bytes) => write!(f, "{}", bytes.0),
            Budget::PercentOfTouched(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_and_percentages() {
        assert_eq!("512M".parse(), Ok(Budget::Bytes(ByteCount(512 << 20))));
        assert_eq!("25%".parse(), Ok(Budget::PercentOfTouched(25)));
        for text in ["0%", "101%", "x%", "1M", "", "-3%"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_follows_what_was_touched_down_to_the_floor() {
        let quarter = Budget::PercentOfTouched(25);
        assert_eq!(quarter.bytes(ByteCount(400 << 20)).0, 100 << 20);
        assert_eq!(quarter.bytes(ByteCount(1 << 20)), Budget::FLOOR);
    }

    #[test]
    fn reads_back_what_it_writes() {
        for budget in [Budget::PercentOfTouched(7), Budget::Bytes(ByteCount(123_456_789))] {
            assert_eq!(budget.to_string().parse(), Ok(budget));
        }
    }
}
