//! What a thread may do: capabilities(7), by capget(2).

use crate::errno::Preserved;

/// Three sets of capabilities.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Effective, permitted, inheritable: the lower halves, then the upper ones.
    sets: [[u32; 3]; 2],
}

impl Capabilities {
    /// Those of a thread; 0: the calling one. `None`: there is no such thread, or the kernel does not say.
    pub fn of(thread: u32) -> Option<Capabilities> {
        /// `_LINUX_CAPABILITY_VERSION_3`.
        const VERSION: u32 = 0x2008_0522;
        let _errno = Preserved::new();
        let (mut header, mut capabilities) = ([VERSION, thread], Capabilities::default());
        // SAFETY: header and sets are as the call takes them.
        let done = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), &raw mut capabilities) };
        (done == 0).then_some(capabilities)
    }

    /// Whether a capability of this number is in force.
    pub fn has(&self, number: usize) -> bool {
        self.sets.get(number / 32).is_some_and(|[effective, ..]| effective & 1 << (number % 32) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_is_what_the_kernel_lists() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let listed = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let listed = u64::from_str_radix(listed.trim(), 16).unwrap();
        let own = Capabilities::of(0).unwrap();
        assert!((0..64).all(|number| own.has(number) == (listed >> number & 1 != 0)), "{listed:x}");
        assert!(!own.has(64) && Capabilities::of(u32::MAX >> 1).is_none());
    }
}
