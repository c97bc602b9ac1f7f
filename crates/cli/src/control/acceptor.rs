//! A listener that takes connections without blocking, and pauses where it cannot take one.
//!
//! A connection that accept(2) cannot take, because the process or the machine has no descriptor left (`EMFILE`, `ENFILE`) or no memory, stays in the
//! listener's queue: the listener stays readable, and a loop that polled it would go round and round. So nothing polls it for
//! [`PAUSE`]; then it is tried again.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a listener is left alone that cannot take a connection: as long as the launcher's loop sleeps at most.
const PAUSE: Duration = Duration::from_millis(100);

/// A time in which something is not tried.
#[derive(Default)]
pub struct Pause(Option<Instant>);

impl Pause {
    /// Begins it.
    pub fn begin(&mut self, now: Instant) {
        self.0 = Some(now + PAUSE);
    }

    /// Ends it if its time has come; false: it goes on.
    pub fn is_over(&mut self, now: Instant) -> bool {
        self.0.take_if(|until| *until <= now);
        self.0.is_none()
    }

    /// When it ends, if there is one.
    pub fn due(&self) -> Option<Instant> {
        self.0
    }
}

/// See the module.
pub struct Acceptor {
    listener: UnixListener,
    pause: Pause,
}

impl Acceptor {
    /// Takes the connections of a listener.
    ///
    /// # Errors
    /// It cannot be made not to block.
    pub fn new(listener: UnixListener) -> io::Result<Acceptor> {
        listener.set_nonblocking(true)?;
        Ok(Acceptor { listener, pause: Pause::default() })
    }

    /// What becomes readable when something connects; `None` in a pause.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.due().is_none().then(|| self.listener.as_fd())
    }

    /// When to accept at the latest, whether it is readable or not.
    pub fn due(&self) -> Option<Instant> {
        self.pause.due()
    }

    /// The next connection, if there is one and it can be taken.
    pub fn accept(&mut self, now: Instant) -> Option<UnixStream> {
        let Acceptor { listener, pause } = self;
        next(pause, now, || listener.accept().map(|(stream, _)| stream))
    }
}

fn next<T>(pause: &mut Pause, now: Instant, mut accept: impl FnMut() -> io::Result<T>) -> Option<T> {
    if !pause.is_over(now) {
        return None;
    }
    loop {
        match accept() {
            Ok(stream) => return Some(stream),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(_) => {
                pause.begin(now);
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_without_descriptors_for_a_connection_is_left_alone_for_a_while() {
        for exhausted in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            let (mut pause, begun) = (Pause::default(), Instant::now());
            let mut tries = 0;
            let mut try_at = |at: Duration, result: Result<u8, i32>| {
                let taken = next(&mut pause, begun + at, || {
                    tries += 1;
                    result.map_err(io::Error::from_raw_os_error)
                });
                (taken, tries, pause.due().map(|due| due - begun))
            };
            assert_eq!(try_at(Duration::ZERO, Err(exhausted)), (None, 1, Some(PAUSE)));
            assert_eq!(try_at(PAUSE / 2, Ok(7)), (None, 1, Some(PAUSE)), "it is not tried in the pause");
            assert_eq!(try_at(PAUSE, Err(exhausted)), (None, 2, Some(2 * PAUSE)));
            assert_eq!(try_at(2 * PAUSE, Ok(7)), (Some(7), 3, None), "it goes on");
            assert_eq!(try_at(2 * PAUSE, Err(libc::EAGAIN)), (None, 4, None), "nothing has connected");
        }
    }

    #[test]
    fn a_listener_in_a_pause_is_not_polled_and_keeps_what_connects() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut acceptor = Acceptor::new(UnixListener::bind(&path).unwrap()).unwrap();
        let now = Instant::now();
        assert!(acceptor.descriptor().is_some() && acceptor.due().is_none());
        let _peer = UnixStream::connect(&path).unwrap();
        acceptor.pause.begin(now);
        assert!(acceptor.descriptor().is_none() && acceptor.due() == Some(now + PAUSE));
        assert!(acceptor.accept(now).is_none() && acceptor.accept(now + PAUSE).is_some());
        assert!(acceptor.descriptor().is_some() && acceptor.due().is_none());
    }
}
