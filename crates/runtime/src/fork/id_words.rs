//! Words of the program's in far memory that clone(2) writes numbers to, or that the kernel clears when a thread ends.
//!
//! The kernel does not find them if they are evicted. While a fork is made, nothing is served: the caller would wait for ever. Its child gets a
//! new page in the place of the one that is missing. On the inline path a call fails or stores nothing, and at a thread's end nothing is served
//! on either path.
//!
//! So a fork has the kernel write near words, and they are copied when far memory works again, in parent and child. For a clone that shares the
//! memory the words are pinned for the call, and those of its child for long.

use crate::errno;
use crate::inline::stacks::{altstack, stack_switch};
use crate::inline::syscalls::{self, is_far, touches_far};
use crate::inline::{self, user_copy};
use crate::region_map;
use hinterland_pager::PinAccess;
use hinterland_sys::thread::{self, SignalsBlocked};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// Of a thread's number, or of a descriptor.
const BYTES: usize = size_of::<i32>();
/// Numbers that a clone may choose: one for each namespace.
const CHOSEN_MAX: usize = 32;

/// The addresses that a clone names.
#[derive(Clone, Copy, Default)]
pub(crate) struct Named {
    pub flags: u64,
    /// In clone(2), `pidfd` and `parent` are one argument.
    pub pidfd: usize,
    pub parent: usize,
    pub child: usize,
    /// An array of numbers that is read, and how many they are.
    pub chosen: usize,
    pub chosen_count: usize,
}

impl Named {
    /// The third argument of clone(2): one for both, which the kernel refuses together.
    pub(super) fn parent_of_clone(&self) -> usize {
        if self.asks(libc::CLONE_PIDFD) { self.pidfd } else { self.parent }
    }

    fn asks(&self, flags: libc::c_int) -> bool {
        self.flags & u64::from(flags.cast_unsigned()) != 0
    }
}

/// Whether a part of a word is far; the program may write to it.
fn is_far_word(at: usize) -> bool {
    let is_ours = |byte: usize| !is_far(byte) || region_map::writable_around(byte, byte, byte + 1).is_some();
    touches_far(at, BYTES) && is_ours(at) && is_ours(at.wrapping_add(BYTES - 1))
}

/// A near word in the place of a far one.
struct Word {
    near: AtomicI32,
    /// 0: the kernel gets the program's address, for there is nothing to do.
    far: usize,
}

impl Word {
    fn of(is_asked: bool, far: usize) -> Word {
        Word { near: AtomicI32::new(0), far: if is_asked && is_far_word(far) { far } else { 0 } }
    }

    fn address(&self, given: usize) -> usize {
        if self.far == 0 { given } else { self.near.as_ptr().addr() }
    }

    fn copy_out(&self) {
        if self.far != 0 {
            // As the kernel's own store, this may find that the memory is gone.
            let _ = stack_switch::run_blocked(|| user_copy::write(self.far, &self.near.load(Relaxed)));
        }
    }
}

/// The words of a fork. On the stack, which is local while a fork is made.
pub(super) struct ForkWords {
    named: Named,
    pidfd: Word,
    parent: Word,
    child: Word,
    chosen: Option<[i32; CHOSEN_MAX]>,
}

impl ForkWords {
    /// Before a fork is made.
    pub fn of(named: Named) -> ForkWords {
        let (with_pidfd, with_parent) = (named.asks(libc::CLONE_PIDFD), named.asks(libc::CLONE_PARENT_SETTID));
        // The kernel refuses both at one place.
        let are_distinct = !(with_pidfd && with_parent && named.pidfd == named.parent);
        let mut chosen = None;
        if (1..=CHOSEN_MAX).contains(&named.chosen_count) && touches_far(named.chosen, named.chosen_count * BYTES) {
            let mut bytes = [0u8; CHOSEN_MAX * BYTES];
            let bytes = &mut bytes[..named.chosen_count * BYTES];
            if stack_switch::run_blocked(|| user_copy::read_bytes(named.chosen, bytes)).is_ok() {
                let mut numbers = [0; CHOSEN_MAX];
                let read =
                    bytes.chunks_exact(BYTES).map(|four| i32::from_ne_bytes(four.try_into().unwrap_or_default()));
                numbers.iter_mut().zip(read).for_each(|(number, read)| *number = read);
                chosen = Some(numbers);
            }
        }
        ForkWords {
            named,
            pidfd: Word::of(with_pidfd && are_distinct, named.pidfd),
            parent: Word::of(with_parent && are_distinct, named.parent),
            child: Word::of(named.asks(libc::CLONE_CHILD_SETTID), named.child),
            chosen,
        }
    }

