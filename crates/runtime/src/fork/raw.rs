//! Forks past libc's fork(3): `_Fork`, `clone` without shared memory, and the same by `syscall`.
//!
//! None of them runs atfork handlers, and all of them give the child a copy of the memory without its evicted pages, which
//! would read as zeros. So they are made here, with our handlers around them. Calls that share the memory are passed on
//! untouched: their child may run on this very stack. System calls made without libc are out of reach.

use super::id_words::{self, ForkWords, Named};
use super::turns::TURNS;
use super::{child, parent, prepare};
use crate::caller::is_internal;
use crate::inline::stacks::tasks;
use crate::inline::{self, wrapped};
use crate::interpose::next_symbol::next;
use crate::interpose::{by_number, limits};
use crate::mapping::MEMORY_CALL_NUMBERS;
use crate::single_thread;
use crate::user_copy::{self, BadAddress};
use hinterland_sys::thread::{self, SignalsBlocked};
use hinterland_sys::trampoline;
use hinterland_units::PAGE_BYTES;
use libc::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// `struct clone_args` of clone3(2), as far as it is looked at here.
#[repr(C)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    storage: u64,
    set_tid: u64,
    set_tid_size: u64,
}

impl CloneArgs {
    /// The first bytes of a program's; those that it lacks are zero.
    fn of(bytes: &[u8; CLONE_ARGS_MAX]) -> CloneArgs {
        let word = |index: usize| u64::from_ne_bytes(bytes[index * 8..][..8].try_into().unwrap_or_default());
        CloneArgs {
            flags: word(0),
            pidfd: word(1),
            child_tid: word(2),
            parent_tid: word(3),
            exit_signal: word(4),
            stack: word(5),
            stack_size: word(6),
            storage: word(7),
            set_tid: word(8),
            set_tid_size: word(9),
        }
    }

    fn named(&self) -> Named {
        let size = |word: u64| usize::try_from(word).unwrap_or_default();
        Named {
            flags: self.flags,
            pidfd: size(self.pidfd),
            parent: size(self.parent_tid),
            child: size(self.child_tid),
            chosen: size(self.set_tid),
            chosen_count: size(self.set_tid_size),
        }
    }
}

/// What clone(2) names: it has one argument for the parent's thread number and the descriptor.
fn named_by_clone(flags: u64, parent: usize, child: usize) -> Named {
    Named { flags, pidfd: parent, parent, child, ..Named::default() }
}

/// Bytes of `clone_args` that are looked at: more than any kernel knows.
const CLONE_ARGS_MAX: usize = 256;

/// Bytes of its first version, `CLONE_ARGS_SIZE_VER0` of linux/sched.h: the kernel takes no fewer.
const CLONE_ARGS_MIN: usize = 64;

/// `CLONE_CLEAR_SIGHAND` of clone3(2): the child has no handlers. linux/sched.h.
pub(crate) const CLEARS_HANDLERS: u64 = 1 << 32;

/// Whether a child must not lose its handlers, because three of them are ours.
fn keeps_handlers(flags: u64) -> bool {
    flags & CLEARS_HANDLERS != 0 && inline::active()
}

/// Flags of a clone that makes a copy of this process on this stack. Others need nothing of us, or more than we can do: a
/// child with a thread's storage of its own.
fn copies_memory(flags: u64) -> bool {
    let other = (libc::CLONE_VM | libc::CLONE_SETTLS).cast_unsigned();
    flags & u64::from(other) == 0
}

/// A system call by number, past `syscall`, which is interposed here. Sets no errno.
///
/// # Safety
/// That of the call.
unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_long {
    let result: c_long;
    // SAFETY: the caller's; the kernel changes no other register than those named.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, lateout("rcx") _, lateout("r11") _);
    }
    result
}

