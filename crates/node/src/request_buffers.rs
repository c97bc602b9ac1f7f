//! Bounds on connections without a complete request: their memory, and their time before they join a session.
//!
//! A lane waits for its next request with a few hundred bytes. For a longer one it takes a buffer out of a pool, and
//! gives it back when the request is served. When the pool is empty, a connection that holds a buffer without progress
//! is closed; of the waiting lanes those with an earlier complete long request get a buffer first, then those that came
//! last. So of 4096 clients that each hold half a request none keeps another one from memory for long. A slow client
//! keeps its place, and so does one that was stopped in the middle of a request, unless memory runs out.
//! A lane with an earlier complete long request makes room only for one of its kind, as long as it is within its time for
//! a request: new connections, however many, close no client whose machine is busy.

use hinterland_wire::{CONTROL_BYTES_MAX, DATA_BYTES_MAX, HEADER_BYTES};
use memmap2::MmapMut;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The longest request.
const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + CONTROL_BYTES_MAX + DATA_BYTES_MAX;
/// Buffers for long requests, each of `MESSAGE_BYTES_MAX`: 8.5 MiB.
const BUFFERS_MAX: usize = 32;
/// Bytes of all of them.
pub const BUFFERS_BYTES_MAX: u64 = (BUFFERS_MAX * MESSAGE_BYTES_MAX) as u64;
/// Of those, kept for lanes that have said a whole long request before.
const RESERVED: usize = 8;
/// Other lanes that may wait for a buffer: for one more, the one that has waited longest goes.
const WAITING_MAX: usize = 256;
/// Connections without a session: for one more, the oldest goes.
const UNATTACHED_MAX: usize = 1024;
/// Unused buffers that keep their memory.
const IDLE_MAX: usize = 8;

/// See the module.
pub(crate) struct RequestBuffers {
    begun: Instant,
    /// Time to join a session, and to say a whole request where its buffer is wanted.
    limit: Duration,
    /// A connection with a buffer of which nothing has come for so long makes room, where one is wanted.
    stall_limit: Duration,
    /// Buffers that there are.
    mapped: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Connections that have not joined a session yet, and since when they are there.
    unattached: BTreeMap<u64, Instant>,
    idle: Vec<MmapMut>,
    /// The buffers in use, by connection.
    held: HashMap<u64, Arc<Hold>>,
    /// Lanes that wait for one, the next first.
    waiting: BTreeMap<Rank, (u64, Thread)>,
    /// Of those, the ones that have said no long request yet.
    new_waiting: usize,
    /// How many have waited so far.
    order: u64,
    /// Connections that wait no more, because they have to end.
    given_up: HashSet<u64>,
    is_over: bool,
}

/// The order of waiting lanes: those with an earlier long request first, then those that came last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_new: bool,
    before_end: u64,
}

/// A connection's part of the memory.
struct Hold {
    /// It has said no long request yet.
    is_new: bool,
    since_ms: u64,
    /// When something arrived last.
    moved_ms: AtomicU64,
}

/// A buffer for a request, until it is dropped.
pub(crate) struct Buffer<'a> {
    request_buffers: &'a RequestBuffers,
    connection: u64,
    hold: Arc<Hold>,
    /// Its memory; taken when it goes back.
    bytes: Option<MmapMut>,
}

