//! Policies by the names that `--evict` and `--prefetch` take.

use crate::{
    Auto, Bounded, BoundedByLink, EvictionPolicy, Fifo, Leap, NextLine, PerThread, Prefetcher, ReadAhead, ReadAheadVma,
    S3Fifo, SecondChance, Streams, Stride, TwoQ, ZeroAhead,
};

/// The eviction policy of that name (`fifo`, `second-chance`, `s3-fifo`, `2q`), shaped for a budget of
/// `capacity_pages`; `None` if there is none.
pub fn make(name: &str, capacity_pages: usize) -> Option<Box<dyn EvictionPolicy>> {
    Some(match name {
        "fifo" => Box::new(Fifo::new()),
        "second-chance" => Box::new(SecondChance::new()),
        "s3-fifo" => Box::new(S3Fifo::new(capacity_pages)),
        "2q" => Box::new(TwoQ::new(capacity_pages)),
        _ => return None,
    })
}

/// The names that [`make`] knows.
pub const EVICTION_POLICIES: [&str; 4] = ["fifo", "second-chance", "s3-fifo", "2q"];

/// Largest usual window of `auto`, `next-n` and `streams`, and of first touches: 256 KiB.
const STREAM_PAGES: u32 = 64;
/// Largest window of all others: Linux's (`page_cluster` 3) and Leap's (§5).
const WINDOW_PAGES: u32 = 8;

/// The prefetcher of that name, with windows of at most `window_pages_max` (0: off); `None`: with the largest that is usual for it,
/// until the link asks for larger ones. `None` if there is none of that name.
pub fn make_prefetcher(name: &str, window_pages_max: Option<u32>) -> Option<Box<dyn Prefetcher>> {
    let follows_link = window_pages_max.is_none();
    let bounded = |inner: Box<dyn Bounded>, usual_pages: u32| -> Box<dyn Prefetcher> {
        if follows_link { Box::new(BoundedByLink::new(inner, usual_pages)) } else { inner }
    };
    let pages = window_pages_max.unwrap_or(WINDOW_PAGES);
    let stream_pages = window_pages_max.unwrap_or(STREAM_PAGES);
    let remote: Option<Box<dyn Prefetcher>> = match name {
        "none" => None,
        "next-n" => return Some(bounded(Box::new(Streams::sequential(stream_pages)), stream_pages)),
        "auto" => return Some(bounded(Box::new(Auto::new(stream_pages)), stream_pages)),
        "streams" => return Some(bounded(Box::new(Streams::of_any_step(stream_pages)), stream_pages)),
        // They have the bounds of what they are compared with.
        "next-n-line" => Some(Box::new(NextLine::new(pages))),
        "readahead" => Some(Box::new(ReadAhead::new(pages))),
        "readahead-vma" => Some(Box::new(ReadAheadVma::new(pages))),
        "stride" => Some(Box::new(Stride::new(pages))),
        "leap" => Some(Box::new(Leap::new(pages))),
        "leap-per-thread" => Some(Box::new(PerThread::new(|pages| Box::new(Leap::new(pages)), pages))),
        _ => return None,
    };
    Some(Box::new(ZeroAhead::new(stream_pages, remote)))
}

/// The names that [`make_prefetcher`] knows.
pub const PREFETCHERS: [&str; 10] = [
    "auto",
    "none",
    "next-n",
    "streams",
    "next-n-line",
    "readahead",
    "readahead-vma",
    "stride",
    "leap",
    "leap-per-thread",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Thread};
    use hinterland_units::PageNo;

    #[test]
    fn knows_its_names_and_no_others() {
        assert!(EVICTION_POLICIES.iter().all(|name| make(name, 1000).is_some()));
        assert!(make("lru", 1000).is_none());
        assert!(PREFETCHERS.iter().all(|name| make_prefetcher(name, None).is_some()));
        assert!(make_prefetcher("markov", None).is_none());
    }

    /// Whether anything is asked for along a scan.
    fn asks(name: &str, window_pages_max: Option<u32>, request: Request) -> bool {
        let mut prefetcher = make_prefetcher(name, window_pages_max).expect("a known name");
        (0..100).any(|page| prefetcher.requested(PageNo(page), request, Thread(0)).is_some())
    }

    #[test]
    fn all_but_none_fetch_along_a_scan_and_all_map_first_touches_ahead() {
        for name in PREFETCHERS {
            assert_eq!(asks(name, None, Request::Major), name != "none", "{name}");
            assert!(asks(name, None, Request::FirstTouch), "{name}");
            assert!(!asks(name, Some(0), Request::Major) && !asks(name, Some(0), Request::FirstTouch), "{name}");
        }
    }

    #[test]
    fn streams_follow_steps_as_a_hint_could_and_those_of_the_papers_need_hints() {
        let follow = |pages| -> Vec<&str> {
            let follows =
                |name: &&str| make_prefetcher(name, pages).is_some_and(|prefetcher| prefetcher.follows_steps());
            PREFETCHERS.into_iter().filter(follows).collect()
        };
        assert_eq!(follow(None), ["auto", "next-n", "streams"]);
        assert!(follow(Some(0)).is_empty(), "with read-ahead turned off");
    }
}
