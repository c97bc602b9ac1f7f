//! Calls whose arguments depend on a request: pointers in structures, structures of various lengths.
//!
//! Numbers and layouts: the headers named at each. Requests that are not here get their argument pinned by the size that the
//! request's number tells, and at least a page's worth of it: structures without a size are shorter, arrays behind a header mostly;
//! pointers inside it must then be near.

use super::pieces::whole_bytes;
use super::pinned::{Pins, TEXT_MAX};
use super::table::Row;
use super::{copy, refused};
use crate::device_pins;
use crate::fork::id_words;
use crate::inline::call::Call;
use hinterland_pager::PinAccess::{self, Read, Write};

/// What a request points at at least, though its number may tell less or nothing: no structure of the old ioctls is larger. And a
/// structure whose length the kernel finds by itself.
const LARGE_BYTES: usize = 4096;

/// Makes a call that is covered by request.
pub(super) fn nested(call: &Call, row: &Row) -> isize {
    let [_, second, third, fourth, ..] = call.arguments;
    let mut pins = Pins::new();
    match call.number {
        // A thread cannot be made from here: it would start in this frame, on another stack. libc then uses clone(2).
        libc::SYS_clone3 => return refused(libc::ENOSYS),
        libc::SYS_ioctl => ioctl(&mut pins, second, third),
        libc::SYS_futex => {
            pins.add(call.arguments[0], size_of::<u32>(), Write);
            futex(&mut pins, second, fourth, call.arguments[4]);
        }
        libc::SYS_setsockopt => {
            if zero_copy(second, third) {
                return refused(libc::EOPNOTSUPP);
            }
            device_pins::note_option(second, third);
            pins.add_arguments(row.shapes, &call.arguments);
            if attaches_filter(second, third) {
                filter_program(&mut pins, fourth);
            }
        }
        _ => {
            pins.add_arguments(row.shapes, &call.arguments);
            by_call(&mut pins, call);
        }
    }
    call.issue(call.arguments)
}

/// linux/prctl.h: as bytes, "AUXV".
const PR_GET_AUXV: i32 = 0x4155_5856;

fn by_call(pins: &mut Pins, call: &Call) {
    const XATTR: [i64; 2] = [463, 464];
    const FUTEX_WAITV: i64 = 449;
    const FUTEX_REQUEUE: i64 = 456;
    let [first, second, third, ..] = call.arguments;
    match call.number {
        libc::SYS_set_tid_address => id_words::keep(first),
        libc::SYS_prctl if first == size(libc::PR_SET_SECCOMP) => filter_program(pins, third),
        // All of it, as long as it is; and what becomes of it.
        libc::SYS_prctl if first == size(PR_GET_AUXV) => {
            pins.add(second, third.min(whole_bytes()), Write);
        }
        libc::SYS_prctl if first == size(libc::PR_SET_MM) => {
            pins.add(third, call.arguments[3].min(whole_bytes()), Read);
        }
        libc::SYS_getsockopt => socket_option(pins, second, third, call.arguments[3], call.arguments[4]),
        libc::SYS_seccomp => filter_program(pins, third),
        libc::SYS_ptrace => register_set(pins, first, call.arguments[3]),
        libc::SYS_bpf => bpf(pins, first, second),
        libc::SYS_keyctl => key_payloads(pins, &call.arguments),
        FUTEX_WAITV => futexes(pins, first, second.min(128)),
        FUTEX_REQUEUE => futexes(pins, first, 2),
        // linux/xattr.h: struct xattr_args.
        number if XATTR.contains(&number) => {
            let [value, bytes] = word_pair(call.arguments[4]);
            pins.add(value, bytes & 0xffff_ffff, Write);
        }
        _ => {}
    }
}

fn size(number: i32) -> usize {
    number.unsigned_abs() as usize
}

/// Two words at an address of the program's; zeros where they cannot be read.
fn word_pair(at: usize) -> [usize; 2] {
    copy::read(at).unwrap_or_default()
}

fn word(at: usize) -> usize {
    copy::read::<[usize; 1]>(at).map_or(0, |[word]| word)
}

/// A 32-bit number at an address of the program's; zero where it cannot be read.
fn number(at: usize) -> usize {
    copy::read::<u32>(at).unwrap_or(0) as usize
}

/// Whether a socket option asks for sending without copying: the kernel would read pages after the call.
pub(crate) fn zero_copy(level: usize, option: usize) -> bool {
    level == size(libc::SOL_SOCKET) && option == size(libc::SO_ZEROCOPY)
}

