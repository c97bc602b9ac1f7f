//! A slowdown: a program's time over its time with all memory local.

use std::fmt;
use std::str::FromStr;

/// See the module. From [`Slowdown::LEAST`] to [`Slowdown::MOST`], in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slowdown(u32);

impl Slowdown {
    /// The least that can be asked for: what is nearer to 1 is below what can be measured.
    pub const LEAST: Slowdown = Slowdown(1_010);
    /// The most.
    pub const MOST: Slowdown = Slowdown(10_000);

    /// As a factor.
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl FromStr for Slowdown {
    type Err = SlowdownError;

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the bounds were checked")]
    fn from_str(text: &str) -> Result<Slowdown, SlowdownError> {
        let refused = || SlowdownError(text.to_owned());
        let factor: f64 = text.strip_suffix(['x', 'X']).unwrap_or(text).trim().parse().map_err(|_| refused())?;
        let thousandths = (factor * 1000.0).round();
        let bounds = f64::from(Slowdown::LEAST.0)..=f64::from(Slowdown::MOST.0);
        // Also false for what is not a number.
        if bounds.contains(&thousandths) { Ok(Slowdown(thousandths as u32)) } else { Err(refused()) }
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.factor())
    }
}

/// A text that is no slowdown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowdownError(String);

impl fmt::Display for SlowdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (Slowdown::LEAST, Slowdown::MOST);
        write!(
            f,
            "'{}' is not a slowdown from {least} to {most}; 1.2 lets a program take 1.2 times as long as with all memory local",
            self.0
        )
    }
}

impl std::error::Error for SlowdownError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_read_and_written() {
        for (text, factor, written) in
            [("1.2", 1.2, "1.2"), ("2", 2.0, "2"), ("1.05x", 1.05, "1.05"), ("10", 10.0, "10")]
        {
            let slowdown: Slowdown = text.parse().unwrap();
            assert_eq!((slowdown.factor(), slowdown.to_string().as_str()), (factor, written));
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_bounds() {
        for text in ["", "1", "0.9", "-2", "11", "NaN", "inf", "20%", "x", "1.2.3"] {
            let error = text.parse::<Slowdown>().unwrap_err().to_string();
            assert!(error.contains("from 1.01 to 10"), "{error}");
        }
    }
}
