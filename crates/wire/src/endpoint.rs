//! Where a node listens.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The port of a node when none is written.
pub const PORT: u16 = 7440;

/// `tcp://HOST:PORT`. Who wants to connect resolves the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Why an endpoint cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is written in another way.
    #[error("'{0}' is not tcp://HOST:PORT; write for example tcp://127.0.0.1:7440")]
    Form(String),
    /// Pages would travel unprotected.
    #[error(
        "'{0}' is not a loopback address, and connections are not protected yet: keep the node on 127.0.0.1 and \
         forward the port, for example with ssh -N -L 7440:127.0.0.1:7440 HOST"
    )]
    NotLoopback(String),
}

impl Endpoint {
    /// The address, if the host is one and not a name.
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.parse().ok().map(|address: IpAddr| SocketAddr::new(address, self.port))
    }

    /// Refuses addresses that other machines can reach. Names pass: they are resolved first.
    ///
    /// # Errors
    /// It is an address, and no loopback address.
    pub fn check_loopback(&self) -> Result<(), EndpointError> {
        match self.address() {
            Some(address) if !address.ip().is_loopback() => Err(EndpointError::NotLoopback(self.to_string())),
            _ => Ok(()),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let form = || EndpointError::Form(text.to_owned());
        let rest = text.strip_prefix("tcp://").ok_or_else(form)?;
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(form)?,
            None => rest.find(':').map_or((rest, ""), |at| rest.split_at(at)),
        };
        let port = match port.strip_prefix(':') {
            Some(digits) => digits.parse().map_err(|_| form())?,
            None if port.is_empty() => PORT,
            None => return Err(form()),
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(fits) {
            return Err(form());
        }
        Ok(Endpoint { host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { host, port } = self;
        if host.contains(':') { write!(f, "tcp://[{host}]:{port}") } else { write!(f, "tcp://{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        for text in ["tcp://127.0.0.1:7440", "tcp://[::1]:99", "tcp://node-1.example.org:7440"] {
            assert_eq!(text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("tcp://localhost".parse::<Endpoint>().map(|endpoint| endpoint.port), Ok(PORT));
    }

    #[test]
    fn says_what_is_wrong() {
        for text in
            ["", "127.0.0.1:7440", "tcp://", "tcp://:7440", "tcp://a:b", "tcp://[::1", "tcp://[::1]x", "tcp://a b"]
        {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Form(text.into())), "{text}");
        }
        for text in ["tcp://0.0.0.0:7440", "tcp://10.0.0.7:7440", "tcp://[::]:7440"] {
            let refused = text.parse::<Endpoint>().expect(text).check_loopback().expect_err(text).to_string();
            assert!(refused.contains(text) && refused.contains("ssh -N -L"), "{refused}");
        }
        for text in ["tcp://127.0.0.9:7440", "tcp://[::1]:7440", "tcp://localhost:1"] {
            assert_eq!(text.parse::<Endpoint>().expect(text).check_loopback(), Ok(()));
        }
    }
}
