//! The node as a whole: its sessions, and its status.

use crate::admission::Processors;
use crate::drain::Progress;
use crate::egress::Egress;
use crate::latency::{Histogram, Latencies, Work};
use crate::quotas::{Bounds, CloneGroup, ResourceCounter, SessionPermit, Tenant};
use crate::request_buffers::RequestBuffers;
use crate::session::Session;
use crate::slab::SLAB_BYTES;
use hinterland_tls::{ClientKey, NodeCredentials};
use hinterland_units::ByteCount;
use hinterland_wire::{
    CertificateRow, Certificates, Grant, NodeRow, Recall, Refusal, SESSION_ROWS_MAX, SessionId, SessionRow, Statistics,
    Token,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant, SystemTime};

/// The longest time that a session may be kept without a lane.
const LEASE_MAX: Duration = Duration::from_secs(60);

/// A tenant has at most one of so many parts of the node's sessions and connections: others come in beside it.
const SESSIONS_PART: u64 = 4;
const LANES_PART: u64 = 2;
/// One of so many parts of the connections is for clients that open no session: operators, and those that read figures.
const SESSIONLESS_PART: u64 = 64;

/// What an operator decides.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes that the node lends at first; rounded down to whole slabs.
    pub capacity_bytes: u64,
    /// Memory that there is: a node that lends more warns.
    pub there_bytes: u64,
    /// Bytes that one tenant may keep at most, however much the node lends: all sessions of one certificate's key, or, without
    /// certificates, one session and its clones.
    pub quota_bytes: u64,
    /// Sessions at a time.
    pub sessions_max: usize,
    /// Connections at a time.
    pub lanes_max: u64,
    /// Processors that tenants share when several are busy.
    pub processors: usize,
    /// What the link to its clients carries, if they are to share it in turns.
    pub link_bits_per_second: Option<u64>,
    /// Time that a connection may take for each of its first messages. Afterwards it may be silent as long as it likes.
    pub handshake_limit: Duration,
    /// Time that a connection may take to join a session; and, where memory for requests is short, to say a whole one.
    pub request_limit: Duration,
    /// Time without a byte after which a request that has begun makes room for others, where memory for requests is short.
    pub stall_limit: Duration,
    /// Time for which it holds what a program says of the copies of its pages: some of its rounds.
    pub report_valid: Duration,
}

impl Options {
    /// `capacity_bytes` for everybody, and as many clients as a machine serves.
    pub fn new(capacity_bytes: u64) -> Options {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let handshake_limit = Duration::from_secs(5);
        Options {
            capacity_bytes,
            there_bytes: u64::MAX,
            quota_bytes: u64::MAX,
            sessions_max: 16384,
            lanes_max: 4096,
            processors,
            link_bits_per_second: None,
            handshake_limit,
            request_limit: Duration::from_secs(10),
            stall_limit: Duration::from_secs(1),
            report_valid: Duration::from_secs(5),
        }
    }
}

/// A memory node.
pub struct Node {
    options: Options,
    credentials: Option<NodeCredentials>,
    store: Arc<ResourceCounter>,
    /// Touched when sessions and lanes come and go, never for a read or write.
    sessions: RwLock<HashMap<SessionId, Arc<Session>>>,
    /// Who has proved who they are, as long as they have sessions.
    tenants: Mutex<HashMap<ClientKey, Weak<Tenant>>>,
    next_session: AtomicU64,
    draining: AtomicBool,
    progress: Mutex<Progress>,
    started: Instant,
    /// Whose the requests are that need no session.
    pub(crate) sessionless: Tenant,
    /// Connections now.
    pub(crate) lanes: AtomicU64,
    /// Requests that were refused, and connections that were ended for what they sent.
    pub(crate) refused: AtomicU64,
    /// Lanes that poll for their next request now.
    pub(crate) pollers: AtomicUsize,
    /// What busy tenants share.
    pub(crate) processors: Processors,
    pub(crate) egress: Option<Egress>,
    pub(crate) latencies: Latencies,
    /// What connections take before a request is whole.
    pub(crate) request_buffers: RequestBuffers,
    /// What sessions had done that are gone, in the order of `done`.
    ended: [AtomicU64; 5],
}

