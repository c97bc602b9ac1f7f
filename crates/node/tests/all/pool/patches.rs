//! Pages that are patched: good days, bad ones, forks, and nodes that cannot do it.

use super::*;
use hinterland_backend::{GRANULE_BYTES, GranuleSet, OpenOptions, Patch, open_with};
use hinterland_testkit::{Rng, patient};
use hinterland_wire::Features;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PATCHING: Timing = Timing { sub_page: true, ..TIMING };

/// Pages with their contents, which change.
pub struct Changing {
    at: Vec<Location>,
    pages: Vec<PageBytes>,
    rng: Rng,
    patched: u64,
    anew: u64,
}

impl Changing {
    pub fn new(pool: &dyn Backend, pages: u64, seed: u64) -> Changing {
        let pages: Vec<PageBytes> = (0..pages).map(|page| page_of(seed + page)).collect();
        let at = store(pool, &pages).into_iter().map(|at| at.unwrap_or_else(|error| panic!("{error}"))).collect();
        Changing { at, pages, rng: Rng(seed), patched: 0, anew: 0 }
    }

    /// Changes `granules` of a page.
    fn change(&mut self, index: usize, granules: GranuleSet) {
        for run in granules.runs() {
            for at in run.step_by(GRANULE_BYTES) {
                self.pages[index][at + self.rng.index(GRANULE_BYTES)] ^= 1 + self.rng.next_u64().to_le_bytes()[0] / 2;
            }
        }
    }

    fn any_set(&mut self) -> GranuleSet {
        GranuleSet(u16::try_from(1 + self.rng.below(u16::MAX.into())).expect("16 bits"))
    }

    /// As the pager does: changes some pages, patches them, and stores those anew whose patch was not made.
    pub fn step(&mut self, pool: &dyn Backend, pages: usize) {
        let mut chosen: Vec<usize> = (0..pages).map(|_| self.rng.index(self.at.len())).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let sets: Vec<GranuleSet> = chosen.iter().map(|_| self.any_set()).collect();
        chosen.iter().zip(&sets).for_each(|(index, set)| self.change(*index, *set));
        let patched = self.patch(pool, &chosen, &sets);
        for (index, patched) in chosen.into_iter().zip(patched) {
            if patched {
                self.patched += 1;
                continue;
            }
            self.anew += 1;
            let at = store(pool, &self.pages[index..=index]).remove(0).unwrap_or_else(|error| panic!("{error}"));
            pool.free(&[std::mem::replace(&mut self.at[index], at)]);
        }
    }

    fn patch(&self, pool: &dyn Backend, chosen: &[usize], sets: &[GranuleSet]) -> Vec<bool> {
        let patch = |(index, granules): (&usize, &GranuleSet)| Patch {
            location: self.at[*index],
            page: &self.pages[*index],
            granules: *granules,
        };
        let patches: Vec<Patch<'_>> = chosen.iter().zip(sets).map(patch).collect();
        let mut out = vec![false; patches.len()];
        pool.patch(&patches, Priority::WriteBack, &mut out);
        out
    }

    #[track_caller]
    pub fn check(&self, pool: &dyn Backend) {
        for (index, chunk) in self.at.chunks(60).enumerate() {
            let priority = if index % 2 == 0 { Priority::Demand } else { Priority::Prefetch };
            for (page, loaded) in self.pages[index * 60..].iter().zip(load(pool, chunk, priority)) {
                assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == *page, "a page is wrong");
            }
        }
    }

    pub fn free(self, pool: &dyn Backend) {
        pool.free(&self.at);
    }
}

#[test]
fn what_changed_is_written_at_every_replica_and_nothing_else_travels() {
    for replicas in 1..=3 {
        let cluster = Cluster::with(&[64, 64, 64], replicas, PATCHING);
        let mut pages = Changing::new(&cluster.pool, SLAB_PAGES * 2, 50);
        let before: u64 = rows(&cluster.pool).iter().map(|row| row.sent_bytes).sum();
        (0..20).for_each(|_| pages.step(&cluster.pool, 100));
        assert_eq!(pages.anew, 0);
        let sent = rows(&cluster.pool).iter().map(|row| row.sent_bytes).sum::<u64>() - before;
        let whole = pages.patched * PAGE_BYTES as u64 * replicas as u64;
        assert!(sent > whole / 5 * 2 && sent < whole / 5 * 3, "half of each page changes: {sent} of {whole} bytes");
        pages.check(&cluster.pool);
        assert_eq!(cluster.pages(), SLAB_PAGES * 2 * replicas as u64, "each is where it was");
        // One after the other goes: what is left has all.
        for proxy in &cluster.proxies[1..replicas] {
            proxy.set(Mode::Dead);
            pages.check(&cluster.pool);
        }
    }
}

