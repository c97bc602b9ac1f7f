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

/// A median and an interval that holds the true one, by order statistics (David and Nagaraja, Order Statistics, 7.1): of `n` independent
/// figures the `k`-th least and the `k`-th greatest have the median between them, unless fewer than `k` lie on one side of it, which has the
/// probability `2 P(B(n, 1/2) < k)`. No distribution is assumed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// The middle one; of an even number, the mean of the middle two.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Probability that the true median lies between the ends: at least [`CONFIDENCE`], less with fewer than six figures, whose ends are the
    /// least and the greatest.
    pub confidence: f64,
}

/// What an interval's confidence is at least, where there are figures enough.
pub const CONFIDENCE: f64 = 0.95;

impl Interval {
    /// Of `figures`; none when there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Interval> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let median = median(sorted.iter().copied())?;
        let (rank, confidence) = (1..=sorted.len().div_ceil(2))
            .map(|rank| (rank, coverage(sorted.len(), rank)))
            .take_while(|(rank, coverage)| *rank == 1 || *coverage >= CONFIDENCE)
            .last()?;
        Some(Interval { median, low: sorted[rank - 1], high: sorted[sorted.len() - rank], confidence })
    }
}

/// Probability that the median lies between the `rank`-th least and the `rank`-th greatest of `count` figures.
fn coverage(count: usize, rank: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "numbers of rounds")]
    let float = |n: usize| n as f64;
    // P(B = i) from P(B = i - 1); below `rank` on one side or on the other.
    let none = 0.5f64.powf(float(count));
    let chances = (1..rank).scan(none, |chance, i| {
        *chance *= float(count + 1 - i) / float(i);
        Some(*chance)
    });
    (1.0 - 2.0 * (none + chances.sum::<f64>())).max(0.0)
}

/// The geometric mean of `figures`, all above 0; none when there are none.
pub fn geometric_mean(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = figures.into_iter().fold((0.0, 0.0), |(sum, count), figure| (sum + figure.ln(), count + 1.0));
    (count > 0.0).then(|| (sum / count).exp())
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

    #[test]
    fn nine_rounds_leave_one_out_on_each_side() {
        // Tables of the sign test: the second of nine has 0.9609, the third 0.8203; the first of five has 0.9375.
        let nine = Interval::of((1..=9).map(f64::from)).unwrap();
        assert_eq!((nine.median, nine.low, nine.high), (5.0, 2.0, 8.0));
        assert!((nine.confidence - 0.9609).abs() < 1e-4, "{}", nine.confidence);
        let fifteen = Interval::of((1..=15).map(f64::from)).unwrap();
        assert_eq!((fifteen.low, fifteen.high), (4.0, 12.0));
        let six = Interval::of((1..=6).map(f64::from)).unwrap();
        assert_eq!((six.median, six.low, six.high), (3.5, 1.0, 6.0));
        assert!(six.confidence >= CONFIDENCE);
    }

    #[test]
    fn few_rounds_say_how_little_they_know() {
        let five = Interval::of([5.0, 3.0, 1.0, 2.0, 4.0]).unwrap();
        assert_eq!((five.low, five.high, five.confidence), (1.0, 5.0, 0.9375));
        assert_eq!(Interval::of([2.0, 1.0, 4.0]).unwrap().confidence, 0.75);
        let one = Interval::of([2.0]).unwrap();
        assert_eq!((one.median, one.low, one.high, one.confidence), (2.0, 2.0, 2.0, 0.0));
        assert_eq!(Interval::of([]), None);
    }

    #[test]
    fn an_interval_holds_the_median_as_often_as_it_says() {
        use rand::{RngExt, SeedableRng, rngs::SmallRng};
        let mut rng = SmallRng::seed_from_u64(1);
        let held = (0..4000).filter(|_| {
            // Skewed: the median of u³ is 1/8.
            let interval = Interval::of((0..9).map(|_| rng.random::<f64>().powi(3))).unwrap();
            interval.low <= 0.125 && 0.125 <= interval.high
        });
        let share = f64::from(u32::try_from(held.count()).unwrap()) / 4000.0;
        assert!((share - 0.9609).abs() < 0.01, "{share}");
    }

    #[test]
    fn a_geometric_mean_is_of_ratios() {
        assert!((geometric_mean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
