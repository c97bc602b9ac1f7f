//! A pager on a far range of its own, and pages whose content can be checked.

use hinterland_abi::ProcessRow;
use hinterland_backend::Backend;
use hinterland_pager::{Config, Decisions, FaultPath, Kernel, Pager, State};
use hinterland_policy::{Arbiter, Streams};
use hinterland_sys::mem::OwnMemory;
use hinterland_sys::{FeatureSet, Features, Mapping, Privilege, Uffd};
use hinterland_testkit::{Rng, sigbus};
use hinterland_units::{ByteCount, PAGE_BYTES, PageNo};
use std::sync::Arc;

/// Words in a page.
const WORDS: usize = PAGE_BYTES / 8;

/// Word `index` of the page with this seed; 0 is the page of zeros. Half of a page compresses, half does not.
fn word(seed: u64, index: usize) -> u64 {
    if seed == 0 || index.is_multiple_of(2) { seed } else { Rng(seed ^ index as u64).next_u64() }
}

/// A row that only this test reads.
pub fn row() -> &'static ProcessRow {
    // SAFETY: a row of atomics is valid when zero.
    Box::leak(unsafe { Box::<ProcessRow>::new_zeroed().assume_init() })
}

/// A userfaultfd for a fault path.
pub fn uffd(features: Features, path: FaultPath) -> Uffd {
    match path {
        FaultPath::Monitor => Uffd::open(features.monitor_bits()).unwrap(),
        FaultPath::Inline => Uffd::open_user_only(features.inline_bits()).unwrap(),
    }
}

/// A pager and its range.
#[derive(Clone, Copy)]
pub struct Arena {
    pub pager: &'static Pager,
    pub pages: u32,
}

impl Arena {
    /// Starts one at `base` with the smallest budget, served by so many monitors, or inline when there are none; `None` where
    /// userfaultfd cannot be used.
    pub fn start(
        base: usize,
        pages: u32,
        set: FeatureSet,
        backend: Arc<dyn Backend>,
        monitors: usize,
    ) -> Option<Arena> {
        let features = Features::probe(set);
        if features.privilege != Privilege::Kernel {
            eprintln!("skipped: no privilege to serve faults of system calls (userfaultfd)");
            return None;
        }
        let range = Mapping::reserve_at(base, pages as usize * PAGE_BYTES).unwrap();
        let path = if monitors == 0 { FaultPath::Inline } else { FaultPath::Monitor };
        let kernel = Kernel::new(features, uffd(features, path), OwnMemory::open().unwrap());
        let config = Config {
            path,
            base: range.start,
            pages,
            local: Some(ByteCount(16 << 20)),
            ram: None,
            backend,
            paths: None,
            copies: None,
            policy: hinterland_policy::make("s3-fifo", 4096).unwrap(),
            arbiter: Arbiter::new(Box::new(Streams::sequential(32))),
            prefetch_cache_pages: None,
            row: row(),
            monitors,
            cpus: None,
            census: |_, _| {},
            processor_of: |_| None,
            housekeeping: || {},
            trace: None,
            watch: None,
            decisions: Decisions::default(),
            ledger: None,
            shared: |_| None,
        };
        let pager: &'static Pager = Box::leak(Box::new(Pager::new(config, kernel).unwrap()));
        pager.protect(PageNo(0), pages, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        if path == FaultPath::Inline {
            sigbus::serve(|address, write| pager.serve_inline(address, write));
        }
        pager.start().unwrap();
        Some(Arena { pager, pages })
    }

    fn words(&self, page: PageNo) -> *mut u64 {
        assert!(page.0 < self.pages);
        self.pager.address(page) as *mut u64
    }

    /// Writes a whole page. The caller is the only one who uses it.
    pub fn write(&self, page: PageNo, seed: u64) {
        for index in 0..WORDS {
            // SAFETY: a read-write page of the range that nobody else uses.
            unsafe { self.words(page).add(index).write_volatile(word(seed, index)) };
        }
    }

    /// The first word that differs from what `seed` says, with what was read.
    pub fn difference(&self, page: PageNo, seed: u64) -> Option<(usize, u64)> {
        // SAFETY: a readable page of the range that nobody writes now.
        let read = |index: usize| unsafe { self.words(page).add(index).read_volatile() };
        (0..WORDS).map(|index| (index, read(index))).find(|(index, value)| *value != word(seed, *index))
    }

    /// Ends the test if a page does not hold what it should.
    pub fn check(&self, page: PageNo, seed: u64) {
        if let Some((index, value)) = self.difference(page, seed) {
            panic!("{page}, word {index} is {value:#x}, seed {seed:#x}, {:?}", self.pager.state(page));
        }
    }

    /// Whether a page is mapped, as the pager sees it.
    pub fn is_resident(&self, page: PageNo) -> bool {
        self.pager.state(page) == State::Resident
    }
}
