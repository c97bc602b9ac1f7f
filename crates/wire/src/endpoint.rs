//! Where a node listens.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The port of a node when none is written.
pub const PORT: u16 = 7440;

/// Bytes of the path of a UNIX socket: what fits a `sockaddr_un`, with the zero behind it (unix(7)).
pub const PATH_BYTES_MAX: usize = 107;

/// Where a node listens, as people write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// `tcp://HOST:PORT`, or `tcp://HOST=ADDRESS:PORT` when the name is resolved.
    Tcp {
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// What the name stands for.
        resolved: Option<IpAddr>,
        /// The port.
        port: u16,
    },
    /// `unix:/PATH`: a socket on this machine.
    Unix {
        /// An absolute path.
        path: String,
    },
}

/// What keeps others from a connection by TCP. A socket's owner is checked whatever this says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Protection {
    /// Nothing does: there are no such connections.
    #[default]
    None,
    /// Nothing does but the machine: its user trusts every user of it.
    InsecureLoopback,
    /// Each side authenticates itself, and what travels is encrypted.
    Credentials,
}

impl Protection {
    /// What there is, with or without credentials, and with or without the user's word for the machine's users.
    pub fn of(has_credentials: bool, insecure_loopback: bool) -> Protection {
        match (has_credentials, insecure_loopback) {
            (true, _) => Protection::Credentials,
            (false, true) => Protection::InsecureLoopback,
            (false, false) => Protection::None,
        }
    }
}

/// Why an endpoint cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is written in another way.
    #[error("'{0}' is not tcp://HOST:PORT or unix:/PATH; write for example tcp://127.0.0.1:7440")]
    Form(String),
    /// The path of a socket that cannot be written in a list of nodes.
    #[error(
        "'{0}': a socket needs an absolute path without blanks, commas, '?' and '%'; write for example \
         unix:/run/hinterland.sock"
    )]
    Path(String),
    /// The path of a socket that is too long for the system.
    #[error("'{0}': a socket's path has at most {PATH_BYTES_MAX} bytes; choose a shorter one")]
    TooLong(String),
    /// Another user of the machine could take the place of either side.
    #[error(
        "'{0}' without credentials: any user of this machine can connect to it, and can listen there once its node has ended. \
         Use a socket, unix:/PATH, whose owner is checked, or a --key-file; or give --insecure-loopback to node and program alike, \
         if you trust every user of this machine"
    )]
    Loopback(String),
    /// Pages would travel unprotected.
    #[error(
        "'{0}' is not a loopback address, and other machines may reach it: give --tls CERT,KEY and --tls-ca CA, or a --key-file, \
         to node and program alike; or let the node listen on a socket and forward that, for example with \
         ssh -N -L /run/user/1000/far.sock:/run/user/1000/hinterland.sock HOST"
    )]
    NotLoopback(String),
}

/// What to ask somebody to whom nobody answered at the endpoint `url`, after the system's reason.
pub fn nobody_there(url: &str) -> String {
    let how = match url.starts_with("unix:") {
        true => format!("`hinterland node --capacity 16G --listen {url}` starts one"),
        false => "`hinterland node` starts one, with the credentials or the --insecure-loopback of this side".into(),
    };
    format!("; does a node run there? {how}")
}

impl Endpoint {
    /// The address, if there is a host and it is one and not a name.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Endpoint::Tcp { host, resolved, port } => {
                resolved.or_else(|| host.parse().ok()).map(|address| SocketAddr::new(address, *port))
            }
            Endpoint::Unix { .. } => None,
        }
    }

    /// The same, with what its name stands for.
    pub fn resolved_to(&self, address: IpAddr) -> Endpoint {
        match self {
            Endpoint::Tcp { host, port, .. } => {
                Endpoint::Tcp { host: host.clone(), resolved: Some(address), port: *port }
            }
            Endpoint::Unix { .. } => self.clone(),
        }
    }

    /// Refuses addresses that others can reach than those whom `protection` lets in. Names pass: they are resolved first.
    ///
    /// # Errors
    /// It is an address, and needs more protection.
    pub fn check_reach(&self, protection: Protection) -> Result<(), EndpointError> {
        let Some(address) = self.address() else { return Ok(()) };
        match (protection, address.ip().is_loopback()) {
            (Protection::Credentials, _) | (Protection::InsecureLoopback, true) => Ok(()),
            (_, false) => Err(EndpointError::NotLoopback(self.to_string())),
            (Protection::None, true) => Err(EndpointError::Loopback(self.to_string())),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint::Tcp { host: address.ip().to_string(), resolved: None, port: address.port() }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return read_path(text, path);
        }
        let form = || EndpointError::Form(text.to_owned());
        let rest = text.strip_prefix("tcp://").ok_or_else(form)?;
        let (name, rest) = match rest.split_once('=') {
            Some((name, rest)) => (Some(name), rest),
            None => (None, rest),
        };
        let (host, port) = host_and_port(rest, PORT).ok_or_else(form)?;
        if name.is_some_and(|name| !is_host(name)) {
            return Err(form());
        }
        let resolved = name.map(|_| host.parse().map_err(|_| form())).transpose()?;
        Ok(Endpoint::Tcp { host: name.unwrap_or(host).to_owned(), resolved, port })
    }
}

