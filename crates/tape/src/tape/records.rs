//! Arrivals and departures as bytes: consecutive pages are one record.
//!
//! An arrival record is a number whose two lowest bits say what it is:
//!
//! ```text
//!   0  fetch          bit 2: another thread's reference; the rest: (pages − 1) · 2 + downwards; page: difference to the page behind the
//!   1  first touch    last one (zigzag); position: difference to the one behind the last; of several: their distance in positions − 1
//!   2  other region   the rest: which
//! ```
//!
//! A departure record: bit 0 is 1 for another region (the rest: which), else the rest is (pages − 1) · 2 + downwards; page and position as
//! above; position − last use; next use − position, 0 for never; of several pages: their distance in positions − 1, and how much further
//! (zigzag) than that the last use of each is from that of the one before it, and the next use (0 for never).
//!
//! Every part starts from region 0, page 0 and the position that it states.

use super::run::{CUT, Detail, Last, Run, put_shape, put_stride, region_of, shape, take_stride};
use crate::INDEX_MAX;
use crate::bytes::{Bytes, put, unzigzag, zigzag};
use hinterland_policy::NEVER;

/// A page that comes to local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Position in the thread's tape: which of its references needs the page, from 0.
    pub position: u32,
    /// Region.
    pub region: u32,
    /// Page of it.
    pub page: u32,
    /// It has content and must be fetched; otherwise this is its first touch.
    pub fetched: bool,
    /// The trace has the thread's own reference for it. Otherwise another thread touched it in a microset in which this one ran, too: it is
    /// no key page, because this one may find it mapped.
    pub own: bool,
    /// In which of the program's intervals, from 1; 0: the tape is of all of the program.
    pub interval: u32,
}

/// A page that leaves local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Position in the thread's tape: of the arrival that it makes room for.
    pub position: u32,
    /// Region.
    pub region: u32,
    /// Page of it.
    pub page: u32,
    /// Position of the thread's last use of it: from there on it can leave.
    pub last_use: u32,
    /// Position of the thread's next use; `None`: it does not need the page again.
    pub next_use: Option<u32>,
}

/// How a page arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    fetched: bool,
    own: bool,
}

/// Positions of a page's uses before and after its departure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uses {
    pub last_use: u32,
    /// [`NEVER`]: there is none.
    pub next_use: u32,
}

impl Uses {
    /// Whether they can be those of a page that leaves at `position`; `never`: it does for good.
    fn are_around(self, position: u32, never: bool) -> bool {
        let is_next = if never { self.next_use == NEVER } else { self.next_use < NEVER - 1 };
        self.last_use <= position && self.next_use > position && is_next
    }
}

/// In place of the distance to the next use, and of how it goes on.
const NO_USE: u64 = 0;

/// Writes the records of one part.
#[derive(Clone, Debug, Default)]
pub struct Records {
    arrivals: Vec<u8>,
    departures: Vec<u8>,
    arrival: Option<Run<How>>,
    departure: Option<Run<Uses>>,
    last_arrival: Last,
    last_departure: Last,
    /// Where the part begins.
    from: u32,
    interval: u32,
}

impl Records {
    /// A part of an interval, whose positions begin at `from`.
    pub fn starting_at(from: u32, interval: u32) -> Records {
        let last = Last { position: from, ..Last::default() };
        Records { last_arrival: last, last_departure: last, from, interval, ..Records::default() }
    }

    /// The interval that it is of.
    pub fn interval(&self) -> u32 {
        self.interval
    }

    /// Behind the last arrival.
    pub fn end(&self) -> u32 {
        self.arrival.map_or(self.last_arrival.position, |run| run.position(run.pages - 1) + 1)
    }

    /// Appends an arrival, behind those that are there.
    pub fn arrive(&mut self, arrival: Arrival) {
        let Arrival { position, region, page, fetched, own, .. } = arrival;
        let how = How { fetched, own };
        if self.arrival.as_mut().is_some_and(|run| run.continues(how, region, page, position)) {
            return;
        }
        self.end_arrivals();
        self.arrival = Some(Run::of_one(how, region, page, position));
    }

    /// Appends a departure, behind those that are there.
    pub fn depart(&mut self, departure: Departure) {
        let Departure { position, region, page, last_use, next_use } = departure;
        let uses = Uses { last_use, next_use: next_use.unwrap_or(NEVER) };
        if self.departure.as_mut().is_some_and(|run| run.continues(uses, region, page, position)) {
            return;
        }
        self.end_departures();
        self.departure = Some(Run::of_one(uses, region, page, position));
    }

