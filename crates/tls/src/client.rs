//! The program's side.

use crate::files::{self, CredentialError, Sources};
use crate::pinned::Pinned;
use crate::shared_key::Pairs;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error};
use std::sync::Arc;

/// What a program shows to nodes, and what it demands of them.
#[derive(Clone, Debug)]
pub struct ClientCredentials(Arc<ClientConfig>);

impl ClientCredentials {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(sources: &Sources) -> Result<ClientCredentials, CredentialError> {
        let config = ClientConfig::builder_with_provider(crate::provider());
        let config = config.with_protocol_versions(&crate::VERSIONS).expect("the provider has suites of TLS 1.3");
        let mut config = match sources {
            Sources::Certificates { own, ca } => {
                let (chain, key) = files::own(own)?;
                let config = config.with_root_certificates(files::roots(ca)?);
                config.with_client_auth_cert(chain, key).map_err(|error| CredentialError::content(&own.1, error))?
            }
            Sources::SharedKey(path) => {
                let Pairs { node, client: own } = Pairs::read(path)?;
                let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Pinned::new(&node.cert[0])));
                config.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)))
            }
        };
        config.resumption = Resumption::disabled();
        Ok(ClientCredentials(Arc::new(config)))
    }

    /// A connection to the node that was named `name`: a DNS name or an address, which its certificate must be for.
    ///
    /// # Errors
    /// The name cannot be in a certificate.
    pub fn begin(&self, name: &str) -> Result<ClientConnection, Error> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::General(format!("'{name}' is no name of a host")))?;
        let mut connection = ClientConnection::new(self.0.clone(), name)?;
        // What is sent is bounded by the protocol's messages.
        connection.set_buffer_limit(None);
        Ok(connection)
    }
}
