//! Loads: a page comes from the replica that answers fastest, and from another when that one fails, is late, or sends other bytes.
//!
//! ```text
//! first round:  each replica in the order of latency; while there is another one, only for its patience (a measured bound)
//! second round: those that were late, for as long as it takes to call them lost
//! ```
//! A demand asks one node, and a second one when the first is later than it mostly is (see `hedge`). What nobody waits for yet is asked of all its nodes at a time.

use super::limits::{DAMAGES_MAX, LATE_LOAD, LOAD_PAGES, NEAR_NS, PATIENCE_MAX, RETRIED_NS, RETRY_ONE_IN};
use super::link::Link;
use super::table::{Replica, Replicas};
use super::{NodeError, NodePool};
use crate::sync::lock;
use crate::{LoadError, LoadItem, Location, Priority};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const DAMAGED: &str = "it is not what its checksum says: it changed on its way, or in the node's memory";

/// A page that is to be loaded.
#[derive(Default)]
pub(super) struct Want {
    pub(super) replicas: Replicas,
    /// Replicas that have been asked, one bit each; and those of them that were late.
    tried: u32,
    late: u32,
    /// The second round.
    last: bool,
    pub(super) answered: bool,
    error: Option<LoadError>,
}

impl Want {
    fn new(replicas: &Replicas) -> Want {
        Want { replicas: replicas.clone(), ..Want::default() }
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.replicas.len()).filter(move |at| self.tried & 1 << at == 0 && self.replicas[*at].is_live())
    }
}

/// What one link is asked for.
pub(super) struct Asked<'a> {
    link: &'a Link,
    /// Another replica can be asked when the answer is late.
    hedged: bool,
    pub(super) patience: Duration,
    /// Which items, and which replica of each is there; and their locations in the pool.
    items: Vec<(usize, usize)>,
    outer: Vec<Location>,
    /// Positions of those that arrived damaged, and how many have arrived.
    damaged: Vec<usize>,
    arrived: usize,
    pub(super) begun: Instant,
}

impl Asked<'_> {
    /// Adds an item with its replica; returns what the link is asked for.
    pub(super) fn add<'i>(
        &mut self,
        (index, at): (usize, usize),
        want: &Want,
        item: &'i mut LoadItem<'_>,
    ) -> LoadItem<'i> {
        self.items.push((index, at));
        self.outer.push(item.location);
        LoadItem { location: Location(want.replicas[at].slot(item.location.0)), into: item.into }
    }

    /// A page has arrived, or, with `None`, arrived damaged.
    pub(super) fn took(
        &mut self,
        position: usize,
        page: Option<&PageBytes>,
        wants: &mut [Want],
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.arrived += 1;
        let (index, at) = self.items[position];
        wants[index].tried |= 1 << at;
        match page {
            Some(page) => {
                wants[index].answered = true;
                done(index, Ok(page));
            }
            None => self.damaged.push(position),
        }
    }
}

impl NodePool {
    /// Loads `items`; calls `done` once for each.
    pub(super) fn load_pages(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let copied = self.copy_pages(items, done);
        if copied < items.len() {
            self.ask_for_pages(&mut items[copied..], priority, &mut |index, page| done(copied + index, page));
        }
    }

    /// Loads `items` by messages.
    fn ask_for_pages(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let mut wants: Vec<Want> = {
            let table = lock(&self.table);
            items.iter().map(|item| Want::new(table.replicas(item.location.0))).collect()
        };
        let draw = if self.links.len() > 1 { self.draw() } else { 0 };
        while let Some(first) = wants.iter().position(|want| !want.answered) {
            if let Some(at) = preferred(&wants[first], draw_of(draw, first)) {
                let want = &wants[first];
                let may_race = priority == Priority::Demand && items.len() == 1 && !want.last;
                let others = || fastest(want.open().filter(|other| *other != at), want);
                if let Some(other) = may_race.then(others).flatten() {
                    self.hedged_load([at, other], &mut wants, &mut items[0], done);
                } else if priority == Priority::Demand || self.links.len() == 1 {
                    let link = wants[first].replicas[at].link.clone();
                    self.load_from(&link, (first, at), &mut wants, items, priority, draw, done);
                } else {
                    self.load_from_all(&mut wants, items, priority, draw, done);
                }
                continue;
            }
            let want = &mut wants[first];
            if want.late != 0 {
                (want.tried, want.late, want.last) = (want.tried & !want.late, 0, true);
                continue;
            }
            if let Some(now) = self.new_replicas(items[first].location, &want.replicas) {
                *want = Want::new(&now);
                continue;
            }
            want.answered = true;
            let error = want.error.take().unwrap_or_else(|| self.loss_of(items[first].location));
            done(first, Err(error));
        }
    }

