//! A backend that says when it is asked, and when it has answered.

use hinterland_backend::{Backend, BackendUsage, LoadError, LoadItem, Location, Priority, StoreError};
use hinterland_units::PageBytes;
use std::sync::Arc;

/// What it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It was asked to store.
    Stores,
    /// It has answered.
    Stored,
    /// It was asked for pages.
    Loads,
    /// It has answered.
    Loaded,
}

/// `inner`, which waits for what it is asked: other work is done after it was asked and before it answers. `tell` is told of both.
pub fn telling(inner: Arc<dyn Backend>, tell: impl Fn(Told) + Send + Sync + 'static) -> Arc<dyn Backend> {
    Arc::new(Telling { inner, tell: Box::new(tell) })
}

struct Telling {
    inner: Arc<dyn Backend>,
    tell: Box<dyn Fn(Told) + Send + Sync>,
}

impl Backend for Telling {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        _: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        (self.tell)(Told::Stores);
        meanwhile();
        self.inner.store(pages, priority, out);
        meanwhile();
        (self.tell)(Told::Stored);
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        (self.tell)(Told::Loads);
        meanwhile();
        self.inner.load(items, priority, done);
        meanwhile();
        (self.tell)(Told::Loaded);
    }

    fn free(&self, locations: &[Location]) {
        self.inner.free(locations);
    }

    fn copies_cost_ram(&self) -> bool {
        self.inner.copies_cost_ram()
    }

    fn ram_bytes(&self) -> u64 {
        self.inner.ram_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        self.inner.usage(rows);
    }
}
