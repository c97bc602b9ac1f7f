//! What a decision log says of a run's pages, where the machine would look at its own: in a run other threads, the kernel and pins decide
//! whether a page can be claimed.

use hinterland_paging::{Claim, GiveBack, KeyPageState};
use std::collections::VecDeque;

/// For one decision; what is left of them afterwards was not asked for.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Of looks at pages and attempts to claim them, in order.
    pub(crate) of_pages: VecDeque<u8>,
    /// Of attempts to give pages back that wait.
    pub(crate) gave_back: VecDeque<GiveBack>,
    /// Where the key page is.
    pub(crate) key_is: Option<KeyPageState>,
    /// Something was asked that the log has no answer to, or that the machine's own pages contradict.
    pub(crate) in_vain: bool,
}

impl Answers {
    fn next(&mut self) -> u8 {
        self.of_pages.pop_front().unwrap_or_else(|| {
            self.in_vain = true;
            0
        })
    }

    /// Whether a page is so, or could be claimed.
    pub(crate) fn is_so(&mut self) -> bool {
        self.next() == 1
    }

    /// Whether a page has no content, and could be claimed if it has none.
    pub(crate) fn blank(&mut self) -> (bool, bool) {
        let answer = self.next();
        (answer != 0, answer == 1)
    }

    /// What became of an attempt to claim a page that the policy named.
    pub(crate) fn claim(&mut self) -> Claim {
        let all = [Claim::Ours, Claim::Busy, Claim::Gone];
        let next = self.next();
        all.into_iter().find(|claim| *claim as u8 == next).unwrap_or(Claim::Gone)
    }

    /// What became of an attempt to give a page back that waits.
    pub(crate) fn give_back(&mut self) -> GiveBack {
        self.gave_back.pop_front().unwrap_or_else(|| {
            self.in_vain = true;
            GiveBack::Busy
        })
    }

    /// Whether all that was answered was asked for, and nothing else.
    pub(crate) fn are_used_up(&self) -> bool {
        !self.in_vain && self.of_pages.is_empty() && self.gave_back.is_empty() && self.key_is.is_none()
    }
}
