//! The process that forks: it fills its data, then forks on each command, and at last keeps a child while it rewrites
//! the pages that the two share.

use crate::worker::content::{Content, PAGE_WORDS};
use hinterland_units::PAGE_BYTES;
use memmap2::{Advice, MmapMut, MmapOptions};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Instant;

/// What to run; started by the bench itself.
#[derive(clap::Args, Clone, Debug)]
pub struct ForkWorkerArgs {
    /// Pages of data.
    #[arg(long)]
    pub pages: u32,
    /// Pages that are changed before each fork.
    #[arg(long)]
    pub changed_pages: u32,
    /// Seed of contents and of which pages are changed.
    #[arg(long)]
    pub seed: u64,
}

/// What the bench asks for, a word on a line.
pub const FORK: &str = "fork";
/// See [`FORK`].
pub const SHARE: &str = "share";

/// What the worker tells, as JSON on a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// The data is written.
    Filled,
    /// A child was made and has ended.
    Forked(Forked),
    /// There is a child, and the pages that it shares are about to be rewritten.
    Sharing,
    /// All of them were, and the child has ended.
    Shared,
    /// It cannot go on.
    Failed(String),
}

/// Times of one fork.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Forked {
    /// The call, in the parent.
    pub call_seconds: f64,
    /// From the call until the parent has been told that the child, which does nothing, has ended.
    pub ended_seconds: f64,
}

impl Told {
    fn say(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

/// Runs the worker; what went wrong is its last message.
pub fn run(args: &ForkWorkerArgs) -> ExitCode {
    match work(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Nobody is left to tell when the bench is gone.
            let _ = Told::Failed(reason).say();
            ExitCode::FAILURE
        }
    }
}

fn work(args: &ForkWorkerArgs) -> Result<(), String> {
    let says = |e: io::Error| e.to_string();
    let mut data = Data::fill(args).map_err(says)?;
    Told::Filled.say().map_err(says)?;
    for line in io::stdin().lock().lines() {
        match line.map_err(says)?.as_str() {
            FORK => {
                data.change(args.changed_pages)?;
                Told::Forked(forked()?).say().map_err(says)?;
            }
            SHARE => {
                let child = waiting_child()?;
                Told::Sharing.say().map_err(says)?;
                data.change_all()?;
                kill(child, Signal::SIGKILL).map_err(|e| e.to_string())?;
                waitpid(child, None).map_err(|e| e.to_string())?;
                Told::Shared.say().map_err(says)?;
            }
            other => return Err(format!("asked for '{other}'")),
        }
    }
    Ok(())
}

/// Forks a child that ends at once.
fn forked() -> Result<Forked, String> {
    let start = Instant::now();
    // SAFETY: this process has one thread of its own.
    match unsafe { fork() }.map_err(|e| format!("cannot fork: {e}"))? {
        // SAFETY: always.
        ForkResult::Child => unsafe { libc::_exit(0) },
        ForkResult::Parent { child } => {
            let call_seconds = start.elapsed().as_secs_f64();
            let status = waitpid(child, None).map_err(|e| e.to_string())?;
            let ended_seconds = start.elapsed().as_secs_f64();
            if status != WaitStatus::Exited(child, 0) {
                return Err(format!("a child did not end well: {status:?}"));
            }
            Ok(Forked { call_seconds, ended_seconds })
        }
    }
}

/// Forks a child that sleeps until it is killed.
fn waiting_child() -> Result<Pid, String> {
    // SAFETY: as in `forked`.
    match unsafe { fork() }.map_err(|e| format!("cannot fork: {e}"))? {
        ForkResult::Child => loop {
            nix::unistd::pause();
        },
        ForkResult::Parent { child } => Ok(child),
    }
}

/// The data, with the version of each page.
struct Data {
    map: MmapMut,
    versions: Vec<u16>,
    content: Content,
    random: SmallRng,
}

impl Data {
    fn fill(args: &ForkWorkerArgs) -> io::Result<Data> {
        let mut map = MmapOptions::new().len(args.pages as usize * PAGE_BYTES).map_anon()?;
        // A kernel without huge pages knows no such advice, and needs none.
        let _ = map.advise(Advice::NoHugePage);
        let content = Content::new(args.seed);
        for (page, words) in bytemuck::cast_slice_mut(&mut map[..]).chunks_exact_mut(PAGE_WORDS).enumerate() {
            content.fill(page as u64, words);
        }
        let versions = vec![0; args.pages as usize];
        Ok(Data { map, versions, content, random: SmallRng::seed_from_u64(args.seed) })
    }

    /// Checks and changes `count` pages, chosen at random.
    fn change(&mut self, count: u32) -> Result<(), String> {
        (0..count).try_for_each(|_| {
            let page = self.random.random_range(0..self.versions.len());
            self.change_page(page)
        })
    }

    /// Checks and changes every page.
    fn change_all(&mut self) -> Result<(), String> {
        (0..self.versions.len()).try_for_each(|page| self.change_page(page))
    }

    fn change_page(&mut self, page: usize) -> Result<(), String> {
        let words: &mut [u64] = bytemuck::cast_slice_mut(&mut self.map[page * PAGE_BYTES..][..PAGE_BYTES]);
        let version = &mut self.versions[page];
        self.content.check_some(page as u64, *version, words, page as u64).map_err(|wrong| wrong.to_string())?;
        *version = version.wrapping_add(1);
        self.content.modify(page as u64, *version, words);
        Ok(())
    }
}
