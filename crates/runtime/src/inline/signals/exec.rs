//! exec: the new program inherits blocked signals and ignored ones, so the virtual state becomes real for the call.
//!
//! From here to the end of the call no far memory may be touched by the calling thread: the arguments are near copies.

use super::action::{self, KernelAction};
use super::{RESERVED, bit, mask, vfork_child};
use crate::inline::call::Call;
use crate::inline::raw;
use crate::inline::trap::{self, frame};
use hinterland_sys::confinement;
use libc::{SIG_BLOCK, SIG_IGN, SIG_SETMASK, SIG_UNBLOCK};

/// Makes the call with these near arguments, under the mask that the new program shall have. Returns if it fails.
pub(crate) fn issue(call: &Call, arguments: [usize; 6]) -> isize {
    // SAFETY: the context is that of a handler of ours that has not returned.
    let program = (!call.context.is_null()).then(|| unsafe { frame::mask_of(call.context) });
    let before = raw::change_mask(SIG_SETMASK, Some(program.unwrap_or_else(|| raw::change_mask(SIG_BLOCK, None))));
    let inherited = inherit();
    // SAFETY: the program's own call.
    let failure = unsafe { raw::call(call.number, arguments) };
    drop(inherited);
    raw::change_mask(SIG_SETMASK, Some(before));
    failure
}

/// The reserved signals' state is as the program set it, until this is dropped because the call failed.
struct Inherited {
    blocked: u64,
    ignored: u64,
}

/// Makes the virtual state real.
fn inherit() -> Inherited {
    let ignores = |place: &usize| action::of(*place).handler == SIG_IGN;
    let mut ignored = (0..RESERVED.len()).filter(ignores).fold(0, |set, place| set | bit(RESERVED[place]));
    // Another thread that faults meanwhile would be the end of the process.
    if ignored != 0 && vfork_child().is_none() && !is_alone() {
        ignored = 0;
    }
    for signal in RESERVED.into_iter().filter(|signal| ignored & bit(*signal) != 0) {
        let _ = action::kernel_change(signal, Some(KernelAction { handler: SIG_IGN, ..KernelAction::default() }));
    }
    let blocked = mask::blocked();
    if blocked != 0 {
        raw::change_mask(SIG_BLOCK, Some(blocked));
    }
    Inherited { blocked, ignored }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        for (place, signal) in RESERVED.into_iter().enumerate() {
            if self.ignored & bit(signal) != 0 {
                let _ = trap::take_over(signal, action::restarts(&action::of(place)));
            }
        }
        if self.blocked != 0 {
            raw::change_mask(SIG_UNBLOCK, Some(self.blocked));
        }
    }
}

/// Whether the process has one thread.
fn is_alone() -> bool {
    !confinement::is_confined() && raw::count_threads() == Some(1)
}
