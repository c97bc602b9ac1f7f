//! Ranges of thresholds, as the user writes them: `31`, `30:90`, `30:90:5`, in per cent with at most two decimals.

use super::effectiveness::PARTS;
use std::str::FromStr;

/// Thresholds of one range.
const POINTS_MAX: usize = 1000;

/// See the module. All in hundredths of a per cent; the last one is not above the range's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    first: usize,
    last: usize,
    /// Between two neighbours.
    pub step: usize,
}

impl Thresholds {
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        (self.first..=self.last).step_by(self.step)
    }
}

fn parts(written: &str) -> Option<usize> {
    let (whole, decimals) = written.split_once('.').unwrap_or((written, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
        return None;
    }
    Some(whole.parse::<usize>().ok()? * PARTS + format!("{decimals:0<2}").parse::<usize>().ok()?)
}

impl FromStr for Thresholds {
    type Err = String;

    fn from_str(written: &str) -> Result<Thresholds, String> {
        let read: Option<Vec<usize>> = written.split(':').map(|part| parts(part.trim())).collect();
        let (first, last, step) = match read.as_deref() {
            Some([only]) => (*only, *only, PARTS),
            Some([first, last]) => (*first, *last, PARTS),
            Some([first, last, step]) => (*first, *last, *step),
            _ => return Err(format!("'{written}' is no range of per cent, such as 31, 30:90 or 30:90:0.5")),
        };
        if first > last || last > 100 * PARTS || step == 0 {
            return Err(format!("'{written}' does not lead from a smaller to a larger per cent, up to 100, by steps"));
        }
        if (last - first) / step >= POINTS_MAX {
            return Err(format!("'{written}' has more than {POINTS_MAX} thresholds; take larger steps"));
        }
        Ok(Thresholds { first, last, step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_nonsense_is_refused() {
        let read = |written: &str| written.parse::<Thresholds>().map(|range| range.iter().collect::<Vec<_>>());
        assert_eq!(read("31"), Ok(vec![3100]));
        assert_eq!(read("30:32"), Ok(vec![3000, 3100, 3200]));
        assert_eq!(read("99:100:0.5"), Ok(vec![9900, 9950, 10_000]));
        assert_eq!(read("0.25:1:0.5"), Ok(vec![25, 75]));
        for wrong in ["", "x", "30:", ":30", "90:30", "30:101", "30:90:0", "1:2:3:4", "-1", "1.234", "1e1", "0:100:0.1"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
