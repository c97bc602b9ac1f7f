//! Link compression: pages travel to memory nodes and back as their LZ4 blocks, around a backend that keeps parts of pages.
//!
//! ```text
//! store:  page ──compress──► n bytes ──► backend: the first n bytes of the page's slot, and n;  a page that does not shrink: all of it
//! load:   location ──► backend: n, n bytes ──expand──► the page
//! ```
//! Slots, replicas and rebuilds stay as they are, and the node decides nothing: it keeps bytes. What it spares is time on the link, not memory.
//! Encryption lies within: what is sealed is compressed already.
//!
//! A block that cannot be expanded is damaged, like a page with a wrong checksum: another replica is asked for it. One that expands to another
//! page is found by the pager's hash, which asks `repair`.
//!
//! Source: DaeMon §4.4.

mod break_even;

use crate::codec::{Codec, CodecName, decompress_lz4};
use crate::mapping::PageRoom;
use crate::sync::{Pool, lock};
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Patch, Priority, StoreError};
use break_even::{BreakEven, Decision};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::fmt;
use std::os::fd::RawFd;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Whether pages are compressed for the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkCompression {
    /// Never.
    #[default]
    Off,
    /// Every page that shrinks.
    On,
    /// Where it pays, as measured.
    Auto,
}

impl fmt::Display for LinkCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkCompression::Off => "off",
            LinkCompression::On => "on",
            LinkCompression::Auto => "auto",
        })
    }
}

impl FromStr for LinkCompression {
    type Err = ();

    fn from_str(text: &str) -> Result<LinkCompression, ()> {
        let all = [LinkCompression::Off, LinkCompression::On, LinkCompression::Auto];
        all.into_iter().find(|mode| mode.to_string() == text).ok_or(())
    }
}

/// A page that has more bytes than this when it is compressed is stored as it is: an eighth is the least that is worth expanding it.
const COMPRESSED_BYTES_MAX: usize = PAGE_BYTES / 8 * 7;
/// Pages that are compressed before they are sent: two messages to a node.
const STORE_PAGES: usize = 128;
/// Pages that are asked for at once, for which there is room.
const LOAD_PAGES: usize = 128;
/// Threads that can compress at once; more wait.
const COMPRESSORS_MAX: usize = 4;

const NO_BLOCK: &str = "it cannot be expanded: it changed on its way, or in the node's memory";

/// See the module.
pub struct LinkCompressed {
    inner: Arc<dyn Backend>,
    url: String,
    mode: LinkCompression,
    break_even: Mutex<BreakEven>,
    compressors: Pool<Compressor>,
}

/// A batch, and a page to expand a block into that is looked at alone.
const ROOM_PAGES: usize = STORE_PAGES + 1;

/// A codec, and room for what it makes of a batch.
struct Compressor {
    codec: Codec,
    room: PageRoom<ROOM_PAGES>,
}

