//! Pools of nodes: good days, and bad ones that check every byte. What goes wrong is made by a proxy before each node.

mod alone;
mod compressed;
mod copies;
mod drains;
mod hedged;
mod membership;
mod neighbours;
mod patches;
mod races;
mod recalls;
mod removals;
mod schedules;
mod spread;
mod stripes;

use hinterland_backend::{
    Backend, LinkCompressed, LinkCompression, LoadError, LoadItem, Location, NodePool, Priority, StoreError, Timing,
    open,
};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_testkit::contract::{fork_round, fuzz, fuzz_threads, load, page_of, rows, store, with_fork};
use hinterland_testkit::proxy::{Mode, Proxy};
use hinterland_testkit::{HANG, maintain_until, maintained, wait_until};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLAB_PAGES: u64 = 512;

/// Pauses that a test need not wait for.
const TIMING: Timing = Timing {
    refused: Duration::from_millis(20),
    damaged: Duration::from_millis(20),
    view_silence: Duration::from_millis(50),
    step: Duration::from_millis(2),
    idle_step: Duration::from_millis(5),
    ping: Duration::from_millis(5),
    recall: Duration::from_millis(5),
    fresh: Duration::from_secs(3),
    return_min: Duration::from_millis(2),
    return_max: Duration::from_millis(50),
    return_limit: Duration::from_millis(300),
    lease_ms: 200,
    rebuild_bytes_per_second: 256 << 20,
    share: hinterland_backend::LinkShare::Auto,
    sub_page: false,
    lanes: hinterland_backend::DEMAND_LANES,
};

/// As `TIMING`, where something must hold while a refusal is believed.
const BELIEVING: Timing = Timing { refused: Duration::from_secs(600), ..TIMING };

/// Nodes behind proxies, and a pool of them, or what is around that.
struct Cluster<P = NodePool> {
    nodes: Vec<Listening>,
    proxies: Vec<Proxy>,
    pool: P,
}

fn start_node(slabs: u64) -> Listening {
    start_node_on(None, slabs)
}

/// On a link that replies take turns on, if it is said how fast that is.
fn start_node_on(link: Option<u64>, slabs: u64) -> Listening {
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    // A thread of the pool that gets no processor in the middle of a message is not what these limits are for.
    let options = Options {
        link_bits_per_second: link,
        handshake_limit: HANG,
        request_limit: HANG,
        stall_limit: HANG,
        ..Options::new(slabs * SLAB_BYTES)
    };
    Listening::start(&anywhere, options).expect("a node")
}

fn address(node: &Listening) -> SocketAddr {
    node.endpoint().address().expect("an address")
}

impl Cluster {
    fn new(slabs: &[u64], replicas: usize) -> Cluster {
        Cluster::with(slabs, replicas, TIMING)
    }

    fn with(slabs: &[u64], replicas: usize, timing: Timing) -> Cluster {
        Cluster::of(slabs.iter().map(|slabs| start_node(*slabs)).collect(), replicas, timing)
    }

    fn of(nodes: Vec<Listening>, replicas: usize, timing: Timing) -> Cluster {
        Cluster::made(nodes, None, replicas, timing)
    }

    /// A pool that begins while one of its nodes is not there, if `absent` says so.
    fn made(nodes: Vec<Listening>, absent: Option<usize>, replicas: usize, timing: Timing) -> Cluster {
        let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::start(address(node))).collect();
        absent.iter().for_each(|absent| proxies[*absent].set(Mode::Dead));
        let addresses = proxies.iter().map(Proxy::node).collect();
        let pool = NodePool::new("the pool".into(), addresses, 0, replicas, timing);
        let pool = pool.unwrap_or_else(|(url, error)| panic!("{url}: {error}"));
        Cluster { nodes, proxies, pool }
    }

    /// The same with link compression.
    fn compressed(self, mode: LinkCompression) -> Cluster<LinkCompressed> {
        let Cluster { nodes, proxies, pool } = self;
        Cluster { nodes, proxies, pool: LinkCompressed::new(Arc::new(pool), "the pool".into(), mode) }
    }
}

impl<P: Backend> Cluster<P> {
    /// Pages in the nodes, each replica counted.
    fn pages(&self) -> u64 {
        rows(&self.pool).iter().map(|row| row.pages).sum()
    }

    /// Maintains the pool until `holds`.
    fn maintain_until(&self, what: &str, holds: impl Fn(&Cluster<P>) -> bool) {
        maintain_until(&self.pool, what, || holds(self));
    }

    /// Maintains the pool in a thread of its own while `work` runs.
    fn maintained<R>(&self, work: impl FnOnce() -> R) -> R {
        maintained(&self.pool, work)
    }

