//! execve(2) and execveat(2): far arguments are copied to near memory, because nothing of this process lives on to give pins
//! up. A child of vfork(2) or posix_spawn(3) execs on its parent's memory: pins would stay there for ever.
//!
//! For the same reason the copy of such a child stays behind in its parent. The child runs on the parent thread's thread-local
//! storage, so the copy is noted there, and that thread gives it back at its next caught call.

use super::issue::Scratch;
use super::{copy, refused, touches_far};
use crate::inline::call::Call;
use crate::inline::signals;
use crate::inline::thread::Thread;
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::Ordering::Relaxed;

/// The longest single argument, with its zero (`MAX_ARG_STRLEN`).
const TEXT_MAX: usize = 32 * PAGE_BYTES;
/// More than the kernel takes in all (three quarters of 8 MiB, execve(2)).
const BYTES_MAX: usize = 8 << 20;
const POINTER: usize = size_of::<usize>();

/// What a child of this thread left behind when it began a new program: start and length of a mapping. Replaces it.
fn replace_left(new: (usize, usize)) -> (usize, usize) {
    let [start, len] = &Thread::current().left_by_child;
    (start.swap(new.0, Relaxed), len.swap(new.1, Relaxed))
}

/// Gives back what a child of this thread left behind. Only that child itself shares the thread's storage, and it calls exec
/// at most once with success; so whoever runs here does not need it.
pub(super) fn give_back() {
    let left = replace_left((0, 0));
    if left.1 != 0 {
        // SAFETY: it was kept for exec, and the program that needed it has begun or could not.
        drop(unsafe { Scratch::kept(left) });
    }
}

/// Begins a new program.
pub(super) fn exec(call: &Call) -> isize {
    let path = if call.number == libc::SYS_execveat { 1 } else { 0 };
    let mut near = call.arguments;
    match copied(&mut near[path..path + 3]) {
        Err(errno) => errno,
        Ok(None) => signals::exec::issue(call, call.arguments),
        Ok(Some(scratch)) => {
            replace_left(scratch.keep());
            let failure = signals::exec::issue(call, near);
            give_back();
            failure
        }
    }
}

/// Copies what is far of path, arguments and environment, and points `arguments` there. `None`: nothing is far.
fn copied(arguments: &mut [usize]) -> Result<Option<Scratch>, isize> {
    let (mut bytes, mut far) = (0, false);
    let [path, lists @ ..] = arguments else { return Ok(None) };
    if touches_far(*path, 1) {
        far = true;
        bytes += length(*path)?;
    }
    for list in lists.iter() {
        far |= touches_far(*list, 1);
        each_text(*list, |text| {
            bytes += POINTER;
            if touches_far(text, 1) {
                far = true;
                bytes += length(text)?;
            }
            if bytes > BYTES_MAX { Err(refused(libc::E2BIG)) } else { Ok(()) }
        })?;
        bytes += POINTER;
    }
    if !far {
        return Ok(None);
    }
    let mut scratch = Scratch::map(bytes.next_multiple_of(PAGE_BYTES))?;
    let mut room = Room { next: scratch.start(), end: scratch.start() + scratch.len() };
    // Pointers first: they stay aligned.
    for list in lists.iter_mut().filter(|list| **list != 0) {
        let first = room.next;
        each_text(*list, |text| room.put_pointer(&mut scratch, text))?;
        room.put_pointer(&mut scratch, 0)?;
        *list = first;
    }
    for list in lists.iter().filter(|list| **list != 0) {
        near_texts(&mut scratch, &mut room, *list)?;
    }
    if touches_far(*path, 1) {
        *path = room.put_text(&mut scratch, *path)?;
    }
    Ok(Some(scratch))
}

/// Replaces the far texts of a list that lies in the scratch memory.
fn near_texts(scratch: &mut Scratch, room: &mut Room, list: usize) -> Result<(), isize> {
    let mut at = list;
    loop {
        let place = at - scratch.start();
        let bytes = scratch.bytes()[place..place + POINTER].try_into().unwrap_or_default();
        let text = usize::from_ne_bytes(bytes);
        if text == 0 {
            return Ok(());
        }
        if touches_far(text, 1) {
            let near = room.put_text(scratch, text)?;
            scratch.bytes()[place..place + POINTER].copy_from_slice(&near.to_ne_bytes());
        }
        at += POINTER;
    }
}

/// Calls `look` for each text of a list that ends with null.
fn each_text(list: usize, mut look: impl FnMut(usize) -> Result<(), isize>) -> Result<(), isize> {
    const WINDOW: usize = 32;
    if list == 0 {
        return Ok(());
    }
    let mut at = list;
    loop {
        // Not beyond the page: the list may end at the end of what is mapped.
        let in_page = (PAGE_BYTES - at % PAGE_BYTES) / POINTER;
        let mut window = [[0usize; 1]; WINDOW];
        let wanted = in_page.clamp(1, WINDOW);
        if copy::read_array(at, &mut window[..wanted]) < wanted {
            return Err(refused(libc::EFAULT));
        }
        for [text] in &window[..wanted] {
            if *text == 0 {
                return Ok(());
            }
            look(*text)?;
        }
        at += wanted * POINTER;
    }
}

/// Bytes of a text with its zero.
fn length(text: usize) -> Result<usize, isize> {
    let mut len = 0;
    while len < TEXT_MAX {
        let mut part = [0u8; 256];
        let at = text + len;
        let wanted = (PAGE_BYTES - at % PAGE_BYTES).min(part.len());
        if copy::read_bytes(at, &mut part[..wanted]) < wanted {
            return Err(refused(libc::EFAULT));
        }
        if let Some(end) = part[..wanted].iter().position(|byte| *byte == 0) {
            return Ok(len + end + 1);
        }
        len += wanted;
    }
    Err(refused(libc::E2BIG))
}

/// The free part of the scratch memory. What does not fit was changed by another thread meanwhile.
struct Room {
    next: usize,
    end: usize,
}

impl Room {
    fn take(&mut self, len: usize) -> Result<usize, isize> {
        if self.end - self.next < len {
            return Err(refused(libc::E2BIG));
        }
        let taken = self.next;
        self.next += len;
        Ok(taken)
    }

    fn put_pointer(&mut self, scratch: &mut Scratch, pointer: usize) -> Result<(), isize> {
        let place = self.take(POINTER)? - scratch.start();
        scratch.bytes()[place..place + POINTER].copy_from_slice(&pointer.to_ne_bytes());
        Ok(())
    }

    fn put_text(&mut self, scratch: &mut Scratch, text: usize) -> Result<usize, isize> {
        let len = length(text)?;
        let at = self.take(len)?;
        let place = at - scratch.start();
        let into = &mut scratch.bytes()[place..place + len];
        if copy::read_bytes(text, into) < len {
            return Err(refused(libc::EFAULT));
        }
        into[len - 1] = 0;
        Ok(at)
    }
}
