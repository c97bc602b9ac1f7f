//! The next piece on a link that several tenants share: the link is divided equally among tenants, a tenant's part
//! among its programs, a program's part among classes.
//!
//! ```text
//!   tenants ── fair queueing ──► programs ── fair queueing ──► classes ── LinkScheduler ──► the oldest piece
//! ```
//!
//! Start-time fair queueing (Goyal, Vin & Cheng 1996): a piece starts when the one before of the same row has ended, in
//! the row's own time, but not before the piece that was sent last; the least start is next. So a row that requests
//! less than its part waits for at most one piece of the others, and a row that requests more delays its own next
//! pieces. Among equals the more urgent class goes first: a client that claims a wrong class gains no more than that.
//!
//! Invariant: pieces of one program and class are sent in the order of their coming. No clock: times are arguments.

use crate::{LinkScheduler, LinkShare, NextSlot, Priority};
use std::collections::VecDeque;

/// Whose a piece is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel {
    /// Has a part of the link.
    pub tenant: u64,
    /// Has a part of the tenant's.
    pub program: u64,
    /// What it is for.
    pub class: Priority,
}

/// What waits for its turn on a link.
#[derive(Debug)]
pub struct FairLink<T> {
    share: LinkShare,
    tenants: Fair<Fair<Classes<T>>>,
    waiting: usize,
}

#[derive(Debug)]
struct Piece<T> {
    bytes: u64,
    since_ns: u64,
    what: T,
}

impl<T> FairLink<T> {
    /// An idle link; each program's part is divided so among its classes.
    pub fn new(share: LinkShare) -> FairLink<T> {
        FairLink { share, tenants: Fair::default(), waiting: 0 }
    }

    /// How many pieces wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// From now on a piece of `bytes` waits.
    pub fn push(&mut self, channel: Channel, bytes: u64, now_ns: u64, what: T) {
        let share = self.share;
        let programs = self.tenants.row(channel.tenant, Fair::default);
        let classes = programs.row(channel.program, || Classes::new(share));
        classes.pieces[channel.class as usize].push_back(Piece { bytes, since_ns: now_ns, what });
        self.waiting += 1;
    }

    /// The piece whose turn it is, and its bytes; `ns_of` bytes is how long they take on the link.
    pub fn pop(&mut self, now_ns: u64, ns_of: impl Fn(u64) -> u64) -> Option<(T, u64)> {
        let tenant = self.tenants.next()?;
        let programs = self.tenants.queue(tenant);
        let program = programs.next().expect("its tenant waits");
        let piece = programs.queue(program).pop(now_ns, ns_of);
        programs.sent(program, piece.bytes);
        self.tenants.sent(tenant, piece.bytes);
        self.waiting -= 1;
        Some((piece.what, piece.bytes))
    }

    /// One of those that wait.
    pub fn any(&self) -> Option<&T> {
        let waiting = self.tenants.rows.iter().flat_map(|tenant| &tenant.queue.rows);
        waiting.flat_map(|program| &program.queue.pieces).find_map(VecDeque::front).map(|piece| &piece.what)
    }
}

/// What rows of fair queueing consist of.
trait Queue {
    /// The most urgent class that waits there; `None`: nothing does.
    fn urgency(&self) -> Option<Priority>;
}

/// Rows in which nothing waits that are kept at most: tenants, and programs of each.
const IDLE_ROWS_MAX: usize = 16;

/// Rows that have equal parts.
#[derive(Debug)]
struct Fair<Q> {
    rows: Vec<Row<Q>>,
    /// The start of the piece that was sent last.
    time: u64,
}

#[derive(Debug)]
struct Row<Q> {
    number: u64,
    /// Of its next piece, in bytes of the row's own.
    start: u64,
    queue: Q,
}

impl<Q> Default for Fair<Q> {
    fn default() -> Fair<Q> {
        Fair { rows: Vec::new(), time: 0 }
    }
}

