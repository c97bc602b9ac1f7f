//! `RegionMap` against a model with one entry for each page: every answer equal, every invariant held.

use super::runs::{Attributes, Kind, RegionMap, Run};
use hinterland_units::Rng;

const PAGES: u32 = 96;
const END_PAGES: u32 = 3;

/// One entry for each page; `None` is free.
struct Model(Vec<Option<Attributes>>);

impl Model {
    fn fits(&self, first: u32, count: u32) -> bool {
        first + count <= PAGES && self.0[first as usize..][..count as usize].iter().all(Option::is_none)
    }

    fn runs_in(&self, first: u32, count: u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for page in first..first + count {
            let Some(attributes) = self.0[page as usize] else { continue };
            match runs.last_mut() {
                Some(last) if last.end() == page && last.attributes == attributes => last.count += 1,
                _ => runs.push(Run { first: page, count: 1, attributes }),
            }
        }
        runs
    }

    fn fill(&mut self, first: u32, count: u32, value: Option<Attributes>) {
        self.0[first as usize..][..count as usize].fill(value);
    }
}

fn any_attributes(random: &mut Rng) -> Attributes {
    let kinds = [Kind::Mapping, Kind::Heap, Kind::Foreign];
    Attributes::plain(kinds[random.below_u32(3) as usize], i32::try_from(random.below_u32(2)).unwrap())
}

fn any_range(random: &mut Rng) -> (u32, u32) {
    let first = random.below_u32(PAGES);
    (first, 1 + random.below_u32((PAGES - first).min(24)))
}

fn step(random: &mut Rng, region_map: &mut RegionMap, model: &mut Model) {
    let (first, count) = any_range(random);
    let attributes = any_attributes(random);
    match random.below_u32(5) {
        0 => {
            let alignment = 1 << random.below_u32(5);
            match region_map.place(count, alignment, attributes) {
                Some(place) => {
                    let inside = place >= END_PAGES && place + count <= PAGES - END_PAGES;
                    assert!(
                        inside && place % alignment == 0 && model.fits(place, count),
                        "{count} pages placed at {place}"
                    );
                    model.fill(place, count, Some(attributes));
                }
                None => {
                    let inside = |place: u32| place >= END_PAGES && place + count <= PAGES - END_PAGES;
                    let mut places = (0..PAGES).step_by(alignment as usize);
                    assert!(places.all(|place| !inside(place) || !model.fits(place, count)));
                }
            }
        }
        1 => {
            let fits = model.fits(first, count);
            assert_eq!(region_map.place_at(first, count, attributes), fits);
            if fits {
                model.fill(first, count, Some(attributes));
            }
        }
        2 => {
            assert_eq!(region_map.remove(first, count), model.runs_in(first, count));
            model.fill(first, count, None);
        }
        3 => {
            let wipe = random.below_u32(2) == 0;
            let change = |a: &mut Attributes| a.wiped = wipe;
            region_map.update(first, count, change);
            model.0[first as usize..][..count as usize].iter_mut().flatten().for_each(change);
        }
        _ => assert_eq!(region_map.is_free(first, count), model.fits(first, count)),
    }
}

#[test]
fn agrees_with_a_page_by_page_model() {
    for seed in 0..64 {
        let mut random = Rng(seed);
        let (mut region_map, mut model) = (RegionMap::closed(), Model(vec![None; PAGES as usize]));
        region_map.open(PAGES, END_PAGES);
        for _ in 0..4_000 {
            step(&mut random, &mut region_map, &mut model);
            assert_eq!(region_map.runs().collect::<Vec<_>>(), model.runs_in(0, PAGES), "seed {seed}");
            let (first, count) = any_range(&mut random);
            assert_eq!(region_map.runs_in(first, count), model.runs_in(first, count), "seed {seed}");
        }
    }
}

#[test]
fn takes_the_smallest_run_with_room() {
    let mut region_map = RegionMap::closed();
    region_map.open(1000, 1);
    let plain = Attributes::plain(Kind::Mapping, 0);
    for first in [1, 20, 60, 120] {
        assert!(region_map.place_at(first, 10, plain));
    }
    assert_eq!(region_map.place(8, 1, plain), Some(11), "between the first and the second run there are 9 pages");
    assert_eq!(region_map.place(16, 16, plain), Some(32), "the next has 30 pages from 30 on, aligned from 32");
    assert_eq!(region_map.place(2000, 1, plain), None);
}
