//! A certificate authority of a test's own, and those whom it knows.

use crate::places;
use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Years in which a certificate is good.
pub const VALID: (i32, i32) = (2020, 2120);
/// Years that are over.
pub const EXPIRED: (i32, i32) = (2020, 2021);

/// A certificate authority, with a directory for what it signs.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// Somebody whom an authority knows.
pub struct Certified {
    /// The certificate and its private key, as `--tls` takes them.
    pub tls: String,
    /// The private key, in binary.
    pub key_der: Vec<u8>,
}

impl Authority {
    /// A new one called `name`, for the test called `test`.
    ///
    /// # Errors
    /// Its directory cannot be made.
    pub fn new(test: &str, name: &str) -> Result<Authority> {
        let name = format!("{}-{name}", test.replace("::", "-"));
        let directory = places::emptied(places::tests().join("lifecycle").join(&name))?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, &name);
        let key = KeyPair::generate()?;
        std::fs::write(directory.join("ca.pem"), params.self_signed(&key)?.pem())?;
        Ok(Authority { directory, issuer: Issuer::new(params, key) })
    }

    /// Its own certificate, as `--tls-ca` takes it.
    pub fn ca(&self) -> String {
        self.directory.join("ca.pem").display().to_string()
    }

    /// Signs for `name`, a program or node at 127.0.0.1.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn sign(&self, name: &str, years: (i32, i32)) -> Result<Certified> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        let key = KeyPair::generate()?;
        let [own, secret] = ["pem", "key"].map(|end| self.directory.join(name).with_extension(end));
        std::fs::write(&own, params.signed_by(&key, &self.issuer)?.pem())?;
        write_secret(&secret, key.serialize_pem().as_bytes())?;
        let tls = format!("{},{}", own.display(), secret.display());
        Ok(Certified { tls, key_der: key.serialize_der() })
    }
}

/// A file that nobody else can read.
///
/// # Errors
/// It cannot be written.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes)?;
    Ok(std::fs::set_permissions(path, Permissions::from_mode(0o600))?)
}