    fn is_lost(&self, index: usize) -> bool {
        rows(&self.pool)[index].capacity_bytes == 0
    }
}

/// Pages, and where they are.
struct Stored(Vec<(Location, u64)>);

impl Stored {
    fn new(pool: &dyn Backend, seeds: std::ops::Range<u64>) -> Stored {
        let mut held = Vec::new();
        let seeds: Vec<u64> = seeds.collect();
        for seeds in seeds.chunks(100) {
            let pages: Vec<PageBytes> = seeds.iter().map(|seed| page_of(*seed)).collect();
            let answers =
                store(pool, &pages).into_iter().map(|answer| answer.unwrap_or_else(|error| panic!("{error}")));
            held.extend(answers.zip(seeds.iter().copied()));
        }
        Stored(held)
    }

    /// Loads all in batches and some one by one, and checks every byte.
    fn check(&self, pool: &dyn Backend) {
        for (index, chunk) in self.0.chunks(60).enumerate() {
            let at: Vec<Location> = chunk.iter().map(|(location, _)| *location).collect();
            let priority = if index % 2 == 0 { Priority::Demand } else { Priority::Prefetch };
            for ((_, seed), loaded) in chunk.iter().zip(load(pool, &at, priority)) {
                assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(*seed), "page {seed}");
            }
            let loaded = load(pool, &at[..1], Priority::Demand).remove(0);
            assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(chunk[0].1), "page {}", chunk[0].1);
        }
    }

    /// Loads all with one call and checks every byte; does `meanwhile` when the first page has come.
    fn check_while(&self, pool: &dyn Backend, meanwhile: impl FnOnce()) {
        let mut buffers = vec![[0; PAGE_BYTES]; self.0.len()];
        let mut items: Vec<LoadItem<'_>> = self
            .0
            .iter()
            .zip(&mut buffers)
            .map(|((location, _), into)| LoadItem { location: *location, into })
            .collect();
        let (mut arrived, mut meanwhile) = (0, Some(meanwhile));
        pool.load(&mut items, Priority::Demand, &mut |index, page| {
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            arrived += 1;
            assert!(*page.unwrap_or_else(|error| panic!("{error}")) == page_of(self.0[index].1), "page {index}");
        });
        assert_eq!(arrived, self.0.len());
    }

    fn free(self, pool: &dyn Backend) {
        pool.free(&self.0.iter().map(|(location, _)| *location).collect::<Vec<_>>());
    }
}

#[test]
fn any_mix_of_pages_comes_back_with_any_number_of_replicas() {
    for replicas in 1..=3 {
        let cluster = Cluster::new(&[6, 6, 6], replicas);
        let refused = fuzz(&cluster.pool, replicas as u64, 600, 8000 / replicas);
        assert_eq!(cluster.pages(), 0, "with {replicas} replicas, {refused} refused");
    }
    fuzz_threads(&Cluster::new(&[64, 64, 64], 2).pool, 3, 4, 150, 400);
}

#[test]
fn each_page_is_on_as_many_nodes_as_are_wanted_and_slabs_go_where_there_is_room() {
    let cluster = Cluster::new(&[4, 40, 4], 2);
    // With more than three slabs, several would be filled at a time, and not be full.
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 3);
    let rows = rows(&cluster.pool);
    assert_eq!(rows.iter().map(|row| row.pages).sum::<u64>(), SLAB_PAGES * 6);
    assert!(rows[1].pages >= SLAB_PAGES * 2, "the node with most room has {} pages", rows[1].pages);
    assert!(rows.iter().all(|row| row.pages > 0 && row.capacity_bytes > 0), "{rows:?}");
    for (row, node) in rows.iter().zip(&cluster.nodes) {
        assert_eq!(row.pages * PAGE_BYTES as u64, node.node().used_bytes());
    }
    stored.check(&cluster.pool);
    stored.free(&cluster.pool);
    assert_eq!(cluster.pages(), 0);
}

#[test]
fn fewer_nodes_than_replicas_and_nodes_that_are_away() {
    let nodes: Vec<Listening> = (0..2).map(|_| start_node(8)).collect();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let urls = |replicas: usize| {
        let mut names: Vec<String> = nodes.iter().map(|node| node.endpoint().to_string()).collect();
        names.push(format!("tcp://{nobody}"));
        vec![format!("{}?replicas={replicas}", names.join(","))]
    };
    let refused = open(&urls(4)).err().map(|error| error.to_string()).expect("refused");
    assert!(refused.contains("4 replicas need 4 nodes, and here are 3"), "{refused}");
    let refused = open(&urls(3)).err().map(|error| error.to_string()).expect("refused");
    assert!(refused.contains(&nobody.to_string()) && refused.contains("Connection refused"), "{refused}");
    let two = open(&urls(2)).unwrap_or_else(|error| panic!("{error}"));
    assert!(two.needs_maintenance(), "the third is to be tried again");
    fuzz(&*two, 5, 100, 300);
}

