//! Certificates and keys of a node that runs: read again when they change or on SIGHUP, and what the log says of them.
//!
//! New connections use what was read last; those that there are go on. What does not fit together whole changes nothing.

use hinterland_node::Node;
use hinterland_tls::{Calendar, Certificate, LOOK_EVERY, Look, NodeCredentials, Side};
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::pipe;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::Builder;
use std::time::SystemTime;

/// SIGHUP, which does not end the node any more.
pub struct Renewal(UnixStream);

impl Renewal {
    /// Takes the signal.
    ///
    /// # Errors
    /// It cannot be had.
    pub fn take() -> io::Result<Renewal> {
        let (comes, handler) = UnixStream::pair()?;
        pipe::register(SIGHUP, handler)?;
        comes.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Renewal(comes))
    }

    /// Says what is wrong with the certificates now, and looks after them from now on.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn begin(self, node: Arc<Node>) -> io::Result<()> {
        let Renewal(mut comes) = self;
        let mut calendar = Calendar::default();
        tell(&mut calendar, node.credentials());
        Builder::new().name("credentials".into()).spawn(move || {
            loop {
                // Several signals at once are one.
                let is_asked = match comes.read(&mut [0; 64]) {
                    Ok(read) => read > 0,
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
                    Err(error) => return tracing::warn!(%error, "SIGHUP is not heard any more"),
                };
                look(node.credentials(), is_asked);
                tell(&mut calendar, node.credentials());
            }
        })?;
        Ok(())
    }
}

fn look(credentials: Option<&NodeCredentials>, is_asked: bool) {
    let Some(credentials) = credentials else {
        if is_asked {
            tracing::info!("SIGHUP: there are no certificates or keys to read again");
        }
        return;
    };
    match if is_asked { credentials.again() } else { credentials.look(LOOK_EVERY) } {
        Look::Taken => match first_to_expire(&credentials.certificates()) {
            Some(expires) => tracing::info!(expires, "certificates and keys were read again: new connections use them"),
            None => tracing::info!("the key file was read again: new connections use it"),
        },
        Look::Same if is_asked => tracing::info!("certificates and keys were read again: nothing has changed"),
        Look::Same => {}
        Look::Refused(error) => {
            tracing::warn!(%error, "certificates and keys cannot be read again: those that were read before stay in use");
        }
    }
}

/// When the first of our own expires.
fn first_to_expire(certificates: &[Certificate]) -> Option<String> {
    let ours = certificates.iter().filter(|certificate| !certificate.is_ca);
    ours.min_by_key(|certificate| certificate.until).map(Certificate::expires)
}

fn tell(calendar: &mut Calendar, credentials: Option<&NodeCredentials>) {
    let certificates = credentials.map(NodeCredentials::certificates).unwrap_or_default();
    for warning in calendar.news(&certificates, SystemTime::now(), Side::Node) {
        tracing::warn!("{warning}");
    }
}
