//! Pages that leave this process sealed: encrypted and authenticated (AES-256-GCM), around any backend.
//!
//! ```text
//! store:  page ──seal(key, nonce)──► 4096 other bytes ──► backend ──► location;   key, nonce, tag ──► a table here, by location
//! load:   location ──► backend ──► bytes ──open(key, nonce, tag)──► the page, or damage
//! ```
//! Key, nonce and tag stay in this process, so a page is as long as before, and the node or disk that stores it can
//! neither read it nor return another one: a changed page, an older one and one of another place do not match the nonce
//! and tag of this location. Such a page is requested from another copy (`repair`); without one its load fails.
//!
//! **Fork.** The child draws a key of its own before it seals anything, and opens what was sealed before with the keys
//! that it inherited. After an exec the new program draws a key of its own.
//!
//! Source: NIST SP 800-38D (GCM, deterministic nonces §8.2.1).

mod key;
mod seals;

use crate::mapping::PageRoom;
use crate::sync::{Pool, lock};
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Priority, StoreError};
use hinterland_sys::SysError;
use hinterland_units::{PAGE_BYTES, PageBytes};
use seals::{Seal, Seals};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pages that are sealed at once: 512 KiB, two messages to a node.
const BATCH_PAGES: usize = 128;
/// Threads that can seal at once; more wait.
const SEALERS_MAX: usize = 4;
/// Pages that one key seals: 16 TiB, for which an attacker's chance to tell its blocks from random ones is below 2^-47 (the square of
/// 2^40 blocks over 2^128, SP 800-38D §8.3 asks for 2^-32).
const PAGES_OF_A_KEY: u64 = 1 << 32;

const BROKEN: &str = "it is not what was stored there last (wrong tag)";
const UNKNOWN: &str = "nothing is stored there (freed, or never stored)";

/// A backend that gets to see sealed pages only.
pub struct Sealed {
    inner: Arc<dyn Backend>,
    url: String,
    seals: Mutex<Seals>,
    scratch: Pool<Scratch>,
}

/// Room for a batch of sealed pages.
type Scratch = PageRoom<BATCH_PAGES>;

impl Sealed {
    /// Seals what goes to `inner`; `url` names it in messages.
    ///
    /// # Errors
    /// No memory, or no random bytes for a key.
    pub fn new(inner: Arc<dyn Backend>, url: String) -> Result<Sealed, SysError> {
        let seals = Mutex::new(Seals::new(PAGES_OF_A_KEY)?);
        Ok(Sealed { inner, url, seals, scratch: Pool::new(SEALERS_MAX, Scratch::new) })
    }

    fn store_batch(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        sealed: &mut [PageBytes],
        meanwhile: &mut dyn FnMut(),
    ) {
        let ready = match lock(&self.seals).ready(pages.len()) {
            Ok(ready) => ready,
            Err(SysError { errno, .. }) => return out.fill(Err(StoreError::Device { url: self.url.clone(), errno })),
        };
        let mut tags = Vec::with_capacity(pages.len());
        for (index, ((page, sealed), nonce)) in pages.iter().zip(&mut *sealed).zip(ready.first..).enumerate() {
            let sealed = &mut sealed[..bytes.map_or(PAGE_BYTES, |bytes| bytes[index].into())];
            sealed.copy_from_slice(&page[..sealed.len()]);
            tags.push(ready.key.seal(nonce, sealed));
        }
        let sealed: Vec<&PageBytes> = sealed.iter().take(pages.len()).collect();
        self.inner.store_while(&sealed, bytes, priority, out, meanwhile);
        let mut seals = lock(&self.seals);
        for (index, (answer, tag)) in out.iter().zip(tags).enumerate() {
            if let Ok(location) = answer {
                seals.set(location.0, &ready, index, tag);
            }
        }
    }

    /// Opens what was loaded, or another copy of it.
    fn open(&self, seal: Option<&Seal>, bytes: usize, item: &mut LoadItem<'_>) -> Result<(), LoadError> {
        let seal = seal.ok_or_else(|| self.damaged(item.location, UNKNOWN))?;
        if seal.key.open(seal.nonce, seal.tag, &mut item.into[..bytes]) {
            return Ok(());
        }
        self.open_other(seal, bytes, LoadItem { location: item.location, into: item.into }, &|_| true)
    }

