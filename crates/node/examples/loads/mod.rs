//! What measurements of a narrow link share: pages on a node, demand loads of them, batches that are read ahead, and how figures are written.

use hinterland_backend::samples::{Kind, Rng, page};
use hinterland_backend::{Backend, LoadItem, Location, Priority, StoreError, open};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// 16 MiB.
pub const PAGES: usize = 4096;
pub const BATCH: usize = 64;
pub const DEMANDS: usize = 1000;

/// A program whose pages are on a node.
#[derive(Clone)]
pub struct Filled {
    pub backend: Arc<dyn Backend>,
    at: Arc<[Location]>,
}

impl Filled {
    pub fn new(url: String) -> Filled {
        let backend = open(&[url]).unwrap_or_else(|error| panic!("{error}"));
        let mut at = Vec::new();
        for batch in 0..PAGES / BATCH {
            let pages: Vec<PageBytes> = (0..BATCH).map(|n| page(Kind::Random, (batch * BATCH + n) as u64)).collect();
            at.extend(store(&*backend, &pages));
        }
        Filled { backend, at: at.into() }
    }

    /// What demand loads of random pages take, in µs, the shortest first; with a pause before each.
    pub fn demands(&self, pause: Option<Duration>) -> Vec<f64> {
        let (mut rng, mut into) = (Rng(7), [0; PAGE_BYTES]);
        let mut times: Vec<f64> = (0..DEMANDS)
            .map(|_| {
                pause.into_iter().for_each(std::thread::sleep);
                let mut items = [LoadItem { location: self.at[rng.index(PAGES)], into: &mut into }];
                let begun = Instant::now();
                self.backend.load(&mut items, Priority::Demand, &mut |_, page| assert!(page.is_ok()));
                begun.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Loads some successive pages ahead; how many bytes.
    pub fn load_ahead(&self, rng: &mut Rng, buffers: &mut [PageBytes]) -> u64 {
        let from = rng.index(PAGES - buffers.len());
        let items = self.at[from..][..buffers.len()].iter().zip(&mut *buffers);
        let mut items: Vec<_> = items.map(|(location, into)| LoadItem { location: *location, into }).collect();
        self.backend.load(&mut items, Priority::Prefetch, &mut |_, page| assert!(page.is_ok()));
        (buffers.len() * PAGE_BYTES) as u64
    }
}

/// Stores pages, for which there must be room.
pub fn store(backend: &dyn Backend, pages: &[PageBytes]) -> Vec<Location> {
    let mut out: Vec<Result<Location, StoreError>> = vec![Ok(Location(0)); pages.len()];
    backend.store(&pages.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
    out.into_iter().map(|answer| answer.expect("room")).collect()
}

/// Median (least–most), with so many digits.
pub fn summary(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (least, median, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
    format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
}