/// What `HOST[:PORT]` says, IPv6 addresses in brackets; `usual` is the port when none is written.
pub(crate) fn host_and_port(text: &str, usual: u16) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = if port.is_empty() { usual } else { port.strip_prefix(':')?.parse().ok()? };
    is_host(host).then_some((host, port))
}

/// Whether it may be a name or an address.
fn is_host(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    !text.is_empty() && text.chars().all(fits)
}

/// The host as it stands before a port.
pub(crate) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn read_path(text: &str, path: &str) -> Result<Endpoint, EndpointError> {
    let separates = |c: char| c.is_whitespace() || c.is_control() || matches!(c, ',' | '?' | '%');
    if !path.starts_with('/') || path.ends_with('/') || path.contains(separates) {
        return Err(EndpointError::Path(text.to_owned()));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(EndpointError::TooLong(text.to_owned()));
    }
    Ok(Endpoint::Unix { path: path.to_owned() })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, resolved, port } => {
                let name = resolved.map(|_| format!("{host}=")).unwrap_or_default();
                let host = resolved.map_or_else(|| host.clone(), |address| address.to_string());
                write!(f, "tcp://{name}{}:{port}", bracketed(&host))
            }
            Endpoint::Unix { path } => write!(f, "unix:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        for text in [
            "tcp://127.0.0.1:7440",
            "tcp://[::1]:99",
            "tcp://node-1.example.org:7440",
            "tcp://node-1=10.0.0.7:99",
            "tcp://node-1=[fe80::1]:99",
            "unix:/run/a-b.sock",
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(
            "tcp://localhost".parse(),
            Ok(Endpoint::Tcp { host: "localhost".into(), resolved: None, port: PORT })
        );
    }

    #[test]
    fn says_what_is_wrong() {
        for text in [
            "",
            "127.0.0.1:7440",
            "tcp://",
            "tcp://:7440",
            "tcp://a:b",
            "tcp://[::1",
            "tcp://[::1]x",
            "tcp://a b",
            "tcp://a=b:1",
            "tcp://=10.0.0.7",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Form(text.into())), "{text}");
        }
        for text in
            ["unix:", "unix:node.sock", "unix://", "unix:/a b", "unix:/a,b", "unix:/a?b", "unix:/a/", "unix:/%41"]
        {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Path(text.into())), "{text}");
        }
        let of_length = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
        assert!(
            of_length(PATH_BYTES_MAX).parse::<Endpoint>().is_ok_and(|fits| fits.check_reach(Protection::None).is_ok())
        );
        let long = of_length(PATH_BYTES_MAX + 1);
        assert_eq!(long.parse::<Endpoint>(), Err(EndpointError::TooLong(long)));
        for text in ["tcp://0.0.0.0:7440", "tcp://10.0.0.7:7440", "tcp://[::]:7440"] {
            let endpoint: Endpoint = text.parse().expect(text);
            for too_little in [Protection::None, Protection::InsecureLoopback] {
                let refused = endpoint.check_reach(too_little).expect_err(text).to_string();
                assert!(refused.contains(text) && refused.contains("--key-file"), "{refused}");
            }
            assert_eq!(endpoint.check_reach(Protection::Credentials), Ok(()));
        }
        for text in ["tcp://127.0.0.9:7440", "tcp://[::1]:7440"] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.check_reach(Protection::None), Err(EndpointError::Loopback(text.into())));
            assert_eq!(endpoint.check_reach(Protection::InsecureLoopback), Ok(()));
            assert_eq!(endpoint.check_reach(Protection::Credentials), Ok(()));
        }
        let name: Endpoint = "tcp://localhost:1".parse().expect("an endpoint");
        assert_eq!(name.check_reach(Protection::None), Ok(()));
    }
}
