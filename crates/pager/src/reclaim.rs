//! Reclaim: frames become free, step by step. Victims leave the program in batches (`departure`), age in the swap cache, and are
//! written back (`write_back`).
//!
//! The evictor reclaims ahead of need, a thread that finds no free frame directly.

use crate::backoff::Backoff;
use crate::departure::Departures;
use crate::far_memory::FarMemory;
use crate::local_memory::LocalMemory;
use crate::pages::Pages;
use crate::pin::Pins;
use crate::scratch::Scratch;
use crate::slot::ChunkNo;
use crate::staging::Staging;
use crate::sys::Instant;
use crate::tracer::Tracer;
use crate::write_back::WriteBack;
use hinterland_paging::{Oldest, ReclaimBody, Step as Decision, Urgency, given_up_step, reclaim_step};
use hinterland_units::ByteCount;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Steps between two looks at the budget and two reports of the backends' figures.
const REPORT_STEPS: u32 = 16;
/// Times in a row that the store may be unable to shrink: another thread may be moving its pages out at that moment.
const RAM_REFUSALS_MAX: u32 = 64;

/// See the module.
pub(crate) struct Reclaim {
    pages: &'static Pages,
    local: &'static LocalMemory,
    far: &'static FarMemory,
    staging: &'static Staging,
    pins: &'static Pins,
    departures: &'static Departures,
    tracer: Option<&'static Tracer>,
    write_back: WriteBack,
    /// The budget is exceeded, because nothing can leave.
    overfull: AtomicBool,
    /// Times in a row that `--ram` was exceeded and the store could not shrink.
    ram_refusals: AtomicU32,
}

/// A step of reclaim in a thread with this scratch.
struct Step<'a>(&'a Reclaim, Urgency, &'a mut Scratch);

impl ReclaimBody for Step<'_> {
    /// A chunk, the slots of it that were used, and the frames in them.
    type Chunk = (ChunkNo, u32, u32);
    type Done = ();

    fn take_oldest(&mut self, which: Oldest) -> Option<Self::Chunk> {
        self.0.take_oldest(which)
    }

    fn fill(&mut self) -> Option<()> {
        let left = self.0.take_batch_out(self.1, self.2);
        self.0.pages.decisions.turn().note(|| Decision::Filled { left });
        left.then_some(())
    }

    fn drain(&mut self, (chunk, used, frames): Self::Chunk) {
        self.0.write_back.drain(chunk, used, frames, self.2);
    }
}

