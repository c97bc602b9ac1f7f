//! What every backend promises: a seeded model test, random stores, loads and frees against a copy of every page, in one process and
//! across forks.

use hinterland_backend::samples::{Kind, Rng, page};
use hinterland_backend::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};

/// An answer that no backend gives: shows that every answer was written.
pub fn unanswered() -> Result<Location, StoreError> {
    Err(StoreError::Device { url: "no answer".into(), errno: 0 })
}

/// Room for a page at an address that direct I/O likes, or one that it does not.
#[repr(align(4096))]
#[derive(Clone)]
struct Room([u8; 2 * PAGE_BYTES]);

impl Room {
    fn page(&mut self, index: usize) -> &mut PageBytes {
        let offset = if index % 3 == 2 { 100 } else { 0 };
        self.0[offset..].first_chunk_mut().expect("two pages of room")
    }
}

/// Stores pages.
pub fn store(backend: &dyn Backend, pages: &[PageBytes]) -> Vec<Result<Location, StoreError>> {
    let mut rooms = vec![Room([0; 2 * PAGE_BYTES]); pages.len()];
    let copied = rooms.iter_mut().enumerate().zip(pages).map(|((index, room), page)| {
        *room.page(index) = *page;
        &*room.page(index)
    });
    let references: Vec<&PageBytes> = copied.collect();
    let mut out = vec![unanswered(); pages.len()];
    backend.store(&references, Priority::WriteBack, &mut out);
    out
}

/// Loads pages; checks that each is answered once and that the bytes handed to `done` are those in the buffer.
pub fn load(backend: &dyn Backend, locations: &[Location], priority: Priority) -> Vec<Result<PageBytes, LoadError>> {
    let mut buffers = vec![[0xa5u8; PAGE_BYTES]; locations.len()];
    let mut items: Vec<LoadItem<'_>> =
        locations.iter().zip(&mut buffers).map(|(location, into)| LoadItem { location: *location, into }).collect();
    let mut answers: Vec<Option<Result<PageBytes, LoadError>>> = vec![None; locations.len()];
    backend.load(&mut items, priority, &mut |index, result| {
        assert!(answers[index].is_none(), "item {index} was answered twice");
        answers[index] = Some(result.copied());
    });
    answers.into_iter().map(|answer| answer.expect("every item is answered")).collect()
}

/// The rows of a backend.
pub fn rows(backend: &dyn Backend) -> Vec<BackendUsage> {
    let mut rows = Vec::new();
    backend.usage(&mut rows);
    rows
}

/// The only row of a backend.
pub fn usage(backend: &dyn Backend) -> BackendUsage {
    let mut rows = rows(backend);
    assert_eq!(rows.len(), 1, "one leaf");
    rows.remove(0)
}

/// A page by its seed; seeds choose the kind, too.
pub fn page_of(seed: u64) -> PageBytes {
    let kind = Kind::ALL[usize::try_from(seed % Kind::ALL.len() as u64).expect("small")];
    page(kind, seed)
}

