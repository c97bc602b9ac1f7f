//! `paths`: several backends at once, and which of them has each page.
//!
//! ```text
//! location ─► row ─► path, location there          (`table`: 16 bytes a page; the rows of a path are in the order of age)
//! stores   ─► tiers:  the first path; when it is full its oldest pages are demoted to the next one by the storing thread
//!             spread: all paths, in proportion to their measured bandwidth (`spread`, `speed`)
//!             auto:   tiers in the order of time times cost (`rank`), with paths of a kind in one tier, over which pages are spread
//! upwards  ─► pages of lower tiers that are wanted again (`promote`)
//! away     ─► from a path that is dropped: a batch is read while the one before it is stored (`pipeline`), in as much of the time as leaves
//!             the program its speed (`duty_cycle`)
//! batches  ─► all paths are asked before one is waited for: a batch takes as long as the slowest, not the sum (`batch`)
//! ```
//! A path that is full or fails is left alone for a moment, and the page goes to another one: only when no path takes it the caller is
//! told so. In tiers a full one makes room by demotion, and one that fails is asked after those below it. Paths open and close while the program runs (`change`). **Invariant**: at any moment a page's
//! row names one place where its bytes are whole; a load pins the row, and a migration changes it only while it is not pinned. A path of which rows name pages stays open.

mod batch;
mod change;
mod duty_cycle;
mod migrate;
mod path;
mod pipeline;
mod promote;
mod rank;
mod speed;
mod spread;
mod table;

use crate::sync::{FREED_AT_ONCE, Pool, lock};
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Patch, Priority, StoreError};
use batch::{Part, carry_out};
use change::Wanted;
pub(crate) use change::{Opener, as_given};
use hinterland_abi::PlacementName;
use hinterland_units::{PAGE_BYTES, PageBytes};
use migrate::{BATCH_PAGES, Staging};
pub(crate) use path::Path;
use pipeline::Pipeline;
use promote::Promotion;
use rank::{Known, Ranked, Ranking};
use spread::Spread;
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
pub use table::PAGES_MAX;
use table::{Handle, Lists, PathLocation, Table};

/// Paths that can be open at a time.
pub const PATHS_MAX: usize = 16;
/// Migrations out of one path that can be under way at once; more threads wait. Each path has its own room: a demotion that
/// makes room below waits for the room of a lower tier only, so no two wait for each other.
const MIGRATIONS_MAX: usize = 2;
/// Rounds of demotion before a page goes to the next tier directly: enough to empty slabs of other size classes.
const ROUNDS_MAX: usize = 8;
/// While RAM is scarce, a page that takes more than this in RAM goes to a tier below that is not RAM: kept compressed it frees less than an
/// eighth of its frame, so eight pages and more would have to leave for one that is needed.
const COMPRESSIBLE_BYTES_MAX: usize = PAGE_BYTES / 8 * 7;
/// The tiers of `auto` are found anew after so long.
const RANKED_ANEW: Duration = Duration::from_secs(1);

/// See the module.
pub struct Paths {
    placement: PlacementName,
    slots: [RwLock<Slot>; PATHS_MAX],
    /// The URLs of the start.
    given: Vec<String>,
    /// The user has named none of them: this process has filled their sizes in.
    is_default: bool,
    wanted: Mutex<Wanted>,
    is_changing: AtomicBool,
    changed: AtomicU64,
    opener: Opener,
    /// Pages that the program has waited for while paths were changing.
    demanded: AtomicU64,
    /// Those of them that it waits for no longer.
    served: AtomicU64,
    /// The paths that take pages, in the order of preference.
    order: Mutex<Vec<usize>>,
    spread: Mutex<Spread>,
    /// The tiers of `auto`.
    ranking: Mutex<Ranking>,
    table: Table,
    lists: Mutex<Lists>,
    staging: [Pool<Staging>; PATHS_MAX],
    /// How far the path has come that is emptied.
    emptying: Mutex<Option<Pipeline>>,
    promotion: Promotion,
    /// The paths at which copies cost RAM, as bits.
    cost_ram: AtomicU32,
    ram_is_scarce: AtomicBool,
}

/// A place for a path.
enum Slot {
    /// There was none yet.
    Empty,
    /// There is one.
    Open(Box<Path>),
    /// There was one, whose figures stand.
    Closed(Vec<BackendUsage>),
}

/// A path that stays open as long as this.
struct Entered<'a>(RwLockReadGuard<'a, Slot>);

impl std::ops::Deref for Entered<'_> {
    type Target = Path;

    fn deref(&self) -> &Path {
        match &*self.0 {
            Slot::Open(path) => path,
            _ => unreachable!("it was open when it was entered"),
        }
    }
}

