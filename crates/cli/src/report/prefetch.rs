//! How well prefetching did, in the terms of Leap §3.1.

use super::summary::{Summary, percentile, ratio};

/// The figures of a run's prefetcher. Decision 0008 says what is seen and what is inferred.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Prefetching {
    /// Uses that were seen, as a share of the pages whose use would be seen; `None` when there were none.
    pub accuracy: Option<f64>,
    /// Hits, seen or inferred, as a share of all requests for content that is not local; `None` when there were none.
    pub coverage: Option<f64>,
    /// Hits that follow from those that were seen.
    pub hits_inferred: u64,
    /// Half of the pages that were seen used waited no longer for it, in nanoseconds.
    pub wait_p50_ns: u64,
    /// 99 of 100 waited no longer.
    pub wait_p99_ns: u64,
}

impl Summary<'_> {
    /// How well prefetching did.
    pub fn prefetching(&self) -> Prefetching {
        let counters = &self.totals.counters;
        // A page for which a thread waited until it came with its block was left unmapped and used, and was not prefetched.
        let ahead = |pages: u64| pages.saturating_sub(counters.block_faults);
        let requests = counters.major_faults + counters.minor_faults + counters.prefetch_hits;
        Prefetching {
            accuracy: ratio(ahead(counters.prefetch_hits_observed), ahead(counters.prefetched_unmapped_pages)),
            coverage: ratio(ahead(counters.prefetch_hits), requests),
            hits_inferred: counters.prefetch_hits.saturating_sub(counters.prefetch_hits_observed),
            wait_p50_ns: percentile(&self.totals.histograms.prefetch_wait_ns, 50),
            wait_p99_ns: percentile(&self.totals.histograms.prefetch_wait_ns, 99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::{Ending, Run};
    use crate::statistics::Totals;
    use hinterland_abi::{FAULT_BUCKETS, bucket_of};
    use std::time::Duration;

    fn prefetching(totals: &Totals) -> Prefetching {
        let run = Run {
            program: "job".into(),
            ending: Ending::Exited(0),
            wall: Duration::ZERO,
            program_wall: Duration::ZERO,
            processor: Duration::ZERO,
            kernel_rss_peak_bytes: 0,
            tree_pss_peak_bytes: 0,
            budget: None,
            budget_source: None,
            prefetch: "leap".into(),
            prefetch_source: None,
            tape_source: None,
            tapes: Vec::new(),
            tape_threads: 0,
            service: None,
            read_ahead_pages: None,
            prefetch_cache: None,
            unmanaged_because: None,
        };
        Summary::new(&run, totals).prefetching()
    }

    #[test]
    fn accuracy_is_of_what_is_seen_and_coverage_of_all_requests() {
        let mut totals = Totals::default();
        assert_eq!(prefetching(&totals), Prefetching::default());
        totals.counters.major_faults = 100;
        totals.counters.minor_faults = 100;
        totals.counters.prefetched_pages = 1200;
        totals.counters.prefetched_unmapped_pages = 20;
        totals.counters.prefetch_hits_observed = 15;
        totals.counters.prefetch_hits = 800;
        totals.histograms.prefetch_wait_ns = vec![0; FAULT_BUCKETS];
        totals.histograms.prefetch_wait_ns[bucket_of(2_000)] = 15;
        let figures = prefetching(&totals);
        assert_eq!((figures.accuracy, figures.coverage), (Some(0.75), Some(0.8)));
        assert_eq!(figures.hits_inferred, 785);
        // As the simulator counts: a third of the pages that were used had been waited for.
        totals.counters.block_faults = 5;
        let figures = prefetching(&totals);
        assert_eq!((figures.accuracy, figures.coverage), (Some(10.0 / 15.0), Some(0.795)));
        assert!((2_000..2_300).contains(&figures.wait_p50_ns) && figures.wait_p50_ns == figures.wait_p99_ns);
    }
}
