//! Patches: what changed of a page is written over its copy, at every replica of its slab.
//!
//! ```text
//! patch ──► each replica: old page + granules = the page? yes: written, Done   no: nothing is written, Refused
//! ```
//! **Invariant**: a page counts as patched when every replica that its slab has says so. Of any other page it is not known what the replicas
//! hold; it is not loaded, because its owner has its content, stores that elsewhere, and frees the slot. No slab is rebuilt or moved while it is
//! being patched, and none is patched that gets no pages. A view of a slab is made where a patch of it was written: a node that has written
//! nothing may have left the slab to a relative as well.
//!
//! Source: DaeMon §4.3.

use super::lanes::Taken;
use super::limits::STORE_PAGES;
use super::link::Link;
use super::link_estimate::{Grant, UnderWay};
use super::slabs::Slabs;
use super::store::wait_for;
use super::table::{Replica, Replicas};
use crate::node_error::NodeError;
use crate::{Direction, Patch, Priority};
use hinterland_units::PAGE_BYTES;
use hinterland_wire::Features;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
pub(super) struct Patcher {
    slabs: Arc<Slabs>,
}

/// A link whose pages are being patched.
struct Patching<'a> {
    link: &'a Link,
    lane: Taken<'a>,
    /// What is not answered yet: which pages, and their bytes.
    sent: Vec<usize>,
    /// What its node has written.
    written: Vec<usize>,
    bulk: UnderWay<'a>,
}

/// Pages to be patched, with the replicas of each; `None`: it is not to be patched.
struct Batch<'a> {
    patches: &'a [Patch<'a>],
    replicas: &'a [Option<Replicas>],
    priority: Priority,
}

impl Patcher {
    pub(super) fn new(slabs: &Arc<Slabs>) -> Patcher {
        Patcher { slabs: slabs.clone() }
    }

