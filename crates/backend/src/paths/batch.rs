//! Batches over several paths, loads and stores: the next path is asked before the answers of one are waited for, in this thread
//! ([`Backend::load_while`](crate::Backend::load_while)), and always in the order of the paths: two threads that wait for each other's connections
//! would wait for ever.

use super::path::Path;
use super::table::PathLocation;
use super::{Entered, PATHS_MAX, Paths};
use crate::sync::lock;
use crate::{LoadError, LoadItem, Location, Priority, StoreError};
use hinterland_abi::PlacementName;
use hinterland_units::PageBytes;
use std::cell::RefCell;
use std::sync::atomic::Ordering::SeqCst;

/// Of so many pages a path of which nothing is known gets one.
const TRIED_OUT: u64 = 32;

/// A page that was not stored yet.
pub(super) fn to_be_stored<T>() -> Result<T, StoreError> {
    Err(StoreError::Device { url: String::new(), errno: 0 })
}

/// The callback for each page that is loaded.
pub(super) type Done<'a> = &'a mut dyn FnMut(usize, Result<&PageBytes, LoadError>);

/// What one path is asked for in a batch.
pub(super) struct Part<'a> {
    number: usize,
    path: &'a Path,
    priority: Priority,
    /// Which items of the batch these are.
    indices: Vec<usize>,
    work: Work<'a>,
}