/// As `fork_with`, for a call with these flags. `make` gets the flags to use: `CLONE_VFORK` is not among them, because the
/// parent would sleep with everything closed that a fork closes. It waits afterwards, until the child has ended or called exec:
/// then the child's end of a pipe is closed.
fn fork_flagged(flags: usize, words: &ForkWords, make: impl FnOnce(usize) -> c_long) -> c_long {
    let waits = libc::CLONE_VFORK.cast_unsigned() as usize;
    if flags & libc::CLONE_FILES.cast_unsigned() as usize != 0 {
        say_that_files_are_not_shared();
    }
    if flags & waits == 0 {
        return fork_with(words, || make(flags));
    }
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    let made =
        unsafe { call(libc::SYS_pipe2, ends.as_mut_ptr().addr(), libc::O_CLOEXEC.cast_unsigned() as usize, 0, 0, 0) };
    if made < 0 {
        return made;
    }
    let [read_end, write_end] = ends.map(|end| crate::descriptors::protect(end).unwrap_or(end));
    let close = |fd: c_int| {
        crate::descriptors::expose(fd);
        // SAFETY: closes a descriptor of ours.
        unsafe { call(libc::SYS_close, fd.cast_unsigned() as usize, 0, 0, 0, 0) };
    };
    let pid = fork_with(words, || make(flags & !waits));
    if pid == 0 {
        close(read_end);
        return pid;
    }
    close(write_end);
    let mut byte = 0u8;
    // SAFETY: room for one byte; nothing is ever written, so an answer is the end, an interruption, or a failure.
    while unsafe { call(libc::SYS_read, read_end.cast_unsigned() as usize, (&raw mut byte).addr(), 1, 0, 0) }
        == -c_long::from(libc::EINTR)
    {}
    close(read_end);
    pid
}

/// Once: the child opens and closes descriptors for its far memory, among them at low numbers for a moment, and must not do so in a table
/// that its parent uses at the same time.
fn say_that_files_are_not_shared() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        thread::write_stderr(
            "hinterland: a child that is to share its parent's descriptors but not its memory (CLONE_FILES without CLONE_VM) has a table of \
             its own: neither sees what the other opens or closes; where that matters, run it without Hinterland\n",
        );
    }
}

/// Forks by `make`, with everything around it that a fork needs; returns what the kernel returned.
fn fork_with(words: &ForkWords, make: impl FnOnce() -> c_long) -> c_long {
    let _signals = SignalsBlocked::new();
    TURNS.begin_fork();
    prepare();
    let pid = make();
    if pid == 0 {
        TURNS.begin_child();
        // A child that shares its parent's descriptors must not close ours in there.
        // SAFETY: gives the child a table of its own; no memory is touched.
        unsafe { call(libc::SYS_unshare, libc::CLONE_FILES.cast_unsigned() as usize, 0, 0, 0, 0) };
        child();
    } else {
        parent();
        TURNS.end_fork();
    }
    words.copy_out(pid);
    pid
}

/// A kernel's answer as libc gives it: -1 and errno, or the value.
extern "C" fn answer(result: c_long) -> c_long {
    if (-4095..0).contains(&result) {
        crate::errno::set(c_int::try_from(-result).unwrap_or(libc::EIO));
        return -1;
    }
    result
}

/// `_Fork`: a fork without atfork handlers. libc's own, which tells the child its number and registers its robust mutexes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    let next = next!(_Fork: unsafe extern "C" fn() -> libc::pid_t);
    let before = crate::errno::get();
    let pid = fork_with(&ForkWords::of(Named::default()), || {
        // SAFETY: the program's own call.
        let pid = unsafe { next() };
        match crate::errno::get() {
            _ if pid >= 0 => pid.into(),
            // glibc before 2.34 has none.
            // SAFETY: as above.
            libc::ENOSYS => unsafe { call(libc::SYS_fork, 0, 0, 0, 0, 0) },
            error => -c_long::from(error),
        }
    });
    crate::errno::set(before);
    libc::pid_t::try_from(answer(pid)).unwrap_or(-1)
}

/// What `syscall` does with a call that makes a process or thread.
#[repr(u32)]
enum Making {
    /// The call is made as it is.
    AsItIs = 0,
    /// It forks this process, and we can make it right. Or it is refused: it makes a child that shares this memory and is not to have our
    /// handlers, or names no `clone_args`.
    Here = 1,
    /// As it is, and the parent calls `id_words::release` afterwards.
    Held = 2,
}

extern "C" fn making(number: c_long, a: usize, b: usize, c: usize, d: usize) -> Making {
    if crate::pager().is_none() {
        return Making::AsItIs;
    }
    let (here, named) = match number {
        libc::SYS_fork => return Making::Here,
        libc::SYS_clone => (b == 0 && copies_memory(a as u64), named_by_clone(a as u64, c, d)),
        libc::SYS_clone3 => {
            let Ok(bytes) = clone_args(a, b) else { return Making::Here };
            let args = CloneArgs::of(&bytes);
            let copies = copies_memory(args.flags);
            (if copies { args.stack == 0 } else { keeps_handlers(args.flags) }, args.named())
        }
        _ => return Making::AsItIs,
    };
    match here {
        true => Making::Here,
        false if id_words::hold(named) => Making::Held,
        false => Making::AsItIs,
    }
}

