//! mlock(2), mincore(2), msync(2) and their kin on far memory.

use super::{Outcome, Target, apply, bits, kernel, target};
use crate::region_map::{self, Kind, Locked, Run};
use crate::user_copy;
use hinterland_units::{PAGE_BYTES, PageNo};

/// From <asm-generic/mman.h>.
const MLOCK_ONFAULT: i32 = 1;
const MCL_ALL: i32 = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;

/// Widens a range to whole pages, as mlock(2) does.
fn widened(address: usize, bytes: usize) -> (usize, usize) {
    let start = address & !(PAGE_BYTES - 1);
    (start, bytes.saturating_add(address - start))
}

/// mlock2(2); mlock(2) without flags.
pub fn lock(address: usize, bytes: usize, flags: i32) -> Outcome {
    let (start, len) = widened(address, bytes);
    let (first, count) = match target(start, len) {
        Target::Kernel => {
            let number = if flags == 0 { libc::SYS_mlock } else { libc::SYS_mlock2 };
            return kernel(number, [address, bytes, bits(flags), 0, 0, 0]);
        }
        Target::Across(parts) => return parts.in_turn(|address, bytes| lock(address, bytes, flags)),
        Target::Far(first, count) => (first, count),
    };
    if flags & !MLOCK_ONFAULT != 0 {
        return Err(libc::EINVAL);
    }
    set_lock(first, count, if flags & MLOCK_ONFAULT == 0 { Locked::Now } else { Locked::OnFault })
}

/// munlock(2).
pub fn unlock(address: usize, bytes: usize) -> Outcome {
    let (start, len) = widened(address, bytes);
    match target(start, len) {
        Target::Kernel => kernel(libc::SYS_munlock, [address, bytes, 0, 0, 0, 0]),
        Target::Across(parts) => parts.in_turn(unlock),
        Target::Far(first, count) => set_lock(first, count, Locked::No),
    }
}

fn set_lock(first: u32, count: u32, locked: Locked) -> Outcome {
    let runs = region_map::lock().mapped_in(first, count);
    let (mut next, mut told) = (first, Ok(0));
    for mut run in runs {
        if run.first != next {
            break; // As the kernel does it: what lies behind a hole stays as it is.
        }
        next = run.end();
        let is_ours = run.attributes.kind != Kind::Foreign;
        run.attributes.locked = locked;
        if is_ours {
            apply::may_lock(run.attributes, run.count)?;
        }
        let set = set_run_lock(run);
        // What the kernel does not lock as a whole stays unlocked.
        let in_force = if set.is_ok() { locked } else { Locked::No };
        region_map::lock().update(run.first, run.count, |attributes| attributes.locked = in_force);
        set?;
        if is_ours && locked == Locked::Now && run.attributes.protection == libc::PROT_NONE {
            told = Err(libc::ENOMEM); // As the kernel does it: it is locked, but its pages have not come.
        }
    }
    if next == first + count { told } else { Err(libc::ENOMEM) }
}

/// Brings one run into the state that its attributes say.
fn set_run_lock(run: Run) -> Result<(), i32> {
    let (address, bytes) = apply::span(run);
    match (run.attributes.kind, super::lock_form(run.attributes.locked)) {
        (Kind::Foreign, Some(on_fault)) => {
            kernel(libc::SYS_mlock2, [address, bytes, usize::from(on_fault), 0, 0, 0]).map(|_| ())
        }
        (Kind::Foreign, None) => kernel(libc::SYS_munlock, [address, bytes, 0, 0, 0, 0]).map(|_| ()),
        (_, Some(_)) => apply::lock(run),
        (_, None) => {
            let pager = crate::pager().ok_or(libc::ENOMEM)?;
            pager.unlock(PageNo(run.first), run.count).map_err(|e| apply::errno_of(&e))
        }
    }
}

/// mlockall(2): refused with `ENOMEM`, as by a limit on locked memory. Everything locked would be everything local, which
/// is what the program was started not to need.
pub fn lock_all(flags: i32) -> Outcome {
    if crate::pager().is_none() {
        return kernel(libc::SYS_mlockall, [bits(flags), 0, 0, 0, 0, 0]);
    }
    let nonsense = flags == 0 || flags & !MCL_ALL != 0 || flags == libc::MCL_ONFAULT;
    Err(if nonsense { libc::EINVAL } else { libc::ENOMEM })
}

