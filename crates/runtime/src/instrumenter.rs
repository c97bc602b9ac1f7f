//! Programs that run others by means of their own: QEMU's emulators of a process (`qemu-x86_64`, `qemu-aarch64`, …), PRoot, rr and
//! DynamoRIO. They are known by their names, because they tell their guests of none. (Valgrind does: `sys/valgrind.rs`.)
//!
//! The library would begin twice, in such a program and again in its guest, which gets `LD_PRELOAD`. One that is linked statically loads no
//! library, so that one is not known.

use hinterland_abi::variables;

/// Processors, as QEMU's targets for Linux begin (`linux-user/` in its sources). Its other programs are `qemu-system-…`, `qemu-img` and the like.
const PROCESSORS: [&str; 20] = [
    "aarch64",
    "alpha",
    "arm",
    "cris",
    "hexagon",
    "hppa",
    "i386",
    "loongarch64",
    "m68k",
    "microblaze",
    "mips",
    "nios2",
    "or1k",
    "ppc",
    "riscv",
    "s390x",
    "sh4",
    "sparc",
    "x86_64",
    "xtensa",
];

/// PRoot's program, whose loader maps the guest at 0x5000_0000_0000 (`EXEC_PIC_ADDRESS` in its `arch.h`).
const PROOT: &str = "proot";

/// Others, and what each does that far memory has no place in.
const BY_NAME: [(&str, &str); 3] = [
    (PROOT, "maps the programs that it runs at addresses of far memory"),
    ("rr", "replays programs by what their system calls answered, which is nothing of what a userfaultfd brings"),
    ("drrun", "runs a copy of a program's instructions, in which the library's own changes have no place"),
];

/// This process's program, if it is one of them, and why its guests cannot be managed.
pub fn of_this_process() -> Option<(String, &'static str)> {
    let program = std::env::current_exe().ok()?;
    let name = program.file_name()?.to_str()?;
    Some((name.to_owned(), obstacle(name)?))
}

fn obstacle(name: &str) -> Option<&'static str> {
    if is_emulator(name) {
        return Some(
            "emulates a processor: the library would begin a second time in its emulation, which knows no userfaultfd",
        );
    }
    BY_NAME.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

/// Whether its guests die where calls that name far memory are trapped, and nothing of ours answers.
pub fn dies_of_filters(name: &str) -> bool {
    name == PROOT
}

/// Has the library do nothing in the guest, where its tables would be mapped again: it does nothing without these settings.
pub fn leave_guest_alone() {
    for name in [variables::LOCAL, variables::RAM] {
        // SAFETY: the library's constructor runs in the only thread of the process.
        unsafe { std::env::remove_var(name) };
    }
}

fn is_emulator(name: &str) -> bool {
    let processor = name.strip_prefix("qemu-");
    processor.is_some_and(|processor| PROCESSORS.iter().any(|known| processor.starts_with(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_run_others_are_told_from_emulators_of_machines() {
        let known = ["qemu-x86_64", "qemu-aarch64_be", "qemu-ppc64le", "qemu-mipsn32el", "proot", "rr", "drrun"];
        assert!(known.iter().all(|name| obstacle(name).is_some()));
        let others = ["qemu-system-x86_64", "qemu-img", "qemu-nbd", "x86_64", "qemu", "chroot", "proot-x"];
        assert!(others.iter().all(|name| obstacle(name).is_none()));
        assert_eq!(of_this_process(), None);
    }
}
