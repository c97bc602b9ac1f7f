//! Pages that travel compressed: any mix of them, across forks, rebuilt, sealed, damaged and cut.

use super::*;
use hinterland_backend::samples::{Kind, page};
use hinterland_backend::{OpenOptions, open_with};
use hinterland_testkit::contract::usage;

/// A cluster whose pool is compressed for its links.
struct Compressed {
    _nodes: Vec<Listening>,
    proxies: Vec<Proxy>,
    pool: Arc<dyn Backend>,
}

impl Compressed {
    fn new(nodes: usize, replicas: usize) -> Compressed {
        let Cluster { nodes, proxies, pool } = Cluster::new(&vec![64; nodes], replicas).compressed(LinkCompression::On);
        Compressed { _nodes: nodes, proxies, pool: Arc::new(pool) }
    }

    fn pages(&self) -> u64 {
        rows(&*self.pool).iter().map(|row| row.pages).sum()
    }
}

fn opened(url: String, encrypt: bool) -> Arc<dyn Backend> {
    let options = OpenOptions {
        encrypt,
        insecure_loopback: true,
        answer_limit: hinterland_testkit::patient(),
        ..OpenOptions::default()
    };
    open_with(&[url], &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The pages that a load brings or, where the pager's hash would find them wrong, a repair; `None`: neither has the right bytes.
fn loaded_or_repaired(pool: &dyn Backend, stored: &Stored) -> Vec<Option<PageBytes>> {
    let at: Vec<Location> = stored.0.iter().map(|(location, _)| *location).collect();
    let loaded = load(pool, &at, Priority::Prefetch).into_iter().zip(&stored.0);
    loaded
        .map(|(loaded, (location, seed))| {
            let right = page_of(*seed);
            let mut into = loaded.ok()?;
            if into != right {
                pool.repair(LoadItem { location: *location, into: &mut into }, &|page| *page == right).ok()?;
                assert!(into == right, "page {seed} was repaired to another one");
            }
            Some(into)
        })
        .collect()
}

#[test]
fn any_mix_of_pages_travels_compressed_and_comes_back() {
    for replicas in 1..=2 {
        let cluster = Compressed::new(2, replicas);
        fuzz(&*cluster.pool, 20 + replicas as u64, 500, 4000);
        assert_eq!(cluster.pages(), 0);
        for row in rows(&*cluster.pool) {
            assert_eq!((row.pages, row.plain_pages), (0, 0), "{row:?}");
            assert!(row.sent_bytes < row.bytes_in / 2 && row.received_bytes < row.bytes_out / 2, "{row:?}");
        }
        let stored = Stored::new(&*cluster.pool, 0..600);
        let rows = rows(&*cluster.pool);
        let (pages, plain) = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.pages, sum.1 + row.plain_pages));
        assert_eq!(pages, 600 * replicas as u64);
        // Those of one kind in six do not shrink, nor do some of another.
        assert!(plain >= pages / 6 && plain < pages / 2, "{plain} of {pages}");
        stored.check(&*cluster.pool);
    }
    fuzz_threads(&*Compressed::new(3, 2).pool, 3, 4, 150, 400);
}

#[test]
fn both_sides_of_a_fork_know_how_long_pages_are() {
    let node = start_node(64);
    for encrypt in [false, true] {
        fork_round(&*opened(format!("{}?link-compression=on", node.endpoint()), encrypt), 3, 2);
    }
}

#[test]
fn pages_are_compressed_before_they_are_sealed() {
    let (one, two) = (start_node(64), start_node(64));
    let url = format!("{},{}?replicas=2&link-compression=on", one.endpoint(), two.endpoint());
    let pool = opened(url.clone(), true);
    fuzz(&*pool, 31, 300, 2000);
    for row in rows(&*pool) {
        assert!(row.encrypted && row.sent_bytes < row.bytes_in / 2, "{row:?}");
    }
    // Bits flip on the way: what has another tag is asked for once more.
    let pool = opened(format!("{url}&fault=flip:0.3&seed=4"), true);
    Stored::new(&*pool, 0..300).check(&*pool);
}

