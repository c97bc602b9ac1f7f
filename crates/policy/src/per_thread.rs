//! A prefetcher of its own for each thread.
//!
//! Leap §4.2 keeps one history for a process, because threads share memory and may ask for the same page twice; threads
//! with trends of their own are irregular to it. This is the other choice, for comparison.

use crate::{PrefetchWindow, Prefetcher, Request, Thread};
use hinterland_units::PageNo;

/// Threads that are followed at once; of more, the one that was quiet for longest begins anew.
const THREADS_MAX: usize = 64;

/// See the module.
pub struct PerThread {
    make: fn(u32) -> Box<dyn Prefetcher>,
    window_pages_max: u32,
    /// The last one to make a request comes last.
    threads: Vec<(Thread, Box<dyn Prefetcher>)>,
}

impl PerThread {
    /// `make` makes a thread's prefetcher for windows of at most so many pages.
    pub fn new(make: fn(u32) -> Box<dyn Prefetcher>, window_pages_max: u32) -> PerThread {
        PerThread { make, window_pages_max, threads: Vec::with_capacity(THREADS_MAX) }
    }

    /// The thread's prefetcher, which comes last then.
    fn of(&mut self, thread: Thread) -> &mut dyn Prefetcher {
        let known = self.threads.iter().rposition(|(other, _)| *other == thread);
        match known {
            Some(at) => self.threads[at..].rotate_left(1),
            None => {
                if self.threads.len() == THREADS_MAX {
                    self.threads.remove(0);
                }
                self.threads.push((thread, (self.make)(self.window_pages_max)));
            }
        }
        let last = self.threads.len() - 1;
        &mut *self.threads[last].1
    }
}

impl Prefetcher for PerThread {
    fn requested(&mut self, page: PageNo, request: Request, thread: Thread) -> Option<PrefetchWindow> {
        self.of(thread).requested(page, request, thread)
    }

    /// Whose pages they were is not known: all are told.
    fn wasted(&mut self, page: PageNo, pages: u32) {
        self.threads.iter_mut().for_each(|(_, prefetcher)| prefetcher.wasted(page, pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Leap;

    /// Pages asked for while `threads` walk in turn, each with a stride of its own.
    fn asked(prefetcher: &mut dyn Prefetcher, threads: u32) -> u32 {
        let mut asked = 0;
        for step in 0..100 {
            for thread in 0..threads {
                let page = PageNo((thread + 1) * 1_000_000 + step * (thread + 2));
                let window = prefetcher.requested(page, Request::Major, Thread(u64::from(thread)));
                asked += window.map_or(0, |window| window.pages);
            }
        }
        asked
    }

    #[test]
    fn threads_in_turn_are_trends_of_their_own() {
        let make: fn(u32) -> Box<dyn Prefetcher> = |pages| Box::new(Leap::new(pages));
        assert_eq!(asked(&mut Leap::new(8), 3), 0, "one history sees nothing in them");
        assert!(asked(&mut PerThread::new(make, 8), 3) > 3 * 80);
    }

    #[test]
    fn more_threads_than_places_cost_only_their_histories() {
        let mut all = PerThread::new(|pages| Box::new(Leap::new(pages)), 8);
        asked(&mut all, 100);
        assert_eq!(all.threads.len(), THREADS_MAX);
    }
}
