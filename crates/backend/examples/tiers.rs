//! What promotion brings: loads from each of two tiers, by what a program does with its pages, with and without. Counts, so the machine does not matter.
//!
//! ```text
//! cargo run --profile ci -p hinterland-backend --example tiers
//! ```
//! 4096 pages, of which 1024 are local (LRU), 1024 in the first tier, the others below. *Kept*: stored copies stay where they are. *Anew*: copies of
//! local pages are given up, so every page is stored anew, in the first tier. *Promoted*: as `Paths` does. Beside the loads: pages stored in the first tier, and demoted from it, for 100 accesses; and the time that an access waits, if a
//! load takes 30 µs from the first tier and 120 µs from the lower.

use hinterland_backend::samples::Rng;
use hinterland_backend::{Backend, LoadItem, Location, Paths, Priority, open};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const PAGES: u64 = 4096;
const LOCAL: usize = 1024;
const FIRST: u64 = 1024;
const ACCESSES: u64 = 60_000;
const LOAD_US: [f64; 2] = [30.0, 120.0];
/// As the pager's: so many copies that take room are retained.
const RETAINED: usize = LOCAL / 32;

/// Which page is used at an access, by its number.
type Pattern = fn(&mut Rng, u64) -> u64;

const PATTERNS: [(&str, Pattern); 7] = [
    (
        "40 % of the pages have 90 %",
        |rng, _| {
            if rng.below(10) < 9 { rng.below(PAGES * 2 / 5) } else { rng.below(PAGES) }
        },
    ),
    ("the same, others after 15,000", |rng, at| (rng.below(PAGES * 2 / 5) + at / 15_000 * (PAGES * 2 / 5)) % PAGES),
    ("40 % beside a scan", |rng, at| if at % 2 == 0 { rng.below(PAGES * 2 / 5) } else { at / 2 % PAGES }),
    ("skewed (product of two)", |rng, _| rng.below(PAGES) * rng.below(PAGES) / PAGES),
    ("all alike", |rng, _| rng.below(PAGES)),
    ("45 % in turn", |_, at| at % (PAGES * 9 / 20)),
    ("all in turn", |_, at| at % PAGES),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Kept,
    Anew,
    Promoted,
}

struct Program {
    paths: Arc<Paths>,
    way: Way,
    /// Local pages: when they were used last, and whether the stored copy is right and retained.
    local: HashMap<u64, (u64, bool)>,
    by_age: BTreeMap<u64, u64>,
    stored: HashMap<u64, Location>,
    retained: usize,
    loads: u64,
    clock: u64,
}

/// Any bytes that tell pages apart.
fn content(page: u64) -> PageBytes {
    let mut bytes = [0; PAGE_BYTES];
    bytes[..8].copy_from_slice(&(page + 1).to_ne_bytes());
    bytes
}

impl Program {
    fn new(way: Way) -> Program {
        // Files in memory: plain memory would be RAM of the run, of which no copies are retained.
        let tier = |pages: u64| format!("file:/dev/shm?size={}&io=plain&direct=off", pages * PAGE_BYTES as u64);
        let paths = open(&[tier(FIRST), tier(2 * PAGES)]).unwrap_or_else(|error| panic!("{error}"));
        let (local, by_age, stored) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Program { paths, way, local, by_age, stored, retained: 0, loads: 0, clock: 0 }
    }

    fn access(&mut self, page: u64, writes: bool) {
        self.clock += 1;
        if let Some((used, _)) = self.local.get(&page) {
            self.by_age.remove(used);
        } else {
            let is_retained = self.stored.contains_key(&page) && self.load(page);
            while self.local.len() >= LOCAL {
                self.evict();
            }
            self.local.insert(page, (self.clock, is_retained));
        }
        let (used, is_retained) = self.local.get_mut(&page).expect("local");
        *used = self.clock;
        self.by_age.insert(self.clock, page);
        if writes && std::mem::take(is_retained) {
            self.retained -= 1;
            self.paths.free(&[self.stored.remove(&page).expect("retained")]);
        }
    }

    /// Loads a page; whether its copy is retained.
    fn load(&mut self, page: u64) -> bool {
        let (location, mut into) = (self.stored[&page], [0; PAGE_BYTES]);
        self.paths.load(&mut [LoadItem { location, into: &mut into }], Priority::Demand, &mut |_, page| {
            assert!(page.is_ok());
        });
        assert!(into == content(page), "page {page}");
        self.loads += 1;
        let is_kept = match self.way {
            Way::Kept => true,
            Way::Anew => false,
            Way::Promoted => !self.paths.copy_takes_room(location),
        };
        let retains = is_kept || self.retained < RETAINED;
        if retains {
            self.retained += 1;
        } else {
            self.stored.remove(&page);
            self.paths.free(&[location]);
        }
        retains
    }

    fn evict(&mut self) {
        let (_, page) = self.by_age.pop_first().expect("local pages");
        let (_, is_retained) = self.local.remove(&page).expect("local");
        let bytes = content(page);
        if is_retained {
            self.retained -= 1;
            if self.way == Way::Promoted {
                self.paths.left_clean(&[(self.stored[&page], &bytes)]);
            }
            return;
        }
        let mut answers = [Ok(Location(0))];
        self.paths.store(&[&bytes], Priority::WriteBack, &mut answers);
        let [answer] = answers;
        self.stored.insert(page, answer.expect("room"));
    }

    /// Of the first and of the lower tier: pages loaded; stored in the first; demoted.
    #[allow(clippy::cast_precision_loss, reason = "counts")]
    fn figures(&self) -> [f64; 4] {
        let mut rows = Vec::new();
        self.paths.usage(&mut rows);
        // What is below is read by loads alone.
        let below = rows[1].bytes_out / PAGE_BYTES as u64;
        let stored = rows[0].bytes_in / PAGE_BYTES as u64;
        [self.loads - below, below, stored, rows[0].demoted_pages].map(|pages| pages as f64)
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts")]
fn main() {
    println!(
        "per 100 accesses: loads from the first and the lower tier, stores in the first, demotions; waited for an access"
    );
    for writes_percent in [0, 20] {
        println!("{writes_percent} % of the accesses write");
        for (name, pattern) in PATTERNS {
            for way in [Way::Kept, Way::Anew, Way::Promoted] {
                let (mut program, mut rng) = (Program::new(way), Rng(7));
                (0..PAGES).for_each(|page| program.access(page, true));
                let before = program.figures();
                for at in 0..ACCESSES {
                    let page = pattern(&mut rng, at);
                    program.access(page, rng.below(100) < writes_percent);
                }
                let after = program.figures();
                let [first, below, stored, demoted]: [f64; 4] =
                    std::array::from_fn(|at| (after[at] - before[at]) * 100.0 / ACCESSES as f64);
                let waited = (first * LOAD_US[0] + below * LOAD_US[1]) / 100.0;
                let way = format!("{way:?}").to_lowercase();
                println!("{name:<32} {way:<9} {first:5.1} {below:5.1} {stored:5.1} {demoted:5.1}  {waited:5.1} µs");
            }
        }
    }
}
