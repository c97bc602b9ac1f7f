//! Threads and signals.

use crate::processors::Processors;
use crate::{SysError, confinement, trampoline};
use hinterland_units::PAGE_BYTES;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
#[cfg(miri)]
pub use std::thread::{sleep, yield_now};
use std::time::Duration;

/// All signals of the calling thread are blocked until this is dropped, and it cannot be cancelled.
///
/// A thread of the program that works inside the pager must not run a signal handler there: the handler could touch an
/// evicted page while the thread holds what serving it needs. Nor may it end there: libc's calls that wait, for a file or a socket,
/// are cancellation points (pthreads(7)), and what the program does when it comes here is none.
pub struct SignalsBlocked {
    /// The mask to go back to; `None` when somebody further up the stack does that.
    before: Option<u64>,
    /// Likewise.
    cancellation: Option<Uncancellable>,
}

/// What a thread has here of its own. In the initial thread-local storage, because a variable of Rust's may be allocated at its
/// first use, and this may be in a signal handler. All zeros at first.
#[repr(C)]
struct Own {
    /// How many `SignalsBlocked` the thread has: only the first one asks the kernel.
    blocked: Cell<u32>,
    /// Whether it is starting a thread of ours.
    starting: Cell<bool>,
    /// See [`number`]; 0: it has none yet.
    number: Cell<u64>,
    /// Sets of signals on their way to the kernel and back: a stack may be in far memory, where the kernel finds nothing. In
    /// turns, because handlers come in between.
    turn: Cell<u32>,
    sets: UnsafeCell<[[u64; 2]; TURNS]>,
}

/// Handlers that may interrupt each other in the middle of changing a mask.
const TURNS: usize = 16;

core::arch::global_asm!(
    ".pushsection .tbss.hinterland_own, \"awT\", @nobits",
    ".globl hinterland_own",
    ".hidden hinterland_own",
    ".type hinterland_own, @object",
    ".size hinterland_own, {bytes}",
    ".balign 8",
    "hinterland_own:",
    ".zero {bytes}",
    ".popsection",
    bytes = const size_of::<Own>(),
);

/// The calling thread's.
#[cfg(miri)]
fn own<'a>() -> &'a Own {
    thread_local! {
        // SAFETY: all zeros are a valid value.
        static OWN: Own = const { unsafe { MaybeUninit::zeroed().assume_init() } };
    }
    // SAFETY: the variable lives as long as the thread, and no other thread has its address.
    OWN.with(|own| unsafe { &*std::ptr::from_ref(own) })
}

/// The calling thread's.
#[cfg(not(miri))]
fn own<'a>() -> &'a Own {
    let address: *const Own;
    // SAFETY: reads the offset of the variable and the thread pointer (x86-64 ABI for thread-local storage, initial-exec model).
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + hinterland_own@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) address,
            options(nostack, readonly),
        );
    }
    // SAFETY: the variable lives as long as the thread, no other thread has its address, and all zeros are a valid value.
    unsafe { &*address }
}

/// Signals that are never blocked.
static NEVER_BLOCKED: AtomicU64 = AtomicU64::new(0);

/// A panic ends the process by SIGABRT, also in a build that unwinds, as the tests' does, and where the program handles that signal: its
/// handler would run on the thread that has failed, and whoever waits for that thread's pages would wait for ever.
pub fn end_process_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        // `struct sigaction` of the kernel: all zeros are the default action.
        let default = [0u64; 4];
        // SAFETY: the action is valid, the old one is not asked for, and a set of signals has eight bytes.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, libc::SIGABRT, default.as_ptr(), std::ptr::null::<u64>(), 8) };
        std::process::abort();
    }));
}

/// From now on, `SignalsBlocked` and new threads leave the signals of `set` open: those by which this process serves itself.
pub fn never_block(set: u64) {
    NEVER_BLOCKED.store(set, Relaxed);
}

impl SignalsBlocked {
    /// Blocks them. Through the raw call, so that the program's wrappers are not involved.
    pub fn new() -> SignalsBlocked {
        let is_first = own().blocked.get() == 0;
        let before = is_first.then(|| set_mask(!NEVER_BLOCKED.load(Relaxed)));
        SignalsBlocked { before, cancellation: enter() }
    }

    /// Notes that they are blocked already: in a signal handler that blocks all.
    pub fn already() -> SignalsBlocked {
        SignalsBlocked { before: None, cancellation: enter() }
    }
}

