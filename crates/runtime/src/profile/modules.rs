//! Which file code belongs to, as a profile has it.
//!
//! The loader's answers are kept by address, because the program waits at few places. An entry is two words, one of them mixed with the other: one
//! that two threads wrote at the same time fits neither.

use super::profile;
use crate::build_id;
use crate::loaded_file::{self, LoadedFile};
use hinterland_abi::profile::{Frame, key_of};
use hinterland_sys::confinement;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The program's own file, which the loader has no name for.
static PROGRAM: OnceLock<String> = OnceLock::new();
/// This library.
static OWN: OnceLock<Range<usize>> = OnceLock::new();

/// Before threads and far memory: symbols can still be resolved.
///
/// # Errors
/// The program's libc is too old, in words.
pub fn begin() -> Result<(), String> {
    if !loaded_file::init() {
        return Err(
            "a profile needs glibc 2.35 or newer, whose loader says in a signal handler what code is whose".into()
        );
    }
    let program = confinement::with_files(|| std::fs::read_link("/proc/self/exe").ok()).flatten().unwrap_or_default();
    PROGRAM.get_or_init(|| program.to_string_lossy().into_owned());
    if let Some(own) = LoadedFile::of(begin as *const () as usize) {
        OWN.get_or_init(|| own.start..own.end);
    }
    Ok(())
}

/// Whether code belongs to this library.
pub fn is_own(address: usize) -> bool {
    OWN.get().is_some_and(|own| own.contains(&address))
}

/// Answers by address.
struct Cache<const N: usize>([[AtomicU64; 2]; N]);

impl<const N: usize> Cache<N> {
    const fn new() -> Cache<N> {
        Cache([const { [AtomicU64::new(0), AtomicU64::new(0)] }; N])
    }

    fn entry(&self, key: u64) -> &[AtomicU64; 2] {
        &self.0[usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or(0) % N]
    }

    fn get(&self, key: u64) -> Option<u64> {
        let [mixed, value] = self.entry(key);
        let value = value.load(Relaxed);
        (value != 0 && mixed.load(Relaxed) ^ value == key).then_some(value)
    }

    fn set(&self, key: u64, value: u64) {
        let [mixed, kept] = self.entry(key);
        mixed.store(key ^ value, Relaxed);
        kept.store(value, Relaxed);
    }
}

/// Numbers of modules, plus one, by where they lie.
static MODULES: Cache<1024> = Cache::new();
/// Answers of `kept`.
static ANSWERS: Cache<8192> = Cache::new();

/// An answer about an address, which is asked for once: `make` is not to give 0. What is unloaded, and something else loaded in its place,
/// keeps the answer.
pub fn kept(address: usize, kind: u8, make: impl FnOnce() -> u64) -> u64 {
    let key = (address as u64) << 8 | u64::from(kind);
    if let Some(value) = ANSWERS.get(key) {
        return value;
    }
    let value = make();
    ANSWERS.set(key, value);
    value
}

/// Where code is.
pub fn frame_of(address: usize) -> Frame {
    Frame::from_bits(kept(address, 0, || find_frame(address).to_bits()))
}

fn find_frame(address: usize) -> Frame {
    let unknown = Frame::new(None, address.max(1));
    let Some(file) = LoadedFile::of(address) else { return unknown };
    let key = file.start as u64 ^ (file.link_map as u64).rotate_left(32);
    let module = MODULES.get(key).or_else(|| {
        let module = register(&file)? as u64 + 1;
        MODULES.set(key, module);
        Some(module)
    });
    let module = module.and_then(|module| usize::try_from(module - 1).ok());
    if module.is_some() { Frame::new(module, address.wrapping_sub(file.bias())) } else { unknown }
}

/// The number of a file in the profile.
fn register(file: &LoadedFile) -> Option<usize> {
    let name = match file.path().to_bytes() {
        b"" => PROGRAM.get().map_or("", String::as_str),
        // Another name would not be found either.
        name => std::str::from_utf8(name).unwrap_or("?"),
    };
    let id = build_id::of_object(file.start..file.end).unwrap_or_default();
    let key = key_of(name.bytes().chain(id.iter().copied()).map(u64::from));
    let fill = |module: &hinterland_abi::profile::Module| {
        module.path.set(name);
        module.set_build_id(id);
    };
    profile()?.modules.entry(key, fill).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_is_known_and_the_build_id_of_a_file_is_that_of_its_notes() {
        begin().unwrap();
        assert!(is_own(begin as *const () as usize) && !is_own(libc::qsort as *const () as usize));
        let libc = LoadedFile::of(libc::qsort as *const () as usize).unwrap();
        let id = build_id::of_object(libc.start..libc.end);
        assert_eq!(id.map(<[u8]>::len), Some(20), "the distribution's libc has one");
    }

    #[test]
    fn an_answer_is_made_once_for_each_kind() {
        let mut made = 0;
        for _ in 0..3 {
            for kind in [8, 9] {
                let value = kept(0x1234_5678, kind, || {
                    made += 1;
                    u64::from(kind)
                });
                assert_eq!(value, u64::from(kind));
            }
        }
        assert_eq!(made, 2);
    }
}
