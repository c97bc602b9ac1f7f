//! Which programs arrive, and when: from a seed.

use super::programs::Programs;
use crate::random::Random;

/// What arrives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mix {
    /// Of 100 programs, so many are friendly.
    pub friendly_percent: u32,
    /// Programs each second, on average.
    pub per_second: f64,
    /// Makes the arrivals.
    pub seed: u64,
}

/// Arrivals without end, in the order of time: a Poisson process, each arrival a friendly program or another one with the mix's share, and of those any.
#[derive(Clone, Debug)]
pub struct Arrivals {
    random: Random,
    mix: Mix,
    /// Friendly programs, and the others.
    kinds: [Vec<usize>; 2],
    at_ms: f64,
}

impl Arrivals {
    /// Of such a mix.
    ///
    /// # Errors
    /// The mix asks for programs of a kind of which there are none.
    pub fn new(programs: &Programs, mix: Mix) -> Result<Arrivals, String> {
        let of = |friendly: bool| {
            let all = programs.programs.iter().enumerate();
            all.filter(|(_, program)| program.is_friendly() == friendly).map(|(index, _)| index).collect::<Vec<_>>()
        };
        let kinds = [of(true), of(false)];
        if mix.friendly_percent > 0 && kinds[0].is_empty() || mix.friendly_percent < 100 && kinds[1].is_empty() {
            return Err("there are no programs of a kind that the mix asks for".into());
        }
        Ok(Arrivals { random: Random::new(mix.seed), mix, kinds, at_ms: 0.0 })
    }
}

impl Iterator for Arrivals {
    /// Milliseconds, and a program.
    type Item = (u64, usize);

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds, below 2^53")]
    fn next(&mut self) -> Option<(u64, usize)> {
        self.at_ms += -(1.0 - self.random.unit()).ln() * 1000.0 / self.mix.per_second;
        let is_friendly = self.random.below(100) < u64::from(self.mix.friendly_percent);
        let kind = &self.kinds[usize::from(!is_friendly)];
        let program = kind[usize::try_from(self.random.below(kind.len() as u64)).expect("an index")];
        Some((self.at_ms as u64, program))
    }
}