impl Node {
    /// A node without sessions.
    pub fn new(options: Options, credentials: Option<NodeCredentials>) -> Node {
        Node {
            options,
            credentials,
            store: Arc::new(ResourceCounter::new(options.capacity_bytes / SLAB_BYTES)),
            sessions: RwLock::default(),
            tenants: Mutex::default(),
            next_session: AtomicU64::new(1),
            draining: AtomicBool::new(false),
            progress: Mutex::default(),
            started: Instant::now(),
            sessionless: Tenant::new(bounds(&options)),
            lanes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            pollers: AtomicUsize::new(0),
            processors: Processors::new(options.processors),
            egress: options.link_bits_per_second.map(Egress::new),
            latencies: Latencies::default(),
            request_buffers: RequestBuffers::new(options.request_limit, options.stall_limit),
            ended: Default::default(),
        }
    }

    /// Lanes that may look for requests at a time: half of the processors are left for work.
    pub(crate) fn pollers_max(&self) -> usize {
        (self.options.processors / 2).max(1)
    }

    /// What the operator decided.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What is shown to clients and demanded of them, if anything is.
    pub fn credentials(&self) -> Option<&NodeCredentials> {
        self.credentials.as_ref()
    }

    /// Bytes of the slabs that are leased.
    pub fn used_bytes(&self) -> u64 {
        self.store.used() * SLAB_BYTES
    }

