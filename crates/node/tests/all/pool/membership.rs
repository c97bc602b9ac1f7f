//! Pools whose nodes come and go.

use super::schedules::play;
use super::{Cluster, SLAB_PAGES, Stored, TIMING, address, start_node};
use hinterland_backend::{Backend, Membership, NODES_MAX, NodeAddress, NodePool};
use hinterland_testkit::contract::{fuzz, rows};
use hinterland_testkit::proxy::{Mode, Proxy};
use hinterland_testkit::{Rng, maintain_until};
use std::sync::{Arc, Mutex};

/// Who belongs to the pool, as a test says it.
#[derive(Clone, Default)]
struct List(Arc<Mutex<(u64, Vec<NodeAddress>)>>);

impl List {
    fn say<'a>(&self, proxies: impl IntoIterator<Item = &'a Proxy>) {
        self.say_nodes(proxies.into_iter().map(Proxy::node).collect());
    }

    fn say_nodes(&self, nodes: Vec<NodeAddress>) {
        let mut list = self.0.lock().expect("a list");
        *list = (list.0 + 1, nodes);
    }
}

impl Membership for List {
    fn changed_since(&self, seen: u64) -> Option<(u64, Vec<NodeAddress>)> {
        let list = self.0.lock().expect("a list");
        (list.0 != seen).then(|| list.clone())
    }
}

/// A cluster of `nodes` nodes, of which the first `members` belong to the pool.
fn cluster(nodes: usize, members: usize, replicas: usize) -> (Cluster, List) {
    let nodes: Vec<_> = (0..nodes).map(|_| start_node(32)).collect();
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::start(address(node))).collect();
    let list = List::default();
    list.say(&proxies[..members]);
    let pool = follow(&list, replicas);
    (Cluster { nodes, proxies, pool }, list)
}

fn follow(list: &List, replicas: usize) -> NodePool {
    let known = list.changed_since(0).expect("a list");
    let pool = NodePool::following("the pool".into(), Box::new(list.clone()), known, 0, replicas, TIMING);
    pool.unwrap_or_else(|(url, error)| panic!("{url}: {error}"))
}

#[test]
fn a_node_that_joins_takes_the_place_of_one_that_was_lost() {
    let (cluster, list) = cluster(3, 2, 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 3);
    assert_eq!((rows(&cluster.pool).len(), cluster.pages()), (2, SLAB_PAGES * 6));
    cluster.proxies[0].set(Mode::Dead);
    list.say(&cluster.proxies[1..]);
    cluster.maintain_until("all replicas are back", |cluster| {
        let rows = rows(&cluster.pool);
        rows.len() == 3 && rows[2].pages == SLAB_PAGES * 3
    });
    // Nothing is left but what the new node has.
    cluster.proxies[1].set(Mode::Dead);
    stored.check(&cluster.pool);
    stored.free(&cluster.pool);
}

#[test]
fn a_node_that_leaves_is_used_for_as_long_as_it_answers_and_not_looked_for_after_that() {
    let (cluster, list) = cluster(2, 2, 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 4);
    list.say(&cluster.proxies[1..]);
    for _ in 0..20 {
        cluster.pool.maintain();
    }
    stored.check(&cluster.pool);
    assert!(!cluster.is_lost(0) && rows(&cluster.pool)[0].losses == 0);
    stored.free(&cluster.pool);
    cluster.proxies[0].set(Mode::Dead);
    Stored::new(&cluster.pool, 0..SLAB_PAGES * 4).free(&cluster.pool);
    cluster.maintain_until("the node is lost", |cluster| cluster.is_lost(0));
    cluster.proxies[0].set(Mode::Pass);
    // The other is lost later and looked for, as often as a node that belongs is.
    cluster.proxies[1].set(Mode::Dead);
    cluster.maintain_until("the other node is lost", |cluster| cluster.is_lost(1));
    cluster.proxies[1].set(Mode::Pass);
    cluster.maintain_until("the other node is back", |cluster| !cluster.is_lost(1));
    assert!(cluster.is_lost(0));
    list.say(&cluster.proxies);
    cluster.maintain_until("the node is back", |cluster| !cluster.is_lost(0));
}

