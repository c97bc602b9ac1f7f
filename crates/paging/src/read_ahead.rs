//! How far a thread that prefetches goes at once: batches of a window, runs of a batch, and the report of mapped pages to a key page.

use crate::window_queue::{PendingWindow, WindowQueue};
use hinterland_policy::{Prefetch, PrefetchWindow, Request};
use hinterland_units::PageNo;
use std::ops::Range;

/// Pages of a batch at most: as many can land at a time.
pub const LANDING_PAGES: usize = 256;

/// Pages of a batch when loading costs processor time: few, so that the first ones are mapped early.
const BATCH_PAGES: usize = 16;

/// Pages of a batch that a thread of the program prefetches by itself (decision 0046): it waits for them, for a part of the time that
/// they would take one after the other.
pub const HELP_PAGES: usize = 32;

/// Pages of a batch otherwise, at least.
const WINDOW_BATCH_PAGES: usize = 64;

/// The part of local memory that one batch may take: what a few steps of reclaim free.
const BATCH_PART: u64 = 64;

/// Steps of reclaim that the read-ahead thread makes for the frames of one batch.
const FRAMES_STEPS_MAX: u32 = 4;

/// Pages of zeros that one call maps: beyond this the cost of a COPY is all per page.
pub const ZERO_PAGES: usize = 64;

/// What the read-ahead thread does about the frames of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frames {
    /// They are charged: the batch is loaded.
    Charged,
    /// It makes a step of reclaim, and tries again.
    Reclaim,
    /// Memory is too tight: the batch is not loaded.
    Refused,
}

impl Frames {
    /// After an attempt to charge them, and so many steps of reclaim.
    pub fn after(are_charged: bool, steps: u32) -> Frames {
        match are_charged {
            true => Frames::Charged,
            false if steps < FRAMES_STEPS_MAX => Frames::Reclaim,
            false => Frames::Refused,
        }
    }
}

/// Which window or batch the thread that has faulted prefetches pages of by itself, where threads do that (decision 0046): that with
/// which the read-ahead thread is late. `passed`: the window that its request has passed; `batch`: the tape's batch that has the page.
pub fn late_window(
    request: Request,
    is_on_tape: bool,
    passed: Option<u64>,
    batch: impl FnOnce() -> Option<u64>,
) -> Option<u64> {
    match request {
        Request::Major if is_on_tape => batch(),
        Request::Major | Request::FirstTouch | Request::Minor | Request::PrefetchHit => passed,
    }
}

/// Claims the pages of a window that get zeros ahead of their first touch: `claim` claims one that has no content, if a frame is free.
/// In order of address.
pub fn claim_zeros<T>(
    window: &PrefetchWindow,
    claim: impl FnMut(PageNo) -> Option<T>,
    page: impl Fn(&T) -> PageNo,
) -> Vec<T> {
    let mut claimed = Vec::with_capacity((window.pages as usize).min(ZERO_PAGES));
    claimed.extend(window.iter().filter(|page| !window.leaves_unmapped(*page)).filter_map(claim));
    claimed.sort_unstable_by_key(page);
    claimed
}

/// Whether a process's next demand load is timed, after so many: the first ones are, and then every eighth.
#[inline]
pub fn is_timed(major_faults: u64) -> bool {
    const ALL: u64 = 256;
    major_faults < ALL || major_faults.is_multiple_of(8)
}

/// Pages of a batch of `wanted`. `copies_cost_ram`: far memory is compressed RAM, where loading costs processor time; otherwise it
/// costs a delay, and a batch is half of the window, so that the delay is paid twice, and the program has the first half while the
/// second is loaded. Never so many that a small budget has no frames for them at once.
pub fn batch_pages(wanted: &Prefetch, budget_pages: u64, copies_cost_ram: bool) -> usize {
    let pages = wanted.pages() as usize;
    // Windows beyond the usual one exist only where loads were measured to take long, or where somebody asked for them. A batch of a
    // tape or of hints is as long as it is wherever far memory is.
    let is_usual = pages <= WINDOW_BATCH_PAGES || !matches!(wanted, Prefetch::Window(_));
    if is_usual && copies_cost_ram {
        return BATCH_PAGES;
    }
    let frames = usize::try_from(budget_pages / BATCH_PART).unwrap_or(LANDING_PAGES);
    (pages / 2).min(frames).clamp(WINDOW_BATCH_PAGES, LANDING_PAGES)
}

