//! What the user names: files with certificates and keys.

use crate::validity::Shown;
use ring::digest::{Context, SHA256};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The shortest key that both sides may share: as long as what is derived of it.
const SHARED_BYTES_MIN: usize = 32;
/// More is no key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Paths of credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sources {
    /// Certificates.
    Certificates {
        /// Our own, with those that lead to its CA; and its key. PEM.
        own: (PathBuf, PathBuf),
        /// The CA that signs the other side's. PEM.
        ca: PathBuf,
    },
    /// A key that both sides have.
    SharedKey(PathBuf),
}

/// Certificates as they stand in their files, for libraries that read them themselves.
pub struct Pem {
    /// Our own, with those that lead to its CA.
    pub chain: Zeroizing<Vec<u8>>,
    /// Its key.
    pub key: Zeroizing<Vec<u8>>,
    /// The CA of the other side.
    pub ca: Zeroizing<Vec<u8>>,
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// Which kind?
    #[error("--tls and --key-file are two ways to the same end; give one of them")]
    Both,
    /// One without the other.
    #[error("--tls CERT,KEY is this side's certificate, and --tls-ca CA has signed the other side's; give both")]
    Half,
    /// All have the same key.
    #[error(
        "--operators names certificates, so it goes with --tls and --tls-ca; with --key-file every client is an operator"
    )]
    NoOperators,
    /// Not two paths.
    #[error("'{0}' is not CERT,KEY; write the paths of two PEM files with a comma between them")]
    Pair(String),
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A secret that others can read.
    #[error("{shown}: others can read this secret; chmod 600 {shown}", shown = .0.display())]
    Open(PathBuf),
    /// Too short.
    #[error(
        "{shown}: {bytes} bytes are too few for a key; make one with: (umask 077; head -c 32 /dev/urandom > {shown})",
        shown = path.display()
    )]
    Short {
        /// Which.
        path: PathBuf,
        /// How many there are.
        bytes: usize,
    },
    /// Not what it should be.
    #[error("{}: {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl CredentialError {
    /// What is wrong with our own certificate and its key.
    pub(crate) fn pair((certificate, key): &(PathBuf, PathBuf), error: rustls::Error) -> CredentialError {
        match error {
            rustls::Error::InconsistentKeys(_) => {
                CredentialError::content(key, format!("this is not the key of {}", certificate.display()))
            }
            error => CredentialError::content(key, error),
        }
    }

    /// What is wrong with the content of a file.
    pub(crate) fn content(path: &Path, what: impl ToString) -> CredentialError {
        CredentialError::Content { path: path.to_owned(), what: what.to_string() }
    }
}

impl Sources {
    /// The content of the certificates' files, which fit together; `None` where there are none.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn pem(&self, reader: &mut Reader) -> Result<Option<Pem>, CredentialError> {
        let Sources::Certificates { own, ca: ca_path } = self else { return Ok(None) };
        let (chain, key, ca) = (reader.read(&own.0, false)?, reader.read(&own.1, true)?, reader.read(ca_path, false)?);
        let pair =
            CertifiedKey::from_der(certificates(&own.0, &chain)?, private_key(&own.1, &key)?, &crate::provider());
        pair.map_err(|error| CredentialError::pair(own, error))?;
        certificates(ca_path, &ca)?;
        Ok(Some(Pem { chain, key, ca }))
    }

    /// The files.
    pub fn paths(&self) -> Vec<PathBuf> {
        match self {
            Sources::Certificates { own: (certificate, key), ca } => vec![certificate.clone(), key.clone(), ca.clone()],
            Sources::SharedKey(path) => vec![path.clone()],
        }
    }

    /// What the values of `--tls`, `--tls-ca` and `--key-file` name; an empty one is not given.
    ///
    /// # Errors
    /// They do not fit together.
    pub fn new(tls: &str, ca: &str, key_file: &str) -> Result<Option<Sources>, CredentialError> {
        match (tls, ca, key_file) {
            ("", "", "") => Ok(None),
            ("", "", path) => Ok(Some(Sources::SharedKey(path.into()))),
            (own, ca, "") if !own.is_empty() && !ca.is_empty() => {
                let pair = own.split_once(',').filter(|(certificate, key)| !certificate.is_empty() && !key.is_empty());
                let (certificate, key) = pair.ok_or_else(|| CredentialError::Pair(own.to_owned()))?;
                Ok(Some(Sources::Certificates { own: (certificate.into(), key.into()), ca: ca.into() }))
            }
            (_, _, "") => Err(CredentialError::Half),
            _ => Err(CredentialError::Both),
        }
    }
}

/// The bits of a secret file's mode that let others read it. systemd hands credentials out with an access control list whose mask stands
/// where the group's bits are; their directory is closed to everybody else (systemd.exec(5), `LoadCredential=`;
/// mode 0440 for services with a user of their own from 254 on: <https://github.com/systemd/systemd/issues/29435>).
fn others(path: &Path, handed_out: Option<OsString>) -> u32 {
    // Every path starts with the empty one.
    let is_handed_out = handed_out.is_some_and(|directory| !directory.is_empty() && path.starts_with(directory));
    if is_handed_out { 0o037 } else { 0o077 }
}

