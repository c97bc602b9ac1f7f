//! A memory node: pages in another process, over TCP.
//!
//! ```text
//! location = slot in the session's address space (slots);  page n of the session = bytes n × 4096 …
//! demand loads: lanes of their own, the thread that waits makes its own request
//! prefetches, stores: few lanes, several messages under way on each; one at a time while a demand load is under way
//! ```
//! This process decides which slot holds which page; the node only knows slabs and bytes. So a `free` is no message.
//!
//! **Fork.** `before_fork` has the node clone the session; the child connects to the clone. Both go on with the same slots, and
//! the node copies a slab when one of them writes to it.
//!
//! **Loss.** A node that does not answer for `lane::LIMIT`, hangs up or answers nonsense is lost for good: every later call fails
//! at once. Nothing is tried twice.

mod lane;
mod lanes;
mod slots;
mod trouble;

use crate::counters::{Counters, Tally};
use crate::sync::lock;
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};
use hinterland_wire::{Grant, Kind, RANGES_MAX, Reply, Request, SLABS_MAX};
use lane::Lane;
use lanes::Lanes;
use slots::{Fill, Slots};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
pub use trouble::NodeTrouble;

/// Threads that can wait for pages at once; more wait for those.
const DEMAND_LANES: usize = 8;
const BACKGROUND_LANES: usize = 2;
/// Messages of a call that are under way together: what fills the time of an answer, and fits the kernel's buffers.
const DEPTH: usize = 4;
/// Pages of one answer: a demand load that shares the link never waits for more. 128 KiB.
const LOAD_PAGES: usize = 32;
/// Time that the node keeps a session whose process has gone; nobody comes back to it.
const LEASE_MS: u32 = 1000;

/// Pages in a memory node.
pub struct NodeBackend {
    url: String,
    address: SocketAddr,
    quota_bytes: u64,
    /// What the program was called when it began, for those who look at the node.
    name: String,
    /// The process's session; `None` in a forked child whose parent had stored nothing, until it stores something.
    session: Mutex<Option<Grant>>,
    /// The session of the child that is about to be made.
    for_child: Mutex<Option<Result<Grant, NodeTrouble>>>,
    slots: Mutex<Slots>,
    /// Held while slabs are asked for.
    growing: Mutex<()>,
    demand: Lanes,
    background: Lanes,
    demands_under_way: AtomicUsize,
    /// Why the node is of no use any more.
    lost: OnceLock<NodeTrouble>,
    counters: Counters,
}

impl NodeBackend {
    /// Opens a session with room for `quota_bytes` (0: what the node allows); `url` names the node in messages.
    ///
    /// # Errors
    /// Why the node cannot be used.
    pub fn new(url: String, address: SocketAddr, quota_bytes: u64) -> Result<NodeBackend, NodeTrouble> {
        let session = Mutex::new(None);
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().to_owned();
        let lane = join(address, &session, &name, quota_bytes)?;
        let backend = NodeBackend {
            url,
            address,
            quota_bytes,
            name,
            session,
            for_child: Mutex::new(None),
            slots: Mutex::new(Slots::new(lane.slab_bytes)),
            growing: Mutex::new(()),
            demand: Lanes::new(DEMAND_LANES),
            background: Lanes::new(BACKGROUND_LANES),
            demands_under_way: AtomicUsize::new(0),
            lost: OnceLock::new(),
            counters: Counters::default(),
        };
        backend.background.keep(lane);
        Ok(backend)
    }

    /// Runs `work` on a lane; a trouble that is more than a full node ends the use of the node.
    fn on_lane<R>(
        &self,
        lanes: &Lanes,
        work: impl FnOnce(&mut Lane) -> Result<R, NodeTrouble>,
    ) -> Result<R, NodeTrouble> {
        if let Some(trouble) = self.lost.get() {
            return Err(trouble.clone());
        }
        let result = lanes.with(|| self.join(), work);
        if let Some(trouble) = result.as_ref().err().filter(|trouble| !trouble.is_full()) {
            // The first trouble is the cause of the others.
            let _ = self.lost.set(trouble.clone());
        }
        result
    }

    fn join(&self) -> Result<Lane, NodeTrouble> {
        join(self.address, &self.session, &self.name, self.quota_bytes)
    }

    /// Messages of a call of this priority that may be under way.
    fn depth(&self, priority: Priority) -> usize {
        let yield_way = priority != Priority::Demand && self.demands_under_way.load(Relaxed) > 0;
        if yield_way { 1 } else { DEPTH }
    }

