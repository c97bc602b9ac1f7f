//! A pool, as a node sees it that belongs to it.

use crate::api::{Bytes, Grant, Lease, Nothing, Number, Put, Range, RangeAnswer, Streamed};
use crate::client::EtcdError;
use crate::pool::{NODES, Pool, USAGE};
use crate::record::{Member, Record};
use serde::Serialize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Seconds that a node is listed after its last word: who is away for a shorter time was never away.
const LEASE_SECONDS: i64 = 10;

/// A node's place in the list, kept by a thread until it is ended.
pub struct Registration {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Registration {
    /// Begins to list the node that `record` describes, and goes on while etcd comes and goes. `record` is asked anew each time.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn begin(pool: Pool, record: impl Fn() -> Record + Send + 'static) -> std::io::Result<Registration> {
        let (end, ended) = channel();
        let work = move || Listed { pool, lease: None, written: None }.keep(&record, &ended);
        let thread = Builder::new().name("registration".into()).spawn(work)?;
        Ok(Registration { end, thread })
    }

    /// Takes the node off the list.
    pub fn end(self) {
        drop(self.end);
        // It has nothing left to say that its log does not.
        let _ = self.thread.join();
    }
}

struct Listed {
    pool: Pool,
    lease: Option<Number>,
    /// As what it was listed under this lease.
    written: Option<Member>,
}

impl Listed {
    fn keep(mut self, record: &dyn Fn() -> Record, ended: &Receiver<()>) {
        let mut is_listed = None;
        loop {
            let said = self.say(&record());
            let pool = &self.pool.directory;
            match (&said, is_listed) {
                (Ok(()), Some(true)) | (Err(_), Some(false)) => {}
                (Ok(()), _) => tracing::info!(%pool, "listed in the pool"),
                (Err(error), Some(true)) => tracing::warn!(%error, %pool, "not listed any more; trying on"),
                (Err(error), None) => tracing::warn!(%error, %pool, "not listed yet; trying on"),
            }
            is_listed = Some(said.is_ok());
            match ended.recv_timeout(if said.is_ok() { self.pool.timing.word } else { self.pool.timing.retry }) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(id) = self.lease {
            // If it fails, the lease ends by itself.
            let gone: Result<Nothing, EtcdError> =
                self.pool.client.call("lease/revoke", &Lease { id, seconds: Number(0) });
            match gone {
                Ok(_) => tracing::info!(pool = %self.pool.directory, "taken off the list"),
                Err(error) => tracing::warn!(%error, "the list has the node until its lease ends"),
            }
        }
    }

    /// Keeps the lease alive, and lists what is not listed so: it may have changed, or somebody may have removed it.
    fn say(&mut self, record: &Record) -> Result<(), EtcdError> {
        if !self.is_alive()? {
            let granted: Lease = self.pool.client.call("lease/grant", &Grant { seconds: Number(LEASE_SECONDS) })?;
            (self.lease, self.written) = (Some(granted.id), None);
        }
        let Some(lease) = self.lease else { return Ok(()) };
        let Record { member, usage } = record;
        if self.put(lease, NODES, &member.node, member)? {
            if self.written.as_ref() == Some(member) {
                let pool = &self.pool.directory;
                tracing::warn!(%pool, "the node's entry in the list was removed or changed; listed again");
            }
            self.written = Some(member.clone());
        }
        self.put(lease, USAGE, &member.node, usage).map(drop)
    }

    /// Writes a value under our lease, unless it stands there; whether it did not.
    fn put(&self, lease: Number, kind: &str, node: &str, value: &impl Serialize) -> Result<bool, EtcdError> {
        let value = serde_json::to_string(value).map_err(|why| self.pool.client.not_etcd(why))?;
        let (key, value) = (Bytes::from(self.pool.key_of(kind, node).as_str()), Bytes::from(value.as_str()));
        let there: RangeAnswer = self.pool.client.call("kv/range", &Range::of_key(key.clone()))?;
        if there.kvs.iter().any(|there| there.value == value && there.lease == lease) {
            return Ok(false);
        }
        self.pool.client.call::<Nothing>("kv/put", &Put { key, value, lease })?;
        Ok(true)
    }

    fn is_alive(&self) -> Result<bool, EtcdError> {
        let Some(id) = self.lease else { return Ok(false) };
        match self.pool.client.call::<Streamed<Lease>>("lease/keepalive", &Lease { id, seconds: Number(0) }) {
            Ok(answer) => Ok(answer.result.seconds.0 > 0),
            // It knows no such lease.
            Err(EtcdError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
