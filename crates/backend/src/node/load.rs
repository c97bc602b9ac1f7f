//! Loads: a page comes from the replica that answers fastest, and from another when that one fails, is late, or sends
//! other bytes.
//!
//! A demand fetch goes to one node, and to a second one when the first is later than 95 % of its answers (see `hedge`).
//! A prefetch goes to all nodes of its pages at once.

use super::hedge::hedged_load;
use super::lane::SlotRead;
use super::limits::LOAD_PAGES;
use super::link::Link;
use super::link_request::{LinkRequest, Want};
use super::shared_rng::SharedRng;
use super::slabs::Slabs;
use super::table::{Replica, Replicas};
use super::transfer::{Transfer, transfer};
use crate::node_error::NodeError;
use crate::{LoadError, LoadItem, Location, Priority};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Loads pages.
pub(super) struct Loader {
    slabs: Arc<Slabs>,
    rng: SharedRng,
}

impl Loader {
    pub(super) fn new(slabs: &Arc<Slabs>) -> Loader {
        Loader { slabs: slabs.clone(), rng: SharedRng::of_this_process() }
    }

    /// Loads `items`; calls `done` once for each, and `meanwhile` when pages are waited for of which the first was asked for.
    pub(super) fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        // What the program gets is compared with what left it. What goes elsewhere unseen comes by messages, which are checked.
        let is_compared = matches!(priority, Priority::Demand | Priority::Prefetch);
        let copied = if is_compared { self.copy_pages(items, done) } else { 0 };
        if copied < items.len() {
            let mut done = |index, page: Result<&PageBytes, LoadError>| done(copied + index, page);
            self.ask_for_pages(&mut items[copied..], priority, &mut done, meanwhile);
        }
    }

    /// Copies the first of `items` that lie in views, and calls `done` for each; returns how many those are.
    fn copy_pages(
        &self,
        items: &mut [LoadItem<'_>],
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) -> usize {
        for (index, item) in items.iter_mut().enumerate() {
            let slot = item.location.0;
            let replicas = self.slabs.table().replicas(slot).clone();
            let copied = replicas
                .iter()
                .find(|replica| replica.is_live() && replica.link.views.copy(replica.slot(slot), item.into));
            let Some(replica) = copied else { return index };
            replica.link.node.bytes_out.fetch_add(PAGE_BYTES as u64, Relaxed);
            done(index, Ok(item.into));
        }
        items.len()
    }

    /// Loads `items` by messages.
    fn ask_for_pages(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let slabs = &*self.slabs;
        let mut wants: Vec<Want> = {
            let table = slabs.table();
            let want =
                |item: &LoadItem<'_>| Want::new(table.replicas(item.location.0), table.bytes_of(item.location.0));
            items.iter().map(want).collect()
        };
        let draw = if slabs.links.len() > 1 { self.rng.draw() } else { 0 };
        while let Some(first) = wants.iter().position(|want| !want.answered) {
            if let Some(at) = wants[first].preferred(draw_of(draw, first)) {
                let want = &wants[first];
                let may_race = priority == Priority::Demand && items.len() == 1 && !want.is_last_round();
                if let Some(other) = may_race.then(|| want.second(at)).flatten() {
                    hedged_load(slabs, [at, other], &mut wants, &mut items[0], done);
                } else if priority == Priority::Demand || slabs.links.len() == 1 {
                    let link = wants[first].replicas[at].link.clone();
                    self.load_from(&link, (first, at), &mut wants, items, priority, draw, done, meanwhile);
                } else {
                    self.load_from_all(&mut wants, items, priority, draw, done, meanwhile);
                }
                continue;
            }
            let want = &mut wants[first];
            if want.ask_late_again() {
                continue;
            }
            if let Some(now) = self.new_replicas(items[first].location, &want.replicas) {
                *want = Want::new(&now, want.bytes);
                continue;
            }
            let error = want.give_up().unwrap_or_else(|| self.loss_of(items[first].location));
            done(first, Err(error));
        }
    }

    /// Loads from one link an item that has its replica `at` there, and all later ones that prefer the same link.
    #[allow(clippy::too_many_arguments, reason = "one step of `ask_for_pages`, whose state it shares")]
    fn load_from(
        &self,
        link: &Link,
        (first, at): (usize, usize),
        wants: &mut [Want],
        items: &mut [LoadItem<'_>],
        priority: Priority,
        draw: u64,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let mut asked = LinkRequest::new(&self.slabs, link, &wants[first], priority);
        let mut subset = Vec::new();
        for (index, (want, item)) in wants.iter().zip(items.iter_mut()).enumerate().skip(first) {
            let preferred = || if want.answered { None } else { want.preferred(draw_of(draw, index)) };
            let at = if index == first { Some(at) } else { preferred() };
            let Some(at) = at.filter(|at| std::ptr::eq(&*want.replicas[*at].link, link)) else { continue };
            subset.push(asked.add((index, at), want, item));
        }
        let demand = (priority == Priority::Demand).then(|| link.demand());
        asked.begun = Instant::now();
        let patience = asked.patience;
        let mut take = |position, page: Option<&PageBytes>| asked.took(position, page, wants, done);
        let loaded = transfer(&self.slabs, link, &mut subset, priority, patience, &mut take, meanwhile);
        drop(demand);
        asked.conclude(&self.slabs, loaded, wants);
    }

    /// Loads from all links at a time what has not been answered and prefers them: all are asked before the first answer is taken.
    #[allow(clippy::too_many_arguments, reason = "one step of `ask_for_pages`, whose state it shares")]
    fn load_from_all(
        &self,
        wants: &mut [Want],
        items: &mut [LoadItem<'_>],
        priority: Priority,
        draw: u64,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let open = wants.iter().enumerate().filter(|(_, want)| !want.answered);
        let chosen: Vec<(usize, usize)> =
            open.filter_map(|(index, want)| Some((index, want.preferred(draw_of(draw, index))?))).collect();
        // In the order of the nodes, as stores take lanes: two threads that wait for each other's would wait for ever.
        let mut links: Vec<Arc<Link>> =
            chosen.iter().map(|(index, at)| wants[*index].replicas[*at].link.clone()).collect();
        links.sort_by_key(|link| (link.node.index, Arc::as_ptr(link)));
        links.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mut parts: Vec<(Option<LinkRequest<'_>>, Vec<SlotRead<'_>>)> =
            links.iter().map(|_| (None, Vec::new())).collect();
        let mut chosen = chosen.into_iter().peekable();
        for (index, item) in items.iter_mut().enumerate() {
            let Some((_, at)) = chosen.next_if(|(chosen, _)| *chosen == index) else { continue };
            let want = &wants[index];
            let position =
                links.iter().position(|link| Arc::ptr_eq(link, &want.replicas[at].link)).expect("one of them");
            let (asked, subset) = &mut parts[position];
            let asked = asked.get_or_insert_with(|| LinkRequest::new(&self.slabs, &links[position], want, priority));
            subset.push(asked.add((index, at), want, item));
        }
        let mut under_way = Vec::with_capacity(parts.len());
        for (asked, subset) in parts {
            let mut asked = asked.expect("somebody chose it");
            asked.begun = Instant::now();
            match Transfer::begin(&self.slabs, asked.link, subset.len(), priority, asked.patience) {
                Ok(mut transfer) => match transfer.ask(&subset) {
                    Ok(()) => under_way.push((asked, subset, transfer)),
                    Err(error) => {
                        transfer.end(false);
                        asked.conclude(&self.slabs, Err(error), wants);
                    }
                },
                Err(error) => asked.conclude(&self.slabs, Err(error), wants),
            }
        }
        meanwhile();
        let mut turn = 0;
        while !under_way.is_empty() {
            turn %= under_way.len();
            let alone = under_way.len() == 1;
            let (asked, subset, transfer) = &mut under_way[turn];
            let mut going =
                transfer.receive(subset, alone, &mut |position, page| asked.took(position, page, wants, done));
            if going.is_ok() {
                going = transfer.ask(subset);
            }
            if going.is_err() || transfer.is_over() {
                let (asked, _, transfer) = under_way.remove(turn);
                transfer.end(going.is_ok());
                asked.conclude(&self.slabs, going, wants);
            } else {
                turn += 1;
            }
        }
    }

    /// The replicas of a page, if one of them was made after `before` was looked up.
    fn new_replicas(&self, location: Location, before: &Replicas) -> Option<Replicas> {
        let now = self.slabs.table().replicas(location.0).clone();
        let is_new = |replica: &Replica| replica.is_live() && !before.iter().any(|old| old.is_same(replica));
        now.iter().any(is_new).then_some(now)
    }

    /// Loads a page from any replica whose bytes are `right`.
    pub(super) fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let LoadItem { location, into } = item;
        let (replicas, bytes) = {
            let table = self.slabs.table();
            (table.replicas(location.0).clone(), table.bytes_of(location.0))
        };
        let wrong = |url: &str| LoadError::Damaged { url: url.to_owned(), location, what: "it is not what was stored" };
        let mut error = wrong(&self.slabs.url);
        let mut liars = Vec::new();
        // A single node has said what it has: it is not asked until it says something else; but a copy out of its memory was not
        // its word. Of several, whose bytes were wrong is not known here, and may be gone from the row.
        let may_be_right = |replica: &&Replica| self.slabs.links.len() > 1 || replica.link.views.are_used();
        for replica in replicas.iter().filter(|replica| replica.is_live()).filter(may_be_right) {
            let mut there = [SlotRead { slot: replica.slot(location.0), bytes, into: &mut *into }];
            let mut accepted = None;
            let take = &mut |_, page: Option<&PageBytes>| accepted = Some(page.is_some_and(right));
            if let Err(why) = transfer(
                &self.slabs,
                &replica.link,
                &mut there,
                Priority::Demand,
                self.slabs.patience(&replica.link),
                take,
                &mut || (),
            ) {
                self.slabs.handle_error(&replica.link, &why);
                if self.slabs.links.len() == 1 {
                    error = LoadError::Lost { url: replica.link.node.url.clone(), error: why };
                }
            }
            match accepted {
                Some(true) => {
                    liars.into_iter().for_each(|liar| self.slabs.distrust(location, liar));
                    return Ok(());
                }
                Some(false) => {
                    error = wrong(&replica.link.node.url);
                    liars.push(replica);
                }
                None => {}
            }
        }
        Err(error)
    }

    /// Why a page has no replica.
    fn loss_of(&self, location: Location) -> LoadError {
        let table = self.slabs.table();
        // Somebody else may have lost the link this moment, and the table not know it yet.
        let reason = |replica: &Replica| Some((replica.link.node.url.clone(), replica.link.lost()?.clone()));
        let just_now = || table.replicas(location.0).iter().find_map(reason);
        let known = table.lost(location.0).cloned().or_else(just_now);
        let (url, error) = known.unwrap_or((self.slabs.url.clone(), NodeError::Closed));
        LoadError::Lost { url, error }
    }
}

/// The random number by which an item of a load chooses: one for each message, so that both of two good replicas are asked for parts of
/// what is long.
fn draw_of(draw: u64, index: usize) -> u64 {
    draw.rotate_right(u32::try_from(index / LOAD_PAGES % 64).expect("below 64"))
}
