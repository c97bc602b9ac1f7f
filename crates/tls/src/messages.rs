//! Why a handshake failed, in words that say what to look at.

use rustls::AlertDescription as Alert;
use rustls::CertificateError as Certificate;
use rustls::Error;

/// What went wrong with the other side of a connection ("it").
pub fn explain(error: &Error) -> String {
    let words = match error {
        Error::InvalidCertificate(why) => return certificate(why),
        Error::NoCertificatesPresented => "it showed no certificate; it needs --tls and --tls-ca, or the --key-file",
        Error::InvalidMessage(_) => "what it says is not TLS; it was started without --tls and --key-file",
        Error::PeerIncompatible(why) => {
            return format!(
                "its TLS does not fit ours ({why:?}): TLS 1.3 is needed, and certificates on both sides or a --key-file on both"
            );
        }
        Error::AlertReceived(alert) => match alert {
            Alert::UnknownCA => "it does not accept our certificate: no CA that it was given has signed it",
            Alert::CertificateExpired => "it does not accept our certificate: it has expired",
            Alert::AccessDenied => "it does not accept our key: its --key-file is another one",
            Alert::CertificateRequired => "it wants a certificate; give --tls and --tls-ca, or the --key-file",
            Alert::ProtocolVersion => "it speaks another version of TLS; TLS 1.3 is needed",
            Alert::HandshakeFailure
            | Alert::UnsupportedCertificate
            | Alert::IllegalParameter
            | Alert::UnsupportedExtension => {
                "it has other credentials: certificates are needed on both sides, or a --key-file on both"
            }
            Alert::BadCertificate | Alert::CertificateUnknown | Alert::DecryptError => {
                "it does not accept our certificate"
            }
            other => return format!("it ended the handshake ({other:?})"),
        },
        other => return other.to_string(),
    };
    words.to_owned()
}

fn certificate(why: &Certificate) -> String {
    let words = match why {
        Certificate::UnknownIssuer | Certificate::BadSignature => {
            "its certificate was not signed by the CA that we were given (--tls-ca)"
        }
        Certificate::Expired | Certificate::ExpiredContext { .. } => "its certificate has expired",
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "its certificate is not valid yet; look at the clocks"
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            "its certificate is for another name than it is called by here"
        }
        Certificate::InvalidPurpose | Certificate::InvalidPurposeContext { .. } => {
            "its certificate is for another purpose (nodes: serverAuth, programs: clientAuth)"
        }
        Certificate::ApplicationVerificationFailure => "its key is not that of our --key-file",
        other => return format!("its certificate cannot be used: {other}"),
    };
    words.to_owned()
}