#[test]
fn a_killed_node_costs_no_byte_and_its_replicas_are_made_again() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    let pages = SLAB_PAGES * 3 + 70;
    let stored = Stored::new(&cluster.pool, 0..pages);
    let bytes_in = || rows(&cluster.pool).iter().map(|row| row.bytes_in).sum::<u64>();
    let before = bytes_in();
    cluster.maintained(|| {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let pool = &cluster.pool;
                scope.spawn(move || fuzz(pool, 70 + thread, 250, 600));
            }
            wait_until("they are at work", || bytes_in() > before);
            cluster.proxies[0].set(Mode::Dead);
            stored.check(&cluster.pool);
        });
    });
    cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
    let after = rows(&cluster.pool);
    assert_eq!((after[0].pages, after[0].capacity_bytes, after[0].losses), (0, 0, 1));
    assert!(after[1].rebuilt_pages + after[2].rebuilt_pages > 0, "{after:?}");
    // So one more may go.
    cluster.proxies[1].set(Mode::Dead);
    stored.check(&cluster.pool);
    let more = Stored::new(&cluster.pool, pages..pages + 50);
    more.check(&cluster.pool);
    cluster.proxies[2].set(Mode::Dead);
    let lost = load(&cluster.pool, &[stored.0[0].0], Priority::Demand).remove(0).expect_err("no node is left");
    let named = |url: &str| cluster.proxies.iter().any(|proxy| proxy.url() == url);
    assert!(matches!(&lost, LoadError::Lost { url, .. } if named(url)), "{lost}");
    let refused = store(&cluster.pool, &[page_of(1)]).remove(0).expect_err("no node is left");
    assert!(matches!(&refused, StoreError::Lost { url, .. } if named(url)), "{refused}");
}

#[test]
fn without_replicas_the_pages_of_a_lost_node_are_lost_and_say_whose_fault_it_is() {
    let cluster = Cluster::new(&[64, 64], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 6);
    let there = rows(&cluster.pool)[0].pages;
    assert!(!cluster.pool.has_losses());
    cluster.proxies[0].set(Mode::Dead);
    let at: Vec<Location> = stored.0.iter().map(|(location, _)| *location).collect();
    let mut lost = 0;
    for (loaded, (location, seed)) in load(&cluster.pool, &at, Priority::Prefetch).into_iter().zip(&stored.0) {
        assert_eq!(cluster.pool.has_losses() && cluster.pool.has_lost(*location), loaded.is_err());
        match loaded {
            Ok(page) => assert!(page == page_of(*seed)),
            Err(LoadError::Lost { url, .. }) => {
                assert_eq!(url, cluster.proxies[0].url());
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost > 0 && lost == there, "{lost} of {there}");
    // What is stored from now on goes to the other one.
    Stored::new(&cluster.pool, 9000..9100).check(&cluster.pool);
}

#[test]
fn a_stopped_node_is_passed_by_and_used_again_when_it_goes_on() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    let pages = SLAB_PAGES * 2;
    let stored = Stored::new(&cluster.pool, 0..pages);
    stored.check(&cluster.pool);
    cluster.proxies[1].silence();
    cluster.maintained(|| {
        stored.check(&cluster.pool);
        Stored::new(&cluster.pool, 5000..5200).free(&cluster.pool);
    });
    cluster.maintain_until("the stopped node is lost", |cluster| cluster.is_lost(1));
    cluster.maintain_until("replicas elsewhere", |cluster| cluster.pages() == pages * 2);
    stored.check(&cluster.pool);
    cluster.proxies[1].set(Mode::Pass);
    cluster.maintain_until("the node is back", |cluster| !cluster.is_lost(1));
    let more = Stored::new(&cluster.pool, 6000..6000 + SLAB_PAGES * 8);
    assert!(rows(&cluster.pool)[1].pages > 0, "the node is not used again");
    more.check(&cluster.pool);
    stored.check(&cluster.pool);
}

#[test]
fn a_slow_node_is_avoided() {
    let cluster = Cluster::new(&[64, 64], 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES);
    stored.check(&cluster.pool);
    cluster.proxies[0].set(Mode::Slow);
    let reads = || cluster.nodes.iter().map(|node| node.node().figures().reads).collect::<Vec<u64>>();
    // In the end: a load that waits for a processor makes the other node look slow, too, for a while.
    wait_until("of nine loads, the slow node gets one at most", || {
        let before = reads();
        for (location, seed) in &stored.0 {
            let loaded = load(&cluster.pool, &[*location], Priority::Demand).remove(0).expect("stored");
            assert!(loaded == page_of(*seed));
        }
        let after = reads();
        (after[0] - before[0]) * 8 < after[1] - before[1]
    });
}

#[test]
fn answers_that_are_wrong_in_any_way_are_replaced_by_the_other_nodes() {
    for mode in [Mode::Flip, Mode::Other, Mode::Twice, Mode::Cut] {
        let cluster = Cluster::new(&[64, 64, 64], 2);
        let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 2);
        cluster.proxies[1].set(mode);
        cluster.maintained(|| (0..2).for_each(|_| stored.check(&cluster.pool)));
        cluster.proxies[1].set(Mode::Pass);
        cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == SLAB_PAGES * 4);
        stored.check(&cluster.pool);
    }
}