    /// The addresses for the kernel.
    pub fn addresses(&self) -> Named {
        Named {
            pidfd: self.pidfd.address(self.named.pidfd),
            parent: self.parent.address(self.named.parent),
            child: self.child.address(self.named.child),
            chosen: self.chosen.as_ref().map_or(self.named.chosen, |numbers| numbers.as_ptr().addr()),
            ..self.named
        }
    }

    /// After the fork, where far memory works again; `pid` is the kernel's answer.
    pub fn copy_out(&self, pid: libc::c_long) {
        if pid > 0 {
            self.pidfd.copy_out();
            self.parent.copy_out();
        }
        if pid != 0 {
            return;
        }
        self.child.copy_out();
        if self.named.asks(libc::CLONE_CHILD_CLEARTID) {
            keep(self.named.child);
            if self.child.far != 0 {
                // SAFETY: the kernel clears the word at the thread's end, as the program has asked.
                unsafe { inline::raw::call(libc::SYS_set_tid_address, [self.named.child, 0, 0, 0, 0, 0]) };
            }
        }
    }
}

/// Before a clone that shares the memory, or whose child has a stack of its own: true, if `release` shall be called in the parent afterwards.
///
/// Not inlined: `release` gives up what deeper frames than its caller's have pinned.
#[inline(never)]
pub(super) fn hold(named: Named) -> bool {
    let Some(pager) = crate::pager() else { return false };
    let _errno = errno::Preserved::new();
    let is_inline = inline::active();
    let lasts = libc::CLONE_CHILD_CLEARTID | if is_inline { libc::CLONE_CHILD_SETTID } else { 0 };
    if named.asks(libc::CLONE_VM) && named.asks(lasts) {
        keep(named.child);
    }
    if !is_inline {
        return false;
    }
    // A task with its maker's thread-local storage, which runs beside it.
    if named.asks(libc::CLONE_VM) && !named.asks(libc::CLONE_SETTLS | libc::CLONE_VFORK) {
        pager.threads_share_storage();
    }
    let words = [
        (named.asks(libc::CLONE_PIDFD), named.pidfd, BYTES),
        (named.asks(libc::CLONE_PARENT_SETTID), named.parent, BYTES),
        (named.chosen_count != 0, named.chosen, named.chosen_count.min(CHOSEN_MAX) * BYTES),
    ];
    let mut holds = false;
    for (_, at, bytes) in words.into_iter().filter(|(is_asked, at, _)| *is_asked && is_far_word(*at)) {
        let _blocked = SignalsBlocked::new();
        // Until `release`: no frame of ours lasts over the call, whose child may run on this stack.
        std::mem::forget(syscalls::pin(pager, at, bytes, PinAccess::Write));
        holds = true;
    }
    holds
}

/// Gives up what `hold` has pinned for a call from the frame that ends at `stack_pointer`: on the same stack, which may be a handler's.
pub(super) extern "C" fn release(stack_pointer: usize) {
    let _errno = errno::Preserved::new();
    if let Some(pager) = crate::pager() {
        pager.sweep_pins(altstack::bottom_of(stack_pointer).unwrap_or(0)..stack_pointer);
    }
}

/// From now on a word stays local that the kernel writes when a thread begins or ends, until its memory is given back.
pub(crate) fn keep(at: usize) {
    let Some(pager) = crate::pager().filter(|_| is_far_word(at)) else { return };
    let is_kept = stack_switch::run_blocked(|| {
        let _blocked = SignalsBlocked::new();
        let _present = pager.pin_for_good(at, BYTES);
        pager.pin_long_term(at, BYTES)
    });
    static SAID: AtomicBool = AtomicBool::new(false);
    if !is_kept && !SAID.swap(true, Relaxed) {
        thread::write_stderr(
            "hinterland: words that tell of the ends of threads (CLONE_CHILD_CLEARTID, set_tid_address) are on more than a quarter of the local \
             pages: a thread that waits for the end of such a thread may wait for ever; give more --local\n",
        );
    }
}
