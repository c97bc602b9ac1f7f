//! Stored copies that are lost while their pages are local: what is local is all that there is of these pages.

use super::on_both_paths_over;
use crate::State;
use hinterland_backend::{
    Backend, BackendUsage, LoadError, LoadItem, Location, NodeError, Priority, Reference, StoreError,
};
use hinterland_units::{PageBytes, PageNo};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE: PageNo = PageNo(11);

/// Far memory that loses each page as soon as it has given it out once: a node without replicas that dies then.
struct GivesOnce {
    inner: Reference,
    lost: Mutex<BTreeSet<Location>>,
}

pub(super) fn gives_once() -> Arc<dyn Backend> {
    let inner = Reference::new("reference:64M".into(), 64 << 20).unwrap();
    Arc::new(GivesOnce { inner, lost: Mutex::default() })
}

impl GivesOnce {
    fn lost(&self) -> MutexGuard<'_, BTreeSet<Location>> {
        self.lost.lock().unwrap()
    }
}

impl Backend for GivesOnce {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.inner.store(pages, priority, out);
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let is_first: Vec<bool> = items.iter().map(|item| self.lost().insert(item.location)).collect();
        let lost = || LoadError::Lost { url: "the only node".into(), error: NodeError::Closed };
        let mut answer = |index: usize, page: Result<&PageBytes, LoadError>| {
            done(index, if is_first[index] { page } else { Err(lost()) })
        };
        self.inner.load(items, priority, &mut answer);
    }

    fn has_losses(&self) -> bool {
        !self.lost().is_empty()
    }

    fn has_lost(&self, location: Location) -> bool {
        self.lost().contains(&location)
    }

    fn free(&self, locations: &[Location]) {
        locations.iter().for_each(|location| {
            self.lost().remove(location);
        });
        self.inner.free(locations);
    }

    fn copies_cost_ram(&self) -> bool {
        false
    }

    fn ram_bytes(&self) -> u64 {
        self.inner.ram_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        self.inner.usage(rows);
    }
}

#[test]
fn an_unchanged_page_whose_copy_is_lost_is_stored_again() {
    on_both_paths_over(gives_once, |stage| {
        stage.send_far(PAGE, 1);
        for _ in 0..3 {
            stage.check(PAGE, 1);
            stage.evict(PAGE);
            stage.reclaim(&[]);
            assert_eq!(stage.state(PAGE), State::Remote);
            assert_eq!(stage.stored_pages(), 1, "the lost copy is given back");
        }
        stage.check(PAGE, 1);
        assert_eq!(stage.pager.row().evicted_clean_pages.load(Relaxed), 0);
    });
}
