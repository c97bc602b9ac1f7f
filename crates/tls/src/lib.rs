//! Authentication: TLS 1.3 in which both sides authenticate themselves, by certificates or by a shared key.
//!
//! ```text
//! --tls CERT,KEY --tls-ca CA   each side shows its certificate; the other demands that the CA has signed it (nodes: for their name)
//! --key-file FILE              two Ed25519 key pairs are derived from the file, one for nodes and one for clients;
//!                              each side shows its public key, and the other demands just that one (RFC 7250)
//! ```
//! Both are the same transport with other verifiers. No session is resumed, so every connection is authenticated anew,
//! with the files' content at that time (`reloaded.rs`). This crate computes and reads files; it uses no sockets.

#![forbid(unsafe_code)]

mod client;
mod files;
mod messages;
mod node;
mod pinned;
mod reloaded;
mod shared_key;
mod validity;

pub use client::ClientCredentials;
pub use files::{CredentialError, Hiding, Pem, Reader, Sources};
pub use messages::explain;
pub use node::{ClientKey, NodeCredentials, NodeNow};
pub use reloaded::{LOOK_EVERY, Look, Reloaded};
pub use rustls::{ClientConnection, ServerConnection};
pub use validity::{Calendar, Certificate, Side, ValidityState};

use rustls::crypto::{CryptoProvider, ring};
use std::sync::Arc;

/// The one version.
static VERSIONS: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

/// The library that computes.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