/// Random operations by one thread on its own pages; frees everything at the end. A full backend is part of the game, and
/// so are errors of a backend that is made to fail: such a load is tried again.
/// Returns how many stores were refused.
pub fn fuzz(backend: &dyn Backend, seed: u64, operations: usize, pages_max: usize) -> usize {
    let faulty = rows(backend).iter().any(|row| row.url.contains("fault="));
    let get = |locations: &[Location], priority| {
        let mut answers = load(backend, locations, priority);
        for (location, answer) in locations.iter().zip(&mut answers).filter(|_| faulty) {
            while answer.is_err() {
                *answer = load(backend, &[*location], Priority::Demand).remove(0);
            }
        }
        answers
    };
    let mut rng = Rng(seed);
    let mut held: Vec<(Location, u64)> = Vec::new();
    let mut refused = 0;
    for _ in 0..operations {
        let count = 1 + rng.index(16);
        match rng.below(10) {
            0..=3 if held.len() < pages_max => {
                let seeds: Vec<u64> = (0..count).map(|_| rng.next_u64() >> 16).collect();
                let pages: Vec<PageBytes> = seeds.iter().map(|seed| page_of(*seed)).collect();
                for (seed, answer) in seeds.iter().zip(store(backend, &pages)) {
                    match answer {
                        Ok(location) => {
                            assert!(location.0 >> Location::BITS == 0, "{location:?} is too large");
                            held.push((location, *seed));
                        }
                        Err(StoreError::Full { .. }) => refused += 1,
                        Err(StoreError::Device { errno: libc::EIO, .. }) if faulty => refused += 1,
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                }
            }
            0..=7 if !held.is_empty() => {
                let start = rng.index(held.len());
                let chosen: Vec<_> = (0..count).map(|step| held[(start + step) % held.len()]).collect();
                let chosen = &chosen[..count.min(held.len())];
                let locations: Vec<Location> = chosen.iter().map(|(location, _)| *location).collect();
                let priority = if rng.below(2) == 0 { Priority::Demand } else { Priority::Prefetch };
                for ((location, seed), loaded) in chosen.iter().zip(get(&locations, priority)) {
                    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
                    assert!(loaded == page_of(*seed), "wrong bytes at {location:?}");
                }
            }
            _ => {
                let count = count.min(held.len());
                let freed: Vec<Location> = (0..count).map(|_| held.swap_remove(rng.index(held.len())).0).collect();
                backend.free(&freed);
            }
        }
    }
    for chunk in held.chunks(50) {
        let locations: Vec<Location> = chunk.iter().map(|(location, _)| *location).collect();
        for ((_, seed), loaded) in chunk.iter().zip(get(&locations, Priority::Demand)) {
            assert!(loaded.expect("a stored page loads") == page_of(*seed));
        }
        backend.free(&locations);
    }
    refused
}

/// Runs `child` in a forked process, between the backend's fork calls, and `parent` meanwhile in this one; fails if the
/// child did.
pub fn with_fork(backend: &dyn Backend, child: impl FnOnce(), parent: impl FnOnce()) {
    backend.before_fork();
    // SAFETY: the child only uses the backend and the allocator, which survives fork, and leaves with _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            backend.after_fork(ForkSide::Child).expect("the child goes on");
            child();
        }));
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    backend.after_fork(ForkSide::Parent).expect("the parent goes on");
    parent();
    let mut status = 0;
    // SAFETY: our own child and a valid pointer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
}

/// A fork where both sides keep reading what was stored before it while they store, free and reuse space.
pub fn fork_round(backend: &dyn Backend, seed: u64, depth: u32) {
    let pages: Vec<PageBytes> = (0..100).map(|step| page_of(seed + step)).collect();
    let shared: Vec<Location> = store(backend, &pages).into_iter().map(|a| a.expect("room")).collect();
    let live_on = |who: u64| {
        for round in 0..10 {
            // Own pages come and go; every other shared page is freed on the way, and must stay intact for the other.
            let own: Vec<PageBytes> = (0..40).map(|step| page_of(seed + (who << 40) + round * 100 + step)).collect();
            let locations: Vec<Location> = store(backend, &own).into_iter().map(|a| a.expect("room")).collect();
            if round == 3 {
                backend.free(
                    &shared.iter().copied().skip(usize::try_from(who).expect("small")).step_by(2).collect::<Vec<_>>(),
                );
            }
            for (page, loaded) in own.iter().zip(load(backend, &locations, Priority::Demand)) {
                assert!(loaded.expect("stored") == *page, "own page, process {who} round {round}");
            }
            let kept: Vec<usize> = (0..100).filter(|i| round < 3 || (*i as u64) % 2 != who % 2).collect();
            let at: Vec<Location> = kept.iter().map(|index| shared[*index]).collect();
            for (index, loaded) in kept.iter().zip(load(backend, &at, Priority::Prefetch)) {
                assert!(loaded.expect("shared") == pages[*index], "shared page {index}, process {who} round {round}");
            }
            backend.free(&locations);
        }
    };
    let nested = || {
        live_on(0);
        if depth > 0 {
            fork_round(backend, seed + 1000, depth - 1);
        }
    };
    with_fork(backend, nested, || live_on(1));
}

/// `fuzz` by several threads at once on one backend.
pub fn fuzz_threads(backend: &dyn Backend, seed: u64, threads: u64, operations: usize, pages_max: usize) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || fuzz(backend, seed * 1000 + thread, operations, pages_max));
        }
    });
}