impl Reclaim {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        far: &'static FarMemory,
        staging: &'static Staging,
        pins: &'static Pins,
        departures: &'static Departures,
        tracer: Option<&'static Tracer>,
    ) -> Reclaim {
        let write_back = WriteBack::new(pages, local, far, staging);
        let (overfull, ram_refusals) = (AtomicBool::new(false), AtomicU32::new(0));
        Reclaim { pages, local, far, staging, pins, departures, tracer, write_back, overfull, ram_refusals }
    }

    /// One step towards free frames. False: nothing can be done.
    pub(crate) fn step(&self, urgency: Urgency, scratch: &mut Scratch) -> bool {
        scratch.rounds += 1;
        let reports = scratch.rounds.is_multiple_of(REPORT_STEPS);
        // Every page that leaves may make the store larger: `--ram` is looked at each time.
        if reports || self.local.shared_budget.bounds_ram() {
            let beside = self.local.update_budget();
            self.relieve_ram(beside);
        }
        if reports {
            self.far.publish(&mut scratch.usage);
        }
        let done = reclaim_step(&mut Step(self, urgency, scratch)).is_some();
        self.pages.decisions.turn().note(|| Decision::Reclaimed { given_up: false, done });
        done
    }

    /// Takes the oldest chunk out of the swap cache.
    fn take_oldest(&self, which: Oldest) -> Option<(ChunkNo, u32, u32)> {
        let turn = self.pages.decisions.turn();
        let taken = self.staging.take_oldest(which, self.local.account.swap_cache());
        let number = || taken.map(|(chunk, ..)| chunk.number());
        turn.note(|| Decision::Oldest { any: which == Oldest::Any, number: number() });
        taken
    }

    /// One step towards a bound on RAM that was commanded, with local memory at its floor. False: there is none to be made.
    pub(crate) fn shrink_store(&self) -> bool {
        /// So short that no fork waits long for it.
        const STEP_BYTES: u64 = 1 << 20;
        if !self.local.shared_budget.ram_is_commanded() {
            return false;
        }
        let beside = self.local.update_budget();
        let excess = self.local.shared_budget.store_excess(self.pages.row(), beside.0);
        excess > 0 && self.shrink_far_memory(excess.min(STEP_BYTES))
    }

    /// Under `--ram`, with local memory at its floor: the store itself must shrink. One that was commanded later ends no program.
    fn relieve_ram(&self, beside: ByteCount) {
        let excess = self.local.shared_budget.store_excess(self.pages.row(), beside.0);
        if self.shrink_far_memory(excess) || excess == 0 {
            self.ram_refusals.store(0, Relaxed);
        } else if !self.local.shared_budget.ram_is_commanded()
            && self.ram_refusals.fetch_add(1, Relaxed) >= RAM_REFUSALS_MAX
        {
            self.pages.fatal(&format!(
                "--ram is used up: {} beyond what it allows are needed for tables and compressed pages; raise --ram, \
                 or, where there is no file, add one with --far file:PATH",
                ByteCount(excess)
            ));
        }
    }

    /// Has far memory take so much less RAM: first without stored copies of local pages, then in lower tiers. False: it cannot.
    fn shrink_far_memory(&self, bytes: u64) -> bool {
        self.far.copies.drop_for_ram(bytes) || bytes > 0 && self.far.shrink_ram(bytes) > 0
    }

    /// Takes a batch of pages out of the program, or out of the tracer's second range, into a chunk. False: none could leave.
    fn take_batch_out(&self, urgency: Urgency, scratch: &mut Scratch) -> bool {
        self.tracer.is_some_and(|tracer| tracer.stage_parked() > 0) || self.departures.take_batch_out(urgency, scratch)
    }

    /// One step for pages that the program will not use any longer. False: none could leave.
    pub(crate) fn hinted_step(&self, scratch: &mut Scratch) -> bool {
        let done = given_up_step(&mut Step(self, Urgency::Ahead, scratch), |Step(reclaim, _, scratch)| {
            let left = reclaim.departures.take_hinted_out(scratch);
            reclaim.pages.decisions.turn().note(|| Decision::Filled { left });
            left
        });
        self.pages.decisions.turn().note(|| Decision::Reclaimed { given_up: true, done });
        done
    }

    /// Charges `pages` frames; reclaims when they do not fit under the hard floor.
    pub(crate) fn charge_frames(&self, pages: u64, scratch: &mut Scratch) {
        /// Without progress for so long, memory that cannot leave (locked, pinned) is accepted above the budget. A slow
        /// write-back in another thread is progress, and shows within this time.
        const OVER_BUDGET_AFTER: Duration = Duration::from_secs(2);
        /// The same while nothing has been able to leave since that happened.
        const OVER_BUDGET_AGAIN_AFTER: Duration = Duration::from_millis(1);
        // Almost always: no clock is read for it.
        if self.local.account.try_charge(pages) {
            return;
        }
        let mut fruitless = Backoff::new();
        let mut since = Instant::now();
        while !self.local.account.try_charge(pages) {
            if self.local.grow(pages) {
                continue;
            }
            self.pages.row().direct_reclaims.fetch_add(1, Relaxed);
            if self.pins.pages() * 4 > self.local.account.budget().0 * 3 {
                // System calls have most of the budget pinned: what they still need is charged above it, or no thread gets on.
                self.step(Urgency::Now, scratch);
                self.local.account.charge(pages);
                return;
            }
            if self.step(Urgency::Now, scratch) {
                (fruitless, since) = (Backoff::new(), Instant::now());
                self.overfull.store(false, Relaxed);
                continue;
            }
            let limit = if self.overfull.load(Relaxed) { OVER_BUDGET_AGAIN_AFTER } else { OVER_BUDGET_AFTER };
            if !fruitless.sleeps() || since.elapsed() < limit {
                fruitless.pause();
            } else {
                self.overfull.store(true, Relaxed);
                self.local.account.charge(pages);
                return;
            }
        }
    }
}
