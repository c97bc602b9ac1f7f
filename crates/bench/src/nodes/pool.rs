//! Measurements on memory nodes without a program: the backend that `hinterland run` uses, called directly.

use hinterland_backend::{Backend, LoadItem, Location, Priority, open};
use hinterland_units::{PAGE_BYTES, PageBytes};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pages of one call: those of an eviction batch, and two messages of read-ahead.
const BATCH: usize = 64;

/// Far memory with pages in it.
pub struct Filled {
    backend: Arc<dyn Backend>,
    locations: Vec<Location>,
    /// Bytes a second that were stored.
    pub stored_rate: f64,
}

impl Filled {
    /// Opens `url` and stores `pages` pages.
    ///
    /// # Errors
    /// Why not.
    #[allow(clippy::cast_precision_loss, reason = "bytes of a measurement lie far below 2^52")]
    pub fn new(url: &str, pages: u32, seed: u64) -> Result<Filled, String> {
        let backend = open(&[url.to_owned()]).map_err(|error| error.to_string())?;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut content: Vec<PageBytes> = (0..BATCH).map(|_| std::array::from_fn(|_| random.random())).collect();
        let mut locations = Vec::with_capacity(pages as usize);
        let begun = Instant::now();
        while locations.len() < pages as usize {
            for (page, number) in content.iter_mut().zip(locations.len() as u64..) {
                page[..8].copy_from_slice(&number.to_le_bytes());
            }
            let mut out = vec![Ok(Location(0)); BATCH];
            backend.store(&content.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
            for location in out {
                locations.push(location.map_err(|error| error.to_string())?);
            }
        }
        let stored_rate = (locations.len() * PAGE_BYTES) as f64 / begun.elapsed().as_secs_f64();
        Ok(Filled { backend, locations, stored_rate })
    }

    /// Bytes that the nodes keep for each that was stored.
    #[allow(clippy::cast_precision_loss, reason = "pages of a measurement lie far below 2^52")]
    pub fn bytes_for_each_stored(&self) -> f64 {
        let mut rows = Vec::new();
        self.backend.usage(&mut rows);
        rows.iter().map(|row| row.pages as f64).sum::<f64>() / self.locations.len() as f64
    }

    /// Loads random pages, `count` in a call, until `over`; returns how many.
    ///
    /// # Errors
    /// A page cannot be loaded, or is another.
    fn load_until(&self, count: usize, priority: Priority, seed: u64, over: &dyn Fn() -> bool) -> Result<u64, String> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut into: Vec<PageBytes> = vec![[0; PAGE_BYTES]; count];
        let mut loaded = 0;
        while !over() {
            self.load(&mut into, priority, &mut random)?;
            loaded += count as u64;
        }
        Ok(loaded)
    }

    fn load(&self, into: &mut [PageBytes], priority: Priority, random: &mut SmallRng) -> Result<(), String> {
        let numbers: Vec<usize> = into.iter().map(|_| random.random_range(0..self.locations.len())).collect();
        let items = numbers.iter().zip(into).map(|(number, into)| LoadItem { location: self.locations[*number], into });
        let mut wrong = None;
        self.backend.load(&mut items.collect::<Vec<_>>(), priority, &mut |index, page| match page {
            Ok(page) if page[..8] == (numbers[index] as u64).to_le_bytes() => {}
            Ok(_) => wrong = Some("a page is not what was stored".to_owned()),
            Err(error) => wrong = Some(error.to_string()),
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Loads random pages in large calls for `duration`; returns how many.
    ///
    /// # Errors
    /// A page cannot be loaded, or is another.
    pub fn load_for(&self, duration: Duration, seed: u64) -> Result<u64, String> {
        let begun = Instant::now();
        self.load_until(BATCH, Priority::Prefetch, seed, &|| begun.elapsed() >= duration)
    }

    /// Durations of `count` demand loads of single random pages, in order of length, in microseconds.
    ///
    /// # Errors
    /// A page cannot be loaded, or is another.
    pub fn demand_us(&self, count: usize, seed: u64) -> Result<Vec<f64>, String> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            self.load(&mut [[0; PAGE_BYTES]], Priority::Demand, &mut random)?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Loads random pages one after the other, until `over`, which is told how long each took, says so.
    ///
    /// # Errors
    /// A page cannot be loaded, or is another.
    pub fn load_singly_until(&self, seed: u64, mut over: impl FnMut(Duration) -> bool) -> Result<(), String> {
        let mut random = SmallRng::seed_from_u64(seed);
        loop {
            let begun = Instant::now();
            self.load(&mut [[0; PAGE_BYTES]], Priority::Demand, &mut random)?;
            if over(begun.elapsed()) {
                return Ok(());
            }
        }
    }

    /// Does `work` while a thread tends the nodes, as one does in a program.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn maintained<R>(&self, work: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
        /// Time between two looks at whether there is something to tend.
        const POLL_INTERVAL: Duration = Duration::from_millis(5);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let pause = if self.backend.needs_maintenance() { self.backend.maintain() } else { None };
                    std::thread::sleep(pause.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL));
                }
            });
            let result = work();
            over.store(true, Relaxed);
            result
        })
    }

    /// `demand_us` while another thread loads pages ahead as fast as they come; also how many bytes a second it loaded.
    ///
    /// # Errors
    /// A page cannot be loaded, or is another.
    #[allow(clippy::cast_precision_loss, reason = "bytes of a measurement lie far below 2^52")]
    pub fn demand_beside_bulk_us(&self, count: usize, seed: u64) -> Result<(Vec<f64>, f64), String> {
        let (over, loaded) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let bulk = scope.spawn(|| {
                let begun = Instant::now();
                let step = || {
                    loaded.fetch_add(BATCH as u64, Relaxed);
                    over.load(Relaxed)
                };
                let pages = self.load_until(BATCH, Priority::Prefetch, seed ^ 1, &step)?;
                Ok::<f64, String>(pages as f64 * PAGE_BYTES as f64 / begun.elapsed().as_secs_f64())
            });
            // The link is full before anything is measured.
            while loaded.load(Relaxed) < 4 * BATCH as u64 && !bulk.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let times = self.demand_us(count, seed);
            over.store(true, Relaxed);
            let rate = bulk.join().map_err(|_| "the bulk's thread failed".to_owned())??;
            Ok((times?, rate))
        })
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.backend.free(&self.locations);
    }
}
