//! The node's side.

use crate::files::{CredentialError, Reader, Sources};
use crate::pinned::Pinned;
use crate::reloaded::{Look, Reloaded};
use crate::shared_key::Pairs;
use crate::validity::{Certificate, Shown};
use rustls::pki_types::CertificateDer;
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
};
use rustls::{Error, ServerConfig, ServerConnection};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a node shows to clients, what it demands of them, and who of them may drain and resize it: one for all holders
/// of a clone.
#[derive(Clone, Debug)]
pub struct NodeCredentials(Arc<Reloaded<NodeNow>>);

/// What is in use. A connection goes on with what it began with.
pub struct NodeNow {
    config: Arc<ServerConfig>,
    /// `None`: everybody, because all have the same key.
    operators: Option<HashSet<ClientKey>>,
    shown: Shown,
}

/// The public key of a client's certificate, of which the client has proved that it has the secret one. A certificate that is renewed for the
/// same key stays the same client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientKey(Vec<u8>);

impl ClientKey {
    fn of(certificate: &CertificateDer<'_>) -> Result<ClientKey, Error> {
        ParsedCertificate::try_from(certificate).map(|parsed| ClientKey(parsed.subject_public_key_info().to_vec()))
    }

    /// SHA-256 of the public key in DER, in hexadecimal digits: what
    /// `openssl x509 -pubkey -noout -in me.pem | openssl pkey -pubin -outform der | sha256sum` shows.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.0);
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl NodeCredentials {
    /// Reads the files. Those whose certificates are in the PEM file `operators` may drain and resize the node, too, and not only who has
    /// the node's own key.
    ///
    /// # Errors
    /// Which file cannot be used, and why; operators, and no certificates to tell clients by.
    pub fn read(sources: &Sources, operators: Option<&Path>) -> Result<NodeCredentials, CredentialError> {
        let (of, operators) = (sources.clone(), operators.map(PathBuf::from));
        let paths = sources.paths().into_iter().chain(operators.clone()).collect();
        let reloaded = Reloaded::new(paths, move |reader| NodeNow::read(reader, &of, operators.as_deref()))?;
        Ok(NodeCredentials(Arc::new(reloaded)))
    }

    /// See `Reloaded::look`.
    pub fn look(&self, every: Duration) -> Look {
        self.0.look(every)
    }

    /// See `Reloaded::again`.
    pub fn again(&self) -> Look {
        self.0.again()
    }

    /// What is in use.
    pub fn now(&self) -> Arc<NodeNow> {
        self.0.now()
    }

    /// The certificates in use.
    pub fn certificates(&self) -> Vec<Certificate> {
        self.0.now().shown.certificates()
    }
}

impl NodeNow {
    fn read(reader: &mut Reader, sources: &Sources, named: Option<&Path>) -> Result<NodeNow, CredentialError> {
        let config = ServerConfig::builder_with_provider(crate::provider());
        let config = config.with_protocol_versions(&crate::VERSIONS).expect("the provider has suites of TLS 1.3");
        let (mut operators, mut shown) = (None, Shown::default());
        let mut config = match sources {
            Sources::Certificates { own, ca } => {
                let (chain, key) = reader.own(own)?;
                shown.add(false, &own.0, &chain);
                let unread = |error| CredentialError::content(&own.0, error);
                operators = Some(HashSet::from([ClientKey::of(&chain[0]).map_err(unread)?]));
                let roots = reader.roots(ca, &mut shown)?;
                let clients = WebPkiClientVerifier::builder_with_provider(roots, crate::provider());
                let no_ca = |error| CredentialError::content(ca, format!("this is no CA: {error}"));
                let config = config.with_client_cert_verifier(clients.build().map_err(no_ca)?);
                config.with_single_cert(chain, key).map_err(|error| CredentialError::pair(own, error))?
            }
            Sources::SharedKey(path) => {
                let Pairs { node: own, client } = Pairs::read(reader, path)?;
                let config = config.with_client_cert_verifier(Arc::new(Pinned::new(&client.cert[0])));
                config.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)))
            }
        };
        if let Some(path) = named {
            let operators = operators.as_mut().ok_or(CredentialError::NoOperators)?;
            for certificate in reader.certificates(path)? {
                operators.insert(ClientKey::of(&certificate).map_err(|error| CredentialError::content(path, error))?);
            }
        }
        // Nothing is resumed.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(NodeNow { config: Arc::new(config), operators, shown })
    }

    /// The key of the client of a connection whose handshake is done; `None`: a client with the shared key.
    pub fn client(&self, connection: &ServerConnection) -> Option<ClientKey> {
        self.operators.as_ref()?;
        connection.peer_certificates()?.first().and_then(|certificate| ClientKey::of(certificate).ok())
    }

    /// Whether a client may drain and resize the node.
    pub fn may_operate(&self, client: Option<&ClientKey>) -> bool {
        self.operators.as_ref().is_none_or(|operators| client.is_some_and(|client| operators.contains(client)))
    }

    /// A connection that a client has made.
    ///
    /// # Errors
    /// What the library says.
    pub fn begin(&self) -> Result<ServerConnection, Error> {
        ServerConnection::new(self.config.clone())
    }
}
