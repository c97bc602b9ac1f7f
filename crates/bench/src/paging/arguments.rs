//! The command line of `bench paging`, and what it means.

use super::Setting;
use super::system::System;
use crate::error::BenchError;
use crate::executables::{Executables, myself};
use crate::report::Destination;
use crate::worker::Pattern;
use hinterland_abi::{EvictName, FaultPathName, PrefetchName, Settings};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, whole_number};
use std::path::PathBuf;

/// Fewest pages of data for each thread: smaller data would be measured inside the pager's batches.
const PAGES_PER_THREAD_MIN: u64 = 1024;

/// Hinterland beside kernel swap: time per access, faults, processor time and RAM.
///
/// Every page holds 2 KiB of unique random bytes and 2 KiB that repeat; every read is checked. All systems see the same
/// bytes and the same accesses, each in a process of its own; all have transparent huge pages off. Rounds are interleaved.
/// Kernel swap is tried with each compressor and vm.page-cluster 0 and 3 first; the best takes part and is named.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  hinterland bench paging --size 1G --local 50% --pattern random --against zram
  hinterland bench paging --pattern sequential,random --threads 1,2 --against zram,ssd-swap,all-local --json
  hinterland bench paging --far 'file:/mnt/ssd/far?size=4G' --against ssd-swap --disk /mnt/ssd

Swap, the memory limit and vm.page-cluster need root. They are set up for each run and taken back after it, also when the
bench is interrupted or killed.")]
pub struct PagingArgs {
    /// How much data each run touches
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub size: ByteCount,
    /// How much of it may be local: a share of --size, or a size
    #[arg(long, default_value = "50%", value_name = "SHARE|SIZE", value_parser = Budget::of_touched)]
    pub local: Budget,
    /// Hinterland's far memory, in tier order; may be repeated
    #[arg(long, default_value = "compressed", value_name = "URL")]
    pub far: Vec<String>,
    /// Hinterland's eviction policy
    #[arg(long, value_name = "POLICY")]
    pub evict: Option<EvictName>,
    /// Hinterland's prefetcher
    #[arg(long, value_name = "PREFETCHER")]
    pub prefetch: Option<PrefetchName>,
    /// Hinterland's largest read-ahead window
    #[arg(long, value_name = "PAGES", value_parser = whole_number::<u32>(.., "--read-ahead 64"))]
    pub read_ahead: Option<u32>,
    /// Who serves Hinterland's faults: inline, monitor, auto (this program makes system calls without libc: auto is monitor)
    #[arg(long, default_value_t = FaultPathName::Inline, value_name = "PATH", value_parser = str::parse::<FaultPathName>)]
    pub fault_path: FaultPathName,
    /// Kernel feature set that Hinterland pretends to have
    #[arg(long, default_value = "", value_name = "SET", hide_default_value = true)]
    pub features: String,
    /// Access patterns
    #[arg(long, value_delimiter = ',', default_value = "sequential,random,stride-10,zipf,write,hot-scan")]
    pub pattern: Vec<Pattern>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N", value_parser = whole_number::<u32>(.., "--threads 1,2"))]
    pub threads: Vec<u32>,
    /// Rivals
    #[arg(long, value_delimiter = ',', default_value = "zram,all-local", value_name = "SYSTEM")]
    pub against: Vec<System>,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = whole_number::<u32>(.., "--repeat 5"))]
    pub repeat: u32,
    /// Accesses of a run, instead of a few for each page
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(.., "--accesses 1000000"))]
    pub accesses: Option<u64>,
    /// The longest that the timed phase of a run may take; a run that takes longer is cut short and keeps its figures per access
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = whole_number::<u64>(.., "--seconds-max 20"))]
    pub seconds_max: u64,
    /// Seed of contents and accesses
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole_number::<u64>(.., "--seed 7"))]
    pub seed: u64,
    /// Where ssd-swap makes its swap file
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub disk: PathBuf,
    #[command(flatten)]
    pub to: Destination,
    /// Measure the rivals alone
    #[arg(long, hide = true)]
    pub rivals_only: bool,
    /// Another hinterland to measure instead of this one
    #[arg(long, hide = true, value_name = "PROGRAM")]
    pub launcher: Option<PathBuf>,
}

