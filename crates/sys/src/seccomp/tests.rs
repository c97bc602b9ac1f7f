//! The filter by an interpreter, for every number and argument; and by the kernel, in forked children.

use super::*;
use crate::trampoline;
use interpret::{data, interpret};
use std::io::Write;

const FAR: Range<usize> = 0x4800_0000_0000..0x5400_0000_0000;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const TRAP: u32 = libc::SECCOMP_RET_TRAP | TRAP_MARK as u32;

fn ask(filter: &Filter, number: u32, arguments: [usize; 6], from: usize) -> u32 {
    interpret(&filter.program, &data(number, arguments, from))
}

/// Rules as varied as the real ones: every mask occurs, with gaps between the numbers.
fn many_rules() -> Vec<(u32, Rule)> {
    let rule = |number: u32| match number % 7 {
        0 => Rule::Allow,
        1 => Rule::Refuse(38),
        _ => Rule::Pointers(u8::try_from(number * 37 % 64).unwrap()),
    };
    (0..470).filter(|number| !(336..424).contains(number)).map(|number| (number, rule(number))).collect()
}

#[test]
fn exactly_the_pointer_arguments_are_looked_at() {
    let rules = many_rules();
    let filter = Filter::new(&rules, FAR);
    let edges = [FAR.start, FAR.start + 0x1234_5678, FAR.end - 1];
    let near = [0, 1, FAR.start - 1, FAR.end, 0x7fff_ffff_ffff, usize::MAX, 0x4800, 0x4800_0000_0000_0000];
    for number in 0..600 {
        let known = rules.iter().find(|(known, _)| *known == number).map(|(_, rule)| *rule);
        let rule = known.unwrap_or(UNKNOWN);
        for index in 0..6 {
            for value in edges.iter().chain(&near).copied() {
                let mut arguments = [0x7f00_0000_0000; 6];
                arguments[index] = value;
                let expected = match rule {
                    Rule::Refuse(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
                    Rule::Pointers(mask) if FAR.contains(&value) && mask & 1 << index != 0 => TRAP,
                    _ => ALLOW,
                };
                let what = format!("{number} {rule:?}, argument {index} = {value:#x}");
                assert_eq!(ask(&filter, number, arguments, 0x4000_0000), expected, "{what}");
                for exempt in [trampoline::RETURN_ADDRESS, trampoline::INSIDE_RETURN_ADDRESS] {
                    assert_eq!(ask(&filter, number, arguments, exempt), ALLOW, "{what}, exempt");
                }
            }
        }
    }
    let wrong = [
        trampoline::ADDRESS,
        trampoline::RETURN_ADDRESS + (1 << 32),
        trampoline::RETURN_ADDRESS + 1,
        trampoline::OWN_RETURN_ADDRESS,
        trampoline::RESTORER_RETURN_ADDRESS,
    ];
    assert!(wrong.iter().all(|from| ask(&filter, 500, [FAR.start; 6], *from) == TRAP));
}

#[test]
fn the_code_tells_which_arguments_are_looked_at() {
    const EINVAL: u16 = 22;
    static CODES: Codes = Codes {
        argument: 1,
        bits: 0x7f,
        pointers: &[(0, 0b1001), (3, 0b10001)],
        otherwise: 0b1,
        refused: (&[5, 9], EINVAL),
    };
    let filter = Filter::new(&[(7, Rule::ByCode(&CODES))], FAR);
    for code in 0..300usize {
        for (index, far) in [0, 2, 3, 4, 5].map(|index| (index, FAR.start + 8)) {
            let mut arguments = [0x1000; 6];
            arguments[1] = code | 0xdead_0000_0000;
            arguments[index] = far;
            let looked_at = index == 0 || code & 0x7f == 0 && index == 3 || code & 0x7f == 3 && index == 4;
            let refused = [5, 9].contains(&(code & 0x7f));
            let expected = match looked_at {
                _ if refused => libc::SECCOMP_RET_ERRNO | u32::from(EINVAL),
                true => TRAP,
                false => ALLOW,
            };
            assert_eq!(ask(&filter, 7, arguments, 0), expected, "code {code}, argument {index}");
            assert_eq!(ask(&filter, 7, arguments, trampoline::RETURN_ADDRESS), ALLOW, "code {code}, exempt");
        }
    }
}

#[test]
fn other_architectures_and_lone_rules_work() {
    let filter = Filter::new(&[(0, Rule::Pointers(0b10))], FAR);
    let far = [FAR.start as u64; 6];
    let i386 = libc::seccomp_data { nr: 3, arch: 0x4000_0003, instruction_pointer: 0, args: far };
    assert_eq!(interpret(&filter.program, &i386), ALLOW);
    let none = Filter::new(&[], FAR);
    assert_eq!(ask(&none, 0, [0, 0, 0, 0, 0, FAR.start], 0), TRAP);
    assert_eq!(ask(&none, u32::MAX, [1; 6], 0), ALLOW);
}

#[test]
fn the_probe_gets_the_stamp_and_the_stamp_depends_on_the_rules() {
    let filter = Filter::new(&many_rules(), FAR);
    let probe = [probe::NO_DESCRIPTOR, 1, probe::MARK, 0, 0, 0];
    let stamped = libc::SECCOMP_RET_ERRNO | u32::from(filter.stamp);
    assert_eq!(ask(&filter, probe::NUMBER, probe, 0), stamped);
    assert_eq!(ask(&filter, probe::NUMBER, [3, 1, probe::MARK, 0, 0, 0], 0), ALLOW);
    assert_eq!(ask(&filter, probe::NUMBER, [probe::NO_DESCRIPTOR, 1, probe::MARK + 1, 0, 0, 0], 0), ALLOW);
    let mut others = many_rules();
    others[460 - 88].1 = Rule::Pointers(0b1);
    assert_ne!(Filter::new(&others, FAR).stamp, filter.stamp);
    assert!(filter.instructions() < 4096, "{}", filter.instructions());
}

/// Runs `body` in a forked child; its answer is the child's exit code, or minus the signal that killed it.
pub(crate) fn in_child(body: impl FnOnce() -> i32) -> i32 {
    let _ = std::io::stdout().flush();
    // SAFETY: the child calls nothing but `body`, which makes system calls only, and ends without destructors.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(body());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }
}

/// The rule of read(2) and of getpid(2); write(2) traps on its second argument too.
fn real_filter() -> Filter {
    Filter::new(
        &[(0, Rule::Pointers(0b10)), (1, Rule::Pointers(0b10)), (39, Rule::Allow), (72, Rule::Pointers(4))],
        FAR,
    )
}

fn raw(number: i64, a: usize, b: usize) -> isize {
    // SAFETY: the tests' calls touch no memory: descriptors are closed, addresses unmapped.
    isize::try_from(unsafe { libc::syscall(number, a, b, 1, 0, 0, 0) }).unwrap()
}

#[test]
fn the_kernel_traps_a_far_pointer_and_lets_the_trampoline_through() {
    let filter = real_filter();
    assert!(!filter.installed());
    let far = FAR.start + 4096;
    let answer = in_child(|| {
        trampoline::map().unwrap();
        let first = filter.install();
        let again = filter.install();
        if !matches!(first, Ok(Installed::Now | Installed::NowWithoutNewPrivileges)) || again != Ok(Installed::Before) {
            return 10;
        }
        if raw(libc::SYS_read, usize::MAX, 0x1000) != -1 || raw(libc::SYS_getpid, far, far) <= 0 {
            return 11;
        }
        // SAFETY: nothing is mapped at the address: the kernel refuses it.
        let exempt = unsafe { trampoline::repeat(libc::SYS_write, [1, far, 1, 0, 0, 0]) };
        if exempt != -(libc::EFAULT as isize) {
            return 12;
        }
        raw(libc::SYS_read, 0, far).try_into().unwrap_or(13)
    });
    assert_eq!(answer, -libc::SIGSYS);
}

#[test]
fn the_filter_survives_exec_and_is_harmless_there() {
    let filter = real_filter();
    let answer = in_child(|| {
        if filter.install().is_err() {
            return 10;
        }
        // SAFETY: C strings, and a list that ends with null.
        unsafe { libc::execl(c"/bin/true".as_ptr(), c"true".as_ptr(), std::ptr::null::<libc::c_char>()) };
        11
    });
    assert_eq!(answer, 0);
}

#[test]
fn a_process_without_privileges_installs_it_too() {
    let filter = real_filter();
    let answer = in_child(|| {
        // SAFETY: gives privileges up; no memory is touched. By raw calls: libc would ask all threads.
        unsafe {
            libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534);
            libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534);
        }
        match filter.install() {
            Ok(Installed::NowWithoutNewPrivileges) if filter.installed() => 0,
            outcome => i32::from(outcome.is_ok()) + 10,
        }
    });
    assert_eq!(answer, 0);
}
