//! Which paths `auto` prefers: those where a page costs least, time times memory.
//!
//! A path's score is the time of a page that is loaded alone, in nanoseconds, times the bytes that a page takes there, times the
//! price of a byte relative to RAM of this machine. Paths whose scores are within [`ALIKE`] of each other share the pages; the
//! others follow as lower tiers.

/// Scores that differ by less are of one kind: measured times differ by half from one minute to the next.
const ALIKE: f64 = 2.0;

/// What is known of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Its number.
    pub(super) path: usize,
    /// Nanoseconds of a page that is loaded alone; `None`: none was.
    pub(super) page_ns: Option<f64>,
    /// Bytes that a page takes there, relative to its size, times the price of a byte relative to RAM.
    pub(super) cost: f64,
}

/// The tiers: the best paths first, those of a kind together. What was never loaded from is in the first tier, at its end: it is tried
/// out there with a few pages. Pure.
pub(super) fn tiers(paths: &[Known]) -> Vec<Vec<usize>> {
    let mut scored: Vec<(usize, f64)> =
        paths.iter().filter_map(|known| Some((known.path, known.page_ns? * known.cost))).collect();
    scored.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut tiers: Vec<(f64, Vec<usize>)> = Vec::new();
    for (path, score) in scored {
        match tiers.last_mut() {
            Some((first, tier)) if score < *first * ALIKE => tier.push(path),
            _ => tiers.push((score, vec![path])),
        }
    }
    let mut tiers: Vec<Vec<usize>> = tiers.into_iter().map(|(_, tier)| tier).collect();
    let unknown: Vec<usize> = paths.iter().filter(|known| known.page_ns.is_none()).map(|known| known.path).collect();
    match tiers.first_mut() {
        Some(first) => first.extend(unknown),
        None if unknown.is_empty() => {}
        None => tiers.push(unknown),
    }
    tiers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(path: usize, page_us: f64, cost: f64) -> Known {
        Known { path, page_ns: (page_us > 0.0).then_some(page_us * 1000.0), cost }
    }

    #[test]
    fn the_cheapest_of_time_times_memory_come_first_and_equals_together() {
        // A slow file, compressed RAM, two nodes.
        let paths = [known(0, 120.0, 0.05), known(1, 3.0, 0.4), known(2, 40.0, 0.5), known(3, 60.0, 0.5)];
        assert_eq!(tiers(&paths), [vec![1], vec![0], vec![2, 3]]);
        // RAM in which nothing shrinks, beside a fast link.
        assert_eq!(tiers(&[known(0, 3.0, 1.1), known(1, 4.0, 0.25)]), [[1], [0]]);
    }

    #[test]
    fn what_is_not_known_is_tried_out_behind_the_best() {
        assert_eq!(tiers(&[known(0, 0.0, 1.0), known(1, 0.0, 1.0)]), [[0, 1]]);
        assert_eq!(tiers(&[known(0, 0.0, 1.0), known(1, 50.0, 1.0), known(2, 7.0, 1.0)]), [vec![2, 0], vec![1]]);
        assert!(tiers(&[]).is_empty());
    }
}