#[test]
fn a_node_whose_name_stands_for_another_address_is_used_there_when_it_is_lost_at_the_old_one() {
    let nodes = [start_node(32), start_node(32)];
    // The first and the last lead to one node.
    let proxies: Vec<Proxy> = [0, 1, 0].map(|node: usize| Proxy::start(address(&nodes[node]))).into();
    let at = |name: &str, proxy: usize| {
        let url = format!("tcp://{name}=10.0.0.{proxy}:7440");
        NodeAddress { url, ..proxies[proxy].node() }
    };
    let list = List::default();
    list.say_nodes(vec![at("a", 0), at("b", 1)]);
    let pool = follow(&list, 2);
    let stored = Stored::new(&pool, 0..100);
    list.say_nodes(vec![at("a", 2), at("b", 1)]);
    let urls = |pool: &NodePool| rows(pool).into_iter().map(|row| row.url).collect::<Vec<_>>();
    for _ in 0..20 {
        pool.maintain();
    }
    assert_eq!(urls(&pool), ["tcp://a=10.0.0.0:7440", "tcp://b=10.0.0.1:7440"]);
    assert_eq!((proxies[2].connections(), rows(&pool)[0].losses), (0, 0));
    proxies[0].set(Mode::Dead);
    stored.check(&pool);
    maintain_until(&pool, "all replicas are back", || rows(&pool).iter().all(|row| row.pages == 100));
    assert_eq!(urls(&pool), ["tcp://a=10.0.0.2:7440", "tcp://b=10.0.0.1:7440"]);
    proxies[1].set(Mode::Dead);
    stored.check(&pool);
}

#[test]
fn of_more_nodes_than_a_pool_has_places_one_waits_for_a_place() {
    let (cluster, list) = cluster(NODES_MAX + 1, NODES_MAX + 1, 1);
    let last = cluster.proxies[NODES_MAX].url();
    let has_last = |cluster: &Cluster| rows(&cluster.pool).iter().any(|row| row.url == last && row.capacity_bytes > 0);
    for _ in 0..10 {
        cluster.pool.maintain();
    }
    assert!(!has_last(&cluster) && rows(&cluster.pool).len() == NODES_MAX);
    // Who is lost has its place for as long as it belongs.
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 20);
    stored.free(&cluster.pool);
    cluster.proxies[3].set(Mode::Dead);
    for round in 0..40 {
        Stored::new(&cluster.pool, round * 1000..round * 1000 + 600).free(&cluster.pool);
        if cluster.is_lost(3) {
            break;
        }
    }
    cluster.maintain_until("the node is lost", |cluster| cluster.is_lost(3));
    assert!(!has_last(&cluster));
    list.say(cluster.proxies.iter().enumerate().filter(|(index, _)| *index != 3).map(|(_, proxy)| proxy));
    cluster.maintain_until("the waiting node has a place", has_last);
    assert_eq!(rows(&cluster.pool).len(), NODES_MAX);
    Stored::new(&cluster.pool, 0..SLAB_PAGES * 9).check(&cluster.pool);
}

#[test]
fn random_lists_cost_no_byte() {
    play(10, random_lists);
}

/// Keys are removed from the list while their nodes live, or one of them is lost; threads check every byte meanwhile.
fn random_lists(seed: u64) {
    let mut rng = Rng(seed);
    let (cluster, list) = cluster(4, 4, 2);
    let pages = 50 + rng.below(SLAB_PAGES);
    let stored = Stored::new(&cluster.pool, 0..pages);
    for event in 0..3 {
        let removed = rng.below(16);
        let victim = rng.index(4);
        let kind = rng.index(3);
        println!("  {seed}: off the list, as bits: {removed:04b}; {kind} at node {victim}");
        let before = cluster.losses(victim);
        list.say(
            cluster.proxies.iter().enumerate().filter(|(index, _)| removed >> index & 1 == 0).map(|(_, proxy)| proxy),
        );
        cluster.maintained(|| {
            match kind {
                0 => cluster.proxies[victim].set(Mode::Dead),
                1 => cluster.nodes[victim].node().drain(true),
                _ => {}
            }
            fuzz(&cluster.pool, seed * 10 + event, 60, 200);
            stored.check(&cluster.pool);
        });
        cluster.proxies[victim].set(Mode::Pass);
        cluster.nodes[victim].node().drain(false);
        list.say(&cluster.proxies);
        if kind == 0 {
            cluster.until_noticed(victim, before, &stored);
        }
        cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
        cluster.maintain_until("all nodes are there", |cluster| (0..4).all(|node| !cluster.is_lost(node)));
        cluster.steps(12);
        stored.check(&cluster.pool);
    }
}
