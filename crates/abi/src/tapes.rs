//! The tapes of a run: of which program each is, where it lies in the launcher's memory, and which processes have taken it.
//!
//! ```text
//!   of a process's program and its arguments   the one that the fewest processes have taken, the first of them
//!   of its program, with other arguments       the first that no other process has taken, unless arguments must match
//! ```
//!
//! A child of a fork takes one of its own in the same way, of those whose process came by the same forks from the same program.
//!
//! The launcher fills the table in before it starts the program. Then rows only count: no process waits for another, and of several processes that
//! come at once each has one of its own as long as there are enough.

use crate::ledger::Counter;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Tapes that a run may have: as many as traces.
pub const TAPES_MAX: usize = crate::TRACES_MAX as usize;

/// One tape.
#[repr(C)]
#[derive(Debug)]
pub struct TapeRow {
    /// The key of its program; 0: not known, any.
    program: Counter,
    /// The digest of the program's arguments; 0: not known.
    arguments: Counter,
    /// The key of the forks by which its process came from the program; 0: none.
    forks: Counter,
    offset: Counter,
    bytes: Counter,
    /// Processes that have taken it.
    takers: AtomicU32,
    /// The first of them.
    pid: AtomicI32,
}

/// What a tape is of, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapePlace {
    /// The key of its program; 0: not known, any.
    pub program: u64,
    /// The digest of the program's arguments; 0: not known.
    pub arguments: u64,
    /// The key of the forks by which its process came from the program; 0: none.
    pub forks: u64,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// A process that is to follow a tape.
#[derive(Clone, Copy, Debug)]
pub struct TapeTaker {
    /// The keys by which its program is known.
    pub programs: [u64; 2],
    /// The digest of its arguments.
    pub arguments: u64,
    /// The key of the forks by which it came from its program; 0: none.
    pub forks: u64,
    /// Its number.
    pub pid: i32,
}

/// All tapes of a run, in the order in which their traces were begun. All zero: there are none.
#[repr(C)]
#[derive(Debug)]
pub struct TapeTable {
    count: AtomicU32,
    arguments_must_match: AtomicU32,
    rows: [TapeRow; TAPES_MAX],
}

impl TapeTable {
    /// Fills the table in: [`TAPES_MAX`] at most.
    pub fn fill(&self, places: &[TapePlace], arguments_must_match: bool) {
        for (row, place) in self.rows.iter().zip(places) {
            row.program.store(place.program, Relaxed);
            row.arguments.store(place.arguments, Relaxed);
            row.forks.store(place.forks, Relaxed);
            row.offset.store(place.offset, Relaxed);
            row.bytes.store(place.bytes, Relaxed);
        }
        self.arguments_must_match.store(arguments_must_match.into(), Relaxed);
        self.count.store(u32::try_from(places.len().min(TAPES_MAX)).unwrap_or(0), Release);
    }

    /// Takes a tape for a process: its number, and where it lies. `None`: there is none for it.
    pub fn take(&self, taker: TapeTaker) -> Option<(usize, TapePlace)> {
        let is_of = |row: &TapeRow| {
            let is_of_program = [0, taker.programs[0], taker.programs[1]].contains(&row.program.load(Relaxed));
            is_of_program && row.forks.load(Relaxed) == taker.forks
        };
        let rows = self.rows.iter().enumerate().take(self.count.load(Acquire) as usize).filter(|(_, row)| is_of(row));
        let (number, row) = least_taken(rows.clone().filter(|(_, row)| row.arguments.load(Relaxed) == taker.arguments))
            .or_else(|| match self.arguments_must_match.load(Relaxed) {
                0 => first_of(0, taker.pid, rows.clone()).or_else(|| first_of(taker.pid, taker.pid, rows)),
                _ => None,
            })?;
        let _ = row.pid.compare_exchange(0, taker.pid, Relaxed, Relaxed);
        Some((number, row.place()))
    }

    /// Whether a process has taken one.
    pub fn any_taken(&self) -> bool {
        self.rows.iter().take(self.count.load(Relaxed) as usize).any(|row| row.takers.load(Relaxed) > 0)
    }
}

/// The one that the fewest have taken, which one more has now.
fn least_taken<'a>(rows: impl Iterator<Item = (usize, &'a TapeRow)> + Clone) -> Option<(usize, &'a TapeRow)> {
    loop {
        let taken = rows.clone().map(|(number, row)| (row.takers.load(Relaxed), number, row));
        let (takers, number, row) = taken.min_by_key(|(takers, ..)| *takers)?;
        if row.takers.compare_exchange(takers, takers.saturating_add(1), Relaxed, Relaxed).is_ok() {
            return Some((number, row));
        }
    }
}

/// The first one whose first taker is `was`, 0 for none, which becomes `pid`.
fn first_of<'a>(
    was: i32,
    pid: i32,
    mut rows: impl Iterator<Item = (usize, &'a TapeRow)>,
) -> Option<(usize, &'a TapeRow)> {
    let (number, row) = rows.find(|(_, row)| row.pid.compare_exchange(was, pid, Relaxed, Relaxed).is_ok())?;
    row.takers.fetch_add(1, Relaxed);
    Some((number, row))
}

