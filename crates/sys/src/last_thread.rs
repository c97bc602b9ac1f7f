//! The end of a process whose last thread leaves by exit(2), not by exit_group(2).
//!
//! Natively the process is over then. Threads of ours would keep it alive for ever, so one of them does nothing but wait for that
//! moment and end the process. How the threads leave makes no difference: by libc, by a raw call, by an instruction of the
//! program's own.
//!
//! The code of the process is that of the thread that leaves last (Linux 6.0, `synchronize_group_exit` in `kernel/exit.c`), before
//! that of the first thread. The kernel keeps the first one's; another thread's is known only if it leaves by libc (0) or is
//! announced (`leaving`). If the first one leaves unannounced and others follow at once, its code is taken for theirs.
//!
//! The first thread is never gone while it lives, so the wait sleeps until the kernel clears the word that tells of that thread's
//! end (`CLONE_CHILD_CLEARTID`, set_tid_address(2)). Only then the other threads are counted, some times a second, until none but
//! ours is left. Both are asked of `/proc/self/stat`, opened in advance: proc_pid_stat(5), fields 3 (state), 20 (threads, a
//! first thread that has left among them) and 52 (the code of the first thread).

use crate::{confinement, descriptor, thread, trampoline};
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// `/proc/self/stat` of this process; -1: not open, no thread watches.
static STAT: AtomicI32 = AtomicI32::new(-1);
/// The first thread's number.
static FIRST: AtomicU32 = AtomicU32::new(0);
/// Where the kernel writes zero when the first thread leaves; 0: not known.
static WORD: AtomicUsize = AtomicUsize::new(0);
/// That word, for a process that has none of its own.
static OWN_WORD: AtomicU32 = AtomicU32::new(0);
/// The first thread's thread pointer.
static FIRST_POINTER: AtomicUsize = AtomicUsize::new(0);
/// The code of a thread that announced itself as the last one; negative: none has.
static LAST_CODE: AtomicI32 = AtomicI32::new(-1);
/// Threads were left when the first one had left.
static OTHERS_LEFT: AtomicBool = AtomicBool::new(false);
/// What is to be done before the end.
static LAST_WORDS: OnceLock<fn()> = OnceLock::new();

/// Sleeps without a wake-up: after that, one look, in case that the program has chosen another word meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// Between looks at the threads, once the first one has left.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(64);

/// Sets what is done just before the end, by a thread of ours. The first setting stays.
pub fn before_the_end(last_words: fn()) {
    let _ = LAST_WORDS.set(last_words);
}

/// Prepares the watch. Called by the first thread of a process: at its start, or in the child of a fork, where what the parent
/// had open is closed by the caller (`descriptors`). Without `/proc`, and in the child of a process that has confined itself, nothing is
/// watched.
pub fn prepare() {
    if confinement::with_files(begin).is_none() {
        STAT.store(-1, Relaxed);
    }
}

fn begin() {
    // SAFETY: the path is a C string.
    let fd = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/stat".as_ptr(), flags, 0)
    };
    let Some(fd) = i32::try_from(fd).ok().filter(|fd| *fd >= 0) else { return STAT.store(-1, Relaxed) };
    STAT.store(descriptor::hide(fd).unwrap_or(-1), Relaxed);
    let first = thread::id();
    FIRST.store(first, Relaxed);
    FIRST_POINTER.store(thread::pointer(), Relaxed);
    LAST_CODE.store(-1, Relaxed);
    OTHERS_LEFT.store(false, Relaxed);
    let mut word = 0usize;
    // SAFETY: the kernel writes the word's address; without CONFIG_CHECKPOINT_RESTORE it refuses.
    let known = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TID_ADDRESS, &raw mut word, 0, 0, 0) } == 0;
    if known && word == 0 {
        OWN_WORD.store(first, Relaxed);
        word = OWN_WORD.as_ptr().addr();
        // SAFETY: the word is never unmapped.
        unsafe { libc::syscall(libc::SYS_set_tid_address, word) };
    }
    WORD.store(word, Relaxed);
}

/// The descriptor of `prepare`, for the child of a fork, which closes it before it prepares anew; -1: none.
pub fn descriptor() -> RawFd {
    STAT.load(Relaxed)
}

/// Whether `watch` would see the end.
pub fn can_watch() -> bool {
    descriptor() >= 0
}

/// The calling thread is about to leave by exit(2) with `code`. Async-signal-safe.
pub fn leaving(code: i32) {
    let is_first = thread::pointer() == FIRST_POINTER.load(Relaxed);
    // The first thread may be in seccomp's strict mode, where read(2) is the only call that tells anything. The file is read from its
    // beginning once; if a child of vfork has done so, which shares this memory, the watch has to say.
    let first_read = |again| read(if again { libc::SYS_pread64 } else { libc::SYS_read }, 0);
    let look = if is_first { beside_ours(first_read) } else { Look::of_own_process() };
    LAST_CODE.store(-1, Relaxed);
    if is_first {
        OTHERS_LEFT.store(false, Relaxed);
    }
    match look {
        Some(look) if look.of_program() == 1 => LAST_CODE.store(code & 0xff, Relaxed),
        Some(_) if is_first => OTHERS_LEFT.store(true, Relaxed),
        _ => {}
    }
}

