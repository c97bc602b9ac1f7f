//! Streams as a pager would play them.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

/// A pager that maps what a prefetcher asks for, and counts.
struct Player {
    streams: Streams,
    mapped: HashSet<u32>,
    keys: HashSet<u32>,
    faults: u32,
    windows: Vec<PrefetchWindow>,
    /// What the first use of a page and of a key page is called.
    kind: Request,
}

impl Player {
    fn new(limit: u32, kind: Request) -> Player {
        Player {
            streams: Streams::sequential(limit),
            mapped: HashSet::new(),
            keys: HashSet::new(),
            faults: 0,
            windows: Vec::new(),
            kind,
        }
    }

    fn touch(&mut self, page: u32) {
        if !self.mapped.insert(page) {
            return;
        }
        self.faults += 1;
        let request = if self.keys.remove(&page) { Request::PrefetchHit } else { self.kind };
        if let Some(window) = self.streams.requested(PageNo(page), request, Thread(0)) {
            assert_eq!(window.iter().filter(|ahead| window.leaves_unmapped(*ahead)).count(), 1, "{window:?}");
            assert!(window.iter().all(|ahead| ahead.0 != page), "{window:?}");
            for ahead in window.iter() {
                if window.leaves_unmapped(ahead) && !self.mapped.contains(&ahead.0) {
                    self.keys.insert(ahead.0);
                } else {
                    self.mapped.insert(ahead.0);
                }
            }
            self.windows.push(window);
        }
    }

    fn asked(&self) -> u32 {
        self.windows.iter().map(|window| window.pages).sum()
    }
}

