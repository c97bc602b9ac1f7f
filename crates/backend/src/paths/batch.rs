//! Batches over several paths: the next path is asked before the answers of one are waited for, in this thread
//! ([`Backend::load_while`](crate::Backend::load_while)), and always in the order of the paths: two threads that wait for each other's connections
//! would wait for ever.

use super::table::Place;
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

/// What is loaded from one path.
pub(super) struct LoadPart<'a> {
    pub(super) path: Entered<'a>,
    /// Which items of the batch these are.
    indices: Vec<usize>,
    items: Vec<LoadItem<'a>>,
}

impl<'a> LoadPart<'a> {
    pub(super) fn new(path: Entered<'a>) -> LoadPart<'a> {
        LoadPart { path, indices: Vec::new(), items: Vec::new() }
    }

    /// Adds an item, number `index` of the batch.
    pub(super) fn add(&mut self, index: usize, item: LoadItem<'a>) {
        self.indices.push(index);
        self.items.push(item);
    }
}

/// The callback for each page.
pub(super) type Done<'a> = &'a mut dyn FnMut(usize, Result<&PageBytes, LoadError>);

/// Loads all parts at once.
pub(super) fn load_parts(parts: &mut [LoadPart<'_>], priority: Priority, done: &RefCell<Done<'_>>) {
    let Some((LoadPart { path, indices, items }, rest)) = parts.split_first_mut() else { return };
    let mut rest = Some(rest).filter(|rest| !rest.is_empty());
    let (mut timed, mut failed) = (path.loads.begin(), false);
    let mut others = || {
        if let Some(rest) = rest.take() {
            timed.elsewhere(|| load_parts(rest, priority, done));
        }
    };
    let mut loaded = |index: usize, result: Result<&PageBytes, LoadError>| {
        failed |= result.is_err();
        done.borrow_mut()(indices[index], result);
    };
    path.backend.load_while(items, priority, &mut loaded, &mut others);
    if !failed {
        timed.end(indices.len());
    }
    // By a path that waits for nothing.
    if let Some(rest) = rest {
        load_parts(rest, priority, done);
    }
}

/// What is stored at one path.
struct StorePart<'a> {
    number: usize,
    path: &'a Entered<'a>,
    indices: Vec<usize>,
    pages: Vec<&'a PageBytes>,
    answers: Vec<Result<Location, StoreError>>,
}

impl StorePart<'_> {
    /// Says where each page is now; returns whether the path has refused one.
    fn conclude(self, out: &mut [Result<Place, StoreError>]) -> bool {
        let mut refused = 0;
        for (index, answer) in self.indices.into_iter().zip(self.answers) {
            if let Err(error) = &answer {
                refused += 1;
                if !matches!(error, StoreError::TooLong { .. }) {
                    self.path.refused(error);
                }
            }
            out[index] = answer.map(|location| Place { path: self.number, location });
        }
        self.path.pages.fetch_sub(refused, SeqCst);
        refused > 0
    }
}

/// Stores all parts at once.
fn store_parts(parts: &mut [StorePart<'_>], longest: Option<usize>, priority: Priority) {
    let Some((StorePart { path, pages, answers, .. }, rest)) = parts.split_first_mut() else { return };
    path.pages.fetch_add(pages.len(), SeqCst);
    let mut rest = Some(rest).filter(|rest| !rest.is_empty());
    let mut timed = path.stores.begin();
    let mut others = || {
        if let Some(rest) = rest.take() {
            timed.elsewhere(|| store_parts(rest, longest, priority));
        }
    };
    match longest {
        None => path.backend.store_while(pages, None, priority, answers, &mut others),
        Some(longest) => path.backend.store_if_short(pages, longest, priority, answers),
    }
    if answers.iter().all(Result::is_ok) {
        timed.end(pages.len());
    }
    if let Some(rest) = rest {
        store_parts(rest, longest, priority);
    }
}

/// Of paths that were never loaded from, but for the first one where that holds for all, a few pages are to show what they are.
fn try_out(paths: &[(usize, Entered<'_>)], speeds: &mut [(usize, u64)]) {
    let is_known = |(_, path): &(usize, Entered<'_>)| path.loads.one_ns() > 0;
    let begins = usize::from(!paths.iter().any(is_known));
    let slowest_ns = speeds.iter().map(|(_, page_ns)| *page_ns).max().unwrap_or(0).max(1);
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
        out: &mut [Result<Place, StoreError>],
    ) {
        self.put_if_short(among, pages, None, priority, out);
    }

    /// The same, of pages alone that take at most `longest` bytes there, if that is said.
    pub(super) fn put_if_short(
        &self,
        among: &[usize],
        pages: &[&PageBytes],
        longest: Option<usize>,
        priority: Priority,
        out: &mut [Result<Place, StoreError>],
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
            let mut choose = |count| match speeds[..] {
                [(only, _)] => vec![only; count],
                _ => lock(&self.spread).choose(&speeds, count),
            };
            let refusing = self.put_parts(&ready, &mut choose, pages, longest, priority, out);
            among.retain(|path| !refusing.contains(path));
        }
    }

    /// Stores what has no place yet at the paths that `choose` says for so many pages, numbers of `paths`; returns those that have refused pages.
    fn put_parts(
        &self,
        paths: &[(usize, Entered<'_>)],
        choose: &mut dyn FnMut(usize) -> Vec<usize>,
        pages: &[&PageBytes],
        longest: Option<usize>,
        priority: Priority,
        out: &mut [Result<Place, StoreError>],
    ) -> Vec<usize> {
        let missing: Vec<usize> = (0..pages.len()).filter(|index| out[*index].is_err()).collect();
        let mut parts: [Option<StorePart<'_>>; PATHS_MAX] = [const { None }; PATHS_MAX];
        for (index, number) in missing.iter().copied().zip(choose(missing.len())) {
            let (_, path) = paths.iter().find(|(other, _)| *other == number).expect("one of those to choose among");
            let new = || StorePart { number, path, indices: Vec::new(), pages: Vec::new(), answers: Vec::new() };
            let part = parts[number].get_or_insert_with(new);
            part.indices.push(index);
            part.pages.push(pages[index]);
            part.answers.push(to_be_stored());
        }
        let mut parts: Vec<StorePart<'_>> = parts.into_iter().flatten().collect();
        parts.sort_by_key(|part| part.path.backend.copies_cost_ram());
        store_parts(&mut parts, longest, priority);
        parts.into_iter().filter_map(|part| Some(part.number).filter(|_| part.conclude(out))).collect()
    }

    /// Frees pages at a path that no row names any more.
    pub(super) fn free_at(&self, path: usize, locations: &[Location]) {
        if let Some(path) = self.enter(path).filter(|_| !locations.is_empty()) {
            path.backend.free(locations);
            path.pages.fetch_sub(locations.len(), SeqCst);
        }
    }
}