impl PagingArgs {
    /// What the runs start: the launcher may be another one, and is not looked for where nothing is managed.
    ///
    /// # Errors
    /// There is no launcher.
    pub fn executables(&self) -> Result<Executables, BenchError> {
        match &self.launcher {
            Some(launcher) => Ok(Executables { bench: myself()?, launcher: launcher.clone() }),
            None if self.rivals_only => Ok(Executables { bench: myself()?, launcher: PathBuf::new() }),
            None => Executables::find(),
        }
    }

    /// Checks the arguments and computes what follows from them.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn resolve(self, executables: Executables) -> Result<Setting, BenchError> {
        let size_bytes = self.size.0 / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let local_bytes = self.local.bytes(ByteCount(size_bytes)).0;
        let threads_max = u64::from(*self.threads.iter().max().unwrap_or(&1));
        let refuse = |text: String| Err(BenchError::Setting(text));
        if self.threads.contains(&0) || self.repeat == 0 {
            return refuse("--threads and --repeat must be at least 1".into());
        }
        if size_bytes < threads_max * PAGES_PER_THREAD_MIN * PAGE_BYTES as u64 {
            let least = ByteCount(threads_max * PAGES_PER_THREAD_MIN * PAGE_BYTES as u64);
            return refuse(format!(
                "--size {} is too small for {threads_max} threads; take {least} or more",
                self.size
            ));
        }
        if u32::try_from(size_bytes / PAGE_BYTES as u64).is_err() {
            return refuse(format!("--size {} is more than 2^32 pages", self.size));
        }
        if local_bytes >= size_bytes {
            let local = ByteCount(local_bytes);
            return refuse(format!("--local {local} holds all of --size {}: nothing would be paged", self.size));
        }
        let defaults = Settings::default();
        let hinterland = Settings {
            local: Some(Budget::Bytes(ByteCount(local_bytes))),
            far: self.far.clone(),
            evict: self.evict.unwrap_or(defaults.evict),
            prefetch: self.prefetch.unwrap_or(defaults.prefetch),
            read_ahead_pages: self.read_ahead,
            fault_path: self.fault_path,
            features: self.features.clone(),
            ..defaults
        };
        let mut systems = if self.rivals_only { vec![] } else { vec![System::Hinterland] };
        for system in &self.against {
            if !systems.contains(system) && *system != System::Hinterland {
                systems.push(*system);
            }
        }
        Ok(Setting { size_bytes, local_bytes, hinterland, executables, systems, args: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PagingArgs,
    }

    fn resolve(line: &str) -> Result<Setting, String> {
        let words = std::iter::once("paging").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|e| e.to_string())?;
        line.args
            .resolve(Executables { bench: "bench".into(), launcher: "hinterland".into() })
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_share_is_of_the_size() {
        let setting = resolve("--size 1G --local 50% --against zram,ssd-swap").unwrap();
        assert_eq!((setting.size_bytes, setting.local_bytes >> 20), (1 << 30, 512));
        assert_eq!(setting.systems, [System::Hinterland, System::Zram, System::SsdSwap]);
        assert_eq!(resolve("--size 1G --local 256M").unwrap().local_bytes, 256 << 20);
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (line, says) in [
            ("--size 64M --local 64M", "nothing would be paged"),
            ("--size 2M --local 50%", "too small"),
            ("--threads 0", "at least 1"),
            ("--repeat 0", "at least 1"),
            ("--pattern backwards", "invalid value 'backwards'"),
            ("--local 0%", "not a percentage"),
            ("--size big", "not a size"),
            ("--against windows", "invalid value 'windows'"),
            ("--size 32T", "2^32 pages"),
        ] {
            let refusal = resolve(line).err().unwrap_or_default();
            assert!(refusal.contains(says), "{line}: {refusal}");
        }
    }
}