#[test]
fn a_stream_faults_twice_and_then_only_at_key_pages() {
    for kind in [Request::Major, Request::FirstTouch] {
        let mut player = Player::new(64, kind);
        (1000..11_000).for_each(|page| player.touch(page));
        let sizes: Vec<u32> = player.windows.iter().take(7).map(|window| window.pages).collect();
        assert_eq!(sizes, [4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(player.faults, 2 + u32::try_from(player.windows.len()).unwrap() - 1);
        assert!(player.faults < 2 + 10_000 / 64 + 6, "{} faults", player.faults);
        for pair in player.windows.windows(2) {
            assert_eq!(pair[0].first.0 + pair[0].pages, pair[1].first.0, "windows follow each other");
        }
    }
}

#[test]
fn a_descending_stream_is_the_mirror_image() {
    let mut player = Player::new(32, Request::Major);
    (0..5000).rev().for_each(|page| player.touch(page));
    assert!(player.faults < 2 + 5000 / 32 + 5, "{} faults", player.faults);
    assert_eq!(player.windows.last().and_then(|window| window.iter().last()), Some(PageNo(0)), "cut at page 0");
    let ahead = player.windows.iter().flat_map(PrefetchWindow::iter);
    assert!(ahead.map(|page| page.0).eq((0..4998).rev()), "what is needed first is asked for first");
}

#[test]
fn sixteen_interleaved_streams_are_followed_beside_random_faults() {
    let mut player = Player::new(64, Request::Major);
    let mut random = SmallRng::seed_from_u64(1);
    for step in 0..2000 {
        (0..16).for_each(|stream| player.touch((stream + 1) * 100_000 + step));
        player.touch(random.random_range(1 << 28..1 << 29));
    }
    assert!(player.faults < 2000 + 16 * (2 + 2000 / 64 + 6), "{} faults", player.faults);
}

#[test]
fn sequential_ones_fetch_nothing_for_random_and_strided_faults() {
    let mut random = SmallRng::seed_from_u64(2);
    let mut player = Player::new(64, Request::Major);
    (0..100_000).for_each(|_| player.touch(random.random_range(0..1 << 24)));
    (0..100_000).for_each(|step| player.touch((1 << 25) + step * 10));
    (0..100_000).for_each(|step| player.touch((1 << 27) + step * 2));
    assert!(player.asked() < 500, "{} pages", player.asked());
}

#[test]
fn first_touches_and_far_memory_are_different_streams() {
    let mut streams = Streams::sequential(64);
    streams.requested(PageNo(10), Request::FirstTouch, Thread(0));
    assert_eq!(streams.requested(PageNo(11), Request::Major, Thread(0)), None);
    assert!(streams.requested(PageNo(11), Request::FirstTouch, Thread(0)).is_some());
    assert_eq!(streams.requested(PageNo(13), Request::Major, Thread(0)), None, "the key page of the other kind");
}

#[test]
fn goes_on_when_the_key_page_was_local() {
    let mut player = Player::new(64, Request::Major);
    for page in 0..10_000 {
        let keys = std::mem::take(&mut player.keys);
        player.mapped.extend(keys);
        player.touch(page);
    }
    assert!(player.faults < 2 + 10_000 / 64 + 10, "{} faults", player.faults);
}

#[test]
fn strides_go_on_with_one_fault_where_pages_around_the_end_are_local() {
    for step in [10, -3] {
        let mut player = of_any_step();
        let mut random = SmallRng::seed_from_u64(8);
        let page = |term: i64| u32::try_from((1 << 20) + step * term).unwrap();
        // Three quarters of the pages are local, but for the first ones, which found the stream.
        player.mapped.extend((8..20_000).map(page).filter(|_| random.random_range(0..4) > 0));
        (0..20_000).for_each(|term| player.touch(page(term)));
        assert!(player.faults < 3 + 20_000 / 64 + 12, "step {step}: {} faults", player.faults);
    }
}

#[test]
fn goes_on_past_local_pages() {
    let mut player = Player::new(64, Request::Major);
    for block in 0..200 {
        player.mapped.extend(block * 500 + 400..block * 500 + 500);
    }
    (0..100_000).for_each(|page| player.touch(page));
    assert!(player.faults < 200 * 12, "{} faults", player.faults);
}

#[test]
fn goes_on_when_a_window_was_dropped_before_its_use() {
    let mut player = Player::new(64, Request::Major);
    (0..1000).for_each(|page| player.touch(page));
    player.mapped.clear();
    player.keys.clear();
    let before = player.faults;
    (1000..2000).for_each(|page| player.touch(page));
    assert!(player.faults - before < 2 + 1000 / 64 + 3, "{} faults", player.faults - before);
}

/// Objects of two pages at random places: each looks like the beginning of a stream.
fn play_pairs(player: &mut Player, report: bool) {
    let mut random = SmallRng::seed_from_u64(3);
    for _ in 0..20_000 {
        let page = random.random_range(0..1 << 28) * 4;
        let before = player.asked();
        player.touch(page);
        player.touch(page + 1);
        if report {
            player.streams.wasted(PageNo(page), player.asked() - before);
        }
    }
}

#[test]
fn pairs_at_random_places_turn_it_off() {
    for report in [false, true] {
        let mut player = Player::new(64, Request::Major);
        play_pairs(&mut player, report);
        assert!(player.asked() < 20_000 / 20, "{} pages, waste reported: {report}", player.asked());
    }
}

#[test]
fn a_stream_after_much_waste_is_trusted_again() {
    let mut player = Player::new(64, Request::Major);
    play_pairs(&mut player, true);
    let before = player.faults;
    (1 << 30..(1 << 30) + 10_000).for_each(|page| player.touch(page));
    assert!(player.faults - before < 16 + 10_000 / 64 + 16, "{} faults", player.faults - before);
    assert_eq!(player.windows.last().map(|window| window.pages), Some(64));
}

/// Plays a stream of `pages` pages that ends in waste, reports the waste, and tells the largest window of it.
fn play_and_report(player: &mut Player, first: u32, pages: u32) -> u32 {
    let (asked, windows) = (player.asked(), player.windows.len());
    (first..first + pages).for_each(|page| player.touch(page));
    player.streams.wasted(PageNo(first), (player.asked() - asked).saturating_sub(pages - 2));
    player.windows[windows..].iter().map(|window| window.pages).max().unwrap_or(0)
}

#[test]
fn waste_shrinks_the_windows_and_a_long_stream_grows_them() {
    let mut player = Player::new(64, Request::Major);
    assert_eq!(play_and_report(&mut player, 1 << 20, 41), 64, "the 64 pages of the last window are never reached");
    for stream in 2..100 {
        assert_eq!(play_and_report(&mut player, stream << 20, 41), 32);
    }
    assert_eq!(play_and_report(&mut player, 100 << 20, 1000), 64);
}

#[test]
fn the_limit_holds_and_zero_is_off() {
    let mut player = Player::new(0, Request::Major);
    (0..1000).for_each(|page| player.touch(page));
    assert!(player.windows.is_empty());
    let mut player = Player::new(2, Request::Major);
    (0..1000).for_each(|page| player.touch(page));
    assert!(player.windows.iter().all(|window| window.pages <= 2) && !player.windows.is_empty());
    player.streams.limit(128);
    (8000..12_000).for_each(|page| player.touch(page));
    assert_eq!(player.windows.last().map(|window| window.pages), Some(128));
}

#[test]
fn ends_at_the_last_page_number() {
    let mut player = Player::new(64, Request::Major);
    (u32::MAX - 300..u32::MAX).for_each(|page| player.touch(page));
    assert!(player.windows.iter().all(|window| window.first.0.checked_add(window.pages).is_some()));
}

/// A player that follows streams of any step.
fn of_any_step() -> Player {
    Player { streams: Streams::of_any_step(64), ..Player::new(64, Request::Major) }
}

#[test]
fn a_stream_of_any_step_faults_three_times_and_then_only_at_key_pages() {
    for (first, step) in [(1 << 20, 10i64), (1 << 20, 2), (1 << 28, -3), (1 << 20, 4096)] {
        let mut player = of_any_step();
        let page = |term: i64| u32::try_from(first + step * term).unwrap();
        (0..10_000).for_each(|term| player.touch(page(term)));
        assert!(player.faults < 3 + 10_000 / 64 + 6, "step {step}: {} faults", player.faults);
        assert!(player.asked() < 10_000 + 64, "step {step}: {} pages", player.asked());
    }
    let mut player = of_any_step();
    (0..10_000).for_each(|term| player.touch(term * 4097));
    assert_eq!(player.asked(), 0, "longer than the longest step");
}

#[test]
fn interleaved_strides_are_streams_of_their_own() {
    for streams in [2, 4, 8] {
        let mut player = of_any_step();
        // Distances that are no progression themselves, and equal ones.
        for apart in [|stream: u32| (stream + 1) * (stream + 1) * 1_000_003, |stream| (1 << 28) + stream * 1000] {
            let (faults, asked) = (player.faults, player.asked());
            for term in 0..5000 {
                (0..streams).for_each(|stream| player.touch(apart(stream) + term * (7 * streams + 1)));
            }
            let (faults, asked) = (player.faults - faults, player.asked() - asked);
            assert!(faults < streams * (5000 / 10), "{streams} streams: {faults} faults of {}", streams * 5000);
            assert!(asked < streams * 5000 * 21 / 20, "{streams} streams: {asked} pages of {}", streams * 5000);
        }
    }
}

#[test]
fn strides_are_followed_beside_random_faults() {
    let mut player = of_any_step();
    let mut random = SmallRng::seed_from_u64(4);
    for term in 0..5000 {
        player.touch((1 << 20) + term * 10);
        (0..4).for_each(|_| player.touch(random.random_range(1 << 28..1 << 29)));
    }
    assert!(player.faults < 5000 * 4 + 5000 / 20, "{} faults", player.faults);
}

#[test]
fn random_faults_found_hardly_any_progression() {
    for pages in [1 << 14, 1 << 18, 1 << 24] {
        let mut random = SmallRng::seed_from_u64(5);
        let mut player = of_any_step();
        for touch in 0..200_000 {
            // The pager evicts, and says what was never used.
            if touch % 1000 == 0 {
                player.mapped.clear();
                let keys = std::mem::take(&mut player.keys);
                keys.into_iter().for_each(|key| player.streams.wasted(PageNo(key), 3));
            }
            player.touch(random.random_range(0..pages));
        }
        assert!(player.asked() < 200_000 / 50, "{pages} pages: {} asked for", player.asked());
    }
}

#[test]
fn steps_end_with_the_page_numbers() {
    let mut player = of_any_step();
    (0..2000).for_each(|term| player.touch(u32::MAX - 1 - (2000 - term) * 7));
    (0..2000).for_each(|term| player.touch((2000 - term) * 5));
    assert!(player.faults < 2 * (3 + 2000 / 64 + 6), "{} faults", player.faults);
}