    /// Loads `items` on a lane. `done` gets those that arrive, in their order; returns how many did.
    fn load_on(
        &self,
        lane: &mut Lane,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        arrived: &mut usize,
    ) -> Result<(), NodeTrouble> {
        // A message for the page that the program waits for, then larger ones.
        let first = if priority == Priority::Demand { 1 } else { LOAD_PAGES };
        let (count, mut asked, mut under_way) = (items.len(), 0, 0);
        let end_of = |begin: usize| (begin + if begin == 0 { first } else { LOAD_PAGES }).min(count);
        let mut ends = [0; DEPTH];
        let mut messages = 0;
        while *arrived < count {
            while asked < count && under_way < self.depth(priority) {
                let end = end_of(asked);
                lane.ask_pages(&items[asked..end], wire(priority))?;
                ends[(messages + under_way) % DEPTH] = end;
                (asked, under_way) = (end, under_way + 1);
            }
            let (begin, end) = (*arrived, ends[messages % DEPTH]);
            let locations: [u64; LOAD_PAGES] =
                std::array::from_fn(|i| items[begin..end].get(i).map_or(0, |item| item.location.0));
            lane.receive_pages(&mut items[begin..end], |index, undamaged, page| {
                *arrived += 1;
                let what = "it arrived with another checksum than the node sent";
                let location = Location(locations[index]);
                let damaged = LoadError::Damaged { url: self.url.clone(), location, what };
                done(begin + index, if undamaged { Ok(page) } else { Err(damaged) });
            })?;
            (messages, under_way) = (messages + 1, under_way - 1);
        }
        Ok(())
    }

    /// Slots for `count` pages; fewer when the node gives no more slabs, and why.
    fn take_slots(&self, count: usize) -> (Vec<u64>, Option<NodeTrouble>) {
        let mut taken = Vec::with_capacity(count);
        lock(&self.slots).take(count, Fill::MostlyFree, &mut taken);
        while taken.len() < count {
            let _growing = lock(&self.growing);
            // Another thread may have got some meanwhile.
            lock(&self.slots).take(count - taken.len(), Fill::MostlyFree, &mut taken);
            if taken.len() == count {
                break;
            }
            let leased = self.on_lane(&self.background, |lane| {
                lane.ask(
                    |into, number| Request::lease(into, number, 1),
                    |reply| match reply {
                        Reply::Slabs(numbers) => numbers.iter().next(),
                        _ => None,
                    },
                )
            });
            let mut slots = lock(&self.slots);
            match leased {
                Ok(number) => slots.add(number),
                Err(trouble) => {
                    slots.take(count - taken.len(), Fill::All, &mut taken);
                    return (taken, Some(trouble));
                }
            }
        }
        (taken, None)
    }

    /// Gives slabs without a page back to the node.
    fn return_empty(&self) {
        let mut slots = lock(&self.slots);
        if !slots.has_empty() {
            return;
        }
        let empty = slots.take_empty(SLABS_MAX);
        drop(slots);
        // Nothing is lost if it fails: the session's end gives them back, too.
        let _ = self.on_lane(&self.background, |lane| {
            let write = |into: &mut Vec<u8>, number| Request::give_back(into, number, &empty);
            lane.ask(write, |reply| matches!(reply, Reply::Done).then_some(()))
        });
    }