/// Whether a socket option carries a filter program: linux/filter.h, linux/if_packet.h.
pub(crate) fn attaches_filter(level: usize, option: usize) -> bool {
    const PACKET_FANOUT_DATA: usize = 22;
    let filters = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
    level == size(libc::SOL_SOCKET) && filters.iter().any(|filter| option == size(*filter))
        || (level, option) == (size(libc::SOL_PACKET), PACKET_FANOUT_DATA)
}

/// Whether what a socket option is asked for names memory that the kernel writes to.
pub(crate) fn receives_without_copy(level: usize, option: usize) -> bool {
    const TCP_ZEROCOPY_RECEIVE: usize = 35;
    (level, option) == (size(libc::IPPROTO_TCP), TCP_ZEROCOPY_RECEIVE)
}

/// getsockopt(2): a filter program is as long as so many instructions; linux/tcp.h: struct tcp_zerocopy_receive names a buffer for
/// what cannot be mapped, and one for control data.
fn socket_option(pins: &mut Pins, level: usize, option: usize, value: usize, len: usize) {
    if (level, option) == (size(libc::SOL_SOCKET), size(libc::SO_GET_FILTER)) {
        pins.add(value, (number(len) * size_of::<libc::sock_filter>()).min(whole_bytes()), Write);
    } else if receives_without_copy(level, option) {
        pins.add(word(value + 24), number(value + 32).min(whole_bytes()), Write);
        pins.add(word(value + 40), word(value + 48).min(whole_bytes()), Write);
    }
}

/// linux/filter.h: struct sock_fprog, the number of instructions and their address.
fn filter_program(pins: &mut Pins, at: usize) {
    let [len, program] = word_pair(at);
    pins.add(program, (len & 0xffff) * size_of::<libc::sock_filter>(), Read);
}

/// ptrace(2): register sets are named by an iovec.
fn register_set(pins: &mut Pins, request: usize, data: usize) {
    const GETREGSET: usize = 0x4204;
    const SETREGSET: usize = 0x4205;
    if matches!(request, GETREGSET | SETREGSET) {
        let [start, len] = word_pair(data);
        pins.add(start, len, Write);
    }
}

/// linux/futex.h: what follows the word depends on the operation.
fn futex(pins: &mut Pins, operation: usize, timeout: usize, second: usize) {
    let operation = i32::try_from(operation & 0xffff_ffff).unwrap_or(-1);
    match operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            pins.add(timeout, size_of::<libc::timespec>(), Read);
        }
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP | libc::FUTEX_CMP_REQUEUE_PI => {
            pins.add(second, size_of::<u32>(), Write);
        }
        libc::FUTEX_WAIT_REQUEUE_PI => {
            pins.add(timeout, size_of::<libc::timespec>(), Read);
            pins.add(second, size_of::<u32>(), Write);
        }
        _ => {}
    }
}

/// linux/futex.h, Linux 5.14.
const FUTEX_LOCK_PI2: i32 = 13;

/// linux/futex.h: struct futex_waitv, 24 bytes with the word's address in the middle.
fn futexes(pins: &mut Pins, waiters: usize, count: usize) {
    for index in 0..count {
        pins.add(word(waiters + index * 24 + 8), size_of::<u32>(), Write);
    }
}

/// keyctl(2): a buffer is followed by its length.
fn key_payloads(pins: &mut Pins, arguments: &[usize; 6]) {
    const PAYLOAD_MAX: usize = 1 << 20;
    for pair in arguments[1..5].windows(2) {
        pins.add(pair[0], pair[1].min(PAYLOAD_MAX), Write);
    }
}

/// linux/bpf.h: union bpf_attr.
fn bpf(pins: &mut Pins, command: usize, attributes: usize) {
    /// The largest key (`MAX_BPF_STACK`).
    const KEY: usize = 512;
    let at = |offset: usize| word(attributes + offset);
    let count = |offset: usize| number(attributes + offset);
    match command {
        // Elements of maps.
        1..=4 => {
            pins.add(at(8), KEY, Write);
            pins.add(at(16), LARGE_BYTES, Write);
        }
        // BPF_PROG_LOAD.
        5 => {
            pins.add(at(8), count(4) * 8, Read);
            pins.add_text(at(16));
            pins.add(at(32), count(28), Write);
        }
        // BPF_OBJ_PIN and BPF_OBJ_GET.
        6 | 7 => pins.add_text(at(0)),
        // BPF_OBJ_GET_INFO_BY_FD.
        15 => {
            pins.add(at(8), count(4), Write);
        }
        // BPF_BTF_LOAD.
        18 => {
            pins.add(at(0), count(16), Read);
            pins.add(at(8), count(20), Write);
        }
        _ => {}
    }
}

