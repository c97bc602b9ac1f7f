//! The tests, for a node that listens `anywhere` as the module above says.

use hinterland_backend::{Backend, FullCause, LoadItem, Location, OpenOptions, Priority, StoreError, open_with};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_testkit::contract::{fork_round, fuzz, fuzz_threads, load, page_of, rows, store, usage, with_fork};
use hinterland_testkit::{patient, wait_until};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;

const SLAB_PAGES: usize = 512;
const _: () = assert!(SLAB_BYTES == (SLAB_PAGES * PAGE_BYTES) as u64);

fn node(slabs: u64) -> Listening {
    let anywhere = super::anywhere().parse().expect("an endpoint");
    let options = Options { link_bits_per_second: super::LINK, ..Options::new(slabs * SLAB_BYTES) };
    Listening::start(&anywhere, options).expect("a node")
}

fn opened(urls: &[&str]) -> Arc<dyn Backend> {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    let options = OpenOptions { insecure_loopback: true, answer_limit: patient(), ..OpenOptions::default() };
    open_with(&urls, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn client(node: &Listening) -> Arc<dyn Backend> {
    opened(&[&node.endpoint().to_string()])
}

fn locations(answers: Vec<Result<Location, StoreError>>) -> Vec<Location> {
    answers.into_iter().map(|answer| answer.unwrap_or_else(|error| panic!("{error}"))).collect()
}

#[test]
fn any_mix_of_pages_comes_back() {
    let node = node(1);
    for seed in 0..3 {
        let backend = client(&node);
        assert!(fuzz(&*backend, seed, 800, 3000) > 0, "the limit was never reached");
        assert_eq!(usage(&*backend).pages, 0);
        drop(backend);
        wait_until("the memory of a client that is gone comes back", || node.node().used_bytes() == 0);
    }
}

#[test]
fn threads_share_a_node() {
    let node = node(64);
    fuzz_threads(&*client(&node), 7, 6, 300, 600);
}

#[test]
fn a_slow_link_loses_nothing() {
    let node = node(64);
    let url = format!("{}?jitter_us=300&seed=3&throttle=400M", node.endpoint());
    fuzz_threads(&*opened(&[&url]), 8, 4, 150, 400);
}

#[test]
fn batches_longer_than_a_message() {
    let node = node(8);
    let backend = client(&node);
    let pages: Vec<PageBytes> = (0..1000).map(page_of).collect();
    let at = locations(store(&*backend, &pages));
    for priority in [Priority::Demand, Priority::Prefetch, Priority::WriteBack] {
        for (index, loaded) in load(&*backend, &at, priority).into_iter().enumerate() {
            assert!(loaded.expect("stored") == pages[index], "page {index} as {priority:?}");
        }
    }
    let mut buffers = vec![[0u8; PAGE_BYTES]; 200];
    let mut items: Vec<_> =
        at.iter().rev().zip(&mut buffers).map(|(location, into)| LoadItem { location: *location, into }).collect();
    let mut order = Vec::new();
    backend.load(&mut items, Priority::Demand, &mut |index, result| {
        assert!(result.is_ok());
        order.push(index);
    });
    assert_eq!(order[0], 0);
}

#[test]
fn a_full_node_and_a_used_up_quota_refuse_politely() {
    let node = node(2);
    let backend = client(&node);
    let pages: Vec<PageBytes> = (0..SLAB_PAGES as u64 * 2 + 30).map(page_of).collect();
    let answers = store(&*backend, &pages);
    let (room, bytes) = (SLAB_PAGES * 2, 2 * SLAB_BYTES);
    assert!(answers[..room].iter().all(Result::is_ok));
    let cause = FullCause::Others("takes no more: the node has leased all that it lends".into());
    let full = StoreError::Full { url: node.endpoint().to_string(), cause, used_bytes: bytes, capacity_bytes: bytes };
    assert!(answers[room..].iter().all(|answer| answer.as_ref() == Err(&full)), "{:?}", answers[room]);
    let at = locations(answers.into_iter().take(room).collect());
    for (index, loaded) in load(&*backend, &at, Priority::Prefetch).into_iter().enumerate() {
        assert!(loaded.expect("stored") == pages[index], "page {index}");
    }
    backend.free(&at[..10]);
    assert!(store(&*backend, &pages[..10]).iter().all(Result::is_ok));
    drop(backend);
    wait_until("the memory comes back", || node.node().used_bytes() == 0);
    let small = opened(&[&format!("{}?size=2M", node.endpoint())]);
    let answers = store(&*small, &pages);
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), SLAB_PAGES);
    assert_eq!(usage(&*small).capacity_bytes, SLAB_BYTES);
    assert!(store(&*client(&node), &pages[..SLAB_PAGES]).iter().all(Result::is_ok), "room that the quota left");
}

