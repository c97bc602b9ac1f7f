//! A memory budget: a size, or a share of the RAM or of what a program touches.

use crate::{ByteCount, SizeError};
use std::fmt;
use std::str::FromStr;

/// A bound on local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// So many bytes.
    Bytes(ByteCount),
    /// So many hundredths of the memory that the program touches (1–100): known where a recording says it.
    PercentOfTouched(u8),
    /// So many hundredths of the RAM that the program may use (1–100): of its cgroup's limit, or of the machine's.
    PercentOfRam(u8),
}

/// Why a budget cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BudgetError {
    /// Neither a size nor a percentage.
    Size(SizeError),
    /// A percentage outside 1–100; carries what was written.
    Percent(String),
    /// A share of the RAM where the machine that runs the program is not known; carries what was written.
    Ram(String),
    /// Smaller than `Budget::FLOOR`; carries what was written.
    BelowFloor(String),
}

impl Budget {
    /// No budget is smaller than this: below it the pager's own batches would not fit.
    pub const FLOOR: ByteCount = ByteCount(16 << 20);

    /// Reads a budget that is no share of the RAM.
    ///
    /// # Errors
    /// As for `from_str`, and for a share of the RAM.
    pub fn of_touched(written: &str) -> Result<Budget, BudgetError> {
        match written.parse()? {
            Budget::PercentOfRam(_) => Err(BudgetError::Ram(written.into())),
            budget => Ok(budget),
        }
    }

    /// The budget in bytes, where a share is one of `whole` bytes; never below the floor.
    pub fn bytes(self, whole: ByteCount) -> ByteCount {
        let wanted = match self {
            Budget::Bytes(bytes) => bytes.0,
            Budget::PercentOfTouched(percent) | Budget::PercentOfRam(percent) => {
                let percent = u64::from(percent);
                whole.0 / 100 * percent + whole.0 % 100 * percent / 100
            }
        };
        ByteCount(wanted.max(Budget::FLOOR.0))
    }
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BudgetError::Size(e @ SizeError::TooLarge(_)) => e.fmt(f),
            BudgetError::Size(e) => write!(f, "{e}, or a share such as 25%ram"),
            BudgetError::Percent(s) => write!(f, "'{s}' is not a percentage from 1% to 100%"),
            BudgetError::Ram(s) => {
                write!(f, "'{s}' is a share of the RAM; give a size, or a share of what is touched, such as 25%")
            }
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
        let percent = |number: &str| match number.trim().parse() {
            Ok(percent @ 1..=100) => Ok(percent),
            _ => Err(BudgetError::Percent(written.into())),
        };
        if let Some(number) = written.trim().strip_suffix('%') {
            return percent(number).map(Budget::PercentOfTouched);
        }
        if let Some(number) = written.trim().strip_suffix("%ram") {
            return percent(number).map(Budget::PercentOfRam);
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
            Budget::PercentOfRam(percent) => write!(f, "{percent}%ram"),
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
        assert_eq!("25%ram".parse(), Ok(Budget::PercentOfRam(25)));
        assert_eq!(Budget::of_touched("25%"), Ok(Budget::PercentOfTouched(25)));
        assert_eq!(Budget::of_touched("25%ram"), Err(BudgetError::Ram("25%ram".into())));
        for text in ["0%", "101%", "x%", "1M", "", "-3%", "0%ram", "%ram", "25%rum"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_exact_and_never_below_the_floor() {
        let quarter = Budget::PercentOfTouched(25);
        assert_eq!(quarter.bytes(ByteCount(400 << 20)).0, 100 << 20);
        assert_eq!(Budget::PercentOfRam(100).bytes(ByteCount(u64::MAX)).0, u64::MAX);
        assert_eq!(quarter.bytes(ByteCount(1 << 20)), Budget::FLOOR);
    }

    #[test]
    fn reads_back_what_it_writes() {
        for budget in [Budget::PercentOfTouched(7), Budget::PercentOfRam(7), Budget::Bytes(ByteCount(123_456_789))] {
            assert_eq!(budget.to_string().parse(), Ok(budget));
        }
    }
}
