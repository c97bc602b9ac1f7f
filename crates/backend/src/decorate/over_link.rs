//! Puts a link between the pager and a backend: requests queue by priority, and each page takes its time.
//!
//! ```text
//!   store, load ──► the pages enter the link's queue ──► the backend works ──► page by page: wait until it has arrived, `done`
//! ```
//!
//! The queue is that of the simulator ([`Link`]), here in real time and without a thread: a thread that waits computes
//! what the link has sent until now, and when its page will arrive if no other request overtakes it. The backend's own
//! work is done while the pages travel. The processes of a run share the link, where the ledger has room for it: each
//! knows from there what the others send.

use super::clock::{Clock, Monotonic};
use super::{accepted, pass_on_but_forks, patched_bytes, stored_bytes};
use crate::sync::lock;
use crate::{
    Backend, BackendUsage, Direction, ForkSide, Link, LinkModel, LoadError, LoadItem, Location, Patch, Priority,
    StoreError,
};
use hinterland_abi::RunLink;
use hinterland_units::PageBytes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A backend at the far end of a link.
pub(crate) struct OverLink<C: Clock = Monotonic> {
    inner: Arc<dyn Backend>,
    model: LinkModel,
    clock: C,
    /// The run's, for all of its processes.
    shared: Option<&'static RunLink>,
    traffic: Mutex<Traffic>,
    /// Processes that used the link at the same time, at most.
    processes: AtomicU64,
}

/// A call's number, and a page's among those of the call.
type Parcel = (u64, usize);

struct Traffic {
    link: Link<Parcel>,
    calls: u64,
    /// Who this is, among those that share the link, and its row there; a row can be lost to others.
    owner: u64,
    user: Option<usize>,
}

impl Traffic {
    fn new(model: &LinkModel) -> Traffic {
        Traffic { link: Link::new(model), calls: 0, owner: new_owner(), user: None }
    }

    /// Has a row of the link that is shared, if there is one.
    fn join(&mut self, shared: &'static RunLink, now_ns: u64) {
        if !self.user.is_some_and(|user| shared.is_of(user, self.owner)) {
            self.user = shared.join(self.owner, now_ns);
            self.link.share(self.user.map(|user| (shared, user)));
        }
    }

    /// Lets all happen that has happened by `now_ns`.
    fn advance(&mut self, now_ns: u64) {
        while self.link.next_ns() <= now_ns {
            self.link.step();
        }
    }
}

/// A number that no other traffic of the run has.
fn new_owner() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    u64::from(std::process::id()) << 32 | NUMBERS.fetch_add(1, Relaxed)
}

impl OverLink {
    /// Puts a link like `model` before `inner`; where it is shared, all processes of the run have it.
    pub(crate) fn new(inner: Arc<dyn Backend>, model: LinkModel, shared: Option<&'static RunLink>) -> OverLink {
        OverLink { shared, ..OverLink::timed(inner, model, Monotonic::new()) }
    }
}

impl<C: Clock> OverLink<C> {
    fn timed(inner: Arc<dyn Backend>, model: LinkModel, clock: C) -> OverLink<C> {
        let traffic = Mutex::new(Traffic::new(&model));
        OverLink { inner, model, clock, shared: None, traffic, processes: AtomicU64::new(0) }
    }

    /// Asks the link to carry pages of so many bytes; returns the call's number.
    fn submit(&self, pages: impl Iterator<Item = u64>, direction: Direction, priority: Priority) -> u64 {
        let mut traffic = lock(&self.traffic);
        let now_ns = self.clock.now_ns();
        traffic.advance(now_ns);
        if let Some(shared) = self.shared {
            traffic.join(shared, now_ns);
        }
        traffic.calls += 1;
        let call = traffic.calls;
        for (page, bytes) in pages.enumerate() {
            traffic.link.submit(now_ns, (call, page), direction, bytes, priority);
        }
        traffic.link.say(now_ns);
        if let Some(shared) = self.shared {
            self.processes.fetch_max(shared.users(now_ns), Relaxed);
        }
        call
    }

    /// Waits until a page has arrived.
    fn await_page(&self, parcel: Parcel, priority: Priority) {
        let due_ns = || {
            let mut traffic = lock(&self.traffic);
            let now_ns = self.clock.now_ns();
            traffic.advance(now_ns);
            traffic.link.say(now_ns);
            traffic.link.done_ns(parcel)
        };
        while let Some(due_ns) = due_ns() {
            // As whoever polls a network card for the page that it needs.
            self.clock.wait_until(due_ns, priority != Priority::Demand);
        }
    }
}

