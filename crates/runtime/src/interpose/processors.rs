//! Which processors there are. A traced program runs on one, and is not to see that ([`crate::trace::processors`]), nor to change it: calls
//! that set the processors of its own threads report success.

use super::next_symbol::next;
use crate::inline::raw;
use crate::{errno, trace};
use hinterland_sys::thread;
use libc::{c_int, c_long, cpu_set_t, pid_t, pthread_attr_t, pthread_t};

/// Fills a set of `bytes` bytes with the processors that a traced program may take for its own. False: it is to ask the kernel. A set that
/// is too small for them is the kernel's to refuse, as is one that is not there.
///
/// # Safety
/// `set` is null or has room for `bytes` bytes.
unsafe fn fill(bytes: usize, set: *mut cpu_set_t) -> bool {
    let Some(processors) = trace::processors().filter(|_| !set.is_null()) else { return false };
    let words = processors.words();
    // SAFETY: the caller's promise; both are plain bytes, and do not overlap.
    unsafe {
        set.cast::<u8>().write_bytes(0, bytes);
        set.cast::<u8>().copy_from_nonoverlapping(words.as_ptr().cast(), size_of_val(&words).min(bytes));
    }
    true
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(process: pid_t, bytes: usize, set: *mut cpu_set_t) -> c_int {
    let next = next!(sched_getaffinity: unsafe extern "C" fn(pid_t, usize, *mut cpu_set_t) -> c_int);
    // SAFETY: the program's own call.
    let rc = unsafe { next(process, bytes, set) };
    if rc == 0 && (process == 0 || u32::try_from(process) == Ok(thread::process())) {
        // SAFETY: the kernel has just filled the set.
        unsafe { fill(bytes, set) };
    }
    rc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getaffinity_np(thread: pthread_t, bytes: usize, set: *mut cpu_set_t) -> c_int {
    let next = next!(pthread_getaffinity_np: unsafe extern "C" fn(pthread_t, usize, *mut cpu_set_t) -> c_int);
    // SAFETY: the program's own call.
    let rc = unsafe { next(thread, bytes, set) };
    if rc == 0 {
        // SAFETY: the kernel has just filled the set.
        unsafe { fill(bytes, set) };
    }
    rc
}

/// The outcome of a call of a traced program that sets the processors of a thread of its own: 0, or the error of a set in which none is for it.
/// `None`: the kernel has to be asked.
///
/// # Safety
/// `set` is null or has `bytes` bytes.
unsafe fn set(bytes: usize, set: *const cpu_set_t) -> Option<c_int> {
    let processors = trace::processors().filter(|_| !set.is_null())?;
    let mut asked = processors.words();
    asked.fill(0);
    // SAFETY: the caller's promise; both are plain bytes, and do not overlap.
    unsafe {
        asked.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(set.cast(), size_of_val(&asked).min(bytes));
    }
    let is_one_of_them = processors.words().iter().zip(asked).any(|(ours, asked)| ours & asked != 0);
    Some(if is_one_of_them { 0 } else { libc::EINVAL })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(process: pid_t, bytes: usize, processors: *const cpu_set_t) -> c_int {
    let next = next!(sched_setaffinity: unsafe extern "C" fn(pid_t, usize, *const cpu_set_t) -> c_int);
    // SAFETY: as here.
    match unsafe { set(bytes, processors) }.filter(|_| process == 0 || raw::has_thread(process)) {
        Some(0) => 0,
        Some(error) => {
            errno::set(error);
            -1
        }
        // SAFETY: the program's own call.
        None => unsafe { next(process, bytes, processors) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setaffinity_np(
    thread: pthread_t,
    bytes: usize,
    processors: *const cpu_set_t,
) -> c_int {
    let next = next!(pthread_setaffinity_np: unsafe extern "C" fn(pthread_t, usize, *const cpu_set_t) -> c_int);
    // SAFETY: the program's own call.
    unsafe { set(bytes, processors).unwrap_or_else(|| next(thread, bytes, processors)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_attr_setaffinity_np(
    attributes: *mut pthread_attr_t,
    bytes: usize,
    processors: *const cpu_set_t,
) -> c_int {
    let next = next!(
        pthread_attr_setaffinity_np: unsafe extern "C" fn(*mut pthread_attr_t, usize, *const cpu_set_t) -> c_int
    );
    // What is in the attributes is set when a thread is made.
    // SAFETY: the program's own call.
    unsafe { set(bytes, processors).unwrap_or_else(|| next(attributes, bytes, processors)) }
}

/// What libc answers untraced to the question how many processors there are, from its answer `own` in this thread. It counts the machine's, which
/// are no fewer than the program may take; or, in glibc 2.34 and musl, those that the thread may take: of a traced program, one.
fn untraced(own: c_long) -> c_long {
    let allowed = trace::processors().map(|processors| processors.count());
    allowed.map_or(own, |count| own.max(c_long::try_from(count).unwrap_or(c_long::MAX)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_nprocs() -> c_int {
    let next = next!(get_nprocs: unsafe extern "C" fn() -> c_int);
    // SAFETY: the program's own call.
    let own = unsafe { next() };
    c_int::try_from(untraced(own.into())).unwrap_or(c_int::MAX)
}

unsafe extern "C" {
    /// Another name of libc's: nothing has to be looked up where a constructor calls it, or an allocator.
    #[link_name = "__sysconf"]
    fn libc_sysconf(name: c_int) -> c_long;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysconf(name: c_int) -> c_long {
    // SAFETY: the program's own call.
    let own = unsafe { libc_sysconf(name) };
    if name == libc::_SC_NPROCESSORS_ONLN { untraced(own) } else { own }
}
