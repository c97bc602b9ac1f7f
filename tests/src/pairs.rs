//! All-pairs covers: few rows in which every value of every factor meets every value of every other factor.
//!
//! A row is one index for each factor. The cover is built greedily: each row starts from an uncovered pair, then takes
//! for each other factor the value that covers most pairs not covered yet. Source: D. M. Cohen et al., "The AETG
//! System", IEEE TSE 23(7), 1997, without its random restarts, so that the same factors always give the same rows.

use std::collections::BTreeSet;

/// Two (factor, value) pairs, the lower factor first.
type Pair = ((usize, usize), (usize, usize));

/// Rows such that each pair of values of two factors is in at least one row. `sizes[i]`: number of values of factor `i`.
pub fn cover(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut open: BTreeSet<Pair> = all_pairs(sizes);
    let mut rows = Vec::new();
    while let Some(&(first, second)) = open.iter().next() {
        let mut row: Vec<Option<usize>> = vec![None; sizes.len()];
        row[first.0] = Some(first.1);
        row[second.0] = Some(second.1);
        for factor in 0..sizes.len() {
            if row[factor].is_none() {
                row[factor] = Some(best_value(factor, sizes[factor], &row, &open, rows.len()));
            }
        }
        let row: Vec<usize> = row.into_iter().flatten().collect();
        for a in 0..row.len() {
            for b in a + 1..row.len() {
                open.remove(&((a, row[a]), (b, row[b])));
            }
        }
        rows.push(row);
    }
    rows
}

/// All rows.
pub fn product(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![Vec::new()], |rows, &size| {
        let longer = |row: &Vec<usize>| (0..size).map(|value| [row.as_slice(), &[value]].concat()).collect::<Vec<_>>();
        rows.iter().flat_map(longer).collect()
    })
}

/// The value of `factor` that covers most open pairs with the chosen ones; ties go round with `turn`.
fn best_value(factor: usize, size: usize, row: &[Option<usize>], open: &BTreeSet<Pair>, turn: usize) -> usize {
    let gain = |value: usize| {
        let chosen = row.iter().enumerate().filter_map(|(other, chosen)| Some((other, (*chosen)?)));
        chosen.filter(|&other| open.contains(&ordered((factor, value), other))).count()
    };
    let values = (0..size).map(|step| (turn + step) % size);
    values.rev().max_by_key(|&value| gain(value)).unwrap_or(0)
}

fn ordered(a: (usize, usize), b: (usize, usize)) -> Pair {
    if a.0 < b.0 { (a, b) } else { (b, a) }
}

fn all_pairs(sizes: &[usize]) -> BTreeSet<Pair> {
    let values = |factor: usize| (0..sizes[factor]).map(move |value| (factor, value));
    let factors = (0..sizes.len()).flat_map(|a| (a + 1..sizes.len()).map(move |b| (a, b)));
    factors.flat_map(|(a, b)| values(a).flat_map(move |x| values(b).map(move |y| (x, y)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_covered() {
        for sizes in [vec![18, 5, 3, 2, 4], vec![2, 2], vec![3, 3, 3, 3], vec![1, 7, 1], vec![2, 3, 18]] {
            let rows = cover(&sizes);
            for (a, b) in all_pairs(&sizes) {
                assert!(rows.iter().any(|row| row[a.0] == a.1 && row[b.0] == b.1), "{sizes:?}: {a:?} with {b:?}");
            }
            assert!(rows.iter().all(|row| row.iter().zip(&sizes).all(|(value, size)| value < size)));
        }
    }

    #[test]
    fn the_cover_is_near_its_lower_bound() {
        // No cover can be smaller than the product of the two largest factors.
        let rows = cover(&[18, 5, 3, 2, 4]);
        assert!((90..=100).contains(&rows.len()), "{}", rows.len());
        assert_eq!(cover(&[2, 2]).len(), 4);
    }

    #[test]
    fn the_product_has_every_row_once() {
        let rows = product(&[2, 3]);
        assert_eq!(rows, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]].map(Vec::from));
    }
}
