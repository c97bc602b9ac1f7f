//! What this kernel can do, found by trying; and named feature sets, so that every path can be tested on one machine.

use crate::mem;
use crate::uffd::{Uffd, feature};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Who may serve faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// Faults of system calls are served too: the monitor path is transparent.
    Kernel,
    /// Only faults from user mode.
    UserOnly,
    /// userfaultfd is not there or forbidden; carries the error number.
    None(i32),
}

/// A pretended kernel: features beyond it are not used although they are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FeatureSet {
    /// What the kernel has.
    #[default]
    All,
    /// Linux 6.12: no process_madvise(DONTNEED) on oneself.
    V6_12,
    /// Linux 6.8: the first with MOVE.
    V6_8,
    /// Linux 6.1: no MOVE.
    V6_1,
    /// Linux 5.15: the oldest that is supported. Of what is used, it has what 6.1 has.
    V5_15,
    /// No userfaultfd.
    NoUffd,
}

impl FeatureSet {
    /// All names, as `--features` takes them.
    pub const NAMES: &'static str = "all, 6.12, 6.8, 6.1, 5.15, no-uffd";
}

impl FromStr for FeatureSet {
    type Err = String;
    fn from_str(text: &str) -> Result<FeatureSet, String> {
        Ok(match text {
            "" | "all" => FeatureSet::All,
            "6.12" => FeatureSet::V6_12,
            "6.8" => FeatureSet::V6_8,
            "6.1" => FeatureSet::V6_1,
            "5.15" => FeatureSet::V5_15,
            "no-uffd" => FeatureSet::NoUffd,
            _ => return Err(format!("'{text}' is no feature set; choose from {}", FeatureSet::NAMES)),
        })
    }
}

impl fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FeatureSet::All => "all",
            FeatureSet::V6_12 => "6.12",
            FeatureSet::V6_8 => "6.8",
            FeatureSet::V6_1 => "6.1",
            FeatureSet::V5_15 => "5.15",
            FeatureSet::NoUffd => "no-uffd",
        })
    }
}

/// What may be used on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Who may serve faults.
    pub privilege: Privilege,
    /// Faults can be signals to the faulting thread (Linux 4.14).
    pub signals: bool,
    /// `UFFDIO_MOVE` (Linux 6.8).
    pub move_pages: bool,
    /// Write-protect faults on anonymous memory (Linux 5.7).
    pub write_protect: bool,
    /// Fault messages carry the thread (Linux 4.14).
    pub thread_id: bool,
    vectors: Vectors,
}

/// Whether vectors may be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Vectors {
    Masked,
    /// Where the kernel can.
    Tried,
    /// It is known that it can.
    There,
}

/// Whether vectors work here: not known yet.
const UNKNOWN: u8 = 0;
const WORK: u8 = 1;
const FAIL: u8 = 2;
static VECTORS: AtomicU8 = AtomicU8::new(UNKNOWN);

impl Features {
    /// Tries each feature, then masks what `set` does not have.
    pub fn probe(set: FeatureSet) -> Features {
        let none = Features {
            privilege: Privilege::None(libc::ENOSYS),
            signals: false,
            move_pages: false,
            write_protect: false,
            thread_id: false,
            vectors: Vectors::Masked,
        };
        if set == FeatureSet::NoUffd {
            return none;
        }
        let (uffd, privilege) = match Uffd::open(0).or_else(|refused| Uffd::open_user_only(0).map_err(|_| refused)) {
            Ok(uffd) if uffd.takes_kernel_faults() => (uffd, Privilege::Kernel),
            Ok(uffd) => (uffd, Privilege::UserOnly),
            Err(error) => return Features { privilege: Privilege::None(error.errno), ..none },
        };
        let offered = uffd.offered();
        uffd.close();
        Features::of(set, privilege, offered)
    }

    /// Of a kernel that offers these features of userfaultfd (bits of `uffdio_api.features`), what `set` has.
    pub fn of(set: FeatureSet, privilege: Privilege, offered: u64) -> Features {
        let has = |bit: u64| offered & bit != 0;
        let newer_than_6_1 = !matches!(set, FeatureSet::V6_1 | FeatureSet::V5_15);
        Features {
            privilege,
            signals: has(feature::SIGBUS),
            move_pages: has(feature::MOVE) && newer_than_6_1,
            write_protect: has(feature::PAGEFAULT_FLAG_WP),
            thread_id: has(feature::THREAD_ID),
            vectors: if set == FeatureSet::All { Vectors::Tried } else { Vectors::Masked },
        }
    }

    /// The same where vectors need not be tried: whoever answers for the kernel knows that they work.
    pub fn with_vectors(self) -> Features {
        let vectors = if self.vectors == Vectors::Masked { Vectors::Masked } else { Vectors::There };
        Features { vectors, ..self }
    }

    /// Whether `drop_vector` is worth a try.
    pub fn may_drop_vector(&self) -> bool {
        self.vectors != Vectors::Masked
    }

    /// Whether there are `process_madvise(DONTNEED)` on the process itself (Linux 6.13) and `process_vm_readv`. Tried when somebody
    /// asks first: most processes never do.
    pub fn drop_vector(&self) -> bool {
        match self.vectors {
            Vectors::Masked => return false,
            Vectors::There => return true,
            Vectors::Tried => {}
        }
        if VECTORS.load(Relaxed) == UNKNOWN {
            let found = if mem::vectors_work() { WORK } else { FAIL };
            // Of threads that try at the same time, the first answer stays.
            let _ = VECTORS.compare_exchange(UNKNOWN, found, Relaxed, Relaxed);
        }
        VECTORS.load(Relaxed) == WORK
    }

    /// The bits to enable when a userfaultfd is opened for the monitor path.
    pub fn monitor_bits(&self) -> u64 {
        let bit = |enabled: bool, bit: u64| if enabled { bit } else { 0 };
        self.common_bits() | bit(self.thread_id, feature::THREAD_ID)
    }

    /// The bits to enable when a userfaultfd is opened for the inline path.
    pub fn inline_bits(&self) -> u64 {
        self.common_bits() | feature::SIGBUS
    }

    fn common_bits(&self) -> u64 {
        let bit = |enabled: bool, bit: u64| if enabled { bit } else { 0 };
        bit(self.write_protect, feature::PAGEFAULT_FLAG_WP) | bit(self.move_pages, feature::MOVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_sets_never_have_more() {
        let all = Features::probe(FeatureSet::All);
        let old = Features::probe(FeatureSet::V6_1);
        assert!(!old.move_pages && !old.drop_vector());
        assert_eq!(old.privilege, all.privilege);
        assert_eq!(Features::probe(FeatureSet::NoUffd).privilege, Privilege::None(libc::ENOSYS));
    }

    #[test]
    fn names_read_back() {
        for name in FeatureSet::NAMES.split(", ") {
            assert_eq!(name.parse::<FeatureSet>().map(|s| s.to_string()), Ok(name.to_owned()));
        }
        assert!("7.0x".parse::<FeatureSet>().is_err());
    }
}