impl TapeRow {
    fn place(&self) -> TapePlace {
        TapePlace {
            program: self.program.load(Relaxed),
            arguments: self.arguments.load(Relaxed),
            forks: self.forks.load(Relaxed),
            offset: self.offset.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SORT: u64 = 7;
    const JOIN: u64 = 8;

    /// A table of tapes: program and arguments of each.
    fn table(of: &[(u64, u64)], arguments_must_match: bool) -> Box<TapeTable> {
        let of: Vec<_> = of.iter().map(|(program, arguments)| (*program, *arguments, 0)).collect();
        table_with_forks(&of, arguments_must_match)
    }

    /// The same, with the key of the forks of each.
    fn table_with_forks(of: &[(u64, u64, u64)], arguments_must_match: bool) -> Box<TapeTable> {
        // SAFETY: a table consists of atomics, which are valid when zero.
        let table = unsafe { Box::<TapeTable>::new_zeroed().assume_init() };
        let place = |(at, (program, arguments, forks)): (u64, &(u64, u64, u64))| TapePlace {
            program: *program,
            arguments: *arguments,
            forks: *forks,
            offset: at * 100,
            bytes: 100,
        };
        table.fill(&(0..).zip(of).map(place).collect::<Vec<_>>(), arguments_must_match);
        table
    }

    /// What processes take, one after the other: program, arguments, number.
    fn taken<const N: usize>(table: &TapeTable, by: [(u64, u64, i32); N]) -> [Option<usize>; N] {
        by.map(|(program, arguments, pid)| {
            let (number, place) = table.take(TapeTaker { programs: [program, 99], arguments, forks: 0, pid })?;
            assert_eq!(place.offset, number as u64 * 100);
            Some(number)
        })
    }

    #[test]
    fn each_process_takes_the_tape_of_its_program_and_its_arguments() {
        let table = table(&[(SORT, 1), (JOIN, 1), (SORT, 2)], false);
        assert!(!table.any_taken());
        let by = [(SORT, 2, 11), (JOIN, 1, 12), (SORT, 1, 13), (9, 1, 14)];
        assert_eq!(taken(&table, by), [Some(2), Some(1), Some(0), None], "there is none of the last one's program");
        assert!(table.any_taken());
    }

    #[test]
    fn of_several_that_fit_each_process_has_its_own_until_all_are_taken() {
        let table = table(&[(SORT, 1), (SORT, 1), (SORT, 2)], false);
        let by = [11, 12, 13, 14, 15].map(|pid| (SORT, 1, pid));
        assert_eq!(taken(&table, by), [0, 1, 0, 1, 0].map(Some));
    }

    #[test]
    fn with_other_arguments_a_process_takes_what_no_other_has_taken() {
        let table = table(&[(SORT, 1), (SORT, 2)], false);
        assert_eq!(taken(&table, [(SORT, 1, 11), (SORT, 5, 12), (SORT, 6, 13)]), [Some(0), Some(1), None]);
        assert_eq!(taken(&table, [(SORT, 2, 14)]), [Some(1)], "those of its arguments are for all of them");
        assert_eq!(taken(&table, [(SORT, 7, 12)]), [Some(1)], "the same process, after exec");
    }

    #[test]
    fn where_arguments_must_match_no_other_process_takes_it() {
        let table = table(&[(SORT, 1)], true);
        assert_eq!(taken(&table, [(SORT, 2, 11), (SORT, 1, 12)]), [None, Some(0)]);
    }

    #[test]
    fn one_of_an_unknown_program_is_for_the_first_process() {
        let table = table(&[(0, 0)], false);
        assert_eq!(taken(&table, [(SORT, 1, 11), (JOIN, 1, 12)]), [Some(0), None]);
        // By the name of the file, which is the other key.
        assert_eq!(taken(&self::table(&[(99, 0)], false), [(SORT, 1, 11)]), [Some(0)]);
    }

    #[test]
    fn a_forked_child_takes_one_that_came_by_the_same_forks() {
        let table =
            table_with_forks(&[(SORT, 1, 0), (SORT, 1, 70), (SORT, 1, 71), (JOIN, 1, 70), (SORT, 1, 71)], false);
        let by = |program, arguments, forks, pid| {
            let taker = TapeTaker { programs: [program, 99], arguments, forks, pid };
            table.take(taker).map(|(number, _)| number)
        };
        assert_eq!([by(SORT, 1, 0, 11), by(SORT, 1, 71, 12), by(SORT, 1, 71, 13)], [Some(0), Some(2), Some(4)]);
        assert_eq!([by(JOIN, 1, 70, 14), by(JOIN, 1, 0, 15), by(SORT, 1, 72, 16)], [Some(3), None, None]);
        assert_eq!([by(SORT, 2, 70, 17), by(SORT, 2, 70, 18)], [Some(1), None], "with other arguments, once");
    }

    #[test]
    fn of_processes_that_come_at_once_each_has_its_own() {
        let table = table(&[(SORT, 1); 64], false);
        let mut numbers: Vec<usize> = std::thread::scope(|scope| {
            let by = |part: i32| {
                let table = &table;
                move || {
                    (0..16).map(|pid| taken(table, [(SORT, 1, 1 + part * 16 + pid)])[0].unwrap()).collect::<Vec<_>>()
                }
            };
            let threads: Vec<_> = (0..4).map(|part| scope.spawn(by(part))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..64));
    }
}