    /// Loads from one link an item that has its replica `at` there, and all later ones that prefer the same link.
    #[allow(clippy::too_many_arguments, reason = "one step of `load_pages`, whose state it shares")]
    fn load_from(
        &self,
        link: &Link,
        (first, at): (usize, usize),
        wants: &mut [Want],
        items: &mut [LoadItem<'_>],
        priority: Priority,
        draw: u64,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let mut asked = self.asked_of(link, &wants[first], priority);
        let mut subset = Vec::new();
        for (index, (want, item)) in wants.iter().zip(items.iter_mut()).enumerate().skip(first) {
            let preferred = || if want.answered { None } else { preferred(want, draw_of(draw, index)) };
            let at = if index == first { Some(at) } else { preferred() };
            let Some(at) = at.filter(|at| std::ptr::eq(&*want.replicas[*at].link, link)) else { continue };
            subset.push(asked.add((index, at), want, item));
        }
        let demand = (priority == Priority::Demand).then(|| link.demand());
        asked.begun = Instant::now();
        let patience = asked.patience;
        let loaded = self.transfer(link, &mut subset, priority, patience, &mut |position, page| {
            if asked.arrived == 0 && self.links.len() > 1 && priority == Priority::Demand {
                link.latency.sample(asked.begun.elapsed());
            }
            asked.took(position, page, wants, done);
        });
        drop(demand);
        self.conclude(asked, loaded, wants);
    }

    /// Loads from all links at a time what has not been answered and prefers them: all are asked before the first answer is taken.
    fn load_from_all(
        &self,
        wants: &mut [Want],
        items: &mut [LoadItem<'_>],
        priority: Priority,
        draw: u64,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let open = wants.iter().enumerate().filter(|(_, want)| !want.answered);
        let chosen: Vec<(usize, usize)> =
            open.filter_map(|(index, want)| Some((index, preferred(want, draw_of(draw, index))?))).collect();
        // In the order of the nodes, as stores take lanes: two threads that wait for each other's would wait for ever.
        let mut links: Vec<Arc<Link>> =
            chosen.iter().map(|(index, at)| wants[*index].replicas[*at].link.clone()).collect();
        links.sort_by_key(|link| (link.node.index, Arc::as_ptr(link)));
        links.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mut parts: Vec<(Option<Asked<'_>>, Vec<LoadItem<'_>>)> = links.iter().map(|_| (None, Vec::new())).collect();
        let mut chosen = chosen.into_iter().peekable();
        for (index, item) in items.iter_mut().enumerate() {
            let Some((_, at)) = chosen.next_if(|(chosen, _)| *chosen == index) else { continue };
            let want = &wants[index];
            let position =
                links.iter().position(|link| Arc::ptr_eq(link, &want.replicas[at].link)).expect("one of them");
            let (asked, subset) = &mut parts[position];
            let asked = asked.get_or_insert_with(|| self.asked_of(&links[position], want, priority));
            subset.push(asked.add((index, at), want, item));
        }
        let mut under_way = Vec::with_capacity(parts.len());
        for (asked, subset) in parts {
            let mut asked = asked.expect("somebody chose it");
            asked.begun = Instant::now();
            match self.begin_transfer(asked.link, subset.len(), priority, asked.patience) {
                Ok(mut transfer) => match transfer.ask(&subset) {
                    Ok(()) => under_way.push((asked, subset, transfer)),
                    Err(error) => {
                        transfer.end(false);
                        self.conclude(asked, Err(error), wants);
                    }
                },
                Err(error) => self.conclude(asked, Err(error), wants),
            }
        }
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
                self.conclude(asked, going, wants);
            } else {
                turn += 1;
            }
        }
    }

