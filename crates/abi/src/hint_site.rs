//! The effect of the hints of one place in the program: a row of the ledger for each of the first places.

use crate::{Counter, Text};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Places of a process that have a row; the first row is of all further ones together.
pub const HINT_SITES_MAX: usize = 33;
/// Bytes of a place's name.
pub const SITE_NAME_BYTES: usize = 128;

/// The table: calls a macro with its lines, `name: type = "meaning";`. A row is not added up: it stands for itself.
#[macro_export]
macro_rules! hint_site_statistics {
    ($make:ident) => {
        $make! {
            fetched_pages: u64 = "Far pages that were fetched because it names them.";
            used_pages: u64 = "Of those, used: observed and inferred.";
            unused_pages: u64 = "Of those, left unused: observed and inferred.";
            refused_pages: u64 = "Pages that were not fetched because most of what the place names is useless.";
            has_lost: u64 = "1: throttled now: most of what the place names is not fetched.";
            runs: u64 = "Of a loop: runs that fetched ahead.";
            plain_runs: u64 = "Of a loop: runs for which nothing was far.";
            distance: u64 = "Of a loop: iterations ahead, the last time.";
            iteration_ps: u64 = "Of a loop: an iteration, in picoseconds, as far as it did not wait for far memory.";
        }
    };
}

macro_rules! row {
    ($($field:ident: $type:ident = $meaning:literal;)*) => {
        /// What hints of one place in the program led to.
        #[repr(C)]
        pub struct HintSiteRow {
            /// The address behind the call, or that of the loop; 0: the row is free.
            pub key: Counter,
            /// What the compiler calls the loop, or where the call by hand is.
            pub name: Text<SITE_NAME_BYTES>,
            $(#[doc = $meaning] pub $field: Counter,)*
        }
    };
}
hint_site_statistics!(row);

impl HintSiteRow {
    /// The row of `key` (not 0) among those of a process, which becomes a free one's if there is none: the first where none is free. Any
    /// thread may ask at any moment. True: it is new.
    pub fn of(rows: &[HintSiteRow; HINT_SITES_MAX], key: u64) -> (u16, bool) {
        const PLACES: u64 = HINT_SITES_MAX as u64 - 1;
        // Fibonacci hashing: addresses of code have few different low bits.
        let start = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for step in 0..PLACES {
            let at = 1 + (start + step) % PLACES;
            let row = &rows[usize::try_from(at).unwrap_or(0)];
            let number = u16::try_from(at).unwrap_or(0);
            match row.key.load(Acquire) {
                known if known == key => return (number, false),
                0 => match row.key.compare_exchange(0, key, Release, Acquire) {
                    Ok(_) => return (number, true),
                    Err(known) if known == key => return (number, false),
                    Err(_) => {}
                },
                _ => {}
            }
        }
        rows[0].key.store(u64::MAX, Relaxed);
        (0, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_row_and_further_ones_share_the_first() {
        // SAFETY: rows consist of atomics, which are valid when zero.
        let rows = unsafe { Box::<[HintSiteRow; HINT_SITES_MAX]>::new_zeroed().assume_init() };
        let numbers: Vec<(u16, bool)> = (1..=40).map(|at| HintSiteRow::of(&rows, at * 16)).collect();
        let mut own: Vec<u16> = numbers[..32].iter().map(|(number, _)| *number).collect();
        own.sort_unstable();
        assert_eq!(own, (1..=32).collect::<Vec<_>>());
        assert!(numbers[..32].iter().all(|(_, new)| *new) && numbers[32..].iter().all(|found| *found == (0, false)));
        let again: Vec<(u16, bool)> = (1..=32).map(|at| HintSiteRow::of(&rows, at * 16)).collect();
        assert!(again.iter().zip(&numbers).all(|(again, first)| *again == (first.0, false)));
    }
}
