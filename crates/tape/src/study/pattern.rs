//! How regular references are: whether each continues a stream.
//!
//! A thread often walks through several arrays at once, and their references alternate. So each thread has [`STREAMS`]
//! streams, and a reference continues the one whose last page and step lead to it. Otherwise it takes over the stream whose
//! last page is nearest, within [`NEAR_PAGES`], and gives it the step from there, or begins a new one in place of the stream
//! that was continued longest ago; both count as irregular. So a stream's first two references are irregular.

use std::ops::Add;

/// Streams of one thread that are followed at the same time.
const STREAMS: usize = 16;
/// Steps longer than this begin a new stream.
const NEAR_PAGES: u64 = 512;

/// What a reference is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// It continues a stream by one page, upwards or downwards.
    Sequential,
    /// It continues a stream by the same step of several pages.
    Stride,
    /// Neither.
    Irregular,
}

/// References by pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shares {
    /// Those that continue a stream by one page.
    pub sequential: u64,
    /// Those that continue a stream by more.
    pub stride: u64,
    /// All others.
    pub irregular: u64,
}

impl Shares {
    /// Counts a reference.
    pub fn count(&mut self, pattern: Pattern) {
        match pattern {
            Pattern::Sequential => self.sequential += 1,
            Pattern::Stride => self.stride += 1,
            Pattern::Irregular => self.irregular += 1,
        }
    }
}

impl Add for Shares {
    type Output = Shares;
    fn add(self, other: Shares) -> Shares {
        Shares {
            sequential: self.sequential + other.sequential,
            stride: self.stride + other.stride,
            irregular: self.irregular + other.irregular,
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    last: u64,
    /// 0: not known yet.
    step: i64,
    /// Pages of the sequential run that ends here.
    run: u64,
    /// When it was last continued; 0: unused.
    used: u64,
}

/// The streams of one thread.
#[derive(Clone, Default, Debug)]
pub struct Patterns {
    streams: [Stream; STREAMS],
    now: u64,
    run: u64,
}

impl Patterns {
    /// Takes a reference in, and says what it is.
    pub fn reference(&mut self, position: u64) -> Pattern {
        self.now += 1;
        self.run = 0;
        let now = self.now;
        let continued = |stream: &&mut Stream| {
            stream.used != 0 && stream.step != 0 && stream.last.wrapping_add_signed(stream.step) == position
        };
        if let Some(stream) = self.streams.iter_mut().find(continued) {
            (stream.last, stream.used) = (position, now);
            if stream.step.abs() == 1 {
                stream.run += 1;
                self.run = stream.run;
            }
            return if stream.step.abs() == 1 { Pattern::Sequential } else { Pattern::Stride };
        }
        let distance = |stream: &Stream| stream.last.abs_diff(position);
        let near = self.streams.iter_mut().filter(|s| s.used != 0 && (1..=NEAR_PAGES).contains(&distance(s)));
        if let Some(stream) = near.min_by_key(|stream| distance(stream)) {
            let step = position.wrapping_sub(stream.last).cast_signed();
            *stream = Stream { last: position, step, run: 2, used: now };
        } else if let Some(stream) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *stream = Stream { last: position, step: 0, run: 1, used: now };
        }
        Pattern::Irregular
    }

    /// Pages of the sequential run up to the last reference; 0: that continued none.
    pub fn run(&self) -> u64 {
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(positions: impl IntoIterator<Item = u64>) -> Shares {
        let mut patterns = Patterns::default();
        positions.into_iter().fold(Shares::default(), |mut shares, position| {
            shares.count(patterns.reference(position));
            shares
        })
    }

    #[test]
    fn walks_are_told_apart() {
        assert_eq!(shares(100..200), Shares { sequential: 98, stride: 0, irregular: 2 });
        assert_eq!(shares((100..200).rev()), Shares { sequential: 98, stride: 0, irregular: 2 });
        assert_eq!(shares((0..100).map(|i| i * 10)), Shares { sequential: 0, stride: 98, irregular: 2 });
    }

    #[test]
    fn runs_are_counted_in_pages() {
        let mut patterns = Patterns::default();
        let mut longest = |positions: &mut dyn Iterator<Item = u64>| {
            positions.map(|position| (patterns.reference(position), patterns.run()).1).max()
        };
        assert_eq!(longest(&mut (10..15)), Some(5));
        assert_eq!(longest(&mut (0..50).map(|i| 10_000 - i)), Some(50));
        assert_eq!(longest(&mut (0..90).map(|i| 1_000_000 + 5 * i)), Some(0), "a stride is none");
    }

    #[test]
    fn interleaved_walks_are_regular_too() {
        let walks = (0..100u64).flat_map(|i| [i, 1_000_000 + i * 3, 2_000_000 - i]);
        assert_eq!(shares(walks), Shares { sequential: 196, stride: 98, irregular: 6 });
    }

    #[test]
    fn random_references_are_irregular() {
        let random = (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        let shares = shares(random);
        assert!(shares.irregular > 9_900, "{shares:?}");
    }
}
