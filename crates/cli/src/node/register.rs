//! A node's place in a pool that is kept in etcd.

use super::{NodeError, ServeArgs};
use hinterland_etcd::{Member, Pool, Record, Registration, SESSIONS_MAX, SessionRecord, Usage};
use hinterland_node::{Listening, Node};
use hinterland_wire::{Directory, Endpoint};
use std::sync::Arc;

/// Where a node is to be listed, and as what.
pub struct PoolEntry {
    pool: Pool,
    /// `None`: as what it listens on.
    advertised: Option<Endpoint>,
}

impl PoolEntry {
    /// What the flags say, if they do; `listen` is where the node is to listen.
    ///
    /// # Errors
    /// Programs could not find the node so; a URL cannot be read.
    pub fn of(args: &ServeArgs, listen: &Endpoint) -> Result<Option<PoolEntry>, NodeError> {
        let Some(directory) = &args.register else { return Ok(None) };
        let directory: Directory = directory.parse()?;
        let advertised = args.advertise.as_ref().map(|url| url.parse::<Endpoint>()).transpose()?;
        check(listen, advertised.as_ref()).map_err(|(flag, why)| NodeError::Flag { flag, why })?;
        let pool = Pool::new(&directory, args.identity().sources()?.as_ref())?;
        Ok(Some(PoolEntry { pool, advertised }))
    }

    /// Lists the node from now on.
    pub fn take(self, listening: &Listening) -> Result<Registration, NodeError> {
        let (node, url) =
            (Arc::clone(listening.node()), self.advertised.unwrap_or_else(|| listening.endpoint()).to_string());
        Ok(Registration::begin(self.pool, move || record(&node, &url))?)
    }
}

/// Refuses what leads no program to the node: the flag, and why.
fn check(listen: &Endpoint, advertised: Option<&Endpoint>) -> Result<(), (&'static str, String)> {
    let lacks = |url: &Endpoint| url.address().is_some_and(|address| address.ip().is_unspecified());
    let is_tcp = |url: &Endpoint| matches!(url, Endpoint::Tcp { .. });
    if !is_tcp(listen) {
        return Err((
            "--register",
            format!("a pool's nodes are for programs on other machines, too; '{listen}' is none"),
        ));
    }
    match advertised {
        None if lacks(listen) => Err((
            "--register",
            format!("'{listen}' is no address at which programs find the node; give --advertise tcp://HOST:PORT"),
        )),
        Some(advertised) if lacks(advertised) || !is_tcp(advertised) => Err((
            "--advertise",
            format!("'{advertised}' is no address at which programs find the node; write tcp://HOST:PORT"),
        )),
        _ => Ok(()),
    }
}

fn record(node: &Node, url: &str) -> Record {
    let figures = node.figures();
    let sessions = node.largest_sessions(SESSIONS_MAX).into_iter();
    Record {
        member: Member {
            node: url.to_owned(),
            capacity_bytes: figures.capacity_bytes,
            slab_bytes: figures.slab_bytes,
            draining: figures.draining != 0,
        },
        usage: Usage {
            used_bytes: figures.used_bytes,
            sessions: sessions.map(|session| SessionRecord { name: session.name, slabs: session.slabs }).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_nobody_to_the_node_is_refused() {
        let url = |text: &str| text.parse::<Endpoint>().expect(text);
        let any = url("tcp://0.0.0.0:7440");
        for (listen, advertised, flag) in [
            ("unix:/run/a.sock", None, Some("--register")),
            ("tcp://0.0.0.0:7440", None, Some("--register")),
            ("tcp://[::]:7440", None, Some("--register")),
            ("tcp://127.0.0.1:7440", Some("unix:/run/a.sock"), Some("--advertise")),
            ("tcp://0.0.0.0:7440", Some("tcp://0.0.0.0:7440"), Some("--advertise")),
            ("tcp://0.0.0.0:7440", Some("tcp://node-7:7440"), None),
            ("tcp://10.0.0.7:7440", None, None),
        ] {
            let refused = check(&url(listen), advertised.map(url).as_ref()).err().map(|(flag, _)| flag);
            assert_eq!(refused, flag, "{listen} {advertised:?}");
        }
        let (_, why) = check(&any, None).expect_err("refused");
        assert!(why.contains("--advertise"), "{why}");
    }
}