impl<Q: Queue> Fair<Q> {
    /// The queue of a row in which something will wait.
    fn row(&mut self, number: u64, new: impl FnOnce() -> Q) -> &mut Q {
        let found = self.rows.iter().position(|row| row.number == number);
        let index = found.unwrap_or_else(|| {
            self.rows.push(Row { number, start: self.time, queue: new() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[index];
        if row.queue.urgency().is_none() {
            row.start = row.start.max(self.time);
        }
        &mut row.queue
    }

    /// The row whose turn it is.
    fn next(&self) -> Option<usize> {
        let waiting =
            self.rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.start, row.queue.urgency()?)));
        waiting.min_by_key(|(_, start, urgency)| (*start, *urgency)).map(|(index, ..)| index)
    }

    fn queue(&mut self, row: usize) -> &mut Q {
        &mut self.rows[row].queue
    }

    /// A row has had its turn. Where nothing waits, and what the row has had counts no more, it is kept for what its classes have learned, until others
    /// have taken its place.
    fn sent(&mut self, row: usize, bytes: u64) {
        self.time = self.rows[row].start;
        self.rows[row].start += bytes;
        let is_idle = |row: &Row<Q>| row.queue.urgency().is_none() && row.start <= self.time;
        while self.rows.iter().filter(|row| is_idle(row)).count() > IDLE_ROWS_MAX {
            let idle = self.rows.iter().enumerate().filter(|(_, row)| is_idle(row));
            let oldest = idle.min_by_key(|(_, row)| row.start).map(|(index, _)| index);
            self.rows.remove(oldest.expect("there are more than none"));
        }
    }
}

impl<Q: Queue> Queue for Fair<Q> {
    fn urgency(&self) -> Option<Priority> {
        self.rows.iter().filter_map(|row| row.queue.urgency()).min()
    }
}

/// What waits of one program.
#[derive(Debug)]
struct Classes<T> {
    scheduler: LinkScheduler,
    /// By class.
    pieces: [VecDeque<Piece<T>>; 4],
}

impl<T> Classes<T> {
    fn new(share: LinkShare) -> Classes<T> {
        Classes { scheduler: LinkScheduler::new(share), pieces: Default::default() }
    }

