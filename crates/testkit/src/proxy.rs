//! A proxy between a program and a node: it forwards all bytes until a test makes it misbehave.

use hinterland_backend::{AnswerLimit, NodeAddress};
use hinterland_wire::{
    Features, HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind, Outcome, Reply, Request, WELCOME_BYTES, Welcome, checksum,
};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

/// What the proxy does with answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Passes them on.
    Pass,
    /// Keeps everything to itself, as a stopped node or a broken line does.
    Hold,
    /// Keeps answers with data to itself.
    HoldData,
    /// Keeps the next answer with data to itself, and passes the others on.
    HoldOne,
    /// Hangs up, and on everybody who comes.
    Dead,
    /// Passes them on after a tenth of a second.
    Slow,
    /// Flips a bit of the data: as if it had changed on its way, or in the node's memory.
    Flip,
    /// Flips a bit of the next answer with data, and passes the others on.
    FlipOne,
    /// Flips a bit of the last page of answers with several.
    FlipLast,
    /// Flips a bit of the data and makes the checksums right: as a node does that lies.
    Lie,
    /// Sends the data that was asked for before.
    Other,
    /// Sends answers with data twice.
    Twice,
    /// Hangs up in the middle of data.
    Cut,
    /// Hangs up in the middle of the granules of a patch, on their way to the node.
    CutPatch,
    /// Flips a bit of the granules of a patch, on their way to the node.
    FlipPatch,
}

/// A proxy before a node, on an address that stays when the node is replaced.
pub struct Proxy {
    state: Arc<State>,
    /// Where it listens.
    pub address: SocketAddr,
    limit: AnswerLimit,
}

/// Time after which a pool gives a node up that is silent.
const SILENCE: Duration = Duration::from_millis(100);

struct State {
    mode: Mutex<Mode>,
    upstream: Mutex<SocketAddr>,
    open: Mutex<Vec<TcpStream>>,
    /// Threads that keep a message to themselves now.
    keeping: AtomicUsize,
    /// Of `HoldOne` and `FlipOne`: there was one.
    has_one: AtomicBool,
    /// Connections that were made so far.
    made: AtomicUsize,
    /// So many connections are told that there are too many.
    turned_away: AtomicUsize,
    /// Connections that are made from now on are closed at once.
    takes_none: AtomicBool,
    /// What the node is told that its clients understand.
    features: Mutex<Features>,
    /// The next answer with data is kept until all who share this have one.
    meeting: Mutex<Option<Arc<Barrier>>>,
}