/// The first bytes of a `clone_args` of so many bytes, and zeros.
fn copied(address: usize, bytes: usize) -> Result<[u8; CLONE_ARGS_MAX], BadAddress> {
    let mut copy = [0u8; CLONE_ARGS_MAX];
    user_copy::read_bytes(address, &mut copy[..bytes.min(CLONE_ARGS_MAX)])?;
    Ok(copy)
}

/// The same, or the error number of the kernel, which looks at the size first.
fn clone_args(address: usize, bytes: usize) -> Result<[u8; CLONE_ARGS_MAX], c_int> {
    match bytes {
        ..CLONE_ARGS_MIN => Err(libc::EINVAL),
        CLONE_ARGS_MIN..=PAGE_BYTES => Ok(copied(address, bytes)?),
        _ => Err(libc::E2BIG),
    }
}

/// Whether a `clone_args` of so many bytes says more than is looked at here: what the kernel does not know must be zero.
fn says_more(address: usize, bytes: usize) -> Result<bool, BadAddress> {
    for offset in (CLONE_ARGS_MAX..bytes).step_by(CLONE_ARGS_MAX) {
        if copied(address + offset, bytes - offset)? != [0; CLONE_ARGS_MAX] {
            return Ok(true);
        }
    }
    Ok(false)
}

extern "C" fn forking_call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_long {
    if number == libc::SYS_clone {
        let words = ForkWords::of(named_by_clone(a as u64, c, d));
        let named = words.addresses();
        // SAFETY: the program's own call, which gives the child a copy of this stack.
        let make = |flags| unsafe { call(number, flags, b, named.parent_of_clone(), named.child, e) };
        return answer(fork_flagged(a, &words, make));
    }
    if number == libc::SYS_clone3 {
        return clone3(a, b);
    }
    // SAFETY: as above.
    answer(fork_with(&ForkWords::of(Named::default()), || unsafe { call(number, a, b, c, d, e) }))
}

/// A clone3(2) that is made or refused here.
fn clone3(address: usize, bytes: usize) -> c_long {
    let (mut copy, more) = match clone_args(address, bytes).and_then(|copy| Ok((copy, says_more(address, bytes)?))) {
        Ok(read) => read,
        Err(number) => return answer(-c_long::from(number)),
    };
    let args = CloneArgs::of(&copy);
    let asked = args.flags;
    if !copies_memory(asked) {
        // As Linux before 5.5, which lacks the flag.
        return answer(-c_long::from(libc::EINVAL));
    }
    if more {
        return answer(-c_long::from(libc::E2BIG));
    }
    let words = ForkWords::of(args.named());
    let named = words.addresses();
    for (index, word) in [(1, named.pidfd), (2, named.child), (3, named.parent), (8, named.chosen)] {
        copy[index * 8..][..8].copy_from_slice(&word.to_ne_bytes());
    }
    let clears = keeps_handlers(asked);
    let flags = usize::try_from(if clears { asked & !CLEARS_HANDLERS } else { asked }).unwrap_or_default();
    // No handler runs in the child before it has none.
    let _signals = clears.then(SignalsBlocked::new);
    let pid = fork_flagged(flags, &words, |flags| {
        copy[..8].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: the program's own call, which gives the child a copy of this stack.
        unsafe { call(libc::SYS_clone3, copy.as_ptr().addr(), bytes.min(CLONE_ARGS_MAX), 0, 0, 0) }
    });
    if pid == 0 && clears {
        inline::signals::action::clear_handlers();
    }
    answer(pid)
}

/// set_tid_address(2).
extern "C" fn tid_address(number: c_long, at: usize) -> c_long {
    id_words::keep(at);
    // SAFETY: the program's own call.
    answer(c_long::try_from(unsafe { inline::raw::call(number, [at, 0, 0, 0, 0, 0]) }).unwrap_or(-1))
}

/// Beyond this no call is known.
const NUMBERS: usize = 512;

/// A bit for each number, set for memory calls.
static MEMORY_CALLS: [u64; NUMBERS / 64] = bits_of(&MEMORY_CALL_NUMBERS);

