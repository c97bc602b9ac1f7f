//! A connection for the fault path, by TCP or a UNIX socket.
//!
//! Usable in a signal handler, on any stack and under the filter of the inline path: all memory passed to the kernel
//! lies on the heap, calls go by the trampoline, `errno` stays as it is, and nothing is allocated after `connect`.

mod address;
#[cfg(test)]
mod tests;

use crate::peer_memory::ReceivedFd;
use crate::{SysError, descriptor, trampoline};
pub use address::Address;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Pieces of memory that one call can name.
pub const PARTS_MAX: usize = 72;

/// No signal when the other side has closed, and no descriptor that an exec would pass on.
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;

/// A connected socket. It is closed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    fd: RawFd,
    /// The kernel's number of this socket, which no other ever has: a descriptor can become another file behind our back.
    cookie: u64,
    limit: Duration,
    send_limit: Duration,
    kernel: Box<ForKernel>,
}

/// Since when a message is under way: one that trickles must come to an end, too.
#[derive(Debug)]
pub struct MessageTime {
    begun: Instant,
    is_anew: bool,
}

impl MessageTime {
    /// It begins.
    pub fn begin() -> MessageTime {
        MessageTime { begun: Instant::now(), is_anew: false }
    }

    /// Whether it has taken `limit`. It begins anew, once, where the other side has gone on by then, as `is_ready` says: this process may
    /// have been stopped (SIGSTOP, a frozen cgroup).
    pub fn is_over(&mut self, limit: Duration, is_ready: impl FnOnce() -> bool) -> bool {
        self.is_over_at(Instant::now(), limit, is_ready)
    }

    fn is_over_at(&mut self, now: Instant, limit: Duration, is_ready: impl FnOnce() -> bool) -> bool {
        let is_over = now.saturating_duration_since(self.begun) >= limit;
        let goes_on = is_over && !self.is_anew && is_ready();
        if goes_on {
            *self = MessageTime { begun: now, is_anew: true };
        }
        is_over && !goes_on
    }
}

/// What calls point at.
#[derive(Debug)]
struct ForKernel {
    message: libc::msghdr,
    parts: [libc::iovec; PARTS_MAX],
    address: libc::sockaddr_storage,
    time: libc::timeval,
    flag: libc::c_int,
    cookie: u64,
    cookie_bytes: libc::socklen_t,
    peer: libc::ucred,
    peer_bytes: libc::socklen_t,
    waited: [libc::pollfd; 2],
    looked: u8,
    ancillary: Ancillary,
}

/// Ancillary data: room for one descriptor (cmsg(3), unix(7)).
#[repr(C, align(8))]
#[derive(Debug)]
struct Ancillary {
    head: libc::cmsghdr,
    fd: libc::c_int,
}

/// Bytes of it without padding: with more, the kernel would put a second descriptor there.
const ANCILLARY_BYTES: usize = size_of::<libc::cmsghdr>() + size_of::<libc::c_int>();

// SAFETY: the pointers are set and used within one call on `&mut self`.
unsafe impl Send for Socket {}

