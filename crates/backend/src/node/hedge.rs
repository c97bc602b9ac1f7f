//! Hedged loads: a page that the program waits for is also requested from a second node when the first is later than
//! 95 % of its answers, and the first answer is used.
//!
//! ```text
//! ask the first ──► 95th percentile of its answers ──► ask the second ──► take what comes first; the other answer is owed
//! ```
//! So a pause of a node, a lost packet or a queue there costs the program little more than what most loads take, and in
//! the long run one load in twenty a second message: deferred hedged requests (Dean and Barroso, The Tail at Scale,
//! 2013). The lane with the later answer stays in step: it receives and discards the owed answer before its next one.
//! As long as a node owes an answer, other nodes are preferred, and a ping checks that it is alive (see `maintain`).

use super::lane::SlotRead;
use super::link::Demand;
use super::link_request::{LinkRequest, Want};
use super::slabs::Slabs;
use super::table::Replica;
use super::transfer::Transfer;
use crate::node_error::NodeError;
use crate::{LoadError, LoadItem, Priority};
use hinterland_units::PageBytes;
use std::sync::atomic::Ordering::Relaxed;

type Done<'a> = dyn FnMut(usize, Result<&PageBytes, LoadError>) + 'a;

/// Loads the page of `wants`, which is one, from its replica `at`, and also from `other` if that one is late.
pub(super) fn hedged_load(
    slabs: &Slabs,
    [at, other]: [usize; 2],
    wants: &mut [Want],
    item: &mut LoadItem<'_>,
    done: &mut Done<'_>,
) {
    let replicas = wants[0].replicas.clone();
    let Some(mut first) = HedgedRequest::start(slabs, &replicas[at], at, wants, item, true) else { return };
    let late_after = first.replica.link.estimate.late_after();
    // A lane that owes an answer already is none to owe another.
    if first.transfer.owes() || first.transfer.arrives_within(late_after) {
        return first.take_answer(slabs, wants, item, done);
    }
    let Some(mut second) = HedgedRequest::start(slabs, &replicas[other], other, wants, item, false) else {
        return first.take_answer(slabs, wants, item, done);
    };
    first.replica.link.node.hedged_loads.fetch_add(1, Relaxed);
    let patience = first.asked.patience.saturating_sub(first.asked.begun.elapsed());
    match first.transfer.either_arrives_within(&mut second.transfer, patience) {
        Some(second_is_it) => {
            let (winner, loser) = if second_is_it { (second, first) } else { (first, second) };
            winner.take_answer(slabs, wants, item, done);
            if wants[0].answered {
                loser.give_up(wants[0].bytes);
            } else {
                loser.take_answer(slabs, wants, item, done);
            }
        }
        None => {
            let limit = first.asked.patience;
            first.transfer.end(false);
            first.asked.conclude(slabs, Err(NodeError::Silent { limit }), wants);
            second.take_answer(slabs, wants, item, done);
        }
    }
}

/// A page on its way from one of two replicas.
struct HedgedRequest<'a> {
    replica: &'a Replica,
    asked: LinkRequest<'a>,
    transfer: Transfer<'a>,
    _demand: Demand<'a>,
}

impl<'a> HedgedRequest<'a> {
    /// Asks a replica; `None`: it could not be asked. The second of two is only asked if that takes little time (`idle_demand_lane`).
    fn start(
        slabs: &Slabs,
        replica: &'a Replica,
        at: usize,
        wants: &mut [Want],
        item: &mut LoadItem<'_>,
        is_first: bool,
    ) -> Option<Self> {
        let mut asked = LinkRequest::new(slabs, &replica.link, &wants[0], Priority::Demand);
        let there = asked.add((0, at), &wants[0], item);
        let begun = if is_first {
            Transfer::begin(slabs, &replica.link, 1, Priority::Demand, asked.patience)
        } else {
            Ok(replica.link.idle_demand_lane()?)
                .map(|lane| Transfer::new(&replica.link, lane, 1, Priority::Demand, asked.patience))
        };
        let started = begun.and_then(|mut transfer| match transfer.ask(&[there]) {
            Ok(()) => Ok(transfer),
            Err(error) => {
                transfer.end(false);
                Err(error)
            }
        });
        match started {
            Ok(transfer) => Some(HedgedRequest { replica, asked, transfer, _demand: replica.link.demand() }),
            Err(error) => {
                asked.conclude(slabs, Err(error), wants);
                None
            }
        }
    }

    /// Takes its answer.
    fn take_answer(self, slabs: &Slabs, wants: &mut [Want], item: &mut LoadItem<'_>, done: &mut Done<'_>) {
        let HedgedRequest { replica, mut asked, mut transfer, _demand } = self;
        let slot = replica.slot(item.location.0);
        let mut there = [SlotRead { slot, bytes: wants[0].bytes, into: &mut *item.into }];
        let going = transfer.receive(&mut there, true, &mut |position, page| {
            asked.took(position, page, wants, done);
        });
        transfer.end(going.is_ok());
        asked.conclude(slabs, going, wants);
    }

    /// The other one was heard.
    fn give_up(self, bytes: usize) {
        let HedgedRequest { replica, asked, transfer, _demand } = self;
        replica.link.estimate.at_least(asked.begun.elapsed());
        transfer.leave_owed(bytes, replica.users.clone());
    }
}
