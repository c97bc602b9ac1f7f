//! A decision log, replayed: the machine decides again what the pager of a run has decided, and must come to the same bytes.
//!
//! ```text
//!   entry ──► events that the pager got ────────────────────────► machine: policy, prefetcher, account, windows, caches, pages
//!         └─► answers to it (claims, pins, which thread was first) ─►│
//!         └─► what it decided ◄───────── the same bytes? ─────────────┘
//! ```
//!
//! No time passes: when something happens, the log says. How pages came to be resident, referenced, staged or waiting, the machine keeps
//! by itself, by the code that a simulation runs; so it also finds out where the two keep it differently.

mod reclaim;

use crate::answers::Answers;
use crate::machine::Machine;
use crate::page::{Page, State};
use crate::{Costs, FaultPath, LOCAL_PAGES_MIN, Setup, Workload};
use hinterland_backend::{Duplex, LinkModel, LinkShare};
use hinterland_paging::{
    Begin, Claimed, Dropped, Entry, GiveBack, HELP_PAGES, KeyPageState, LANDING_PAGES, Log, MappedPages, PendingWindow,
    Step, make_room,
};
use hinterland_policy::{
    Arbiter, Arrival, Blocks, EvictionPolicy, Granularity, Prefetch, Thread, make, make_prefetcher,
};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, PageCount, PageNo};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::{AddAssign, Range};

/// What was replayed, and equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Entries.
    pub entries: u64,
    /// Victims that were chosen, neighbours included.
    pub victims: u64,
    /// Victims that were to leave by copy.
    pub copied: u64,
    /// Victims that the program had given up.
    pub given_up: u64,
    /// Steps of reclaim.
    pub steps: u64,
    /// Windows of far pages that were asked for.
    pub windows: u64,
    /// Batches of hints.
    pub hinted: u64,
    /// Blocks that were asked for behind a page, and those with which a page came.
    pub blocks: u64,
    /// See `blocks`.
    pub with_block: u64,
    /// Batches that were claimed, and those of them that threads of the program claimed to help.
    pub batches: u64,
    /// See `batches`.
    pub helped: u64,
    /// Pages that were left unmapped.
    pub waited: u64,
}

impl AddAssign for Replayed {
    fn add_assign(&mut self, other: Replayed) {
        let Replayed { entries, victims, copied, given_up, steps, windows, hinted, blocks, with_block, .. } = other;
        let Replayed { batches, helped, waited, .. } = other;
        self.entries += entries;
        self.victims += victims;
        self.copied += copied;
        self.given_up += given_up;
        self.steps += steps;
        self.windows += windows;
        self.hinted += hinted;
        self.blocks += blocks;
        self.with_block += with_block;
        self.batches += batches;
        self.helped += helped;
        self.waited += waited;
    }
}

/// The first decision that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Number of the entry, from 0 on.
    pub number: usize,
    /// As recorded.
    pub recorded: Entry,
    /// As the simulator decides.
    pub simulated: Step,
    /// The simulator asked for other things than the pager, or knows other things of the pages.
    pub asked_otherwise: bool,
}

/// Why a log is not replayed to its end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// It has no beginning.
    #[error("the decision log does not say of what it is")]
    NoBeginning,
    /// A policy of another version.
    #[error("the decision log is of '{name}', which is not known here")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// See [`Difference`].
    #[error(
        "entry {} differs: recorded {:?}, simulated {:?}{}", .0.number, .0.recorded, .0.simulated,
        if .0.asked_otherwise { "; the simulator asked for other things, or its pages are in other states" } else { "" }
    )]
    Differs(Box<Difference>),
}

