//! Where a connection leads.

use std::net::SocketAddr;

/// The other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// By TCP.
    Tcp(SocketAddr),
    /// A socket on this machine: its path, or a zero byte and its name in the abstract namespace; at most 107 bytes.
    Unix(String),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Tcp(address)
    }
}

impl Address {
    /// Its kind, for socket(2).
    pub(super) fn family(&self) -> libc::c_int {
        match self {
            Address::Tcp(SocketAddr::V4(_)) => libc::AF_INET,
            Address::Tcp(SocketAddr::V6(_)) => libc::AF_INET6,
            Address::Unix(_) => libc::AF_UNIX,
        }
    }

    /// Writes it as the kernel reads it; returns its bytes.
    pub(super) fn write(&self, into: &mut libc::sockaddr_storage) -> usize {
        let family = libc::sa_family_t::try_from(self.family()).expect("a small constant");
        let place = std::ptr::from_mut(into);
        // SAFETY: a sockaddr_storage has room for each kind of address, and is aligned for it.
        unsafe {
            match self {
                Address::Tcp(SocketAddr::V4(v4)) => {
                    let to = &mut *place.cast::<libc::sockaddr_in>();
                    to.sin_family = family;
                    to.sin_port = v4.port().to_be();
                    to.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                    size_of::<libc::sockaddr_in>()
                }
                Address::Tcp(SocketAddr::V6(v6)) => {
                    let to = &mut *place.cast::<libc::sockaddr_in6>();
                    to.sin6_family = family;
                    to.sin6_port = v6.port().to_be();
                    to.sin6_addr.s6_addr = v6.ip().octets();
                    to.sin6_scope_id = v6.scope_id();
                    size_of::<libc::sockaddr_in6>()
                }
                Address::Unix(path) => {
                    let to = &mut *place.cast::<libc::sockaddr_un>();
                    assert!(path.len() < to.sun_path.len(), "a path of {} bytes", path.len());
                    to.sun_family = family;
                    // The length ends it.
                    for (to, byte) in to.sun_path.iter_mut().zip(path.bytes()) {
                        *to = byte.cast_signed();
                    }
                    std::mem::offset_of!(libc::sockaddr_un, sun_path) + path.len()
                }
            }
        }
    }
}