impl Paths {
    /// Opens 1 to 16 paths, in the order of preference. Other paths cannot be opened later.
    ///
    /// # Errors
    /// The address space for the table cannot be reserved.
    pub fn new(backends: Vec<Arc<dyn Backend>>, placement: PlacementName) -> io::Result<Paths> {
        let numbered = |(number, backend): (usize, _)| Path::new(number.to_string(), backend, 1.0);
        let paths: Vec<Path> = backends.into_iter().enumerate().map(numbered).collect();
        let given = paths.iter().map(|path| path.url.clone()).collect();
        Paths::opened(paths, given, placement, Box::new(|url| Err(format!("{url} cannot be opened here"))))
    }

    /// The paths of the start are those that an empty list stands for.
    pub(crate) fn by_default(mut self, is_default: bool) -> Paths {
        self.is_default = is_default;
        self
    }

    /// The same, of paths that are open; `given` are the URLs of the start. Others are opened by `opener`.
    ///
    /// # Errors
    /// As for `new`.
    pub(crate) fn opened(
        paths: Vec<Path>,
        given: Vec<String>,
        placement: PlacementName,
        opener: Opener,
    ) -> io::Result<Paths> {
        assert!((1..=PATHS_MAX).contains(&paths.len()), "{} paths", paths.len());
        let (order, mut paths) = (Mutex::new((0..paths.len()).collect()), paths.into_iter());
        let paths = Paths {
            placement,
            slots: std::array::from_fn(|_| {
                RwLock::new(paths.next().map_or(Slot::Empty, |path| Slot::Open(Box::new(path.placed(placement)))))
            }),
            given,
            is_default: false,
            wanted: Mutex::default(),
            is_changing: AtomicBool::new(false),
            changed: AtomicU64::new(0),
            opener,
            demanded: AtomicU64::new(0),
            served: AtomicU64::new(0),
            order,
            spread: Mutex::default(),
            ranking: Mutex::default(),
            table: Table::new()?,
            lists: Mutex::new(Lists::new(PATHS_MAX)),
            staging: std::array::from_fn(|_| Pool::new(MIGRATIONS_MAX, Staging::new)),
            emptying: Mutex::default(),
            promotion: Promotion::new(),
            cost_ram: AtomicU32::new(0),
            ram_is_scarce: AtomicBool::new(false),
        };
        paths.tiers();
        paths.look_at_costs();
        Ok(paths)
    }

    fn look_at_costs(&self) {
        let costs_ram = |path: &usize| self.costs_ram(*path);
        let cost_ram = (0..PATHS_MAX).filter(costs_ram).fold(0, |bits, path| bits | 1 << path);
        self.cost_ram.store(cost_ram, Relaxed);
    }

