//! System calls on far buffers: the functions that busy programs call.
//!
//! On the inline path, with a far pointer, these make the call themselves (`inline::wrapped`); otherwise the next definition is
//! called, with all that libc does around it. Functions that name memory by arrays make their calls themselves whenever the
//! inline path is on: libc's own would be caught, at the price of a signal.

use super::next_symbol::next;
use crate::inline::syscalls::{attaches_filter, is_far, names_memory, receives_without_copy, zero_copy};
use crate::inline::wrapped::{self, Range};
use crate::{device_pins, errno, inline};
use libc::{c_int, c_uint};

/// An argument as the kernel takes it.
trait Word {
    fn word(self) -> usize;
}

impl Word for usize {
    fn word(self) -> usize {
        self
    }
}

impl Word for i64 {
    fn word(self) -> usize {
        isize::try_from(self).map_or(0, isize::cast_unsigned)
    }
}

impl Word for c_int {
    fn word(self) -> usize {
        i64::from(self).word()
    }
}

impl Word for c_uint {
    fn word(self) -> usize {
        self as usize
    }
}

/// An answer in the function's own type.
trait Answer {
    fn answer(from: isize) -> Self;
}

impl Answer for isize {
    fn answer(from: isize) -> isize {
        from
    }
}

impl Answer for c_int {
    fn answer(from: isize) -> c_int {
        c_int::try_from(from).unwrap_or(-1)
    }
}

/// The kernel takes six arguments.
fn six<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut six = [0; 6];
    six[..N].copy_from_slice(&given);
    six
}

/// Length of what a pointer to a length points at: the kernel reads it, but we follow no pointer. An address of a socket.
const ADDRESS_BYTES: usize = size_of::<libc::sockaddr_storage>();

/// Bytes of a set of that many descriptors; too large a number is refused by the kernel.
fn bits(count: c_int) -> usize {
    count.word().div_ceil(64).saturating_mul(size_of::<u64>())
}

/// Defines functions: `name(arguments) -> type = SYS_number(its arguments) if condition, on (start, len), …;`
macro_rules! on_ranges {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $out:ty = $number:ident($($passed:expr),*)
        if $condition:expr, on $(($start:expr, $len:expr)),+;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $out {
            if ($condition) && inline::active() {
                let ranges = [$(Range { start: $start, len: $len }),+];
                return Answer::answer(wrapped::on_ranges(libc::$number, six([$($passed.word()),*]), ranges));
            }
            let next = next!($name: unsafe extern "C" fn($($kind),*) -> $out);
            // SAFETY: the program's own call.
            unsafe { next($($argument),*) }
        }
    )*};
}

