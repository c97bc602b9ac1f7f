//! The features of a run (xDM, §IV-B), from what its pagers have seen. `hinterland advise` has those of a trace.

use super::members::documented;
use super::summary::ratio;
use super::text::{count, percent};
use hinterland_abi::statistics::process::{Counters, Gauges};
use hinterland_policy::{FRAGMENT_PAGES, LARGER_PERCENT};
use serde::{Deserialize, Serialize};

documented! {
    /// What the pages of a run did.
    #[derive(Clone, PartialEq, Debug, Default, Deserialize)]
    pub struct RunFeatures {
        /// Of the pages that requests stand for within 65,536 of them, the share in contiguous runs of fewer than 16; null when there were none.
        pub fragment_ratio: Option<f64>,
        /// Of the pages that requests stand for, those that continue a stream by one page; null when there were none.
        pub sequential_share: Option<f64>,
        /// The same by several pages.
        pub stride_share: Option<f64>,
        /// The longest sequential run, in pages.
        pub longest_sequential_run_pages: u64,
        /// Pages that left unchanged, over those that were written to far memory; null when none was written.
        pub load_store_ratio: Option<f64>,
        /// Anonymous memory, managed or not, over file mappings that are resident, as the kernel counts what is not managed; null when the run was too short to look, or there was no such mapping.
        pub anonymous_file_ratio: Option<f64>,
        /// How much would be loaded with more local memory.
        pub larger_memory: Vec<LargerMemory>,
    }
}

documented! {
    /// A point of the miss-ratio curve beyond local memory, as a stack of the pages that have left tells it.
    #[derive(Clone, PartialEq, Debug, Deserialize)]
    pub struct LargerMemory {
        /// Local memory, in per cent of that which there was.
        pub local_percent: u64,
        /// The loads that would be left, over those that there were; null when none was sampled.
        pub load_share: Option<f64>,
    }
}

impl RunFeatures {
    /// Of all processes together; `has_looked`: the memory that is not managed is known.
    pub fn of(counters: &Counters, longest_run_pages: u64, memory: &Gauges, has_looked: bool) -> RunFeatures {
        let shared = |pages: u64| ratio(pages, counters.feature_references);
        let spared = [
            counters.spared_loads_125,
            counters.spared_loads_150,
            counters.spared_loads_200,
            counters.spared_loads_400,
        ];
        let larger = |(percent, spared): (usize, u64)| LargerMemory {
            local_percent: percent as u64,
            load_share: ratio(counters.sampled_loads.saturating_sub(spared), counters.sampled_loads),
        };
        RunFeatures {
            fragment_ratio: ratio(counters.feature_fragment_pages, counters.feature_window_pages),
            sequential_share: shared(counters.feature_sequential),
            stride_share: shared(counters.feature_strided),
            longest_sequential_run_pages: longest_run_pages,
            load_store_ratio: ratio(counters.evicted_clean_pages, counters.evicted_dirty_pages),
            anonymous_file_ratio: ratio(memory.managed_bytes + memory.unmanaged_anonymous_bytes, memory.file_bytes)
                .filter(|_| has_looked),
            larger_memory: LARGER_PERCENT.into_iter().zip(spared).map(larger).collect(),
        }
    }

    /// In lines, each of which begins with two spaces; none where nothing is known.
    pub fn text(&self) -> String {
        let runs = self.fragment_ratio.map(|share| {
            let longest = match self.longest_sequential_run_pages {
                0 => "no page followed another".into(),
                pages => format!("the longest sequential run had {} pages", count(pages)),
            };
            format!("  {} of the pages were in runs of fewer than {FRAGMENT_PAGES}; {longest}\n", percent(share))
        });
        let left =
            self.load_store_ratio.map(|ratio| format!("  for each page that left changed {ratio:.2} left unchanged\n"));
        let mapped = self
            .anonymous_file_ratio
            .map(|ratio| format!("  for each byte of file mappings there were {ratio:.1} of anonymous memory\n"));
        let point =
            |point: &LargerMemory| Some(format!("{} with {} %", percent(point.load_share?), point.local_percent));
        let points: Vec<String> = self.larger_memory.iter().filter_map(point).collect();
        let curve = (!points.is_empty())
            .then(|| format!("  with more local memory so much would still be loaded: {}\n", points.join(", ")));
        [runs, left, mapped, curve].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_ratios_of_what_was_counted() {
        let counters = Counters {
            feature_references: 1000,
            feature_sequential: 600,
            feature_strided: 100,
            feature_window_pages: 800,
            feature_fragment_pages: 200,
            evicted_clean_pages: 30,
            evicted_dirty_pages: 60,
            sampled_loads: 10,
            spared_loads_125: 1,
            spared_loads_150: 2,
            spared_loads_200: 5,
            spared_loads_400: 10,
            ..Counters::default()
        };
        let memory =
            Gauges { managed_bytes: 900, unmanaged_anonymous_bytes: 100, file_bytes: 500, ..Gauges::default() };
        let features = RunFeatures::of(&counters, 70, &memory, true);
        let shares = [features.fragment_ratio, features.sequential_share, features.stride_share];
        assert_eq!(shares, [Some(0.25), Some(0.6), Some(0.1)]);
        assert_eq!((features.load_store_ratio, features.anonymous_file_ratio), (Some(0.5), Some(2.0)));
        let curve: Vec<(u64, Option<f64>)> =
            features.larger_memory.iter().map(|point| (point.local_percent, point.load_share)).collect();
        assert_eq!(curve, [(125, Some(0.9)), (150, Some(0.8)), (200, Some(0.5)), (400, Some(0.0))]);
        assert_eq!(
            features.text(),
            "  25.0 % of the pages were in runs of fewer than 16; the longest sequential run had 70 pages\n  \
             for each page that left changed 0.50 left unchanged\n  \
             for each byte of file mappings there were 2.0 of anonymous memory\n  \
             with more local memory so much would still be loaded: 90.0 % with 125 %, 80.0 % with 150 %, 50.0 % with 200 %, 0.0 % with 400 %\n"
        );
        assert_eq!(RunFeatures::of(&counters, 70, &memory, false).anonymous_file_ratio, None);
    }

    #[test]
    fn what_was_not_seen_is_not_told() {
        let features = RunFeatures::of(&Counters::default(), 0, &Gauges::default(), true);
        assert_eq!(features.text(), "");
        assert!(features.larger_memory.iter().all(|point| point.load_share.is_none()), "{features:?}");
        assert_eq!(serde_json::from_value::<RunFeatures>(serde_json::to_value(&features).unwrap()).unwrap(), features);
    }
}