/// The thread has one more `SignalsBlocked`; the first sees to it that it cannot be cancelled.
fn enter() -> Option<Uncancellable> {
    let count = &own().blocked;
    let is_first = count.get() == 0;
    count.set(count.get() + 1);
    is_first.then(Uncancellable::new)
}

impl Default for SignalsBlocked {
    fn default() -> SignalsBlocked {
        SignalsBlocked::new()
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let count = &own().blocked;
        count.set(count.get() - 1);
        // Before the mask: the signal by which libc cancels counts for nothing where a thread cannot be cancelled.
        drop(self.cancellation.take());
        if let Some(mask) = self.before {
            set_mask(mask);
        }
    }
}

/// The calling thread cannot be cancelled until this is dropped.
pub struct Uncancellable(c_int);

impl Uncancellable {
    /// Disables it; the signal mask stays.
    pub fn new() -> Uncancellable {
        Uncancellable(set_cancellation(PTHREAD_CANCEL_DISABLE))
    }
}

impl Default for Uncancellable {
    fn default() -> Uncancellable {
        Uncancellable::new()
    }
}

impl Drop for Uncancellable {
    fn drop(&mut self) {
        set_cancellation(self.0);
    }
}

/// POSIX has names for these, glibc one number each.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Says whether the thread can be cancelled, and returns what was said before.
#[cfg(not(miri))]
fn set_cancellation(state: c_int) -> c_int {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    let mut before = state;
    // SAFETY: changes nothing but a word of this thread, which libc's cancellation points look at.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Miri cancels no thread.
#[cfg(miri)]
fn set_cancellation(state: c_int) -> c_int {
    state
}

/// Replaces the signal mask and returns the old one.
fn set_mask(mask: u64) -> u64 {
    change_mask(libc::SIG_SETMASK, Some(mask))
}

/// Sets, adds to or takes from the calling thread's real signal mask; returns the one before. In signal handlers too.
pub fn change_mask(how: i32, set: Option<u64>) -> u64 {
    if cfg!(miri) {
        return 0;
    }
    let own = own();
    let turn = own.turn.get();
    own.turn.set(turn.wrapping_add(1));
    let how = usize::try_from(how).unwrap_or(0);
    // SAFETY: the index is below the number of turns; both sets are the kernel's, of 8 bytes. Whoever interrupts this takes
    // another turn.
    unsafe {
        let sets = own.sets.get().cast::<[u64; 2]>().add(turn as usize % TURNS);
        let (new, old) = (&raw mut (*sets)[0], &raw mut (*sets)[1]);
        new.write_volatile(set.unwrap_or(0));
        let new = if set.is_some() { new.addr() } else { 0 };
        let arguments = [how, new, old.addr(), size_of::<u64>(), 0, 0];
        if trampoline::is_mapped() {
            trampoline::call(libc::SYS_rt_sigprocmask, arguments);
        } else {
            libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, size_of::<u64>());
        }
        old.read_volatile()
    }
}

/// The calling process's id. Not libc's getpid: a filter of the program's may forbid that.
pub fn process() -> u32 {
    // SAFETY: getpid(2) takes nothing and cannot fail.
    u32::try_from(unsafe { libc::syscall(libc::SYS_getpid) }).unwrap_or(0)
}

/// A time as the kernel takes it.
pub(crate) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// Sleeps, at least for `time` unless a signal comes. Not libc's function, for the same reason.
#[cfg(not(miri))]
pub fn sleep(time: Duration) {
    let time = timespec(time);
    // SAFETY: the time is valid for the call; nobody asks for the rest.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, 0usize) };
}

/// The calling thread's kernel id.
pub fn id() -> u32 {
    // SAFETY: gettid(2) takes nothing and cannot fail.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}

/// A number for the calling thread: Miri has no thread pointer.
#[cfg(miri)]
pub fn pointer() -> usize {
    std::ptr::from_ref(own()).addr()
}

/// The calling thread's thread pointer: tells threads of a process apart without a system call.
#[cfg(not(miri))]
pub fn pointer() -> usize {
    let pointer;
    // SAFETY: the first word that `fs` points at is its own address (x86-64 ABI for thread-local storage).
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// A number for the calling thread that no other one of the process has or had: a thread pointer is used again once its thread has ended.
pub fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = &own().number;
    if number.get() == 0 {
        number.set(LAST.fetch_add(1, Relaxed) + 1);
    }
    number.get()
}

/// Gives the processor away.
#[cfg(not(miri))]
pub fn yield_now() {
    // SAFETY: sched_yield(2) takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_sched_yield) };
}

/// Takes a signal back that the kernel has just sent to this thread, which has it blocked: the program would die of it.
pub fn take_pending(signal: libc::c_int) {
    let (set, now) = (1u64 << (signal - 1), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: set and time outlive the call; no information is asked for.
    unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const set, 0usize, &raw const now, size_of::<u64>());
    }
}

