//! The composed filter by an interpreter, for programs of any shape; and by the kernel, in forked children.

use super::*;
use crate::seccomp::interpret::{data, interpret};
use crate::seccomp::tests::in_child;
use crate::trampoline;

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const OURS: [usize; 3] =
    [trampoline::OWN_RETURN_ADDRESS, trampoline::INSIDE_RETURN_ADDRESS, trampoline::RESTORER_RETURN_ADDRESS];

fn own() -> Descriptors {
    Descriptors { uffd: 960, memory: 961, files: vec![900, 962] }
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k }
}

/// A program that gives one answer to everything.
fn always(action: u32) -> Vec<libc::sock_filter> {
    vec![instruction(0x06, 0, 0, action)]
}

fn ask(filter: &[libc::sock_filter], call: libc::c_long, arguments: [usize; 6], from: usize) -> u32 {
    interpret(filter, &data(number(call), arguments, from))
}

/// A generator of programs: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 33).unwrap() % bound
    }

    /// A program of `len` instructions that the kernel would take: it begins with what depends on registers that nobody has set.
    fn program(&mut self, len: u32) -> Vec<libc::sock_filter> {
        let mut program = vec![instruction(0x02, 0, 0, 3), instruction(0x03, 0, 0, 4)];
        for at in 2..len - 1 {
            let left = len - 1 - at;
            let jump = |random: &mut Random| u8::try_from(random.below(left.min(200))).unwrap();
            let (jt, jf) = (jump(self), jump(self));
            let k = if self.below(2) == 0 { self.below(500) } else { self.below(u32::MAX) };
            program.push(match self.below(12) {
                0..4 => instruction(0x20, 0, 0, self.below(16) * 4),
                4 => instruction(0x15, jt, jf, k),
                5 => instruction(0x25, jt, jf, k),
                6 => instruction(0x45, jt, jf, k),
                7 => instruction([0x04, 0x44, 0x54, 0xa4][self.below(4) as usize], 0, 0, k),
                8 => instruction([0x07, 0x87, 0x0c][self.below(3) as usize], 0, 0, 0),
                9 => instruction([0x60, 0x61][self.below(2) as usize], 0, 0, 3 + self.below(2)),
                10 => instruction(0x05, 0, 0, self.below(left)),
                _ => instruction(0x1d, jt, jf, 0),
            });
        }
        program.push(instruction(0x16, 0, 0, 0));
        program
    }
}

#[test]
fn the_program_sees_every_call_of_its_own_as_it_would_alone() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let numbers: Vec<u32> = listed(&own()).iter().map(|call| call.number).collect();
    for round in 0..200 {
        let program = random.program(4 + round * 3);
        let composed = compose(&program, &own()).unwrap();
        for _ in 0..100 {
            let number = match random.below(2) {
                0 => numbers[random.below(u32::try_from(numbers.len()).unwrap()) as usize],
                _ => random.below(480),
            };
            let from = match random.below(4) {
                0 => trampoline::RETURN_ADDRESS,
                1 => OURS[random.below(3) as usize] + (1 << 32),
                2 => OURS[random.below(3) as usize] - 2,
                _ => 0x7fff_1234_5678,
            };
            let arguments = std::array::from_fn(|_| random.below(1000) as usize);
            let call = data(number, arguments, from);
            assert_eq!(interpret(&composed, &call), interpret(&program, &call), "call {number} from {from:#x}");
        }
        // Another architecture's numbers mean other calls.
        let mut foreign = data(number(libc::SYS_futex), [0; 6], OURS[0]);
        foreign.arch = 0x4000_0003;
        assert_eq!(interpret(&composed, &foreign), interpret(&program, &foreign));
    }
}

#[test]
fn only_what_is_listed_is_allowed_from_our_instructions() {
    let composed = compose(&always(KILL), &own()).unwrap();
    let listed = listed(&own());
    for number in 0..600u32 {
        let known = listed.iter().any(|call| call.number == number);
        let any = listed.iter().any(|call| call.number == number && call.conditions.is_empty());
        // Arguments that no condition takes.
        let answers = OURS.map(|from| interpret(&composed, &data(number, [0x7777_7777_7777; 6], from)));
        assert_eq!(answers, [if any { ALLOW } else { KILL }; 3], "call {number}, listed: {known}");
    }
}

