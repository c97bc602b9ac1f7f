//! Whether a node may be removed now: a node that says yes is killed at that moment, and no page is lost.

use super::patches::Changing;
use super::schedules::{PoolFeatures, play};
use super::{Cluster, SLAB_PAGES, Stored, TIMING, start_node};
use hinterland_backend::{Backend, LinkCompression, Timing};
use hinterland_node::{CopyStatistics, Listening, Options, SLAB_BYTES};
use hinterland_testkit::contract::{rows, with_fork};
use hinterland_testkit::proxy::Mode;
use hinterland_testkit::{Rng, wait_until, wait_until_or};
use hinterland_wire::Removability;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

impl<P> Cluster<P> {
    fn copies(&self, node: usize) -> CopyStatistics {
        self.nodes[node].node().copies(Instant::now())
    }

    fn may_go(&self, node: usize) -> bool {
        self.copies(node).removable
    }
}

impl Cluster {
    fn until_may_go(&self, node: usize) {
        let state = || format!("{node}: {:?}", self.copies(node));
        wait_until_or("the node may be removed", state, || {
            self.pool.maintain();
            self.may_go(node)
        });
    }

    /// Rounds of reports, in which nothing may say that the node can go.
    fn never_may_go(&self, node: usize) {
        for _ in 0..30 {
            self.pool.maintain();
            assert!(!self.may_go(node), "{node}: {:?}", self.copies(node));
            std::thread::sleep(TIMING.recall);
        }
    }
}

#[test]
fn a_node_may_go_when_all_pages_have_another_copy_and_not_before() {
    let cluster = Cluster::new(&[8, 8], 2);
    // Nobody has said anything.
    assert!(!cluster.may_go(0));
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES + 50);
    (0..2).for_each(|node| cluster.until_may_go(node));
    let figures = cluster.copies(0);
    assert_eq!((figures.sums.pages, figures.sums.lacking_pages, figures.sums.last_pages), (SLAB_PAGES + 50, 0, 0));
    cluster.proxies[0].set(Mode::Dead);
    stored.check(&cluster.pool);
    // Now the other one has the last copies.
    wait_until("the other one may not go", || {
        cluster.pool.maintain();
        cluster.copies(1).sums.last_pages == SLAB_PAGES + 50
    });
    cluster.never_may_go(1);
    assert_eq!(cluster.copies(1).sums.lacking_pages, SLAB_PAGES + 50);
    assert!(rows(&cluster.pool)[1].needed && rows(&cluster.pool)[1].last_pages == SLAB_PAGES + 50);
    // Until they are copied back.
    cluster.proxies[0].set(Mode::Pass);
    cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == (SLAB_PAGES + 50) * 2);
    cluster.until_may_go(1);
    assert!(cluster.copies(0).sums.copied_pages >= SLAB_PAGES + 50, "{:?}", cluster.copies(0));
    assert!(!rows(&cluster.pool)[1].needed && rows(&cluster.pool)[0].copied_pages >= SLAB_PAGES + 50);
    cluster.proxies[1].set(Mode::Dead);
    stored.check(&cluster.pool);
}

#[test]
fn after_a_loss_all_other_nodes_are_told_at_once() {
    let cluster = Cluster::new(&[8, 8, 8, 8, 8], 5);
    let stored = Stored::new(&cluster.pool, 0..100);
    let lacking = |node: usize| cluster.copies(node).sums.lacking_pages;
    cluster.maintain_until("each node knows of all copies", |cluster| {
        (0..5).all(|node| cluster.copies(node).sums.pages == 100 && lacking(node) == 0)
    });
    cluster.proxies[0].set(Mode::Dead);
    // A store asks every node.
    Stored::new(&cluster.pool, 1000..1001).free(&cluster.pool);
    assert!(cluster.is_lost(0));
    cluster.pool.maintain();
    assert_eq!([1, 2, 3, 4].map(lacking), [100; 4]);
    stored.check(&cluster.pool);
}

#[test]
fn without_replicas_a_node_may_go_when_it_is_drained_and_empty() {
    let cluster = Cluster::new(&[8, 8], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 3);
    (0..2).for_each(|node| cluster.never_may_go(node));
    cluster.nodes[0].node().drain(true);
    cluster.until_may_go(0);
    assert_eq!(cluster.nodes[0].node().used_bytes(), 0);
    cluster.never_may_go(1);
    stored.check(&cluster.pool);
    // A program that knows of no other node says nothing.
    let alone = Cluster::new(&[8], 1);
    let stored = Stored::new(&alone.pool, 0..10);
    alone.never_may_go(0);
    alone.nodes[0].node().drain(true);
    alone.never_may_go(0);
    assert_eq!(alone.copies(0).unknown_sessions, 1);
    stored.free(&alone.pool);
}

#[test]
fn who_is_silent_is_unknown() {
    let valid = Duration::from_millis(200);
    let node = || {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
        let options = Options { report_valid: valid, ..Options::new(8 * SLAB_BYTES) };
        Listening::start(&anywhere, options).expect("a node")
    };
    let cluster = Cluster::of(vec![node(), node()], 2, TIMING);
    let stored = Stored::new(&cluster.pool, 0..100);
    cluster.until_may_go(0);
    wait_until("what was said is out of date", || !cluster.may_go(0));
    let figures = cluster.copies(0);
    assert_eq!((figures.unknown_sessions, figures.sessions[0].removability), (1, Removability::Unknown));
    cluster.until_may_go(0);
    stored.check(&cluster.pool);
}

