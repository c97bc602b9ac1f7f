//! The targets for prefetching, and the figures reached. Ratios are taken within each round.

use super::rows::Row;
use crate::report::statistics::median;
use crate::report::target::Target;
use crate::worker::Pattern;

/// The link at which most targets are set.
const SHORT_LINK: &str = "5us:25Gb/s";
/// No single prefetcher: the pager's choice among them.
const CHOOSING: &str = "auto";
/// What is judged when nothing chooses: the default.
const OTHERWISE: &str = "streams";

/// All that the rows can answer.
pub fn targets(rows: &[&Row]) -> Vec<Target> {
    let ours = if rows.iter().any(|row| row.prefetcher == CHOOSING) { CHOOSING } else { OTHERWISE };
    let find = |link: &str, pattern: Pattern, prefetcher: &str| {
        rows.iter()
            .copied()
            .find(|row| (row.link.as_str(), row.pattern, row.prefetcher.as_str()) == (link, pattern, prefetcher))
    };
    let mut targets: Vec<Option<Target>> = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Stride10] {
        let Some(our) = find(SHORT_LINK, pattern, ours) else { continue };
        let none = find(SHORT_LINK, pattern, "none");
        let of = |row: &Row, round: usize| row.round_major_faults_per_access[round];
        let faults = none.and_then(|none| ratio(our, none, of));
        targets.push(Target::at_most(format!("{ours}, {pattern}: major faults beside none"), faults, 0.02));
        targets.push(Target::at_least(format!("{ours}, {pattern}: accuracy"), our.accuracy, 0.95));
    }
    if let (Some(our), Some(kernels)) =
        (find(SHORT_LINK, Pattern::Stride10, ours), find(SHORT_LINK, Pattern::Stride10, "readahead"))
    {
        let p50 = ratio(kernels, our, |row, round| row.round_quantiles_us[round].map(|quantiles| quantiles.0));
        let p99 = ratio(kernels, our, |row, round| row.round_quantiles_us[round].map(|quantiles| quantiles.1));
        targets.push(Target::at_least(format!("stride-10: p50 of readahead beside {ours}'s"), p50, 10.0));
        targets.push(Target::at_least(format!("stride-10: p99 of readahead beside {ours}'s"), p99, 3.0));
    }
    for pattern in [Pattern::Interleaved2, Pattern::Interleaved4] {
        let coverage = |prefetcher| find(SHORT_LINK, pattern, prefetcher).and_then(|row| row.coverage);
        targets.push(Target::at_least(format!("{ours}, {pattern}: coverage"), coverage(ours), 0.9));
        targets.push(Target::at_most(format!("leap, {pattern}: coverage (to be beaten)"), coverage("leap"), 0.5));
    }
    let time = |row: &Row, round: usize| row.round_us[round];
    for our in rows.iter().copied().filter(|row| row.prefetcher == ours) {
        let case = format!("{ours}, {}, link {}", our.pattern, our.link);
        if our.pattern == Pattern::Random {
            let beside = find(&our.link, our.pattern, "none").and_then(|none| ratio(our, none, time));
            targets.push(Target::at_most(format!("{case}: time beside none"), beside, 1.03));
        }
        if ours == CHOOSING {
            let others = rows
                .iter()
                .copied()
                .filter(|row| (&row.link, row.pattern) == (&our.link, our.pattern) && row.prefetcher != ours);
            let best = others.min_by(|a, b| mean_us(a).total_cmp(&mean_us(b)));
            let beside = best.and_then(|best| ratio(our, best, time));
            targets.push(Target::at_most(format!("{case}: time beside the best single one"), beside, 1.05));
        }
    }
    targets.into_iter().flatten().collect()
}

fn mean_us(row: &Row) -> f64 {
    row.access_us_mean.map_or(f64::INFINITY, |spread| spread.median)
}

/// The median over the rounds of what one row has beside another.
fn ratio(above: &Row, below: &Row, of: impl Fn(&Row, usize) -> Option<f64>) -> Option<f64> {
    let rounds = 0..above.round_us.len().min(below.round_us.len());
    median(rounds.filter_map(|round| Some(of(above, round)? / of(below, round).filter(|figure| *figure > 0.0)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(link: &str, pattern: &str, prefetcher: &str, us: f64, major: f64, covered: f64) -> Row {
        let text = json!({
            "link": link, "pattern": pattern, "prefetcher": prefetcher, "cut_short": false, "coverage": covered, "accuracy": 0.99,
            "access_us_mean": {"median": us, "min": us, "max": us}, "distribution": [], "round_us": [us, null, us],
            "round_quantiles_us": [[us, us], null, [us, us]], "round_major_faults_per_access": [major, null, major], "ended": "ok",
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn the_rows_answer_what_they_can() {
        let rows = [
            row(SHORT_LINK, "stride-10", "none", 9.0, 1.0, 0.0),
            row(SHORT_LINK, "stride-10", "readahead", 9.0, 1.0, 0.0),
            row(SHORT_LINK, "stride-10", "streams", 0.5, 0.01, 0.9),
            row("none", "random", "none", 2.0, 0.5, 0.0),
            row("none", "random", "streams", 2.2, 0.5, 0.0),
        ];
        let reached: Vec<(f64, bool)> =
            targets(&rows.each_ref()).iter().map(|target| (target.reached, target.met)).collect();
        let wanted = [(0.01, true), (0.99, true), (18.0, true), (18.0, true), (1.1, false)];
        assert!(reached.iter().zip(wanted).all(|(a, b)| (a.0 - b.0).abs() < 1e-9 && a.1 == b.1), "{reached:?}");
        assert_eq!(reached.len(), wanted.len());
    }

    #[test]
    fn what_chooses_is_compared_with_the_best_single_one() {
        let rows = [
            row("ssd", "sequential", "none", 90.0, 1.0, 0.0),
            row("ssd", "sequential", "leap", 10.0, 0.1, 0.9),
            row("ssd", "sequential", "auto", 11.0, 0.1, 0.9),
        ];
        let targets = targets(&rows.each_ref());
        assert_eq!((targets.len(), targets[0].met), (1, false));
        assert!((targets[0].reached - 1.1).abs() < 1e-9);
    }
}