    fn pop(&mut self, now_ns: u64, ns_of: impl Fn(u64) -> u64) -> Piece<T> {
        let waits = self.pieces.each_ref().map(|pieces| !pieces.is_empty());
        loop {
            match self.scheduler.next(waits).expect("its program waits") {
                // Another program's slot begins at once.
                NextSlot::Pass(bytes) => self.scheduler.passed(bytes),
                NextSlot::Send(class) => {
                    let piece = self.pieces[class as usize].pop_front().expect("it waits");
                    self.scheduler.sent(class, piece.bytes);
                    if class == Priority::Demand {
                        self.scheduler.waited(now_ns.saturating_sub(piece.since_ns), ns_of(piece.bytes));
                    }
                    return piece;
                }
            }
        }
    }
}

impl<T> Queue for Classes<T> {
    fn urgency(&self) -> Option<Priority> {
        const CLASSES: [Priority; 4] = [Priority::Demand, Priority::Prefetch, Priority::WriteBack, Priority::Migration];
        CLASSES.into_iter().find(|class| !self.pieces[*class as usize].is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const PAGE: u64 = 4096;

    fn channel(tenant: u64, program: u64, class: Priority) -> Channel {
        Channel { tenant, program, class }
    }

    /// Bytes of each channel after so many turns, where each always has a next piece of its own size.
    fn divided(channels: &[(Channel, u64)], turns: usize) -> Vec<u64> {
        let mut link = FairLink::new(LinkShare::Weighted(25));
        let mut had = vec![0; channels.len()];
        channels.iter().enumerate().for_each(|(at, (channel, bytes))| link.push(*channel, *bytes, 0, at));
        for _ in 0..turns {
            let (at, bytes) = link.pop(0, |_| 1).expect("all wait");
            had[at] += bytes;
            link.push(channels[at].0, channels[at].1, 0, at);
        }
        had
    }

    fn assert_parts(had: &[u64], wanted: &[u64]) {
        let all: u64 = had.iter().sum();
        assert!(
            had.iter().zip(wanted).all(|(had, wanted)| (had * 100 / all).abs_diff(*wanted) <= 1),
            "{had:?}, not {wanted:?}"
        );
    }

    #[test]
    fn tenants_then_programs_then_classes_have_their_parts_whatever_they_say_and_however_long_their_pieces_are() {
        use Priority::{Demand, Migration, Prefetch};
        let had = divided(&[(channel(1, 1, Demand), PAGE), (channel(2, 1, Migration), 16 * PAGE)], 50_000);
        assert_parts(&had, &[50, 50]);
        let had = divided(
            &[
                (channel(1, 1, Demand), PAGE),
                (channel(1, 2, Migration), 3 * PAGE),
                (channel(2, 1, Demand), PAGE),
                (channel(2, 1, Prefetch), PAGE),
            ],
            100_000,
        );
        assert_parts(&had, &[25, 25, 12, 37]);
        let many: Vec<_> = (0..20).map(|tenant| (channel(tenant, 0, Prefetch), PAGE << (tenant % 4))).collect();
        assert_parts(&divided(&many, 100_000), &[5; 20]);
    }

    /// Many lanes are no larger part.
    #[test]
    fn a_tenant_with_many_pieces_gets_what_it_gets_with_one() {
        let mut link = FairLink::new(LinkShare::Auto);
        let (meek, greedy) = (channel(1, 1, Priority::WriteBack), channel(2, 2, Priority::Demand));
        link.push(meek, PAGE, 0, 0);
        (0..48).for_each(|_| link.push(greedy, PAGE, 0, 1));
        let mut had = [0, 0];
        for _ in 0..10_000 {
            let (at, bytes) = link.pop(0, |_| 1).expect("both wait");
            had[at] += bytes;
            link.push([meek, greedy][at], PAGE, 0, at);
        }
        assert_eq!((had[0].abs_diff(had[1]), link.waiting()), (0, 49));
    }

    #[test]
    fn who_comes_now_and_then_is_next_and_who_was_away_has_no_claim() {
        let mut link = FairLink::new(LinkShare::Auto);
        let (meek, greedy) = (channel(1, 1, Priority::Demand), channel(2, 2, Priority::Demand));
        (0..8).for_each(|_| link.push(greedy, 16 * PAGE, 0, "greedy"));
        for _ in 0..100 {
            for _ in 0..3 {
                assert_eq!(link.pop(0, |_| 1), Some(("greedy", 16 * PAGE)));
                link.push(greedy, 16 * PAGE, 0, "greedy");
            }
            link.push(meek, PAGE, 0, "meek");
            assert_eq!(link.pop(0, |_| 1), Some(("meek", PAGE)));
        }
        // Now it asks all the time, and has half, not what it has not asked for before.
        let mut had = HashMap::from([("meek", 0), ("greedy", 0)]);
        link.push(meek, PAGE, 0, "meek");
        for _ in 0..17_000 {
            let (who, bytes) = link.pop(0, |_| 1).expect("both wait");
            *had.get_mut(who).expect("one of both") += bytes;
            link.push(if who == "meek" { meek } else { greedy }, bytes, 0, who);
        }
        assert!(had["meek"].abs_diff(had["greedy"]) <= 16 * PAGE, "{had:?}");
    }

    #[test]
    fn rows_go_when_they_count_no_more_and_pieces_keep_their_order() {
        let mut link = FairLink::new(LinkShare::Fixed(25));
        for round in 0..1000u64 {
            for piece in 0..3 {
                link.push(channel(round, round, Priority::Migration), PAGE, 0, (round, piece));
            }
            assert_eq!(link.any(), Some(&(round, 0)));
            for piece in 0..3 {
                assert_eq!(link.pop(0, |_| 1), Some(((round, piece), PAGE)));
            }
            assert_eq!((link.pop(0, |_| 1), link.any(), link.waiting()), (None, None, 0));
            assert!(link.tenants.rows.len() <= IDLE_ROWS_MAX + 1, "{} rows", link.tenants.rows.len());
        }
        for program in 0..1000 {
            (0..2).for_each(|piece| link.push(channel(1, program, Priority::Migration), PAGE, 0, (program, piece)));
            (0..2).for_each(|piece| assert_eq!(link.pop(0, |_| 1), Some(((program, piece), PAGE))));
        }
        let programs = link.tenants.rows.iter().map(|tenant| tenant.queue.rows.len()).max();
        assert!(programs <= Some(IDLE_ROWS_MAX + 2), "{programs:?} programs");
    }

    /// A program of single demands, between which others have their turns.
    #[test]
    fn what_demands_waited_is_known_when_the_next_one_comes() {
        let (mut link, mut shares) = (FairLink::new(LinkShare::Auto), Vec::new());
        let (one, other) = (channel(1, 1, Priority::Demand), channel(2, 2, Priority::Migration));
        for round in 0..5 {
            link.push(one, PAGE, 0, "one");
            for _ in 0..3 {
                link.push(other, PAGE, 0, "other");
            }
            // Each waits for much longer than it takes.
            while link.pop(1000, |_| 1).is_some() {}
            let tenant = link.tenants.rows.iter().find(|row| row.number == 1);
            let program = tenant.and_then(|row| row.queue.rows.first());
            shares.push(program.map(|row| row.queue.scheduler.percent()));
            assert_eq!(link.waiting(), 0, "round {round}");
        }
        assert_eq!(shares, [35, 55, 75, 90, 90].map(Some), "auto begins at 15, and has not forgotten");
    }
}