#[test]
fn a_slab_of_which_pages_are_damaged_is_not_copied_again_at_once() {
    let cluster = Cluster::with(&[8, 8, 8], 2, Timing { damaged: Duration::from_secs(600), ..TIMING });
    let stored = Stored::new(&cluster.pool, 0..100);
    let (holders, others) = cluster.sides();
    let leases = || cluster.nodes[others[0]].node().copies(Instant::now()).sums.leases;
    // What the last replica sends is damaged.
    cluster.proxies[holders[1]].set(Mode::Flip);
    cluster.proxies[holders[0]].set(Mode::Dead);
    cluster.maintain_until("the slab was to be copied", |_| leases() > 0);
    for _ in 0..50 {
        cluster.pool.maintain();
        std::thread::sleep(TIMING.recall);
    }
    assert_eq!((leases(), cluster.nodes[others[0]].node().used_bytes()), (1, 0), "leased once, and returned");
    cluster.proxies[holders[1]].set(Mode::Pass);
    stored.check(&cluster.pool);
}

#[test]
fn a_slab_of_which_one_answer_was_damaged_is_copied_on_at_once() {
    let cluster = Cluster::with(&[8, 8, 8], 2, Timing { damaged: Duration::from_secs(600), ..TIMING });
    let stored = Stored::new(&cluster.pool, 0..100);
    let (holders, others) = cluster.sides();
    // The first that it is asked for are those to copy.
    cluster.proxies[holders[1]].set(Mode::FlipOne);
    cluster.proxies[holders[0]].set(Mode::Dead);
    cluster.maintain_until("the slab is copied", |cluster| rows(&cluster.pool)[others[0]].pages == 100);
    stored.check(&cluster.pool);
}

#[test]
fn a_slab_of_which_no_replica_is_whole_is_copied_from_all_of_them() {
    let cluster = Cluster::with(&[8; 4], 3, Timing { damaged: Duration::from_secs(600), ..TIMING });
    let stored = Stored::new(&cluster.pool, 0..100);
    let (holders, others) = cluster.sides();
    // Of each message, the first page of one is damaged, and the last page of the other.
    cluster.proxies[holders[1]].set(Mode::Flip);
    cluster.proxies[holders[2]].set(Mode::FlipLast);
    cluster.proxies[holders[0]].set(Mode::Dead);
    cluster.maintain_until("the slab is copied", |cluster| rows(&cluster.pool)[others[0]].pages == 100);
    holders.iter().for_each(|holder| cluster.proxies[*holder].set(Mode::Dead));
    stored.check(&cluster.pool);
}

#[test]
fn what_passes_every_checksum_is_repaired_by_who_knows_the_page() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES);
    cluster.proxies.iter().take(2).for_each(|proxy| proxy.set(Mode::Lie));
    let mut repaired = 0;
    for (location, seed) in &stored.0[..64] {
        let right = page_of(*seed);
        let mut page = load(&cluster.pool, &[*location], Priority::Demand).remove(0).expect("it arrives");
        let is_right = |page: &PageBytes| *page == right;
        if !is_right(&page) {
            let there = rows(&cluster.pool);
            let item = LoadItem { location: *location, into: &mut page };
            match cluster.pool.repair(item, &is_right) {
                Ok(()) => assert!(page == right, "page {seed}"),
                // Both replicas lie.
                Err(LoadError::Damaged { .. }) => assert_eq!(there[2].pages, 0, "{there:?}"),
                Err(error) => panic!("{error}"),
            }
            repaired += 1;
        }
    }
    assert!(repaired > 0, "nobody lied");
}

