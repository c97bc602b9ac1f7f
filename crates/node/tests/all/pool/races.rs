//! What happens while something else is under way. Each test makes its moment itself: in a callback of the pool, between two steps
//! of the maintenance steps, or by taking away what a further connection needs.

use super::{Cluster, SLAB_PAGES, Stored, TIMING, address};
use hinterland_backend::{
    AnswerLimit, Backend, ForkSide, LoadError, LoadItem, Location, NodeAddress, NodePool, Priority, StoreError, Timing,
};
use hinterland_node::SLAB_BYTES;
use hinterland_testkit::contract::{load, page_of, rows, store, with_fork};
use hinterland_testkit::proxy::Mode;
use hinterland_testkit::wait_until;
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::cell::Cell;
use std::time::Duration;

/// Loads to try until chance has chosen a node: it misses half of them.
pub(super) const TRIES: usize = 2000;

impl Cluster {
    /// The nodes that have pages, and those that have none.
    pub(super) fn sides(&self) -> (Vec<usize>, Vec<usize>) {
        let rows = rows(&self.pool);
        (0..rows.len()).partition(|index| rows[*index].pages > 0)
    }

    fn repair(&self, (location, seed): (Location, u64), page: &mut PageBytes) -> Result<(), LoadError> {
        let right = page_of(seed);
        self.pool.repair(LoadItem { location, into: page }, &|page| *page == right)
    }
}

#[test]
fn a_late_answer_on_the_only_connection_does_not_end_the_session() {
    let cluster = Cluster::new(&[8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..100);
    // No thread waits for the pages: the other node is asked when this one is late.
    cluster.proxies[0].set(Mode::HoldData);
    wait_until("the node is asked and late", || {
        let (location, seed) = stored.0[0];
        let loaded = load(&cluster.pool, &[location], Priority::Prefetch).remove(0);
        assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(seed));
        cluster.proxies[0].keeping() > 0
    });
    // Nothing is asked there for longer than the node keeps a session without a connection.
    std::thread::sleep(Duration::from_millis(u64::from(TIMING.lease_ms) * 3));
    cluster.proxies[0].set(Mode::Pass);
    Stored::new(&cluster.pool, 1000..1100).check(&cluster.pool);
    stored.check(&cluster.pool);
    assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
}

#[test]
fn every_wrong_page_of_a_batch_is_repaired() {
    let cluster = Cluster::new(&[8, 8], 2);
    // The liar changes a page of each message.
    let stored = Stored::new(&cluster.pool, 0..80);
    let at: Vec<Location> = stored.0.iter().map(|(location, _)| *location).collect();
    let pages = (0..TRIES).find_map(|n| {
        // Which one is asked is chance, and latency.
        cluster.proxies[n / 4 % 2].set(Mode::Lie);
        cluster.proxies[1 - n / 4 % 2].set(Mode::Pass);
        let pages: Vec<PageBytes> =
            load(&cluster.pool, &at, Priority::Prefetch).into_iter().map(|page| page.expect("it arrives")).collect();
        let wrong = pages.iter().zip(&stored.0).filter(|(page, (_, seed))| **page != page_of(*seed)).count();
        (wrong > 1).then_some(pages)
    });
    for (mut page, (location, seed)) in pages.expect("the liar is asked").into_iter().zip(&stored.0) {
        if page != page_of(*seed) {
            cluster.repair((*location, *seed), &mut page).unwrap_or_else(|error| panic!("{error}"));
            assert!(page == page_of(*seed));
        }
    }
}