    fn end_arrivals(&mut self) {
        let Some(run) = self.arrival.take() else { return };
        let (last, out) = (&mut self.last_arrival, &mut self.arrivals);
        if run.region != last.region {
            put(out, u64::from(run.region) << 2 | 2);
        }
        let How { fetched, own } = run.detail;
        put_shape(out, &run, 3, u64::from(!fetched) | u64::from(!own) << 2);
        last.put_place(out, &run);
        put_stride(out, &run);
        last.pass(&run).expect("a run was made of pages and positions that exist");
    }

    fn end_departures(&mut self) {
        let Some(run) = self.departure.take() else { return };
        let (last, out) = (&mut self.last_departure, &mut self.departures);
        if run.region != last.region {
            put(out, u64::from(run.region) << 1 | 1);
        }
        put_shape(out, &run, 1, 0);
        last.put_place(out, &run);
        let Uses { last_use, next_use } = run.detail;
        put(out, u64::from(run.first_position - last_use));
        put(out, if next_use == NEVER { NO_USE } else { u64::from(next_use - run.first_position) });
        put_stride(out, &run);
        if run.pages > 1 {
            let along = i64::from(run.stride);
            put(out, zigzag(run.step.0 - along));
            put(out, if next_use == NEVER { NO_USE } else { zigzag(run.step.1 - along) });
        }
        last.pass(&run).expect("a run was made of pages and positions that exist");
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.arrivals.len() + self.departures.len()
    }

    /// The part's payload: thread, first position, interval, bytes of the arrivals, arrivals, departures. `None`: there is nothing in it.
    pub fn finish(mut self, thread: u32) -> Option<Vec<u8>> {
        self.end_arrivals();
        self.end_departures();
        if self.bytes() == 0 {
            return None;
        }
        let mut payload = Vec::with_capacity(self.bytes() + 16);
        for number in [u64::from(thread), u64::from(self.from), u64::from(self.interval), self.arrivals.len() as u64] {
            put(&mut payload, number);
        }
        payload.extend_from_slice(&self.arrivals);
        payload.extend_from_slice(&self.departures);
        Some(payload)
    }
}

/// A part, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub thread: u32,
    from: u32,
    interval: u32,
    arrivals: &'a [u8],
    departures: &'a [u8],
}

impl<'a> Part<'a> {
    pub fn decode(payload: &'a [u8], version: u8) -> Option<Part<'a>> {
        let mut left = Bytes(payload);
        let thread = left.small().filter(|thread| *thread < INDEX_MAX)?;
        let from = left.small().filter(|from| *from < NEVER - 1)?;
        let interval = if version > 1 { left.small()? } else { 0 };
        let arrival_bytes = usize::try_from(left.number()?).ok()?;
        let (arrivals, departures) = left.0.split_at_checked(arrival_bytes)?;
        Some(Part { thread, from, interval, arrivals, departures })
    }

    fn runs<D: Detail>(&self, bytes: &'a [u8], regions: u32) -> Runs<'a, D> {
        let last = Last { position: self.from, ..Last::default() };
        Runs { left: Bytes(bytes), last, regions, run: None, index: 0 }
    }

    pub fn arrivals(&self, regions: u32) -> Arrivals<'a> {
        Arrivals(self.runs(self.arrivals, regions), self.interval)
    }

    pub fn departures(&self, regions: u32) -> Departures<'a> {
        Departures(self.runs(self.departures, regions))
    }
}

/// The runs of a part's arrivals or departures, and the place in the present one.
#[derive(Clone, Debug)]
struct Runs<'a, D: Detail> {
    left: Bytes<'a>,
    last: Last,
    regions: u32,
    run: Option<Run<D>>,
    index: u32,
}

impl<D: Detail> Runs<'_, D> {
    /// The next page's run and its place there. After an error nothing follows.
    #[inline]
    fn next(
        &mut self,
        take_run: impl Fn(&mut Self) -> Result<Run<D>, &'static str>,
    ) -> Option<Result<(Run<D>, u32), &'static str>> {
        loop {
            if let Some(run) = self.run.filter(|run| self.index < run.pages) {
                self.index += 1;
                return Some(Ok((run, self.index - 1)));
            }
            if self.left.is_empty() {
                return None;
            }
            match take_run(self) {
                Ok(run) => (self.run, self.index) = (Some(run), 0),
                Err(what) => {
                    self.left = Bytes(&[]);
                    self.run = None;
                    return Some(Err(what));
                }
            }
        }
    }
}

/// The arrivals of a part.
#[derive(Clone, Debug)]
pub struct Arrivals<'a>(Runs<'a, How>, u32);

