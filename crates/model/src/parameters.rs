//! Every parameter of the model, with its place in the paper ("DaeMon: Architectural Support for Efficient Data Movement in Disaggregated
//! Systems", SIGMETRICS 2023). What the paper does not say is marked *ours*. They are chosen before results are looked at.

use crate::placement::Placement;
use crate::time::{Rate, cycles, ns};

/// Bytes of a cache line (§4.1).
pub const LINE_BYTES: u64 = 64;
/// Bytes of a page (§4.1).
pub const PAGE_BYTES: u64 = hinterland_units::PAGE_BYTES as u64;
/// Lines of a page (§4.5, Figure 7: 64 bits for each page).
pub const LINES_PER_PAGE: u32 = 64;

/// A cache: sets × ways of 64 bytes, least recently used replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheShape {
    /// Bytes of data.
    pub bytes: u64,
    /// Ways of a set.
    pub ways: usize,
    /// Cycles until its data are there, counted from the lookup in it.
    pub latency_cycles: u16,
}

/// The first-level data cache (Table 2).
pub const L1: CacheShape = CacheShape { bytes: 32 << 10, ways: 8, latency_cycles: 4 };
/// The second level (Table 2).
pub const L2: CacheShape = CacheShape { bytes: 256 << 10, ways: 8, latency_cycles: 8 };
/// The last level (Table 2).
pub const LLC: CacheShape = CacheShape { bytes: 4 << 20, ways: 16, latency_cycles: 30 };

/// A program's references are dealt to its cores in chunks of so many, in turns. *Ours*.
pub const CHUNK_REFERENCES: u64 = 1024;
/// Packets of others have so many bytes. *Ours*.
pub const DISTURBANCE_BYTES: u64 = PAGE_BYTES;

/// Where shares are lent, lines have so much of the network while pages wait, so that these are not stopped. *Ours*.
pub const LENT_TO_LINES_PERCENT: u64 = 90;
/// And pages fill it up to so much, lines included: waiting inside of the switch, which lines do too, grows without bound beyond. *Ours*.
pub const LENT_LOAD_PERCENT: u64 = 92;

/// What local memory evicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The page whose last access is longest ago (§4, §5).
    Lru,
    /// The page that came first (§6.8).
    Fifo,
}

/// The network between the compute component and a memory component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Bandwidth of each direction.
    pub rate: Rate,
    /// Propagation and switching of one remote access.
    pub switch_ticks: u64,
}

/// Packets of other compute components on each direction of the network (§6.6). Every other interval is without, the first one too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disturbance {
    /// What they take of the bandwidth, in the intervals that have some.
    pub percent: u64,
    /// An interval.
    pub interval_ticks: u64,
    /// Of the gaps between packets, which are uniform up to twice their mean.
    pub seed: u64,
}

/// What a machine of the model is made of. [`Parameters::paper`] is the paper's; tests take tiny limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Entries of the reorder buffer (Table 2).
    pub window_instructions: u64,
    /// Ticks of an instruction: four in a cycle (Table 2).
    pub instruction_ticks: u64,
    /// Ticks from the core to memory: the three lookups that miss (Table 2).
    pub lookup_ticks: u64,
    /// Lines that the LLC waits for at most: 128 is the size of what "is limited by the available LLC MSHRs" (§4.5).
    pub llc_mshrs: usize,

    /// Bandwidth of each memory bus, local and remote (Table 2).
    pub dram_rate: Rate,
    /// Latency of a DRAM access beside its transfer (Table 2).
    pub dram_ticks: u64,
    /// Address translation: one DRAM access for each lookup (§5).
    pub translation_ticks: u64,
    /// Percentage of the touched pages that local memory holds (§5).
    pub local_percent: u64,
    /// What local memory evicts (§5).
    pub replacement: Replacement,

    /// Bandwidth of each direction of the network (§2.2: a fraction of the memory bus).
    pub network_rate: Rate,
    /// Propagation and switching of one remote access (§2.2, §5): half on the way there, half on the way back.
    /// That it is paid once by an access: `tr` is 1.42 × faster than Remote by lines at 100 ns and 1.82 × slower at 400 (§2.2).
    pub switch_ticks: u64,
    /// The interval in which utilisation is taken (§5: 100K ns).
    pub utilisation_interval_ticks: u64,
    /// Above this, utilisation counts as this, so that waiting stays finite. *Ours*.
    pub utilisation_percent_max: u64,
    /// Bytes of a request on the network: an address and what is wanted. *Ours*.
    pub request_bytes: u64,

    /// Of memory components whose link is another one than these say: the first ones (§6.9).
    pub links: Vec<Link>,
    /// Traffic of others (§6.6).
    pub disturbance: Option<Disturbance>,
    /// Memory components, each with a link and a memory bus of its own (§6.9).
    pub components: u32,
    /// On which of them a page is (§6.9).
    pub placement: Placement,
    /// Seed of a random placement. *Ours*.
    pub placement_seed: u64,

    /// Share of network and memory bus that is kept for lines (§4.1: 25 % ≈ 21 lines a page).
    pub line_share_percent: u64,
    /// Entries of the in-flight sub-block buffer, each for the lines of one page (Table 1, §4.5). The sub-block queue is as large.
    pub inflight_sub_blocks: usize,
    /// Entries of the in-flight page buffer (Table 1). The page queue is as large.
    pub inflight_pages: usize,
    /// Packet buffer of the compute engine (Table 1): while pages that have come and wait for the local memory bus fill it, no page is issued.
    pub packet_buffer_bytes: u64,
    /// Lines that the dirty data buffer holds (Table 1).
    pub dirty_lines: usize,
    /// Of one page, more dirty lines than these are flushed, and the page throttled (§4.3).
    pub dirty_lines_of_a_page: u32,
    /// Blocks of 1 KiB in which pages are compressed one after the other (§4.4).
    pub compression_block_bytes: u64,
    /// Compression, and decompression, of one block (§4.4).
    pub compression_block_ticks: u64,
}

