//! A key of AES-256-GCM, and the nonces under it.
//!
//! **Invariant**: no nonce is used twice under a key. A nonce is a number that is counted up, and only the process that made
//! the key counts: the child of a fork opens with its parent's keys and seals with one of its own.
//!
//! A key lies in a mapping of its own that no core dump has, and is overwritten when it goes.

use crate::mapping::Mapping;
use hinterland_sys::{SysError, mem, random};
use hinterland_units::PAGE_BYTES;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const KEY_BYTES: usize = 32;
/// Bytes of stack that making a key leaves behind, several times over.
const SCRUBBED_BYTES: usize = 8 << 10;
/// Bytes of a tag.
pub(super) const TAG_BYTES: usize = 16;

/// See the module.
pub(super) struct Key {
    /// Holds a `LessSafeKey` at its start.
    memory: Mapping,
    /// Nonces that have been given out.
    used: AtomicU64,
}

impl Key {
    /// Memory of a key.
    pub(super) const RAM_BYTES: u64 = PAGE_BYTES as u64;

    /// A key that no other code has.
    pub(super) fn draw() -> Result<Key, SysError> {
        const { assert!(size_of::<LessSafeKey>() + KEY_BYTES <= PAGE_BYTES && align_of::<LessSafeKey>() <= PAGE_BYTES) };
        let refused =
            |error: std::io::Error| SysError { call: "mmap", errno: error.raw_os_error().unwrap_or(libc::ENOMEM) };
        let memory = Mapping::reserve(PAGE_BYTES).map_err(refused)?;
        mem::advise(memory.at(0).addr(), PAGE_BYTES, libc::MADV_DONTDUMP)?;
        // SAFETY: the last bytes of a page of our own that no other code uses; it is zeroed by the kernel.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.at(PAGE_BYTES - KEY_BYTES), KEY_BYTES) };
        random::fill(bytes)?;
        expand(bytes, memory.at(0).cast());
        scrub_stack();
        wipe(bytes);
        Ok(Key { memory, used: AtomicU64::new(0) })
    }

    /// `count` nonces that no other caller gets; returns the first.
    pub(super) fn take(&self, count: usize) -> u64 {
        self.used.fetch_add(count as u64, Relaxed)
    }

    /// How many nonces have been given out.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Encrypts a page under a nonce of its own; returns its tag.
    pub(super) fn seal(&self, nonce: u64, page: &mut [u8]) -> [u8; TAG_BYTES] {
        let sealed = self.expanded().seal_in_place_separate_tag(nonce_of(nonce), Aad::empty(), page);
        let tag = sealed.expect("a page is shorter than what a nonce is good for");
        *tag.as_ref().first_chunk().expect("a tag has 16 bytes")
    }

    /// Decrypts a page. False: it is not what was sealed under this nonce, and the bytes are of no use.
    pub(super) fn open(&self, nonce: u64, tag: [u8; TAG_BYTES], page: &mut [u8]) -> bool {
        self.expanded().open_in_place_separate_tag(nonce_of(nonce), Aad::empty(), Tag::from(tag), page, 0..).is_ok()
    }

    fn expanded(&self) -> &LessSafeKey {
        // SAFETY: `draw` has put one there, which is not changed before the key is dropped.
        unsafe { &*self.memory.at(0).cast::<LessSafeKey>() }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the whole of a mapping of our own; a `LessSafeKey` has nothing to be dropped.
        wipe(unsafe { std::slice::from_raw_parts_mut(self.memory.at(0), PAGE_BYTES) });
    }
}

/// Puts the key of `bytes` at `to`. A function of its own, so that what it leaves on the stack lies below its caller's frame.
#[inline(never)]
fn expand(bytes: &[u8], to: *mut LessSafeKey) {
    let key = UnboundKey::new(&AES_256_GCM, bytes).expect("a key of 32 bytes");
    // SAFETY: `draw` gives a place of its own with room for it, at the start of a page.
    unsafe { to.write(LessSafeKey::new(key)) };
}

#[inline(never)]
fn scrub_stack() {
    wipe(&mut [0xff; SCRUBBED_BYTES]);
}

/// Overwrites what must not be left behind.
fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        // SAFETY: a byte that is borrowed exclusively. Volatile: nobody reads it any more, and it has to be written all the same.
        unsafe { std::ptr::from_mut(byte).write_volatile(0) };
    }
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

fn nonce_of(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping that holds `address`, as /proc/self/smaps has them.
    fn flags(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begins = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(from)?..number(to)?).contains(&address))
        };
        let mut lines = maps.lines().skip_while(|line| begins(line) != Some(true));
        lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap().to_owned()
    }

    #[test]
    fn a_key_is_in_no_core_dump_and_gone_when_it_is_dropped() {
        let key = Key::draw().unwrap();
        let address = key.memory.at(0);
        assert!(flags(address.addr()).split_whitespace().any(|flag| flag == "dd"), "{}", flags(address.addr()));
        // SAFETY: a page of ours, and the mapping is not changed meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(address, PAGE_BYTES) };
        assert!(bytes[PAGE_BYTES - KEY_BYTES..].iter().all(|byte| *byte == 0), "the bytes that the key was made of");
        assert!(bytes.iter().any(|byte| *byte != 0));
        let mut copy = bytes.to_vec();
        wipe(&mut copy);
        assert!(copy.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_opened_is_what_was_sealed_under_that_nonce_of_that_key() {
        let (key, other) = (Key::draw().unwrap(), Key::draw().unwrap());
        let page = [7; PAGE_BYTES];
        let mut sealed = page;
        let tag = key.seal(5, &mut sealed);
        assert_ne!(sealed, page);
        let opens =
            |key: &Key, nonce, tag, mut bytes: [u8; PAGE_BYTES]| key.open(nonce, tag, &mut bytes).then_some(bytes);
        assert_eq!(opens(&key, 5, tag, sealed), Some(page));
        assert_eq!(opens(&key, 6, tag, sealed), None);
        assert_eq!(opens(&other, 5, tag, sealed), None);
        for at in [0, 2048, PAGE_BYTES - 1] {
            let mut changed = sealed;
            changed[at] ^= 1;
            assert_eq!(opens(&key, 5, tag, changed), None);
        }
        let mut tag = tag;
        tag[15] ^= 0x80;
        assert_eq!(opens(&key, 5, tag, sealed), None);
    }
}
