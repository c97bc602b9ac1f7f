//! Median, least and greatest of a few figures.

use serde::{Deserialize, Serialize};

/// A figure over several rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of `figures`; none when there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median: f64::midpoint(below, above), min, max })
    }
}

/// The median of `figures`; none when there are none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(figures).map(|spread| spread.median)
}

/// The median of whole figures, rounded.
pub fn median_count(figures: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = figures.into_iter().collect();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    Some(u64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(median([1.0, 2.0]), Some(1.5));
        assert_eq!(median([]), None);
        assert_eq!(median_count([5, 1, 9]), Some(5));
        assert_eq!(median_count([1, 4]), Some(2));
        assert_eq!(median_count([]), None);
    }
}
