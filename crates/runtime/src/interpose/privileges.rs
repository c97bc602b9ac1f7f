//! Namespaces, users and groups: calls that threads of ours must not stand in the way of (`single_thread`).

use super::next_symbol::next;
use crate::{errno, parent_death, single_thread, user_copy};
use libc::{c_char, c_int, gid_t, size_t, uid_t};

/// `NGROUPS_MAX` of linux/limits.h.
const GROUPS_MAX: usize = 65536;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let next = next!(unshare: unsafe extern "C" fn(c_int) -> c_int);
    // SAFETY: the program's own call.
    single_thread::unshare(flags).map_or_else(|| unsafe { next(flags) }, errno::of_kernel)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kinds: c_int) -> c_int {
    let next = next!(setns: unsafe extern "C" fn(c_int, c_int) -> c_int);
    // SAFETY: the program's own call.
    single_thread::setns(fd, kinds).map_or_else(|| unsafe { next(fd, kinds) }, errno::of_kernel)
}

/// Calls that libc has every thread make, and that take numbers only.
macro_rules! of_every_thread {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let next = next!($name: unsafe extern "C" fn($($type),*) -> c_int);
            // SAFETY: the program's own call.
            let answer = single_thread::with_equal_rights(|| unsafe { next($($argument),*) });
            parent_death::again();
            answer
        }
    )*};
}

of_every_thread! {
    setuid(user: uid_t);
    setgid(group: gid_t);
    seteuid(user: uid_t);
    setegid(group: gid_t);
    setreuid(real: uid_t, effective: uid_t);
    setregid(real: gid_t, effective: gid_t);
    setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    setresgid(real: gid_t, effective: gid_t, saved: gid_t);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setgroups(count: size_t, groups: *const gid_t) -> c_int {
    let next = next!(setgroups: unsafe extern "C" fn(size_t, *const gid_t) -> c_int);
    // In near memory, for the time without a monitor.
    let mut near = vec![0u8; count.min(GROUPS_MAX) * size_of::<gid_t>()];
    if count > GROUPS_MAX || user_copy::read_bytes(groups.addr(), &mut near).is_err() {
        // SAFETY: the program's own call, which fails.
        return unsafe { next(count, groups) };
    }
    // SAFETY: the program's own call, with a copy of its list.
    single_thread::with_equal_rights(|| unsafe { next(count, near.as_ptr().cast()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn initgroups(user: *const c_char, group: gid_t) -> c_int {
    let next = next!(initgroups: unsafe extern "C" fn(*const c_char, gid_t) -> c_int);
    if !single_thread::rights_differ() {
        // SAFETY: the program's own call.
        return unsafe { next(user, group) };
    }
    // As libc, whose own call of setgroups goes past ours: as many as the kernel takes.
    let mut groups: Vec<gid_t> = vec![0; 64];
    loop {
        let mut count = c_int::try_from(groups.len()).unwrap_or(c_int::MAX);
        // SAFETY: a name of the program's, and room for so many.
        let whole = unsafe { libc::getgrouplist(user, group, groups.as_mut_ptr(), &raw mut count) } >= 0;
        let count = usize::try_from(count).unwrap_or(0);
        if whole || count <= groups.len() {
            groups.truncate(count);
            break;
        }
        groups.resize(count, 0);
    }
    loop {
        // SAFETY: a list of so many.
        let answer = unsafe { setgroups(groups.len(), groups.as_ptr()) };
        if answer == 0 || errno::get() != libc::EINVAL || groups.len() <= 1 {
            return answer;
        }
        groups.pop();
    }
}