/// Waits until no thread but ours is left, and ends the process then; returns when it should stop before. For a thread of ours that does
/// nothing else.
pub fn watch(should_stop: impl Fn() -> bool) {
    // Sleeps before it looks: in the start of a process, the thread that has made this one is still at it, and a look would wait for that.
    loop {
        if should_stop() {
            return;
        }
        let slept = sleep_on_word();
        if first_has_left() {
            break;
        }
        // Refused at once: no word, or it is cleared by now, but the thread is not gone yet.
        if !slept {
            thread::sleep(LOOK_MAX);
        }
    }
    // The kernel wakes one of those who sleep on the word, and that may have been this thread.
    futex(libc::FUTEX_WAKE, i32::MAX.cast_unsigned(), None);
    let mut pause = LOOK_MIN;
    let first_code = loop {
        match look() {
            Some(look) if look.first_left && look.of_program() == 0 => break look.code,
            Some(look) if look.first_left => OTHERS_LEFT.store(true, Relaxed),
            _ => {}
        }
        if should_stop() {
            return;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOK_MAX);
    };
    let code = match LAST_CODE.load(Relaxed) {
        _ if !last_decides() => first_code,
        announced @ 0.. => announced,
        _ if OTHERS_LEFT.load(Relaxed) => 0,
        _ => first_code,
    };
    if let Some(last_words) = LAST_WORDS.get() {
        last_words();
    }
    thread::exit_now(code)
}

/// Has `watch` look whether it should stop, if it sleeps now.
pub fn wake_watch() {
    futex(libc::FUTEX_WAKE, i32::MAX.cast_unsigned(), None);
}

/// Whether the calling thread is the first of its process, and beside threads of ours the only one. False also where it
/// cannot be told.
pub fn is_beside_ours() -> bool {
    let look = (thread::id() == FIRST.load(Relaxed)).then(Look::of_own_process).flatten();
    look.is_some_and(|look| look.ours > 0 && look.of_program() == 1)
}

fn first_has_left() -> bool {
    look().is_some_and(|look| look.first_left)
}

/// Sleeps until the kernel clears the word, or a while; false: not at all, because it holds anything but the first thread's number.
fn sleep_on_word() -> bool {
    let begun = thread::since_boot();
    futex(libc::FUTEX_WAIT, FIRST.load(Relaxed), Some(SLEEP_MAX)) || thread::since_boot() - begun >= LOOK_MIN
}

/// futex(2) on the word, which is read by the kernel alone: it may be unmapped. Whether the call succeeded. Not private, because
/// the kernel's own wake-up is not.
fn futex(operation: i32, value: u32, limit: Option<Duration>) -> bool {
    let limit = limit.map(thread::timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel checks the word's address; the time limit outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, WORD.load(Relaxed), operation, value, limit, 0usize, 0usize) >= 0 }
}

/// Whether this kernel ends a process with the code of the thread that leaves last.
fn last_decides() -> bool {
    // SAFETY: an all-zero utsname is a valid value, which the kernel fills in.
    let release = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::syscall(libc::SYS_uname, &raw mut names);
        names.release
    };
    let major = release.iter().map(|byte| byte.cast_unsigned()).take_while(u8::is_ascii_digit);
    major.fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0')) >= 6
}

/// What the kernel says of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Look {
    /// The first thread has left.
    first_left: bool,
    /// Threads, the first one counted also when it has left.
    threads: u32,
    /// Those of them that are ours.
    ours: u32,
    /// The code that the first thread has left with.
    code: i32,
}

impl Look {
    /// As `look`; nothing in a child of vfork, which shares this memory but ends for itself.
    fn of_own_process() -> Option<Look> {
        (thread::process() == FIRST.load(Relaxed)).then(look).flatten()
    }

    /// Threads of the program that have not left.
    fn of_program(&self) -> u32 {
        self.threads.saturating_sub(self.ours + u32::from(self.first_left))
    }
}

fn look() -> Option<Look> {
    beside_ours(|_| read(libc::SYS_pread64, 0))
}

/// What is read, while no thread of ours is being made: the kernel counts it some time after us.
fn beside_ours(read: impl FnMut(bool) -> Option<Look>) -> Option<Look> {
    let (look, ours) = thread::beside_ours(read)?;
    look.map(|look| Look { ours, ..look })
}

/// Reads the file by this call.
fn read(call: i64, offset: usize) -> Option<Look> {
    let mut text = [0u8; 1024];
    let file = usize::try_from(STAT.load(Relaxed)).ok()?;
    // SAFETY: the buffer has room for what is read.
    let bytes = unsafe { trampoline::call(call, [file, text.as_mut_ptr().addr(), text.len(), offset, 0, 0]) };
    parse(text.get(..usize::try_from(bytes).ok()?)?)
}

/// Reads a line of proc_pid_stat(5). The name, field 2, may hold anything but ends at the last parenthesis.
fn parse(line: &[u8]) -> Option<Look> {
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(&line[name_end + 1..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let threads = fields.nth(16)?.parse().ok()?;
    let status: i32 = fields.nth(31)?.parse().ok()?;
    Some(Look { first_left: matches!(state, "Z" | "X"), threads, ours: 0, code: status >> 8 & 0xff })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_threads_and_code_are_read_whatever_the_name_is() {
        let head = "17 (a) R 9 (b)) Z 1 17 17 0 -1 4228108 9 0 0 0 1 2 0 0 20 0 4 0 777 0 0 18446744073709551615";
        let line = format!("{head} 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 1792\n");
        assert_eq!(parse(line.as_bytes()), Some(Look { first_left: true, threads: 4, ours: 0, code: 7 }));
        assert_eq!(parse(b"17 (a) Z 1"), None);
    }

    #[test]
    fn a_process_that_lives_is_seen_alive() {
        prepare();
        assert!(can_watch());
        let now = look().unwrap();
        assert!(!now.first_left && now.threads >= 1, "{now:?}");
    }
}