    /// Patches pages; `out` says of each whether its copy is now as it is.
    pub(super) fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        for (patches, out) in patches.chunks(STORE_PAGES).zip(out.chunks_mut(STORE_PAGES)) {
            let replicas: Vec<Option<Replicas>> = {
                let mut table = self.slabs.table();
                patches.iter().map(|patch| table.begin_patch(patch.location.0)).collect()
            };
            out.iter_mut().zip(&replicas).for_each(|(out, replicas)| *out = replicas.is_some());
            self.patch_batch(&Batch { patches, replicas: &replicas, priority }, out);
            let begun = patches.iter().zip(&replicas).filter(|(_, replicas)| replicas.is_some());
            let slots: Vec<u64> = begun.map(|(patch, _)| patch.location.0).collect();
            self.slabs.table().end_writes(&slots, &[]);
        }
    }

    fn patch_batch(&self, batch: &Batch<'_>, out: &mut [bool]) {
        let all = batch.replicas.iter().flatten().flat_map(|replicas| replicas.iter());
        let mut links: Vec<&Arc<Link>> = all.map(|replica| &replica.link).collect();
        // In the order of the nodes: two threads that wait for each other's lanes would wait for ever.
        links.sort_by_key(|link| (link.node.index, Arc::as_ptr(link)));
        links.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mut writers: Vec<Patching<'_>> = Vec::with_capacity(links.len());
        for link in links {
            match self.begin(link) {
                Some(writer) => writers.push(writer),
                None => batch.give_up(link, out),
            }
        }
        let mut begin = 0;
        while begin < batch.patches.len() {
            let end = begin + granted(&writers, &batch.patches[begin..]);
            self.each(&mut writers, batch, out, |writer, out| batch.send(writer, begin..end, out));
            self.each(&mut writers, batch, out, |writer, out| self.take(writer, batch, out));
            begin = end;
        }
        self.each(&mut writers, batch, out, |writer, _| batch.make_views(writer));
    }

    /// A writer to a link; `None`: its node is lost, does not patch, or no connection can be made here.
    fn begin<'a>(&self, link: &'a Link) -> Option<Patching<'a>> {
        match link.background_lane(self.slabs.patience(link)) {
            Ok(lane) if lane.features.has(Features::PATCH) => {
                let bulk = UnderWay::none(&link.estimate, Direction::Out);
                Some(Patching { link, lane, sent: Vec::new(), written: Vec::new(), bulk })
            }
            Ok(_) => None,
            Err(error) => {
                self.slabs.handle_error(link, &error);
                None
            }
        }
    }

    /// Does `work` with each writer; ends those that fail, whose pages are given up.
    fn each<'a>(
        &self,
        writers: &mut Vec<Patching<'a>>,
        batch: &Batch<'_>,
        out: &mut [bool],
        work: impl Fn(&mut Patching<'a>, &mut [bool]) -> Result<(), NodeError>,
    ) {
        let mut index = 0;
        while index < writers.len() {
            match work(&mut writers[index], out) {
                Ok(()) => index += 1,
                Err(error) => {
                    let Patching { link, lane, .. } = writers.remove(index);
                    lane.close();
                    self.slabs.handle_error(link, &error);
                    batch.give_up(link, out);
                }
            }
        }
    }

    /// Takes the answer to what was sent.
    fn take(&self, writer: &mut Patching<'_>, batch: &Batch<'_>, out: &mut [bool]) -> Result<(), NodeError> {
        let sent = std::mem::take(&mut writer.sent);
        if sent.is_empty() {
            return Ok(());
        }
        wait_for(&self.slabs, writer.link, &mut writer.lane)?;
        let answer = writer.lane.take_done();
        let bytes = batch.bytes(&sent);
        writer.bulk.end(bytes);
        match answer {
            Ok(()) => {
                writer.link.node.bytes_in.fetch_add((sent.len() * PAGE_BYTES) as u64, Relaxed);
                writer.link.node.sent_bytes.fetch_add(bytes as u64, Relaxed);
                writer.written.extend(sent);
                Ok(())
            }
            // Nothing was written there.
            Err(error) if error.is_full() || error.is_stale() => {
                sent.into_iter().for_each(|index| out[index] = false);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Batch<'_> {
    /// A page's replica at a link.
    fn replica(&self, index: usize, link: &Link) -> Option<&Replica> {
        self.replicas[index].as_ref()?.iter().find(|replica| std::ptr::eq(&*replica.link, link))
    }

    /// Sends those pages of a range that lie at the writer's link, and that no other link has failed at so far.
    fn send(&self, writer: &mut Patching<'_>, range: Range<usize>, out: &[bool]) -> Result<(), NodeError> {
        let at_link = |index: usize| {
            let replica = self.replica(index, writer.link).filter(|_| out[index])?;
            writer.link.views.before_write(replica.slab);
            Some((index, replica.slot(self.patches[index].location.0)))
        };
        let (sent, slots): (Vec<usize>, Vec<u64>) = range.filter_map(at_link).unzip();
        if sent.is_empty() {
            return Ok(());
        }
        let patches: Vec<&Patch<'_>> = sent.iter().map(|index| &self.patches[*index]).collect();
        writer.bulk.begin(self.bytes(&sent));
        writer.sent = sent;
        writer.lane.send_patches(&slots, &patches, self.priority)
    }

    /// Bytes of the granules of some pages.
    fn bytes(&self, indices: &[usize]) -> usize {
        indices.iter().map(|index| self.patches[*index].granules.bytes()).sum()
    }

    /// The pages that have a replica at a link are not patched.
    fn give_up(&self, link: &Link, out: &mut [bool]) {
        for (replicas, out) in self.replicas.iter().zip(out) {
            let is_there = |replicas: &Replicas| replicas.iter().any(|replica| std::ptr::eq(&*replica.link, link));
            *out &= !replicas.as_ref().is_some_and(is_there);
        }
    }

    /// Has views made anew that were dropped before a write: of slabs that were written, which are the writer's own now.
    fn make_views(&self, writer: &mut Patching<'_>) -> Result<(), NodeError> {
        let Patching { link, ref mut lane, ref written, .. } = *writer;
        let mut slabs = written.iter().filter_map(|index| Some(self.replica(*index, link)?.slab));
        slabs.try_for_each(|slab| link.make_view(lane, slab))
    }
}

/// How many patches, at least one, may be sent now: what all links grant.
fn granted(writers: &[Patching<'_>], patches: &[Patch<'_>]) -> usize {
    let of_one = |writer: &Patching<'_>| match writer.link.estimate.grant(Direction::Out, writer.link.has_demands(), 0)
    {
        Grant::Bytes(bytes) => bytes,
        Grant::Any | Grant::Wait => u64::MAX,
    };
    let bytes_max = writers.iter().map(of_one).min().unwrap_or(u64::MAX);
    let ends = patches.iter().scan(0, |bytes, patch| {
        *bytes += patch.granules.bytes() as u64;
        Some(*bytes)
    });
    ends.take_while(|bytes| *bytes <= bytes_max).count().max(1)
}
