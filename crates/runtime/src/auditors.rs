//! Programs that are started with auditors of the loader (`LD_AUDIT`, rtld-audit(7)) from inside the run: exec's environment asks for room for
//! our thread-local storage (`abi/loader.rs`), as the launcher's does for the first program.
//!
//! The callers may be children of vfork(2), which exec on their parent's memory: nothing is allocated, the changed environment lies on
//! the stack. What does not fit is passed on as it is, and the loader says why the program cannot begin.

use crate::user_copy::{read, read_bytes, read_firsts};
use hinterland_abi::loader;
use hinterland_units::PAGE_BYTES;

/// The longest environment that is changed.
const ENTRIES_MAX: usize = 1024;
/// The longest value of `GLIBC_TUNABLES`, with its name and zero.
const TUNABLES_BYTES: usize = 512;
const AUDITORS: &[u8] = b"LD_AUDIT=";
const TUNABLES: &[u8] = b"GLIBC_TUNABLES=";

/// What an environment has.
struct Found {
    entries: usize,
    /// The tunables: their place in the list, and their address.
    tunables: Option<(usize, usize)>,
}

/// Calls `exec` with the environment at an address, or with one that asks for room in addition.
pub fn with_room<R>(environment: usize, exec: impl FnOnce(usize) -> R) -> R {
    match audited(environment) {
        Some(found) => extended(environment, &found, exec),
        None => exec(environment),
    }
}

/// The environment, if it names auditors. A bad address is left to the kernel.
fn audited(environment: usize) -> Option<Found> {
    if environment == 0 || !may_be_audited(environment)? {
        return None;
    }
    found(environment)
}

/// Whether an environment has a text that begins as the auditors' does. Each exec asks, and hardly any has one: two system calls for
/// [`AT_ONCE`] texts, but for those that are not local.
fn may_be_audited(environment: usize) -> Option<bool> {
    const BEGIN: usize = AUDITORS.len();
    let mut list = [0usize; AT_ONCE];
    let mut firsts = [[0u8; BEGIN]; AT_ONCE];
    for first in (0..ENTRIES_MAX).step_by(AT_ONCE) {
        let count = read_list(environment + first * size_of::<usize>(), &mut list)?;
        let mut at = 0;
        while at < count {
            let ready = read_firsts(&list[at..count], &mut firsts);
            // What could not be read is there all the same, unless its text is shorter, at the end of what is mapped.
            let next = list[..count].get(at + ready).is_some_and(|text| begins_with(*text, AUDITORS));
            if next || firsts[..ready].iter().any(|begin| begin == AUDITORS) {
                return Some(true);
            }
            at += ready + 1;
        }
        if count < AT_ONCE {
            break;
        }
    }
    Some(false)
}

/// Texts that are looked at in one step.
const AT_ONCE: usize = 128;

/// Reads a list of addresses up to the null pointer that ends it, or as much as has room; how many. `None`: it ends before. Not beyond the
/// page of its end: what lies there may not be mapped.
fn read_list(at: usize, into: &mut [usize; AT_ONCE]) -> Option<usize> {
    let mut count = 0;
    while count < into.len() {
        let from = at + count * size_of::<usize>();
        let in_page = ((PAGE_BYTES - from % PAGE_BYTES) / size_of::<usize>()).clamp(1, into.len() - count);
        let mut bytes = [0u8; AT_ONCE * size_of::<usize>()];
        let bytes = &mut bytes[..in_page * size_of::<usize>()];
        read_bytes(from, bytes).ok()?;
        for address in bytes.chunks_exact(size_of::<usize>()) {
            let address = usize::from_ne_bytes(address.try_into().unwrap_or_default());
            if address == 0 {
                return Some(count);
            }
            into[count] = address;
            count += 1;
        }
    }
    Some(count)
}

/// What an environment has that may name auditors.
#[cold]
fn found(environment: usize) -> Option<Found> {
    let (mut has_auditors, mut tunables) = (false, None);
    for entries in 0..ENTRIES_MAX {
        let entry: usize = read(environment + entries * size_of::<usize>()).ok()?;
        if entry == 0 {
            return has_auditors.then_some(Found { entries, tunables });
        }
        if begins_with(entry, AUDITORS) {
            has_auditors = read::<u8>(entry + AUDITORS.len()).is_ok_and(|first| first != 0);
        } else if begins_with(entry, TUNABLES) {
            tunables = Some((entries, entry));
        }
    }
    None
}