const fn bits_of(numbers: &[c_long]) -> [u64; NUMBERS / 64] {
    let (mut bits, mut index) = ([0; NUMBERS / 64], 0);
    while index < numbers.len() {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers are small")]
        let number = numbers[index] as usize;
        bits[number / 64] |= 1 << (number % 64);
        index += 1;
    }
    bits
}

/// A bit for each call that the inline path must see, wherever its pointers lead: in libc's other functions its instruction is replaced.
static SEEN: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// From now on `syscall` shows these calls to the inline path. Not those that make processes: they are made here.
pub(crate) fn see(is_seen: impl Fn(c_long) -> bool) {
    const PROCESSES: [c_long; 4] = [libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone3];
    for number in (0..NUMBERS).filter(|number| {
        let number = c_long::try_from(*number).unwrap_or(-1);
        is_seen(number) && !PROCESSES.contains(&number)
    }) {
        SEEN[number / 64].fetch_or(1 << (number % 64), Relaxed);
    }
}

/// Makes a call that must be seen. The last argument lies where a caller of `syscall` put it.
extern "C" fn seen_call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    c_long::try_from(wrapped::as_seen(number, [a, b, c, d, e, f])).unwrap_or(-1)
}

/// io_uring_setup(2). The filter of the inline path refuses it to everybody, but the backend's rings end before the call that
/// uses them returns; so the library's own go by the trampoline. Children need it most: they make their rings under the filter.
extern "C" fn ring_call(number: c_long, entries: usize, parameters: usize, return_address: usize) -> c_long {
    if is_internal(return_address) && trampoline::is_mapped() {
        // SAFETY: the caller's call: it makes a descriptor and fills the parameters.
        let result = unsafe { trampoline::call(number, [entries, parameters, 0, 0, 0, 0]) };
        return answer(c_long::try_from(result).unwrap_or(c_long::MIN));
    }
    // SAFETY: as above.
    answer(unsafe { call(number, entries, parameters, 0, 0, 0) })
}

/// process_vm_readv(2) and process_vm_writev(2). The last argument is the seventh of `syscall`, where C has it, too.
extern "C" fn between_processes(
    number: c_long,
    process: usize,
    ours: usize,
    count: usize,
    theirs: usize,
    their_count: usize,
    flags: usize,
) -> c_long {
    let arguments = [process, ours, count, theirs, their_count, flags];
    c_long::try_from(wrapped::between_processes(number, arguments)).unwrap_or(-1)
}

/// unshare(2) and setns(2).
extern "C" fn alone_call(number: c_long, a: usize, b: usize) -> c_long {
    let flags = |argument: usize| c_int::try_from(argument.cast_signed()).ok();
    let made = match number {
        libc::SYS_unshare => flags(a).and_then(single_thread::unshare),
        _ => flags(a).zip(flags(b)).and_then(|(fd, kinds)| single_thread::setns(fd, kinds)),
    };
    // SAFETY: the program's own call.
    answer(made.unwrap_or_else(|| unsafe { call(number, a, b, 0, 0, 0) }))
}

/// exit(2) of the calling thread. When it is the last one of the program, its code is that of the process.
extern "C" fn leave(code: c_int) -> ! {
    hinterland_sys::last_thread::leaving(code);
    loop {
        // SAFETY: ends this thread.
        unsafe { call(libc::SYS_exit, code.cast_unsigned() as usize, 0, 0, 0, 0) };
    }
}

/// Number and arguments of syscall(3), from where a function has them to where the kernel wants them.
macro_rules! arguments_of_syscall {
    () => {
        "mov rax, rdi
        mov rdi, rsi
        mov rsi, rdx
        mov rdx, rcx
        mov r10, r8
        mov r8, r9
        mov r9, [rsp + 8]"
    };
}

