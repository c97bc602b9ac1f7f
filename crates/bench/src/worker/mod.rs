//! The worker: one run of one pattern over its own data, in a process of its own, the same for every system.
//!
//! It takes private anonymous memory (without huge pages), fills it, warms up with `pages` accesses of the pattern, and
//! then measures a phase. What it needs besides, above all the table of versions, lies in shared memory, which no system
//! under test manages, and is touched before it says that it is ready; so everything that it uses after that is data.

pub mod content;
mod counters;
mod message;
mod phase;
mod stream;
mod times;

#[cfg(test)]
pub use counters::Paging;
pub use counters::{Hinterland, Processor, machine_seconds};
pub use message::{Measured, Message};
pub use stream::Pattern;
pub use times::Times;

use content::{Content, PAGE_WORDS};
use counters::Counters;
use hinterland_units::PAGE_BYTES;
use memmap2::{Advice, MmapMut, MmapOptions};
use nix::sys::memfd::{MFdFlags, memfd_create};
use phase::Share;
use std::fs::File;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stream::Stream;
use times::CELLS;

/// What to run.
#[derive(clap::Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Pages of data.
    #[arg(long)]
    pub pages: u32,
    /// Pages of the hot set.
    #[arg(long)]
    pub hot_pages: u32,
    /// The pattern.
    #[arg(long)]
    pub pattern: Pattern,
    /// Threads.
    #[arg(long)]
    pub threads: u32,
    /// Accesses of the timed phase.
    #[arg(long)]
    pub accesses: u64,
    /// The longest that the timed phase may take.
    #[arg(long)]
    pub seconds_max: u64,
    /// Seed of contents and streams.
    #[arg(long)]
    pub seed: u64,
    /// Accesses before the timed phase; as many as there are pages, when nothing is said.
    #[arg(long)]
    pub warm_up: Option<u64>,
    /// Whether the duration of each access is measured.
    #[arg(long)]
    pub access_times: bool,
}

impl WorkerArgs {
    /// The arguments as a command line.
    pub fn to_words(&self) -> Vec<String> {
        let words = [
            ("--pages", self.pages.to_string()),
            ("--hot-pages", self.hot_pages.to_string()),
            ("--pattern", self.pattern.to_string()),
            ("--threads", self.threads.to_string()),
            ("--accesses", self.accesses.to_string()),
            ("--seconds-max", self.seconds_max.to_string()),
            ("--seed", self.seed.to_string()),
        ];
        let warm_up = self.warm_up.map(|accesses| ("--warm-up", accesses.to_string()));
        let words = words.into_iter().chain(warm_up).flat_map(|(name, value)| [name.to_owned(), value]);
        words.chain(self.access_times.then(|| "--access-times".to_owned())).collect()
    }
}

/// Runs the worker; what went wrong is its last message.
pub fn run(args: &WorkerArgs) -> ExitCode {
    match work(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Nobody is left to tell when the bench is gone.
            let _ = Message::Failed { reason }.send();
            ExitCode::FAILURE
        }
    }
}

fn work(args: &WorkerArgs) -> Result<(), String> {
    let says = |e: std::io::Error| e.to_string();
    let pages = args.pages as usize;
    let mut versions = near_table(pages * size_of::<u16>()).map_err(|e| format!("no memory for the versions: {e}"))?;
    versions.fill(0);
    let tables = if args.access_times { args.threads as usize } else { 0 };
    let mut times = near_table((tables * CELLS).max(1) * size_of::<u64>())
        .map_err(|e| format!("no memory for the durations: {e}"))?;
    times.fill(0);
    let counters = Counters::new()?;
    drop(counters.snapshot());
    Message::Ready.send().map_err(says)?;
    message::wait_for_word().map_err(says)?;

    let mut data = MmapOptions::new()
        .len(pages * PAGE_BYTES)
        .map_anon()
        .map_err(|e| format!("no memory for {pages} pages of data: {e}"))?;
    // A kernel without huge pages knows no such advice, and needs none.
    let _ = data.advise(Advice::NoHugePage);
    let content = Content::new(args.seed);
    let words: &mut [u64] = bytemuck::cast_slice_mut(&mut data[..]);
    let start = Instant::now();
    for (page, words) in words.chunks_exact_mut(PAGE_WORDS).enumerate() {
        content.fill(page as u64, words);
    }
    Message::Filled { seconds: start.elapsed().as_secs_f64() }.send().map_err(says)?;

    let mut shares = shares(args, content, words, bytemuck::cast_slice_mut(&mut versions[..]));
    for (share, times) in shares.iter_mut().zip(bytemuck::cast_slice_mut(&mut times[..]).chunks_exact_mut(CELLS)) {
        share.times = Some(times);
    }
    let limit = Duration::from_secs(args.seconds_max);
    let warm_up = args.warm_up.unwrap_or(u64::from(args.pages));
    phase::run(&mut shares, warm_up, limit, &counters).map_err(|wrong| wrong.to_string())?;
    shares.iter_mut().filter_map(|share| share.times.as_deref_mut()).for_each(|times| times.fill(0));
    Message::Warm.send().map_err(says)?;
    let phase = phase::run(&mut shares, args.accesses, limit, &counters).map_err(|wrong| wrong.to_string())?;
    let (processor, paging) = counters.between(&phase.edges.0, &phase.edges.1);
    let times = shares.iter().filter_map(|share| share.times.as_deref());
    let measured = Measured {
        access_times: args.access_times.then(|| Times::of(times)),
        accesses: phase.accesses,
        cut_short: phase.accesses < args.accesses / u64::from(args.threads) * u64::from(args.threads),
        seconds: phase.seconds,
        processor,
        paging,
        stream_digest: phase.digest,
    };
    Message::Done(Box::new(measured)).send().map_err(says)?;
    // The data stays until the bench has measured the memory.
    message::wait_for_word().map_err(says)
}