impl Proxy {
    /// A proxy before the node that listens there.
    pub fn start(upstream: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Pass),
            upstream: Mutex::new(upstream),
            open: Mutex::new(Vec::new()),
            keeping: AtomicUsize::new(0),
            has_one: AtomicBool::new(false),
            made: AtomicUsize::new(0),
            turned_away: AtomicUsize::new(0),
            takes_none: AtomicBool::new(false),
            features: Mutex::new(Features::ALL),
            meeting: Mutex::new(None),
        });
        let accepting = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.made.fetch_add(1, Relaxed);
                if accepting.mode() != Mode::Dead && !accepting.takes_none.load(Relaxed) {
                    accepting.connect(client);
                }
            }
        });
        Proxy { state, address, limit: crate::patient() }
    }

    /// Its address, as programs write it.
    pub fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }

    /// The node as a pool is told of it: lost only when it is `silent`, hangs up or answers nonsense.
    pub fn node(&self) -> NodeAddress {
        NodeAddress { url: self.url(), address: self.address.into(), secured: None, limit: self.limit.clone() }
    }

    /// Keeps everything to itself, until it is set to another mode; pools give the node up soon.
    pub fn silence(&self) {
        self.set(Mode::Hold);
        self.limit.set(SILENCE);
    }

    /// From now on, answers are treated so.
    pub fn set(&self, mode: Mode) {
        self.limit.set(crate::HANG);
        self.state.has_one.store(false, Relaxed);
        let before = std::mem::replace(&mut *self.state.mode.lock().unwrap(), mode);
        // An answer that was sent twice may lie on a connection that nobody uses for now, and would be a bad day of its own later.
        if mode == Mode::Dead || before == Mode::Twice {
            self.hang_up();
        }
    }

    /// Waits until so many messages are kept back at a time.
    #[track_caller]
    pub fn until_keeping(&self, messages: usize) {
        crate::wait_until("messages are kept", || self.keeping() >= messages);
    }

    /// Messages that are kept back now.
    pub fn keeping(&self) -> usize {
        self.state.keeping.load(Relaxed)
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.state.made.load(Relaxed)
    }

    /// The next `connections` are told that the node has too many.
    pub fn turn_away(&self, connections: usize) {
        self.state.turned_away.store(connections, Relaxed);
    }

    /// Connections that are made from now on are closed at once, as by a node whose threads are used up; those that there are go on.
    pub fn take_none(&self) {
        self.state.takes_none.store(true, Relaxed);
    }

    /// Connections that are made from now on are as with a node that has no other features than these.
    pub fn limit_features(&self, features: Features) {
        *self.state.features.lock().unwrap() = features;
        self.hang_up();
    }

    /// Each of `proxies` keeps its next answer with data until all of them have one.
    pub fn meet<'a>(proxies: impl Iterator<Item = &'a Proxy>) {
        let proxies: Vec<&Proxy> = proxies.collect();
        let barrier = Arc::new(Barrier::new(proxies.len()));
        for proxy in proxies {
            *proxy.state.meeting.lock().unwrap() = Some(barrier.clone());
        }
    }

    /// From now on, another node stands behind it.
    pub fn replace(&self, upstream: SocketAddr) {
        *self.state.upstream.lock().unwrap() = upstream;
        self.hang_up();
    }

    fn hang_up(&self) {
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::Dead);
    }
}

/// The addresses of the ranges of each read that is under way, in their order.
type Reads = Arc<Mutex<VecDeque<Vec<(u64, usize)>>>>;