#[test]
fn arguments_are_checked() {
    let composed = compose(&always(KILL), &own()).unwrap();
    let (pages, anonymous) = (0x10000, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).unsigned_abs() as usize);
    let (writable, executable) = (3, 5);
    let request = |request: u32| request as usize | 0xdead_0000_0000_0000;
    let cases: [(libc::c_long, [usize; 6], bool); 26] = [
        (libc::SYS_ioctl, [960, request(uffd::REQUESTS[0]), 1, 2, 3, 4], true),
        (libc::SYS_ioctl, [959, request(uffd::REQUESTS[0]), 0, 0, 0, 0], false),
        (libc::SYS_ioctl, [960, request(0x5412), 0, 0, 0, 0], false),
        (libc::SYS_ioctl, [7, request(uffd::GREETING), 0, 0, 0, 0], true),
        (libc::SYS_read, [960, 1, 32, 0, 0, 0], true),
        (libc::SYS_read, [0, 1, 32, 0, 0, 0], false),
        (libc::SYS_pread64, [961, 0, 0, 0, 0, 0], true),
        (libc::SYS_pread64, [962, 0, 0, 0, 0, 0], true),
        (libc::SYS_pwrite64, [961, 0, 0, 0, 0, 0], false),
        (libc::SYS_pwritev, [900, 0, 0, 0, 0, 0], true),
        (libc::SYS_write, [960, 0, 0, 0, 0, 0], false),
        (libc::SYS_mmap, [0, pages, writable, anonymous, usize::MAX, 0], true),
        (libc::SYS_mmap, [0, pages, executable, anonymous, usize::MAX, 0], false),
        (libc::SYS_mmap, [0, pages, writable, 2, 5, 0], false),
        (libc::SYS_mmap, [0, pages, writable, anonymous | 1, usize::MAX, 0], false),
        (libc::SYS_mprotect, [pages, pages, writable, 0, 0, 0], true),
        (libc::SYS_mprotect, [pages, pages, executable, 0, 0, 0], false),
        (libc::SYS_process_vm_readv, [std::process::id() as usize, 0, 0, 0, 0, 0], true),
        (libc::SYS_process_vm_readv, [1, 0, 0, 0, 0, 0], std::process::id() == 1),
        (libc::SYS_tgkill, [1, 1, 9, 0, 0, 0], std::process::id() == 1),
        (libc::SYS_prctl, [usize::try_from(libc::PR_SET_NAME).unwrap(), 0, 0, 0, 0, 0], true),
        (libc::SYS_prctl, [usize::try_from(libc::PR_SET_DUMPABLE).unwrap(), 0, 0, 0, 0, 0], false),
        (libc::SYS_prlimit64, [0, 7, 0, 0x5000, 0, 0], true),
        (libc::SYS_prlimit64, [0, 7, 1 << 40, 0x5000, 0, 0], false),
        (libc::SYS_openat, [usize::MAX, 0, 0, 0, 0, 0], false),
        (libc::SYS_execve, [0; 6], false),
    ];
    for (call, arguments, allowed) in cases {
        let expected = if allowed { ALLOW } else { KILL };
        assert_eq!(ask(&composed, call, arguments, OURS[0]), expected, "call {call} with {arguments:x?}");
        assert_eq!(ask(&composed, call, arguments, 0x40_0000), KILL, "call {call} from the program");
    }
}

#[test]
fn a_program_without_room_is_refused() {
    let prologue = compose(&always(KILL), &own()).unwrap().len() - 1;
    let of = |len: usize| vec![instruction(0x06, 0, 0, ALLOW); len];
    assert_eq!(compose(&of(INSTRUCTIONS_MAX - prologue), &own()).unwrap().len(), INSTRUCTIONS_MAX);
    assert_eq!(compose(&of(INSTRUCTIONS_MAX - prologue + 1), &own()).map(|composed| composed.len()), None);
    assert!(prologue < 400, "{prologue} instructions");
}

