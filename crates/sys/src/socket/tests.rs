//! Connections to peers that trickle, hang up, say nothing, or are not there.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn pair(limit: Duration) -> (Socket, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connect(&listener.local_addr().unwrap().into(), limit).unwrap();
    (socket, listener.accept().unwrap().0)
}

#[test]
fn parts_arrive_whole_and_in_order() {
    let (mut socket, mut peer) = pair(Duration::from_secs(20));
    assert!(socket.is_ours());
    let echo = std::thread::spawn(move || {
        let mut bytes = vec![0; 3_000_000];
        peer.read_exact(&mut bytes).unwrap();
        // In pieces that fit no part.
        bytes.chunks(7777).for_each(|chunk| peer.write_all(chunk).unwrap());
    });
    let sent: Vec<u8> = (0..3_000_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    socket.send(sent.chunks(50_000)).unwrap();
    let mut received = vec![0; 3_000_000];
    socket.receive(received.chunks_mut(41_999)).unwrap();
    assert!(sent == received);
    echo.join().unwrap();
    assert_eq!(socket.receive([&mut [0u8; 4][..]].into_iter()).unwrap_err().errno, libc::ECONNRESET);
}

#[test]
fn what_is_not_accepted_is_not_waited_for() {
    let (mut socket, mut peer) = pair(Duration::from_secs(20));
    peer.write_all(b"no, thanks").unwrap();
    let (mut head, mut rest) = ([0; 4], [0; 100]);
    let parts = [&mut head[..], &mut rest[..]].into_iter();
    let moved = socket.receive_if(parts, 2, |shown| shown == b"ok").unwrap();
    assert_eq!((moved, &head, &rest[..6]), (10, b"no, ", &b"thanks"[..]));
    let late = std::thread::spawn(move || {
        for piece in ["o", "kay, ", "this is all", " that comes"] {
            peer.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let parts = [&mut head[..], &mut rest[..24]].into_iter();
    assert_eq!(socket.receive_if(parts, 2, |shown| shown == b"ok").unwrap(), 28);
    assert_eq!((&head, &rest[..24]), (b"okay", &b", this is all that comes"[..]));
    late.join().unwrap();
}

#[test]
fn silence_and_trickling_end_at_the_limit() {
    let limit = Duration::from_millis(200);
    let (mut socket, peer) = pair(limit);
    let begun = Instant::now();
    assert_eq!(socket.receive([&mut [0u8; 4][..]].into_iter()).unwrap_err().errno, libc::ETIMEDOUT);
    assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
    let trickle = std::thread::spawn(move || {
        let mut peer = peer;
        while peer.write_all(&[1]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    // A limit that began anew with each byte would let all of them arrive, in minutes.
    let error = socket.receive([&mut vec![0u8; 10_000][..]].into_iter()).unwrap_err();
    assert_eq!(error.errno, libc::ETIMEDOUT);
    drop(socket);
    trickle.join().unwrap();
}

#[test]
fn a_message_that_was_under_way_while_this_process_was_stopped_has_its_time_once_more() {
    let limit = Duration::from_millis(100);
    let over = |steps: &[(u64, bool)]| {
        let mut time = MessageTime::begin();
        let begun = time.begun;
        let step =
            |(ms, is_ready): &(u64, bool)| time.is_over_at(begun + Duration::from_millis(*ms), limit, || *is_ready);
        steps.iter().map(step).collect::<Vec<_>>()
    };
    assert_eq!(over(&[(20, true), (99, true), (100, false)]), [false, false, true], "the other side has not gone on");
    let hour = 3_600_000;
    assert_eq!(over(&[(20, false), (hour, true), (hour + 99, false), (hour + 100, true)]), [false, false, false, true]);
}

#[test]
fn a_descriptor_that_became_another_connection_is_noticed() {
    let limit = Duration::from_secs(5);
    let (mut socket, _peer) = pair(limit);
    let (other, _other_peer) = pair(limit);
    // SAFETY: replaces a descriptor that this test owns.
    assert_eq!(unsafe { libc::dup2(other.fd, socket.fd) }, socket.fd);
    assert!(!socket.is_ours());
}

#[test]
fn nobody_there_is_said_at_once() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(Socket::connect(&address.into(), Duration::from_secs(5)).unwrap_err().errno, libc::ECONNREFUSED);
    let nowhere = Address::Unix("/nonexistent/socket".into());
    assert_eq!(Socket::connect(&nowhere, Duration::from_secs(5)).unwrap_err().errno, libc::ENOENT);
}

static CAUGHT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn catch(_: libc::c_int) {
    CAUGHT.fetch_add(1, SeqCst);
}

/// Whether a connection to that port has been begun and not answered, as the kernel says: the third and fourth word of a line are where it leads
/// and its state, 2 for `SYN_SENT`.
fn is_unanswered(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let there = format!(":{port:04X}");
    let mut words = table.lines().map(|line| line.split_whitespace().skip(2).take(2).collect::<Vec<_>>());
    words.any(|words| matches!(words[..], [to, "02"] if to.ends_with(&there)))
}

#[test]
fn a_signal_in_the_middle_of_connecting_ends_nothing() {
    let wait_until = |holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(300), "hangs, and should not");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // SAFETY: a plain system call on our own descriptor. One connection may wait from now on.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let _waits = TcpStream::connect(address).unwrap();
    // SAFETY: plain data, for which zeros are valid values; the handler counts.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = catch as *const () as usize;
    // SAFETY: a valid structure, and a signal that nothing else here uses.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) }, 0);
    let connecting = std::thread::spawn(move || Socket::connect(&address.into(), Duration::from_secs(300)).map(drop));
    wait_until(&|| is_unanswered(address.port()));
    // SAFETY: the thread has not ended: no connection is taken yet.
    assert_eq!(unsafe { libc::pthread_kill(connecting.as_pthread_t(), libc::SIGUSR2) }, 0);
    wait_until(&|| CAUGHT.load(SeqCst) > 0);
    // Now another one may wait, which the kernel takes when it is asked once more.
    let _taken = listener.accept().unwrap();
    assert_eq!(connecting.join().unwrap().map_err(|error| error.errno), Ok(()));
}

#[test]
fn unix_sockets_carry_the_same() {
    let path = std::env::temp_dir().join(format!("hinterland-socket-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let address = Address::Unix(path.to_str().unwrap().into());
    let limit = Duration::from_millis(200);
    let mut socket = Socket::connect(&address, limit).unwrap();
    assert!(socket.is_ours());
    let mut peer = listener.accept().unwrap().0;
    socket.send([&b"there"[..]].into_iter()).unwrap();
    let mut bytes = [0; 5];
    peer.read_exact(&mut bytes).unwrap();
    peer.write_all(&bytes).unwrap();
    let mut back = [0; 5];
    socket.receive([&mut back[..]].into_iter()).unwrap();
    assert_eq!(&back, b"there");
    assert_eq!(socket.receive([&mut back[..]].into_iter()).unwrap_err().errno, libc::ETIMEDOUT);
    // Nobody takes connections: the queue is full at last, and connecting ends at the limit.
    let mut held = Vec::new();
    let refused = loop {
        assert!(held.len() < 10_000, "the queue has no end");
        match Socket::connect(&address, limit) {
            Ok(socket) => held.push(socket),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno, libc::ETIMEDOUT);
    std::fs::remove_file(&path).unwrap();
}

/// Only root can listen as somebody else.
#[test]
fn a_socket_of_another_user_is_refused() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: not root");
        return;
    }
    let path = std::env::temp_dir().join(format!("hinterland-other-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let place = path.clone();
    let listen = move || {
        // SAFETY: the call itself changes the calling thread alone, which ends here.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) }, 0);
        std::os::unix::net::UnixListener::bind(place).unwrap()
    };
    let _listener = std::thread::spawn(listen).join().unwrap();
    let refused = Socket::connect(&Address::Unix(path.to_str().unwrap().into()), Duration::from_secs(5));
    assert_eq!(refused.map(drop).unwrap_err().errno, libc::EACCES);
    std::fs::remove_file(&path).unwrap();
}

/// Out of a program's reach, as far as this test's limit on descriptors allows.
fn hide_high(fd: RawFd) -> std::io::Result<RawFd> {
    // SAFETY: duplicates a descriptor of the caller's; no memory is touched.
    let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIDDEN_FROM) };
    if high < 0 {
        return Ok(fd);
    }
    // SAFETY: the caller hands it over; its duplicate lives on.
    unsafe { libc::close(fd) };
    Ok(high)
}

const HIDDEN_FROM: RawFd = 900;

/// Sends a byte, and a file beside it.
fn send_beside(stream: &std::os::unix::net::UnixStream, mut byte: u8, file: &std::fs::File) {
    let head_bytes = size_of::<libc::cmsghdr>();
    let head = libc::cmsghdr { cmsg_len: ANCILLARY_BYTES, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
    let mut ancillary = Ancillary { head, fd: file.as_raw_fd() };
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: plain data, for which zeros are valid values.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut ancillary).cast(), head_bytes + 8);
    // SAFETY: what the message points at lives until the call returns.
    assert_eq!(unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, 0) }, 1);
}

#[test]
fn a_descriptor_is_out_of_reach_before_the_rest_of_its_message_is_there() {
    crate::descriptor::hide_with(hide_high, |_| {});
    let path = std::env::temp_dir().join(format!("hinterland-beside-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let address = Address::Unix(path.to_str().unwrap().into());
    let mut socket = Socket::connect(&address, Duration::from_secs(60)).unwrap();
    let mut peer = listener.accept().unwrap().0;
    // The numbers of the file in this process.
    let numbers = || -> Vec<RawFd> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let is_it = |path: &std::path::Path| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("beside-it"))
        };
        let found = entries.filter(|entry| is_it(&entry.path()));
        found.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let sender = std::thread::spawn(move || {
        // SAFETY: the name is a C string; the descriptor is new.
        let file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"beside-it".as_ptr(), 0)) };
        send_beside(&peer, b'h', &file);
        drop(file);
        // The rest is sent only then: a descriptor that stays within reach ends the test by the socket's limit.
        while !matches!(numbers()[..], [number] if number >= HIDDEN_FROM) {
            std::thread::sleep(Duration::from_millis(5));
        }
        peer.write_all(b"ello").unwrap();
    });
    let mut bytes = [0; 5];
    let received = socket.receive_with([&mut bytes[..]].into_iter()).unwrap();
    sender.join().unwrap();
    assert_eq!(&bytes, b"hello");
    assert!(received.is_some() && numbers().len() == 1);
    drop(received);
    assert_eq!(numbers(), []);
    std::fs::remove_file(&path).unwrap();
}