/// `syscall`: forks are made here, memory calls by the functions of their names, and those between processes like the trapped
/// ones; everything else goes to the kernel with no frame of ours on the stack, because the call may be one after which a child
/// runs on it.
///
/// The library's own calls come here too, also those of Rust's standard library in it. They are known by their return address, and
/// made from the instruction of the trampoline that is ours: a filter of the program's tells them by that.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        // This library's image begins and ends where the linker says.
        ".hidden __ehdr_start",
        ".hidden _end",
        "lea r10, [rip + __ehdr_start]",
        "lea r11, [rip + _end]",
        "sub r11, r10",
        "mov rax, [rsp]",
        "sub rax, r10",
        "cmp rax, r11",
        "jb 20f",
        "cmp rdi, {clone}",
        "je 3f",
        "cmp rdi, {fork}",
        "je 3f",
        "cmp rdi, {clone3}",
        "je 3f",
        "cmp rdi, {ring}",
        "je 5f",
        "cmp rdi, {seccomp}",
        "je {confining}",
        "cmp rdi, {prctl}",
        "je {confining}",
        "cmp rdi, {read_other}",
        "je {between}",
        "cmp rdi, {write_other}",
        "je {between}",
        "cmp rdi, {unshare}",
        "je {alone}",
        "cmp rdi, {setns}",
        "je {alone}",
        "cmp rdi, {getrlimit}",
        "je {limit}",
        "cmp rdi, {setrlimit}",
        "je {limit}",
        "cmp rdi, {prlimit64}",
        "je {limit}",
        "cmp rdi, {set_tid_address}",
        "je {tid_address}",
        "cmp rdi, {exit}",
        "je 7f",
        "cmp rdi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {memory_calls}]",
        "bt qword ptr [rax], rdi",
        "jc 6f",
        "lea rax, [rip + {seen}]",
        "bt qword ptr [rax], rdi",
        "jc {seen_call}",
        "2:",
        arguments_of_syscall!(),
        "syscall",
        "cmp rax, -4095",
        "jae 4f",
        "ret",
        "4:",
        "mov rdi, rax",
        "jmp {answer}",
        // One of ours.
        "20:",
        "cmp rdi, {ring}",
        "je 5f",
        "cmp byte ptr [rip + {mapped}], 0",
        "je 2b",
        arguments_of_syscall!(),
        "mov r11, {own}",
        "call r11",
        "cmp rax, -4095",
        "jae 4b",
        "ret",
        "5:",
        "mov rcx, [rsp]",
        "jmp {ring_call}",
        // The sixth argument and the caller's address are the seventh and eighth of the function; a word aligns the stack.
        "6:",
        ".cfi_remember_state",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "push qword ptr [rsp + 8]",
        ".cfi_adjust_cfa_offset 8",
        "push qword ptr [rsp + 24]",
        ".cfi_adjust_cfa_offset 8",
        "call {by_number}",
        "add rsp, 24",
        ".cfi_restore_state",
        "ret",
        "7:",
        "mov rdi, rsi",
        "jmp {leave}",
        // The arguments are kept over the question; five pushes and a word align the stack.
        "3:",
        ".cfi_remember_state",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 56",
        "call {making}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_restore_state",
        "cmp eax, 1",
        "jb 2b",
        "je {forking}",
        // Words are pinned for the call. Its child may run on another stack, or on this one before the parent does.
        arguments_of_syscall!(),
        "syscall",
        "test rax, rax",
        "jz 8f",
        "mov rdi, rsp",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call {release}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "cmp rax, -4095",
        "jae 4b",
        "8:",
        "ret",
        ".cfi_endproc",
        clone = const libc::SYS_clone,
        fork = const libc::SYS_fork,
        clone3 = const libc::SYS_clone3,
        seen = sym SEEN,
        seen_call = sym seen_call,
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        confining = sym confining_call,
        ring = const libc::SYS_io_uring_setup,
        numbers = const NUMBERS,
        memory_calls = sym MEMORY_CALLS,
        by_number = sym by_number,
        mapped = sym trampoline::MAPPED,
        own = const trampoline::OWN_ADDRESS,
        ring_call = sym ring_call,
        read_other = const libc::SYS_process_vm_readv,
        write_other = const libc::SYS_process_vm_writev,
        between = sym between_processes,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        alone = sym alone_call,
        getrlimit = const libc::SYS_getrlimit,
        setrlimit = const libc::SYS_setrlimit,
        prlimit64 = const libc::SYS_prlimit64,
        limit = sym limits::by_number,
        exit = const libc::SYS_exit,
        leave = sym leave,
        answer = sym answer,
        making = sym making,
        release = sym id_words::release,
        set_tid_address = const libc::SYS_set_tid_address,
        tid_address = sym tid_address,
        forking = sym forking_call,
    )
}

