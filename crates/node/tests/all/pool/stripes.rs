//! Stripes with parity over real nodes, and their bad days.

use super::neighbours::{Neighbours, check_bounds};
use super::schedules::{bad_day, play};
use super::{Stored, TIMING, address, page_of, start_node};
use hinterland_backend::{Backend, Coded, LoadError, NodePool, Priority, open};
use hinterland_node::Listening;
use hinterland_testkit::Rng;
use hinterland_testkit::contract::{fork_round, fuzz, fuzz_threads, load, rows, store};
use hinterland_testkit::proxy::{Mode, Proxy};
use hinterland_testkit::{maintain_until, maintained};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Nodes behind proxies, and stripes over them.
struct Striped {
    nodes: Vec<Listening>,
    proxies: Vec<Proxy>,
    coded: Coded,
}

impl Striped {
    fn new(code: &str, nodes: usize, slabs: u64) -> Striped {
        let nodes: Vec<Listening> = (0..nodes).map(|_| start_node(slabs)).collect();
        let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::start(address(node))).collect();
        let shard = |proxy: &Proxy| {
            NodePool::one_of_several(proxy.node(), 0, TIMING).unwrap_or_else(|(url, error)| panic!("{url}: {error}"))
        };
        let shards = proxies.iter().map(shard).collect();
        Striped { nodes, proxies, coded: Coded::new("stripes".into(), shards, code.parse().expect("a code"), TIMING) }
    }

    /// Maintains the stripes in a thread of its own while `work` runs.
    fn maintained<R>(&self, work: impl FnOnce() -> R) -> R {
        maintained(&self.coded, work)
    }

    /// Maintains until all nodes are back and nothing is lost.
    fn heal(&self) {
        let is_away = || rows(&self.coded).iter().any(|row| row.capacity_bytes == 0);
        maintain_until(&self.coded, "all is repaired", || !is_away() && self.coded.is_repaired());
    }
}

#[test]
fn any_mix_of_pages_comes_back_from_stripes() {
    let striped = Striped::new("2+1", 4, 64);
    fuzz(&striped.coded, 1, 300, 3000);
    fuzz_threads(&striped.coded, 2, 3, 150, 500);
    assert_eq!(rows(&striped.coded).iter().map(|row| row.pages).sum::<u64>(), 0);
}

#[test]
fn stripes_take_the_memory_that_they_promise() {
    let striped = Striped::new("4+2", 6, 64);
    let stored = Stored::new(&striped.coded, 0..2000);
    assert_eq!(rows(&striped.coded).iter().map(|row| row.pages).sum::<u64>(), 3000);
    for row in rows(&striped.coded) {
        assert_eq!(row.pages, 500, "each node has a sixth");
    }
    // Any two of them may go.
    for pair in [[0, 1], [2, 5]] {
        pair.iter().for_each(|node: &usize| striped.proxies[*node].set(Mode::Dead));
        stored.check(&striped.coded);
        pair.iter().for_each(|node: &usize| striped.proxies[*node].set(Mode::Pass));
        striped.heal();
    }
    stored.check(&striped.coded);
    stored.free(&striped.coded);
}

/// A stripe needs as many nodes as it has units: it uses what the drained node has left, then goes without parity, as after a loss.
#[test]
fn stripes_go_on_growing_when_a_node_is_drained_and_get_their_parity_when_that_ends() {
    for resized in [false, true] {
        let striped = Striped::new("2+1", 3, 64);
        let stored = Stored::new(&striped.coded, 0..600);
        if resized {
            striped.nodes[0].node().resize(super::SLAB_BYTES);
        } else {
            striped.nodes[0].node().drain(true);
        }
        let used = striped.nodes[0].node().used_bytes();
        let more = Stored::new(&striped.coded, 10_000..13_000);
        assert_eq!(striped.nodes[0].node().used_bytes(), used);
        [&stored, &more].iter().for_each(|stored| stored.check(&striped.coded));
        assert!(!striped.coded.is_repaired());
        // It may go: what it has can be computed.
        striped.proxies[0].set(Mode::Dead);
        [&stored, &more].iter().for_each(|stored| stored.check(&striped.coded));
        striped.proxies[0].set(Mode::Pass);
        striped.nodes[0].node().drain(false);
        striped.nodes[0].node().resize(64 * super::SLAB_BYTES);
        striped.heal();
        // Now any other one may.
        striped.proxies[1].set(Mode::Dead);
        [&stored, &more].iter().for_each(|stored| stored.check(&striped.coded));
        striped.proxies[1].set(Mode::Pass);
        striped.heal();
        [stored, more].into_iter().for_each(|stored| stored.free(&striped.coded));
        assert_eq!(rows(&striped.coded).iter().map(|row| row.pages).sum::<u64>(), 0);
    }
}

#[test]
fn forked_processes_have_their_stripes() {
    let striped = Striped::new("2+1", 3, 64);
    fork_round(&striped.coded, 7, 1);
}

