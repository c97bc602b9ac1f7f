//! The filter that traps system calls on far memory: SIGSYS arrives before the kernel looks at a far pointer.
//!
//! A call is trapped when one of its *own* pointer arguments lies in the far range. Dead registers hold far addresses too, so
//! the table says for each call which of the six arguments the kernel follows. Calls from the [`crate::trampoline`] pass,
//! whatever their arguments; numbers that the table does not know are looked at in all six. Other architectures' calls pass:
//! their pointers have 32 bits.
//!
//! The filter stays over exec and is inherited by programs that have no far memory. It is harmless there, because nothing else
//! is mapped in the far range, and it is installed only once (`probe`).

mod assemble;
pub(crate) mod interpret;
mod probe;
pub(crate) mod prologue;
#[cfg(test)]
pub(crate) mod tests;

use crate::{SysError, confinement, trampoline};
use std::ops::Range;

/// What happens to a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// It passes.
    Allow,
    /// It traps if one of these arguments (bit 0: the first) lies in the far range.
    Pointers(u8),
    /// What its pointers are depends on a code among its arguments.
    ByCode(&'static Codes),
    /// It fails with this error.
    Refuse(u16),
}

/// The pointers of a call by its code: registers of arguments that an operation does not have hold anything.
#[derive(PartialEq, Eq, Debug)]
pub struct Codes {
    /// The argument that holds the code, in its lower half.
    pub argument: u8,
    /// The bits of it that tell the operation.
    pub bits: u32,
    /// Operations, and the arguments that are pointers for them.
    pub pointers: &'static [(u32, u8)],
    /// The pointers of all other operations.
    pub otherwise: u8,
    /// Operations that fail with this error, whatever their arguments.
    pub refused: (&'static [u32], u16),
}

/// What a trap of this filter carries (`si_errno` of the signal): by this it is told from one of the program's own filter. "hi".
pub const TRAP_MARK: u16 = 0x6869;

/// Numbers beyond the rules: newer than the table, so every argument may be a pointer.
const UNKNOWN: Rule = Rule::Pointers(0b11_1111);

/// What a filter costs this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Nothing.
    Free,
    /// It must first give up gaining privileges by exec (`no_new_privs`).
    ForNewPrivileges,
}

/// Whether this process may have filters that trap. Asks with a program that the kernel refuses after it has looked at the
/// permission (`seccomp_prepare_filter` in kernel/seccomp.c), so nothing changes.
///
/// # Errors
/// `EINVAL` or `ENOSYS` without seccomp filters, what a sandbox answers otherwise.
pub fn permission() -> Result<Permission, SysError> {
    const CALL: &str = "seccomp(SECCOMP_SET_MODE_FILTER)";
    let action: u32 = libc::SECCOMP_RET_TRAP;
    // SAFETY: asks whether an action is known; the kernel reads the four bytes and changes nothing.
    if unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) } != 0 {
        return Err(SysError::last("seccomp(SECCOMP_GET_ACTION_AVAIL)"));
    }
    // No such instruction.
    let instruction = libc::sock_filter { code: u16::MAX, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: (&raw const instruction).cast_mut() };
    // SAFETY: the program is valid memory for the call, and none that the kernel accepts.
    let rc = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    assert!(rc != 0, "the kernel took a filter that is none");
    match SysError::last(CALL) {
        SysError { errno: libc::EINVAL, .. } => Ok(Permission::Free),
        SysError { errno: libc::EACCES, .. } => Ok(Permission::ForNewPrivileges),
        error => Err(error),
    }
}

/// Filters that are in force for the calling thread (`Seccomp_filters`, Linux 5.9); `None`: the kernel does not say, or the process may
/// not ask.
pub fn filters() -> Option<u32> {
    let status = confinement::with_files(|| std::fs::read_to_string("/proc/thread-self/status"))?.ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?;
    line.trim().parse().ok()
}

/// Whether a filter of Hinterland's, of whatever version, is in force: of this process, or inherited.
pub fn in_force() -> bool {
    probe::is_stamp(probe::answer())
}

/// Whether a filter with these very rules for this far range is in force, as [`Filter::installed`] says it of one that is built.
pub fn is_in_force(rules: &[(u32, Rule)], far_range: &Range<usize>) -> bool {
    probe::answer() == i32::from(stamp(rules, far_range))
}

fn stamp(rules: &[(u32, Rule)], far_range: &Range<usize>) -> u16 {
    let words = runs(rules).into_iter().flat_map(|(number, rule)| [u64::from(number), rule.word()]);
    let exempt = [trampoline::RETURN_ADDRESS as u64, trampoline::INSIDE_RETURN_ADDRESS as u64];
    let range = [far_range.start as u64, far_range.end as u64, exempt[0], exempt[1], TRAP_MARK.into()];
    probe::stamp(words.chain(range))
}

/// A filter, ready to be installed.
#[derive(Clone, Debug)]
pub struct Filter {
    program: Vec<libc::sock_filter>,
    stamp: u16,
}