    /// Bytes that the node lends at most.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.store.bound() * SLAB_BYTES
    }

    /// Whether no more memory is leased.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Stops leasing memory, or does so again.
    pub fn drain(&self, on: bool) {
        self.draining.store(on, Relaxed);
    }

    /// Lends so much from now on. What is leased above that is asked back; until it comes it stays.
    pub fn resize(&self, capacity_bytes: u64) {
        self.store.set_bound(capacity_bytes / SLAB_BYTES);
        self.warn_of_what_is_not_there();
    }

    /// Memory that the machine does not have is leased all the same until it is used up, and then the kernel ends the node.
    pub fn warn_of_what_is_not_there(&self) {
        let (lends, there) = (self.store.bound().saturating_mul(SLAB_BYTES), self.options.there_bytes);
        if lends > there {
            let (lends, there) = (ByteCount(lends), ByteCount(there));
            tracing::warn!(%lends, %there, "more is lent than there is: the kernel would end the node; `hinterland node resize` lends less");
        }
    }

    /// What is wanted back of a session: all when the node is drained, its part when more is leased than is lent now.
    pub(crate) fn recall(&self, session: &Session) -> Recall {
        let (used, held) = (self.store.used(), session.slab_count() as u64);
        let over = used.saturating_sub(self.store.bound());
        // Rounded up, and never more than it has. (Sessions that share slabs have more together than is used.)
        let part = u64::try_from((u128::from(over) * u128::from(held)).div_ceil(u128::from(used.max(1))));
        let part = part.unwrap_or(u64::MAX).min(held).min(u64::from(u32::MAX) - 1);
        let slabs = if self.is_draining() { u32::MAX } else { u32::try_from(part).expect("below") };
        Recall { slabs, quota_bytes: Node::grant(session).quota_bytes }
    }

    /// What is lent from now on goes with its last user: the node ends.
    pub(crate) fn end(&self) {
        self.store.end();
    }

    /// Begins a session of `client`; its maker is its first lane.
    pub(crate) fn open(
        &self,
        client: Option<&ClientKey>,
        name: &str,
        quota_bytes: u64,
        lease_ms: u32,
    ) -> Result<Arc<Session>, Refusal> {
        if self.is_draining() {
            return Err(Refusal::Draining);
        }
        let wanted = if quota_bytes == 0 { u64::MAX } else { quota_bytes };
        let group = Arc::new(CloneGroup::new(self.store.clone(), self.tenant(client), wanted / SLAB_BYTES));
        let permit = self.may_serve().then(|| SessionPermit::take(&group)).flatten().ok_or(Refusal::Busy)?;
        let lease = Duration::from_millis(lease_ms.into()).min(LEASE_MAX);
        let session = Session::new(self.new_id(), new_token()?, name, permit, lease);
        if !session.join() {
            return Err(Refusal::Busy);
        }
        self.enter(session).inspect_err(|_| group.tenant.lanes.uncharge())
    }

    /// Whether connections are left beside those for clients without a session.
    fn may_serve(&self) -> bool {
        self.lanes.load(Relaxed) <= self.options.lanes_max - self.options.lanes_max / SESSIONLESS_PART
    }

    /// The accounts of a client; of one who is not known: of its own.
    fn tenant(&self, client: Option<&ClientKey>) -> Arc<Tenant> {
        let new = || Arc::new(Tenant::new(bounds(&self.options)));
        let Some(key) = client else { return new() };
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.retain(|_, tenant| tenant.strong_count() > 0);
        let known = tenants.get(key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let tenant = new();
            tenants.insert(key.clone(), Arc::downgrade(&tenant));
            tenant
        })
    }

    /// The session of this number, for a client with its token, with one more lane.
    pub(crate) fn attach(&self, id: SessionId, token: Token) -> Result<Arc<Session>, Refusal> {
        let sessions = self.sessions();
        let session = sessions.get(&id).filter(|session| same(session.token, token)).ok_or(Refusal::NoSession)?;
        // Under the lock: the reaper looks for sessions without lanes under it, too.
        if self.may_serve() && session.join() { Ok(session.clone()) } else { Err(Refusal::Busy) }
    }

    /// A second session with the content of `session`, for a lane that is still to come.
    pub(crate) fn clone_of(&self, session: &Session) -> Result<Arc<Session>, Refusal> {
        let permit = SessionPermit::take(&session.group).ok_or(Refusal::Busy)?;
        let clone = session.clone_as(self.new_id(), new_token()?, permit).map_err(|_| Refusal::NoSession)?;
        self.enter(clone)
    }

    fn enter(&self, session: Session) -> Result<Arc<Session>, Refusal> {
        let session = Arc::new(session);
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= self.options.sessions_max {
            return Err(Refusal::Busy);
        }
        sessions.insert(session.id, session.clone());
        Ok(session)
    }

    /// Forgets a session and its content.
    pub(crate) fn close(&self, id: SessionId) {
        let gone = self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(session) = gone {
            self.bury(&session);
        }
    }

    /// Forgets sessions whose lease is over.
    pub(crate) fn reap(&self, now: Instant) {
        self.watch_drain(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner), now);
        if !self.sessions().values().any(|session| session.is_over(now)) {
            return;
        }
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = sessions.extract_if(|_, session| session.is_over(now)).collect();
        drop(sessions);
        for (id, session) in gone {
            tracing::info!(session = id.0, name = session.name, slabs = session.slab_count(), "lease over");
            self.bury(&session);
        }
    }

    fn bury(&self, session: &Session) {
        // Lanes that are still there find that it is over.
        session.end();
        for (sum, count) in self.ended.iter().zip(done(session)) {
            sum.fetch_add(count, Relaxed);
        }
    }

    /// What a client is told of its session.
    pub(crate) fn grant(session: &Session) -> Grant {
        Grant {
            session: session.id,
            token: session.token,
            quota_bytes: session.group.bound() * SLAB_BYTES,
            lease_ms: u32::try_from(session.lease.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// The node's figures, sessions aside.
    pub fn figures(&self) -> NodeRow {
        let sessions = self.sessions();
        let mut sums = [0; 5];
        for (index, sum) in sums.iter_mut().enumerate() {
            let living: u64 = sessions.values().map(|session| done(session)[index]).sum();
            *sum = living + self.ended[index].load(Relaxed);
        }
        let [reads, read_bytes, writes, written_bytes, copied_slabs] = sums;
        NodeRow {
            capacity_bytes: self.store.bound() * SLAB_BYTES,
            used_bytes: self.used_bytes(),
            slab_bytes: SLAB_BYTES,
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            sessions: sessions.len() as u64,
            lanes: self.lanes.load(Relaxed),
            reads,
            read_bytes,
            writes,
            written_bytes,
            copied_slabs,
            refused: self.refused.load(Relaxed),
            draining: self.is_draining().into(),
        }
    }

    /// Memory for long requests that are not served yet: at most `BUFFERS_BYTES_MAX`.
    pub fn buffer_bytes(&self) -> u64 {
        self.request_buffers.bytes()
    }

    /// How long requests of one kind took.
    pub fn latency(&self, work: Work) -> Histogram {
        self.latencies.of(work)
    }

    /// The figures of the `bound` sessions with most slabs, the largest first.
    pub fn largest_sessions(&self, bound: usize) -> Vec<SessionStatistics> {
        let mut sessions: Vec<(usize, Arc<Session>)> =
            self.sessions().values().map(|session| (session.slab_count(), session.clone())).collect();
        sessions.sort_by_key(|(slabs, session)| (std::cmp::Reverse(*slabs), session.id));
        sessions.truncate(bound);
        sessions.iter().map(|(slabs, session)| SessionStatistics::of(session, *slabs)).collect()
    }

    /// Appends the figures of the node and of its largest sessions to a reply.
    pub(crate) fn write_statistics(&self, into: &mut Vec<u8>) {
        let sessions = self.largest_sessions(SESSION_ROWS_MAX);
        let rows: Vec<SessionRow<'_>> = sessions.iter().map(SessionStatistics::row).collect();
        Statistics::encode(into, &self.figures(), &rows);
    }

    /// Appends for how long its certificates are good to a reply.
    pub(crate) fn write_certificates(&self, into: &mut Vec<u8>) {
        let certificates = self.credentials().map(NodeCredentials::certificates).unwrap_or_default();
        let now = SystemTime::now();
        let rows = certificates.iter().map(|certificate| CertificateRow {
            is_ca: certificate.is_ca,
            left_seconds: certificate.left_seconds(now),
            subject: &certificate.subject,
        });
        Certificates::encode(into, &rows.collect::<Vec<_>>());
    }

    pub(crate) fn sessions(&self) -> RwLockReadGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_id(&self) -> SessionId {
        SessionId(self.next_session.fetch_add(1, Relaxed))
    }
}

/// What is said of one session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatistics {
    /// As its client called it.
    pub name: String,
    /// Its number.
    pub session: u64,
    /// Connections.
    pub lanes: u32,
    /// Slabs in its address space.
    pub slabs: u32,
    /// Bytes that it may keep, together with its clones, beside what other sessions of its tenant keep.
    pub quota_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl SessionStatistics {
    fn of(session: &Session, slabs: usize) -> SessionStatistics {
        SessionStatistics {
            name: session.name.clone(),
            session: session.id.0,
            lanes: session.lanes(),
            slabs: u32::try_from(slabs).unwrap_or(u32::MAX),
            quota_bytes: Node::grant(session).quota_bytes,
            read_bytes: session.counts.read_bytes.load(Relaxed),
            written_bytes: session.counts.written_bytes.load(Relaxed),
        }
    }

    fn row(&self) -> SessionRow<'_> {
        let SessionStatistics { ref name, session, lanes, slabs, quota_bytes, read_bytes, written_bytes } = *self;
        SessionRow { session, lanes, slabs, quota_bytes, read_bytes, written_bytes, name }
    }
}

/// What a tenant may have.
fn bounds(options: &Options) -> Bounds {
    Bounds {
        slabs: options.quota_bytes / SLAB_BYTES,
        sessions: (options.sessions_max as u64).div_ceil(SESSIONS_PART),
        lanes: options.lanes_max.div_ceil(LANES_PART),
    }
}

/// Reads, bytes read, writes, bytes written, slabs copied.
fn done(session: &Session) -> [u64; 5] {
    let counts = &session.counts;
    [&counts.reads, &counts.read_bytes, &counts.writes, &counts.written_bytes, &counts.copied_slabs]
        .map(|count| count.load(Relaxed))
}

fn new_token() -> Result<Token, Refusal> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| Refusal::Busy)?;
    Ok(Token(bytes))
}

/// Takes the same time wherever they differ.
fn same(a: Token, b: Token) -> bool {
    a.0.iter().zip(b.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