on_ranges! {
    read(fd: c_int, at: usize, len: usize) -> isize = SYS_read(fd, at, len) if is_far(at), on (at, len);
    write(fd: c_int, at: usize, len: usize) -> isize = SYS_write(fd, at, len) if is_far(at), on (at, len);
    pread(fd: c_int, at: usize, len: usize, offset: i64) -> isize
        = SYS_pread64(fd, at, len, offset) if is_far(at), on (at, len);
    pread64(fd: c_int, at: usize, len: usize, offset: i64) -> isize
        = SYS_pread64(fd, at, len, offset) if is_far(at), on (at, len);
    pwrite(fd: c_int, at: usize, len: usize, offset: i64) -> isize
        = SYS_pwrite64(fd, at, len, offset) if is_far(at), on (at, len);
    pwrite64(fd: c_int, at: usize, len: usize, offset: i64) -> isize
        = SYS_pwrite64(fd, at, len, offset) if is_far(at), on (at, len);
    recv(fd: c_int, at: usize, len: usize, flags: c_int) -> isize
        = SYS_recvfrom(fd, at, len, flags) if is_far(at), on (at, len);
    send(fd: c_int, at: usize, len: usize, flags: c_int) -> isize
        = SYS_sendto(fd, at, len, flags) if is_far(at), on (at, len);
    recvfrom(fd: c_int, at: usize, len: usize, flags: c_int, name: usize, name_len: usize) -> isize
        = SYS_recvfrom(fd, at, len, flags, name, name_len) if is_far(at) || is_far(name) || is_far(name_len),
        on (at, len), (name, ADDRESS_BYTES), (name_len, size_of::<libc::socklen_t>());
    sendto(fd: c_int, at: usize, len: usize, flags: c_int, name: usize, name_len: c_uint) -> isize
        = SYS_sendto(fd, at, len, flags, name, name_len) if is_far(at) || is_far(name),
        on (at, len), (name, ADDRESS_BYTES);
    // What programs call that were compiled with checks: the room's size is the last argument, or the one before the flags.
    __read_chk(fd: c_int, at: usize, len: usize, room: usize) -> isize
        = SYS_read(fd, at, len) if is_far(at) && len <= room, on (at, len);
    __pread_chk(fd: c_int, at: usize, len: usize, offset: i64, room: usize) -> isize
        = SYS_pread64(fd, at, len, offset) if is_far(at) && len <= room, on (at, len);
    __pread64_chk(fd: c_int, at: usize, len: usize, offset: i64, room: usize) -> isize
        = SYS_pread64(fd, at, len, offset) if is_far(at) && len <= room, on (at, len);
    __recv_chk(fd: c_int, at: usize, len: usize, room: usize, flags: c_int) -> isize
        = SYS_recvfrom(fd, at, len, flags) if is_far(at) && len <= room, on (at, len);
    __recvfrom_chk(fd: c_int, at: usize, len: usize, room: usize, flags: c_int, name: usize, name_len: usize) -> isize
        = SYS_recvfrom(fd, at, len, flags, name, name_len)
        if len <= room && (is_far(at) || is_far(name) || is_far(name_len)),
        on (at, len), (name, ADDRESS_BYTES), (name_len, size_of::<libc::socklen_t>());
    poll(at: usize, count: u64_t, timeout: c_int) -> c_int
        = SYS_poll(at, count, timeout) if is_far(at), on (at, count.saturating_mul(size_of::<libc::pollfd>()));
    __poll_chk(at: usize, count: u64_t, timeout: c_int, room: usize) -> c_int
        = SYS_poll(at, count, timeout) if is_far(at) && room / size_of::<libc::pollfd>() >= count,
        on (at, count.saturating_mul(size_of::<libc::pollfd>()));
    epoll_wait(fd: c_int, at: usize, count: c_int, timeout: c_int) -> c_int
        = SYS_epoll_wait(fd, at, count, timeout) if is_far(at),
        on (at, count.word().saturating_mul(size_of::<libc::epoll_event>()));
    epoll_ctl(fd: c_int, operation: c_int, of: c_int, at: usize) -> c_int
        = SYS_epoll_ctl(fd, operation, of, at) if is_far(at), on (at, size_of::<libc::epoll_event>());
    // Whatever its arguments: libc's own uses another call, whose site is patched.
    select(count: c_int, reads: usize, writes: usize, others: usize, limit: usize) -> c_int
        = SYS_select(count, reads, writes, others, limit) if true,
        on (reads, bits(count)), (writes, bits(count)), (others, bits(count)), (limit, size_of::<libc::timeval>());
    getrandom(at: usize, len: usize, flags: c_uint) -> isize
        = SYS_getrandom(at, len, flags) if is_far(at), on (at, len);
}

/// `nfds_t`: an unsigned long.
#[allow(non_camel_case_types, reason = "named as C would")]
type u64_t = usize;

/// Defines functions that are performed by one of `wrapped`'s whenever the inline path is on.
macro_rules! always {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $out:ty = $way:ident $number:ident($($passed:expr),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $out {
            if inline::active() {
                return Answer::answer(wrapped::$way(libc::$number, six([$($passed.word()),*])));
            }
            let next = next!($name: unsafe extern "C" fn($($kind),*) -> $out);
            // SAFETY: the program's own call.
            unsafe { next($($argument),*) }
        }
    )*};
}

