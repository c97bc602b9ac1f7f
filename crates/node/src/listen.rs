//! Taking connections, and the end of the node.

use crate::connection::Connection;
use crate::lane::{self, LaneError};
use crate::node::{Node, Options};
use crate::stream::{Listener, Stream};
use hinterland_tls::NodeCredentials;
use hinterland_units::ByteCount;
use hinterland_wire::{Endpoint, EndpointError, Protection};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks at which leases are over.
const REAP_EVERY: Duration = Duration::from_millis(50);
/// Connections that are not authenticated, where credentials are required: for one more, the oldest goes.
const UNAUTHENTICATED_MAX: usize = 256;
/// Stack of a lane's thread: its buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Why a node cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The address would be open to other machines, or cannot be read.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The name stands for no address.
    #[error("'{0}' is a name; a node listens on an address, for example tcp://127.0.0.1:7440")]
    Name(String),
    /// Credentials where nobody is asked for them.
    #[error("'{0}' takes no credentials: only the same user and root can connect to it")]
    NotNeeded(Endpoint),
    /// Less than one slab.
    #[error(
        "{question}a capacity of {} is less than one slab, {slab}; give at least 2M",
        ByteCount(*.0), slab = ByteCount(crate::SLAB_BYTES), question = ByteCount(*.0).question_before(ByteCount(crate::SLAB_BYTES))
    )]
    TooSmall(u64),
    /// The system refused.
    #[error("cannot listen on {0}: {1}")]
    Listen(Endpoint, io::Error),
    /// The service manager's socket will not do.
    #[error("cannot listen on the service manager's socket: {0}")]
    Inherited(io::Error),
    /// The system refused.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// A node that takes connections.
pub struct Listening {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    endpoint: Endpoint,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    node: Arc<Node>,
    /// Connections in the middle of a handshake, by number.
    unauthenticated: Mutex<BTreeSet<u64>>,
    over: AtomicBool,
    /// Connections, to end them with.
    streams: Mutex<HashMap<u64, Stream>>,
}

impl Shared {
    /// A connection begins, or has ended, its handshake.
    fn proves(&self, number: u64, begins: bool) {
        let mut unauthenticated = self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner);
        if !begins {
            unauthenticated.remove(&number);
            return;
        }
        unauthenticated.insert(number);
        let oldest = if unauthenticated.len() > UNAUTHENTICATED_MAX { unauthenticated.pop_first() } else { None };
        drop(unauthenticated);
        if let Some(oldest) = oldest {
            self.end(oldest);
        }
    }

    /// Ends a connection; its lane notices.
    fn end(&self, number: u64) {
        let stream = self.streams().get(&number).and_then(|stream| stream.try_clone().ok());
        if let Some(stream) = stream {
            let _ = stream.shut_down();
        }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Stream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listening {
    /// Starts a node for every user of this machine, on a loopback address, where port 0 lets the system choose, or for the same
    /// user on a UNIX socket.
    ///
    /// # Errors
    /// The address, or the system.
    pub fn start(endpoint: &Endpoint, options: Options) -> Result<Listening, NodeError> {
        Listening::start_with(endpoint, options, None, true)
    }

    /// Starts a node; with credentials for those alone who have some too, and on any address. `insecure_loopback`: without
    /// credentials it may listen on a loopback address, for every user of this machine.
    ///
    /// # Errors
    /// The address, or the system.
    pub fn start_with(
        endpoint: &Endpoint,
        options: Options,
        credentials: Option<NodeCredentials>,
        insecure_loopback: bool,
    ) -> Result<Listening, NodeError> {
        endpoint.check_reach(Protection::of(credentials.is_some(), insecure_loopback))?;
        if credentials.is_some() && matches!(endpoint, Endpoint::Unix { .. }) {
            return Err(NodeError::NotNeeded(endpoint.clone()));
        }
        let refused = |error| NodeError::Listen(endpoint.clone(), error);
        check_capacity(&options)?;
        let listener = Listener::bind(endpoint).map_err(refused)?;
        let listener = listener.ok_or_else(|| NodeError::Name(endpoint.to_string()))?;
        let endpoint = listener.endpoint().map_err(refused)?;
        Listening::take(listener, endpoint, options, credentials)
    }

    /// Starts a node on a socket on which a service manager listens for it. By a UNIX socket whoever may open its file is let in.
    ///
    /// # Errors
    /// The socket, or the system.
    pub fn start_inherited(
        socket: OwnedFd,
        options: Options,
        credentials: Option<NodeCredentials>,
        insecure_loopback: bool,
    ) -> Result<Listening, NodeError> {
        check_capacity(&options)?;
        let listener = Listener::inherited(socket).map_err(NodeError::Inherited)?;
        let endpoint = listener.endpoint().map_err(NodeError::Inherited)?;
        endpoint.check_reach(Protection::of(credentials.is_some(), insecure_loopback))?;
        Listening::take(listener, endpoint, options, credentials)
    }

    fn take(
        listener: Listener,
        endpoint: Endpoint,
        options: Options,
        credentials: Option<NodeCredentials>,
    ) -> Result<Listening, NodeError> {
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            node: Arc::new(Node::new(options, credentials)),
            unauthenticated: Mutex::default(),
            over: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let (taker, entry, reaper) = (shared.clone(), listener.clone(), shared.clone());
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(work).map_err(NodeError::Thread)
        };
        let threads = vec![
            spawn("accept", Box::new(move || accept(&taker, &entry)))?,
            spawn("leases", Box::new(move || watch(&reaper)))?,
        ];
        Ok(Listening { shared, listener, endpoint, threads })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.shared.node
    }

    /// Takes no more connections, ends those that there are, and returns when nobody works any more.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        /// Lanes notice at once; one that copies a slab needs a moment.
        const TIMEOUT: Duration = Duration::from_secs(2);
        self.shared.over.store(true, Relaxed);
        self.shared.node.end();
        self.shared.node.request_buffers.end();
        self.listener.shut_down();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for stream in self.shared.streams().values() {
            let _ = stream.shut_down();
        }
        let begun = Instant::now();
        while self.shared.node.lanes.load(Relaxed) > 0 && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.end();
        }
    }
}

