//! Calls whose arguments depend on a request: pointers in structures, structures of various lengths.
//!
//! Numbers and layouts: the headers named at each. Those of ioctl(2) are `ioctl`'s.

use super::bpf::bpf;
use super::ioctl::ioctl;
use super::pieces::whole_bytes;
use super::pinned::Pins;
use super::table::Row;
use super::{copy, refused};
use crate::device_pins;
use crate::fork::id_words;
use crate::inline::call::Call;
use hinterland_pager::PinAccess::{Read, Write};

/// What a request points at at least, though its number may tell less or nothing: no structure of the old ioctls is larger. And a
/// structure whose length the kernel finds by itself.
pub(super) const LARGE_BYTES: usize = 4096;

/// Makes a call that is covered by request.
pub(super) fn nested(call: &Call, row: &Row) -> isize {
    let [_, second, third, fourth, ..] = call.arguments;
    let mut pins = Pins::new();
    match call.number {
        // A thread cannot be made from here: it would start in this frame, on another stack. libc then uses clone(2).
        libc::SYS_clone3 => return refused(libc::ENOSYS),
        libc::SYS_ioctl => ioctl(&mut pins, second, third),
        libc::SYS_futex => {
            pins.add(call.arguments[0], size_of::<u32>(), Write);
            futex(&mut pins, second, fourth, call.arguments[4]);
        }
        libc::SYS_setsockopt => {
            if zero_copy(second, third) {
                return refused(libc::EOPNOTSUPP);
            }
            device_pins::note_option(second, third);
            pins.add_arguments(row.shapes, &call.arguments);
            if attaches_filter(second, third) {
                filter_program(&mut pins, fourth);
            }
        }
        _ => {
            pins.add_arguments(row.shapes, &call.arguments);
            by_call(&mut pins, call);
        }
    }
    call.issue(call.arguments)
}

/// linux/prctl.h: as bytes, "AUXV".
const PR_GET_AUXV: i32 = 0x4155_5856;

fn by_call(pins: &mut Pins, call: &Call) {
    const XATTR: [i64; 2] = [463, 464];
    const FUTEX_WAITV: i64 = 449;
    const FUTEX_REQUEUE: i64 = 456;
    let [first, second, third, ..] = call.arguments;
    match call.number {
        libc::SYS_set_tid_address => id_words::keep(first),
        libc::SYS_prctl if first == size(libc::PR_SET_SECCOMP) => filter_program(pins, third),
        // All of it, as long as it is; and what becomes of it.
        libc::SYS_prctl if first == size(PR_GET_AUXV) => {
            pins.add(second, third.min(whole_bytes()), Write);
        }
        libc::SYS_prctl if first == size(libc::PR_SET_MM) => {
            pins.add(third, call.arguments[3].min(whole_bytes()), Read);
        }
        libc::SYS_getsockopt => socket_option(pins, second, third, call.arguments[3], call.arguments[4]),
        libc::SYS_seccomp => filter_program(pins, third),
        libc::SYS_ptrace => register_set(pins, first, call.arguments[3]),
        libc::SYS_bpf => bpf(pins, first, second),
        libc::SYS_keyctl => key_payloads(pins, &call.arguments),
        FUTEX_WAITV => futexes(pins, first, second.min(128)),
        FUTEX_REQUEUE => futexes(pins, first, 2),
        // linux/xattr.h: struct xattr_args.
        number if XATTR.contains(&number) => {
            let [value, bytes] = word_pair(call.arguments[4]);
            pins.add(value, bytes & 0xffff_ffff, Write);
        }
        _ => {}
    }
}

fn size(number: i32) -> usize {
    number.unsigned_abs() as usize
}

/// Two words at an address of the program's; zeros where they cannot be read.
fn word_pair(at: usize) -> [usize; 2] {
    copy::read(at).unwrap_or_default()
}

/// A word at an address of the program's; zero where it cannot be read.
pub(super) fn word(at: usize) -> usize {
    copy::read::<[usize; 1]>(at).map_or(0, |[word]| word)
}

/// A 32-bit number at an address of the program's; zero where it cannot be read.
pub(super) fn number(at: usize) -> usize {
    copy::read::<u32>(at).unwrap_or(0) as usize
}

