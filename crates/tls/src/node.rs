//! The node's side.

use crate::files::{self, CredentialError, Sources};
use crate::pinned::Pinned;
use crate::shared_key::Pairs;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, ServerConfig, ServerConnection};
use std::sync::Arc;

/// What a node shows to clients, and what it demands of them.
#[derive(Clone, Debug)]
pub struct NodeCredentials(Arc<ServerConfig>);

impl NodeCredentials {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(sources: &Sources) -> Result<NodeCredentials, CredentialError> {
        let config = ServerConfig::builder_with_provider(crate::provider());
        let config = config.with_protocol_versions(&crate::VERSIONS).expect("the provider has suites of TLS 1.3");
        let mut config = match sources {
            Sources::Certificates { own, ca } => {
                let (chain, key) = files::own(own)?;
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
        Ok(NodeCredentials(Arc::new(config)))
    }

    /// A connection that a client has made.
    ///
    /// # Errors
    /// What the library says.
    pub fn begin(&self) -> Result<ServerConnection, Error> {
        ServerConnection::new(self.0.clone())
    }
}
