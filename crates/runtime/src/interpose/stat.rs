//! stat(2) of the directory of this process's threads: its links count them (proc(5)), and programs that must be alone look there
//! (Chromium's zygote, before it forks). Threads of ours are left out.
//!
//! Since glibc 2.33 these are functions of their own names.

use super::next_symbol::next;
use hinterland_sys::thread;
use libc::{c_char, c_int};
use std::ffi::CStr;

type Stat = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
type StatAt = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat, c_int) -> c_int;

/// A directory of /proc has no size, and two links beside those of its entries.
const LINKS_OF_NONE: libc::nlink_t = 2;

/// Whether what was found may be such a directory, and threads of ours in it.
fn may_count_ours(found: &libc::stat) -> bool {
    found.st_mode & libc::S_IFMT == libc::S_IFDIR && found.st_size == 0 && found.st_nlink > LINKS_OF_NONE + 1
}

/// Whether a path ends as that of the threads of process `own` does.
fn names_own_threads(path: &[u8], own: u32) -> bool {
    let mut parts = path.split(|byte| *byte == b'/').rev().skip_while(|part| part.is_empty());
    let (last, before) = (parts.next(), parts.next());
    last == Some(b"task") && before.is_some_and(|part| part == b"self" || part == own.to_string().as_bytes())
}

/// Looks, and again if it was at the directory of our own process, until no thread of ours begins or ends meanwhile.
///
/// # Safety
/// `path` and `found` are what the program passed to `look`, which passes them to libc.
unsafe fn counted(path: *const c_char, found: *mut libc::stat, look: impl Fn() -> c_int) -> c_int {
    let answer = look();
    // SAFETY: libc could read and write them.
    let concerned = answer == 0
        && unsafe { may_count_ours(&*found) && names_own_threads(CStr::from_ptr(path).to_bytes(), std::process::id()) };
    if !concerned || crate::pager().is_none() {
        return answer;
    }
    let Some((answer, ours)) = thread::beside_ours(|_| look()) else { return answer };
    if answer == 0 {
        // SAFETY: as above.
        let links = unsafe { &mut (*found).st_nlink };
        *links = links.saturating_sub(ours.into()).max(LINKS_OF_NONE + 1);
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, found: *mut libc::stat) -> c_int {
    let next = next!(stat: Stat);
    // SAFETY: the program's own call.
    unsafe { counted(path, found, || next(path, found)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat64(path: *const c_char, found: *mut libc::stat) -> c_int {
    let next = next!(stat64: Stat);
    // SAFETY: the program's own call.
    unsafe { counted(path, found, || next(path, found)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat(directory: c_int, path: *const c_char, found: *mut libc::stat, flags: c_int) -> c_int {
    let next = next!(fstatat: StatAt);
    // SAFETY: the program's own call.
    unsafe { counted(path, found, || next(directory, path, found, flags)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat64(
    directory: c_int,
    path: *const c_char,
    found: *mut libc::stat,
    flags: c_int,
) -> c_int {
    let next = next!(fstatat64: StatAt);
    // SAFETY: the program's own call.
    unsafe { counted(path, found, || next(directory, path, found, flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_name_the_threads_of_this_process() {
        let own = |path: &str| names_own_threads(path.as_bytes(), 77);
        assert!(own("/proc/self/task") && own("self/task/") && own("/proc/77/task//") && own("../proc/self/task"));
        assert!(!own("/proc/78/task") && !own("task") && !own("/proc/self/task/77") && !own("") && !own("/tmp/task"));
    }
}
