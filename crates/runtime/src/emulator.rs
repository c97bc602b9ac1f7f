//! QEMU's emulators of a process (`qemu-x86_64`, `qemu-aarch64`, …): known by their names, because they tell their guests of none.
//!
//! The library would begin twice, in the emulator and again in the emulation, which hands `LD_PRELOAD` on and knows no userfaultfd. An
//! emulator that is linked statically loads no library, so that one is not known.

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

/// The name of this process's program, if it is an emulator.
pub fn name() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let name = program.file_name()?.to_str().filter(|name| is_emulator(name))?;
    Some(name.to_owned())
}

/// Has the library do nothing in the emulation, where its tables would be mapped again: it does nothing without these settings.
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
    fn emulators_of_a_process_are_told_from_those_of_a_machine() {
        assert!(
            ["qemu-x86_64", "qemu-aarch64_be", "qemu-ppc64le", "qemu-mipsn32el"].iter().all(|name| is_emulator(name))
        );
        assert!(!["qemu-system-x86_64", "qemu-img", "qemu-nbd", "x86_64", "qemu"].iter().any(|name| is_emulator(name)));
        assert_eq!(name(), None);
    }
}