/// Requests of ioctl(2) whose structure holds pointers, or tells its own length.
mod request {
    /// linux/sockios.h.
    pub const SIOCGIFCONF: usize = 0x8912;
    pub const SIOCETHTOOL: usize = 0x8946;
    pub const SIOCADDRT: usize = 0x890b;
    pub const SIOCDELRT: usize = 0x890c;
    /// scsi/sg.h.
    pub const SG_IO: usize = 0x2285;
    /// linux/blkpg.h.
    pub const BLKPG: usize = 0x1269;
    /// linux/fiemap.h, linux/fs.h.
    pub const FS_IOC_FIEMAP: usize = 0xc020_660b;
    pub const FIDEDUPERANGE: usize = 0xc018_9436;
    /// linux/fsmap.h, linux/blkzoned.h, linux/btrfs.h, linux/random.h.
    pub const FS_IOC_GETFSMAP: usize = 0xc0c0_583b;
    pub const BLKREPORTZONE: usize = 0xc010_1282;
    pub const BTRFS_IOC_TREE_SEARCH_V2: usize = 0xc070_9411;
    pub const BTRFS_IOC_SPACE_INFO: usize = 0xc010_9414;
    pub const RNDADDENTROPY: usize = 0x4008_5203;
    /// `fs/xfs/libxfs/xfs_fs.h`.
    pub const XFS_IOC_BULKSTAT: usize = 0x8040_587f;
    pub const XFS_IOC_INUMBERS: usize = 0x8040_5880;
    pub const XFS_IOC_GETBMAP: usize = 0xc020_5826;
    pub const XFS_IOC_GETBMAPX: usize = 0xc020_5838;
    /// linux/userfaultfd.h.
    pub const UFFDIO_COPY: usize = 0xc028_aa03;
    /// linux/if_tun.h.
    pub const TUNATTACHFILTER: usize = 0x4010_54d5;
    /// linux/perf_event.h.
    pub const PERF_EVENT_IOC_SET_FILTER: usize = 0x4008_2406;
    /// linux/dm-ioctl.h: the type of all device-mapper requests.
    pub const DM_TYPE: usize = 0xfd;
}

/// Whether pointers lie behind the argument of a request: it must be seen even if the argument is near.
pub(crate) fn names_memory(request: usize) -> bool {
    use request::{BLKPG, SG_IO, SIOCADDRT, SIOCDELRT, SIOCETHTOOL, SIOCGIFCONF, TUNATTACHFILTER, UFFDIO_COPY};
    matches!(
        request & 0xffff_ffff,
        SIOCGIFCONF | SIOCETHTOOL | SIOCADDRT | SIOCDELRT | SG_IO | BLKPG | UFFDIO_COPY | TUNATTACHFILTER
    )
}

/// ioctl(2): the request's number tells direction and size (`_IOC` of asm-generic/ioctl.h), unless it is an old one.
fn ioctl(pins: &mut Pins, request: usize, argument: usize) {
    device_pins::note(request);
    const READS: usize = 2;
    let (direction, bytes) = (request >> 30 & 3, request >> 16 & 0x3fff);
    let old = direction == 0 || bytes == 0;
    let access = if old || direction & READS != 0 { Write } else { Read };
    let asked = request & 0xffff_ffff;
    let whole = with_array(asked, argument).unwrap_or(0).min(whole_bytes());
    pins.add(argument, bytes.max(LARGE_BYTES).max(whole), access);
    behind(pins, asked, argument);
}