impl RequestBuffers {
    pub(crate) fn new(limit: Duration, stall_limit: Duration) -> RequestBuffers {
        let (begun, mapped, state) = (Instant::now(), AtomicUsize::new(0), Mutex::default());
        RequestBuffers { begun, limit, stall_limit, mapped, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        in_ms(self.begun.elapsed())
    }

    /// A connection is there; another one that has to go for it.
    pub(crate) fn begins(&self, connection: u64) -> Option<u64> {
        let unattached = &mut self.state().unattached;
        unattached.insert(connection, Instant::now());
        if unattached.len() > UNATTACHED_MAX { unattached.pop_first().map(|(oldest, _)| oldest) } else { None }
    }

    /// A connection has joined a session, or has ended.
    pub(crate) fn settle(&self, connection: u64) {
        self.state().unattached.remove(&connection);
    }

    /// Memory for a long request of this connection: waits until there is some. `is_new`: it has said none before.
    ///
    /// # Errors
    /// The connection has to end; the system has no memory.
    pub(crate) fn take(&self, connection: u64, is_new: bool) -> io::Result<Buffer<'_>> {
        let mut state = self.state();
        if !state.has_room(is_new) {
            state.order += 1;
            let rank = Rank { is_new, before_end: u64::MAX - state.order };
            state.waiting.insert(rank, (connection, std::thread::current()));
            state.new_waiting += usize::from(is_new);
            if state.new_waiting > WAITING_MAX {
                state.give_up_last();
            }
            while !state.held.contains_key(&connection) {
                if state.given_up.remove(&connection) || state.is_over {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                drop(state);
                std::thread::park();
                state = self.state();
            }
        } else {
            state.grant(connection, is_new, self.now_ms());
        }
        let hold = Arc::clone(&state.held[&connection]);
        let idle = state.idle.pop();
        drop(state);
        let mut buffer = Buffer { request_buffers: self, connection, hold, bytes: idle };
        if buffer.bytes.is_none() {
            buffer.bytes = Some(MmapMut::map_anon(MESSAGE_BYTES_MAX)?);
            self.mapped.fetch_add(1, Relaxed);
        }
        Ok(buffer)
    }

    /// Bytes of all buffers now, those that are kept for the next request too.
    pub(crate) fn bytes(&self) -> u64 {
        (self.mapped.load(Relaxed) * MESSAGE_BYTES_MAX) as u64
    }

    /// Connections that have to end now: those that have joined no session in time, and, where buffers are wanted, those that hold one
    /// and stand still, as many as are wanted: first those that are new or past their time for a request, and the others for lanes alone
    /// that are not new.
    pub(crate) fn overdue(&self) -> Vec<u64> {
        let state = self.state();
        let now_ms = self.now_ms();
        let late =
            state.unattached.iter().filter(|(_, since)| since.elapsed() >= self.limit).map(|(number, _)| *number);
        let mut overdue: Vec<u64> = late.collect();
        let [stalled_ms, limit_ms] = [self.stall_limit, self.limit].map(in_ms);
        let is_past = |since: u64, limit: u64| now_ms.saturating_sub(since) >= limit;
        let mut for_all = Vec::new();
        let mut for_known = Vec::new();
        for (connection, hold) in &state.held {
            let moved_ms = hold.moved_ms.load(Relaxed);
            let (is_late, stands_still) = (is_past(hold.since_ms, limit_ms), is_past(moved_ms, stalled_ms));
            if is_late || stands_still && hold.is_new {
                for_all.push((moved_ms, *connection));
            } else if stands_still {
                for_known.push((moved_ms, *connection));
            }
        }
        let known_waiting = state.waiting.len() - state.new_waiting;
        let take = |mut holders: Vec<(u64, u64)>, count: usize| {
            holders.sort_unstable();
            holders.into_iter().take(count).map(|(_, connection)| connection)
        };
        let for_known_count = known_waiting.saturating_sub(for_all.len());
        overdue.extend(take(for_all, state.waiting.len()));
        overdue.extend(take(for_known, for_known_count));
        overdue
    }

    /// The node ends: no connection waits any more.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.waiting.values().for_each(|(_, thread)| thread.unpark());
    }
}

impl State {
    fn has_room(&self, is_new: bool) -> bool {
        self.held.len() < BUFFERS_MAX - if is_new { RESERVED } else { 0 }
    }

    fn grant(&mut self, connection: u64, is_new: bool, now_ms: u64) {
        self.held.insert(connection, Arc::new(Hold { is_new, since_ms: now_ms, moved_ms: AtomicU64::new(now_ms) }));
    }

    /// The lane that has waited longest of those that are new waits no more.
    fn give_up_last(&mut self) {
        if let Some((rank, (connection, thread))) = self.waiting.pop_last() {
            self.new_waiting -= usize::from(rank.is_new);
            self.given_up.insert(connection);
            thread.unpark();
        }
    }