impl Socket {
    /// Connects within `limit`, which also bounds every later call that makes no progress.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(address: &Address, limit: Duration) -> Result<Socket, SysError> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let fd = checked("socket", call(libc::SYS_socket, [word(address.family()), word(kind), 0, 0, 0]))?;
        let fd = RawFd::try_from(fd).expect("descriptors are small");
        // SAFETY: plain data, for which zeros are valid values.
        let kernel: Box<ForKernel> = Box::new(unsafe { std::mem::zeroed() });
        let mut socket = Socket { fd, cookie: 0, limit, send_limit: limit, kernel };
        socket.fd = descriptor::hide(fd)
            .map_err(|error| SysError { call: "fcntl", errno: error.raw_os_error().unwrap_or(libc::EMFILE) })?;
        if matches!(address, Address::Tcp(_)) {
            socket.send_at_once()?;
        }
        socket.set_limits(limit, limit)?;
        let bytes = address.write(&mut socket.kernel.address);
        let pointer = (&raw const socket.kernel.address).addr();
        loop {
            let result = call(libc::SYS_connect, [word(socket.fd), pointer, bytes, 0, 0]);
            match i32::try_from(-result) {
                // Also without a handler, when the process was stopped (signal(7)). A UNIX socket is as before then; by TCP the kernel goes
                // on, and the next call waits for it.
                Ok(libc::EINTR) => {}
                // Linux's answers when the limit is over: by TCP to the first call and to a further one, and on a UNIX socket.
                Ok(libc::EINPROGRESS | libc::EALREADY | libc::EAGAIN) => {
                    return Err(SysError { call: "connect", errno: libc::ETIMEDOUT });
                }
                _ => break checked("connect", result),
            }
        }?;
        if matches!(address, Address::Unix(_)) {
            socket.check_owner()?;
        }
        socket.cookie = socket.ask_cookie()?;
        Ok(socket)
    }

    /// Refuses a UNIX socket on which another user listens: whoever comes first may take a name in a shared directory.
    fn check_owner(&mut self) -> Result<(), SysError> {
        self.kernel.peer_bytes = u32::try_from(size_of::<libc::ucred>()).expect("a small structure");
        let value = (&raw mut self.kernel.peer).addr();
        let bytes = (&raw mut self.kernel.peer_bytes).addr();
        let (level, name) = (word(libc::SOL_SOCKET), word(libc::SO_PEERCRED));
        checked("getsockopt", call(libc::SYS_getsockopt, [word(self.fd), level, name, value, bytes]))?;
        let ours = checked("geteuid", call(libc::SYS_geteuid, [0; 5]))?;
        let theirs = self.kernel.peer.uid;
        let trusted = theirs == 0 || usize::try_from(theirs).is_ok_and(|theirs| theirs == ours);
        if trusted { Ok(()) } else { Err(SysError { call: "connect", errno: libc::EACCES }) }
    }

    fn send_at_once(&mut self) -> Result<(), SysError> {
        self.kernel.flag = 1;
        let flag = ((&raw const self.kernel.flag).addr(), size_of::<libc::c_int>());
        self.set_option(libc::IPPROTO_TCP, libc::TCP_NODELAY, flag)
    }

    /// From now on, `receive` bounds every wait for bytes that do not arrive, and `send` the time that sending may take.
    ///
    /// # Errors
    /// The system's.
    pub fn set_limits(&mut self, receive: Duration, send: Duration) -> Result<(), SysError> {
        (self.limit, self.send_limit) = (receive, send);
        for (name, limit) in [(libc::SO_RCVTIMEO, receive), (libc::SO_SNDTIMEO, send)] {
            self.kernel.time = libc::timeval {
                tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
                tv_usec: limit.subsec_micros().into(),
            };
            let time = ((&raw const self.kernel.time).addr(), size_of::<libc::timeval>());
            self.set_option(libc::SOL_SOCKET, name, time)?;
        }
        Ok(())
    }

    /// As they were set last, or when it was connected: of `receive` and of sending.
    pub fn limits(&self) -> (Duration, Duration) {
        (self.limit, self.send_limit)
    }

    fn set_option(&self, level: i32, name: i32, (value, bytes): (usize, usize)) -> Result<(), SysError> {
        let arguments = [word(self.fd), word(level), word(name), value, bytes];
        checked("setsockopt", call(libc::SYS_setsockopt, arguments)).map(drop)
    }

    /// Waits until something has arrived, or the connection has ended; false: not within `limit`.
    pub fn wait(&mut self, limit: Duration) -> bool {
        self.wait_with(-1, libc::POLLIN, limit)
    }

    /// Whether bytes could be sent without waiting at this moment.
    pub fn takes_more(&mut self) -> bool {
        self.is_ready(libc::POLLOUT)
    }

    fn is_ready(&mut self, events: libc::c_short) -> bool {
        self.wait_with(-1, events, Duration::ZERO)
    }

    /// As `wait`, for either of two.
    pub fn wait_either(&mut self, other: &Socket, limit: Duration) -> bool {
        self.wait_with(other.fd, libc::POLLIN, limit)
    }

    /// Waits for this socket and `other`, which poll(2) ignores if it is negative.
    fn wait_with(&mut self, other: RawFd, events: libc::c_short, limit: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            // Rounded up: a wait of part of a millisecond is not one of none.
            let milliseconds = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            self.kernel.waited = [self.fd, other].map(|fd| libc::pollfd { fd, events, revents: 0 });
            let place = (&raw mut self.kernel.waited).addr();
            match call(libc::SYS_poll, [place, 2, word(milliseconds), 0, 0]) {
                0 => return false,
                error if error == -(libc::EINTR as isize) => {}
                // Ended or broken: the next call says how.
                _ => return true,
            }
        }
    }

    /// Whether something has arrived, or the connection has ended, at this moment.
    pub fn has_arrived(&mut self) -> bool {
        let place = (&raw mut self.kernel.looked).addr();
        let flags = word(libc::MSG_PEEK | libc::MSG_DONTWAIT);
        call(libc::SYS_recvfrom, [word(self.fd), place, 1, flags, 0]) != -(libc::EAGAIN as isize)
    }

    /// Bytes that have arrived and have not been received.
    pub fn available(&mut self) -> usize {
        self.kernel.flag = 0;
        let place = (&raw mut self.kernel.flag).addr();
        let request = usize::try_from(libc::FIONREAD).expect("a small number");
        let asked = call(libc::SYS_ioctl, [word(self.fd), request, place, 0, 0]);
        if asked == 0 { usize::try_from(self.kernel.flag).unwrap_or(0) } else { 0 }
    }

    fn ask_cookie(&mut self) -> Result<u64, SysError> {
        self.kernel.cookie_bytes = 8;
        let value = (&raw mut self.kernel.cookie).addr();
        let bytes = (&raw mut self.kernel.cookie_bytes).addr();
        let (level, name) = (word(libc::SOL_SOCKET), word(libc::SO_COOKIE));
        checked("getsockopt", call(libc::SYS_getsockopt, [word(self.fd), level, name, value, bytes]))?;
        Ok(self.kernel.cookie)
    }

    /// Whether the descriptor still stands for this connection. A program that closes descriptors which it did not open could
    /// make it stand for one of its own, which must never be written to.
    pub fn is_ours(&mut self) -> bool {
        self.ask_cookie() == Ok(self.cookie)
    }

    /// Sends all bytes of `parts`, which are at most `PARTS_MAX`.
    ///
    /// # Errors
    /// The system's; `ETIMEDOUT` when it could not be sent within the limit.
    pub fn send<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Result<(), SysError> {
        let all = self.name(parts.map(|part| (part.as_ptr().cast_mut(), part.len())));
        // SAFETY: the parts are borrowed until the call returns, and sendmsg only reads them.
        unsafe { self.transfer(libc::SYS_sendmsg, 0, all).map(drop) }
    }

    /// Receives into all of `parts`, which are at most `PARTS_MAX`, until they are full.
    ///
    /// # Errors
    /// The system's; `ECONNRESET` also when the other side has closed, `ETIMEDOUT` when nothing arrived for the limit.
    pub fn receive<'a>(&mut self, parts: impl Iterator<Item = &'a mut [u8]>) -> Result<(), SysError> {
        let all = self.name(parts.map(|part| (part.as_mut_ptr(), part.len())));
        // SAFETY: the parts are borrowed exclusively until the call returns.
        unsafe { self.transfer(libc::SYS_recvmsg, 0, all).map(drop) }
    }

    /// Receives what arrives first, at least one byte; 0: the other side has closed.
    ///
    /// # Errors
    /// The system's; `ETIMEDOUT` when nothing arrived for the limit.
    pub fn receive_some(&mut self, into: &mut [u8]) -> Result<usize, SysError> {
        self.name(std::iter::once((into.as_mut_ptr(), into.len())));
        loop {
            let message = (&raw mut self.kernel.message).addr();
            match call(libc::SYS_recvmsg, [word(self.fd), message, word(libc::MSG_NOSIGNAL), 0, 0]) {
                error if error == -(libc::EINTR as isize) => {}
                error if error == -(libc::EAGAIN as isize) => {
                    return Err(SysError { call: "recvmsg", errno: libc::ETIMEDOUT });
                }
                result => return checked("recvmsg", result),
            }
        }
    }

    /// As `receive`, and takes the descriptor that came beside the first of the bytes, if one did. The kernel gives it the lowest free
    /// number, within the program's reach; it is hidden before anything else is waited for.
    ///
    /// # Errors
    /// As for `receive`.
    pub fn receive_with<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut [u8]>,
    ) -> Result<Option<ReceivedFd>, SysError> {
        self.kernel.ancillary.head.cmsg_len = 0;
        self.kernel.message.msg_control = (&raw mut self.kernel.ancillary).cast();
        self.kernel.message.msg_controllen = ANCILLARY_BYTES;
        let all = self.name(parts.map(|part| (part.as_mut_ptr(), part.len())));
        // SAFETY: the parts are borrowed exclusively until this function returns.
        let first = unsafe { self.transfer(libc::SYS_recvmsg, 0, all.min(1)) };
        let Ancillary { head, fd } = &self.kernel.ancillary;
        let is_one =
            (head.cmsg_len, head.cmsg_level, head.cmsg_type) == (ANCILLARY_BYTES, libc::SOL_SOCKET, libc::SCM_RIGHTS);
        // Without a number out of reach it is as if none had come.
        let beside = if is_one { ReceivedFd::hide(*fd) } else { None };
        self.kernel.message.msg_control = std::ptr::null_mut();
        self.kernel.message.msg_controllen = 0;
        // SAFETY: as above.
        unsafe { self.transfer(libc::SYS_recvmsg, first?, all) }?;
        Ok(beside)
    }

    /// As `receive`, but shows the first `shown` bytes, which lie in the first part, to `accept` as soon as they are there. When it
    /// says no, nothing more is waited for. Returns how many bytes have arrived.
    ///
    /// # Errors
    /// As for `receive`.
    pub fn receive_if<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut [u8]>,
        shown: usize,
        accept: impl FnOnce(&[u8]) -> bool,
    ) -> Result<usize, SysError> {
        let all = self.name(parts.map(|part| (part.as_mut_ptr(), part.len())));
        let first = self.kernel.parts[0];
        assert!(shown <= first.iov_len, "what is shown lies in the first part");
        // SAFETY: the parts are borrowed exclusively until this function returns.
        let moved = unsafe { self.transfer(libc::SYS_recvmsg, 0, shown) }?;
        // SAFETY: so many bytes of the first part have been filled, and nothing writes to it meanwhile.
        if moved == all || !accept(unsafe { std::slice::from_raw_parts(first.iov_base.cast(), shown) }) {
            return Ok(moved);
        }
        // SAFETY: as above.
        unsafe { self.transfer(libc::SYS_recvmsg, moved, all) }
    }

    /// Names the memory for the calls that follow; returns its bytes.
    fn name(&mut self, parts: impl Iterator<Item = (*mut u8, usize)>) -> usize {
        let (mut count, mut bytes) = (0, 0);
        for (start, len) in parts {
            self.kernel.parts[count] = libc::iovec { iov_base: start.cast(), iov_len: len };
            count += 1;
            bytes += len;
        }
        self.kernel.message.msg_iov = self.kernel.parts.as_mut_ptr();
        self.kernel.message.msg_iovlen = count;
        bytes
    }

    /// Moves what was named, of which `moved` bytes are done, until at least `enough` are; returns how many.
    ///
    /// # Safety
    /// The parts are still valid for what the call does with them.
    unsafe fn transfer(&mut self, number: i64, mut moved: usize, enough: usize) -> Result<usize, SysError> {
        let sends = number == libc::SYS_sendmsg;
        let (name, limit) = if sends { ("sendmsg", self.send_limit) } else { ("recvmsg", self.limit) };
        let failed = |errno| Err(SysError { call: name, errno });
        // What is asked for takes the other side some time; what is sent does not.
        let mut time = sends.then(MessageTime::begin);
        while moved < enough {
            let message = &mut self.kernel.message;
            match call(number, [word(self.fd), (&raw mut *message).addr(), word(FLAGS), 0, 0]) {
                0 => return failed(libc::ECONNRESET),
                error if error == -(libc::EINTR as isize) => {}
                error if error == -(libc::EAGAIN as isize) => return failed(libc::ETIMEDOUT),
                other => {
                    let bytes = checked(name, other)?;
                    moved += bytes;
                    // SAFETY: `name` set the pointer to `parts`, and `skip` moves it inside them.
                    let left = unsafe { std::slice::from_raw_parts_mut(message.msg_iov, message.msg_iovlen) };
                    let done = skip(left, bytes);
                    message.msg_iov = left[done..].as_mut_ptr();
                    message.msg_iovlen -= done;
                }
            }
            let is_ready = || self.is_ready(if sends { libc::POLLOUT } else { libc::POLLIN });
            if moved < enough && time.get_or_insert_with(MessageTime::begin).is_over(limit, is_ready) {
                return failed(libc::ETIMEDOUT);
            }
        }
        Ok(moved)
    }
}

/// Takes `moved` bytes off the front; returns how many parts are done.
fn skip(parts: &mut [libc::iovec], mut moved: usize) -> usize {
    let mut done = 0;
    for part in parts {
        if moved < part.iov_len {
            part.iov_base = part.iov_base.wrapping_byte_add(moved);
            part.iov_len -= moved;
            break;
        }
        moved -= part.iov_len;
        done += 1;
    }
    done
}

impl Drop for Socket {
    fn drop(&mut self) {
        descriptor::show(self.fd);
        call(libc::SYS_close, [word(self.fd), 0, 0, 0, 0]);
    }
}

fn word(value: i32) -> usize {
    value.cast_unsigned() as usize
}

fn call(number: i64, arguments: [usize; 5]) -> isize {
    let [a, b, c, d, e] = arguments;
    // SAFETY: calls on sockets with pointers into `ForKernel`, or to parts that `transfer`'s caller vouches for; none returns
    // on another stack.
    unsafe { trampoline::call(number, [a, b, c, d, e, 0]) }
}

fn checked(name: &'static str, result: isize) -> Result<usize, SysError> {
    let failed = |_| SysError { call: name, errno: i32::try_from(-result).unwrap_or(libc::EIO) };
    usize::try_from(result).map_err(failed)
}