#[test]
fn a_slow_link_is_compressed_for_by_itself_unless_pages_do_not_shrink() {
    let node = start_node(64);
    let stored = |kind: Kind, link: &str| {
        let pool = opened(format!("{}?link-compression=auto{link}", node.endpoint()), false);
        let pages: Vec<PageBytes> = (0..256).map(|seed| page(kind, seed)).collect();
        for _ in 0..4 {
            let at: Vec<Location> = store(&*pool, &pages).into_iter().map(|at| at.expect("room")).collect();
            for (page, loaded) in pages.iter().zip(load(&*pool, &at, Priority::Prefetch)) {
                assert!(loaded.expect("stored") == *page);
            }
            pool.free(&at);
        }
        let row = usage(&*pool);
        (row.bytes_in, row.sent_bytes)
    };
    // A page takes 327 µs: whatever else the processors do, it pays.
    let (bytes_in, sent) = stored(Kind::HalfRandom, "&link=50us:100Mb/s");
    assert!(sent < bytes_in / 4 * 3, "{sent} of {bytes_in} bytes were sent");
    let (bytes_in, sent) = stored(Kind::Random, "&link=50us:100Mb/s");
    assert_eq!(sent, bytes_in);
}

#[test]
fn damaged_and_cut_blocks_come_from_the_other_nodes() {
    for mode in [Mode::Flip, Mode::Other, Mode::Twice, Mode::Cut] {
        let cluster = Compressed::new(3, 2);
        let stored = Stored::new(&*cluster.pool, 0..SLAB_PAGES * 2);
        cluster.proxies[1].set(mode);
        maintained(&*cluster.pool, || (0..2).for_each(|_| stored.check(&*cluster.pool)));
        cluster.proxies[1].set(Mode::Pass);
        maintain_until(&*cluster.pool, "two replicas of each page", || cluster.pages() == SLAB_PAGES * 4);
        stored.check(&*cluster.pool);
    }
}

/// A node that lies: its checksums are right, and what it sends expands to another page, or to none.
#[test]
fn a_block_that_passes_every_checksum_is_repaired_or_refused() {
    let cluster = Compressed::new(2, 2);
    let stored = Stored::new(&*cluster.pool, 0..300);
    cluster.proxies[0].set(Mode::Lie);
    let pages = loaded_or_repaired(&*cluster.pool, &stored);
    assert!(pages.iter().all(Option::is_some), "{} pages", pages.iter().flatten().count());
    let cluster = Compressed::new(1, 1);
    let stored = Stored::new(&*cluster.pool, 0..300);
    cluster.proxies[0].set(Mode::Lie);
    // No other node has it: no page is right, and none is said to be.
    let pages = loaded_or_repaired(&*cluster.pool, &stored);
    assert!(pages.iter().flatten().count() < 300 && pages.iter().any(Option::is_none));
    let wrong = load(&*cluster.pool, &[stored.0[0].0], Priority::Demand).remove(0);
    assert!(wrong.is_err() || wrong.is_ok_and(|page| page != page_of(0)));
}

#[test]
fn rebuilt_replicas_have_what_the_lost_ones_had() {
    let cluster = Compressed::new(3, 2);
    let pages = SLAB_PAGES * 3 + 70;
    let stored = Stored::new(&*cluster.pool, 0..pages);
    let sent = || rows(&*cluster.pool).iter().map(|row| row.sent_bytes).sum::<u64>();
    let before = sent();
    cluster.proxies[0].set(Mode::Dead);
    stored.check(&*cluster.pool);
    maintain_until(&*cluster.pool, "two replicas of each page", || cluster.pages() == pages * 2);
    let rebuilt: u64 = rows(&*cluster.pool).iter().map(|row| row.rebuilt_pages).sum();
    assert!(rebuilt > 0 && sent() - before < rebuilt * PAGE_BYTES as u64 / 2, "{} bytes of {rebuilt}", sent() - before);
    cluster.proxies[1].set(Mode::Dead);
    stored.check(&*cluster.pool);
    stored.free(&*cluster.pool);
    let last = &rows(&*cluster.pool)[2];
    assert_eq!((last.pages, last.plain_pages), (0, 0));
}