/// Replays a log up to its end, or to the first decision that differs.
///
/// # Errors
/// What cannot be replayed, and the first difference.
pub fn replay(log: &Log) -> Result<Replayed, ReplayError> {
    let Some((Entry { step: Step::Begins { with }, .. }, entries)) = log.entries.split_first() else {
        return Err(ReplayError::NoBeginning);
    };
    let unknown = |name: &String| ReplayError::Unknown { name: name.clone() };
    let policy = make(&with.eviction, CAPACITY_BEFORE).ok_or_else(|| unknown(&with.eviction))?;
    let mut prefetcher =
        make_prefetcher(&with.prefetcher, with.window_pages_max).ok_or_else(|| unknown(&with.prefetcher))?;
    prefetcher.has_processors(with.processors as usize);
    let (work, setup) = (Workload::of_pages(pages_of(entries)), setup(with));
    let granularity = Granularity::named(&with.granularity).ok_or_else(|| unknown(&with.granularity))?;
    let arbiter = Arbiter::new(prefetcher).with_blocks(Blocks { granularity, pages: with.block_pages });
    let machine = Machine::new(&work, &setup, policy, arbiter);
    let mut replay = Replay { machine, threads: HashMap::new(), done: Replayed::default() };
    for (entry, number) in entries.iter().zip(1..) {
        let (simulated, is_known) = replay.decide(entry);
        let simulated = Entry { thread: entry.thread, step: simulated };
        let are_used_up = replay.machine.answers.take().is_none_or(|answers| answers.are_used_up());
        if simulated.bytes() != entry.bytes() || !are_used_up || !is_known {
            let (recorded, simulated) = (entry.clone(), simulated.step);
            let asked_otherwise = !are_used_up || !is_known;
            return Err(ReplayError::Differs(Box::new(Difference { number, recorded, simulated, asked_otherwise })));
        }
    }
    Ok(Replayed { entries: log.entries.len() as u64, ..replay.done })
}

/// For which policies are made before the budget is known.
const CAPACITY_BEFORE: usize = 4096;

/// A machine in which no time passes.
fn setup(with: &Begin) -> Setup {
    let link = LinkModel {
        name: "none".into(),
        latency_ns: 0,
        bits_per_second: 1_000_000_000,
        duplex: Duplex::Full,
        share: LinkShare::Strict,
    };
    let fault_path = if with.is_inline { FaultPath::Inline } else { FaultPath::Monitor };
    Setup {
        fault_path,
        costs: Costs::of(fault_path),
        window_pages_max: with.window_pages_max,
        prefetch_cache_pages: with.prefetch_cache_pages,
        ..Setup::new(Budget::Bytes(ByteCount(LOCAL_PAGES_MIN * PAGE_BYTES as u64)), link)
    }
}

/// All pages that have content at some time.
fn pages_of(entries: &[Entry]) -> BTreeSet<PageNo> {
    let mut all = BTreeSet::new();
    for entry in entries {
        match &entry.step {
            Step::Arrived { pages, .. } | Step::Zeros { pages, .. } => all.extend(pages),
            Step::Moved { from, to, .. } => all.extend([from, to]),
            _ => {}
        }
    }
    all
}

/// What a thread is doing.
#[derive(Default)]
struct InHand {
    /// Batches that it has claimed and not begun to map, the oldest first.
    batches: VecDeque<Claimed<u32>>,
    /// The batch that it maps.
    mapping: Option<(PendingWindow, MappedPages)>,
    /// The window, or batch of hints, with which the read-ahead thread is late.
    late: Option<u64>,
    /// The block with which a page comes.
    with_block: Option<u64>,
    /// What it reclaims.
    reclaim: reclaim::InHand,
    /// What became of attempts to drop pages that wait: which one, and what came of it.
    drops: VecDeque<(u32, Dropped)>,
}

struct Replay<'a> {
    machine: Machine<'a>,
    threads: HashMap<u32, InHand>,
    done: Replayed,
}

/// What the simulator decides, and whether it knows of what it is about.
type Decided = (Step, bool);

