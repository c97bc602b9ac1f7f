//! The program's side.

use crate::files::{CredentialError, Hiding, OPEN, Reader, Sources};
use crate::pinned::Pinned;
use crate::reloaded::{Look, Reloaded};
use crate::shared_key::Pairs;
use crate::validity::{Certificate, Shown};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error};
use std::sync::Arc;
use std::time::Duration;

/// What a program shows to nodes, and what it demands of them: one for all holders of a clone.
#[derive(Clone, Debug)]
pub struct ClientCredentials(Arc<Reloaded<ClientNow>>);

/// Of the same files.
impl PartialEq for ClientCredentials {
    fn eq(&self, other: &ClientCredentials) -> bool {
        self.0.paths() == other.0.paths()
    }
}

impl Eq for ClientCredentials {}

/// What is in use.
struct ClientNow {
    config: Arc<ClientConfig>,
    shown: Shown,
}

impl ClientNow {
    fn read(reader: &mut Reader, sources: &Sources) -> Result<ClientNow, CredentialError> {
        let config = ClientConfig::builder_with_provider(crate::provider());
        let config = config.with_protocol_versions(&crate::VERSIONS).expect("the provider has suites of TLS 1.3");
        let mut shown = Shown::default();
        let mut config = match sources {
            Sources::Certificates { own, ca } => {
                let (chain, key) = reader.own(own)?;
                shown.add(false, &own.0, &chain);
                let config = config.with_root_certificates(reader.roots(ca, &mut shown)?);
                config.with_client_auth_cert(chain, key).map_err(|error| CredentialError::pair(own, error))?
            }
            Sources::SharedKey(path) => {
                let Pairs { node, client: own } = Pairs::read(reader, path)?;
                let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Pinned::new(&node.cert[0])));
                config.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)))
            }
        };
        config.resumption = Resumption::disabled();
        Ok(ClientNow { config: Arc::new(config), shown })
    }
}

impl ClientCredentials {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(sources: &Sources) -> Result<ClientCredentials, CredentialError> {
        ClientCredentials::read_hidden(sources, OPEN)
    }

    /// As `read`, in a process that closes descriptors which it does not know.
    ///
    /// # Errors
    /// As for `read`.
    pub fn read_hidden(sources: &Sources, hiding: Hiding) -> Result<ClientCredentials, CredentialError> {
        let of = sources.clone();
        let reloaded = Reloaded::hidden(sources.paths(), hiding, move |reader| ClientNow::read(reader, &of))?;
        Ok(ClientCredentials(Arc::new(reloaded)))
    }

    /// See `Reloaded::look`.
    pub fn look(&self, every: Duration) -> Look {
        self.0.look(every)
    }

    /// See `Reloaded::again`.
    pub fn again(&self) -> Look {
        self.0.again()
    }

    /// The certificates in use.
    pub fn certificates(&self) -> Vec<Certificate> {
        self.0.now().shown.certificates()
    }

    /// A connection to the node that was named `name`: a DNS name or an address, which its certificate must be for.
    ///
    /// # Errors
    /// The name cannot be in a certificate.
    pub fn begin(&self, name: &str) -> Result<ClientConnection, Error> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::General(format!("'{name}' is no name of a host")))?;
        let mut connection = ClientConnection::new(self.0.now().config.clone(), name)?;
        // What is sent is bounded by the protocol's messages.
        connection.set_buffer_limit(None);
        Ok(connection)
    }
}