/// Starts a thread of Hinterland: all signals blocked, named, with a small stack beside the thread-local storage.
///
/// Not a `std::thread`: the start of one registers a thread-local destructor, for which libc takes the loader's lock, and a
/// thread of the program may hold that lock (in dlopen) while it waits for this very thread to serve a fault. The first call
/// looks a name up, and so must come from a thread that may wait.
///
/// # Errors
/// What pthread_create says, for example `EAGAIN` at the limit on processes, and in a process that the program has confined.
pub fn spawn(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> Result<(), SysError> {
    // Whoever has a choice does without: a thread needs more than the listed calls.
    if confinement::is_confined() {
        return Err(SysError { call: "pthread_create", errno: libc::EAGAIN });
    }
    spawn_needed(name, body)
}

/// As `spawn`, for a thread without which nothing goes on: also in a process that the program has confined, if its filter lets libc start one.
///
/// # Errors
/// As for `spawn`; `EPERM`: a filter of the program's forbids it.
pub fn spawn_needed(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> Result<(), SysError> {
    if confinement::is_confined() && !confinement::permits_threads() {
        return Err(SysError { call: "pthread_create", errno: libc::EPERM });
    }
    // glibc's own signals (32, 33) stay open: setuid(2) and friends reach every thread through them.
    const LIBC_SIGNALS: u64 = 0b11 << 31;
    let before = set_mask(!(LIBC_SIGNALS | NEVER_BLOCKED.load(Relaxed)));
    COUNT.get_or_init(find_count);
    let least_bytes = *LEAST_STACK.get_or_init(find_least_stack);
    let start = Box::into_raw(Box::new(Start { name, body: Box::new(body) }));
    OF_OURS.fetch_add(1 + BEING_MADE, SeqCst);
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    STARTING.fetch_add(1, SeqCst);
    own().starting.set(true);
    // SAFETY: the attributes are initialised before use and destroyed after it; `start` is handed over to the new thread,
    // or taken back below when there is none.
    let errno = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes(least_bytes));
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let errno = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, start.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        errno
    };
    own().starting.set(false);
    set_mask(before);
    OF_OURS.fetch_sub(BEING_MADE + u64::from(errno != 0), SeqCst);
    if errno == 0 {
        return Ok(());
    }
    STARTING.fetch_sub(1, SeqCst);
    // SAFETY: no thread took it over.
    drop(unsafe { Box::from_raw(start) });
    Err(SysError { call: "pthread_create", errno })
}

/// Whether the calling thread is starting one of ours: what libc allocates meanwhile is for that.
#[inline]
pub fn is_starting_one() -> bool {
    own().starting.get()
}

/// Threads of ours on their way to their work.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// Whether one of our threads is still in libc's code that begins it.
pub fn are_starting() -> bool {
    STARTING.load(SeqCst) != 0
}

/// In the child of a fork: of a thread that was starting in the parent nothing is left.
pub fn forget_starting() {
    STARTING.store(0, SeqCst);
}