/// What a body does to have a batch claimed.
pub trait WindowBody {
    /// A page that was claimed.
    type Claimed;

    /// Works on the windows.
    fn windows<R>(&mut self, work: impl FnOnce(&mut WindowQueue) -> R) -> R;

    /// Pages of a batch of this window ([`batch_pages`]).
    fn batch_pages(&self, wanted: &Prefetch) -> usize;

    /// Claims a page, if it is remote.
    fn claim(&mut self, page: PageNo) -> Option<Self::Claimed>;

    /// Which page was claimed.
    fn page(&self, claimed: &Self::Claimed) -> PageNo;
}

/// Pages of one window that are loaded at once.
#[derive(Debug)]
pub struct Claimed<P> {
    /// In order of address.
    pub pages: Vec<P>,
    /// The window; none: nothing is claimed.
    pub of: Option<PendingWindow>,
}

impl<P> Default for Claimed<P> {
    fn default() -> Claimed<P> {
        Claimed { pages: Vec::new(), of: None }
    }
}

/// Claims the next remote pages that are wanted, all of one window.
pub fn claim_next_batch<B: WindowBody>(body: &mut B, batch: &mut Claimed<B::Claimed>) {
    loop {
        claim_batch(body, batch, WindowQueue::take_next, usize::MAX);
        if batch.of.is_none() || !batch.pages.is_empty() {
            return;
        }
    }
}

/// Claims remote pages of the window that `which` names: one batch, of at most `pages_max`.
pub fn claim_batch<B: WindowBody>(
    body: &mut B,
    batch: &mut Claimed<B::Claimed>,
    which: impl FnOnce(&mut WindowQueue) -> Option<PendingWindow>,
    pages_max: usize,
) {
    batch.pages.clear();
    batch.of = body.windows(which);
    let Some(of) = &batch.of else { return };
    let (wanted, mut offset) = (&of.wanted, of.offset);
    let most = body.batch_pages(wanted).min(pages_max);
    while batch.pages.len() < most && offset < wanted.pages() {
        batch.pages.extend(wanted.page(offset).and_then(|page| body.claim(page)));
        offset += 1;
    }
    // Another thread may have claimed more of it meanwhile.
    let claimed = u32::try_from(batch.pages.len()).unwrap_or(u32::MAX);
    body.windows(|queue| {
        queue.update(of.number, |pending| {
            (pending.offset, pending.under_way) = (pending.offset.max(offset), pending.under_way + claimed);
        })
    });
    match wanted {
        Prefetch::Window(_) if wanted.is_downwards() => batch.pages.reverse(),
        Prefetch::Window(_) => {}
        Prefetch::Batch(_) | Prefetch::Hinted(_) | Prefetch::Block(_) => {
            batch.pages.sort_unstable_by_key(|claimed| body.page(claimed))
        }
    }
}

/// Cuts a batch, which is in order of address, into runs that one call maps: neighbours, and single pages that stay unmapped.
/// The run that the program is expected to touch first is the first.
pub fn runs_of<T>(batch: &[T], page: impl Fn(&T) -> PageNo, wanted: &Prefetch) -> Vec<Range<usize>> {
    let waits = |item: &T| wanted.leaves_unmapped(page(item));
    let mut end = 0;
    let runs = batch.chunk_by(|a, b| page(a).0 + 1 == page(b).0 && !waits(a) && !waits(b)).map(|run| {
        end += run.len();
        end - run.len()..end
    });
    let mut runs: Vec<Range<usize>> = runs.collect();
    if wanted.is_downwards() {
        runs.reverse();
    }
    runs
}

/// Pages of a window that are mapped and not reported to its key page yet. Their use makes no fault: they are taken for used when the
/// key page is (decision 0008).
#[derive(Clone, Copy, Debug, Default)]
pub struct MappedPages {
    mapped: u32,
    has_key: bool,
}

