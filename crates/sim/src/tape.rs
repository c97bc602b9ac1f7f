//! Follows a tape, ordered or not: the machine, with the tape as a source of the arbiter. Where the tape says nothing, the pager's defaults do.

use crate::machine::Machine;
use crate::replay_stats::ReplayStats;
use crate::{Setup, SetupError, Workload};
use hinterland_policy::tape::{
    PageSet, SetSource, TapeArrival, TapeDeparture, TapeLookahead, TapeSource, Tapes, ThreadTape,
};
use hinterland_policy::{Arbiter, make, make_prefetcher};
use hinterland_tape::tape::{Order, PageRange, Tape};

/// What evicts pages that are on no tape, and what prefetches for threads that have left theirs.
const BESIDE: (&str, &str) = ("s3-fifo", "auto");

/// Replays a workload along a tape: an ordered one that was planned from the same trace, or an unordered one of the same program.
///
/// # Errors
/// An impossible setup, or an ordered tape that names pages which the workload does not have.
pub fn follow(
    work: &Workload,
    setup: &Setup,
    tape: &Tape<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<ReplayStats, SetupError> {
    setup.check(work)?;
    let tapes: Tapes = match tape.head().order {
        Order::Ordered => {
            let threads: Option<Vec<ThreadTape>> =
                (0..).zip(tape.threads()).map(|(number, _)| of_thread(work, tape, number)).collect();
            TapeSource::new(threads.ok_or(SetupError::Tape)?, TapeLookahead::default()).into()
        }
        Order::Sets => SetSource::new(tape.phases().iter().map(|phase| of_phase(work, phase))).into(),
    };
    let tapes = if tape.head().has_intervals { tapes.of_intervals() } else { tapes };
    let (eviction, prefetcher) = BESIDE;
    let policy = make(eviction, 0).ok_or_else(|| SetupError::Eviction { name: eviction.into() })?;
    let prefetcher = make_prefetcher(prefetcher, setup.window_pages_max)
        .ok_or_else(|| SetupError::Prefetcher { name: prefetcher.into() })?;
    let (arbiter, policy) = Arbiter::following(prefetcher, policy, tapes);
    Ok(Machine::new(work, setup, policy, arbiter.with_blocks(setup.blocks)).run(progress))
}

/// The pages of a phase that the workload touches: another run may have had more.
fn of_phase(work: &Workload, phase: &[PageRange]) -> PageSet {
    let pages = |range: &PageRange| {
        let PageRange { region, first_page, pages } = *range;
        (0..pages).filter_map(move |index| work.slot_of(region, first_page + index))
    };
    PageSet::of(phase.iter().flat_map(pages).map(|slot| (work.page(slot), 1)))
}

/// `None`: it names a page that the workload does not have.
fn of_thread(work: &Workload, tape: &Tape<'_>, thread: u32) -> Option<ThreadTape> {
    let page = |region, page| work.slot_of(region, page).map(|slot| work.page(slot));
    let arrivals: Vec<TapeArrival> = tape
        .arrivals(thread)
        .map(|a| {
            let page = page(a.region, a.page)?;
            Some(TapeArrival { position: a.position, page, own: a.own, interval: a.interval })
        })
        .collect::<Option<_>>()?;
    // Within a microset the trace does not show when a page was used last.
    let more = tape.head().microset_pages.saturating_sub(1);
    let departures: Vec<TapeDeparture> = tape
        .departures(thread)
        .map(|d| {
            let used_until = d.last_use.saturating_add(more).min(d.position);
            Some(TapeDeparture {
                position: d.position,
                page: page(d.region, d.page)?,
                used_until,
                next_use: d.next_use,
            })
        })
        .collect::<Option<_>>()?;
    let ahead_pages = u32::try_from(tape.threads()[thread as usize].ahead_pages).unwrap_or(u32::MAX);
    Some(ThreadTape {
        arrivals: Box::new(arrivals.into_iter()),
        departures: Box::new(departures.into_iter()),
        ahead_pages,
    })
}