    /// Buffers that are free go to the lanes that wait.
    fn serve_waiting(&mut self, now_ms: u64) {
        while self.waiting.first_key_value().is_some_and(|(rank, _)| self.has_room(rank.is_new)) {
            let (rank, (connection, thread)) = self.waiting.pop_first().expect("there is one");
            self.new_waiting -= usize::from(rank.is_new);
            self.grant(connection, rank.is_new, now_ms);
            thread.unpark();
        }
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Buffer<'_> {
    /// Something has arrived.
    pub(crate) fn moves(&self) {
        self.hold.moved_ms.store(self.request_buffers.now_ms(), Relaxed);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().expect("until it is dropped")
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().expect("until it is dropped")
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut state = self.request_buffers.state();
        state.held.remove(&self.connection);
        let bytes = self.bytes.take();
        if state.idle.len() < IDLE_MAX {
            state.idle.extend(bytes);
        } else if bytes.is_some() {
            drop(bytes);
            self.request_buffers.mapped.fetch_sub(1, Relaxed);
        }
        state.serve_waiting(self.request_buffers.now_ms());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const LONG: Duration = Duration::from_secs(600);

    fn until(mut holds: impl FnMut() -> bool) {
        while !holds() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn whoever_has_said_a_long_request_comes_before_new_ones_and_of_those_the_last() {
        let request_buffers = RequestBuffers::new(LONG, LONG);
        let mut held: Vec<Buffer<'_>> =
            (0..BUFFERS_MAX as u64).map(|number| request_buffers.take(number, false).expect("room")).collect();
        let over = AtomicBool::new(false);
        let has = |connection: u64| request_buffers.state().held.contains_key(&connection);
        std::thread::scope(|scope| {
            for (place, (connection, is_new)) in [(100, true), (101, true), (102, false)].into_iter().enumerate() {
                let (request_buffers, over) = (&request_buffers, &over);
                scope.spawn(move || {
                    let buffer = request_buffers.take(connection, is_new).expect("a buffer");
                    until(|| over.load(Relaxed));
                    drop(buffer);
                });
                until(|| request_buffers.state().waiting.len() == place + 1);
            }
            assert!(request_buffers.overdue().is_empty(), "none stands still yet");
            held.truncate(BUFFERS_MAX - 1);
            assert_eq!([100, 101, 102].map(has), [false, false, true]);
            held.truncate(BUFFERS_MAX - 1 - RESERVED);
            assert_eq!([100, 101, 102].map(has), [false, false, true]);
            held.truncate(BUFFERS_MAX - 2 - RESERVED);
            assert_eq!([100, 101, 102].map(has), [false, true, true]);
            held.truncate(BUFFERS_MAX - 3 - RESERVED);
            assert_eq!([100, 101, 102].map(has), [true, true, true]);
            over.store(true, Relaxed);
        });
        drop(held);
        let state = request_buffers.state();
        assert!(state.held.is_empty() && state.waiting.is_empty() && state.idle.len() == IDLE_MAX);
    }

    #[test]
    fn some_buffers_are_not_for_new_lanes_and_the_longest_waiting_one_gives_up() {
        let request_buffers = RequestBuffers::new(LONG, LONG);
        let new = (0..(BUFFERS_MAX - RESERVED) as u64).map(|number| request_buffers.take(number, true).expect("room"));
        let held: Vec<Buffer<'_>> = new.collect();
        assert!(request_buffers.take(1000, false).is_ok(), "a buffer is kept for lanes that are not new");
        let given_up = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for connection in 2000..2001 + WAITING_MAX as u64 {
                let waiting = request_buffers.state().order;
                let (request_buffers, given_up) = (&request_buffers, &given_up);
                scope.spawn(move || {
                    if request_buffers.take(connection, true).is_err() {
                        given_up.lock().expect("nobody panics").push(connection);
                    }
                });
                until(|| request_buffers.state().order > waiting);
            }
            until(|| given_up.lock().expect("nobody panics").len() == 1);
            assert_eq!(*given_up.lock().expect("nobody panics"), [2000]);
            drop(held);
        });
        assert_eq!(given_up.into_inner().expect("nobody panics"), [2000]);
    }

    #[test]
    fn whoever_stands_still_or_joins_nothing_has_to_end() {
        let request_buffers = RequestBuffers::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(request_buffers.begins(7), None);
        assert_eq!(request_buffers.begins(8), None);
        request_buffers.settle(8);
        assert_eq!(request_buffers.overdue(), [7]);
        let held: Vec<Buffer<'_>> =
            (10..10 + BUFFERS_MAX as u64).map(|number| request_buffers.take(number, false).expect("room")).collect();
        assert_eq!(request_buffers.overdue(), [7], "no lane wants their buffers");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| request_buffers.take(99, true).map(drop).map_err(|error| error.kind()));
            until(|| request_buffers.state().waiting.len() == 1);
            let overdue = request_buffers.overdue();
            assert!(overdue.len() == 2 && overdue[0] == 7 && overdue[1] >= 10, "{overdue:?}");
            request_buffers.end();
            assert_eq!(waits.join().expect("no panic"), Err(io::ErrorKind::ConnectionAborted));
        });
        drop(held);
    }

    #[test]
    fn a_lane_that_has_said_a_long_request_makes_room_only_for_its_kind() {
        let request_buffers = RequestBuffers::new(LONG, Duration::ZERO);
        let new_count = (BUFFERS_MAX - RESERVED) as u64;
        let new: Vec<Buffer<'_>> =
            (100..100 + new_count).map(|number| request_buffers.take(number, true).expect("room")).collect();
        let known: Vec<Buffer<'_>> =
            (0..RESERVED as u64).map(|number| request_buffers.take(number, false).expect("room")).collect();
        std::thread::scope(|scope| {
            let wait = |connection, is_new, waiting| {
                let request_buffers = &request_buffers;
                scope.spawn(move || request_buffers.take(connection, is_new).map(drop));
                until(|| request_buffers.state().waiting.len() == waiting);
            };
            let overdue = || {
                let overdue = request_buffers.overdue();
                let known = overdue.iter().filter(|connection| **connection < RESERVED as u64).count();
                [overdue.len() - known, known]
            };
            wait(200, true, 1);
            wait(201, false, 2);
            assert_eq!(overdue(), [2, 0], "new ones make room for both kinds");
            drop(new);
            until(|| request_buffers.state().held.len() == RESERVED);
            let more: Vec<Buffer<'_>> =
                (300..300 + new_count).map(|number| request_buffers.take(number, false).expect("room")).collect();
            wait(400, true, 1);
            assert_eq!(overdue(), [0, 0], "a new one waits");
            wait(401, false, 2);
            assert_eq!(overdue().iter().sum::<usize>(), 1, "one of its kind goes for a lane that is not new");
            drop(more);
        });
        drop(known);
    }

    #[test]
    fn of_many_without_a_session_the_oldest_goes() {
        let request_buffers = RequestBuffers::new(LONG, LONG);
        let gone: Vec<u64> =
            (0..UNATTACHED_MAX as u64 + 3).filter_map(|number| request_buffers.begins(number)).collect();
        assert_eq!(gone, [0, 1, 2]);
    }
}
