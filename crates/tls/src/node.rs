//! The node's side.

use crate::files::{self, CredentialError, Sources};
use crate::pinned::Pinned;
use crate::shared_key::Pairs;
use rustls::pki_types::CertificateDer;
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
};
use rustls::{Error, ServerConfig, ServerConnection};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// What a node shows to clients, what it demands of them, and who of them may drain and resize it.
#[derive(Clone, Debug)]
pub struct NodeCredentials {
    config: Arc<ServerConfig>,
    /// `None`: everybody, because all have the same key.
    operators: Option<Arc<HashSet<ClientKey>>>,
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
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(sources: &Sources) -> Result<NodeCredentials, CredentialError> {
        let config = ServerConfig::builder_with_provider(crate::provider());
        let config = config.with_protocol_versions(&crate::VERSIONS).expect("the provider has suites of TLS 1.3");
        let mut operators = None;
        let mut config = match sources {
            Sources::Certificates { own, ca } => {
                let (chain, key) = files::own(own)?;
                let unread = |error| CredentialError::content(&own.0, error);
                operators = Some(HashSet::from([ClientKey::of(&chain[0]).map_err(unread)?]));
                let clients = WebPkiClientVerifier::builder_with_provider(files::roots(ca)?, crate::provider());
                let no_ca = |error| CredentialError::content(ca, format!("this is no CA: {error}"));
                let config = config.with_client_cert_verifier(clients.build().map_err(no_ca)?);
                config.with_single_cert(chain, key).map_err(|error| CredentialError::content(&own.1, error))?
            }
            Sources::SharedKey(path) => {
                let Pairs { node: own, client } = Pairs::read(path)?;
                let config = config.with_client_cert_verifier(Arc::new(Pinned::new(&client.cert[0])));
                config.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)))
            }
        };
        // Nothing is resumed.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(NodeCredentials { config: Arc::new(config), operators: operators.map(Arc::new) })
    }

    /// Lets those whose certificates are in this PEM file drain and resize the node, too, and not only who has the node's own key.
    ///
    /// # Errors
    /// The file cannot be used, or there are no certificates to tell clients by.
    pub fn with_operators(mut self, path: &Path) -> Result<NodeCredentials, CredentialError> {
        let operators = Arc::make_mut(self.operators.as_mut().ok_or(CredentialError::NoOperators)?);
        for certificate in files::certificates(path)? {
            operators.insert(ClientKey::of(&certificate).map_err(|error| CredentialError::content(path, error))?);
        }
        Ok(self)
    }

    /// Who is at the other end of a connection whose handshake is done; `None`: one of those who have the shared key.
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