impl Runs<'_, How> {
    fn take_arrivals(&mut self) -> Result<Run<How>, &'static str> {
        loop {
            let record = self.left.number().ok_or(CUT)?;
            let kind = record & 3;
            if kind == 2 {
                self.last.region = region_of(record >> 2, self.regions)?;
                continue;
            }
            if kind == 3 {
                return Err("a record of an unknown kind");
            }
            let (pages, down) = shape(record >> 3)?;
            let (first_page, first_position) = self.last.take_place(&mut self.left)?;
            let stride = take_stride(&mut self.left, pages)?;
            let detail = How { fetched: kind == 0, own: record & 4 == 0 };
            let region = region_of(self.last.region.into(), self.regions)?;
            let run = Run { detail, region, first_page, first_position, pages, down, stride, step: () };
            self.last.pass(&run)?;
            return Ok(run);
        }
    }
}

impl Iterator for Arrivals<'_> {
    type Item = Result<Arrival, &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(Runs::take_arrivals).map(|place| {
            place.map(|(run, index)| {
                let (How { fetched, own }, interval) = (run.detail, self.1);
                let (position, page) = (run.position(index), run.page(index));
                Arrival { position, region: run.region, page, fetched, own, interval }
            })
        })
    }
}

/// The departures of a part.
#[derive(Clone, Debug)]
pub struct Departures<'a>(Runs<'a, Uses>);

impl Runs<'_, Uses> {
    fn take_steps(&mut self, pages: u32, stride: u32) -> Result<(i64, i64), &'static str> {
        if pages == 1 {
            return Ok((0, 0));
        }
        let steps = (self.left.number().ok_or(CUT)?, self.left.number().ok_or(CUT)?);
        let step = |written| unzigzag(written).checked_add(stride.into()).filter(|step| step.unsigned_abs() < 1 << 33);
        step(steps.0).zip(step(steps.1)).ok_or("a distance is too large")
    }

    fn take_departures(&mut self) -> Result<Run<Uses>, &'static str> {
        loop {
            let record = self.left.number().ok_or(CUT)?;
            if record & 1 == 1 {
                self.last.region = region_of(record >> 1, self.regions)?;
                continue;
            }
            let (pages, down) = shape(record >> 1)?;
            let (first_page, first_position) = self.last.take_place(&mut self.left)?;
            let (idle, next) = (self.left.small().ok_or(CUT)?, self.left.small().ok_or(CUT)?);
            let stride = take_stride(&mut self.left, pages)?;
            let step = self.take_steps(pages, stride)?;
            let last_use = first_position.checked_sub(idle).ok_or("a last use lies before the beginning")?;
            let next_use = match u64::from(next) {
                NO_USE => NEVER,
                _ => first_position.checked_add(next).ok_or("a next use is too large")?,
            };
            let step = if next_use == NEVER { (step.0, 0) } else { step };
            let region = region_of(self.last.region.into(), self.regions)?;
            let detail = Uses { last_use, next_use };
            let run = Run { detail, region, first_page, first_position, pages, down, stride, step };
            self.last.pass(&run)?;
            // Everything grows evenly: what holds for the first and the last page holds for those between.
            if ![0, pages - 1]
                .into_iter()
                .all(|index| run.detail(index).are_around(run.position(index), next_use == NEVER))
            {
                return Err("a page's uses do not lie around its departure");
            }
            return Ok(run);
        }
    }
}

impl Iterator for Departures<'_> {
    type Item = Result<Departure, &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(Runs::take_departures).map(|place| {
            place.map(|(run, index)| {
                let (position, page, uses) = (run.position(index), run.page(index), run.detail(index));
                let next_use = (uses.next_use != NEVER).then_some(uses.next_use);
                Departure { position, region: run.region, page, last_use: uses.last_use, next_use }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_testkit::Rng;

    /// What a checksum does not catch: a part that was forged.
    #[test]
    fn whatever_a_part_has_it_ends_and_its_positions_grow() {
        let mut random = Rng(5);
        let (mut wrong, mut right) = (0_u32, 0_u32);
        for _ in 0..50_000 {
            let length = random.below_u32(24) as usize;
            let payload: Vec<u8> =
                (0..length).map(|_| random.next_u64().to_le_bytes()[0] >> random.below_u32(8)).collect();
            let Some(part) = Part::decode(&payload, 2) else { continue };
            let mut end = 0;
            for arrival in part.arrivals(2) {
                let Ok(Arrival { position, region, .. }) = arrival else { break };
                assert!(position >= end && position < NEVER - 1 && region < 2, "{payload:?}");
                (end, right) = (position + 1, right + 1);
            }
            for departure in part.departures(2) {
                let Ok(Departure { position, last_use, next_use, .. }) = departure else {
                    wrong += 1;
                    break;
                };
                assert!(last_use <= position && next_use.is_none_or(|next| next > position), "{payload:?}");
                right += 1;
            }
        }
        assert!(wrong > 100 && right > 100, "{wrong} {right}: the parts test nothing");
    }
}
