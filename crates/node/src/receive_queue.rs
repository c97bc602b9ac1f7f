//! The received bytes of a lane's requests that are not served yet.

use crate::connection::Connection;
use crate::lane::{Lane, LaneError};
use crate::request_buffers::Buffer;
use std::io::{self, Read};
use std::time::Duration;

/// A lane that is silent for so long gives back what it needs for long answers, and keeps so much.
const IDLE: Duration = Duration::from_secs(1);
const KEPT_BYTES: usize = 16 << 10;
/// Bytes for the next request: for most a whole one.
pub(crate) const SHORT_BYTES: usize = 512;

/// Bytes that have arrived and are not served yet.
pub(crate) struct ReceiveQueue<'a> {
    short: [u8; SHORT_BYTES],
    /// While the request is a long one.
    pub(crate) long: Option<Buffer<'a>>,
    pub(crate) begin: usize,
    end: usize,
    /// It is waited for `IDLE` only, to give back what a long answer took.
    is_watched: bool,
}

impl Default for ReceiveQueue<'_> {
    fn default() -> Self {
        ReceiveQueue { short: [0; SHORT_BYTES], long: None, begin: 0, end: 0, is_watched: false }
    }
}

impl<'a> ReceiveQueue<'a> {
    pub(crate) fn arrived(&self) -> &[u8] {
        let bytes = self.long.as_ref().map_or(&self.short[..], Buffer::bytes);
        &bytes[self.begin..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.long.as_mut().map_or(&mut self.short[..], Buffer::bytes_mut)
    }

    /// Before the connection is waited for: how long, which is changed only when it has to be.
    fn watch(&mut self, stream: &Connection, lane: &Lane<'_>) -> io::Result<()> {
        // Before that its client has to say what it wants, and is waited for in another way.
        let has_much = lane.session.is_some() && lane.kept_bytes() > KEPT_BYTES;
        if has_much != self.is_watched {
            stream.set_read_timeout(has_much.then_some(IDLE))?;
            self.is_watched = has_much;
        }
        Ok(())
    }

    /// Makes room for `count` bytes from the beginning of the request on: in a buffer for a long one, which is given back for a short one.
    fn make_room(&mut self, count: usize, lane: &Lane<'a>) -> io::Result<()> {
        if count <= SHORT_BYTES {
            self.give_back();
        } else if self.long.is_none() {
            let mut buffer = lane.node.request_buffers.take(lane.number, lane.is_new)?;
            let length = self.end - self.begin;
            buffer.bytes_mut()[..length].copy_from_slice(self.arrived());
            self.long = Some(buffer);
            (self.begin, self.end) = (0, length);
        }
        let (begin, end) = (self.begin, self.end);
        if begin == end {
            (self.begin, self.end) = (0, 0);
        } else if begin + count > self.bytes_mut().len() {
            self.bytes_mut().copy_within(begin..end, 0);
            (self.begin, self.end) = (0, end - begin);
        }
        Ok(())
    }

    /// Gives back the buffer for a long request, where what has arrived fits without it: before the lane waits for its client.
    pub(crate) fn give_back(&mut self) {
        let length = self.end - self.begin;
        if let Some(buffer) = self.long.take_if(|_| length <= SHORT_BYTES) {
            self.short[..length].copy_from_slice(&buffer.bytes()[self.begin..self.end]);
            (self.begin, self.end) = (0, length);
        }
    }

    /// Reads until `count` bytes are there; what is to be answered is sent before waiting. False: the client hung up between
    /// two requests.
    pub(crate) fn fill(
        &mut self,
        count: usize,
        stream: &mut Connection,
        lane: &mut Lane<'a>,
    ) -> Result<bool, LaneError> {
        while self.end - self.begin < count {
            self.make_room(count, lane)?;
            lane.send(stream)?;
            lane.look(stream);
            self.watch(stream, lane)?;
            let end = self.end;
            match stream.read(&mut self.bytes_mut()[end..]) {
                Ok(0) if self.begin == self.end => return Ok(false),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => {
                    self.end += read;
                    if let Some(buffer) = &self.long {
                        buffer.moves();
                    }
                }
                Err(error) if self.is_watched && is_silence(&error) => {
                    // In the middle of a message it is waited for as before.
                    if self.begin == self.end {
                        lane.give_back();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// Whether nothing has come for as long as is waited.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
