//! A pool, as the launcher of a program sees it.

use crate::api::{CreateWatch, Heard, KeyValue, Number, Range, RangeAnswer, Streamed, Watch};
use crate::client::{Client, EtcdError};
use crate::record::{Member, Record, Usage};
use hinterland_tls::Sources;
use hinterland_wire::Directory;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

/// Kinds of values: who belongs to the pool, and what is used of it.
pub(crate) const NODES: &str = "nodes";
pub(crate) const USAGE: &str = "usage";
/// Bytes of what is heard of one change.
const HEARD_BYTES_MAX: u64 = 16 << 20;

/// How long is waited for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time between two words of a node: two of them may be lost before its lease ends.
    pub word: Duration,
    /// Time between two attempts of a node to be listed while etcd is away.
    pub retry: Duration,
    /// A watch on which nothing is heard for so long is made anew: the connection may be a dead one.
    pub silence: Duration,
    /// After a failure the list is read again after so long, then after twice as long each time.
    pub pause_min: Duration,
    /// The longest of these pauses.
    pub pause_max: Duration,
    /// After a change so long is waited: nodes that begin together come in one list.
    pub gathering: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            word: Duration::from_secs(3),
            retry: Duration::from_secs(1),
            silence: Duration::from_secs(30),
            pause_min: Duration::from_millis(500),
            pause_max: Duration::from_secs(8),
            gathering: Duration::from_millis(50),
        }
    }
}

/// A pool of nodes in etcd.
pub struct Pool {
    pub(crate) client: Client,
    /// Where it is.
    pub directory: Directory,
    /// The defaults, unless somebody sets others.
    pub timing: Timing,
}

/// The nodes of a pool at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// What etcd calls that time.
    revision: i64,
    /// The nodes, by their URLs.
    pub nodes: Vec<Record>,
}

impl Pool {
    /// Nothing is sent yet. `sources` are the files with which both sides of a TLS connection authenticate themselves.
    ///
    /// # Errors
    /// The files cannot be used, or are no certificates.
    pub fn new(directory: &Directory, sources: Option<&Sources>) -> Result<Pool, EtcdError> {
        Ok(Pool { client: Client::new(directory, sources)?, directory: directory.clone(), timing: Timing::default() })
    }

    /// The key of a `kind` of value for `node`; of all nodes, when that is empty.
    pub(crate) fn key_of(&self, kind: &str, node: &str) -> String {
        format!("{}{kind}/{node}", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("hinterland/{}/", self.directory.pool)
    }

    /// The nodes of now. What cannot be read is left out.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses.
    pub fn nodes(&self) -> Result<Listing, EtcdError> {
        let prefix = self.prefix();
        let answer: RangeAnswer = self.client.call("kv/range", &Range::of_prefix(&prefix))?;
        let (mut members, mut usages) = (Vec::new(), HashMap::new());
        for KeyValue { key, value, .. } in &answer.kvs {
            let key = std::str::from_utf8(&key.0).ok().and_then(|key| key.strip_prefix(&prefix)?.split_once('/'));
            match key {
                Some((NODES, _)) => members.extend(serde_json::from_slice::<Member>(&value.0)),
                Some((USAGE, node)) => {
                    usages.extend(serde_json::from_slice::<Usage>(&value.0).map(|usage| (node.to_owned(), usage)));
                }
                _ => {}
            }
        }
        let record = |member: Member| Record { usage: usages.remove(&member.node).unwrap_or_default(), member };
        Ok(Listing { revision: answer.header.revision.0, nodes: members.into_iter().map(record).collect() })
    }

    /// Waits until something may have changed since a listing.
    fn wait_for_change(&self, since: &Listing) -> Result<(), EtcdError> {
        let range = Range::of_prefix(&self.key_of(NODES, ""));
        let request = Watch { create_request: CreateWatch { range, start_revision: Number(since.revision + 1) } };
        let mut body = self.client.listen("watch", &request, self.timing.silence)?;
        let mut lines = BufReader::new(body.as_reader());
        loop {
            let mut line = Vec::new();
            match lines.by_ref().take(HEARD_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) => return Err(self.client.unreachable("the watch has ended")),
                Ok(_) => {}
                // Nothing for a long time is no error: perhaps nothing has changed.
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return Ok(()),
                Err(error) => return Err(self.client.unreachable(error)),
            }
            let heard: Streamed<Heard> = serde_json::from_slice(&line).map_err(|why| self.client.not_etcd(why))?;
            if heard.result.canceled || !heard.result.events.is_empty() {
                return Ok(());
            }
        }
    }

    /// Tells `listed` the nodes of now, after each word of one of them, and when there was none for a while, for as long as it returns true. While etcd
    /// is away the last list holds.
    pub fn follow(&self, mut listed: impl FnMut(&[Record]) -> bool) {
        let mut pause = self.timing.pause_min;
        loop {
            // After a failure, too: a server that begins anew has forgotten the revision.
            let heard = match self.nodes() {
                Ok(now) if !listed(&now.nodes) => return,
                Ok(now) => self.wait_for_change(&now),
                Err(error) => Err(error),
            };
            match heard {
                Ok(()) => {
                    pause = self.timing.pause_min;
                    std::thread::sleep(self.timing.gathering);
                }
                Err(error) => {
                    tracing::debug!(%error, "the list of nodes is read again later");
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(self.timing.pause_max);
                }
            }
        }
    }
}
