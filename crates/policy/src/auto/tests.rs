//! What a region is taken for, and what is fetched then.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

/// A pager that keeps nothing but what was fetched for the object in use.
struct Player {
    auto: Auto,
    /// Fetched pages that wait unmapped, and those that make no request when they are used.
    unmapped: HashSet<u32>,
    mapped: HashSet<u32>,
    major: u32,
    asked: u32,
    /// Pages of the last window.
    window_pages: u32,
}

impl Player {
    fn new() -> Player {
        let [unmapped, mapped] = [HashSet::new(), HashSet::new()];
        Player { auto: Auto::new(64), unmapped, mapped, major: 0, asked: 0, window_pages: 0 }
    }

    fn touch(&mut self, page: u32) {
        if self.mapped.remove(&page) {
            return;
        }
        let request = if self.unmapped.remove(&page) { Request::PrefetchHit } else { Request::Major };
        self.major += u32::from(request == Request::Major);
        let Some(window) = self.auto.requested(PageNo(page), request, Thread(0)) else { return };
        self.window_pages = window.pages;
        self.asked += window.pages;
        for ahead in window.iter() {
            let there = if window.leaves_unmapped(ahead) { &mut self.unmapped } else { &mut self.mapped };
            there.insert(ahead.0);
        }
    }

    /// What was not used goes.
    fn drop_all(&mut self) {
        self.unmapped.clear();
        self.mapped.clear();
    }

    /// Objects at random places among `pages` pages from `base` on, none of which is touched twice.
    fn objects(&mut self, seed: u64, count: u32, pages: u32, base: u32) {
        let mut random = SmallRng::seed_from_u64(seed);
        for _ in 0..count {
            let first = base + random.random_range(0..16_000 / pages) * pages;
            (first..first + pages).for_each(|page| self.touch(page));
            self.drop_all();
        }
    }

    /// Four objects of so many pages at a time, at random places, each page of them in turn.
    fn four_in_turn(&mut self, random: &mut SmallRng, pages: [u32; 4]) {
        let firsts = pages.map(|_| random.random_range(0..1000) * 16);
        for at in 0..16 {
            let there = firsts.iter().zip(pages).filter(|(_, pages)| at < *pages);
            there.for_each(|(first, _)| self.touch(first + at));
        }
        self.drop_all();
    }

    /// What was not used goes, and that is told.
    fn waste(&mut self) {
        self.unmapped.drain().chain(self.mapped.drain()).for_each(|page| self.auto.wasted(PageNo(page), 1));
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
        player.drop_all();
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
fn waste_is_charged_to_the_region_that_asked() {
    let mut player = Player::new();
    player.objects(1, 300, 8, 0);
    (0..1000).for_each(|at| player.touch(REGION_PAGES + at));
    assert_eq!(player.window_pages, 64);
    // So much that all streams would be in doubt.
    let asked = player.auto.windows.back().expect("objects were fetched").start;
    (0..10_000).for_each(|_| player.auto.wasted(PageNo(asked), 1));
    assert_eq!(player.auto.choice(PageNo(asked)), Some(Choice::Streams), "its runs are not what they were");
    (1000..2000).for_each(|at| player.touch(REGION_PAGES + at));
    assert_eq!(player.window_pages, 64, "the scan of another region wasted nothing");
    // And what streams waste is theirs.
    (0..10_000).for_each(|_| player.auto.wasted(PageNo(REGION_PAGES + 5), 1));
    (0..45).for_each(|at| player.touch(3 * REGION_PAGES + at));
    assert_eq!(player.window_pages, 32, "64 without waste");
}

#[test]
fn where_objects_were_random_pages_soon_fetch_nothing() {
    let mut player = Player::new();
    player.objects(1, 1000, 8, 0);
    assert!(matches!(player.auto.choice(PageNo(0)), Some(Choice::Runs { .. })));
    let (mut random, asked) = (SmallRng::seed_from_u64(6), player.asked);
    for _ in 0..10_000 {
        player.touch(random.random_range(0..16_000));
        player.waste();
    }
    assert!(player.asked - asked < 4000, "{} pages", player.asked - asked);
}

/// Of each four objects in turn the first is the one whose length is seen; it asks again after the others have begun.
#[test]
fn an_object_that_is_watched_stays_so_when_others_begin() {
    let mut player = Player::new();
    let mut random = SmallRng::seed_from_u64(7);
    for round in 0..5000 {
        let pages = if round % 5 == 0 { 16 } else { 4 };
        player.four_in_turn(&mut random, [pages, 4, 4, 4]);
    }
    assert!(matches!(player.auto.choice(PageNo(0)), Some(Choice::Runs { .. })));
    assert_eq!(player.auto.regions[0].lengths.rest_of(5, 1), 11, "a fifth of the objects that are seen have 16 pages");
}

/// Half of the objects have 4 pages, half 16.
#[test]
fn where_pages_for_nothing_cost_more_fewer_are_asked_for_and_more_come_late() {
    let play = |sparing| {
        let mut player = Player::new();
        player.auto.be_sparing(sparing);
        (0..4000).for_each(|seed| player.objects(seed, 1, if seed % 2 == 0 { 4 } else { 16 }, 0));
        (player.asked, player.major)
    };
    let (plain, sparing) = (play(false), play(true));
    assert!(sparing.0 * 3 < plain.0 * 2, "{sparing:?}, {plain:?}: of the short ones a fifth is used");
    assert!(sparing.1 < plain.1 * 2, "{sparing:?}, {plain:?}: long ones fault twice");
}

#[test]
fn zero_is_off() {
    let mut auto = Auto::new(0);
    assert!((0..100).all(|page| auto.requested(PageNo(page), Request::Major, Thread(0)).is_none()));
}