#[test]
fn full_nodes_refuse_and_what_is_freed_is_used_again() {
    let cluster = Cluster::new(&[2, 3, 2], 2);
    let pages: Vec<PageBytes> = (0..SLAB_PAGES * 5).map(page_of).collect();
    let answers = store(&cluster.pool, &pages);
    let held: Vec<Location> = answers.iter().filter_map(|answer| answer.as_ref().ok().copied()).collect();
    // Where one node alone has room, one replica is better than none.
    assert_eq!(held.len() as u64, SLAB_PAGES * 4, "seven slabs hold three twice each, and a fourth once");
    assert_eq!(cluster.pages(), SLAB_PAGES * 7);
    let full = answers.last().expect("some").as_ref().expect_err("full");
    assert!(full.to_string().starts_with("the pool takes no more: "), "{full}");
    assert!(full.to_string().contains(": the node has leased all that it lends"), "{full}");
    cluster.pool.free(&held[..100]);
    assert!(store(&cluster.pool, &pages[..100]).iter().all(Result::is_ok));
}

#[test]
fn a_draining_node_gets_no_new_slabs_and_loses_none() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 4);
    cluster.nodes[0].node().drain(true);
    let before = cluster.nodes[0].node().used_bytes();
    let more = Stored::new(&cluster.pool, 50_000..50_000 + SLAB_PAGES * 6);
    assert_eq!(cluster.nodes[0].node().used_bytes(), before);
    [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool));
    assert!(!cluster.is_lost(0));
}

#[test]
fn a_node_that_was_restarted_is_empty_and_is_filled_again() {
    let mut cluster = Cluster::new(&[64, 64], 2);
    let pages = SLAB_PAGES + 200;
    let stored = Stored::new(&cluster.pool, 0..pages);
    let fresh = start_node(64);
    cluster.proxies[0].replace(address(&fresh));
    cluster.nodes[0] = fresh;
    stored.check(&cluster.pool);
    let late = Stored::new(&cluster.pool, 40_000..40_100);
    cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == (pages + 100) * 2);
    assert!(cluster.nodes[0].node().used_bytes() > 0);
    // Now the new one alone has everything.
    cluster.proxies[1].set(Mode::Dead);
    [&stored, &late].iter().for_each(|stored| stored.check(&cluster.pool));
}

#[test]
fn a_node_that_has_too_many_connections_is_asked_again() {
    let node = start_node(8);
    let proxy = Proxy::start(address(&node));
    proxy.turn_away(3);
    let pool = NodePool::new("the pool".into(), vec![proxy.node()], 0, 1, TIMING);
    let pool = pool.unwrap_or_else(|(url, error)| panic!("{url}: {error}"));
    let stored = Stored::new(&pool, 0..100);
    // The child's first connection.
    proxy.turn_away(3);
    with_fork(&pool, || stored.check(&pool), || ());
    stored.check(&pool);
}

#[test]
fn a_node_that_takes_no_more_connections_serves_on_those_that_there_are() {
    for says_so in [true, false] {
        let cluster = Cluster::new(&[8], 1);
        let stored = Stored::new(&cluster.pool, 0..200);
        match says_so {
            true => cluster.proxies[0].turn_away(usize::MAX),
            false => cluster.proxies[0].take_none(),
        }
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| stored.check(&cluster.pool)))));
        Stored::new(&cluster.pool, 1000..1100).check(&cluster.pool);
        assert_eq!(rows(&cluster.pool)[0].losses, 0, "{says_so}");
    }
}

#[test]
fn forked_processes_go_on_with_every_replica() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    fork_round(&cluster.pool, 3, 2);
    // It leaves some pages behind.
    let before = cluster.pages() / 2;
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 2);
    // The node dies after the fork: both sides find their pages on the others, and rebuild for themselves.
    let live_on = |seed: u64| {
        stored.check(&cluster.pool);
        let own = Stored::new(&cluster.pool, seed..seed + 300);
        let pages = before + stored.0.len() as u64 + 300;
        cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
        [&stored, &own].iter().for_each(|stored| stored.check(&cluster.pool));
        fuzz(&cluster.pool, seed, 60, 200);
    };
    with_fork(
        &cluster.pool,
        || live_on(100_000),
        || {
            cluster.proxies[2].set(Mode::Dead);
            live_on(200_000);
        },
    );
    // And before one.
    cluster.proxies[2].set(Mode::Pass);
    cluster.proxies[0].set(Mode::Dead);
    with_fork(&cluster.pool, || stored.check(&cluster.pool), || stored.check(&cluster.pool));
}