#[test]
fn a_page_that_went_to_another_node_meanwhile_is_loaded_from_there() {
    let cluster = Cluster::new(&[8, 8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES);
    let (holders, _) = cluster.sides();
    cluster.proxies[holders[0]].set(Mode::Dead);
    cluster.maintain_until("the loss is seen", |cluster| {
        let _ = load(&cluster.pool, &[stored.0[0].0], Priority::Demand);
        cluster.is_lost(holders[0])
    });
    stored.check_while(&cluster.pool, || {
        cluster.maintain_until("copies elsewhere", |cluster| cluster.pages() == SLAB_PAGES * 2);
        cluster.proxies[holders[1]].set(Mode::Dead);
    });
    assert!(cluster.is_lost(holders[1]), "all of it was on its way before the node was killed");
}

#[test]
fn the_last_copy_is_kept_although_it_was_wrong() {
    let cluster = Cluster::new(&[8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..10);
    let (location, seed) = stored.0[0];
    let (right, calls, mut page) = (page_of(seed), Cell::new(0), [0; PAGE_BYTES]);
    let is_right = |page: &PageBytes| {
        calls.set(calls.get() + 1);
        if calls.get() == 2 {
            // Meanwhile the second node is found to send damaged pages.
            cluster.proxies[1].set(Mode::Flip);
            let given_up = (0..TRIES).any(|_| {
                let loaded = load(&cluster.pool, &[location], Priority::Demand).remove(0);
                assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == right);
                rows(&cluster.pool)[1].pages == 0
            });
            assert!(given_up, "the second node was never asked");
            cluster.proxies[1].set(Mode::Pass);
        }
        calls.get() == 2 && *page == right
    };
    cluster.pool.repair(LoadItem { location, into: &mut page }, &is_right).unwrap_or_else(|error| panic!("{error}"));
    stored.check(&cluster.pool);
}

#[test]
fn a_slab_that_is_emptied_while_it_is_copied_costs_no_node() {
    for round in 0..8 {
        // No other question is kept in place of a copy.
        let cluster = Cluster::with(&[8, 8, 8], 2, Timing { recall: Duration::from_secs(600), ..TIMING });
        let pool = &cluster.pool;
        let mut stored = Stored::new(&cluster.pool, 0..1);
        let (holders, others) = cluster.sides();
        // Two lanes for what is done in the background.
        cluster.proxies[holders[1]].set(Mode::Hold);
        std::thread::scope(|scope| {
            let storing = [1, 2].map(|seed| scope.spawn(move || Stored::new(pool, seed..seed + 1)));
            cluster.proxies[holders[1]].until_keeping(2);
            cluster.proxies[holders[1]].set(Mode::Pass);
            storing.into_iter().for_each(|thread| stored.0.extend(thread.join().expect("stored").0));
        });
        stored.0.extend(Stored::new(pool, 3..SLAB_PAGES).0);
        cluster.proxies[holders[0]].set(Mode::Dead);
        cluster.maintain_until("a rebuild is under way", |cluster| {
            let _ = load(&cluster.pool, &[stored.0[0].0], Priority::Demand);
            cluster.nodes[others[0]].node().used_bytes() > 0
        });
        // The next read of the copy, and behind it the slab's return: either may be the first at the node.
        cluster.proxies[holders[1]].set(Mode::Hold);
        std::thread::scope(|scope| {
            scope.spawn(|| cluster.pool.maintain());
            cluster.proxies[holders[1]].until_keeping(1);
            stored.free(&cluster.pool);
            let storing = scope.spawn(|| Stored::new(&cluster.pool, 1000..1010));
            cluster.proxies[holders[1]].until_keeping(2);
            cluster.proxies[holders[1]].set(Mode::Pass);
            storing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).check(&cluster.pool);
        });
        let losses: Vec<u64> = rows(&cluster.pool).iter().map(|row| row.losses).collect();
        assert_eq!((losses[holders[1]], losses[others[0]]), (0, 0), "round {round}");
        // It goes back when the copy has ended.
        (0..3).for_each(|_| {
            let _ = cluster.pool.maintain();
        });
        Stored::new(&cluster.pool, 2000..2010).check(&cluster.pool);
        let used = cluster.nodes[holders[1]].node().used_bytes();
        assert!(used <= 2 * SLAB_BYTES, "{used} bytes stay leased");
    }
}

#[test]
fn a_node_that_is_full_of_copies_after_a_fork_is_passed_by() {
    let cluster = Cluster::with(&[4, 4, 4], 2, Timing { refused: Duration::from_millis(500), ..TIMING });
    let stored = Stored::new(&cluster.pool, 0..50);
    let (holders, _) = cluster.sides();
    let address = address(&cluster.nodes[holders[0]]).into();
    let node = NodeAddress { url: "the same node".into(), address, secured: None, limit: AnswerLimit::default() };
    let other =
        NodePool::new("another tenant".into(), vec![node], 0, 1, TIMING).map_err(|(_, error)| error).expect("a pool");
    let fill: Vec<PageBytes> = (0..SLAB_PAGES * 3).map(|seed| page_of(seed + 10_000)).collect();
    assert!(store(&other, &fill).iter().all(Result::is_ok));
    cluster.pool.before_fork();
    cluster.pool.after_fork(ForkSide::Parent).unwrap_or_else(|error| panic!("{error}"));
    // The slab is shared with the clone for the child: to write to it, the full node would need room for a copy.
    let more = Stored::new(&cluster.pool, 1000..1000 + SLAB_PAGES * 2);
    [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool));
    // Until the others have no room either.
    let pages: Vec<PageBytes> = (0..SLAB_PAGES * 8).map(|seed| page_of(seed + 50_000)).collect();
    let answers = store(&cluster.pool, &pages);
    assert!(matches!(answers.last(), Some(Err(StoreError::Full { .. }))));
    assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(StoreError::Full { .. }))));
    // What is free again can be used after a while: two more slabs, then the one that was shared.
    drop(other);
    let mut left = usize::try_from(SLAB_PAGES).expect("small") * 2 + 100;
    wait_until("all pages have room", || {
        let answers = store(&cluster.pool, &pages[..left]);
        left = answers.iter().filter(|answer| answer.is_err()).count();
        left == 0
    });
    [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool));
}