impl MappedPages {
    /// Begins with what earlier batches of the window mapped and did not report.
    pub fn of(queue: &mut WindowQueue, of: &PendingWindow) -> MappedPages {
        let mapped = queue.update(of.number, |pending| std::mem::take(&mut pending.mapped)).unwrap_or(0);
        MappedPages { mapped, has_key: of.has_key }
    }

    /// Pages mapped so far and not reported.
    pub fn count(&self) -> u32 {
        self.mapped
    }

    /// More pages were mapped.
    pub fn add(&mut self, pages: u32) {
        self.mapped += pages;
    }

    /// Pages of a batch of hints which has no page that waits: they are left to the next key page of the site.
    pub fn take_without_key(&mut self, wanted: &Prefetch) -> u32 {
        if self.has_key || wanted.hinted().is_none() { 0 } else { std::mem::take(&mut self.mapped) }
    }

    /// A page waits unmapped, and was told of those that were mapped before it.
    pub fn told_one_that_waits(&mut self) {
        (self.mapped, self.has_key) = (0, true);
    }

    /// The batch of so many pages is mapped: the key page to which pages are to be reported, and how many. Others are left to the batch of the key page.
    pub fn finish(self, queue: &mut WindowQueue, of: &PendingWindow, pages: u32) -> Option<(PageNo, u32)> {
        let MappedPages { mapped, has_key } = self;
        let to_report = |pending: &mut PendingWindow| {
            pending.under_way = pending.under_way.saturating_sub(pages);
            pending.has_key |= has_key;
            pending.mapped += mapped;
            let is_reported = pending.has_key && of.wanted.key().is_some();
            if is_reported { std::mem::take(&mut pending.mapped) } else { 0 }
        };
        let report = queue.update(of.number, to_report).unwrap_or(if has_key { mapped } else { 0 });
        of.wanted.key().filter(|_| report > 0).map(|key| (key, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_policy::{HintBatch, TapeBatch, Unmapped};
    use std::collections::BTreeSet;

    fn window(first: u32, step: i64, pages: u32) -> PrefetchWindow {
        PrefetchWindow { first: PageNo(first), step, pages, unmapped: Unmapped::All }
    }

    /// Remote pages.
    #[derive(Default)]
    struct Body(WindowQueue, BTreeSet<u32>);

    impl WindowBody for Body {
        type Claimed = u32;

        fn windows<R>(&mut self, work: impl FnOnce(&mut WindowQueue) -> R) -> R {
            work(&mut self.0)
        }

        fn batch_pages(&self, wanted: &Prefetch) -> usize {
            batch_pages(wanted, 1 << 20, true)
        }

        fn claim(&mut self, page: PageNo) -> Option<u32> {
            self.1.remove(&page.0).then_some(page.0)
        }

        fn page(&self, claimed: &u32) -> PageNo {
            PageNo(*claimed)
        }
    }

    #[test]
    fn a_batch_is_short_where_loads_cost_time_and_half_a_window_where_they_cost_a_delay() {
        let pages = |pages, budget, ram| batch_pages(&window(0, 1, pages).into(), budget, ram);
        assert_eq!([pages(64, 1 << 20, true), pages(64, 1 << 20, false), pages(8, 1 << 20, false)], [16, 64, 64]);
        assert_eq!([pages(256, 1 << 20, true), pages(4096, 1 << 20, false)], [128, LANDING_PAGES]);
        assert_eq!(pages(4096, 6400, false), 100, "a small budget");
    }

    #[test]
    fn frames_are_reclaimed_for_a_batch_in_a_few_steps() {
        let after = [0, 3, 4].map(|steps| Frames::after(false, steps));
        assert_eq!(after, [Frames::Reclaim, Frames::Reclaim, Frames::Refused]);
        assert_eq!(Frames::after(true, 9), Frames::Charged);
    }

    #[test]
    fn a_thread_helps_with_what_it_waits_for() {
        let late = |request, is_on_tape| late_window(request, is_on_tape, Some(1), || Some(2));
        assert_eq!([late(Request::Major, true), late(Request::Major, false)], [Some(2), Some(1)]);
        assert_eq!(late(Request::PrefetchHit, true), Some(1));
    }

    #[test]
    fn zeros_are_claimed_wherever_a_page_of_the_window_has_no_content() {
        let key = PrefetchWindow { unmapped: Unmapped::Key(PageNo(4)), ..window(9, -1, 8) };
        let claimed = claim_zeros(&key, |page| (page.0 != 7).then_some(page), |page| *page);
        assert_eq!(claimed, [2, 3, 5, 6, 8, 9].map(PageNo));
        let all = PrefetchWindow { unmapped: Unmapped::Key(PageNo(1000)), ..window(0, 1, 200) };
        assert_eq!(claim_zeros(&all, Some, |page| *page).len(), 200, "by more than one call");
    }

    #[test]
    fn a_batch_has_remote_pages_of_one_window_in_order_of_address() {
        let mut body = Body(WindowQueue::default(), (0..1000).filter(|page| page % 3 != 0).collect());
        body.0.push(window(300, 1, 64));
        body.0.push(window(900, -2, 8));
        let mut batch = Claimed::default();
        claim_next_batch(&mut body, &mut batch);
        assert_eq!((batch.pages.len(), batch.pages[0], batch.pages[15]), (16, 301, 323));
        claim_next_batch(&mut body, &mut batch);
        assert_eq!(batch.pages, [886, 890, 892, 896, 898]);
        // What is left of the first one, a bit of it by a thread of the program.
        let number = batch.of.as_ref().map(|of| of.number - 1);
        claim_batch(&mut body, &mut batch, |queue| number.and_then(|number| queue.get(number).cloned()), 4);
        assert_eq!(batch.pages, [325, 326, 328, 329]);
        claim_next_batch(&mut body, &mut batch);
        assert_eq!(batch.pages[0], 331);
    }

    #[test]
    fn a_batch_of_a_tape_is_claimed_in_its_order_and_mapped_in_order_of_address() {
        let mut body = Body(WindowQueue::default(), (0..1000).filter(|page| page % 3 != 0).collect());
        let pages: Vec<PageNo> = (0..40).map(|at| PageNo(at * 17 % 40)).collect();
        let key = Some(PageNo(34));
        body.0.push(Prefetch::Batch(TapeBatch { pages: pages.clone().into(), key, thread: 0 }));
        let mut batch = Claimed::default();
        claim_next_batch(&mut body, &mut batch);
        let mut expected: Vec<u32> = pages.iter().map(|page| page.0).filter(|page| page % 3 != 0).take(16).collect();
        expected.sort_unstable();
        assert_eq!(batch.pages, expected, "those that the program needs first");
        let wanted = batch.of.unwrap().wanted;
        let runs = runs_of(&batch.pages, |page| PageNo(*page), &wanted);
        assert!(runs.contains(&(expected.iter().position(|page| *page == 34).map(|at| at..at + 1).unwrap())));
    }

    #[test]
    fn what_a_tapes_batch_has_no_frames_for_is_claimed_again_once_something_else_is_asked_for() {
        let mut body = Body(WindowQueue::default(), (0..1000).collect());
        let pages: Vec<PageNo> = (0..40).map(PageNo).collect();
        body.0.push(Prefetch::Batch(TapeBatch { pages: pages.clone().into(), key: Some(PageNo(39)), thread: 0 }));
        let mut batch = Claimed::default();
        claim_next_batch(&mut body, &mut batch);
        body.0.refuse(batch.of.as_ref().unwrap());
        body.1.extend(batch.pages.drain(..));
        claim_next_batch(&mut body, &mut batch);
        assert!(batch.of.is_none() && body.0.waiting() == 0, "it would find no frames again");
        assert_eq!(body.0.late_batch(PageNo(0)), Some(1), "a thread that waits for a page of it helps");
        body.0.push(window(300, 1, 8));
        while body.0.waiting() > 0 {
            claim_next_batch(&mut body, &mut batch);
        }
        assert!(pages.iter().all(|page| !body.1.contains(&page.0)), "all of it was claimed");
    }

    #[test]
    fn what_continues_a_batch_that_waits_for_frames_counts_as_waiting_once_it_can_be_served() {
        let mut body = Body(WindowQueue::default(), (0..1000).collect());
        for first in [0, 100] {
            let pages = (first..first + 16).map(PageNo).collect();
            body.0.push(Prefetch::Batch(TapeBatch { pages, key: None, thread: 0 }));
        }
        assert_eq!(body.0.waiting(), 1, "one after the other");
        let mut batch = Claimed::default();
        claim_next_batch(&mut body, &mut batch);
        body.1.extend(batch.pages.drain(..));
        body.0.refuse(batch.of.as_ref().unwrap());
        assert!(body.0.waiting() == 0 && body.0.take_next().is_none());
        // A thread that waits for a page of the first one fetches it.
        claim_batch(&mut body, &mut batch, |queue| queue.get(1).cloned(), usize::MAX);
        assert_eq!((batch.pages.len(), body.0.waiting()), (16, 1));
        claim_next_batch(&mut body, &mut batch);
        assert_eq!((batch.pages[0], body.0.waiting()), (100, 0));
    }

    #[test]
    fn mapped_pages_are_reported_to_the_key_page_whichever_batch_has_it() {
        let mut queue = WindowQueue::default();
        let with_key = PrefetchWindow { unmapped: Unmapped::Key(PageNo(40)), ..window(0, 1, 64) };
        queue.push(with_key);
        let of = |queue: &mut WindowQueue| queue.take_next().unwrap();
        let first = of(&mut queue);
        let mut mapped = MappedPages::of(&mut queue, &first);
        mapped.add(16);
        assert_eq!(mapped.finish(&mut queue, &first, 16), None, "the key page is not here yet");
        let second = of(&mut queue);
        let mut mapped = MappedPages::of(&mut queue, &second);
        assert_eq!(mapped.count(), 16);
        mapped.told_one_that_waits();
        mapped.add(7);
        assert_eq!(mapped.finish(&mut queue, &second, 8), Some((PageNo(40), 7)));
        let third = of(&mut queue);
        let mut mapped = MappedPages::of(&mut queue, &third);
        mapped.add(9);
        assert_eq!(mapped.finish(&mut queue, &third, 9), Some((PageNo(40), 9)));
    }

    #[test]
    fn mapped_pages_of_hints_do_not_wait_for_a_key_page_that_may_never_wait() {
        let mut queue = WindowQueue::default();
        let pages: Vec<PageNo> = (0..32).map(PageNo).collect();
        let batch = HintBatch { pages: pages.into(), key: Some(PageNo(31)), site: 3 };
        queue.push(Prefetch::Hinted(batch));
        let of = queue.take_next().unwrap();
        let mut mapped = MappedPages::of(&mut queue, &of);
        mapped.add(16);
        assert_eq!((mapped.take_without_key(&of.wanted), mapped.finish(&mut queue, &of, 16)), (16, None));
        let mut mapped = MappedPages::of(&mut queue, &of);
        mapped.add(9);
        mapped.told_one_that_waits();
        mapped.add(6);
        let left = mapped.take_without_key(&of.wanted);
        assert_eq!((left, mapped.finish(&mut queue, &of, 16)), (0, Some((PageNo(31), 6))));
    }

    #[test]
    fn runs_are_in_the_order_in_which_the_program_is_expected() {
        let window =
            |step, key| PrefetchWindow { first: PageNo(10), step, pages: 8, unmapped: Unmapped::Key(PageNo(key)) };
        let up: Vec<PageNo> = [10, 11, 12, 13, 15, 16].map(PageNo).into();
        assert_eq!(runs_of(&up, |page| *page, &window(1, 12).into()), [0..2, 2..3, 3..4, 4..6]);
        let down: Vec<PageNo> = [3, 4, 6, 7, 8, 9, 10].map(PageNo).into();
        assert_eq!(runs_of(&down, |page| *page, &window(-1, 8).into()), [5..7, 4..5, 2..4, 0..2]);
        let waiting = PrefetchWindow { unmapped: Unmapped::All, ..window(1, 0) };
        assert_eq!(runs_of(&up[..2], |page| *page, &waiting.into()), [0..1, 1..2]);
    }
}