#[test]
fn a_patch_that_does_not_make_the_page_is_not_made() {
    let cluster = Cluster::with(&[64], 1, PATCHING);
    let mut pages = Changing::new(&cluster.pool, 100, 7);
    let before = pages.pages.clone();
    // One granule more has changed than is said, as where the hashes of two are the same.
    pages.change(3, GranuleSet(0b1011));
    pages.change(4, GranuleSet(0b1000));
    let out = pages.patch(&cluster.pool, &[4, 3], &[GranuleSet(0b1000), GranuleSet(0b0011)]);
    assert_eq!(out, [false, false], "all of a message, or none");
    for (page, loaded) in before.iter().zip(load(&cluster.pool, &pages.at, Priority::Prefetch)) {
        assert!(loaded.expect("stored") == *page, "something was written");
    }
    let out = pages.patch(&cluster.pool, &[3, 4], &[GranuleSet(0b1011), GranuleSet(0b1000)]);
    assert_eq!(out, [true, true]);
    pages.check(&cluster.pool);
    assert!(!cluster.is_lost(0), "the node did nothing wrong");
}

/// Whatever becomes of a patch on its way, no page is wrong, and the replicas agree in the end.
#[test]
fn a_patch_that_is_cut_or_damaged_on_its_way_costs_no_byte() {
    for mode in [Mode::CutPatch, Mode::FlipPatch, Mode::Dead, Mode::Slow] {
        let cluster = Cluster::with(&[64, 64, 64], 2, PATCHING);
        let mut pages = Changing::new(&cluster.pool, SLAB_PAGES, 90);
        (0..3).for_each(|_| pages.step(&cluster.pool, 100));
        assert_eq!(pages.anew, 0);
        // The slab has replicas at two of the nodes.
        let holder = rows(&cluster.pool).iter().position(|row| row.pages > 0).expect("a node has pages");
        cluster.proxies[holder].set(mode);
        cluster.maintained(|| (0..3).for_each(|_| pages.step(&cluster.pool, 100)));
        pages.check(&cluster.pool);
        // A slow node may, or may not, be avoided by then.
        assert!(pages.anew > 0 || mode == Mode::Slow, "{mode:?}: none was stored anew");
        cluster.proxies[holder].set(Mode::Pass);
        cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == SLAB_PAGES * 2);
        (0..3).for_each(|_| pages.step(&cluster.pool, 100));
        pages.check(&cluster.pool);
        cluster.proxies[0].set(Mode::Dead);
        pages.check(&cluster.pool);
    }
}

#[test]
fn pages_are_patched_while_slabs_are_rebuilt_and_nodes_go() {
    let cluster = Cluster::with(&[64, 64, 64], 2, PATCHING);
    let pages: Vec<Changing> = (0..3).map(|seed| Changing::new(&cluster.pool, SLAB_PAGES, 1000 * seed)).collect();
    let steps = AtomicU64::new(0);
    let pages: Vec<Changing> = cluster.maintained(|| {
        std::thread::scope(|scope| {
            let work = |mut pages: Changing| {
                let (pool, steps) = (&cluster.pool, &steps);
                scope.spawn(move || {
                    for _ in 0..60 {
                        pages.step(pool, 40);
                        steps.fetch_add(1, Relaxed);
                    }
                    pages.check(pool);
                    pages
                })
            };
            let threads: Vec<_> = pages.into_iter().map(work).collect();
            wait_until("they are at work", || steps.load(Relaxed) > 20);
            cluster.proxies[2].set(Mode::Dead);
            threads.into_iter().map(|thread| thread.join().expect("no page is wrong")).collect()
        })
    });
    cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == SLAB_PAGES * 6);
    cluster.proxies[0].set(Mode::Dead);
    pages.iter().for_each(|pages| pages.check(&cluster.pool));
    assert!(pages.iter().all(|pages| pages.patched > pages.anew));
}

