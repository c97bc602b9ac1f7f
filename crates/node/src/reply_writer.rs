//! Sends the replies of a lane: at once or, where replies take turns on the link, in its turns (`egress.rs`).

use crate::connection::Connection;
use crate::egress::Egress;
use hinterland_wire::{Channel, Priority};
use std::io::{self, IoSlice, Write};

/// See the module.
pub(crate) struct ReplyWriter<'a> {
    egress: Option<&'a Egress>,
    channel: Channel,
}

impl<'a> ReplyWriter<'a> {
    /// Of a connection; those that share no link have no turns.
    pub(crate) fn new(stream: &Connection, egress: Option<&'a Egress>) -> ReplyWriter<'a> {
        let egress = egress.filter(|_| stream.has_link());
        if egress.is_some() {
            Egress::wake_in_time();
        }
        ReplyWriter { egress, channel: Channel { tenant: 0, program: 0, class: Priority::Demand } }
    }

    /// From now on what is said is this program's.
    pub(crate) fn belongs_to(&mut self, tenant: u64, program: u64) {
        self.channel = Channel { tenant, program, ..self.channel };
    }

    /// What is said next is so urgent, and with it what is not sent yet, if anything is.
    pub(crate) fn says(&mut self, class: Priority, behind_others: bool) {
        self.channel.class = if behind_others { class.min(self.channel.class) } else { class };
    }

    /// Sends all of `out`, and waits for turns and for the connection.
    pub(crate) fn send(&self, stream: &mut Connection, out: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = &out[..];
        while !rest.is_empty() {
            let turn = self.egress.map_or(rest.len(), |egress| egress.take(self.channel, rest.len()));
            let mut sent = turn;
            match self.egress {
                Some(egress) if stream.takes_offers() => {
                    sent = stream.offer(&[IoSlice::new(&rest[..turn])])?;
                    if sent < turn {
                        egress.not_sent(turn - sent);
                        stream.wait_for_room()?;
                    }
                }
                _ => {
                    stream.write_all(&rest[..turn])?;
                    stream.flush()?;
                }
            }
            rest = &rest[sent..];
        }
        out.clear();
        Ok(())
    }

    /// Sends of `out` what may be sent without waiting: sending is work like any other, and waiting is not.
    pub(crate) fn offer(&self, stream: &Connection, out: &mut Vec<u8>) -> io::Result<()> {
        let turn = if stream.takes_offers() { self.turn(out.len()) } else { 0 };
        if turn > 0 {
            let sent = self.sent(turn, stream.offer(&[IoSlice::new(&out[..turn])]))?;
            drop(out.drain(..sent));
        }
        Ok(())
    }

    /// How many of so many bytes may be sent now; `offer_all` of them follows, or `gives_up`.
    pub(crate) fn turn(&self, bytes: usize) -> usize {
        match self.egress {
            Some(egress) if bytes > 0 => egress.try_take(self.channel, bytes),
            _ => bytes,
        }
    }

    /// A turn is not used.
    pub(crate) fn gives_up(&self, turn: usize) {
        if let Some(egress) = self.egress {
            egress.not_sent(turn);
        }
    }

    /// Sends of `out` and of the pieces behind it what a turn allows and the connection takes; what is left is in `out` then.
    pub(crate) fn offer_all(
        &self,
        stream: &Connection,
        turn: usize,
        out: &mut Vec<u8>,
        pieces: &[&[u8]],
    ) -> io::Result<()> {
        let mut left = turn;
        let allowed = [&out[..]].into_iter().chain(pieces.iter().copied()).map_while(|piece| {
            let part = &piece[..piece.len().min(left)];
            left -= part.len();
            (!part.is_empty()).then(|| IoSlice::new(part))
        });
        let allowed: Vec<IoSlice<'_>> = allowed.collect();
        let sent = self.sent(turn, stream.offer(&allowed))?;
        let mut of_pieces = sent.saturating_sub(out.len());
        drop(out.drain(..sent.min(out.len())));
        for piece in pieces {
            let gone = of_pieces.min(piece.len());
            out.extend_from_slice(&piece[gone..]);
            of_pieces -= gone;
        }
        Ok(())
    }

    /// Of a turn so much was used.
    fn sent(&self, turn: usize, sent: io::Result<usize>) -> io::Result<usize> {
        let unused = turn - sent.as_ref().map_or(0, |sent| *sent);
        if unused > 0 {
            self.gives_up(unused);
        }
        sent
    }
}
