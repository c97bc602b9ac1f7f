//! Where the nodes of a pool are listed.

use crate::endpoint::{bracketed, host_and_port};
use std::fmt;
use std::str::FromStr;

/// The port of etcd when none is written.
const PORT: u16 = 2379;
/// Bytes of a directory's URL.
pub const DIRECTORY_BYTES_MAX: usize = 255;

/// A pool in etcd, as people write it: `etcd://HOST[:PORT][,HOST[:PORT] …]/POOL`, or `etcds://` over TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// The connection is TLS.
    pub secured: bool,
    /// `HOST:PORT` of each server of the etcd cluster: any of them will do.
    pub servers: Vec<String>,
    /// The pool's name.
    pub pool: String,
}

/// Why a directory cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It is written in another way.
    #[error("'{0}' is not etcd://HOST:PORT/POOL; write for example etcd://127.0.0.1:2379/pool")]
    Form(String),
    /// The pool's name.
    #[error("'{0}': a pool's name consists of letters, digits, '-', '_' and '.'")]
    Pool(String),
    /// It does not fit where it must be written.
    #[error("'{0}' is longer than {DIRECTORY_BYTES_MAX} bytes; name fewer of the servers")]
    TooLong(String),
}

impl Directory {
    /// Whether a URL, which need not be right, is one of a directory.
    pub fn is_named_by(url: &str) -> bool {
        ["etcd:", "etcds:"].iter().any(|scheme| url.starts_with(scheme))
    }
}

impl FromStr for Directory {
    type Err = DirectoryError;

    fn from_str(text: &str) -> Result<Directory, DirectoryError> {
        let form = || DirectoryError::Form(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let secured = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(form()),
        };
        let (servers, pool) = rest.split_once('/').ok_or_else(form)?;
        let servers =
            servers.split(',').map(|server| read_server(server).ok_or_else(form)).collect::<Result<_, _>>()?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if pool.is_empty() || !pool.chars().all(fits) {
            return Err(DirectoryError::Pool(text.to_owned()));
        }
        let directory = Directory { secured, servers, pool: pool.to_owned() };
        if directory.to_string().len() > DIRECTORY_BYTES_MAX {
            return Err(DirectoryError::TooLong(text.to_owned()));
        }
        Ok(directory)
    }
}

/// `HOST:PORT` of one server.
fn read_server(text: &str) -> Option<String> {
    let (host, port) = host_and_port(text, PORT)?;
    Some(format!("{}:{port}", bracketed(host)))
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secured { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", self.servers.join(","), self.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        for text in [
            "etcd://127.0.0.1:2379/pool",
            "etcds://etcd-1.example.org:2379,etcd-2.example.org:99/a.b-c_d",
            "etcd://[::1]:2379/pool",
        ] {
            assert_eq!(text.parse::<Directory>().map(|directory| directory.to_string()), Ok(text.to_owned()));
        }
        let read = "etcd://host/pool".parse::<Directory>().expect("well-formed");
        assert_eq!(read.servers, ["host:2379"]);
    }

    #[test]
    fn says_what_is_wrong() {
        for text in [
            "etcd:",
            "etcd://",
            "etcd://a",
            "etcd:///pool",
            "http://a/b",
            "etcd://a:b/c",
            "etcd://a,/c",
            "etcd://[::1/c",
        ] {
            assert_eq!(text.parse::<Directory>(), Err(DirectoryError::Form(text.into())));
        }
        for text in ["etcd://a/", "etcd://a/b/c", "etcd://a/b c", "etcd://a/b?x"] {
            assert_eq!(text.parse::<Directory>(), Err(DirectoryError::Pool(text.into())));
        }
        let long = format!("etcd://{}/pool", vec!["host"; 60].join(","));
        assert_eq!(long.parse::<Directory>(), Err(DirectoryError::TooLong(long)));
        assert!(Directory::is_named_by("etcds://x") && !Directory::is_named_by("tcp://x"));
    }
}
