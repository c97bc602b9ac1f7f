//! The use of a link by other processes of the run: how much of it is left for this one.
//!
//! ```text
//!   demands of others ──► demands here: in equal parts         bulk here: waits for as long as they took
//!   bulk of others    ──► demands here: half a piece at first  bulk here: in equal parts
//! ```
//! So demands of one process pass bulk of another, as they pass that of their own. Of bulk that shares the link with others, each piece is
//! sent at full speed, and followed by a gap for the pieces of the others; a demand of this process goes into the gap.
//!
//! Each process works out its own queue alone, by what the others have said of themselves ([`RunLink`]).

use hinterland_abi::RunLink;

/// What others do with one direction of a link. A clone foretells: what it does is not said to others.
#[derive(Debug)]
pub(super) struct CrossTraffic {
    link: &'static RunLink,
    user: usize,
    direction: usize,
    /// Time that demands of this process took.
    own_ns: u64,
    /// Time of others' demands for which bulk has waited.
    paid_ns: u64,
    foretells: bool,
}

impl Clone for CrossTraffic {
    fn clone(&self) -> CrossTraffic {
        CrossTraffic { foretells: true, ..*self }
    }
}

impl CrossTraffic {
    /// The direction of a link that this process uses by that row.
    pub(super) fn new(link: &'static RunLink, user: usize, direction: usize) -> CrossTraffic {
        CrossTraffic { link, user, direction, own_ns: 0, paid_ns: link.demands_ns(direction), foretells: false }
    }

    /// Time that demands of others took.
    fn others_ns(&self) -> u64 {
        self.link.demands_ns(self.direction).wrapping_sub(self.own_ns)
    }

    /// A demand finds the link free of this process: how long it waits for the piece that another one is sending, on average.
    pub(super) fn piece_wait_ns(&self, now_ns: u64, piece_ns: u64) -> u64 {
        if self.link.others(self.user, self.direction, false, now_ns) > 0 { piece_ns / 2 } else { 0 }
    }

    /// Bulk begins to wait: it does not pay for demands before that.
    pub(super) fn bulk_begins(&mut self) {
        self.paid_ns = self.others_ns();
    }

    /// A demand that takes `ns` alone is sent from `at_ns` on: how long it takes.
    pub(super) fn demand_ns(&mut self, at_ns: u64, ns: u64) -> u64 {
        if !self.foretells {
            self.own_ns = self.own_ns.wrapping_add(ns);
            self.link.demanded(self.direction, ns);
        }
        ns.saturating_mul(1 + self.link.others(self.user, self.direction, true, at_ns))
    }

    /// The same of bulk, until its next piece may be sent.
    pub(super) fn bulk_ns(&mut self, at_ns: u64, ns: u64) -> u64 {
        let others_ns = self.others_ns();
        let unpaid_ns = others_ns.wrapping_sub(self.paid_ns);
        self.paid_ns = others_ns;
        ns.saturating_mul(1 + self.link.others(self.user, self.direction, false, at_ns)).saturating_add(unpaid_ns)
    }

    /// Says until when demands, or bulk, wait or are sent, if this process waits for the link alone: `left_ns` is what waits, behind `from_ns`.
    pub(super) fn say(&self, is_demand: bool, now_ns: u64, from_ns: u64, left_ns: u64) {
        let others = if left_ns == 0 { 0 } else { self.link.others(self.user, self.direction, is_demand, now_ns) };
        let until_ns = from_ns.saturating_add(left_ns.saturating_mul(1 + others));
        self.link.uses(self.user, self.direction, is_demand, now_ns, until_ns);
    }
}
