//! Memory balance effectiveness (MBE), xDM §V-G: the gain of a cluster whose servers with much free memory lend it to those with little.
//!
//! ```text
//! utilisation   0 ───────── α ─────────── β ───────── 100 %
//! servers         low: A %    medium: B %   high: C %
//!
//! MBE = C% × (c̄ − β) − A% × (ā − α)        ā, c̄: mean utilisation of the low and of the high servers
//! ```
//! As ā ≤ α, the second term is never below zero once its sign is taken in: the utilisation that the low servers gain and the one that the
//! high servers are relieved of, added up, in per cent of one server's memory on the average over all servers. How the paper is read, and what
//! speaks against it, is in the decision on balancing.

/// Parts of a per cent that utilisations and thresholds are counted in.
pub const PARTS: usize = 100;
/// Bins: of each hundredth of a per cent from 0 to 100 %, one of what is at it, and one of what lies between it and the next.
const BINS: usize = 2 * 100 * PARTS + 1;
/// What is so near to a hundredth, in hundredths, is at it: decimals such as 0.29 lie a hair beside theirs when they are multiplied.
const NEAR: f64 = 1e-6;

/// Utilisations of a cluster: how many there are at each hundredth of a per cent and between two, and their sum there. Thresholds are whole
/// hundredths, so what is below one and what is above one is exact.
pub struct Utilisations {
    bins: Vec<(u64, f64)>,
    count: u64,
    sum: f64,
}

/// The figures for a pair of thresholds, all in per cent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Balance {
    /// Below it, a server is low.
    pub alpha: f64,
    /// Above it, a server is high.
    pub beta: f64,
    /// A %: the share of servers that are low.
    pub low: f64,
    /// C %: the share of servers that are high.
    pub high: f64,
    /// MBE.
    pub effectiveness: f64,
}

impl Default for Utilisations {
    fn default() -> Utilisations {
        Utilisations { bins: vec![(0, 0.0); BINS], count: 0, sum: 0.0 }
    }
}

/// Sums up to each bin, to ask for many pairs of thresholds.
pub struct Sums {
    /// Number and sum of the utilisations below each bin; one more than there are bins.
    below: Vec<(u64, f64)>,
}

fn share(count: u64, all: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "counts of records are far below 2^53")]
    if all == 0 { 0.0 } else { count as f64 / all as f64 }
}

impl Utilisations {
    /// Adds one, in per cent; false: it is none (outside 0 to 100, or not a number), and is not counted.
    pub fn add(&mut self, percent: f64) -> bool {
        if !(0.0..=100.0).contains(&percent) {
            return false;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "at most 10,000"
        )]
        let bin = {
            let parts = percent * PARTS as f64;
            let is_at = (parts - parts.round()).abs() < NEAR;
            if is_at { 2 * parts.round() as usize } else { 2 * parts as usize + 1 }
        };
        let (count, sum) = &mut self.bins[bin.min(BINS - 1)];
        *count += 1;
        *sum += percent;
        self.count += 1;
        self.sum += percent;
        true
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean, in per cent; 0 when there are none.
    pub fn mean(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "counts of records are far below 2^53")]
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Adds them up.
    pub fn sums(&self) -> Sums {
        let mut below = Vec::with_capacity(BINS + 1);
        let mut so_far = (0, 0.0);
        below.push(so_far);
        for (count, sum) in &self.bins {
            so_far = (so_far.0 + count, so_far.1 + sum);
            below.push(so_far);
        }
        Sums { below }
    }
}

