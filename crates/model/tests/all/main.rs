//! The model as a whole: times worked out by hand, and what holds for any stream.

mod by_hand;
mod cluster;
mod command;
mod engines;
mod properties;
mod together;

use hinterland_model::{Miss, ModelStats, Parameters, Rate, Scheme, Stream, replay};

/// No dirty line is replaced.
pub const CLEAN: u32 = u32::MAX;

/// One byte takes a tick on memory buses and two on the network; nothing else waits.
pub fn plain() -> Parameters {
    Parameters {
        lookup_ticks: 0,
        dram_rate: Rate(72_000_000_000),
        network_rate: Rate(36_000_000_000),
        dram_ticks: 100,
        translation_ticks: 10,
        switch_ticks: 1000,
        utilisation_interval_ticks: 1 << 50,
        compression_block_ticks: 100,
        local_percent: 100,
        ..Parameters::paper()
    }
}

/// A load of a line, one instruction after the one before.
pub fn load(line: u32) -> Miss {
    Miss { line, dirty_victim: CLEAN, after: 0, instructions: 1, after_cycles: 0, is_load: true, core: 0 }
}

/// A load of a line that waits for the data of the miss `after` (from 1).
pub fn load_after(line: u32, after: u32) -> Miss {
    Miss { after, ..load(line) }
}

/// A stream that is measured as a whole.
pub fn stream(misses: Vec<Miss>) -> Stream {
    let mut touched: Vec<u32> = misses.iter().map(Miss::page).collect();
    touched.sort_unstable();
    touched.dedup();
    let highest = |miss: &Miss| miss.page().max(if miss.dirty_victim == CLEAN { 0 } else { miss.dirty_victim / 64 });
    let pages = misses.iter().map(highest).max().map_or(0, |page| page + 1);
    let instructions = misses.iter().map(|miss| u64::from(miss.instructions)).sum();
    let references = misses.len() as u64;
    let touched_pages = u32::try_from(touched.len()).expect("few pages");
    Stream {
        misses,
        pages,
        touched_pages,
        measured_from: 0,
        references,
        instructions,
        tails: Vec::new(),
        cores: 1,
        is_cut: false,
    }
}

/// Replays with pages that compress to a quarter.
pub fn run(stream: &Stream, scheme: Scheme, parameters: &Parameters) -> ModelStats {
    replay(stream, &vec![1024; stream.pages as usize], scheme, parameters)
}