/// Refuses a capacity of less than a slab.
fn check_capacity(options: &Options) -> Result<(), NodeError> {
    if options.capacity_bytes < crate::SLAB_BYTES { Err(NodeError::TooSmall(options.capacity_bytes)) } else { Ok(()) }
}

fn accept(shared: &Arc<Shared>, listener: &Listener) {
    for number in 0.. {
        let taken = listener.accept();
        if shared.over.load(Relaxed) {
            return;
        }
        let begun = taken.and_then(|stream| begin(shared, number, stream));
        if let Err(error) = begun {
            // Descriptors or threads may be used up: others end meanwhile.
            tracing::warn!(%error, "a connection was not taken");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Starts the thread of a connection.
fn begin(shared: &Arc<Shared>, number: u64, stream: Stream) -> io::Result<()> {
    let (shared, peer) = (shared.clone(), stream.peer());
    shared.streams().insert(number, stream.try_clone()?);
    if shared.node.credentials().is_some() {
        shared.proves(number, true);
    }
    if let Some(oldest) = shared.node.request_buffers.begins(number) {
        shared.end(oldest);
    }
    let owner = shared.clone();
    let work = move || {
        let begun = Connection::begin(stream, shared.node.credentials(), shared.node.options().handshake_limit)
            .map_err(LaneError::from);
        shared.proves(number, false);
        // A client that is not authenticated never takes the place of a lane.
        let others = shared.node.lanes.fetch_add(1, Relaxed);
        let busy = others >= shared.node.options().lanes_max;
        if let Ok(connection) = &begun {
            tracing::debug!(peer = %connection.peer(), "connection");
        }
        let result = begun.and_then(|connection| lane::serve(&shared.node, number, connection, busy));
        match result {
            Ok(()) => tracing::debug!(%peer, "connection over"),
            // Also what an ordinary exit looks like, with an answer under way.
            Err(LaneError::Connection(error)) => tracing::debug!(%peer, %error, "connection lost"),
            Err(error) => tracing::warn!(%peer, %error, "connection ended"),
        }
        shared.streams().remove(&number);
        shared.node.request_buffers.settle(number);
        shared.node.lanes.fetch_sub(1, Relaxed);
    };
    let spawned = Builder::new().name("lane".into()).stack_size(STACK_BYTES).spawn(work);
    if spawned.is_err() {
        owner.streams().remove(&number);
        owner.proves(number, false);
        owner.node.request_buffers.settle(number);
    }
    spawned.map(drop)
}

fn watch(shared: &Shared) {
    while !shared.over.load(Relaxed) {
        std::thread::sleep(REAP_EVERY);
        shared.node.reap(Instant::now());
        for number in shared.node.request_buffers.overdue() {
            tracing::debug!(connection = number, "no whole request in time");
            shared.end(number);
        }
    }
}
