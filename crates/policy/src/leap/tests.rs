//! Windows as the paper has them, and what comes of patterns.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

/// A pager that holds what Leap asks for, unmapped, for ever.
struct Player {
    leap: Leap,
    unmapped: HashSet<u32>,
    major: u32,
    hits: u32,
    windows: Vec<u32>,
    asked: u32,
}

impl Player {
    fn new() -> Player {
        Player { leap: Leap::new(8), unmapped: HashSet::new(), major: 0, hits: 0, windows: Vec::new(), asked: 0 }
    }

    fn touch(&mut self, page: u32) {
        let hit = self.unmapped.remove(&page);
        let request = if hit { Request::PrefetchHit } else { Request::Major };
        let window = self.leap.requested(PageNo(page), request, Thread(0));
        if hit {
            assert_eq!(window, None, "a hit fetches nothing");
            self.hits += 1;
            return;
        }
        self.major += 1;
        self.windows.push(window.map_or(0, |window| window.pages));
        for ahead in window.iter().flat_map(PrefetchWindow::iter) {
            self.asked += 1;
            self.unmapped.insert(ahead.0);
        }
    }
}

#[test]
fn windows_grow_with_hits_to_the_largest() {
    let mut player = Player::new();
    (0..200).for_each(|step| player.touch(1000 + step * 10));
    // Five of the last eight steps are a majority: the sixth fault is on the trend.
    assert_eq!(player.windows[..9], [0, 0, 0, 0, 0, 1, 2, 4, 8]);
    assert!(player.windows[9..].iter().all(|pages| *pages == 8), "{:?}", player.windows);
}

#[test]
fn windows_shrink_by_half_when_hits_fail_to_come() {
    let mut player = Player::new();
    (0..103).for_each(|step| player.touch(1000 + step));
    player.unmapped.clear();
    let mut random = SmallRng::seed_from_u64(1);
    let before = player.windows.len();
    (0..8).for_each(|_| player.touch(random.random_range(1 << 20..1 << 30)));
    assert_eq!(player.windows[before..before + 5], [8, 4, 2, 1, 0][..], "the first has the hits before it");
}

#[test]
fn without_a_trend_the_latest_one_is_tried() {
    let mut leap = Leap::new(8);
    let mut request = |page, request| leap.requested(PageNo(page), request, Thread(0));
    assert!((0..33).any(|step| request(1000 + step * 4, Request::Major).is_some()));
    assert!((0..4).all(|step| request(5000 + step * step * 31, Request::PrefetchHit).is_none()));
    assert!((0..30).all(|step| request(9000 + step * step * 7, Request::Minor).is_none()));
    let window = request(1 << 20, Request::Major).expect("hits since the last prefetch");
    assert_eq!((window.first, window.step), (PageNo((1 << 20) + 4), 4));
}

#[test]
fn short_irregularities_do_not_stop_it() {
    let mut player = Player::new();
    let mut random = SmallRng::seed_from_u64(2);
    for step in 0..1000 {
        player.touch(10_000 + step * 3);
        if step % 8 == 7 {
            player.touch(random.random_range(1 << 20..1 << 30));
        }
    }
    assert!(player.hits > 750, "{} hits, {} major faults", player.hits, player.major);
}

#[test]
fn random_faults_fetch_hardly_anything() {
    let mut player = Player::new();
    let mut random = SmallRng::seed_from_u64(3);
    (0..100_000).for_each(|_| player.touch(random.random_range(0..1 << 30)));
    assert!(player.asked < 100, "{} pages", player.asked);
}

#[test]
fn perfectly_interleaved_strides_look_random() {
    let mut player = Player::new();
    for step in 0..1000 {
        player.touch(1_000_000 + step * 3);
        player.touch(9_000_000 + step * 7);
    }
    assert!(player.hits * 2 < 2000, "§3.2.2 names this as the limit: {} hits of 2000", player.hits);
}

#[test]
fn nothing_lies_beyond_the_page_numbers() {
    let mut player = Player::new();
    (0..100).rev().for_each(|step| player.touch(step * 7));
    (0..100).for_each(|step| player.touch(u32::MAX - 700 + step * 7));
    assert!(player.hits > 130, "{}", player.hits);
}

#[test]
fn the_limit_holds_and_zero_is_off() {
    let pages = |limit: u32| {
        let mut leap = Leap::new(limit);
        let windows = (0..100).filter_map(|page| leap.requested(PageNo(page), Request::Major, Thread(0)));
        windows.map(|window| window.pages).max()
    };
    assert!(pages(3) <= Some(3) && pages(3).is_some());
    assert_eq!(pages(0), None);
}