#[test]
fn slabs_without_pages_go_back() {
    let node = node(16);
    let backend = client(&node);
    let pages: Vec<PageBytes> = (0..SLAB_PAGES as u64 * 8).map(page_of).collect();
    let at = locations(store(&*backend, &pages));
    assert_eq!(node.node().used_bytes(), 8 * SLAB_BYTES);
    backend.free(&at);
    let again = locations(store(&*backend, &pages[..1]));
    assert!(node.node().used_bytes() <= 2 * SLAB_BYTES, "{} bytes are kept", node.node().used_bytes());
    assert!(load(&*backend, &again, Priority::Demand).remove(0).expect("stored") == pages[0]);
}

#[test]
fn forked_processes_go_on_by_themselves() {
    let node = node(64);
    fork_round(&*client(&node), 1, 2);
    assert!(node.node().figures().copied_slabs > 0, "nobody wrote to a slab that was shared");
    // The first write comes after the fork, on both sides.
    let fresh = client(&node);
    with_fork(&*fresh, || fork_round(&*fresh, 6, 1), || fork_round(&*fresh, 7, 1));
    drop(fresh);
    wait_until("the memory of all comes back", || node.node().used_bytes() == 0);
}

#[test]
fn tiers_go_on_in_both() {
    let node = node(64);
    let tiers = opened(&["compressed:256K", &node.endpoint().to_string()]);
    fork_round(&*tiers, 5, 2);
    fuzz_threads(&*tiers, 11, 4, 200, 500);
    assert!(rows(&*tiers)[1].bytes_in > 0, "nothing went down");
}

fn sealed(urls: &[String]) -> Arc<dyn Backend> {
    let options =
        OpenOptions { encrypt: true, insecure_loopback: true, answer_limit: patient(), ..OpenOptions::default() };
    open_with(urls, &options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn sealed_pages_are_shared_by_forked_processes() {
    let node = node(64);
    let url = node.endpoint().to_string();
    fork_round(&*sealed(std::slice::from_ref(&url)), 1, 2);
    fuzz_threads(&*sealed(&["compressed:256K".to_owned(), url]), 9, 4, 200, 400);
}

/// Bits flip on the way: what has another tag is asked for once more.
#[test]
fn sealed_pages_of_a_wrong_replica_are_repaired() {
    let (one, two) = (node(64), node(64));
    let url = format!("{},{}?replicas=2&fault=flip:0.3&seed=4", one.endpoint(), two.endpoint());
    let backend = sealed(&[url]);
    let pages: Vec<PageBytes> = (0..200).map(page_of).collect();
    let at = locations(store(&*backend, &pages));
    for (index, loaded) in load(&*backend, &at, Priority::Prefetch).into_iter().enumerate() {
        assert!(loaded.expect("the nodes have it right") == pages[index], "page {index}");
    }
}

#[test]
fn a_node_that_stops_is_lost_and_says_so() {
    let node = node(8);
    let backend = client(&node);
    let pages: Vec<PageBytes> = (0..100).map(page_of).collect();
    let at = locations(store(&*backend, &pages));
    let endpoint = node.endpoint().to_string();
    node.stop();
    // Where slabs are shared, loads do without the node until it has been silent for a while; they are right, or fail.
    wait_until("its silence is noticed", || {
        let answers = load(&*backend, &at, Priority::Demand);
        for (answer, page) in answers.iter().zip(&pages) {
            assert!(answer.as_ref().map_or_else(|_| true, |loaded| loaded == page), "wrong bytes");
        }
        answers.iter().all(Result::is_err)
    });
    for answer in load(&*backend, &at, Priority::Demand) {
        let error = answer.expect_err("the node is gone").to_string();
        assert!(error.starts_with(&format!("the memory node {endpoint} is lost: ")), "{error}");
    }
    assert!(matches!(store(&*backend, &pages)[0], Err(StoreError::Lost { .. })));
}