#[test]
fn neither_side_of_a_fork_sees_what_the_other_patches() {
    let cluster = Cluster::with(&[64, 64], 2, PATCHING);
    let path = std::env::temp_dir().join(format!("hinterland-patches-{}.sock", std::process::id()));
    let endpoint = format!("unix:{}", path.display()).parse().expect("an endpoint");
    let node = Listening::start(&endpoint, Options::new(64 * SLAB_BYTES)).expect("a node");
    let with_views = open(&[format!("{}?sub-page=auto", node.endpoint())]).expect("a pool");
    for pool in [&cluster.pool as &dyn Backend, &*with_views] {
        assert!(pool.patches());
        let mut pages = Changing::new(pool, SLAB_PAGES, 300);
        pages.step(pool, 100);
        let (at, contents) = (pages.at.clone(), pages.pages.clone());
        let live = |seed: u64| {
            let rng = Rng(seed);
            let mut pages = Changing { at: at.clone(), pages: contents.clone(), rng, patched: 0, anew: 0 };
            for _ in 0..10 {
                pages.step(pool, 60);
                pages.check(pool);
            }
            assert!(pages.patched > 0 && pages.anew == 0, "{} patched, {} anew", pages.patched, pages.anew);
        };
        with_fork(pool, || live(1), || live(2));
    }
}

/// A node has no room for a slab of the writer's own: the one that both have is not to be looked at any more, since it stays where it is when
/// there is room.
#[test]
fn a_refused_patch_leaves_no_view_of_what_the_other_side_has() {
    let path = std::env::temp_dir().join(format!("hinterland-refused-{}.sock", std::process::id()));
    let endpoint = format!("unix:{}", path.display()).parse().expect("an endpoint");
    let node = Listening::start(&endpoint, Options::new(SLAB_BYTES)).expect("a node");
    // However long the test takes, pages are copied out of views.
    let timing = Timing { view_silence: Duration::MAX, ..Timing::default() };
    let options = OpenOptions { timing, insecure_loopback: true, answer_limit: patient(), ..OpenOptions::default() };
    let url = format!("{}?sub-page=auto", node.endpoint());
    let pool = open_with(&[url], &options).unwrap_or_else(|error| panic!("{error}"));
    let pages = Changing::new(&*pool, SLAB_PAGES / 2, 400);
    pages.check(&*pool);
    let before = pages.pages.clone();
    let (mut waiting, done) = UnixStream::pair().expect("two sockets");
    let of_parent = done.as_raw_fd();
    let child = || {
        // SAFETY: this process's copy of a descriptor that it does not use: the parent's is the last one, whatever becomes of the parent.
        unsafe { libc::close(of_parent) };
        let _ = waiting.read(&mut [0]);
        for (page, loaded) in before.iter().zip(load(&*pool, &pages.at, Priority::Prefetch)) {
            assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == *page, "the child's page is wrong");
        }
    };
    let at = pages.at.clone();
    let contents = pages.pages.clone();
    let parent = || {
        let mut pages = Changing { at, pages: contents, rng: Rng(1), patched: 0, anew: 0 };
        let set = GranuleSet(0b10);
        pages.change(0, set);
        assert_eq!(pages.patch(&*pool, &[0], &[set]), [false], "there is no room for a copy of the slab");
        node.node().resize(8 * SLAB_BYTES);
        let stored = store(&*pool, &pages.pages[..1]).remove(0).unwrap_or_else(|error| panic!("{error}"));
        pages.at[0] = stored;
        assert_eq!(node.node().figures().copied_slabs, 1, "it was stored in the slab that both had");
        pages.check(&*pool);
        drop(done);
    };
    with_fork(&*pool, child, parent);
}

#[test]
fn a_node_without_the_feature_gets_whole_pages() {
    let cluster = Cluster::with(&[64, 64], 2, PATCHING);
    cluster.proxies[1].limit_features(Features::ALL.without(Features::PATCH));
    Stored::new(&cluster.pool, 0..10).free(&cluster.pool);
    cluster.maintain_until("the node is back", |cluster| rows(&cluster.pool)[1].losses == 1 && !cluster.is_lost(1));
    let mut pages = Changing::new(&cluster.pool, 300, 11);
    (0..3).for_each(|_| pages.step(&cluster.pool, 50));
    assert_eq!(pages.patched, 0);
    pages.check(&cluster.pool);
    assert!(!cluster.is_lost(0) && !cluster.is_lost(1));
}

#[test]
fn blocks_are_not_patched_and_pages_that_do_not_shrink_are() {
    let Cluster { nodes: _nodes, proxies: _proxies, pool } =
        Cluster::with(&[64], 1, PATCHING).compressed(LinkCompression::On);
    let mut pages = Changing::new(&pool, 300, 21);
    (0..10).for_each(|_| pages.step(&pool, 50));
    pages.check(&pool);
    assert!(pages.patched > 0 && pages.anew > 0, "{} patched, {} anew", pages.patched, pages.anew);
}