always! {
    readv(fd: c_int, at: usize, count: c_int) -> isize = on_array SYS_readv(fd, at, count);
    writev(fd: c_int, at: usize, count: c_int) -> isize = on_array SYS_writev(fd, at, count);
    preadv(fd: c_int, at: usize, count: c_int, offset: i64) -> isize = on_array SYS_preadv(fd, at, count, offset);
    preadv64(fd: c_int, at: usize, count: c_int, offset: i64) -> isize = on_array SYS_preadv(fd, at, count, offset);
    pwritev(fd: c_int, at: usize, count: c_int, offset: i64) -> isize = on_array SYS_pwritev(fd, at, count, offset);
    pwritev64(fd: c_int, at: usize, count: c_int, offset: i64) -> isize = on_array SYS_pwritev(fd, at, count, offset);
    preadv2(fd: c_int, at: usize, count: c_int, offset: i64, flags: c_int) -> isize
        = on_array SYS_preadv2(fd, at, count, offset, 0usize, flags);
    preadv64v2(fd: c_int, at: usize, count: c_int, offset: i64, flags: c_int) -> isize
        = on_array SYS_preadv2(fd, at, count, offset, 0usize, flags);
    pwritev2(fd: c_int, at: usize, count: c_int, offset: i64, flags: c_int) -> isize
        = on_array SYS_pwritev2(fd, at, count, offset, 0usize, flags);
    pwritev64v2(fd: c_int, at: usize, count: c_int, offset: i64, flags: c_int) -> isize
        = on_array SYS_pwritev2(fd, at, count, offset, 0usize, flags);
    recvmsg(fd: c_int, at: usize, flags: c_int) -> isize = on_message SYS_recvmsg(fd, at, flags);
    sendmsg(fd: c_int, at: usize, flags: c_int) -> isize = on_message SYS_sendmsg(fd, at, flags);
    recvmmsg(fd: c_int, at: usize, count: c_uint, flags: c_int, timeout: usize) -> c_int
        = by_the_rules SYS_recvmmsg(fd, at, count, flags, timeout);
    sendmmsg(fd: c_int, at: usize, count: c_uint, flags: c_int) -> c_int
        = by_the_rules SYS_sendmmsg(fd, at, count, flags);
}

/// Defines the calls on another process's memory: on both paths, because that process may be on the other one.
macro_rules! between_processes {
    ($($name:ident = $number:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            process: c_int, ours: usize, count: usize, theirs: usize, their_count: usize, flags: usize,
        ) -> isize {
            let arguments = [process.word(), ours, count, theirs, their_count, flags];
            wrapped::between_processes(libc::$number, arguments)
        }
    )*};
}

between_processes! {
    process_vm_readv = SYS_process_vm_readv;
    process_vm_writev = SYS_process_vm_writev;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(fd: c_int, at: usize, count: c_int, timeout: c_int, mask: usize) -> c_int {
    const MASK_BYTES: usize = size_of::<u64>();
    if inline::active() {
        let len = count.word().saturating_mul(size_of::<libc::epoll_event>());
        let arguments = [fd.word(), at, count.word(), timeout.word(), mask, MASK_BYTES];
        let answer = if mask == 0 {
            wrapped::on_ranges(libc::SYS_epoll_pwait, arguments, [Range { start: at, len }])
        } else {
            wrapped::by_the_rules(libc::SYS_epoll_pwait, arguments)
        };
        return Answer::answer(answer);
    }
    let next = next!(epoll_pwait: unsafe extern "C" fn(c_int, usize, c_int, c_int, usize) -> c_int);
    // SAFETY: the program's own call.
    unsafe { next(fd, at, count, timeout, mask) }
}

/// Variadic in C; the third argument is in its register whether or not it was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
    device_pins::note(request);
    if (is_far(argument) || names_memory(request)) && inline::active() {
        return Answer::answer(wrapped::by_the_rules(libc::SYS_ioctl, six([fd.word(), request, argument])));
    }
    let next = next!(ioctl: unsafe extern "C" fn(c_int, usize, usize, ...) -> c_int);
    // SAFETY: the program's own call.
    unsafe { next(fd, request, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(fd: c_int, level: c_int, option: c_int, value: usize, len: c_uint) -> c_int {
    let (named_level, named_option) = (level.word(), option.word());
    device_pins::note_option(named_level, named_option);
    if inline::active() {
        if zero_copy(named_level, named_option) {
            errno::set(libc::EOPNOTSUPP);
            return -1;
        }
        if is_far(value) || attaches_filter(named_level, named_option) {
            let arguments = six([fd.word(), named_level, named_option, value, len.word()]);
            return Answer::answer(wrapped::by_the_rules(libc::SYS_setsockopt, arguments));
        }
    }
    let next = next!(setsockopt: unsafe extern "C" fn(c_int, c_int, c_int, usize, c_uint) -> c_int);
    // SAFETY: the program's own call.
    unsafe { next(fd, level, option, value, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(fd: c_int, level: c_int, option: c_int, value: usize, len: usize) -> c_int {
    let (named_level, named_option) = (level.word(), option.word());
    if receives_without_copy(named_level, named_option) && inline::active() {
        let arguments = six([fd.word(), named_level, named_option, value, len]);
        return Answer::answer(wrapped::by_the_rules(libc::SYS_getsockopt, arguments));
    }
    let next = next!(getsockopt: unsafe extern "C" fn(c_int, c_int, c_int, usize, usize) -> c_int);
    // SAFETY: the program's own call.
    unsafe { next(fd, level, option, value, len) }
}