impl Replay<'_> {
    /// Decides what an entry is about, and does what follows from it.
    fn decide(&mut self, entry: &Entry) -> Decided {
        let thread = entry.thread;
        match &entry.step {
            Step::Begins { .. } => (entry.step.clone(), false),
            Step::Bound { .. }
            | Step::Charge { .. }
            | Step::Uncharge { .. }
            | Step::Above { .. }
            | Step::Arrived { .. } => self.account(thread, &entry.step),
            Step::Forgotten { .. }
            | Step::Putback { .. }
            | Step::WrittenBack { .. }
            | Step::Resized { .. }
            | Step::Moved { .. } => self.note(&entry.step),
            Step::Victims { .. }
            | Step::Unreferenced { .. }
            | Step::GivenUp { .. }
            | Step::Leaves { .. }
            | Step::Chunk { .. }
            | Step::Oldest { .. }
            | Step::Filled { .. }
            | Step::Reclaimed { .. } => self.reclaim(thread, &entry.step),
            Step::Requested { .. }
            | Step::Loaded { .. }
            | Step::Queued { .. }
            | Step::Hinted { .. }
            | Step::Late { .. }
            | Step::DemandLoad { .. }
            | Step::Blocks { .. }
            | Step::Zeros { .. } => self.request(thread, &entry.step),
            Step::Claimed { .. } | Step::Refused { .. } | Step::Mapping { .. } | Step::Mapped { .. } => {
                self.batch(thread, &entry.step)
            }
            Step::Waits { .. }
            | Step::Used { .. }
            | Step::Room { .. }
            | Step::Dropped { .. }
            | Step::MadeRoom { .. } => self.prefetch_cache(thread, &entry.step),
        }
    }

    fn slots(&self, pages: &[PageNo]) -> Vec<u32> {
        pages.iter().filter_map(|page| self.machine.work.slot(*page)).collect()
    }

    fn pages(&self, slots: &[u32]) -> Vec<PageNo> {
        slots.iter().map(|slot| self.machine.work.page(*slot)).collect()
    }

    fn page(&mut self, page: PageNo) -> Option<&mut Page> {
        self.machine.work.slot(page).map(|slot| &mut self.machine.pages[slot as usize])
    }

    fn answer(&mut self, of_pages: &[u8], gave_back: &[GiveBack]) {
        let (of_pages, gave_back) = (of_pages.iter().copied().collect(), gave_back.iter().copied().collect());
        self.machine.answers = Some(Answers { of_pages, gave_back, ..Answers::default() });
    }

    /// The account: bound, charges, watermarks, arrivals.
    fn account(&mut self, thread: u32, step: &Step) -> Decided {
        let account = &self.machine.account;
        let decided = match step {
            Step::Bound { pages, .. } => {
                account.set_bound(PageCount(pages.0), PageCount(pages.1));
                Step::Bound { pages: *pages, watermarks: account.watermarks().map(|pages| pages.0).to_vec() }
            }
            Step::Charge { pages, must: true, .. } => {
                account.charge(*pages);
                Step::Charge { pages: *pages, must: true, granted: true }
            }
            Step::Charge { pages, must: false, .. } => {
                Step::Charge { pages: *pages, must: false, granted: account.try_charge(*pages) }
            }
            Step::Uncharge { pages } => {
                account.uncharge(*pages);
                step.clone()
            }
            Step::Above { high: true, .. } => Step::Above { high: true, is_above: account.above_high() },
            Step::Above { high: false, .. } => Step::Above { high: false, is_above: account.above_low() },
            Step::Arrived { pages, how, .. } => return self.arrived(thread, pages, *how),
            _ => unreachable!("{step:?} is not about the account"),
        };
        (decided, true)
    }

    fn arrived(&mut self, thread: u32, pages: &[PageNo], how: Arrival) -> Decided {
        let slots = self.slots(pages);
        let are_new = slots.iter().all(|slot| !self.machine.pages[*slot as usize].is_mapped());
        if !are_new {
            return (Step::Arrived { pages: pages.to_vec(), how, epoch: 0 }, false);
        }
        let epoch = self.machine.arrive(&slots, how, State::Resident);
        let mapping = self.threads.get_mut(&thread).and_then(|in_hand| in_hand.mapping.as_mut());
        if matches!(how, Arrival::Prefetched | Arrival::Hinted)
            && let Some((_, mapped)) = mapping
        {
            mapped.add(u32::try_from(pages.len()).unwrap_or(u32::MAX));
        }
        (Step::Arrived { pages: self.pages(&slots), how, epoch }, true)
    }

    /// What happened to pages, and to the budget.
    fn note(&mut self, step: &Step) -> Decided {
        match step {
            Step::Forgotten { pages } => {
                for page in pages {
                    self.machine.policy.forgotten(*page);
                    self.page(*page).into_iter().for_each(|page| *page = Page { taken: page.taken, ..Page::default() });
                }
                self.slots(pages).into_iter().for_each(|slot| self.machine.prefetch_cache.forget(slot));
            }
            Step::Putback { page } => {
                self.machine.policy.putback(*page);
                self.page(*page).into_iter().for_each(|page| page.state = State::Resident);
            }
            Step::WrittenBack { pages } => {
                for page in pages {
                    self.machine.policy.written_back(*page);
                    // It may have come back since it was stored.
                    let page = self.page(*page).filter(|page| page.state == State::SwapCached);
                    page.into_iter().for_each(|page| page.state = State::Remote);
                }
            }
            Step::Resized { pages } => self.machine.policy.resize(usize::try_from(*pages).unwrap_or(usize::MAX)),
            Step::Moved { from, to, is_resident } => {
                self.machine.policy.forgotten(*from);
                if *is_resident {
                    self.machine.policy.arrived(*to, Arrival::Demand);
                }
                if let [from, to] = self.slots(&[*from, *to])[..] {
                    self.machine.pages[to as usize] = std::mem::take(&mut self.machine.pages[from as usize]);
                    self.machine.prefetch_cache.moved(from, to);
                }
            }
            _ => unreachable!("{step:?} is a decision"),
        }
        (step.clone(), true)
    }

    /// Requests: windows, and zeros ahead of first touches.
    fn request(&mut self, thread: u32, step: &Step) -> Decided {
        let decided = match step {
            Step::Requested { page, request, thread: who, .. } => {
                self.threads.entry(thread).or_default().late = None;
                let wanted = self.machine.requested_by(Thread(*who), *page, *request);
                let window = wanted.window.map(Prefetch::from);
                let block = wanted.block.map(Prefetch::Block);
                Step::Requested { page: *page, request: *request, thread: *who, window, block }
            }
            Step::Loaded { pages, ns, .. } => {
                Step::Loaded { pages: *pages, ns: *ns, local_pages: self.machine.loaded(*pages, *ns) }
            }
            Step::Queued { wanted, .. } => {
                let late = self.machine.request_ahead(0, wanted.clone());
                self.threads.entry(thread).or_default().late = late;
                let is_block = matches!(wanted, Prefetch::Block(_));
                self.done.windows += u64::from(!is_block);
                self.done.blocks += u64::from(is_block);
                Step::Queued { wanted: wanted.clone(), late }
            }
            Step::Hinted { site, pages, .. } => {
                let batch = self.machine.hinted(*site, pages);
                if let Some((_, number)) = batch {
                    self.threads.entry(thread).or_default().late = Some(number);
                    self.done.hinted += 1;
                }
                Step::Hinted { site: *site, pages: pages.clone(), batch }
            }
            Step::Late { page, .. } => {
                let (batch, in_hand) = (self.machine.late_batch(*page), self.threads.entry(thread).or_default());
                in_hand.late = batch.or(in_hand.late);
                Step::Late { page: *page, batch }
            }
            Step::DemandLoad { page, demands, lanes, .. } => {
                let (block, number) = self.machine.choose_load(*page, *demands, *lanes);
                self.threads.entry(thread).or_default().with_block = number;
                self.done.with_block += u64::from(number.is_some());
                Step::DemandLoad { page: *page, demands: *demands, lanes: *lanes, block, number }
            }
            Step::Blocks { granularity, pages } => {
                let Some(named) = Granularity::named(granularity) else { return (step.clone(), false) };
                self.machine.arbiter.set_blocks(Blocks { granularity: named, pages: *pages });
                step.clone()
            }
            Step::Zeros { window, answers, .. } => {
                let Prefetch::Window(zeros) = window else { return (step.clone(), false) };
                self.answer(answers, &[]);
                let claimed = self.machine.claim_blanks(zeros);
                Step::Zeros { window: window.clone(), answers: answers.clone(), pages: self.pages(&claimed) }
            }
            _ => unreachable!("{step:?} is no request"),
        };
        (decided, true)
    }

    /// Batches of windows, from the claim of their pages to the report to the key page.
    fn batch(&mut self, thread: u32, step: &Step) -> Decided {
        if let Step::Claimed { helps_with, copies_cost_ram, answers, .. } = step {
            return (self.claim(thread, *helps_with, *copies_cost_ram, answers), true);
        }
        let in_hand = self.threads.entry(thread).or_default();
        if let Step::Mapped { pages, key_is, .. } = step {
            let Some((of, mapped)) = in_hand.mapping.take() else { return (step.clone(), false) };
            self.answer(&[], &[]);
            let key_is_known = Some(*key_is).filter(|key_is| *key_is != KeyPageState::Elsewhere);
            self.machine.answers.iter_mut().for_each(|answers| answers.key_is = key_is_known);
            let report = self.machine.batch_is_mapped(mapped, &of, *pages);
            return (Step::Mapped { pages: *pages, key_is: *key_is, report }, true);
        }
        let Some(Claimed { pages, of: Some(of) }) = in_hand.batches.pop_front() else { return (step.clone(), false) };
        if let Step::Refused { .. } = step {
            self.machine.refuse(&of, &pages);
            let waiting = u32::try_from(self.machine.windows_waiting()).unwrap_or(u32::MAX);
            return (Step::Refused { waiting }, true);
        }
        let (mapped, runs) = self.machine.begin_mapping(&of, &pages);
        let run = |run: &Range<usize>| {
            (self.machine.work.page(pages[run.start]).0, u32::try_from(run.len()).unwrap_or(u32::MAX))
        };
        let decided = Step::Mapping { runs: runs.iter().map(run).collect(), mapped: mapped.count() };
        in_hand.mapping = Some((of, mapped));
        (decided, true)
    }

    fn claim(&mut self, thread: u32, helps_with: Option<u64>, copies_cost_ram: bool, answers: &[u8]) -> Step {
        self.machine.copies_cost_ram = copies_cost_ram;
        self.answer(answers, &[]);
        let in_hand = self.threads.entry(thread).or_default();
        let with_block = helps_with.and_then(|_| in_hand.with_block.take());
        let helps_with = helps_with.and_then(|_| with_block.or_else(|| self.machine.helps_with(in_hand.late.take())));
        let batch = match helps_with {
            Some(number) if with_block.is_some() => self.machine.claim_of(number, LANDING_PAGES),
            Some(number) => self.machine.claim_of(number, HELP_PAGES),
            None => self.machine.claim_any(),
        };
        let (of, slots) = (batch.of.as_ref().map(|of| of.number), batch.pages.clone());
        if !slots.is_empty() {
            in_hand.batches.push_back(batch);
            self.done.batches += 1;
            self.done.helped += u64::from(helps_with.is_some());
        }
        Step::Claimed { helps_with, copies_cost_ram, answers: answers.to_vec(), of, pages: self.pages(&slots) }
    }

    /// Pages that wait unmapped.
    fn prefetch_cache(&mut self, thread: u32, step: &Step) -> Decided {
        let in_hand = self.threads.entry(thread).or_default();
        match step {
            Step::Waits { page, gave_back, .. } => {
                let (slot, mapping) = (self.machine.work.slot(*page), in_hand.mapping.take());
                let Some((slot, (of, mut mapped))) = slot.zip(mapping) else { return (step.clone(), false) };
                let (is_unmapped, before) = (of.wanted.leaves_unmapped(*page), mapped.count());
                self.answer(&[], gave_back);
                let (bound, taken) = self.machine.waits(slot, &of, &mut mapped);
                self.threads.entry(thread).or_default().mapping = Some((of, mapped));
                self.done.waited += u64::from(taken.is_some());
                let (gave_back, slot) = (gave_back.clone(), taken.map(|taken| (taken.slot, taken.fresh)));
                (Step::Waits { page: *page, gave_back, bound, slot, mapped: before }, is_unmapped)
            }
            Step::Used { page, .. } => {
                let slot = self.machine.work.slot(*page).filter(|slot| self.machine.prefetch_cache.has(*slot));
                let Some(slot) = slot else { return (step.clone(), false) };
                let (place, mapped) = self.machine.waiting_is_used(slot);
                (Step::Used { page: *page, slot: place, mapped }, true)
            }
            Step::Room { pages, .. } => {
                in_hand.drops.clear();
                (Step::Room { pages: *pages, beyond: self.machine.expect(*pages) }, true)
            }
            Step::Dropped { skip, gave_back, .. } => {
                let of = in_hand.batches.front().and_then(|batch| batch.of.clone());
                let Some(of) = of else { return (step.clone(), false) };
                self.answer(&[], gave_back);
                let (slot, dropped) = self.machine.drop_waiting(*skip, &of.wanted);
                let with = dropped.map(|(mapped, _)| mapped);
                let stays = if slot.is_some() { Dropped::Stays } else { Dropped::NoMore };
                let drops = &mut self.threads.entry(thread).or_default().drops;
                drops.push_back((*skip, with.map_or(stays, Dropped::With)));
                (Step::Dropped { skip: *skip, gave_back: gave_back.clone(), slot, with }, true)
            }
            Step::MadeRoom { beyond } => {
                let mut are_as_asked = true;
                make_room(*beyond, |skip| {
                    let next = in_hand.drops.pop_front().filter(|(asked, _)| *asked == skip);
                    are_as_asked &= next.is_some();
                    next.map_or(Dropped::NoMore, |(_, dropped)| dropped)
                });
                (step.clone(), are_as_asked && in_hand.drops.is_empty())
            }
            _ => unreachable!("{step:?} is not about pages that wait"),
        }
    }
}