impl Parameters {
    /// The paper's: link of 1/4 and 100 ns (§2.2), all else as in Tables 1 and 2.
    pub fn paper() -> Parameters {
        let dram_rate = Rate(17_000_000_000);
        Parameters {
            window_instructions: 224,
            instruction_ticks: cycles(1) / 4,
            lookup_ticks: cycles(u64::from(L1.latency_cycles + L2.latency_cycles + LLC.latency_cycles)),
            llc_mshrs: 128,
            dram_rate,
            dram_ticks: ns(15),
            translation_ticks: ns(15),
            local_percent: 20,
            replacement: Replacement::Lru,
            network_rate: Rate(dram_rate.0 / 4),
            switch_ticks: ns(100),
            utilisation_interval_ticks: ns(100_000),
            utilisation_percent_max: 95,
            request_bytes: 16,
            links: Vec::new(),
            disturbance: None,
            components: 1,
            placement: Placement::RoundRobin,
            placement_seed: 1,
            line_share_percent: 25,
            inflight_sub_blocks: 128,
            inflight_pages: 256,
            packet_buffer_bytes: 8 << 10,
            dirty_lines: 256,
            dirty_lines_of_a_page: 8,
            compression_block_bytes: 1024,
            compression_block_ticks: cycles(64),
        }
    }

    /// Frames of local memory: a percentage of the touched pages, at least one.
    pub fn frames(&self, touched_pages: u32) -> u32 {
        let frames = u64::from(touched_pages) * self.local_percent / 100;
        u32::try_from(frames).expect("fewer frames than pages").max(1)
    }

    /// The link of a memory component.
    pub fn link(&self, component: usize) -> Link {
        let like_all = Link { rate: self.network_rate, switch_ticks: self.switch_ticks };
        self.links.get(component).copied().unwrap_or(like_all)
    }

    /// Ticks in which the engine compresses, or decompresses, a page: its blocks one after the other.
    pub fn page_compression_ticks(&self) -> u64 {
        PAGE_BYTES / self.compression_block_bytes * self.compression_block_ticks
    }
}

/// Workloads whose data hardly compress (§6.5).
pub const POORLY_COMPRESSIBLE: [&str; 2] = ["dr", "rs"];
/// Their ratio (§6.5).
pub const POOR_RATIO: f64 = 1.42;
/// The mean ratio of all thirteen workloads (§6.5).
pub const MEAN_RATIO: f64 = 4.47;

/// The paper's ratio for a workload. It gives two workloads' and the mean of thirteen; the other eleven share what is left.
pub fn paper_ratio(workload: &str) -> f64 {
    if POORLY_COMPRESSIBLE.contains(&workload) { POOR_RATIO } else { (13.0 * MEAN_RATIO - 2.0 * POOR_RATIO) / 11.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_counts_21_lines_for_a_page() {
        let share = Parameters::paper().line_share_percent;
        assert_eq!(PAGE_BYTES / LINE_BYTES * share / (100 - share), 21);
    }

    #[test]
    fn the_ratios_have_the_papers_mean() {
        assert_eq!(paper_ratio("dr"), 1.42);
        let mean = (11.0 * paper_ratio("pr") + 2.0 * paper_ratio("rs")) / 13.0;
        assert!((mean - 4.47).abs() < 1e-9, "{mean}");
    }

    /// Of the memory side (Table 1): so the machine, which has one compute component, has no bound for them.
    #[test]
    fn the_queues_of_the_memory_side_hold_all_requests_of_four_compute_components() {
        let (paper, sub_block_queue, page_queue) = (Parameters::paper(), 512, 1024);
        assert!(4 * paper.llc_mshrs <= sub_block_queue);
        assert!(4 * paper.inflight_pages <= page_queue);
    }

    #[test]
    fn a_page_is_compressed_in_four_blocks() {
        assert_eq!(Parameters::paper().page_compression_ticks(), cycles(256));
    }
}