    fn slot(&self, path: usize) -> RwLockReadGuard<'_, Slot> {
        self.slots[path].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a path; `None`: it is not open.
    fn enter(&self, path: usize) -> Option<Entered<'_>> {
        let slot = self.slot(path);
        matches!(*slot, Slot::Open(_)).then_some(Entered(slot))
    }

    /// Enters the path that a row names, whose page is pinned or not yet freed there.
    fn path_of(&self, place: PathLocation) -> Entered<'_> {
        self.enter(place.path).expect("a path of which rows name pages stays open")
    }

    fn open(&self) -> impl Iterator<Item = Entered<'_>> {
        (0..PATHS_MAX).filter_map(|path| self.enter(path))
    }

    fn order(&self) -> Vec<usize> {
        lock(&self.order).clone()
    }

    /// The paths that take pages, in tiers: the best first.
    fn tiers(&self) -> Vec<Vec<usize>> {
        let tiers = self.find_tiers();
        self.promotion.learn_tiers(&tiers);
        tiers
    }

    /// Whether all paths of a tier have failed a short while ago.
    fn has_failed(&self, tier: &[usize]) -> bool {
        tier.iter().all(|path| self.enter(*path).is_none_or(|path| path.has_failed()))
    }

    /// The tiers in the order in which they are asked for room: those that have failed last.
    fn tiers_to_store_at(&self) -> Vec<Vec<usize>> {
        let mut tiers = self.tiers();
        tiers.sort_by_cached_key(|tier| self.has_failed(tier));
        tiers
    }

    fn find_tiers(&self) -> Vec<Vec<usize>> {
        match self.placement {
            PlacementName::Tiers => self.order().into_iter().map(|path| vec![path]).collect(),
            PlacementName::Spread => vec![self.order()],
            PlacementName::Auto => {
                let mut ranking = lock(&self.ranking);
                // Read under the lock: a path that is dropped leaves the order first, and then the tiers are due.
                let order = self.order();
                if ranking.is_old() {
                    let now = Instant::now();
                    let before = ranking.found.replace(now).unwrap_or(now);
                    self.forget_silent(&mut ranking, now.saturating_duration_since(before), &order);
                    ranking.ranked = self.rank(&ranking.ranked, &order);
                    ranking.is_due = false;
                }
                ranking.ranked.tiers()
            }
        }
    }

    /// Forgets what paths of `order` are from which nothing was loaded for long, `passed` after the last time.
    fn forget_silent(&self, ranking: &mut Ranking, passed: Duration, order: &[usize]) {
        let idle = |path: &usize| Some((*path, self.enter(*path)?.loads.idle()));
        let paths: Vec<_> = order.iter().filter_map(idle).collect();
        let forgotten = ranking.idle_times.pass(passed, &paths);
        forgotten.into_iter().filter_map(|path| self.enter(path)).for_each(|path| path.loads.forget());
    }

    /// The tiers of the paths of `order` by what they are now.
    fn rank(&self, before: &Ranked, order: &[usize]) -> Ranked {
        let open: Vec<(usize, Entered<'_>)> =
            order.iter().filter_map(|path| Some((*path, self.enter(*path)?))).collect();
        let known: Vec<Known> = open.iter().map(|(number, path)| path.known(*number)).collect();
        let ranked = before.next(&known);
        for (number, path) in &open {
            let tiers = before.tier_of(*number).zip(ranked.place_of(*number));
            path.tier_changes.fetch_add(u64::from(tiers.is_some_and(|(before, now)| before != now)), Relaxed);
        }
        ranked
    }

    /// Where the oldest pages of a path are demoted to: the next tier, or one further down while that fails; out of RAM, other paths of the same tier will do.
    fn below(&self, path: usize) -> Vec<usize> {
        let mut tiers = self.tiers();
        let Some(at) = tiers.iter().position(|tier| tier.contains(&path)) else { return Vec::new() };
        if at + 1 < tiers.len() {
            let next = (at + 1..tiers.len()).find(|next| !self.has_failed(&tiers[*next])).unwrap_or(at + 1);
            return tiers.swap_remove(next);
        }
        let mut beside = tiers.swap_remove(at);
        beside.retain(|other| *other != path && self.costs_ram(path) && !self.costs_ram(*other));
        beside
    }

    /// Whether pages at a path cost RAM.
    fn costs_ram(&self, path: usize) -> bool {
        self.enter(path).is_some_and(|path| path.backend.copies_cost_ram())
    }

    /// The same without a lock: as it was when paths changed last.
    fn cost_ram_at(&self, path: usize) -> bool {
        self.cost_ram.load(Relaxed) & 1 << path != 0
    }

    fn number_of(&self, location: Location) -> Option<usize> {
        self.table.place(handle_of(location)).map(|place| place.path)
    }

    /// RAM that is no path's: the rows of pages, and what is on its way between paths.
    fn own_ram_bytes(&self) -> u64 {
        let emptying = if self.is_changing.load(Relaxed) { Pipeline::RAM_BYTES } else { 0 };
        let staging = self.staging.iter().map(|pool| pool.made() as u64).sum::<u64>() * Staging::RAM_BYTES;
        lock(&self.lists).ram_bytes() + staging + emptying
    }

    /// Stores at the tiers in turn what has no place yet, and makes room there.
    fn store_in_tiers(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        let mut places = vec![batch::to_be_stored(); pages.len()];
        let mut tiers = self.tiers_to_store_at();
        if self.ram_is_scarce.load(Relaxed) {
            self.store_while_scarce(&tiers, pages, priority, &mut places);
        }
        while !tiers.is_empty() {
            // One that has failed meanwhile, as pages were demoted to it, is asked last, too.
            let next = tiers.iter().position(|tier| !self.has_failed(tier)).unwrap_or(0);
            let tier = tiers.remove(next);
            self.put(&tier, pages, priority, &mut places);
            if !self.enter_rows(&places, out) {
                return;
            }
            let is_full = |place: &Result<PathLocation, StoreError>| matches!(place, Err(StoreError::Full { .. }));
            for _ in 0..ROUNDS_MAX {
                let missing = places.iter().filter(|place| is_full(place)).count();
                let demote = |path: &usize| self.demote_from(*path, missing.div_ceil(tier.len()).max(BATCH_PAGES));
                if missing == 0 || tier.iter().map(demote).sum::<usize>() == 0 {
                    break;
                }
                self.put(&tier, pages, priority, &mut places);
                if !self.enter_rows(&places, out) {
                    return;
                }
            }
            if places.iter().all(Result::is_ok) {
                return;
            }
        }
        // Better back where everything is to go away from than nowhere.
        let mut last = places.clone();
        self.put(&self.leaving(), pages, priority, &mut last);
        if last.iter().any(Result::is_ok) {
            self.enter_rows(&last, out);
        }
    }

    /// Stores at the tiers of RAM what compresses there, and what does not below them, where that is not RAM.
    fn store_while_scarce(
        &self,
        tiers: &[Vec<usize>],
        pages: &[&PageBytes],
        priority: Priority,
        places: &mut [Result<PathLocation, StoreError>],
    ) {
        let is_ram = |tier: &Vec<usize>| tier.iter().all(|path| self.costs_ram(*path));
        let ram = tiers.iter().take_while(|tier| is_ram(tier)).count();
        let Some(below) = tiers.get(ram).filter(|_| ram > 0) else { return };
        for tier in &tiers[..ram] {
            self.put_if_compressible(tier, pages, Some(COMPRESSIBLE_BYTES_MAX), priority, places);
        }
        let is_incompressible = |index: &usize| matches!(places[*index], Err(StoreError::Incompressible { .. }));
        let incompressible: Vec<usize> = (0..pages.len()).filter(is_incompressible).collect();
        let incompressible_pages: Vec<&PageBytes> = incompressible.iter().map(|index| pages[*index]).collect();
        let mut answers = vec![batch::to_be_stored(); incompressible.len()];
        self.put(below, &incompressible_pages, priority, &mut answers);
        for (index, answer) in incompressible.into_iter().zip(answers) {
            places[index] = answer;
        }
    }

    /// Paths that are open and take no pages any more, but as a last resort.
    fn leaving(&self) -> Vec<usize> {
        let order = self.order();
        (0..PATHS_MAX).filter(|path| !order.contains(path) && self.enter(*path).is_some()).collect()
    }

    /// Enters rows for pages that have places and no rows, and says why others have none. False: there was no row for some, whose places are
    /// free again, and so there is none for others.
    fn enter_rows(
        &self,
        places: &[Result<PathLocation, StoreError>],
        out: &mut [Result<Location, StoreError>],
    ) -> bool {
        let mut without: Vec<PathLocation> = Vec::new();
        let mut lists = lock(&self.lists);
        for (place, out) in places.iter().zip(&mut *out) {
            match place {
                Ok(place) if out.is_err() => {
                    let row = self.table.insert(&mut lists, *place);
                    *out = row.map(|handle| Location(handle.into())).ok_or_else(|| self.table.full());
                    without.extend(row.is_none().then_some(*place));
                }
                Ok(_) => {}
                Err(error) => *out = Err(error.clone()),
            }
        }
        drop(lists);
        without.iter().for_each(|place| self.free_at(place.path, &[place.location]));
        if !without.is_empty() {
            out.iter_mut().filter(|out| out.is_err()).for_each(|out| *out = Err(self.table.full()));
        }
        without.is_empty()
    }

    /// Pages that are pinned are about to be loaded.
    fn note_loads(&self, pinned: &[(Handle, PathLocation)], priority: Priority) {
        if !self.promotion.has_lower() || !matches!(priority, Priority::Demand | Priority::Prefetch) {
            return;
        }
        let mut used = 0;
        for (handle, PathLocation { path, .. }) in pinned {
            self.promotion.loads(*path, 1);
            used += u32::from(self.table.first_load_of_promoted(*handle));
        }
        if used > 0 {
            lock(&self.promotion.gate).learn(used, 0);
        }
    }

    /// Loads pages that are pinned, from all their paths at once.
    fn load_pinned(
        &self,
        items: &mut [LoadItem<'_>],
        places: &[Option<PathLocation>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let mut entered: [Option<Entered<'_>>; PATHS_MAX] = [const { None }; PATHS_MAX];
        for place in places.iter().flatten() {
            entered[place.path].get_or_insert_with(|| self.path_of(*place));
        }
        let mut parts: [Option<Part<'_>>; PATHS_MAX] = [const { None }; PATHS_MAX];
        for (index, (item, place)) in items.iter_mut().zip(places).enumerate() {
            let Some(PathLocation { path: number, location }) = *place else { continue };
            let path = entered[number].as_deref().expect("entered above");
            let part = parts[number].get_or_insert_with(|| Part::load(number, path, priority));
            part.add_item(index, LoadItem { location, into: item.into });
        }
        let mut parts: Vec<Part<'_>> = parts.into_iter().flatten().collect();
        carry_out(&mut parts, &RefCell::new(done));
    }
}

/// The row that a location names.
fn handle_of(location: Location) -> Handle {
    Handle::try_from(location.0).expect("a location of this backend")
}

/// A page that the program waits for while paths are changing.
struct Demand<'a>(&'a Paths);

impl Demand<'_> {
    fn begin(paths: &Paths) -> Demand<'_> {
        paths.demanded.fetch_add(1, Relaxed);
        Demand(paths)
    }
}

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        self.0.served.fetch_add(1, Relaxed);
    }
}

