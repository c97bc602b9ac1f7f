//! Copies that are made in the background: how fast, and what else happens meanwhile.

use super::{Cluster, SLAB_PAGES, Stored, TIMING};
use hinterland_backend::{Backend, Priority};
use hinterland_testkit::contract::{load, rows, with_fork};
use hinterland_testkit::proxy::Mode;
use hinterland_testkit::{wait_until, wait_until_or};

/// What a process copies in a second at most.
const BYTES_PER_SECOND: u128 = TIMING.rebuild_bytes_per_second as u128;

impl Cluster {
    /// Three nodes with so many pages, of which each was on two, and the first of which has been lost.
    fn without_one(pages: u64) -> (Cluster, Stored) {
        let cluster = Cluster::new(&[64, 64, 64], 2);
        let stored = Stored::new(&cluster.pool, 0..pages);
        cluster.proxies[0].set(Mode::Dead);
        cluster.until_lost(0, &stored);
        (cluster, stored)
    }

    /// Loads page by page until the loss of a node is known.
    fn until_lost(&self, node: usize, stored: &Stored) {
        while !self.is_lost(node) {
            stored.0.iter().for_each(|(at, _)| drop(load(&self.pool, &[*at], Priority::Demand)));
        }
    }

    /// Maintains without any pause until `holds`. What each step has copied takes no longer than the pause that it asks for.
    fn paced_until(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let mut copied = 0;
        let state = || format!("{:?}", rows(&self.pool));
        wait_until_or(what, state, || {
            let bytes_in = || rows(&self.pool).iter().map(|row| u128::from(row.bytes_in)).sum::<u128>();
            let before = bytes_in();
            let pause = self.pool.maintain().unwrap_or_default();
            let bytes = bytes_in() - before;
            assert!(
                bytes * 1_000_000_000 <= (pause.as_nanos() + 1) * BYTES_PER_SECOND,
                "{bytes} bytes, then {pause:?}"
            );
            copied += bytes;
            holds(self)
        });
        assert!(copied > 0, "{what}: nothing was copied");
    }
}

#[test]
fn replicas_are_made_again_and_slabs_moved_at_a_bounded_rate() {
    let pages = SLAB_PAGES * 3;
    let (cluster, stored) = Cluster::without_one(pages);
    cluster.paced_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
    cluster.proxies[0].set(Mode::Pass);
    cluster.maintain_until("the node is back", |cluster| !cluster.is_lost(0));
    cluster.nodes[1].node().drain(true);
    cluster.paced_until("no page is left there", |cluster| rows(&cluster.pool)[1].pages == 0);
    stored.check(&cluster.pool);
}

#[test]
fn a_fork_in_the_middle_of_a_rebuild_leaves_both_sides_to_go_on() {
    let pages = SLAB_PAGES * 3;
    let (cluster, stored) = Cluster::without_one(pages);
    let before = cluster.pages();
    assert!(before < pages * 2, "the lost node had no page");
    // A slab takes more steps.
    (0..3).for_each(|_| _ = cluster.pool.maintain());
    assert_eq!(cluster.pages(), before);
    let live_on = |last: usize| {
        cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
        stored.check(&cluster.pool);
        let own = Stored::new(&cluster.pool, 90_000 * last as u64..90_000 * last as u64 + 300);
        [&stored, &own].iter().for_each(|stored| stored.check(&cluster.pool));
    };
    with_fork(&cluster.pool, || live_on(1), || live_on(2));
    // What was made again is right.
    cluster.proxies[1].set(Mode::Dead);
    stored.check(&cluster.pool);
}

#[test]
fn a_slow_node_gets_no_new_pages_where_others_have_room() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 3);
    stored.check(&cluster.pool);
    cluster.proxies[0].set(Mode::Slow);
    let more = cluster.maintained(|| {
        let mut more = None;
        // It is known to be slow when it has been asked, and was late for long enough.
        wait_until("new pages go to the others", || {
            stored.0.iter().for_each(|(at, _)| drop(load(&cluster.pool, &[*at], Priority::Demand)));
            let before = rows(&cluster.pool)[0].pages;
            let new = Stored::new(&cluster.pool, 50_000..50_000 + SLAB_PAGES * 4);
            let is_avoided = rows(&cluster.pool)[0].pages == before;
            if is_avoided {
                more = Some(new)
            } else {
                new.free(&cluster.pool)
            }
            is_avoided
        });
        more.expect("they are stored")
    });
    assert_eq!(rows(&cluster.pool)[0].losses, 0, "slow is not lost");
    cluster.proxies[0].set(Mode::Pass);
    [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool));
}