impl State {
    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    fn connect(self: &Arc<State>, client: TcpStream) {
        let upstream = *self.upstream.lock().unwrap();
        let Ok(node) = TcpStream::connect(upstream) else { return };
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        self.open.lock().unwrap().extend([clone(&client), clone(&node)]);
        for stream in [&client, &node] {
            stream.set_nodelay(true).expect("an option");
        }
        let reads = Reads::default();
        let (state, from, to, seen) = (self.clone(), clone(&client), clone(&node), reads.clone());
        let end = clone(&node);
        thread::spawn(move || {
            drop(state.requests(from, to, &seen));
            // The client has hung up.
            let _ = end.shutdown(Shutdown::Both);
        });
        let state = self.clone();
        thread::spawn(move || {
            let _ = state.answers(&node, &client, &reads);
            for stream in [node, client] {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    /// Keeps a message for as long as the mode says; `is_data`: it is an answer with data.
    fn keep(&self, is_data: bool) {
        let (mut kept, mut is_the_one) = (false, false);
        loop {
            let keeps = match self.mode() {
                Mode::Hold => true,
                Mode::HoldData => is_data,
                Mode::HoldOne => {
                    is_the_one = is_the_one || is_data && !self.has_one.swap(true, Relaxed);
                    is_the_one
                }
                _ => false,
            };
            if keeps != kept {
                kept = keeps;
                if keeps {
                    self.keeping.fetch_add(1, Relaxed)
                } else {
                    self.keeping.fetch_sub(1, Relaxed)
                };
            }
            if !keeps {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn requests(&self, mut from: TcpStream, mut to: TcpStream, reads: &Reads) -> io::Result<()> {
        let mut hello = [0; HELLO_BYTES];
        from.read_exact(&mut hello)?;
        self.keep(false);
        let hello = Hello::decode(&hello).expect("the client's");
        let features = hello.features.common(*self.features.lock().unwrap());
        to.write_all(&Hello { features, ..hello }.encode())?;
        loop {
            let Message { header, mut bytes, .. } = Message::read(&mut from)?;
            let (header, control) = Header::decode_whole(&bytes[..HEADER_BYTES + header.control_bytes]).expect("ours");
            if let Ok(Request::Read { ranges }) = Request::decode(&header, control) {
                reads
                    .lock()
                    .unwrap()
                    .push_back(ranges.iter().map(|range| (range.address, range.bytes as usize)).collect());
            }
            let (is_patch, middle) = (header.kind == Kind::Patch, bytes.len() - header.data_bytes / 2);
            self.keep(false);
            match self.mode() {
                Mode::CutPatch if is_patch => return to.write_all(&bytes[..middle]),
                Mode::FlipPatch if is_patch => bytes[middle] ^= 4,
                _ => {}
            }
            to.write_all(&bytes)?;
        }
    }

    fn answers(&self, mut from: &TcpStream, mut to: &TcpStream, reads: &Reads) -> io::Result<()> {
        let mut welcome = [0; WELCOME_BYTES];
        from.read_exact(&mut welcome)?;
        self.keep(false);
        if self.turned_away.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            let welcome = Welcome::decode(&welcome).expect("the node's");
            return to.write_all(&Welcome { outcome: Outcome::Busy, ..welcome }.encode());
        }
        to.write_all(&welcome)?;
        let mut before: Option<Vec<u8>> = None;
        loop {
            let mut message = Message::read(&mut from)?;
            self.keep(message.header.kind == Kind::Data);
            let mode = self.mode();
            if mode == Mode::Slow {
                thread::sleep(Duration::from_millis(100));
            }
            if message.header.kind == Kind::Data {
                let meeting = self.meeting.lock().unwrap().take();
                if let Some(barrier) = meeting {
                    barrier.wait();
                }
                let ranges = reads.lock().unwrap().pop_front().expect("a read that was asked");
                let data = message.data().to_vec();
                match mode {
                    Mode::Flip => message.flip(),
                    Mode::FlipOne if !self.has_one.swap(true, Relaxed) => message.flip(),
                    Mode::FlipLast if ranges.len() > 1 => *message.data().last_mut().expect("a page") ^= 4,
                    Mode::Lie => {
                        message.flip();
                        message.reseal(&ranges);
                    }
                    Mode::Other => {
                        if let Some(other) = before.filter(|other| other.len() == data.len()) {
                            message.data().copy_from_slice(&other);
                        }
                    }
                    Mode::Twice => to.write_all(&message.bytes)?,
                    Mode::Cut => {
                        to.write_all(&message.bytes[..message.bytes.len() / 2])?;
                        return Ok(());
                    }
                    _ => {}
                }
                before = Some(data);
            }
            to.write_all(&message.bytes)?;
        }
    }
}

/// A whole message.
struct Message {
    header: Header,
    bytes: Vec<u8>,
}

impl Message {
    fn read(from: &mut impl Read) -> io::Result<Message> {
        let mut bytes = vec![0; HEADER_BYTES];
        from.read_exact(&mut bytes)?;
        let header = Header::decode(bytes.first_chunk().expect("as long")).expect("a header");
        bytes.resize(HEADER_BYTES + header.control_bytes + header.data_bytes, 0);
        from.read_exact(&mut bytes[HEADER_BYTES..])?;
        Ok(Message { header, bytes })
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.bytes[HEADER_BYTES + self.header.control_bytes..]
    }

    /// Flips a bit of the data, which may be short.
    fn flip(&mut self) {
        let data = self.data();
        let at = 100.min(data.len() - 1);
        data[at] ^= 4;
    }

    /// Makes the checksums those of the data.
    fn reseal(&mut self, ranges: &[(u64, usize)]) {
        let data = self.data().to_vec();
        let mut rest = &data[..];
        let sum = |(address, bytes): &(u64, usize)| {
            let (piece, behind) = rest.split_at(*bytes);
            rest = behind;
            checksum(*address, piece)
        };
        let sums: Vec<u64> = ranges.iter().map(sum).collect();
        Reply::data(&mut self.bytes, self.header.number, &sums, data.len());
        self.bytes.extend_from_slice(&data);
    }
}