    /// What `link` is to be asked for, of which `first` is the first page.
    pub(super) fn asked_of<'a>(&self, link: &'a Link, first: &Want, priority: Priority) -> Asked<'a> {
        let hedged = !first.last && first.open().count() > 1;
        let patience = match priority {
            _ if !hedged && (first.late != 0 || self.is_shard) => self.patience(link),
            _ if !hedged => link.node.limit(),
            Priority::Demand => link.latency.patience(),
            _ => PATIENCE_MAX,
        };
        let (items, outer, damaged) = (Vec::new(), Vec::new(), Vec::new());
        Asked { link, hedged, patience, items, outer, damaged, arrived: 0, begun: Instant::now() }
    }

    /// Notes what became of the pages that a link was asked for.
    pub(super) fn conclude(&self, asked: Asked<'_>, loaded: Result<(), NodeError>, wants: &mut [Want]) {
        let Asked { link, hedged, items, outer, damaged, arrived, begun, .. } = asked;
        link.node.bytes_out.fetch_add((arrived * PAGE_BYTES) as u64, Relaxed);
        for position in damaged {
            let ((index, at), location) = (items[position], outer[position]);
            wants[index].error = Some(LoadError::Damaged { url: link.node.url.clone(), location, what: DAMAGED });
            if wants[index].open().next().is_some() || wants[index].late != 0 {
                self.distrust(location, &wants[index].replicas[at].clone());
            }
        }
        if let Err(error) = loaded {
            let late = hedged && matches!(error, NodeError::Silent { .. }) && link.lost().is_none();
            for (index, at) in items.into_iter().skip(arrived) {
                wants[index].tried |= 1 << at;
                wants[index].late |= u32::from(late) << at;
                let lost = || LoadError::Lost { url: link.node.url.clone(), error: error.clone() };
                wants[index].error.get_or_insert_with(lost);
            }
            if late {
                link.latency.late(begun.elapsed());
            } else {
                self.judge(link, &error);
            }
        }
        if self.links.len() > 1 && begun.elapsed() >= LATE_LOAD {
            self.weigh();
        }
    }

    /// The replicas of a page, if one of them was made after `before` was looked up.
    fn new_replicas(&self, location: Location, before: &Replicas) -> Option<Replicas> {
        let now = lock(&self.table).replicas(location.0).clone();
        let is_new = |replica: &Replica| replica.is_live() && !before.iter().any(|old| old.is_same(replica));
        now.iter().any(is_new).then_some(now)
    }

    /// Loads a page from any replica whose bytes are `right`.
    pub(super) fn load_right(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let LoadItem { location, into } = item;
        let replicas = lock(&self.table).replicas(location.0).clone();
        let wrong = |url: &str| LoadError::Damaged { url: url.to_owned(), location, what: "it is not what was stored" };
        let mut error = wrong(&self.url);
        let mut liars = Vec::new();
        // A single node has said what it has: it is not asked until it says something else; but a copy out of its memory was not
        // its word. Of several, whose bytes were wrong is not known here, and may be gone from the row.
        let may_be_right = |replica: &&Replica| self.links.len() > 1 || replica.link.views.are_used();
        for replica in replicas.iter().filter(|replica| replica.is_live()).filter(may_be_right) {
            let mut there = [LoadItem { location: Location(replica.slot(location.0)), into: &mut *into }];
            let mut accepted = None;
            let take = &mut |_, page: Option<&PageBytes>| accepted = Some(page.is_some_and(right));
            if let Err(why) =
                self.transfer(&replica.link, &mut there, Priority::Demand, self.patience(&replica.link), take)
            {
                self.judge(&replica.link, &why);
                if self.links.len() == 1 {
                    error = LoadError::Lost { url: replica.link.node.url.clone(), error: why };
                }
            }
            match accepted {
                Some(true) => {
                    liars.into_iter().for_each(|liar| self.distrust(location, liar));
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

    /// A node sent other bytes than it was given: its slab is given up if another node has that, and after several times the node,
    /// if others have all of its slabs. The last copy of a page is kept: every load of it is checked. (A slab that is given up
    /// goes back to its node when nobody reads from it any more.)
    fn distrust(&self, location: Location, replica: &Replica) {
        let times = replica.link.damages.fetch_add(1, Relaxed) + 1;
        let mut table = lock(&self.table);
        if times >= DAMAGES_MAX && !table.has_last_copies(&replica.link) {
            drop(table);
            return self.judge(&replica.link, &NodeError::Damages { times });
        }
        if table.replicas(location.0).iter().any(|other| other.is_live() && !other.is_same(replica)) {
            let number = table.slab_of(location.0);
            table.change(number, None, |other| !other.is_same(replica));
        }
        drop(table);
        self.refresh();
    }

    /// Why a page has no replica.
    fn loss_of(&self, location: Location) -> LoadError {
        let table = lock(&self.table);
        // Somebody else may have lost the link this moment, and the table not know it yet.
        let reason = |replica: &Replica| Some((replica.link.node.url.clone(), replica.link.lost()?.clone()));
        let just_now = || table.replicas(location.0).iter().find_map(reason);
        let known = table.lost(location.0).cloned().or_else(just_now);
        let (url, error) = known.unwrap_or((self.url.clone(), NodeError::Closed));
        LoadError::Lost { url, error }
    }
}

/// The random number by which an item of a load chooses: one for each message, so that both of two good replicas are asked for parts of
/// what is long.
fn draw_of(draw: u64, index: usize) -> u64 {
    draw.rotate_right(u32::try_from(index / LOAD_PAGES % 64).expect("below 64"))
}

/// The replica that is to be asked next: the fastest of those that have not been tried, or one that is about as fast.
fn preferred(want: &Want, draw: u64) -> Option<usize> {
    let expected = |at: usize| want.replicas[at].link.expected_ns();
    let first = fastest(want.open(), want)?;
    let Some(next) = fastest(want.open().filter(|at| *at != first), want) else { return Some(first) };
    let near = expected(next) <= expected(first).saturating_mul(2).saturating_add(NEAR_NS);
    let retried = expected(next) < RETRIED_NS && draw.is_multiple_of(RETRY_ONE_IN);
    let other = near && draw & 1 << 32 != 0 || retried;
    Some(if other && !want.last { next } else { first })
}

/// The one of some replicas that is expected to answer first.
fn fastest(of: impl Iterator<Item = usize>, want: &Want) -> Option<usize> {
    of.min_by_key(|at| want.replicas[*at].link.expected_ns())
}
