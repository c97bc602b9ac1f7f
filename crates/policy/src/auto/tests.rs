//! What a region is taken for, and what is fetched then.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

/// A pager that keeps nothing but what was fetched for the object in use.
struct Player {
    auto: Auto,
    held: HashSet<u32>,
    major: u32,
    hits: u32,
    asked: u32,
}

impl Player {
    fn new() -> Player {
        Player { auto: Auto::new(64), held: HashSet::new(), major: 0, hits: 0, asked: 0 }
    }

    fn touch(&mut self, page: u32) {
        let request = if self.held.remove(&page) { Request::PrefetchHit } else { Request::Major };
        match request {
            Request::Major => self.major += 1,
            _ => self.hits += 1,
        }
        let window = self.auto.requested(PageNo(page), request, Thread(0));
        for ahead in window.iter().flat_map(AheadWindow::iter) {
            self.asked += 1;
            self.held.insert(ahead.0);
        }
    }

    /// Objects at random places among `pages` pages from `base` on, none of which is touched twice.
    fn objects(&mut self, seed: u64, count: u32, pages: u32, base: u32) {
        let mut random = SmallRng::seed_from_u64(seed);
        for _ in 0..count {
            let first = base + random.random_range(0..16_000 / pages) * pages;
            (first..first + pages).for_each(|page| self.touch(page));
            self.held.clear();
        }
    }
}

#[test]
fn objects_of_a_few_pages_are_fetched_whole_at_their_first_fault() {
    for pages in [3, 8, 32] {
        let mut player = Player::new();
        player.objects(1, 300, pages, 0);
        let chosen = player.auto.choice(PageNo(0));
        assert!(
            matches!(chosen, Some(Choice::Runs { pages: found }) if found.abs_diff(pages) <= 1),
            "{pages}: {chosen:?}"
        );
        let (major, asked) = (player.major, player.asked);
        player.objects(2, 100, pages, 0);
        // Two objects may lie side by side.
        assert!(player.major - major <= 110, "{pages}: {} major faults for 100 objects", player.major - major);
        assert!(player.asked - asked <= 110 * (pages - 1), "{pages}: {} pages", player.asked - asked);
    }
}

#[test]
fn random_pages_fetch_hardly_anything() {
    let mut player = Player::new();
    let mut random = SmallRng::seed_from_u64(3);
    (0..100_000).for_each(|_| player.touch(random.random_range(0..16_000)));
    assert_eq!(player.auto.choice(PageNo(0)), Some(Choice::Streams));
    assert!(player.asked < 1000, "{} pages", player.asked);
}

#[test]
fn a_long_walk_is_followed_also_where_objects_were() {
    let mut player = Player::new();
    player.objects(1, 300, 8, 0);
    let major = player.major;
    (0..3).for_each(|_| {
        (0..16_000).for_each(|page| player.touch(page));
        player.held.clear();
    });
    assert!(player.major - major < 30, "{} major faults", player.major - major);
}

#[test]
fn regions_are_for_themselves() {
    let mut player = Player::new();
    for round in 0..10_u32 {
        player.objects(round.into(), 100, 8, 0);
        (0..1000).for_each(|at| player.touch(REGION_PAGES + (round * 1000 + at)));
    }
    assert!(matches!(player.auto.choice(PageNo(5)), Some(Choice::Runs { .. })));
    assert_eq!(player.auto.choice(PageNo(REGION_PAGES + 5)), Some(Choice::Streams));
    assert_eq!(player.auto.choice(PageNo(7 * REGION_PAGES)), Some(Choice::Streams), "nothing is known there");
}

#[test]
fn zero_is_off() {
    let mut auto = Auto::new(64);
    auto.limit(0);
    assert!((0..100).all(|page| auto.requested(PageNo(page), Request::Major, Thread(0)).is_none()));
}
