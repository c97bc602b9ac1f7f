//! Threads that have marked far pages to be overwritten (`Hints::overwrite`), and how long their marks hold.
//!
//! A page's mark is in its entry, so that it goes with the first claim of the page: what was fetched, dropped or moved is not marked. It is
//! the number of a thread: a place in this table and how often that place was taken. So all marks of a thread are taken back by one store, where
//! it ends or the process forks, and no number ever means another thread.

use crate::state::{Entry, MARK_BITS};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Threads that have marks at the same time.
const PLACES: usize = 1 << (MARK_BITS - TURN_BITS);
/// A place is taken so often at most, less one: further threads mark nothing.
const TURNS: u64 = 1 << TURN_BITS;
const TURN_BITS: u32 = 6;
const THREAD_BITS: u32 = 32;

/// See the module.
pub(crate) struct Overwriters {
    /// The thread, 0: none; above it, how often the place was taken.
    places: [AtomicU64; PLACES],
}

impl Default for Overwriters {
    fn default() -> Overwriters {
        Overwriters { places: [(); PLACES].map(|()| AtomicU64::new(0)) }
    }
}

fn thread_of(word: u64) -> u32 {
    u32::try_from(word & ((1 << THREAD_BITS) - 1)).unwrap_or(0)
}

fn turn_of(word: u64) -> u64 {
    word >> THREAD_BITS
}

fn number(place: usize, word: u64) -> u16 {
    u16::try_from(place as u64 * TURNS + turn_of(word)).unwrap_or(0)
}

impl Overwriters {
    /// The number of a thread. `None`: there are too many of them.
    pub(crate) fn number_of(&self, thread: u32) -> Option<u16> {
        let find = |(place, word): (usize, &AtomicU64)| {
            let word = word.load(SeqCst);
            (thread_of(word) == thread).then(|| number(place, word))
        };
        self.places.iter().enumerate().find_map(find).or_else(|| self.take_place(thread))
    }

    fn take_place(&self, thread: u32) -> Option<u16> {
        let take = |(place, word): (usize, &AtomicU64)| {
            let now = word.load(SeqCst);
            let taken = ((turn_of(now) + 1) << THREAD_BITS) | u64::from(thread);
            let is_free = thread_of(now) == 0 && turn_of(taken) < TURNS;
            let is_ours = is_free && word.compare_exchange(now, taken, SeqCst, Relaxed).is_ok();
            is_ours.then(|| number(place, taken))
        };
        self.places.iter().enumerate().find_map(take)
    }

    /// The thread whose mark is on a page; `None`: there is no mark, or it holds no more.
    pub(crate) fn overwriter(&self, entry: Entry) -> Option<u32> {
        let mark = entry.mark();
        if mark == 0 {
            return None;
        }
        let place = usize::from(mark) / usize::try_from(TURNS).unwrap_or(1);
        let word = self.places[place].load(SeqCst);
        (number(place, word) == mark).then(|| thread_of(word)).filter(|thread| *thread != 0)
    }

    /// A thread leaves: its marks hold no more.
    pub(crate) fn forget(&self, thread: u32) {
        self.forget_where(|of| of == thread);
    }

    /// No mark holds any more.
    pub(crate) fn forget_all(&self) {
        self.forget_where(|of| of != 0);
    }

    fn forget_where(&self, is_meant: impl Fn(u32) -> bool) {
        for word in &self.places {
            let now = word.load(SeqCst);
            if is_meant(thread_of(now)) {
                // Only a thread itself, and a fork while no thread is served, make a place free.
                let _ = word.compare_exchange(now, turn_of(now) << THREAD_BITS, SeqCst, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;

    fn marked(by: Option<u16>) -> Entry {
        Entry::new(State::Remote).with_mark(by.expect("there is room"))
    }

    #[test]
    fn marks_hold_until_their_thread_leaves_and_numbers_are_never_used_again() {
        let table = Overwriters::default();
        let (one, two) = (marked(table.number_of(100)), marked(table.number_of(200)));
        assert_eq!([one, two].map(|page| table.overwriter(page)), [Some(100), Some(200)]);
        assert_eq!(marked(table.number_of(100)), one, "a thread has one number");
        table.forget(100);
        let again = marked(table.number_of(100));
        assert_eq!([one, two, again].map(|page| table.overwriter(page)), [None, Some(200), Some(100)]);
        table.forget_all();
        assert_eq!([one, two, again].map(|page| table.overwriter(page)), [None; 3]);
        assert_eq!(table.overwriter(Entry::new(State::Remote)), None, "a page without a mark");
        assert_eq!(table.overwriter(again.with_state(State::Fetching)), None, "a page that was claimed");
    }

    #[test]
    fn there_is_room_for_so_many_threads_at_once_and_in_all() {
        let table = Overwriters::default();
        let places = u32::try_from(PLACES).unwrap();
        assert!((1..=places).all(|thread| table.number_of(thread).is_some()));
        assert_eq!(table.number_of(places + 1), None);
        let mut seen = std::collections::HashSet::new();
        let mut thread = 0;
        table.forget_all();
        while let Some(number) = table.number_of(1000 + thread) {
            assert!(seen.insert(number), "{number} was another thread's");
            table.forget(1000 + thread);
            thread += 1;
        }
        assert_eq!(u64::from(thread), (TURNS - 2) * u64::from(places));
    }
}
