//! What a node says of its certificates, and of those of the CA that it was given.

use crate::WireError;
use crate::bytes::{Reader, put_count, put_text};

/// Certificates that are named.
pub const CERTIFICATES_MAX: usize = 32;
/// Bytes of a subject; what exceeds them is cut off at a character.
pub const SUBJECT_BYTES_MAX: usize = 240;

/// One certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateRow<'a> {
    /// Of the CA that signs programs' certificates; else the node's own, or one that leads to its CA.
    pub is_ca: bool,
    /// Seconds for which it is still good, by the node's clock; negative: it has expired.
    pub left_seconds: i64,
    /// For whom it is: "CN=node-1".
    pub subject: &'a str,
}

/// The certificates of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Certificates<'a> {
    rows: &'a [u8],
    count: usize,
}

impl<'a> Certificates<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Certificates<'a>, WireError> {
        let count = reader.count("the number of certificates", CERTIFICATES_MAX)?;
        let rows = reader.0;
        for _ in 0..count {
            row(&mut reader)?;
        }
        reader.end()?;
        Ok(Certificates { rows, count })
    }

    /// Appends what is known to a `CertificatesAre` reply; of more than `CERTIFICATES_MAX` the first.
    pub fn encode(into: &mut Vec<u8>, certificates: &[CertificateRow<'_>]) {
        let certificates = &certificates[..certificates.len().min(CERTIFICATES_MAX)];
        put_count(into, certificates.len());
        for CertificateRow { is_ca, left_seconds, subject } in certificates {
            into.push(u8::from(*is_ca));
            into.extend_from_slice(&left_seconds.to_le_bytes());
            put_text(into, subject, SUBJECT_BYTES_MAX);
        }
    }

    /// Each of them.
    pub fn rows(&self) -> impl Iterator<Item = CertificateRow<'a>> + use<'a> {
        let mut reader = Reader(self.rows);
        (0..self.count).map(move |_| row(&mut reader).expect("read once before"))
    }
}

fn row<'a>(reader: &mut Reader<'a>) -> Result<CertificateRow<'a>, WireError> {
    let is_ca = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(WireError::Value("whose certificate it is")),
    };
    let left_seconds = i64::from_le_bytes(reader.array()?);
    Ok(CertificateRow { is_ca, left_seconds, subject: reader.text("the subject of a certificate", SUBJECT_BYTES_MAX)? })
}
