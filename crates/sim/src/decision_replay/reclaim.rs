//! Reclaim, replayed: victims, the chunks in which they leave, and the steps that this makes.

use super::{Decided, Replay};
use crate::reclaim::{Chunk, chunks_of};
use hinterland_paging::{Oldest, ReclaimBody, Step, Way, given_up_step, reclaim_step};
use hinterland_units::PageNo;
use std::collections::VecDeque;

/// What a thread reclaims.
#[derive(Default)]
pub(super) struct InHand {
    /// The parts of its step.
    parts: VecDeque<Part>,
    /// The victims that it has claimed, until it is decided how they leave.
    victims: Vec<PageNo>,
    /// Those of them that leave by MOVE, while a chunk of others may be queued before.
    moved: Option<Vec<PageNo>>,
    /// Those that have left by copy.
    copied: Vec<PageNo>,
}

impl InHand {
    /// Victims leave, these by copy, those by MOVE.
    fn leave(&mut self, [copied, moved]: &[Vec<PageNo>; 2]) {
        (self.moved, self.copied) = ((!copied.is_empty()).then(|| moved.clone()), Vec::new());
    }

    /// A chunk of victims is queued that have left in this way; whether these can have. Where a copy fails, MOVE follows.
    fn have_left(&mut self, way: Way, pages: &[PageNo]) -> bool {
        let moved = self.moved.take();
        match way {
            Way::Copy => {
                self.copied = pages.to_vec();
                moved.is_some_and(|moved| pages.iter().all(|page| !moved.contains(page)))
            }
            Way::Move => pages.iter().all(|page| !self.copied.contains(page)),
        }
    }
}

/// A part of a step of reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// A chunk was to be taken, and was or was not.
    Take(Oldest, bool),
    /// A chunk was to be filled, and was or was not.
    Fill(bool),
}

/// The parts of a step, as a body that has what became of them.
struct Parts<'a> {
    parts: &'a mut VecDeque<Part>,
    /// Each was the one that was asked for.
    are_as_asked: bool,
}

impl Parts<'_> {
    fn next(&mut self, outcome: impl Fn(Part) -> Option<bool>) -> bool {
        let next = self.parts.pop_front().and_then(outcome);
        self.are_as_asked &= next.is_some();
        next.unwrap_or(false)
    }
}

impl ReclaimBody for Parts<'_> {
    type Chunk = ();
    type Done = ();

    fn take_oldest(&mut self, which: Oldest) -> Option<()> {
        let taken = |part| if let Part::Take(asked, taken) = part { (asked == which).then_some(taken) } else { None };
        self.next(taken).then_some(())
    }

    fn fill(&mut self) -> Option<()> {
        self.next(|part| if let Part::Fill(left) = part { Some(left) } else { None }).then_some(())
    }

    fn drain(&mut self, (): ()) {}
}

impl Replay<'_> {
    fn in_hand(&mut self, thread: u32) -> &mut InHand {
        &mut self.threads.entry(thread).or_default().reclaim
    }

    /// Reclaim: victims, and the chunks in which they leave.
    pub(super) fn reclaim(&mut self, thread: u32, step: &Step) -> Decided {
        let in_hand = &mut self.threads.entry(thread).or_default().reclaim;
        let mut is_known = true;
        let decided = match step {
            Step::Victims { urgency, copies, answers, .. } => {
                (self.machine.urgency, self.machine.copies) = (*urgency, *copies);
                self.answer(answers, &[]);
                let victims = self.machine.choose_victims();
                self.done.victims += victims.len() as u64;
                self.in_hand(thread).victims = victims.clone();
                Step::Victims { urgency: *urgency, copies: *copies, answers: answers.clone(), victims }
            }
            Step::Unreferenced { pages, answers, .. } => {
                self.answer(answers, &[]);
                let (victims, _) = self.machine.choose_unreferenced(&mut pages.iter().copied());
                self.in_hand(thread).victims = victims.clone();
                Step::Unreferenced { pages: pages.clone(), answers: answers.clone(), victims }
            }
            Step::GivenUp { pages, answers, .. } => {
                self.answer(answers, &[]);
                let victims = self.machine.claim_given_up(pages);
                self.done.given_up += victims.len() as u64;
                self.in_hand(thread).victims = victims.clone();
                Step::GivenUp { pages: pages.clone(), answers: answers.clone(), victims }
            }
            Step::Leaves { copies, .. } => {
                let chunks = chunks_of(&mut std::mem::take(&mut in_hand.victims), *copies);
                in_hand.leave(&chunks);
                let [by_copy, _] = chunks;
                self.done.copied += by_copy.len() as u64;
                Step::Leaves { copies: *copies, by_copy }
            }
            Step::Chunk { number, way, pages } => {
                is_known = way.is_none_or(|way| in_hand.have_left(way, pages));
                self.machine.queue_chunk(*number, pages);
                step.clone()
            }
            Step::Oldest { any, .. } => {
                let which = if *any { Oldest::Any } else { Oldest::BeyondShare };
                let chunk = self.machine.take_oldest(which);
                in_hand.parts.push_back(Part::Take(which, chunk.is_some()));
                Step::Oldest { any: *any, number: chunk.map(|Chunk { number, .. }| number) }
            }
            Step::Filled { left } => {
                in_hand.parts.push_back(Part::Fill(*left));
                step.clone()
            }
            Step::Reclaimed { given_up, .. } => {
                let mut body = Parts { parts: &mut in_hand.parts, are_as_asked: true };
                let done = match given_up {
                    true => given_up_step(&mut body, |body| body.fill().is_some()),
                    false => reclaim_step(&mut body).is_some(),
                };
                is_known = body.are_as_asked && in_hand.parts.is_empty();
                in_hand.parts.clear();
                self.done.steps += 1;
                Step::Reclaimed { given_up: *given_up, done }
            }
            _ => unreachable!("{step:?} is not about reclaim"),
        };
        (decided, is_known)
    }
}