/// How a filter came to be in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Installed {
    /// Installed now.
    Now,
    /// Installed now, and for that the process gave up gaining privileges by exec (`no_new_privs`): set-user-id programs
    /// that it starts run without theirs.
    NowWithoutNewPrivileges,
    /// Inherited over exec, or installed before.
    Before,
}

impl Filter {
    /// Builds a filter of `rules`, sorted by number, for the far range.
    ///
    /// # Panics
    /// If the rules are not sorted, or the range does not begin and end on multiples of 4 GiB: the filter looks at upper halves of
    /// addresses alone.
    pub fn new(rules: &[(u32, Rule)], far_range: Range<usize>) -> Filter {
        assert!(rules.is_sorted_by(|a, b| a.0 < b.0), "the rules are sorted by number, one for each");
        assert!(
            [far_range.start, far_range.end].iter().all(|end| end.is_multiple_of(1 << 32)) && !far_range.is_empty()
        );
        let stamp = stamp(rules, &far_range);
        Filter { program: assemble::program(rules, &far_range, stamp), stamp }
    }

    /// Instructions; the kernel takes at most 4096 (`BPF_MAXINSNS`).
    pub fn instructions(&self) -> usize {
        self.program.len()
    }

    /// Whether a filter with these very rules is in force.
    pub fn installed(&self) -> bool {
        probe::answer() == i32::from(self.stamp)
    }

    /// Installs the filter for all threads of the process, unless it is in force.
    ///
    /// # Errors
    /// `EINVAL` or `ENOSYS` when the kernel has no seccomp filters, `ESRCH` when a thread could not be brought under the
    /// filter, `EACCES` or `EPERM` in a sandbox that forbids filters.
    pub fn install(&self) -> Result<Installed, SysError> {
        if self.installed() {
            return Ok(Installed::Before);
        }
        match self.set() {
            Ok(()) => Ok(Installed::Now),
            // Without CAP_SYS_ADMIN the kernel asks for no_new_privs first.
            Err(SysError { errno: libc::EACCES, .. }) => {
                // SAFETY: sets an attribute of this thread; no memory is touched.
                let rc = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
                if rc < 0 {
                    return Err(SysError::last("prctl(PR_SET_NO_NEW_PRIVS)"));
                }
                self.set().map(|()| Installed::NowWithoutNewPrivileges)
            }
            Err(error) => Err(error),
        }
    }

    fn set(&self) -> Result<(), SysError> {
        // Before Linux 5.16 a filter also switched speculation off, unless told not to.
        let all_threads = libc::SECCOMP_FILTER_FLAG_TSYNC;
        match self.set_with(all_threads | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW) {
            Err(SysError { errno: libc::EINVAL, .. }) => self.set_with(all_threads),
            outcome => outcome,
        }
    }

    fn set_with(&self, flags: libc::c_ulong) -> Result<(), SysError> {
        const CALL: &str = "seccomp(SECCOMP_SET_MODE_FILTER)";
        let len = u16::try_from(self.program.len()).map_err(|_| SysError { call: CALL, errno: libc::E2BIG })?;
        let program = libc::sock_fprog { len, filter: self.program.as_ptr().cast_mut() };
        // SAFETY: the program is valid for the call; the kernel copies it and writes nothing.
        let rc = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        match rc {
            0 => Ok(()),
            // The id of a thread whose own filters stand in the way.
            1.. => Err(SysError { call: CALL, errno: libc::ESRCH }),
            _ => Err(SysError::last(CALL)),
        }
    }
}

impl Rule {
    /// The rule as a number, for the stamp.
    fn word(self) -> u64 {
        match self {
            Rule::Allow => 0,
            Rule::Pointers(mask) => 1 << 32 | u64::from(mask),
            Rule::Refuse(errno) => 2 << 32 | u64::from(errno),
            Rule::ByCode(codes) => {
                let head = [u64::from(codes.argument), codes.bits.into(), codes.otherwise.into()];
                let each = codes.pointers.iter().map(|(code, mask)| u64::from(*code) << 8 | u64::from(*mask));
                let refused = codes.refused.0.iter().map(|code| u64::from(*code) << 16 | u64::from(codes.refused.1));
                3 << 32 | u64::from(probe::stamp(head.into_iter().chain(each).chain(refused)))
            }
        }
    }
}

/// The rules as runs over all numbers: each holds from its number up to the next one's. The probe's number stands alone.
fn runs(rules: &[(u32, Rule)]) -> Vec<(u32, Rule)> {
    let mut runs = Vec::new();
    let mut next = 0;
    let mut add = |number, rule| match runs.last() {
        Some((last, before)) if *before == rule && number != probe::NUMBER && *last != probe::NUMBER => {}
        _ => runs.push((number, rule)),
    };
    for (number, rule) in rules.iter().copied() {
        if number > next {
            add(next, UNKNOWN);
        }
        add(number, rule);
        next = number + 1;
    }
    add(next, UNKNOWN);
    runs
}
