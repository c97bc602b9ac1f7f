//! Calls to an etcd cluster.

use crate::api::Failure;
use hinterland_tls::{CredentialError, LOOK_EVERY, Pem, Reader, Reloaded, Sources};
use hinterland_wire::Directory;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Time for a connection to be made.
const CONNECTING: Duration = Duration::from_secs(2);
/// Time for a call.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer: a thousand nodes with all their sessions.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No server of the cluster answers.
    #[error("etcd cannot be reached at {servers}: {why}")]
    Unreachable {
        /// Which were tried.
        servers: String,
        /// What the last of them said.
        why: String,
    },
    /// It answers that it cannot.
    #[error("etcd at {servers} refused: {message}")]
    Refused {
        /// Which were tried.
        servers: String,
        /// Its words.
        message: String,
    },
    /// It is not etcd, or of a version that is too old.
    #[error("what answers at {servers} does not speak as etcd 3.4 and later do: {why}")]
    NotEtcd {
        /// Which were tried.
        servers: String,
        /// What is wrong.
        why: String,
    },
    /// Credentials that are of no use for this.
    #[error("'{0}': etcd knows clients by certificates; give --tls CERT,KEY and --tls-ca CA instead of a --key-file")]
    NoCertificate(Directory),
    /// Certificates cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// What is in them cannot be used.
    #[error("the certificate, its key or the CA cannot be used for etcd: {0}")]
    Pem(ureq::Error),
}

/// A cluster, and how it is spoken to.
pub struct Client {
    /// With what was read last of certificates and key.
    agent: Reloaded<Agent, EtcdError>,
    servers: Vec<String>,
    scheme: &'static str,
    /// The server that answered last.
    turn: AtomicUsize,
}

impl Client {
    /// Nothing is sent yet. `sources` are the files with which both sides authenticate themselves, over TLS.
    pub fn new(directory: &Directory, sources: Option<&Sources>) -> Result<Client, EtcdError> {
        let sources = sources.filter(|_| directory.secured).cloned();
        let (paths, of) = (sources.as_ref().map(Sources::paths).unwrap_or_default(), directory.clone());
        let agent = Reloaded::new(paths, move |reader: &mut Reader| {
            let own = sources.as_ref().map(|sources| sources.pem(reader)).transpose()?.flatten();
            agent(&of, own.as_ref())
        })?;
        Ok(Client {
            agent,
            servers: directory.servers.clone(),
            scheme: if directory.secured { "https" } else { "http" },
            turn: AtomicUsize::new(0),
        })
    }

    /// Makes a call and waits for its answer.
    pub fn call<A: DeserializeOwned>(&self, path: &str, request: &impl Serialize) -> Result<A, EtcdError> {
        let mut body = self.post(path, request, Some(TIMEOUT), TIMEOUT)?;
        let answer = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(|why| self.unreachable(why))?;
        serde_json::from_slice(&answer).map_err(|why| self.not_etcd(why))
    }

    /// Begins to listen to a stream. An answer that does not come within `silence` ends it.
    pub fn listen(&self, path: &str, request: &impl Serialize, silence: Duration) -> Result<Body, EtcdError> {
        self.post(path, request, None, silence)
    }

    fn post(
        &self,
        path: &str,
        request: &impl Serialize,
        all: Option<Duration>,
        each: Duration,
    ) -> Result<Body, EtcdError> {
        let request = serde_json::to_vec(request).map_err(|why| self.not_etcd(why))?;
        let mut failed = None;
        // What cannot be used is said where the same files are for nodes and programs, too.
        let _ = self.agent.look(LOOK_EVERY);
        let agent = self.agent.now();
        for _ in 0..self.servers.len() {
            let turn = self.turn.load(Relaxed);
            let server = &self.servers[turn % self.servers.len()];
            let post = agent.post(format!("{}://{server}/v3/{path}", self.scheme)).content_type("application/json");
            let post =
                post.config().timeout_global(all).timeout_recv_response(Some(TIMEOUT)).timeout_per_read(Some(each));
            match post.build().send(&request[..]) {
                Ok(answer) if answer.status().is_success() => return Ok(answer.into_body()),
                Ok(mut answer) => {
                    let (status, text) = (answer.status(), answer.body_mut().read_to_string().unwrap_or_default());
                    failed = Some(match serde_json::from_str::<Failure>(&text) {
                        Ok(failure) => EtcdError::Refused { servers: self.shown(), message: failure.message },
                        Err(_) => self.not_etcd(format!("it answers {status}")),
                    });
                }
                Err(why) => failed = Some(self.unreachable(why)),
            }
            // The next server may be better off.
            let _ = self.turn.compare_exchange(turn, turn.wrapping_add(1), Relaxed, Relaxed);
        }
        Err(failed.unwrap_or_else(|| self.unreachable("there is no server")))
    }

    fn shown(&self) -> String {
        self.servers.join(",")
    }

    pub fn unreachable(&self, why: impl ToString) -> EtcdError {
        let why = why.to_string();
        // The client library's word for the kind of the error.
        let why = why.strip_prefix("io: ").unwrap_or(&why).to_owned();
        EtcdError::Unreachable { servers: self.shown(), why }
    }

    pub fn not_etcd(&self, why: impl ToString) -> EtcdError {
        EtcdError::NotEtcd { servers: self.shown(), why: why.to_string() }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, EtcdError> {
    let items = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(why) => Some(Err(EtcdError::Pem(why))),
    });
    items.collect()
}

/// What speaks with the servers of `directory`. `own` is what both sides authenticate themselves with, over TLS.
fn agent(directory: &Directory, own: Option<&Pem>) -> Result<Agent, EtcdError> {
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(hinterland_tls::provider());
    let tls = match own {
        _ if !directory.secured => tls,
        None => return Err(EtcdError::NoCertificate(directory.clone())),
        Some(own) => {
            let key = PrivateKey::from_pem(&own.key).map_err(EtcdError::Pem)?;
            let own_cert = ClientCert::new_with_certs(&certificates(&own.chain)?, key);
            tls.client_cert(Some(own_cert)).root_certs(RootCerts::new_with_certs(&certificates(&own.ca)?))
        }
    };
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECTING));
    Ok(config.build().new_agent())
}