impl Compressor {
    fn new() -> Compressor {
        Compressor { codec: Codec::new(CodecName::Lz4), room: PageRoom::new() }
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl LinkCompressed {
    /// Compresses what goes to `inner`, which keeps parts of pages; `url` names it in messages.
    pub fn new(inner: Arc<dyn Backend>, url: String, mode: LinkCompression) -> LinkCompressed {
        assert!(inner.keeps_prefixes(), "{url} keeps whole pages alone");
        let compressors = Pool::new(COMPRESSORS_MAX, Compressor::new);
        LinkCompressed { inner, url, mode, break_even: Mutex::default(), compressors }
    }

    fn store_batch(
        &self,
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        let page_ns = self.inner.link_page_ns();
        let decide = || lock(&self.break_even).decide(self.mode, page_ns);
        let decisions: Vec<Decision> = pages.iter().map(|_| decide()).collect();
        if decisions.iter().all(|decision| *decision == Decision::Whole) {
            return self.inner.store_while(pages, None, priority, out, meanwhile);
        }
        self.compressors.with(|Compressor { codec, room }| {
            let (spare, room) = room.pages().split_last_mut().expect("a page more than a batch has");
            let mut bytes = [0_u16; STORE_PAGES];
            for (index, (page, decision)) in pages.iter().zip(&decisions).enumerate() {
                bytes[index] = self.compress(codec, page, *decision, &mut room[index], spare);
            }
            let is_whole = |index: usize| usize::from(bytes[index]) == PAGE_BYTES;
            let parts = pages.iter().zip(&*room).enumerate();
            let parts: Vec<&PageBytes> =
                parts.map(|(index, (page, block))| if is_whole(index) { *page } else { block }).collect();
            self.inner.store_while(&parts, Some(&bytes[..pages.len()]), priority, out, meanwhile);
        });
    }

    /// Compresses a page into `room`; returns how many bytes are to be stored, a page's where they are not those in `room`. A page that is compressed only
    /// to see what comes of it is expanded again, into `spare`.
    fn compress(
        &self,
        codec: &mut Codec,
        page: &PageBytes,
        decision: Decision,
        room: &mut PageBytes,
        spare: &mut PageBytes,
    ) -> u16 {
        let whole = u16::try_from(PAGE_BYTES).expect("4096");
        if decision == Decision::Whole {
            return whole;
        }
        let begun = Instant::now();
        let block = codec.compress(page, &mut room[..COMPRESSED_BYTES_MAX]);
        lock(&self.break_even).compressed(nanoseconds(begun), block.unwrap_or(PAGE_BYTES));
        if let (Some(bytes), Decision::Probe) = (block, decision) {
            self.expand(&room[..bytes], spare);
        }
        let block = block.filter(|_| decision == Decision::Compress);
        block.map_or(whole, |bytes| u16::try_from(bytes).expect("less than a page"))
    }

    /// Loads pages for which there is room.
    fn load_batch(
        &self,
        items: &mut [LoadItem<'_>],
        kept: &[usize],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let mut room = vec![[0; PAGE_BYTES]; kept.iter().filter(|bytes| **bytes < PAGE_BYTES).count()];
        let (mut blocks, mut expanded) = (room.iter_mut(), Vec::with_capacity(items.len()));
        let mut asked = Vec::with_capacity(items.len());
        for (LoadItem { location, into }, bytes) in items.iter_mut().zip(kept) {
            let (into, page) = match *bytes < PAGE_BYTES {
                true => (blocks.next().expect("one for each"), Some(&mut **into)),
                false => (&mut **into, None),
            };
            asked.push(LoadItem { location: *location, into });
            expanded.push(page);
        }
        let mut broken = Vec::new();
        let mut expanding = |index: usize, result: Result<&PageBytes, LoadError>| {
            let (page, block) = match (&mut expanded[index], result) {
                (None, result) => return done(index, result),
                (Some(_), Err(error)) => return done(index, Err(error)),
                (Some(page), Ok(block)) => (page, &block[..kept[index]]),
            };
            match self.expand(block, page) {
                true => done(index, Ok(page)),
                // The backend may hold locks and connections now.
                false => broken.push(index),
            }
        };
        self.inner.load_while(&mut asked, priority, &mut expanding, meanwhile);
        for index in broken {
            let LoadItem { location, into } = &mut items[index];
            let repaired = self.repair(LoadItem { location: *location, into }, &|_| true);
            done(index, repaired.map(|()| &**into));
        }
    }

    /// Expands a block; false: it is none.
    fn expand(&self, block: &[u8], page: &mut PageBytes) -> bool {
        let begun = Instant::now();
        let is_whole = decompress_lz4(block, page).is_some();
        lock(&self.break_even).expanded(nanoseconds(begun));
        is_whole
    }

    fn own_ram_bytes(&self) -> u64 {
        let each = Codec::ram_bytes(CodecName::Lz4) + PageRoom::<ROOM_PAGES>::RAM_BYTES;
        self.compressors.made() as u64 * each
    }
}

impl Backend for LinkCompressed {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        assert!(bytes.is_none(), "whole pages are compressed");
        for (pages, out) in pages.chunks(STORE_PAGES).zip(out.chunks_mut(STORE_PAGES)) {
            self.store_batch(pages, priority, out, meanwhile);
        }
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let kept = self.inner.prefix_bytes(&mut items.iter().map(|item| item.location));
        if kept.iter().all(|bytes| *bytes == PAGE_BYTES) {
            return self.inner.load_while(items, priority, done, meanwhile);
        }
        for (turn, (items, kept)) in items.chunks_mut(LOAD_PAGES).zip(kept.chunks(LOAD_PAGES)).enumerate() {
            let mut done = |index, page: Result<&PageBytes, LoadError>| done(turn * LOAD_PAGES + index, page);
            self.load_batch(items, kept, priority, &mut done, meanwhile);
        }
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let LoadItem { location, into } = item;
        let kept = self.inner.prefix_bytes(&mut std::iter::once(location))[0];
        if kept == PAGE_BYTES {
            return self.inner.repair(LoadItem { location, into }, right);
        }
        let mut block = Box::new([0; PAGE_BYTES]);
        let expands = |block: &PageBytes| {
            let mut page = Box::new([0; PAGE_BYTES]);
            decompress_lz4(&block[..kept], &mut page).is_some() && right(&page)
        };
        let damaged = || LoadError::Damaged { url: self.url.clone(), location, what: NO_BLOCK };
        self.inner.repair(LoadItem { location, into: &mut block }, &expands)?;
        if self.expand(&block[..kept], into) { Ok(()) } else { Err(damaged()) }
    }

    fn patches(&self) -> bool {
        self.inner.patches()
    }

    /// Only pages that are stored whole: what is kept of the others are blocks.
    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        self.inner.patch(patches, priority, out);
    }

    fn has_losses(&self) -> bool {
        self.inner.has_losses()
    }

    fn has_lost(&self, location: Location) -> bool {
        self.inner.has_lost(location)
    }

    fn free(&self, locations: &[Location]) {
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
        // The rooms belong to all; the first row carries them, so that the sum is right.
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
        self.inner.after_fork(side)
    }
}