/// Installs a composed filter in the calling process, which answers everything of the program's with `action`.
fn confine(action: u32) -> bool {
    let composed = compose(&always(action), &own()).unwrap();
    let program =
        libc::sock_fprog { len: u16::try_from(composed.len()).unwrap(), filter: composed.as_ptr().cast_mut() };
    // SAFETY: the program is valid for the calls, which change this forked process alone.
    unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) == 0
    }
}

/// A call from our instruction.
fn own_call(call: libc::c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the tests' calls touch no memory but what they name.
    unsafe { trampoline::own_call(call, arguments) }
}

#[test]
fn the_kernel_takes_it_and_tells_our_instructions_from_all_others() {
    trampoline::map().unwrap();
    let path = c"/proc/self/status".as_ptr().addr();
    let here = libc::AT_FDCWD.cast_unsigned() as usize;
    let errno = |errno: i32| -(errno as isize);
    let answer = in_child(|| {
        if !confine(libc::SECCOMP_RET_ERRNO | libc::EXDEV.unsigned_abs()) {
            return 10;
        }
        let denied = errno(libc::EXDEV);
        let right = own_call(libc::SYS_getppid, [0; 6]) > 0
            && own_call(libc::SYS_futex, [0; 6]) == errno(libc::EFAULT)
            && own_call(libc::SYS_openat, [here, path, 0, 0, 0, 0]) == denied
            && own_call(libc::SYS_execve, [path, 0, 0, 0, 0, 0]) == denied
            && own_call(libc::SYS_read, [0, 0, 0, 0, 0, 0]) == denied
            // SAFETY: takes nothing.
            && unsafe { trampoline::repeat(libc::SYS_getppid, [0; 6]) } == denied;
        own_call(libc::SYS_exit_group, [if right { 20 } else { 11 }, 0, 0, 0, 0, 0]);
        12
    });
    assert_eq!(answer, 20);
    let killed = in_child(|| {
        if confine(KILL) && own_call(libc::SYS_getppid, [0; 6]) > 0 {
            own_call(libc::SYS_openat, [here, path, 0, 0, 0, 0]);
        }
        13
    });
    assert_eq!(killed, -libc::SIGSYS);
}

#[test]
fn whoever_opens_files_is_waited_for() {
    let answer = in_child(|| {
        let inside = with_files(is_confined);
        let first = begin(always(KILL));
        let (again, refused) = (begin(always(KILL)), with_files(|| ()));
        undo(again);
        undo(first);
        let right = inside == Some(false) && first && !again && refused.is_none() && with_files(|| ()).is_some();
        i32::from(right)
    });
    assert_eq!(answer, 1);
}

#[test]
fn threads_are_permitted_where_every_filter_lets_libc_start_them() {
    let deny = |call: libc::c_long, action: u32| {
        let mut program = vec![instruction(0x20, 0, 0, 0), instruction(0x15, 0, 1, number(call))];
        program.extend([instruction(0x06, 0, 0, action), instruction(0x06, 0, 0, ALLOW)]);
        program
    };
    let error = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
    let cases = [
        (vec![], true),
        (vec![always(KILL)], false),
        (vec![always(ALLOW), deny(libc::SYS_clone3, KILL)], false),
        (vec![deny(libc::SYS_clone3, error(libc::EPERM))], false),
        (vec![deny(libc::SYS_clone3, error(libc::ENOSYS)), always(ALLOW)], true),
        (vec![deny(libc::SYS_clone3, error(libc::ENOSYS)), deny(libc::SYS_clone, KILL)], false),
        (vec![deny(libc::SYS_rseq, error(libc::EPERM)), deny(libc::SYS_openat, KILL)], true),
        (vec![deny(libc::SYS_rseq, libc::SECCOMP_RET_TRAP)], false),
    ];
    let answers = in_child(|| {
        let wrong = cases.iter().position(|(filters, expected)| {
            filters.iter().for_each(|filter| {
                begin(filter.clone());
            });
            let wrong = permits_threads() != *expected;
            filters.iter().for_each(|_| undo(false));
            wrong
        });
        wrong.map_or(0, |case| i32::try_from(case).unwrap() + 1)
    });
    assert_eq!(answers, 0, "the case with that number");
}