/// A 16-bit number at an address of the program's; zero where it cannot be read.
pub(super) fn half(at: usize) -> usize {
    copy::read::<[u8; 2]>(at).map_or(0, |bytes| u16::from_ne_bytes(bytes).into())
}

/// Whether a socket option asks for sending without copying: the kernel would read pages after the call.
pub(crate) fn zero_copy(level: usize, option: usize) -> bool {
    level == size(libc::SOL_SOCKET) && option == size(libc::SO_ZEROCOPY)
}

/// Whether a socket option carries a filter program: linux/filter.h, linux/if_packet.h.
pub(crate) fn attaches_filter(level: usize, option: usize) -> bool {
    const PACKET_FANOUT_DATA: usize = 22;
    let filters = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
    level == size(libc::SOL_SOCKET) && filters.iter().any(|filter| option == size(*filter))
        || (level, option) == (size(libc::SOL_PACKET), PACKET_FANOUT_DATA)
}

/// Whether what a socket option is asked for names memory that the kernel writes to.
pub(crate) fn receives_without_copy(level: usize, option: usize) -> bool {
    const TCP_ZEROCOPY_RECEIVE: usize = 35;
    (level, option) == (size(libc::IPPROTO_TCP), TCP_ZEROCOPY_RECEIVE)
}

/// getsockopt(2): a filter program is as long as so many instructions; linux/tcp.h: struct tcp_zerocopy_receive names a buffer for
/// what cannot be mapped, and one for control data.
fn socket_option(pins: &mut Pins, level: usize, option: usize, value: usize, len: usize) {
    if (level, option) == (size(libc::SOL_SOCKET), size(libc::SO_GET_FILTER)) {
        pins.add(value, (number(len) * size_of::<libc::sock_filter>()).min(whole_bytes()), Write);
    } else if receives_without_copy(level, option) {
        pins.add(word(value + 24), number(value + 32).min(whole_bytes()), Write);
        pins.add(word(value + 40), word(value + 48).min(whole_bytes()), Write);
    }
}

/// linux/filter.h: struct sock_fprog, the number of instructions and their address.
fn filter_program(pins: &mut Pins, at: usize) {
    let [len, program] = word_pair(at);
    pins.add(program, (len & 0xffff) * size_of::<libc::sock_filter>(), Read);
}

/// ptrace(2): register sets are named by an iovec.
fn register_set(pins: &mut Pins, request: usize, data: usize) {
    const GETREGSET: usize = 0x4204;
    const SETREGSET: usize = 0x4205;
    if matches!(request, GETREGSET | SETREGSET) {
        let [start, len] = word_pair(data);
        pins.add(start, len, Write);
    }
}

/// linux/futex.h: what follows the word depends on the operation.
fn futex(pins: &mut Pins, operation: usize, timeout: usize, second: usize) {
    let operation = i32::try_from(operation & 0xffff_ffff).unwrap_or(-1);
    match operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            pins.add(timeout, size_of::<libc::timespec>(), Read);
        }
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP | libc::FUTEX_CMP_REQUEUE_PI => {
            pins.add(second, size_of::<u32>(), Write);
        }
        libc::FUTEX_WAIT_REQUEUE_PI => {
            pins.add(timeout, size_of::<libc::timespec>(), Read);
            pins.add(second, size_of::<u32>(), Write);
        }
        _ => {}
    }
}

/// linux/futex.h, Linux 5.14.
const FUTEX_LOCK_PI2: i32 = 13;

/// linux/futex.h: struct futex_waitv, 24 bytes with the word's address in the middle.
fn futexes(pins: &mut Pins, waiters: usize, count: usize) {
    for index in 0..count {
        pins.add(word(waiters + index * 24 + 8), size_of::<u32>(), Write);
    }
}

/// keyctl(2): a buffer is followed by its length.
fn key_payloads(pins: &mut Pins, arguments: &[usize; 6]) {
    const PAYLOAD_MAX: usize = 1 << 20;
    for pair in arguments[1..5].windows(2) {
        pins.add(pair[0], pair[1].min(PAYLOAD_MAX), Write);
    }
}