/// Divides the data among the threads; pages that are left over are filled but never accessed.
fn shares<'a>(args: &WorkerArgs, content: Content, words: &'a mut [u64], versions: &'a mut [u16]) -> Vec<Share<'a>> {
    let each = args.pages / args.threads;
    let pages = each as usize;
    let parts = words.chunks_exact_mut(pages * PAGE_WORDS).zip(versions.chunks_exact_mut(pages));
    parts
        .zip(0..args.threads)
        .map(|((words, versions), thread)| Share {
            words,
            versions,
            first_page: u64::from(thread) * u64::from(each),
            stream: Stream::new(
                args.pattern,
                each,
                (args.hot_pages / args.threads).clamp(1, each - 1),
                args.seed.wrapping_add(u64::from(thread) * 0x1_0001),
            ),
            modifies: args.pattern == Pattern::Write,
            content,
            times: None,
        })
        .collect()
}

/// Memory that no system under test manages: shared and anonymous.
fn near_table(bytes: usize) -> std::io::Result<MmapMut> {
    let file = File::from(memfd_create("bench-near", MFdFlags::MFD_CLOEXEC)?);
    file.set_len(bytes as u64)?;
    // SAFETY: `map_mut` asks that nobody else changes or cuts the file: it has no name and this process keeps the only
    // descriptor.
    unsafe { MmapOptions::new().map_mut(&file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(pattern: Pattern, threads: u32) -> WorkerArgs {
        WorkerArgs {
            pages: 1001,
            hot_pages: 200,
            pattern,
            threads,
            accesses: 4000,
            seconds_max: 60,
            seed: 5,
            warm_up: Some(7),
            access_times: true,
        }
    }

    #[test]
    fn shares_are_disjoint_and_equal() {
        let mut words = vec![0; 1001 * PAGE_WORDS];
        let mut versions = vec![0; 1001];
        let shares = shares(&args(Pattern::Random, 4), Content::new(5), &mut words, &mut versions);
        assert_eq!(shares.len(), 4);
        assert!(shares.iter().all(|s| s.versions.len() == 250 && s.words.len() == 250 * PAGE_WORDS));
        assert_eq!(shares.iter().map(|s| s.first_page).collect::<Vec<_>>(), [0, 250, 500, 750]);
    }

    #[test]
    fn every_pattern_runs_on_one_and_two_threads() {
        let counters = Counters::new().unwrap();
        for pattern in <Pattern as clap::ValueEnum>::value_variants() {
            for threads in [1, 2] {
                let args = args(*pattern, threads);
                let content = Content::new(args.seed);
                let mut words = vec![0; 1001 * PAGE_WORDS];
                for (page, words) in words.chunks_exact_mut(PAGE_WORDS).enumerate() {
                    content.fill(page as u64, words);
                }
                let mut versions = vec![0; 1001];
                let mut shares = shares(&args, content, &mut words, &mut versions);
                let phase = phase::run(&mut shares, args.accesses, Duration::MAX, &counters).map_err(|e| e.to_string());
                assert_eq!(phase.map(|p| p.accesses), Ok(4000), "{pattern}");
            }
        }
    }

    #[test]
    fn arguments_survive_the_command_line() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            worker: WorkerArgs,
        }
        let args = args(Pattern::Stride10, 2);
        let words = [vec!["worker".to_owned()], args.to_words()].concat();
        let line = <Line as clap::Parser>::parse_from(words);
        assert_eq!(format!("{:?}", line.worker), format!("{args:?}"));
    }
}