    /// Writes pages to their slots, several messages under way at once; `out` has the outcome of each page.
    fn store_on(
        &self,
        lane: &mut Lane,
        slots: &[u64],
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) -> Result<(), NodeTrouble> {
        let messages = pages.len().div_ceil(RANGES_MAX);
        let part = |message: usize| message * RANGES_MAX..((message + 1) * RANGES_MAX).min(pages.len());
        let mut sent = 0;
        for message in 0..messages {
            while sent < messages && sent - message < self.depth(Priority::WriteBack) {
                lane.send_pages(&slots[part(sent)], &pages[part(sent)], wire(priority))?;
                sent += 1;
            }
            match lane.take_done() {
                Ok(()) => {
                    for index in part(message) {
                        out[index] = Ok(Location(slots[index]));
                    }
                }
                Err(trouble) if trouble.is_full() => out[part(message)].fill(Err(self.store_error(&trouble))),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    fn store_error(&self, trouble: &NodeTrouble) -> StoreError {
        let url = self.url.clone();
        match *trouble {
            NodeTrouble::Refused { used_bytes, capacity_bytes, .. } if trouble.is_full() => {
                StoreError::Full { url, used_bytes, capacity_bytes }
            }
            _ => StoreError::Lost { url, trouble: trouble.clone() },
        }
    }
}

/// A new lane in the process's session, which is opened if there is none.
fn join(
    address: SocketAddr,
    session: &Mutex<Option<Grant>>,
    name: &str,
    quota_bytes: u64,
) -> Result<Lane, NodeTrouble> {
    let mut lane = Lane::connect(address)?;
    let granted = |reply: &Reply<'_>| match reply {
        Reply::Session(grant) => Some(*grant),
        _ => None,
    };
    let mut session = lock(session);
    match *session {
        Some(Grant { session, token, .. }) => {
            lane.ask(|into, number| Request::attach(into, number, session, token), granted)?;
        }
        None => {
            let name = format!("{name} {}", std::process::id());
            let open = |into: &mut Vec<u8>, number| Request::open(into, number, &name, quota_bytes, LEASE_MS);
            *session = Some(lane.ask(open, granted)?);
        }
    }
    Ok(lane)
}

fn wire(priority: Priority) -> hinterland_wire::Priority {
    match priority {
        Priority::Demand => hinterland_wire::Priority::Demand,
        Priority::Prefetch => hinterland_wire::Priority::Prefetch,
        Priority::WriteBack => hinterland_wire::Priority::WriteBack,
    }
}

impl Backend for NodeBackend {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        self.return_empty();
        let (slots, short) = self.take_slots(pages.len());
        if let Some(trouble) = &short {
            out[slots.len()..].fill(Err(self.store_error(trouble)));
        }
        let (out, pages) = (&mut out[..slots.len()], &pages[..slots.len()]);
        if pages.is_empty() {
            return;
        }
        // Overwritten by each page's outcome.
        out.fill(Err(StoreError::Device { url: self.url.clone(), errno: libc::EIO }));
        let stored = self.on_lane(&self.background, |lane| self.store_on(lane, &slots, pages, priority, out));
        if let Err(trouble) = stored {
            out.iter_mut()
                .filter(|answer| answer.is_err())
                .for_each(|answer| *answer = Err(self.store_error(&trouble)));
        }
        let mut free = lock(&self.slots);
        let refused = slots.iter().zip(&*out).filter(|(_, answer)| answer.is_err());
        refused.for_each(|(slot, _)| free.give_back(*slot));
        drop(free);
        let stored = out.iter().filter(|answer| answer.is_ok()).count() as u64;
        let stored_bytes = stored * PAGE_BYTES as u64;
        self.counters.stored(&Tally { pages: stored, stored_bytes, plain_pages: stored, same_filled_pages: 0 });
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        if items.is_empty() {
            return;
        }
        self.counters.loaded(items.len() as u64);
        let demand = priority == Priority::Demand;
        let lanes = if demand { &self.demand } else { &self.background };
        self.demands_under_way.fetch_add(demand.into(), Relaxed);
        let mut arrived = 0;
        let loaded = self.on_lane(lanes, |lane| self.load_on(lane, items, priority, done, &mut arrived));
        self.demands_under_way.fetch_sub(demand.into(), Relaxed);
        if let Err(trouble) = loaded {
            for index in arrived..items.len() {
                done(index, Err(LoadError::Lost { url: self.url.clone(), trouble: trouble.clone() }));
            }
        }
    }

    fn free(&self, locations: &[Location]) {
        let mut slots = lock(&self.slots);
        locations.iter().for_each(|location| slots.give_back(location.0));
        drop(slots);
        let pages = locations.len() as u64;
        let stored_bytes = pages * PAGE_BYTES as u64;
        self.counters.freed(&Tally { pages, stored_bytes, plain_pages: pages, same_filled_pages: 0 });
    }

    fn copies_cost_ram(&self) -> bool {
        false
    }

    fn ram_bytes(&self) -> u64 {
        let lanes = (self.demand.made() + self.background.made()) as u64;
        lock(&self.slots).table_bytes() + lanes * Lane::RAM_BYTES
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let capacity_bytes = lock(&self.session).map_or(self.quota_bytes, |grant| grant.quota_bytes);
        rows.push(self.counters.row(&self.url, self.ram_bytes(), capacity_bytes));
    }

    fn before_fork(&self) {
        // A child of a process that keeps nothing here begins with a session of its own when it needs one.
        let keeps = lock(&self.slots).slab_count() > 0;
        let clone = keeps.then(|| {
            self.on_lane(&self.background, |lane| {
                lane.ask(
                    |into, number| Request::plain(into, number, Kind::Clone),
                    |reply| match reply {
                        Reply::Session(grant) => Some(*grant),
                        _ => None,
                    },
                )
            })
        });
        *lock(&self.for_child) = clone;
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        let clone = lock(&self.for_child).take();
        if side == ForkSide::Parent {
            // The node gives a clone up that nobody connects to.
            return Ok(());
        }
        // The connections are the parent's: they are closed on this side, with nothing said.
        self.demand.reset();
        self.background.reset();
        let Some(clone) = clone else {
            *lock(&self.session) = None;
            return Ok(());
        };
        let joined = clone.and_then(|grant| {
            *lock(&self.session) = Some(grant);
            self.join()
        });
        let lost = |trouble| StoreError::Lost { url: self.url.clone(), trouble };
        self.background.keep(joined.map_err(lost)?);
        Ok(())
    }
}
