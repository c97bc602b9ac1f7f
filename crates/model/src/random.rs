//! Random numbers from a seed, and what the models draw of them.

use hinterland_units::Rng;

/// A generator; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// Every seed is good.
    pub fn new(seed: u64) -> Random {
        Random(Rng(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not 0 (Lemire's multiplication; its bias is below `bound` / 2^64).
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.bits()) * u128::from(bound);
        u64::try_from(product >> 64).expect("below the bound")
    }

    /// From 0 up to, without, 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds")]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all() {
        let mut random = Random::new(1);
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[usize::try_from(random.below(7)).expect("small")] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }
}