impl Sums {
    /// The figures for thresholds in hundredths of a per cent, from 0 to 10,000.
    ///
    /// Where a share is zero so is its term, whatever the mean of no servers is.
    pub fn balance(&self, alpha: usize, beta: usize) -> Balance {
        let (all, sum) = self.below[BINS];
        let bin_at = |threshold: usize| (2 * threshold).min(BINS - 1);
        let (low, low_sum) = self.below[bin_at(alpha)];
        // What equals β is not above it, and adds nothing to the sum of distances.
        let (not_high, not_high_sum) = self.below[bin_at(beta) + 1];
        let high = all - not_high;
        #[allow(clippy::cast_precision_loss, reason = "at most 10,000")]
        let [alpha, beta] = [alpha, beta].map(|parts| parts as f64 / PARTS as f64);
        let mean = |sum: f64, count: u64| {
            #[allow(clippy::cast_precision_loss, reason = "counts of records are far below 2^53")]
            if count == 0 { 0.0 } else { sum / count as f64 }
        };
        let term = |count: u64, mean: f64, threshold: f64| share(count, all) * (mean - threshold);
        let (low_mean, high_mean) = (mean(low_sum, low), mean(sum - not_high_sum, high));
        let effectiveness = term(high, high_mean, beta) - term(low, low_mean, alpha);
        Balance { alpha, beta, low: share(low, all) * 100.0, high: share(high, all) * 100.0, effectiveness }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(utilisations: &[f64], alpha: usize, beta: usize) -> Balance {
        let mut all = Utilisations::default();
        assert!(utilisations.iter().all(|percent| all.add(*percent)));
        all.sums().balance(alpha * PARTS, beta * PARTS)
    }

    /// Utilisations, α, β; A %, C % and the effectiveness, worked out by hand.
    type Case = (&'static [f64], usize, usize, f64, f64, f64);

    /// Each is A % × (α − ā) + C % × (c̄ − β).
    #[test]
    fn cases_by_hand() {
        let cases: [Case; 10] = [
            // ā = 15, c̄ = 90: 1/2 × 15 + 1/4 × 30.
            (&[10.0, 20.0, 50.0, 90.0], 30, 60, 50.0, 25.0, 7.5 + 7.5),
            // α = β: ā = 20, c̄ = 70: 1/2 × 20 + 1/2 × 30.
            (&[10.0, 30.0, 60.0, 80.0], 40, 40, 50.0, 50.0, 10.0 + 15.0),
            // A server at a threshold is medium.
            (&[40.0, 40.0], 40, 40, 0.0, 0.0, 0.0),
            // None is low: 2/3 × (85 − 80).
            (&[80.0, 80.0, 90.0], 80, 80, 0.0, 100.0 / 3.0, 10.0 / 3.0),
            // None is high: 1 × (31 − 11).
            (&[1.0, 21.0], 31, 31, 100.0, 0.0, 20.0),
            // Decimals: 1/2 × (30 − 29.5) + 1/2 × (60.25 − 60).
            (&[29.5, 60.25], 30, 60, 50.0, 50.0, 0.25 + 0.125),
            // Means of servers have more decimals than thresholds: 1/2 × (30 − 29.996) + 1/2 × (60.004 − 60).
            (&[29.996, 60.004], 30, 60, 50.0, 50.0, 0.002 + 0.002),
            (&[30.004, 59.996], 30, 60, 0.0, 0.0, 0.0),
            // The ends.
            (&[0.0, 100.0], 0, 100, 0.0, 0.0, 0.0),
            (&[0.0, 100.0], 50, 50, 50.0, 50.0, 50.0),
        ];
        for (utilisations, alpha, beta, low, high, effectiveness) in cases {
            let found = balance(utilisations, alpha, beta);
            let right = [(found.low, low), (found.high, high), (found.effectiveness, effectiveness)];
            assert!(right.iter().all(|(found, right)| (found - right).abs() < 1e-9), "{utilisations:?}: {found:?}");
        }
        assert_eq!(balance(&[], 30, 60).effectiveness, 0.0, "no server");
    }

    /// With α = β = t it is the mean distance from t, which is never below that of the mean (Jensen).
    #[test]
    fn with_one_threshold_it_is_the_mean_distance_from_it() {
        let mut random = hinterland_units::Rng(12345);
        let utilisations: Vec<f64> = (0..1000).map(|_| f64::from(random.below_u32(10_001)) / 100.0).collect();
        let mean = utilisations.iter().sum::<f64>() / 1000.0;
        for threshold in (0..=100).step_by(7) {
            let at = f64::from(u32::try_from(threshold).unwrap());
            let distance = utilisations.iter().map(|percent| (percent - at).abs()).sum::<f64>() / 1000.0;
            let found = balance(&utilisations, threshold, threshold).effectiveness;
            assert!((found - distance).abs() < 1e-6, "{threshold}: {found} {distance}");
            assert!(found >= (mean - at).abs() - 1e-9);
        }
    }

    #[test]
    fn what_is_no_utilisation_is_not_counted() {
        let mut all = Utilisations::default();
        for percent in [-1.0, 101.0, f64::NAN, f64::INFINITY] {
            assert!(!all.add(percent), "{percent}");
        }
        assert!(all.add(0.29) && all.add(100.0));
        assert_eq!((all.count(), all.sums().balance(29, 29).low), (2, 0.0), "0.29 % is at 0.29 %, not below");
    }
}