/// The length of a structure that ends in an array, of which the request's number tells the header's only.
fn with_array(asked: usize, argument: usize) -> Option<usize> {
    use self::request as r;
    let (header, counted_at, element) = match asked {
        // linux/fiemap.h, linux/fs.h, linux/fsmap.h: struct fiemap, file_dedupe_range, fsmap_head.
        r::FS_IOC_FIEMAP => (32, 24, 56),
        r::FIDEDUPERANGE => return Some(24 + 32 * (number(argument + 16) & 0xffff)),
        r::FS_IOC_GETFSMAP => (192, 8, 64),
        // linux/blkzoned.h: struct blk_zone_report.
        r::BLKREPORTZONE => (16, 8, 64),
        // linux/btrfs.h: struct btrfs_ioctl_search_args_v2, btrfs_ioctl_space_args.
        r::BTRFS_IOC_TREE_SEARCH_V2 => (112, 104, 1),
        r::BTRFS_IOC_SPACE_INFO => (16, 0, 24),
        // linux/random.h: struct rand_pool_info.
        r::RNDADDENTROPY => (8, 4, 1),
        // xfs_fs.h: struct xfs_bulkstat_req, xfs_inumbers_req, getbmap, getbmapx.
        r::XFS_IOC_BULKSTAT => (64, 12, 192),
        r::XFS_IOC_INUMBERS => (64, 12, 24),
        r::XFS_IOC_GETBMAP => (0, 24, 32),
        r::XFS_IOC_GETBMAPX => (0, 24, 48),
        _ => return None,
    };
    Some(header + number(argument + counted_at) * element)
}

/// linux/ethtool.h: the length of a command's structure, which mostly ends in an array. What the kernel counts by itself, the program
/// need not have counted there.
fn of_ethtool(at: usize) -> usize {
    /// Strings and figures of a device: some have thousands.
    const FIGURES: usize = 8192;
    let counted = |header: usize, counted_at: usize, element: usize, least: usize| {
        header + number(at + counted_at).max(least) * element
    };
    let bytes = match number(at) {
        // ETHTOOL_GREGS.
        0x04 => counted(12, 8, 1, 0),
        // ETHTOOL_GEEPROM, SEEPROM, GMODULEEEPROM, GET_DUMP_DATA, GTUNABLE, STUNABLE.
        0x0b | 0x0c | 0x43 | 0x40 | 0x48 | 0x49 => counted(16, 12, 1, 0),
        // ETHTOOL_TEST.
        0x1a => counted(16, 12, 8, FIGURES),
        // ETHTOOL_GSTRINGS.
        0x1b => counted(12, 8, 32, FIGURES),
        // ETHTOOL_GSTATS, GPHYSTATS.
        0x1d | 0x4a => counted(8, 4, 8, FIGURES),
        // ETHTOOL_GRXCLSRLALL: struct ethtool_rxnfc, with rules' numbers at its end.
        0x30 => counted(192, 184, 4, 0),
        // ETHTOOL_GRXFHINDIR, SRXFHINDIR.
        0x38 | 0x39 => counted(8, 4, 4, 0),
        // ETHTOOL_GRSSH, SRSSH: a table, then a key.
        0x46 | 0x47 => counted(24, 8, 4, 0) + number(at + 12),
        // ETHTOOL_PERQUEUE: for as many of the 4096 queues as the mask names.
        0x4b => 520 + 4096 * 92,
        _ => 0,
    };
    bytes.max(LARGE_BYTES).min(whole_bytes())
}

fn behind(pins: &mut Pins, asked: usize, argument: usize) {
    use self::request as r;
    let mut add = |start: usize, len: usize, access: PinAccess| pins.add(start, len, access);
    match asked {
        r::SIOCGIFCONF => {
            add(word(argument + 8), number(argument), Write);
        }
        // struct ifreq: a name of 16 bytes, then the pointer.
        r::SIOCETHTOOL => {
            let command = word(argument + 16);
            add(command, of_ethtool(command), Write);
        }
        r::SIOCADDRT | r::SIOCDELRT => {
            let device = word(argument + std::mem::offset_of!(libc::rtentry, rt_dev));
            add(device, libc::IFNAMSIZ, Read);
        }
        // struct sg_io_hdr: lengths of command and sense data in bytes 8 and 9.
        r::SG_IO => {
            let lengths = number(argument + 8);
            add(word(argument + 16), number(argument + 12), Write);
            add(word(argument + 24), lengths & 0xff, Read);
            add(word(argument + 32), lengths >> 8 & 0xff, Write);
        }
        r::BLKPG => {
            add(word(argument + 16), number(argument + 8), Write);
        }
        r::UFFDIO_COPY => {
            add(word(argument + 8), word(argument + 16), Read);
        }
        r::TUNATTACHFILTER => filter_program(pins, argument),
        r::PERF_EVENT_IOC_SET_FILTER => {
            add(argument, TEXT_MAX, Read);
        }
        // struct dm_ioctl tells the size of all that it carries, behind its version.
        other if other >> 8 & 0xff == r::DM_TYPE => {
            add(argument, number(argument + 12), Write);
        }
        _ => {}
    }
}