/// munlockall(2).
pub fn unlock_all() -> Outcome {
    if let Some(pager) = crate::pager() {
        let mut region_map = region_map::lock();
        let locked: Vec<Run> = region_map.runs().filter(|run| run.attributes.locked != Locked::No).collect();
        for run in locked {
            if run.attributes.kind != Kind::Foreign {
                pager.unlock(PageNo(run.first), run.count).map_err(|e| apply::errno_of(&e))?;
            }
            region_map.update(run.first, run.count, |attributes| attributes.locked = Locked::No);
        }
    }
    kernel(libc::SYS_munlockall, [0; 6])
}

/// Answers that are collected before they are handed to the program.
const ANSWERS: usize = 1024;

/// mincore(2): bit 0 of each byte at `vector` says whether the page is local. `EFAULT` where it cannot be written to.
pub fn in_core(address: usize, bytes: usize, vector: usize) -> Outcome {
    let (first, count) = match target(address, bytes) {
        Target::Kernel => return in_core_outside(address, bytes, vector),
        Target::Across(parts) => {
            let answers = |at: usize| vector.wrapping_add((at - address) / PAGE_BYTES);
            return parts.in_turn(|at, bytes| in_core(at, bytes, answers(at)));
        }
        Target::Far(first, count) => (first, count),
    };
    let runs = region_map::lock().mapped_in(first, count);
    if runs.iter().map(|run| run.count).sum::<u32>() != count {
        return Err(libc::ENOMEM);
    }
    for run in runs {
        let at = vector.wrapping_add((run.first - first) as usize);
        if run.attributes.kind == Kind::Foreign {
            let (address, bytes) = apply::span(run);
            in_core_outside(address, bytes, at)?;
        } else {
            in_core_of(run, at)?;
        }
    }
    Ok(0)
}

fn in_core_of(run: Run, vector: usize) -> Result<(), i32> {
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    let mut answers = [0u8; ANSWERS];
    let pages: Vec<u32> = (run.first..run.end()).step_by(ANSWERS).collect();
    for start in pages {
        let count = ANSWERS.min((run.end() - start) as usize);
        for (answer, page) in answers[..count].iter_mut().zip(start..) {
            *answer = pager.is_local(PageNo(page)).into();
        }
        hand_out(vector.wrapping_add((start - run.first) as usize), &answers[..count])?;
    }
    Ok(())
}

/// mincore(2) by the kernel. It must not meet a vector in far memory on the inline path: that one it gets from us.
fn in_core_outside(address: usize, bytes: usize, vector: usize) -> Outcome {
    let pages = bytes.div_ceil(PAGE_BYTES);
    let far = region_map::contains(vector) || region_map::contains(vector.wrapping_add(pages));
    if crate::pager().is_none() || !far || !address.is_multiple_of(PAGE_BYTES) {
        return kernel(libc::SYS_mincore, [address, bytes, vector, 0, 0, 0]);
    }
    let mut answers = [0u8; ANSWERS];
    let near = answers.as_mut_ptr().addr();
    for page in (0..pages).step_by(ANSWERS) {
        let count = ANSWERS.min(pages - page);
        let start = address.wrapping_add(page * PAGE_BYTES);
        kernel(libc::SYS_mincore, [start, count * PAGE_BYTES, near, 0, 0, 0])?;
        hand_out(vector.wrapping_add(page), &answers[..count])?;
    }
    Ok(0)
}

fn hand_out(at: usize, answers: &[u8]) -> Result<(), i32> {
    user_copy::write_bytes(at, answers).map_err(|_| libc::EFAULT)
}

/// msync(2): nothing to write for anonymous memory.
pub fn sync(address: usize, bytes: usize, flags: i32) -> Outcome {
    let (first, count) = match target(address, bytes) {
        Target::Kernel => return kernel(libc::SYS_msync, [address, bytes, bits(flags), 0, 0, 0]),
        Target::Across(parts) => return parts.past_holes(|address, bytes| sync(address, bytes, flags)),
        Target::Far(first, count) => (first, count),
    };
    let both = libc::MS_ASYNC | libc::MS_SYNC;
    if flags & !(both | libc::MS_INVALIDATE) != 0 || flags & both == both {
        return Err(libc::EINVAL);
    }
    let runs = region_map::lock().mapped_in(first, count);
    for run in &runs {
        let (address, bytes) = apply::span(*run);
        if run.attributes.kind == Kind::Foreign {
            kernel(libc::SYS_msync, [address, bytes, bits(flags), 0, 0, 0])?;
        } else if flags & libc::MS_INVALIDATE != 0 && run.attributes.locked != Locked::No {
            return Err(libc::EBUSY);
        }
    }
    if runs.iter().map(|run| run.count).sum::<u32>() == count { Ok(0) } else { Err(libc::ENOMEM) }
}
