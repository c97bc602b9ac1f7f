//! bpf(2): what lies behind its attributes (linux/bpf.h: union bpf_attr, struct bpf_prog_info, bpf_btf_info, bpf_map_info).
//!
//! Not the names of a multi-link's probes, each of which is a text, nor what information about a link names.

use super::nested::{LARGE_BYTES, number, word};
use super::pieces::whole_bytes;
use super::pinned::Pins;
use hinterland_pager::PinAccess::{self, Read, Write};
use hinterland_sys::trampoline;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Commands.
mod command {
    pub const MAP_LOOKUP_ELEM: usize = 1;
    pub const MAP_GET_NEXT_KEY: usize = 4;
    pub const PROG_LOAD: usize = 5;
    pub const OBJ_PIN: usize = 6;
    pub const OBJ_GET: usize = 7;
    pub const PROG_TEST_RUN: usize = 10;
    pub const OBJ_GET_INFO_BY_FD: usize = 15;
    pub const PROG_QUERY: usize = 16;
    pub const RAW_TRACEPOINT_OPEN: usize = 17;
    pub const BTF_LOAD: usize = 18;
    pub const TASK_FD_QUERY: usize = 20;
    pub const MAP_LOOKUP_AND_DELETE_ELEM: usize = 21;
    pub const MAP_LOOKUP_BATCH: usize = 24;
    pub const MAP_DELETE_BATCH: usize = 27;
    pub const LINK_CREATE: usize = 28;
}

/// Pins what a command's attributes name.
pub(super) fn bpf(pins: &mut Pins, asked: usize, attributes: usize) {
    use self::command as c;
    let at = |offset: usize| word(attributes + offset);
    let count = |offset: usize| number(attributes + offset);
    let mut add = |start: usize, len: usize, access: PinAccess| pins.add(start, len.min(whole_bytes()), access);
    match asked {
        c::MAP_LOOKUP_ELEM..=c::MAP_GET_NEXT_KEY | c::MAP_LOOKUP_AND_DELETE_ELEM => {
            let [key, value] = element_of(count(0));
            add(at(8), key, Write);
            add(at(16), key.max(value), Write);
        }
        c::MAP_LOOKUP_BATCH..=c::MAP_DELETE_BATCH => {
            let ([key, value], elements) = (element_of(count(36)), count(32));
            add(at(0), key.max(8), Read);
            add(at(8), key.max(8), Write);
            add(at(16), elements.saturating_mul(key), Write);
            add(at(24), elements.saturating_mul(value), Write);
        }
        c::PROG_LOAD => {
            add(at(8), count(4) * 8, Read);
            add(at(32), count(28), Write);
            // Kinds of functions and lines, relocations, descriptors; how many of these, the instructions tell.
            add(at(80), count(76) * count(88), Read);
            add(at(96), count(92) * count(104), Read);
            add(at(120), LARGE_BYTES, Read);
            add(at(128), count(116) * count(136), Read);
            pins.add_text(at(16));
        }
        c::OBJ_PIN | c::OBJ_GET => pins.add_text(at(0)),
        c::PROG_TEST_RUN => {
            add(at(16), count(8), Read);
            add(at(24), count(12), Write);
            add(at(48), count(40), Read);
            add(at(56), count(44), Write);
        }
        c::OBJ_GET_INFO_BY_FD => {
            add(at(8), count(4), Write);
            information(pins, at(8), count(4));
        }
        c::PROG_QUERY => {
            for ids in [16, 32, 40, 48] {
                add(at(ids), count(24) * 4, Write);
            }
        }
        c::RAW_TRACEPOINT_OPEN => pins.add_text(at(0)),
        c::BTF_LOAD => {
            add(at(0), count(16), Read);
            add(at(8), count(20), Write);
        }
        c::TASK_FD_QUERY => {
            add(at(16), count(12), Write);
        }
        c::LINK_CREATE => link(pins, attributes),
        _ => {}
    }
}