/// seccomp(2), prctl(2): what confines the program is composed or refused, everything else is made as it is.
extern "C" fn confining_call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_long {
    // SAFETY: the program's own call, but for a filter in the place of the one that it names.
    let issue = |third: usize| unsafe { call(number, a, b, third, d, e) };
    let confined =
        crate::confine::call(number, [a, b, c, d, e, 0], |third| isize::try_from(issue(third)).unwrap_or(-1));
    answer(confined.map_or_else(|| issue(c), |answer| c_long::try_from(answer).unwrap_or(-1)))
}

/// prctl(2). Variadic in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let result = confining_call(libc::SYS_prctl, option.cast_unsigned() as usize, a, b, c, d);
    // As libc: the kernel's answer is an int.
    c_int::try_from(result).unwrap_or(-1)
}

type Body = unsafe extern "C" fn(*mut c_void) -> c_int;

unsafe extern "C" {
    fn __clone(
        body: Option<Body>,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent_tid: *mut c_void,
        storage: *mut c_void,
        child_tid: *mut c_void,
    ) -> c_int;
}

/// clone(2) of libc. Variadic in C: the last three arguments count only with the flags that name them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    body: Option<Body>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    storage: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    let (Some(function), false) = (body, stack.is_null()) else {
        return c_int::try_from(answer(-22)).unwrap_or(-1); // EINVAL, as libc says
    };
    let bits = flags.cast_unsigned();
    if crate::pager().is_none() || !copies_memory(bits.into()) {
        let task = if inline::active() { tasks::prepare(bits, stack.addr(), function, argument) } else { None };
        let (body, argument) = task.map_or((function, argument), |task| (tasks::begin as Body, task.argument()));
        let held = id_words::hold(named_by_clone(bits.into(), parent_tid.addr(), child_tid.addr()));
        // SAFETY: the program's own call, or one that makes it after it has begun.
        let made = unsafe { __clone(Some(body), stack, flags, argument, parent_tid, storage, child_tid) };
        if let Some(task) = task.filter(|_| made < 0) {
            tasks::failed(task);
        }
        if held {
            let here = 0u8;
            id_words::release((&raw const here).addr());
        }
        return made;
    }
    let words = ForkWords::of(named_by_clone(bits.into(), parent_tid.addr(), child_tid.addr()));
    let named = words.addresses();
    // The child's stack may lie in far memory, evicted; so the child starts on a copy of this one.
    // SAFETY: the program's own call, which gives the child a copy of this stack.
    let pid = fork_flagged(bits as usize, &words, |flags| unsafe {
        call(libc::SYS_clone, flags, 0, named.parent_of_clone(), named.child, 0)
    });
    if pid == 0 {
        // SAFETY: the child has the stack that the program made for it.
        unsafe { run_on(stack, function, argument) }
    }
    c_int::try_from(answer(pid)).unwrap_or(-1)
}

/// Runs a cloned child's function on its stack, and ends the child with what it returns.
///
/// # Safety
/// `stack` is the end of an unused stack.
unsafe fn run_on(stack: *mut c_void, function: Body, argument: *mut c_void) -> ! {
    // SAFETY: the caller's; nothing of the old stack is used afterwards.
    unsafe {
        core::arch::asm!(
            "mov rsp, {stack}",
            "and rsp, -16",
            "xor ebp, ebp",
            "call {function}",
            "mov edi, eax",
            "call {end}",
            "ud2",
            stack = in(reg) stack,
            function = in(reg) function,
            in("rdi") argument,
            end = sym end,
            options(noreturn),
        )
    }
}

/// The end of a cloned child: of all its threads, because ours would live on.
extern "C" fn end(code: c_int) -> ! {
    crate::exit::_exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_managed_makes_its_processes_by_the_kernel_alone() {
        let (flags, waiting) = (libc::CLONE_FILES | libc::SIGCHLD, libc::CLONE_VFORK | libc::SIGCHLD);
        let mut args = [0u64; 8];
        args[0] = u64::from(libc::CLONE_FILES.cast_unsigned());
        let calls = [
            (libc::SYS_fork, 0, 0),
            (libc::SYS_clone, flags.cast_unsigned() as usize, 0),
            (libc::SYS_clone, waiting.cast_unsigned() as usize, 0),
            (libc::SYS_clone3, args.as_ptr().addr(), size_of_val(&args)),
        ];
        for (number, a, b) in calls {
            assert!(matches!(making(number, a, b, 0, 0), Making::AsItIs), "{number}");
        }
    }
}