enum Work<'a> {
    Load(Vec<LoadItem<'a>>),
    Store { pages: Vec<&'a PageBytes>, bytes_max: Option<usize>, answers: Vec<Result<Location, StoreError>> },
}

impl<'a> Part<'a> {
    /// A load from path `number`, of nothing yet.
    pub(super) fn load(number: usize, path: &'a Path, priority: Priority) -> Part<'a> {
        Part { number, path, priority, indices: Vec::new(), work: Work::Load(Vec::new()) }
    }

    /// A store at path `number`, of nothing yet.
    fn store(number: usize, path: &'a Path, bytes_max: Option<usize>, priority: Priority) -> Part<'a> {
        let work = Work::Store { pages: Vec::new(), bytes_max, answers: Vec::new() };
        Part { number, path, priority, indices: Vec::new(), work }
    }

    /// Adds an item to a load, number `index` of the batch.
    pub(super) fn add_item(&mut self, index: usize, item: LoadItem<'a>) {
        let Work::Load(items) = &mut self.work else { unreachable!("items are loaded") };
        items.push(item);
        self.indices.push(index);
    }

    /// Adds a page to a store, number `index` of the batch.
    fn add_page(&mut self, index: usize, page: &'a PageBytes) {
        let Work::Store { pages, answers, .. } = &mut self.work else { unreachable!("pages are stored") };
        pages.push(page);
        answers.push(to_be_stored());
        self.indices.push(index);
    }

    /// Says where each page that was stored is now; returns whether the path has refused one.
    fn conclude(self, out: &mut [Result<PathLocation, StoreError>]) -> bool {
        let Work::Store { answers, .. } = self.work else { return false };
        let mut refused = 0;
        for (index, answer) in self.indices.into_iter().zip(answers) {
            if let Err(error) = &answer {
                refused += 1;
                if !matches!(error, StoreError::Incompressible { .. }) {
                    self.path.refused(error);
                }
            }
            out[index] = answer.map(|location| PathLocation { path: self.number, location });
        }
        self.path.pages.fetch_sub(refused, SeqCst);
        refused > 0
    }
}

/// Carries all parts out at once, in the one order in which paths are nested. `done` gets what is loaded.
pub(super) fn carry_out(parts: &mut [Part<'_>], done: &RefCell<Done<'_>>) {
    // What waits for nothing works while the others wait.
    parts.sort_by_key(|part| (part.path.backend.copies_cost_ram(), part.number));
    carry_out_nested(parts, done);
}

fn carry_out_nested(parts: &mut [Part<'_>], done: &RefCell<Done<'_>>) {
    let Some((Part { path, priority, indices, work, .. }, rest)) = parts.split_first_mut() else { return };
    let speed = if matches!(work, Work::Load(_)) { &path.loads } else { &path.stores };
    let mut rest = Some(rest).filter(|rest| !rest.is_empty());
    let mut timed = speed.begin(indices.len());
    let mut others = || {
        if let Some(rest) = rest.take() {
            timed.elsewhere(|| carry_out_nested(rest, done));
        }
    };
    let mut failed = false;
    match work {
        Work::Load(items) => {
            let mut loaded = |index: usize, result: Result<&PageBytes, LoadError>| {
                failed |= result.is_err();
                done.borrow_mut()(indices[index], result);
            };
            path.backend.load_while(items, *priority, &mut loaded, &mut others);
        }
        Work::Store { pages, bytes_max, answers } => {
            path.pages.fetch_add(pages.len(), SeqCst);
            match bytes_max {
                None => path.backend.store_while(pages, None, *priority, answers, &mut others),
                Some(bytes_max) => path.backend.store_if_compressible(pages, *bytes_max, *priority, answers),
            }
            failed = answers.iter().any(Result::is_err);
        }
    }
    if !failed {
        timed.end();
    }
    // By a path that waits for nothing.
    if let Some(rest) = rest {
        carry_out_nested(rest, done);
    }
}

/// A load that is carried out while pages are stored at other paths, if there is any such page.
pub(super) struct OverlappedLoad<'a, 'b> {
    pub(super) load: Option<Part<'a>>,
    pub(super) done: &'b RefCell<Done<'b>>,
}

/// Of paths that were never loaded from, or for long, but for the first one where that holds for all, a few pages are to show what they are.
fn try_out(paths: &[(usize, Entered<'_>)], speeds: &mut [(usize, u64)]) {
    let is_known = |(_, path): &(usize, Entered<'_>)| path.loads.one_ns() > 0;
    let begins = usize::from(!paths.iter().any(is_known));
    // What was seen of a path long ago does not count.
    let counts = |path: &&(usize, Entered<'_>)| begins > 0 || is_known(path);
    let slowest_ns = paths.iter().filter(counts).map(|(_, path)| path.page_ns()).max().unwrap_or(0).max(1);
    for ((_, page_ns), path) in speeds.iter_mut().zip(paths).skip(begins) {
        if !is_known(path) {
            *page_ns = slowest_ns.saturating_mul(TRIED_OUT);
        }
    }
    if let Some((_, first_ns)) = speeds.first_mut().filter(|_| begins > 0) {
        *first_ns = slowest_ns;
    }
}

impl Paths {
    /// Stores over the paths of `among` what has no place yet, in proportion to their bandwidth; what one refuses goes to another.
    pub(super) fn put(
        &self,
        among: &[usize],
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<PathLocation, StoreError>],
    ) {
        self.put_if_compressible(among, pages, None, priority, out);
    }

    /// The same, of pages alone that take at most `bytes_max` bytes there, if that is said.
    pub(super) fn put_if_compressible(
        &self,
        among: &[usize],
        pages: &[&PageBytes],
        bytes_max: Option<usize>,
        priority: Priority,
        out: &mut [Result<PathLocation, StoreError>],
    ) {
        let mut nothing = |_: usize, _: Result<&PageBytes, LoadError>| ();
        let mut overlapped = OverlappedLoad { load: None, done: &RefCell::new(&mut nothing) };
        self.put_overlapped(among, pages, bytes_max, priority, out, &mut overlapped);
    }

    /// The same; carries out the `overlapped` load, unless there is nothing to store.
    pub(super) fn put_overlapped(
        &self,
        among: &[usize],
        pages: &[&PageBytes],
        bytes_max: Option<usize>,
        priority: Priority,
        out: &mut [Result<PathLocation, StoreError>],
        overlapped: &mut OverlappedLoad<'_, '_>,
    ) {
        let mut among = among.to_vec();
        while out.iter().any(Result::is_err) {
            let open: Vec<(usize, Entered<'_>)> =
                among.iter().filter_map(|path| Some((*path, self.enter(*path)?))).collect();
            let (mut ready, avoided): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, path)| !path.is_avoided());
            if ready.is_empty() {
                ready = avoided;
            }
            if ready.is_empty() {
                return;
            }
            let mut speeds: Vec<(usize, u64)> = ready.iter().map(|(number, path)| (*number, path.page_ns())).collect();
            if self.placement == PlacementName::Auto {
                try_out(&ready, &mut speeds);
            }
            let choose = |count| match speeds[..] {
                [(only, _)] => vec![only; count],
                _ => lock(&self.spread).choose(&speeds, count),
            };
            let missing: Vec<usize> = (0..pages.len()).filter(|index| out[*index].is_err()).collect();
            let mut parts: [Option<Part<'_>>; PATHS_MAX] = [const { None }; PATHS_MAX];
            for (index, number) in missing.iter().copied().zip(choose(missing.len())) {
                let (_, path) = ready.iter().find(|(other, _)| *other == number).expect("one of those to choose among");
                let part = parts[number].get_or_insert_with(|| Part::store(number, path, bytes_max, priority));
                part.add_page(index, pages[index]);
            }
            let mut parts: Vec<Part<'_>> = parts.into_iter().flatten().chain(overlapped.load.take()).collect();
            carry_out(&mut parts, overlapped.done);
            let refusing: Vec<usize> =
                parts.into_iter().filter_map(|part| Some(part.number).filter(|_| part.conclude(out))).collect();
            among.retain(|path| !refusing.contains(path));
        }
    }

    /// Frees pages at a path that no row names any more.
    pub(super) fn free_at(&self, path: usize, locations: &[Location]) {
        if let Some(path) = self.enter(path).filter(|_| !locations.is_empty()) {
            path.backend.free(locations);
            path.pages.fetch_sub(locations.len(), SeqCst);
        }
    }
}