/// What is done with a file while it is read, in a process that closes descriptors which it does not know.
#[derive(Clone, Copy)]
pub struct Hiding {
    /// Moves it out of the way.
    pub hide: fn(File) -> io::Result<File>,
    /// Closes it.
    pub close: fn(File),
}

/// Nothing.
pub(crate) const OPEN: Hiding = Hiding { hide: Ok, close: drop };

/// A file that is read.
struct Opened {
    /// Until it is closed.
    file: Option<File>,
    hiding: Hiding,
}

impl Opened {
    fn open(path: &Path, hiding: Hiding) -> io::Result<Opened> {
        let file = (hiding.hide)(File::open(path)?)?;
        Ok(Opened { file: Some(file), hiding })
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("until it is dropped")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            (self.hiding.close)(file);
        }
    }
}

/// Reads files, and keeps a digest of what all of them held.
pub struct Reader {
    held: Context,
    hiding: Hiding,
}

impl Reader {
    pub(crate) fn new(hiding: Hiding) -> Reader {
        Reader { held: Context::new(&SHA256), hiding }
    }

    /// Of what was read.
    pub(crate) fn digest(self) -> [u8; 32] {
        *self.held.finish().as_ref().first_chunk().expect("as long as that")
    }

    /// Reads a file; a secret one must not be readable for others.
    pub(crate) fn read(&mut self, path: &Path, secret: bool) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        let bytes = read(path, secret, self.hiding)?;
        // The length as well: what moves from one file to the next is a change.
        self.held.update(&bytes.len().to_le_bytes());
        self.held.update(&bytes);
        Ok(bytes)
    }

    /// Reads a shared key.
    pub(crate) fn shared(&mut self, path: &Path) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        let bytes = self.read(path, true)?;
        if bytes.len() < SHARED_BYTES_MIN {
            return Err(CredentialError::Short { path: path.to_owned(), bytes: bytes.len() });
        }
        Ok(bytes)
    }

    /// Reads our own certificate, with those that lead to its CA, and its key.
    pub(crate) fn own(
        &mut self,
        (certificate, key): &(PathBuf, PathBuf),
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CredentialError> {
        let chain = self.certificates(certificate)?;
        let pem = self.read(key, true)?;
        Ok((chain, private_key(key, &pem)?))
    }

    /// Reads the certificates of the CA, and adds them to those that are shown to people.
    pub(crate) fn roots(&mut self, path: &Path, shown: &mut Shown) -> Result<Arc<RootCertStore>, CredentialError> {
        let certificates = self.certificates(path)?;
        shown.add(true, path, &certificates);
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            let wrong = |error| CredentialError::content(path, format!("this is no CA: {error}"));
            roots.add(certificate).map_err(wrong)?;
        }
        Ok(Arc::new(roots))
    }

    pub(crate) fn certificates(&mut self, path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
        let pem = self.read(path, false)?;
        certificates(path, &pem)
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let wrong = |error| CredentialError::content(path, format!("there is no certificate here: {error}"));
    let chain = chain.map_err(wrong)?;
    if chain.is_empty() { Err(CredentialError::content(path, "there is no certificate here")) } else { Ok(chain) }
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, CredentialError> {
    let wrong = |error| CredentialError::content(path, format!("there is no private key here: {error}"));
    PrivateKeyDer::from_pem_slice(pem).map_err(wrong)
}

fn read(path: &Path, secret: bool, hiding: Hiding) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let failed = |error| CredentialError::Read { path: path.to_owned(), error };
    let opened = Opened::open(path, hiding).map_err(failed)?;
    let is = opened.file().metadata().map_err(failed)?;
    if !is.is_file() {
        return Err(CredentialError::content(path, "this is no file"));
    }
    if secret && is.permissions().mode() & others(path, std::env::var_os("CREDENTIALS_DIRECTORY")) != 0 {
        return Err(CredentialError::Open(path.to_owned()));
    }
    if is.len() > FILE_BYTES_MAX {
        return Err(CredentialError::content(path, "this is too long for a key"));
    }
    // At its full length from the beginning: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(is.len()).unwrap_or(0) + 1));
    opened.file().take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_readers_is_no_others_where_systemd_hands_a_secret_out() {
        let (path, directory) = (Path::new("/run/credentials/node/far.key"), Some("/run/credentials/node".into()));
        assert_eq!(0o440 & others(path, directory.clone()), 0);
        assert_ne!(0o444 & others(path, directory.clone()), 0);
        assert_ne!(0o440 & others(Path::new("/etc/far.key"), directory), 0);
        assert_ne!(0o440 & others(path, Some("".into())), 0);
        assert_ne!(0o440 & others(path, None), 0);
    }
}