    /// Has the page loaded from another place, where its seal is whole and its bytes are `right`.
    fn open_other(
        &self,
        seal: &Seal,
        kept: usize,
        item: LoadItem<'_>,
        right: &dyn Fn(&PageBytes) -> bool,
    ) -> Result<(), LoadError> {
        let LoadItem { location, into } = item;
        let opens = |bytes: &PageBytes| {
            let mut page = Box::new(*bytes);
            seal.key.open(seal.nonce, seal.tag, &mut page[..kept]) && right(&page)
        };
        self.inner.repair(LoadItem { location, into: &mut *into }, &opens).map_err(|error| match error {
            LoadError::Damaged { .. } => self.damaged(location, BROKEN),
            other => other,
        })?;
        if seal.key.open(seal.nonce, seal.tag, &mut into[..kept]) {
            Ok(())
        } else {
            Err(self.damaged(location, BROKEN))
        }
    }

    fn damaged(&self, location: Location, what: &'static str) -> LoadError {
        LoadError::Damaged { url: self.url.clone(), location, what }
    }

    /// Memory of the table, the keys and the rooms.
    fn own_ram_bytes(&self) -> u64 {
        lock(&self.seals).ram_bytes() + self.scratch.made() as u64 * Scratch::RAM_BYTES
    }
}

impl Backend for Sealed {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        for (turn, (pages, out)) in pages.chunks(BATCH_PAGES).zip(out.chunks_mut(BATCH_PAGES)).enumerate() {
            let bytes = bytes.map(|bytes| &bytes[turn * BATCH_PAGES..][..pages.len()]);
            self.scratch.with(|scratch| self.store_batch(pages, bytes, priority, out, scratch.pages(), meanwhile));
        }
    }

    fn keeps_prefixes(&self) -> bool {
        self.inner.keeps_prefixes()
    }

    fn prefix_bytes(&self, locations: &mut dyn Iterator<Item = Location>) -> Vec<usize> {
        self.inner.prefix_bytes(locations)
    }

    fn link_page_ns(&self) -> u64 {
        self.inner.link_page_ns()
    }

    /// Opens when all have arrived: the bytes of a page are not complete before.
    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let seals: Vec<Option<Seal>> = {
            let seals = lock(&self.seals);
            items.iter().map(|item| seals.get(item.location.0)).collect()
        };
        let kept = self.inner.prefix_bytes(&mut items.iter().map(|item| item.location));
        let mut loaded: Vec<Result<(), LoadError>> = vec![Ok(()); items.len()];
        let mut landed = |index: usize, result: Result<&PageBytes, LoadError>| loaded[index] = result.map(drop);
        self.inner.load_while(items, priority, &mut landed, meanwhile);
        for (index, ((item, seal), loaded)) in items.iter_mut().zip(&seals).zip(loaded).enumerate() {
            let opened = loaded.and_then(|()| self.open(seal.as_ref(), kept[index], item));
            done(index, opened.map(|()| &*item.into));
        }
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let seal = lock(&self.seals).get(item.location.0);
        let seal = seal.ok_or_else(|| self.damaged(item.location, UNKNOWN))?;
        let kept = self.inner.prefix_bytes(&mut std::iter::once(item.location));
        self.open_other(&seal, kept[0], item, right)
    }

    fn has_losses(&self) -> bool {
        self.inner.has_losses()
    }

    fn has_lost(&self, location: Location) -> bool {
        self.inner.has_lost(location)
    }

    fn free(&self, locations: &[Location]) {
        // First, because another page may be stored there as soon as the backend knows.
        let mut seals = lock(&self.seals);
        locations.iter().for_each(|location| seals.forget(location.0));
        drop(seals);
        self.inner.free(locations);
    }

    fn descriptors_if_confined(&self) -> Option<Vec<RawFd>> {
        self.inner.descriptors_if_confined()
    }

    fn demand_width(&self) -> usize {
        self.inner.demand_width()
    }

    fn copies_cost_ram(&self) -> bool {
        self.inner.copies_cost_ram()
    }

    fn ram_bytes(&self) -> u64 {
        self.inner.ram_bytes() + self.own_ram_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let first = rows.len();
        self.inner.usage(rows);
        rows[first..].iter_mut().for_each(|row| row.encrypted = true);
        // The table belongs to all; the first row carries it, so that the sum is right.
        rows[first].ram_bytes += self.own_ram_bytes();
    }

    fn needs_maintenance(&self) -> bool {
        self.inner.needs_maintenance()
    }

    fn maintain(&self) -> Option<Duration> {
        self.inner.maintain()
    }

    fn shrink_ram(&self, bytes: u64) -> u64 {
        self.inner.shrink_ram(bytes)
    }

    fn before_fork(&self) {
        self.inner.before_fork();
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        if side == ForkSide::Child {
            let refused = |SysError { errno, .. }| StoreError::Device { url: self.url.clone(), errno };
            lock(&self.seals).renew().map_err(refused)?;
        }
        self.inner.after_fork(side)
    }
}