#[test]
fn nodes_that_return_do_not_confuse_stores() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    for round in 0..3 {
        // Two are away; while the first is back and the second lets maintenance wait, stores go on.
        for index in [0, 2] {
            cluster.proxies[index].set(Mode::Dead);
        }
        cluster.maintain_until("both losses are seen", |cluster| {
            let pages = [page_of(1)];
            let stored = store(&cluster.pool, &pages).remove(0).unwrap_or_else(|error| panic!("{error}"));
            let _ = load(&cluster.pool, &[stored], Priority::Demand);
            cluster.pool.free(&[stored]);
            cluster.is_lost(0) && cluster.is_lost(2)
        });
        cluster.proxies[2].set(Mode::Hold);
        cluster.proxies[0].set(Mode::Pass);
        cluster.maintained(|| {
            let store_some = || Stored::new(&cluster.pool, round * 1000..round * 1000 + 20).free(&cluster.pool);
            wait_until("the first is back", || {
                store_some();
                !cluster.is_lost(0)
            });
            (0..50).for_each(|_| store_some());
        });
        cluster.proxies[2].set(Mode::Pass);
        cluster.maintain_until("all are back", |cluster| !cluster.is_lost(2));
    }
}

#[test]
fn a_process_that_can_make_no_connection_uses_those_that_it_has() {
    let cluster = Cluster::new(&[8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..200);
    let child = || {
        // It has one connection to each node.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid pointer; nothing else happens in this process.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| stored.check(&cluster.pool)))));
        Stored::new(&cluster.pool, 1000..1100).check(&cluster.pool);
        assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0 && row.capacity_bytes > 0), "a node is lost");
    };
    with_fork(&cluster.pool, child, || stored.check(&cluster.pool));
}

#[test]
fn a_fork_for_which_no_connection_can_be_made_costs_the_parent_no_node() {
    let cluster = Cluster::new(&[8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..100);
    cluster.proxies[1].set(Mode::HoldData);
    // It has one connection to each node.
    let child = || {
        // SAFETY: plain data, for which zeros are valid values.
        let mut before: libc::rlimit = unsafe { std::mem::zeroed() };
        // SAFETY: a valid pointer.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) }, 0);
        let limit = |descriptors| {
            let limit = libc::rlimit { rlim_cur: descriptors, ..before };
            // SAFETY: a valid pointer; nothing else happens in this process.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        };
        limit(0);
        wait_until("the only connection to a node is given up, because an answer is late", || {
            let (location, seed) = stored.0[0];
            let loaded = load(&cluster.pool, &[location], Priority::Prefetch).remove(0);
            assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(seed));
            rows(&cluster.pool)[1].ram_bytes == 0
        });
        cluster.pool.before_fork();
        cluster.pool.after_fork(ForkSide::Parent).unwrap_or_else(|error| panic!("{error}"));
        limit(before.rlim_cur);
        Stored::new(&cluster.pool, 1000..1100);
        let there = rows(&cluster.pool);
        assert!(there.iter().all(|row| row.losses == 0 && row.pages == 200), "{there:?}");
    };
    with_fork(&cluster.pool, child, || ());
    cluster.proxies[1].set(Mode::Pass);
    stored.check(&cluster.pool);
}

#[test]
fn a_node_to_which_only_connections_for_demands_are_left_is_used_for_everything() {
    let cluster = Cluster::new(&[8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..100);
    // That of its connections; the first one has been for stores.
    let ram_bytes = || rows(&cluster.pool)[1].ram_bytes;
    let one = ram_bytes();
    wait_until("it is asked for a page that the program waits for", || {
        stored.0.iter().for_each(|(location, _)| drop(load(&cluster.pool, &[*location], Priority::Demand)));
        ram_bytes() > one
    });
    cluster.proxies[1].set(Mode::HoldData);
    let before = ram_bytes();
    wait_until("the first connection is given up, because an answer is late", || {
        drop(load(&cluster.pool, &[stored.0[0].0], Priority::Prefetch));
        ram_bytes() < before
    });
    cluster.proxies[1].set(Mode::Pass);
    cluster.proxies[1].turn_away(usize::MAX);
    let more = Stored::new(&cluster.pool, 1000..1100);
    cluster.pool.before_fork();
    cluster.pool.after_fork(ForkSide::Parent).unwrap_or_else(|error| panic!("{error}"));
    [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool));
    let there = rows(&cluster.pool);
    assert!(there.iter().all(|row| row.losses == 0 && row.pages == 200), "{there:?}");
}