/// Whether a text begins so. One that ends before may lie at the end of what is mapped, and cannot be read so far.
fn begins_with(text: usize, name: &[u8]) -> bool {
    let mut begin = [0u8; 16];
    let begin = &mut begin[..name.len()];
    read_bytes(text, begin).is_ok() && begin == name
}

/// Makes room on the stack only where it is needed.
#[cold]
#[inline(never)]
fn extended<R>(environment: usize, found: &Found, exec: impl FnOnce(usize) -> R) -> R {
    let mut text = [0u8; TUNABLES_BYTES];
    let mut list = [0usize; ENTRIES_MAX + 1];
    let Some(()) = ask_for_room(found.tunables.map(|(_, at)| at), &mut text) else { return exec(environment) };
    for (n, entry) in list[..found.entries].iter_mut().enumerate() {
        match read(environment + n * size_of::<usize>()) {
            Ok(address) => *entry = address,
            Err(_) => return exec(environment),
        }
    }
    list[found.tunables.map_or(found.entries, |(place, _)| place)] = text.as_ptr().addr();
    exec(list.as_ptr().addr())
}

/// Words the tunables, those at an address included. `None`: they ask for it already, or do not fit.
fn ask_for_room(existing: Option<usize>, text: &mut [u8; TUNABLES_BYTES]) -> Option<()> {
    let mut end = match existing {
        Some(at) => read_text(at, text)?,
        None => {
            text[..TUNABLES.len()].copy_from_slice(TUNABLES);
            TUNABLES.len()
        }
    };
    if loader::asks_for_static_tls(&text[TUNABLES.len()..end]) {
        return None;
    }
    let separator: &[u8] = if end > TUNABLES.len() { b":" } else { b"" };
    for piece in [separator, loader::STATIC_TLS.as_bytes(), b"\0"] {
        text.get_mut(end..end + piece.len())?.copy_from_slice(piece);
        end += piece.len();
    }
    Some(())
}

/// Copies a text without its zero, never from beyond the page in which it ends; its length.
fn read_text(at: usize, into: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    while len < into.len() {
        let piece = (PAGE_BYTES - (at + len) % PAGE_BYTES).min(into.len() - len);
        let part = &mut into[len..len + piece];
        read_bytes(at + len, part).ok()?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            return Some(len + end);
        }
        len += piece;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};

    /// The environment that exec gets, as texts.
    fn passed(entries: &[&str]) -> Vec<String> {
        let texts: Vec<CString> = entries.iter().map(|entry| CString::new(*entry).unwrap()).collect();
        let list: Vec<usize> = texts.iter().map(|text| text.as_ptr().addr()).chain([0]).collect();
        with_room(list.as_ptr().addr(), |environment| {
            let list = (0..).map(|n| read::<usize>(environment + n * 8).unwrap());
            // SAFETY: the entries are texts of this test, or of the environment that was made of them.
            let text = |at: usize| unsafe { CStr::from_ptr(at as *const _) }.to_str().unwrap().to_owned();
            list.take_while(|at| *at != 0).map(text).collect()
        })
    }

    #[test]
    fn an_audited_program_finds_room_for_our_storage() {
        let asked = format!("GLIBC_TUNABLES={}", loader::STATIC_TLS);
        assert_eq!(passed(&["A=1", "LD_AUDIT=/a.so"]), ["A=1", "LD_AUDIT=/a.so", &asked]);
        let other = "GLIBC_TUNABLES=glibc.malloc.check=1";
        let both = format!("{other}:{}", loader::STATIC_TLS);
        assert_eq!(passed(&[other, "LD_AUDIT=/a.so", "B=2"]), [both.as_str(), "LD_AUDIT=/a.so", "B=2"]);
        let long = format!("GLIBC_TUNABLES={}", "x".repeat(TUNABLES_BYTES));
        for same in
            [["LD_AUDIT=", "A=1"], ["LD_AUDI", "LD_AUDITS=1"], ["LD_AUDIT=/a.so", &asked], ["LD_AUDIT=/a", &long]]
        {
            assert_eq!(passed(&same), same);
        }
        // Behind more texts than are looked at at once, some of them bad addresses, and in a list that ends with its page.
        let mut many: Vec<String> = (0..3 * AT_ONCE).map(|n| format!("V{n}=a value")).collect();
        many.push("LD_AUDIT=/a.so".into());
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(passed(&many).len(), many.len() + 1);
        assert_eq!(passed(&many[..AT_ONCE]), many[..AT_ONCE]);
        assert_eq!(with_room(0, |environment| environment), 0);
        assert_eq!(with_room(8, |environment| environment), 8);
    }
}