#[test]
fn a_forked_child_speaks_for_itself() {
    let cluster = Cluster::new(&[8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..100);
    cluster.until_may_go(0);
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    theirs.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    with_fork(
        &cluster.pool,
        || {
            // It says nothing, as a child that evicts nothing.
            let _ = (&theirs).read_exact(&mut [0]);
            stored.check(&cluster.pool);
        },
        || {
            cluster.never_may_go(0);
            (&ours).write_all(&[1]).expect("the child listens");
        },
    );
    // The child is gone.
    cluster.until_may_go(0);
}

static REMOVED: AtomicU64 = AtomicU64::new(0);

#[test]
fn who_says_that_it_may_go_is_killed_at_that_moment_and_no_page_is_lost() {
    play(100, removed);
    println!("{} nodes were removed", REMOVED.load(Relaxed));
}

/// Nodes are drained, shrunk and used again while threads store, check and free, until one says that it may go: it is killed.
fn removed(seed: u64) {
    let mut rng = Rng(seed);
    let features = PoolFeatures::drawn(seed, &mut rng);
    let count = 2 + rng.index(3);
    let replicas = if rng.below(4) == 0 { 1 } else { 2 };
    let timing = Timing { rebuild_bytes_per_second: 1 << 30, sub_page: features.sub_page, ..TIMING };
    let cluster = Cluster::of((0..count).map(|_| start_node(40)).collect(), replicas, timing);
    match features.compression {
        LinkCompression::Off => remove(seed, rng, replicas, &cluster),
        mode => remove(seed, rng, replicas, &cluster.compressed(mode)),
    }
}

fn remove<P: Backend>(seed: u64, mut rng: Rng, replicas: usize, cluster: &Cluster<P>) {
    let count = cluster.nodes.len();
    let stored = Stored::new(&cluster.pool, 0..50 + rng.below(SLAB_PAGES * 3));
    // Nobody stores or frees at the moment of the kill; whatever the pool does by itself goes on.
    let (moment, over) = (RwLock::new(()), AtomicBool::new(false));
    let work = |thread: u64| {
        let (mut rng, mut held, mut next) = (Rng(seed * 10 + thread), Vec::new(), (thread + 1) << 32);
        let mut changing = cluster.pool.patches().then(|| Changing::new(&cluster.pool, 60, seed * 10 + thread));
        while !over.load(Relaxed) {
            let _busy = moment.read().unwrap_or_else(PoisonError::into_inner);
            changing.iter_mut().for_each(|pages| pages.step(&cluster.pool, 20));
            let pages = 1 + rng.below(200);
            held.push(Stored::new(&cluster.pool, next..next + pages));
            next += pages;
            held[rng.index(held.len())].check(&cluster.pool);
            if held.len() > 5 {
                held.swap_remove(rng.index(held.len())).free(&cluster.pool);
            }
        }
        held.iter().for_each(|stored: &Stored| stored.check(&cluster.pool));
        changing.iter().for_each(|pages| pages.check(&cluster.pool));
    };
    cluster.maintained(|| {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2).map(|thread| scope.spawn(move || work(thread))).collect();
            let victim = remove_one(cluster, seed, &mut rng, replicas, &moment);
            stored.check(&cluster.pool);
            let removed = format!("{seed}: {victim} of {count} was removed");
            println!("  {removed}");
            // The others go on with what it had.
            std::thread::sleep(Duration::from_millis(rng.below(30)));
            over.store(true, Relaxed);
            workers.into_iter().for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        });
        stored.check(&cluster.pool);
    });
}

fn remove_one<P>(cluster: &Cluster<P>, seed: u64, rng: &mut Rng, replicas: usize, moment: &RwLock<()>) -> usize {
    let count = cluster.nodes.len();
    // Those that will lease no more, or hardly any.
    let mut leaving = Vec::new();
    // Without replicas a node has to be emptied first.
    if replicas == 1 || rng.below(2) == 0 {
        let node = rng.index(count);
        println!("  {seed}: drain of {node}");
        cluster.nodes[node].node().drain(true);
        leaving.push(node);
    }
    if replicas > 1 && leaving.len() + 2 < count && rng.below(2) == 0 {
        let node = rng.index(count);
        println!("  {seed}: node {node} lends less");
        cluster.nodes[node].node().resize((1 + rng.below(4)) * SLAB_BYTES);
        leaving.push(node);
    }
    // One has to be left with room.
    let can_be_spared = |node: &usize| (0..count).any(|other| other != *node && !leaving.contains(&other));
    let mut victim = None;
    let state = || format!("{:?}", (0..count).map(|node| cluster.copies(node)).collect::<Vec<_>>());
    wait_until_or("a node may be removed", state, || {
        let first = rng.index(count);
        let mut others = (0..count).map(|step| (first + step) % count).filter(can_be_spared);
        let willing = others.find(|node| cluster.may_go(*node));
        let Some(node) = willing else { return false };
        let _still = moment.write().unwrap_or_else(PoisonError::into_inner);
        let is_so = cluster.may_go(node);
        if is_so {
            cluster.proxies[node].set(Mode::Dead);
            REMOVED.fetch_add(1, Relaxed);
            victim = Some(node);
        }
        is_so
    });
    victim.expect("just found")
}