/// What information about a program or types names: which of them it is, its length tells.
fn information(pins: &mut Pins, information: usize, bytes: usize) {
    const TYPES: usize = 32;
    const PROGRAM_MIN: usize = 192;
    /// Offsets of an array, of the number of its elements, and their size.
    const PROGRAMS: [[usize; 3]; 6] =
        [[24, 16, 1], [32, 20, 1], [56, 52, 4], [112, 104, 8], [120, 108, 4], [184, 180, 8]];
    /// The same, where the size of an element lies at an offset.
    const SIZED: [[usize; 3]; 3] = [[136, 144, 132], [152, 148, 172], [160, 168, 176]];
    let count = |offset: usize| number(information + offset);
    let mut add = |at: usize, len: usize| pins.add(word(information + at), len.min(whole_bytes()), Write);
    match bytes {
        TYPES => {
            add(0, count(8));
            add(16, count(24));
        }
        PROGRAM_MIN.. => {
            for [at, counted_at, element] in PROGRAMS {
                add(at, count(counted_at) * element);
            }
            for [at, counted_at, sized_at] in SIZED {
                add(at, count(counted_at) * count(sized_at));
            }
        }
        _ => {}
    }
}

/// What a new link names, by the kind of its attachment.
fn link(pins: &mut Pins, attributes: usize) {
    const ITERATOR: usize = 28;
    const KERNEL_PROBES: [usize; 2] = [42, 56];
    const USER_PROBES: [usize; 2] = [48, 57];
    let at = |offset: usize| word(attributes + offset);
    let count = |offset: usize| number(attributes + offset);
    let kind = count(8);
    if kind == ITERATOR {
        pins.add(at(16), count(24), Read);
    } else if KERNEL_PROBES.contains(&kind) {
        for array in [24, 32, 40] {
            pins.add(at(array), count(20) * 8, Read);
        }
    } else if USER_PROBES.contains(&kind) {
        pins.add_text(at(16));
        for array in [24, 32, 40] {
            pins.add(at(array), count(48) * 8, Read);
        }
    }
}

/// Bytes of a key, and of a value as the kernel copies it: of maps that have one for each processor, all of these.
fn element_of(map: usize) -> [usize; 2] {
    /// Kinds of maps: hash, array, least recently used, storage of a cgroup.
    const FOR_EACH_PROCESSOR: [u32; 4] = [5, 6, 10, 21];
    // Kind, number, sizes of key and value, entries, flags.
    let mut information = [0u32; 6];
    let attributes = [map & 0xffff_ffff | size_of_val(&information) << 32, (&raw mut information).addr()];
    let asked = [command::OBJ_GET_INFO_BY_FD, attributes.as_ptr().addr(), size_of_val(&attributes), 0, 0, 0];
    // SAFETY: attributes as the command takes them, and room for as much as they say.
    if unsafe { trampoline::call(libc::SYS_bpf, asked) } != 0 {
        return [LARGE_BYTES; 2];
    }
    let [kind, _, key, value, ..] = information;
    let each = (value as usize).next_multiple_of(8);
    [key as usize, if FOR_EACH_PROCESSOR.contains(&kind) { each.saturating_mul(processors()) } else { each }]
}

/// No fewer than there can be processors; 0: not counted yet.
static PROCESSORS: AtomicUsize = AtomicUsize::new(0);

/// Counts the processors that there can be: the kernel's masks have a bit for each (sched_getaffinity(2)). Before the program confines itself.
pub(super) fn count_processors() {
    let mut mask = [0u64; PROCESSORS_MOST / 64];
    let asked = [0, size_of_val(&mask), mask.as_mut_ptr().addr(), 0, 0, 0];
    // SAFETY: room for as much as is said.
    let bytes = unsafe { trampoline::call(libc::SYS_sched_getaffinity, asked) };
    PROCESSORS.store(usize::try_from(bytes).unwrap_or(0) * 8, Relaxed);
}

/// The most that a kernel is built for (`CONFIG_NR_CPUS`).
const PROCESSORS_MOST: usize = 8192;

fn processors() -> usize {
    match PROCESSORS.load(Relaxed) {
        0 => PROCESSORS_MOST,
        count => count,
    }
}