impl<C: Clock> Backend for OverLink<C> {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        let call = self.submit(stored_bytes(pages.len(), bytes), Direction::Out, priority);
        self.inner.store_while(pages, bytes, priority, out, meanwhile);
        meanwhile();
        if let Some(last) = pages.len().checked_sub(1) {
            self.await_page((call, last), priority);
        }
    }

    fn store_if_compressible(
        &self,
        pages: &[&PageBytes],
        bytes_max: usize,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        self.inner.store_if_compressible(pages, bytes_max, priority, out);
        let accepted = accepted(out);
        let call = self.submit(stored_bytes(accepted, None), Direction::Out, priority);
        if let Some(last) = accepted.checked_sub(1) {
            self.await_page((call, last), priority);
        }
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let bytes = self.inner.prefix_bytes(&mut items.iter().map(|item| item.location));
        let call = self.submit(bytes.into_iter().map(|bytes| bytes as u64), Direction::In, priority);
        // The backend may hold locks while it says that a page is done: nobody waits for the link meanwhile.
        let mut arrivals = Vec::with_capacity(items.len());
        self.inner.load_while(items, priority, &mut |index, result| arrivals.push((index, result.err())), meanwhile);
        meanwhile();
        for (turn, (index, error)) in arrivals.into_iter().enumerate() {
            self.await_page((call, turn), priority);
            done(index, error.map_or(Ok(&*items[index].into), Err));
        }
    }

    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        let call = self.submit(patched_bytes(patches), Direction::Out, priority);
        self.inner.patch(patches, priority, out);
        if let Some(last) = patches.len().checked_sub(1) {
            self.await_page((call, last), priority);
        }
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        if side == ForkSide::Child {
            // Of what the parent had under way, nobody here waits for anything.
            *lock(&self.traffic) = Traffic::new(&self.model);
            self.processes.store(0, Relaxed);
        }
        self.inner.after_fork(side)
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let before = rows.len();
        self.inner.usage(rows);
        for row in &mut rows[before..] {
            row.link_processes = self.processes.load(Relaxed);
        }
    }

    fn link_page_ns(&self) -> u64 {
        self.model.page_ns().max(self.inner.link_page_ns())
    }

    pass_on_but_forks!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelled_link::tests::model;
    use crate::{Duplex, LinkShare, Reference};
    use hinterland_units::PAGE_BYTES;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Instant;

    /// Time that passes only while a thread waits.
    #[derive(Default)]
    struct ByHand(AtomicU64);

    impl Clock for ByHand {
        fn now_ns(&self) -> u64 {
            self.0.load(Relaxed)
        }
        fn wait_until(&self, due_ns: u64, _: bool) {
            self.0.fetch_max(due_ns, Relaxed);
        }
    }

    fn reference() -> Arc<Reference> {
        Arc::new(Reference::new("reference".into(), 1 << 20).unwrap())
    }

    /// A page takes 100 ns, and 1000 ns more until it is there.
    fn over_link() -> OverLink<ByHand> {
        let model = LinkModel {
            name: "test".into(),
            latency_ns: 1_000,
            bits_per_second: 327_680_000_000,
            duplex: Duplex::Full,
            share: LinkShare::Strict,
        };
        OverLink::timed(reference(), model, ByHand::default())
    }

    fn stored<C: Clock>(far: &OverLink<C>, pages: usize) -> Vec<Location> {
        let mut out = vec![Ok(Location(0)); pages];
        let contents: Vec<PageBytes> = (0..pages).map(|n| [u8::try_from(n).unwrap(); PAGE_BYTES]).collect();
        far.store(&contents.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
        out.into_iter().map(|location| location.expect("room")).collect()
    }

    /// Loads, and says when each page was done.
    fn load(
        far: &OverLink<ByHand>,
        locations: &[Location],
        priority: Priority,
        meanwhile: &dyn Fn(usize),
    ) -> Vec<(usize, u64)> {
        let mut into = vec![[0xff; PAGE_BYTES]; locations.len()];
        let items = locations.iter().zip(&mut into).map(|(location, into)| LoadItem { location: *location, into });
        let mut times = Vec::new();
        far.load(&mut items.collect::<Vec<_>>(), priority, &mut |index, page| {
            assert!(page.expect("stored").iter().all(|byte| u64::from(*byte) == locations[index].0 - locations[0].0));
            times.push((index, far.clock.now_ns()));
            meanwhile(index);
        });
        times
    }

    #[test]
    fn pages_of_one_call_follow_each_other_and_pay_the_latency_once() {
        let far = over_link();
        let locations = stored(&far, 4);
        assert_eq!(far.clock.now_ns(), 1_400);
        let times = load(&far, &locations, Priority::Prefetch, &|_| {});
        assert_eq!(times, [(0, 2_500), (1, 2_600), (2, 2_700), (3, 2_800)]);
        assert_eq!(load(&far, &locations[..1], Priority::Demand, &|_| {}), [(0, 3_900)]);
        far.load(&mut [], Priority::Demand, &mut |_, _| panic!("nothing was asked for"));
        assert_eq!((far.clock.now_ns(), lock(&far.traffic).link.bytes()), (3_900, 9 * PAGE_BYTES as u64));
    }

    #[test]
    fn a_demand_load_overtakes_what_is_not_sent_yet() {
        let far = over_link();
        let locations = stored(&far, 16);
        let demanded = RefCell::new(Vec::new());
        let begun = far.clock.now_ns();
        // At 1100 the first page is there, and the twelfth is being sent.
        let times = load(&far, &locations, Priority::Prefetch, &|index| {
            if index == 0 {
                *demanded.borrow_mut() = load(&far, &locations[..1], Priority::Demand, &|_| {});
            }
        });
        let after = |(index, ns): &(usize, u64)| (*index, ns - begun);
        assert_eq!(demanded.borrow().iter().map(after).collect::<Vec<_>>(), [(0, 2_300)]);
        let times: Vec<_> = times.iter().map(after).collect();
        // The pages that had been sent were there before the demanded one; those behind it came 100 ns later than without it.
        assert_eq!((times[0], times[11]), ((0, 1_100), (11, 2_300)));
        assert_eq!(times[12..], [(12, 2_400), (13, 2_500), (14, 2_600), (15, 2_700)]);
    }

    /// While pages are written back, those that are loaded come as fast as without, unless both share the bandwidth.
    #[test]
    fn what_is_stored_delays_loads_on_a_half_duplex_link_alone() {
        for (duplex, ns) in [(Duplex::Full, 1_100), (Duplex::Half, 2_100)] {
            let far = OverLink::timed(reference(), model(duplex), ByHand::default());
            let locations = stored(&far, 1);
            let begun = far.clock.now_ns();
            far.submit(stored_bytes(10, None), Direction::Out, Priority::Demand);
            assert_eq!(load(&far, &locations, Priority::Demand, &|_| {}), [(0, begun + ns)], "{duplex:?}");
        }
    }

    #[test]
    fn what_the_parent_had_under_way_is_not_the_childs() {
        let far = over_link();
        let locations = stored(&far, 2);
        // Somebody has asked for pages, and is not there any more.
        far.submit(stored_bytes(50, None), Direction::In, Priority::Demand);
        far.after_fork(ForkSide::Child).unwrap();
        let begun = far.clock.now_ns();
        assert_eq!(load(&far, &locations[..1], Priority::Demand, &|_| {}), [(0, begun + 1_100)]);
    }

    #[test]
    fn real_calls_take_as_long_as_their_pages() {
        // A page takes 33 µs and a call 2 ms more.
        let far = OverLink::new(reference(), "2ms:1Gb/s".parse().unwrap(), None);
        let begun = Instant::now();
        let locations = stored(&far, 30);
        assert!(begun.elapsed().as_micros() >= 2_983, "30 pages need 983 µs, and 2 ms");
        std::thread::scope(|scope| {
            for locations in locations.chunks(10) {
                scope.spawn(|| {
                    let mut into = vec![[0; PAGE_BYTES]; 10];
                    let items = locations.iter().zip(&mut into);
                    let items = items.map(|(location, into)| LoadItem { location: *location, into });
                    let mut count = 0;
                    far.load(&mut items.collect::<Vec<_>>(), Priority::Demand, &mut |_, page| {
                        count += u32::from(page.is_ok());
                    });
                    assert_eq!(count, 10);
                });
            }
        });
        assert!(begun.elapsed().as_micros() >= 2 * 2_983, "the loads share the bandwidth");
    }
}
