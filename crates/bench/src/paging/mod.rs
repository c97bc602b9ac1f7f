//! `hinterland bench paging`: every system runs the same accesses to the same data, in rounds.

mod arguments;
mod memory;
pub mod process;
pub mod rounds;
mod run;
mod system;

pub use arguments::PagingArgs;
pub use memory::{Ram, tree};
pub use run::{Outcome, Sample};
pub use system::System;

use super::error::BenchError;
use super::report;
use super::report::model::{Origin, Report};
use super::rivals;
use super::rivals::cgroup::Hierarchy;
use super::rivals::swapfile::SwapFile;
use super::rivals::undo::Changes;
use crate::executables::Executables;
use hinterland_abi::Settings;

/// A swap area is so many times the data, so that the kernel keeps the copies of pages that it reads back (it stops
/// doing so when swap is half full: `vm_swap_full`, mm/swap.h), and clean pages are dropped without writing.
const SWAP_PER_SIZE: u64 = 5;
/// … divided by this.
const SWAP_PER_SIZE_OF: u64 = 2;

/// What to measure, resolved.
pub struct Setting {
    /// Bytes of data.
    pub size_bytes: u64,
    /// Of those, how many may be local.
    pub local_bytes: u64,
    /// What Hinterland is told.
    pub hinterland: Settings,
    /// The worker, and the launcher that is measured.
    pub executables: Executables,
    /// The systems, Hinterland first.
    pub systems: Vec<System>,
    /// As asked.
    pub args: PagingArgs,
}

impl Setting {
    /// The size of a rival's swap area.
    pub fn swap_bytes(&self) -> u64 {
        self.size_bytes * SWAP_PER_SIZE / SWAP_PER_SIZE_OF
    }
}

/// Measures and reports.
///
/// # Errors
/// What was asked makes no sense, or the machine cannot be set up.
pub fn run(args: PagingArgs) -> Result<(), BenchError> {
    let executables = args.executables()?;
    let setting = args.resolve(executables)?;
    let kernel = setting.systems.iter().any(|system| system.is_kernel_swap());
    let root = nix::unistd::geteuid().is_root();
    if kernel {
        let rivals = setting.systems.iter().filter(|s| s.is_kernel_swap()).map(ToString::to_string);
        rivals::check_machine(&rivals.collect::<Vec<_>>().join(", "), setting.systems.contains(&System::Zram))?;
    }
    let changes = Changes::begin()?;
    let hierarchy = if root { Hierarchy::find().map(Some) } else { Ok(None) };
    let hierarchy = if kernel { hierarchy? } else { hierarchy.unwrap_or(None) };
    let swap_file = if setting.systems.contains(&System::SsdSwap) {
        eprintln!("writing a swap file of {} MiB to {}", setting.swap_bytes() >> 20, setting.args.disk.display());
        Some(SwapFile::create(&setting.args.disk, setting.swap_bytes(), &changes)?)
    } else {
        None
    };
    let bench = run::Bench { setting: &setting, changes: &changes, hierarchy, swap_file };
    let cases = rounds::run_all(&bench)?;
    drop(bench);
    let report = Report::new(&setting, &cases, Origin::now());
    setting.args.to.write(&report, report::table::render)
}