/// The error of a load of what is not there.
fn nothing_at(location: Location) -> LoadError {
    LoadError::Damaged { url: "far memory".into(), location, what: "nothing is stored there (freed, or never stored)" }
}

impl Backend for Paths {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        out.fill(batch::to_be_stored());
        self.store_in_tiers(pages, priority, out);
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let is_counted = self.is_changing.load(Relaxed) && priority == Priority::Demand;
        let _demand = is_counted.then(|| Demand::begin(self));
        // What the program waits for is one page.
        if let [item] = items {
            let (outer, handle) = (item.location, handle_of(item.location));
            match self.table.pin(handle) {
                Some(place) => {
                    self.note_loads(&[(handle, place)], priority);
                    let path = self.path_of(place);
                    let timed = path.loads.begin(1);
                    let mut failed = false;
                    let mut inner = [LoadItem { location: place.location, into: &mut *item.into }];
                    path.backend.load(&mut inner, priority, &mut |_, result| {
                        failed = result.is_err();
                        done(0, result);
                    });
                    if !failed {
                        timed.end();
                    }
                    self.table.unpin(handle);
                }
                None => done(0, Err(nothing_at(outer))),
            }
            return;
        }
        let outer: Vec<Location> = items.iter().map(|item| item.location).collect();
        let places: Vec<Option<PathLocation>> = outer.iter().map(|at| self.table.pin(handle_of(*at))).collect();
        for (index, _) in places.iter().enumerate().filter(|(_, place)| place.is_none()) {
            done(index, Err(nothing_at(outer[index])));
        }
        if self.promotion.has_lower() {
            let pinned = outer.iter().zip(&places).filter_map(|(at, place)| Some((handle_of(*at), (*place)?)));
            self.note_loads(&pinned.collect::<Vec<_>>(), priority);
        }
        self.load_pinned(items, &places, priority, done);
        for (location, _) in outer.iter().zip(&places).filter(|(_, place)| place.is_some()) {
            self.table.unpin(handle_of(*location));
        }
    }

    fn patches(&self) -> bool {
        self.open().any(|path| path.backend.patches())
    }

    /// Of pages that lie where they would be stored anew, and that are not being migrated.
    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        out.fill(false);
        let pinned: Vec<Option<PathLocation>> =
            patches.iter().map(|patch| self.table.pin_still(handle_of(patch.location))).collect();
        for number in self.tiers().first().into_iter().flatten() {
            let is_there = |index: &usize| pinned[*index].is_some_and(|place| place.path == *number);
            let here: Vec<usize> = (0..patches.len()).filter(is_there).collect();
            let place = |index: &usize| pinned[*index].expect("it is there").location;
            let inner: Vec<Patch<'_>> =
                here.iter().map(|index| Patch { location: place(index), ..patches[*index] }).collect();
            if let Some(path) = self.enter(*number).filter(|_| !here.is_empty()) {
                let mut patched = vec![false; here.len()];
                path.backend.patch(&inner, priority, &mut patched);
                here.iter().zip(patched).for_each(|(index, patched)| out[*index] = patched);
            }
        }
        let unpin = |(patch, place): (&Patch<'_>, &Option<PathLocation>)| {
            if place.is_some() {
                self.table.unpin(handle_of(patch.location));
            }
        };
        patches.iter().zip(&pinned).for_each(unpin);
    }

    fn has_losses(&self) -> bool {
        self.open().any(|path| path.backend.has_losses())
    }

    fn has_lost(&self, location: Location) -> bool {
        let handle = handle_of(location);
        self.table.pin(handle).is_some_and(|place| {
            let lost = self.path_of(place).backend.has_lost(place.location);
            self.table.unpin(handle);
            lost
        })
    }

    fn free(&self, locations: &[Location]) {
        let mut freed: [Vec<Location>; PATHS_MAX] = [const { Vec::new() }; PATHS_MAX];
        for batch in locations.chunks(FREED_AT_ONCE) {
            let mut lists = lock(&self.lists);
            for location in batch {
                if let Some(place) = self.table.remove(&mut lists, handle_of(*location)) {
                    freed[place.path].push(place.location);
                }
            }
        }
        for (path, locations) in freed.iter().enumerate().filter(|(_, locations)| !locations.is_empty()) {
            self.free_at(path, locations);
        }
    }

    fn descriptors_if_confined(&self) -> Option<Vec<RawFd>> {
        let each: Option<Vec<Vec<RawFd>>> = self.open().map(|path| path.backend.descriptors_if_confined()).collect();
        each.map(|descriptors| descriptors.concat())
    }

    /// Of all paths that pages are waited for at.
    fn demand_width(&self) -> usize {
        self.open().map(|path| path.backend.demand_width()).sum()
    }

    fn copies_cost_ram(&self) -> bool {
        self.cost_ram.load(Relaxed) != 0
    }

    fn copies_take_room(&self) -> bool {
        self.copies_cost_ram() || self.promotion.has_lower()
    }

    fn copy_takes_room(&self, location: Location) -> bool {
        self.number_of(location).is_some_and(|path| self.cost_ram_at(path) || self.promotion.takes_room(path))
    }

    fn copy_costs_ram(&self, location: Location) -> bool {
        self.number_of(location).is_some_and(|path| self.cost_ram_at(path))
    }

    fn left_clean(&self, leaving: &[(Location, &PageBytes)]) {
        self.promote_leaving(leaving);
    }

    fn ram_bytes(&self) -> u64 {
        self.open().map(|path| path.backend.ram_bytes()).sum::<u64>() + self.own_ram_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let first = rows.len();
        // One path alone is in no tier, however many rows it has.
        let tiers = Some(self.tiers()).filter(|tiers| tiers.concat().len() > 1).unwrap_or_default();
        let tier = |path: usize| tiers.iter().position(|tier| tier.contains(&path)).map_or(0, |tier| tier as u64 + 1);
        for path in 0..PATHS_MAX {
            match &*self.slot(path) {
                Slot::Empty => {}
                Slot::Open(open) => open.usage(tier(path), rows),
                Slot::Closed(gone) => rows.extend_from_slice(gone),
            }
        }
        // The tables belong to all; the first row carries them, so that the sum is right.
        if let Some(row) = rows.get_mut(first) {
            row.ram_bytes += self.own_ram_bytes();
        }
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let handle = handle_of(item.location);
        let place = self.table.pin(handle).expect("a page that was just loaded");
        let inner = LoadItem { location: place.location, into: item.into };
        let repaired = self.path_of(place).backend.repair(inner, right);
        self.table.unpin(handle);
        repaired
    }

    fn needs_maintenance(&self) -> bool {
        self.is_changing.load(Relaxed)
            || self.promotion.is_owed()
            || self.open().any(|path| path.backend.needs_maintenance())
    }

    fn maintain(&self) -> Option<Duration> {
        let paths = self.open().filter_map(|path| path.maintain()).min();
        paths.into_iter().chain(self.change_step()).chain(self.promote_step()).min()
    }

    fn shrink_ram(&self, bytes: u64) -> u64 {
        self.demote_ram(bytes)
    }

    fn set_ram_scarce(&self, is_scarce: bool) {
        self.ram_is_scarce.store(is_scarce, Relaxed);
    }

    fn before_fork(&self) {
        self.open().for_each(|path| path.backend.before_fork());
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        if side == ForkSide::Child {
            self.forget_closed();
        }
        self.open().try_for_each(|path| {
            if side == ForkSide::Child {
                path.count_anew();
            }
            path.backend.after_fork(side)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Kind, page};
    use crate::{CodecName, Compressed, Reference};
    use hinterland_abi::PathChange;
    use hinterland_testkit::wait_until;

    const ROWS: u32 = 20;

    fn pages_at(paths: &Paths) -> u64 {
        let mut rows = Vec::new();
        paths.usage(&mut rows);
        rows.iter().map(|row| row.pages).sum()
    }

    #[test]
    fn the_first_row_has_the_tables_of_all_paths() {
        for on_node in [false, true] {
            let reference = Reference::new("reference".into(), 8 << 20).expect("address space");
            let reference = if on_node { reference.on_pretended_node() } else { reference };
            let paths = Paths::new(vec![Arc::new(reference)], PlacementName::Tiers).expect("address space");
            let mut out = vec![batch::to_be_stored(); 1000];
            paths.store(&[&page(Kind::Random, 1); 1000], Priority::WriteBack, &mut out);
            let mut rows = Vec::new();
            paths.usage(&mut rows);
            // Beside the pages a mark and an entry of a list for each, and its row here.
            assert_eq!(rows[0].ram_bytes, 1000 * (PAGE_BYTES as u64 + 9 + 16), "{on_node}");
        }
    }

    /// Two paths, the second of which took 50 ms for its only load.
    fn one_and_a_slow_one() -> Paths {
        let memory = || Arc::new(Reference::new("reference".into(), 1 << 30).expect("address space"));
        let paths = Paths::new(vec![memory(), memory()], PlacementName::Auto).expect("address space");
        load(&paths, 0, 1, Duration::from_micros(1));
        load(&paths, 1, 1, Duration::from_millis(50));
        lock(&paths.ranking).is_due = true;
        paths
    }

    fn load(paths: &Paths, path: usize, pages: u64, takes: Duration) {
        paths.enter(path).expect("it is open").loads.took(pages, takes);
    }

    #[test]
    fn a_path_that_comes_to_another_tier_counts_that() {
        let paths = one_and_a_slow_one();
        let slow = || {
            let mut rows = Vec::new();
            paths.usage(&mut rows);
            (rows[1].tier, rows[1].tier_changes)
        };
        assert_eq!(slow(), (2, 0));
        load(&paths, 1, 1, Duration::from_micros(1));
        lock(&paths.ranking).is_due = true;
        assert_eq!(slow(), (1, 1));
    }

    #[test]
    fn each_row_of_one_of_several_paths_has_its_tier() {
        let memory = || Arc::new(Reference::new("reference".into(), 1 << 30).expect("address space"));
        let two = || Arc::new(Paths::new(vec![memory(), memory()], PlacementName::Tiers).expect("address space"));
        let tiers = |paths: Vec<Arc<dyn Backend>>| {
            let mut rows = Vec::new();
            Paths::new(paths, PlacementName::Tiers).expect("address space").usage(&mut rows);
            rows.iter().map(|row| row.tier).collect::<Vec<_>>()
        };
        assert_eq!(tiers(vec![two(), memory()]), [1, 1, 2]);
        assert_eq!(tiers(vec![two()]), [0, 0]);
    }

    #[test]
    fn a_path_that_comes_leaves_the_others_in_their_tiers() {
        let memory = || Arc::new(Reference::new("reference".into(), 1 << 30).expect("address space"));
        let given = ["0", "1"].map(str::to_owned).to_vec();
        let opened = given.iter().map(|url| Path::new(url.clone(), memory(), 1.0)).collect();
        let opener: Opener = Box::new(move |_| Ok((memory(), 1.0)));
        let paths = Paths::opened(opened, given, PlacementName::Auto, opener).expect("address space");
        for (second_us, tiers) in [(150, vec![vec![0, 1]]), (220, vec![vec![0, 1]]), (300, vec![vec![0], vec![1]])] {
            load(&paths, 0, 1, Duration::from_micros(100));
            paths.enter(1).expect("it is open").loads.forget();
            load(&paths, 1, 1, Duration::from_micros(second_us));
            lock(&paths.ranking).is_due = true;
            assert_eq!(paths.tiers(), tiers, "{second_us}");
            if second_us == 220 {
                paths.change(1, vec![PathChange::Add("2".into())]);
                assert_eq!(paths.change_step(), Some(Duration::ZERO));
                assert_eq!(paths.tiers(), [[0, 1, 2]], "the new one is tried out beside both");
                paths.change(2, Vec::new());
                while paths.change_step().is_some() {}
                assert_eq!(paths.tiers(), tiers);
            }
        }
    }

    #[test]
    fn a_path_that_was_slow_once_and_is_forgotten_is_tried_out_again() {
        let paths = one_and_a_slow_one();
        let stored_at_second = || {
            lock(&paths.ranking).is_due = true;
            let pages_there = || paths.enter(1).expect("it is open").pages.load(Relaxed);
            let before = pages_there();
            let mut out = vec![batch::to_be_stored(); 640];
            paths.store(&[&page(Kind::Random, 1); 640], Priority::WriteBack, &mut out);
            pages_there() - before
        };
        assert_eq!(stored_at_second(), 0, "a lower tier gets nothing as long as the first has room");
        let row = || {
            let mut rows = Vec::new();
            paths.usage(&mut rows);
            (rows[1].tier, rows[1].tier_changes, rows[1].load_one_ns)
        };
        assert!(matches!(row(), (2, 0, 50_000_000..)), "{:?}", row());
        // Of a path that is slow with batches, too.
        load(&paths, 1, 16, Duration::from_millis(200));
        paths.enter(1).expect("it is open").loads.forget();
        assert!((10..30).contains(&stored_at_second()));
        assert_eq!(row(), (1, 1, 0), "it came to the first tier");
    }

    #[test]
    fn what_cannot_be_opened_is_tried_twice_a_second_however_often_maintenance_is_due() {
        let attempts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&attempts);
        let opener: Opener = Box::new(move |_| {
            counted.fetch_add(1, Relaxed);
            Err("it is not there".into())
        });
        let memory = Arc::new(Reference::new("reference".into(), 1 << 20).expect("address space"));
        let opened = vec![Path::new("0".into(), memory, 1.0)];
        let paths = Paths::opened(opened, vec!["0".into()], PlacementName::Tiers, opener).expect("address space");
        for version in 1..=2 {
            paths.change(version, vec![PathChange::Add("1".into())]);
            let (before, begun) = (attempts.load(Relaxed), Instant::now());
            (0..1000).for_each(|_| assert!(paths.maintain().is_some()));
            let most = 1 + begun.elapsed().as_millis() / 500;
            let made = u128::from(attempts.load(Relaxed) - before);
            assert!((1..=most).contains(&made), "{made} in the time for {most}");
            assert_eq!(paths.obstacle(), "it is not there");
        }
    }

    #[test]
    fn a_path_that_gives_nothing_back_uses_up_none_of_its_time() {
        let memory = || Arc::new(Reference::new("reference".into(), 1 << 30).expect("address space"));
        let paths = Paths::new(vec![memory(), memory()], PlacementName::Tiers).expect("address space");
        let mut out = [batch::to_be_stored()];
        paths.store(&[&page(Kind::Random, 1)], Priority::WriteBack, &mut out);
        let place = paths.table.place(handle_of(*out[0].as_ref().expect("there is room"))).expect("it is there");
        paths.path_of(place).backend.free(&[place.location]);
        for version in 1..=3 {
            paths.change(version, vec![PathChange::Drop("0".into())]);
            wait_until("something is in the way", || {
                paths.change_step();
                !paths.obstacle().is_empty()
            });
            assert!(paths.obstacle().contains("does not give them back"), "{}", paths.obstacle());
            assert!(lock(&paths.emptying).as_ref().is_some_and(|pipeline| !pipeline.duty_cycle.has_begun()));
        }
    }

    /// Counts its steps of maintenance, each of which asks for the same pause.
    struct Maintained {
        pause: Option<Duration>,
        steps: AtomicU64,
    }

    impl Backend for Maintained {
        fn store(&self, _: &[&PageBytes], _: Priority, _: &mut [Result<Location, StoreError>]) {
            unreachable!("nothing is stored");
        }

        fn load(&self, _: &mut [LoadItem<'_>], _: Priority, _: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>)) {
            unreachable!("nothing is loaded");
        }

        fn free(&self, _: &[Location]) {}

        fn copies_cost_ram(&self) -> bool {
            false
        }

        fn ram_bytes(&self) -> u64 {
            0
        }

        fn usage(&self, _: &mut Vec<BackendUsage>) {}

        fn maintain(&self) -> Option<Duration> {
            self.steps.fetch_add(1, Relaxed);
            self.pause
        }
    }

    #[test]
    fn each_path_is_maintained_with_its_own_pauses() {
        let an_hour = Duration::from_secs(3600);
        let backends = [Some(an_hour), Some(Duration::ZERO), None]
            .map(|pause| Arc::new(Maintained { pause, steps: AtomicU64::new(0) }));
        let steps = || backends.each_ref().map(|backend| backend.steps.load(Relaxed));
        let of = |backends: &[Arc<Maintained>]| {
            let backends = backends.iter().map(|backend| Arc::clone(backend) as Arc<dyn Backend>).collect();
            Paths::new(backends, PlacementName::Tiers).expect("address space")
        };
        let paths = of(&backends);
        (0..10).for_each(|_| assert_eq!(paths.maintain(), Some(Duration::ZERO)));
        assert_eq!(steps(), [1, 10, 10]);
        let alone = of(&backends[..1]);
        assert_eq!(alone.maintain(), Some(an_hour));
        assert!(alone.maintain().is_some_and(|rest| rest <= an_hour), "what is left of the pause");
        assert_eq!(steps(), [2, 10, 10]);
    }

    #[test]
    fn what_finds_no_row_is_refused_and_takes_no_place() {
        for placement in PlacementName::ALL {
            let memory = |pages: usize| Reference::new("reference".into(), (pages * PAGE_BYTES) as u64);
            let compressed = Compressed::new("compressed".into(), CodecName::Lz4, 1 << 20).expect("address space");
            let [small, large] = [10, 1000].map(|pages| Arc::new(memory(pages).expect("address space")));
            let mut paths = Paths::new(vec![small, Arc::new(compressed), large], *placement).expect("address space");
            paths.table = Table::of(ROWS).expect("address space");
            let mut held: Vec<(Location, u64)> = Vec::new();
            for round in 0..6u64 {
                let pages: Vec<PageBytes> = (0..7).map(|at| page(Kind::Random, round * 7 + at)).collect();
                let mut out = vec![batch::to_be_stored(); pages.len()];
                paths.store(&pages.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
                let room = ROWS as usize - held.len();
                assert_eq!(out.iter().filter(|out| out.is_ok()).count(), room.min(7), "{placement}, round {round}");
                for (seed, out) in (round * 7..).zip(out) {
                    match out {
                        Ok(location) => held.push((location, seed)),
                        Err(error) => assert!(error.to_string().starts_with("far memory is full"), "{error}"),
                    }
                }
                assert_eq!(pages_at(&paths), held.len() as u64, "{placement}, round {round}");
                if room <= 7 {
                    paths.free(&held.drain(..9).map(|(location, _)| location).collect::<Vec<_>>());
                }
            }
            for (location, seed) in &held {
                let mut into = [0; PAGE_BYTES];
                let mut items = [LoadItem { location: *location, into: &mut into }];
                paths.load(&mut items, Priority::Demand, &mut |_, there| assert!(there.is_ok()));
                assert!(into == page(Kind::Random, *seed), "{placement}, page {seed}");
            }
            paths.free(&held.into_iter().map(|(location, _)| location).collect::<Vec<_>>());
            assert_eq!(pages_at(&paths), 0);
        }
    }
}