#[test]
fn random_bad_days_cost_no_byte_of_a_stripe() {
    play(25, random_bad_days);
}

fn random_bad_days(seed: u64) {
    let mut rng = Rng(seed);
    let nodes = if seed.is_multiple_of(2) { 3 } else { 4 };
    let mut striped = Striped::new("2+1", nodes, 64);
    let stored = Stored::new(&striped.coded, 0..50 + rng.below(400));
    for event in 0..3 {
        let victim = rng.index(nodes);
        bad_day(seed, &mut rng, &mut striped.nodes, &striped.proxies, victim);
        let neighbours = (!seed.is_multiple_of(4)).then(|| Neighbours::of(&striped.nodes, seed * 10 + event));
        let over = AtomicBool::new(false);
        striped.maintained(|| {
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    let mut round = 0;
                    while !over.load(Relaxed) {
                        fuzz(&striped.coded, seed * 1000 + event * 100 + round, 20, 100);
                        round += 1;
                    }
                });
                let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stored.check(&striped.coded)));
                striped.proxies[victim].set(Mode::Pass);
                over.store(true, Relaxed);
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
        });
        check_bounds(&striped.nodes);
        drop(neighbours);
        // What nobody has asked for since is found out now.
        stored.check(&striped.coded);
        striped.heal();
    }
    stored.check(&striped.coded);
    stored.free(&striped.coded);
}

#[test]
fn a_page_that_was_changed_at_its_node_is_computed() {
    let striped = Striped::new("2+1", 3, 64);
    let stored = Stored::new(&striped.coded, 0..60);
    striped.proxies[1].set(Mode::Lie);
    let mut wrong = 0;
    for (location, seed) in &stored.0 {
        let loaded = load(&striped.coded, &[*location], Priority::Demand).remove(0);
        if loaded.unwrap_or_else(|error| panic!("{error}")) != page_of(*seed) {
            let mut into = [0; hinterland_units::PAGE_BYTES];
            let item = hinterland_backend::LoadItem { location: *location, into: &mut into };
            striped.coded.repair(item, &|page| *page == page_of(*seed)).unwrap_or_else(|error| panic!("{error}"));
            wrong += 1;
        }
    }
    assert!(wrong > 0, "nothing was wrong");
    striped.proxies[1].set(Mode::Pass);
    striped.heal();
    stored.check(&striped.coded);
}

/// A page whose node answers with its old checksum, as one whose memory has changed does, is no unit of its stripe any more.
#[test]
fn a_page_that_arrived_damaged_is_stored_anew() {
    let striped = Striped::new("2+1", 3, 64);
    let stored = Stored::new(&striped.coded, 0..60);
    let damaged = || rows(&striped.coded)[1].rebuilt_pages;
    striped.proxies[1].set(Mode::Flip);
    for (location, seed) in &stored.0[..4] {
        let loaded = load(&striped.coded, &[*location], Priority::Demand).remove(0);
        assert_eq!(loaded.unwrap_or_else(|error| panic!("{error}")), page_of(*seed));
    }
    striped.proxies[1].set(Mode::Pass);
    assert_eq!(damaged(), 0);
    striped.heal();
    assert!((1..=4).contains(&damaged()), "{} pages were stored anew", damaged());
    stored.check(&striped.coded);
}

#[test]
fn nodes_beyond_parity_are_named() {
    let striped = Striped::new("2+1", 3, 64);
    let stored = Stored::new(&striped.coded, 0..30);
    striped.proxies[0].set(Mode::Dead);
    striped.proxies[1].set(Mode::Dead);
    let errors = stored.0.iter().filter_map(|(at, _)| load(&striped.coded, &[*at], Priority::Demand).remove(0).err());
    let errors: Vec<LoadError> = errors.collect();
    let named = |error: &LoadError| matches!(error, LoadError::Lost { url, .. } if *url == striped.proxies[0].url() || *url == striped.proxies[1].url());
    assert!(errors.len() >= 15 && errors.iter().all(named), "{errors:?}");
    assert!(store(&striped.coded, &[page_of(1), page_of(2)]).iter().all(Result::is_err));
}

#[test]
fn all_nodes_of_stripes_have_to_be_there_at_the_start() {
    let nodes: Vec<Listening> = (0..2).map(|_| start_node(8)).collect();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut names: Vec<String> = nodes.iter().map(|node| node.endpoint().to_string()).collect();
    names.push(format!("tcp://{nobody}"));
    let refused = open(&[format!("{}?erasure=2+1", names.join(","))]).err().map(|error| error.to_string());
    let refused = refused.expect("one is missing");
    assert!(refused.contains(&nobody.to_string()) && refused.contains("Connection refused"), "{refused}");
    let third = start_node(8);
    names[2] = third.endpoint().to_string();
    let stripes = open(&[format!("{}?erasure=2+1", names.join(","))]).unwrap_or_else(|error| panic!("{error}"));
    fuzz(&*stripes, 5, 100, 300);
}
