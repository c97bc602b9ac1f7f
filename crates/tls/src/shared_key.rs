//! Key pairs out of a key that both sides have.
//!
//! ```text
//! file ──HKDF-SHA256, salt "hinterland shared key 1"──┬─ info "node" ───► Ed25519 key pair of all nodes
//!                                                     └─ info "client" ─► Ed25519 key pair of all clients
//! ```
//! Two pairs, so that one side's proof cannot be replayed as the other's.

use crate::files::{CredentialError, Reader};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::Error;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

const SALT: &[u8] = b"hinterland shared key 1";
const SEED_BYTES: usize = 32;
/// What stands before the seed in the DER of an Ed25519 key (RFC 8410 §7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The side whose key pair it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Node,
    Client,
}

/// The key pairs that a key file stands for.
pub(crate) struct Pairs {
    pub(crate) node: Arc<CertifiedKey>,
    pub(crate) client: Arc<CertifiedKey>,
}

impl Pairs {
    /// Reads the file.
    pub(crate) fn read(reader: &mut Reader, path: &Path) -> Result<Pairs, CredentialError> {
        let shared = reader.shared(path)?;
        let of = |side| pair(&shared, side).map_err(|error| CredentialError::content(path, error));
        Ok(Pairs { node: of(Side::Node)?, client: of(Side::Client)? })
    }
}

/// The key pair of a side.
fn pair(shared: &[u8], side: Side) -> Result<Arc<CertifiedKey>, Error> {
    let info: &[u8] = match side {
        Side::Node => b"node",
        Side::Client => b"client",
    };
    let failed = |_| Error::General("no key can be derived".into());
    let mut der = Zeroizing::new([0; PKCS8_HEAD.len() + SEED_BYTES]);
    let (head, seed) = der.split_at_mut(PKCS8_HEAD.len());
    head.copy_from_slice(&PKCS8_HEAD);
    let key = Salt::new(HKDF_SHA256, SALT).extract(shared);
    key.expand(&[info], HKDF_SHA256).and_then(|bytes| bytes.fill(seed)).map_err(failed)?;
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(&der[..]))?;
    let public = CertificateDer::from(public(&*key)?);
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

/// A public key as it is shown: SubjectPublicKeyInfo.
fn public(key: &dyn SigningKey) -> Result<Vec<u8>, Error> {
    let public = key.public_key().ok_or_else(|| Error::General("a key without a public part".into()))?;
    Ok(public.as_ref().to_vec())
}
