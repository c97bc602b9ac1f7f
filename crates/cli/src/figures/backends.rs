//! Figures of backends: of one process, and of a run, by tier.

use hinterland_abi::BackendRow;
use std::sync::atomic::Ordering::Relaxed;

/// One backend of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendFigures {
    /// As the user wrote it.
    pub url: String,
    /// Uncompressed bytes stored.
    pub bytes_in: u64,
    /// Uncompressed bytes loaded.
    pub bytes_out: u64,
    /// Bytes that stored pages occupy now.
    pub stored_bytes: u64,
    /// The most that they have occupied.
    pub stored_peak_bytes: u64,
    /// Pages stored now.
    pub pages: u64,
    /// The most that have been stored.
    pub pages_peak: u64,
    /// RAM now.
    pub ram_bytes: u64,
    /// The most RAM.
    pub ram_peak_bytes: u64,
    /// Same-filled pages now.
    pub same_filled_pages: u64,
    /// Uncompressed pages now.
    pub plain_pages: u64,
    /// Bytes that may be stored at most.
    pub capacity_bytes: u64,
    /// How often a memory node was lost.
    pub losses: u64,
    /// Pages copied to a memory node in place of lost replicas.
    pub rebuilt_pages: u64,
    /// Loads for which another memory node was asked, too, because this one was late.
    pub hedged_loads: u64,
    /// Whether it gets to see encrypted pages only.
    pub encrypted: bool,
}

impl BackendFigures {
    /// Reads a row.
    pub fn read(row: &BackendRow) -> BackendFigures {
        BackendFigures {
            url: row.url.get(),
            bytes_in: row.bytes_in.load(Relaxed),
            bytes_out: row.bytes_out.load(Relaxed),
            stored_bytes: row.stored_bytes.load(Relaxed),
            stored_peak_bytes: row.stored_peak_bytes.load(Relaxed),
            pages: row.pages.load(Relaxed),
            pages_peak: row.pages_peak.load(Relaxed),
            ram_bytes: row.ram_bytes.load(Relaxed),
            ram_peak_bytes: row.ram_peak_bytes.load(Relaxed),
            same_filled_pages: row.same_filled_pages.load(Relaxed),
            plain_pages: row.plain_pages.load(Relaxed),
            capacity_bytes: row.capacity_bytes.load(Relaxed),
            losses: row.losses.load(Relaxed),
            rebuilt_pages: row.rebuilt_pages.load(Relaxed),
            hedged_loads: row.hedged_loads.load(Relaxed),
            encrypted: row.encrypted.load(Relaxed) != 0,
        }
    }
}

/// One backend over all processes of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendTotal {
    /// Traffic: summed over processes. The other fields: what was stored when the program ended, and peaks.
    pub figures: BackendFigures,
    /// Sums over live processes, while a look is under way.
    now: BackendFigures,
    tier: usize,
}

/// The part of a URL that names the kind of backend.
fn kind(url: &str) -> &str {
    url.split([':', '?']).next().unwrap_or(url)
}

/// The backends of a run, in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub struct BackendTotals(pub Vec<BackendTotal>);

impl BackendTotals {
    /// The total of a process's tier. Each process fills in sizes that the user left open by what is free at that moment, so
    /// tier and kind tell which backends are the same, not the URL.
    fn of(&mut self, tier: usize, url: &str) -> &mut BackendTotal {
        let same = |total: &BackendTotal| total.tier == tier && kind(&total.figures.url) == kind(url);
        let index = self.0.iter().position(same).unwrap_or_else(|| {
            let figures = BackendFigures { url: url.to_owned(), ..BackendFigures::default() };
            self.0.push(BackendTotal { tier, figures, ..BackendTotal::default() });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// Begins a look: nothing is stored until a process says so.
    pub fn begin(&mut self) {
        for total in &mut self.0 {
            total.now = BackendFigures::default();
        }
    }

    /// Counts a process that holds its pages now (or held them when the program ended).
    pub fn see(&mut self, process: &[BackendFigures]) {
        for (tier, seen) in process.iter().enumerate() {
            let BackendTotal { figures, now, .. } = self.of(tier, &seen.url);
            now.stored_bytes += seen.stored_bytes;
            now.pages += seen.pages;
            now.ram_bytes += seen.ram_bytes;
            now.same_filled_pages += seen.same_filled_pages;
            now.plain_pages += seen.plain_pages;
            figures.stored_peak_bytes = figures.stored_peak_bytes.max(seen.stored_peak_bytes);
            figures.pages_peak = figures.pages_peak.max(seen.pages_peak);
            figures.ram_peak_bytes = figures.ram_peak_bytes.max(seen.ram_peak_bytes);
            figures.capacity_bytes = figures.capacity_bytes.max(seen.capacity_bytes);
            figures.encrypted |= seen.encrypted;
        }
    }

    /// Adds the traffic of a process that has ended.
    pub fn add_traffic(&mut self, process: &[BackendFigures]) {
        for (tier, seen) in process.iter().enumerate() {
            let figures = &mut self.of(tier, &seen.url).figures;
            figures.bytes_in += seen.bytes_in;
            figures.bytes_out += seen.bytes_out;
            figures.losses += seen.losses;
            figures.rebuilt_pages += seen.rebuilt_pages;
            figures.hedged_loads += seen.hedged_loads;
        }
    }

    /// Ends a look: what was seen is the present, and perhaps a peak.
    pub fn finish(&mut self) {
        for BackendTotal { figures, now, .. } in &mut self.0 {
            figures.stored_bytes = now.stored_bytes;
            figures.pages = now.pages;
            figures.ram_bytes = now.ram_bytes;
            figures.same_filled_pages = now.same_filled_pages;
            figures.plain_pages = now.plain_pages;
            figures.stored_peak_bytes = figures.stored_peak_bytes.max(now.stored_bytes);
            figures.pages_peak = figures.pages_peak.max(now.pages);
            figures.ram_peak_bytes = figures.ram_peak_bytes.max(now.ram_bytes);
        }
    }
}