/// Blocks the signals that are never blocked in the program's sense: those that others send go to the program's threads.
fn leave_to_the_program() {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first word of libc's set holds signals 1 to 64; the set is initialised.
    unsafe {
        set.as_mut_ptr().cast::<u64>().write(NEVER_BLOCKED.load(Relaxed));
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// What a new thread needs.
struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` handed the box over to this thread.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: the name is a C string; PR_SET_NAME changes nothing but the thread's name.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, start.name.as_ptr(), 0, 0, 0) };
    count_threads(u32::MAX);
    let _blocked = SignalsBlocked::already();
    leave_to_the_program();
    STARTING.fetch_sub(1, SeqCst);
    (start.body)();
    count_threads(1);
    OF_OURS.fetch_sub(1, SeqCst);
    std::ptr::null_mut()
}

/// Threads that `spawn` has started, and that have not ended; those that are being made are among them, and counted in the upper half, too.
static OF_OURS: AtomicU64 = AtomicU64::new(0);
/// One thread that is being made: the kernel may count it or not.
const BEING_MADE: u64 = 1 << 32;
/// Looks at `OF_OURS` while threads are being made: more than the scheduler's time slice of some milliseconds.
const LOOKS_MAX: u32 = 1 << 20;

/// What `look` finds, and how many threads of this process were ours while it looked: none was being made. `look` is told whether it has
/// looked before. `None`: threads were being made all the time. Makes no system call.
pub fn beside_ours<T>(mut look: impl FnMut(bool) -> T) -> Option<(T, u32)> {
    let mut again = false;
    for _ in 0..LOOKS_MAX {
        let before = OF_OURS.load(SeqCst);
        if before < BEING_MADE {
            let found = look(again);
            if OF_OURS.load(SeqCst) == before {
                return u32::try_from(before).ok().map(|ours| (found, ours));
            }
            again = true;
        }
        std::hint::spin_loop();
    }
    None
}

/// Threads of ours, those that are being made among them.
pub fn ours() -> u32 {
    u32::try_from(OF_OURS.load(SeqCst) % BEING_MADE).unwrap_or(0)
}

/// Whether the kernel finds no other thread in this process: one that ends is there until it has given everything back. (unshare(2) of what
/// each process has for itself does nothing, and is refused where there are other threads.)
pub fn is_single() -> bool {
    // SAFETY: takes only flags.
    unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_THREAD) == 0 }
}

/// In the child of a fork, which has the forking thread alone.
pub fn forget_ours() {
    OF_OURS.store(0, SeqCst);
}

/// What a thread of ours has of a stack, and what of that it needs.
const STACK_BYTES: usize = 256 << 10;
const NEEDED_BYTES: usize = 192 << 10;

/// The size of a stack of which libc takes `least_bytes`.
fn stack_bytes(least_bytes: usize) -> usize {
    STACK_BYTES.max((least_bytes + NEEDED_BYTES).next_multiple_of(PAGE_BYTES))
}

/// The smallest stack that libc takes for a thread of this program, whose thread-local storage lies on each; 0: it is not known.
static LEAST_STACK: OnceLock<usize> = OnceLock::new();

fn find_least_stack() -> usize {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the names are C strings, a function of libc's of this name has this type, and the attributes are initialised.
    unsafe {
        let least = libc::dlvsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr(), c"GLIBC_PRIVATE".as_ptr());
        let Some(least) = std::mem::transmute::<*mut c_void, Option<Least>>(least) else { return 0 };
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let bytes = least(attributes.as_ptr());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        bytes
    }
}

/// libc's count of threads: when the last one ends, so does the process. A program may end its first thread with
/// pthread_exit and rely on that; our threads never end, so they must not count.
static COUNT: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();

fn find_count() -> Option<&'static AtomicU32> {
    // SAFETY: the names are C strings.
    let count = unsafe { libc::dlvsym(libc::RTLD_DEFAULT, c"__nptl_nthreads".as_ptr(), c"GLIBC_PRIVATE".as_ptr()) };
    // SAFETY: an unsigned int that libc itself changes atomically, and that lives as long as libc.
    unsafe { count.cast::<AtomicU32>().as_ref() }
}

/// Adds to libc's count of threads (modulo 2^32), where it is known.
fn count_threads(change: u32) {
    if let Some(Some(count)) = COUNT.get() {
        count.fetch_add(change, Relaxed);
    }
}

/// Processor time that all threads of this process have taken.
pub fn process_cpu_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time that the calling thread has taken.
pub fn cpu_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time that another thread of this process has taken, or a process that shares its memory (vfork); zero when there
/// is no such thread.
pub fn cpu_time_of(thread: u32) -> Duration {
    // MAKE_THREAD_CPUCLOCK and MAKE_PROCESS_CPUCLOCK of include/linux/posix-timers.h.
    const PER_THREAD: libc::clockid_t = 4;
    const SCHED: libc::clockid_t = 2;
    let Ok(thread) = libc::clockid_t::try_from(thread) else { return Duration::ZERO };
    let time = clock(!thread << 3 | PER_THREAD | SCHED);
    if time.is_zero() { clock(!thread << 3 | SCHED) } else { time }
}

/// Time since the machine was started: the clock of start times in `/proc`.
pub fn since_boot() -> Duration {
    clock(libc::CLOCK_BOOTTIME)
}

fn clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Ends the process at once with `code`: no handlers, no destructors, no flush.
pub fn exit_now(code: i32) -> ! {
    loop {
        // SAFETY: exit_group(2) does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// Writes a message to standard error, as far as it goes.
pub fn write_stderr(message: &str) {
    // SAFETY: the buffer is valid; a failed write has no remedy here.
    unsafe { libc::syscall(libc::SYS_write, 2, message.as_ptr(), message.len()) };
}

/// Stack pointer and instruction pointer of a thread of this process that waits in the kernel; `None` when it runs, or the
/// kernel does not say.
pub fn code_position_of(thread: u32) -> Option<[u64; 2]> {
    let read = || std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    code_position_in(&confinement::with_files(read)?.ok()?)
}

/// What a thread's file `syscall` says (proc_pid_syscall(5)): "NUMBER six-arguments SP PC" in a system call, "-1 SP PC" in a fault,
/// "running".
pub fn code_position_in(line: &str) -> Option<[u64; 2]> {
    let mut words = line.split_ascii_whitespace().rev();
    let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (instruction, stack) = (number()?, number()?);
    Some([stack, instruction])
}

/// The processor on which the calling thread runs now.
pub fn processor() -> Option<usize> {
    let mut processor = 0u32;
    // SAFETY: the number outlives the call; the other two may be null.
    let rc = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut processor, 0usize, 0usize) };
    (rc == 0).then_some(processor as usize)
}

/// Keeps the calling thread on one processor, or lets it run on all that the process may use. False: the kernel refused.
pub fn run_on(processor: Option<usize>) -> bool {
    let set = processor.map_or(Some(Processors::ALL), Processors::one);
    set.is_some_and(|set| set.keep_to())
}

/// Has the calling thread wait for a processor that is idle, or for the end of another's time slice: it takes none away when it wakes
/// (`SCHED_BATCH`, sched(7)). Its share of the processors stays what it was, so a lock that it holds is given back as soon as any other's.
/// Nothing happens where the program has chosen another policy, or has confined itself.
pub fn never_preempt() {
    confinement::with_files(|| {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 means the calling thread, and the parameters are valid for the call.
        unsafe {
            if libc::syscall(libc::SYS_sched_getscheduler, 0) == libc::c_long::from(libc::SCHED_OTHER) {
                libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const parameters);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_has_room_beside_thread_local_storage() {
        assert_eq!([0, 20 << 10, NEEDED_BYTES - (128 << 10)].map(stack_bytes), [STACK_BYTES; 3], "as usual");
        assert_eq!(stack_bytes((1 << 20) + 5), (1 << 20) + NEEDED_BYTES + PAGE_BYTES);
        let least = find_least_stack();
        assert!((libc::PTHREAD_STACK_MIN..STACK_BYTES).contains(&least), "libc takes {least} bytes of a stack");
    }

    /// libc gives the stack of a thread that has ended, and with it the thread pointer, to the next one.
    #[test]
    fn threads_one_after_the_other_have_numbers_of_their_own() {
        let numbers: Vec<u64> = (0..20).map(|_| std::thread::spawn(number).join().unwrap()).collect();
        let mut different = numbers.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 20, "{numbers:?}");
        assert!(!numbers.contains(&number()) && number() == number());
    }

    #[test]
    fn a_thread_cannot_be_cancelled_while_its_signals_are_blocked() {
        let state = || {
            let state = set_cancellation(PTHREAD_CANCEL_DISABLE);
            set_cancellation(state);
            state
        };
        let can_be = state();
        assert_ne!(can_be, PTHREAD_CANCEL_DISABLE);
        for outer in [SignalsBlocked::new, SignalsBlocked::already] {
            let outer = outer();
            drop(SignalsBlocked::new());
            drop(SignalsBlocked::already());
            assert_eq!(state(), PTHREAD_CANCEL_DISABLE);
            drop(outer);
            assert_eq!(state(), can_be);
        }
    }

    /// The test runs itself in a process of its own, which panics.
    #[test]
    fn a_panic_ends_the_process_whatever_the_program_handles() {
        const PANICS: &str = "HINTERLAND_TEST_PANICS";
        extern "C" fn handler(_: libc::c_int) {
            loop {
                std::thread::park();
            }
        }
        if std::env::var_os(PANICS).is_some() {
            let handler = handler as extern "C" fn(libc::c_int) as *const () as libc::sighandler_t;
            // SAFETY: installs a handler in a process that is about to end.
            unsafe { libc::signal(libc::SIGABRT, handler) };
            end_process_on_panic();
            let _ = std::thread::spawn(|| assert!(std::env::var_os(PANICS).is_none(), "on purpose")).join();
        }
        let program = std::env::current_exe().unwrap();
        let name = "thread::tests::a_panic_ends_the_process_whatever_the_program_handles";
        let output = std::process::Command::new(program).args(["--exact", name]).env(PANICS, "1").output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(libc::SIGABRT), "{output:?}");
    }
}
