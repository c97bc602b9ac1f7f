//! Requests of ioctl(2): what their argument points at, and what lies behind pointers in its structure.
//!
//! Numbers and layouts: the headers named at each. Requests that are not here get their argument pinned by the size that the
//! request's number tells, and at least a page's worth of it: structures without a size are shorter, arrays behind a header mostly;
//! pointers inside it must then be near.

use super::nested::{LARGE_BYTES, half, number, word};
use super::pieces::whole_bytes;
use super::pinned::{Pins, TEXT_MAX};
use crate::device_pins;
use hinterland_pager::PinAccess::{self, Read, Write};

/// Requests that are told apart by name here; those whose structure names memory in fields of its own are in `BEHIND`.
mod request {
    /// linux/sockios.h.
    pub const SIOCETHTOOL: usize = 0x8946;
    /// linux/i2c-dev.h.
    pub const I2C_RDWR: usize = 0x0707;
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
    /// linux/perf_event.h.
    pub const PERF_EVENT_IOC_SET_FILTER: usize = 0x4008_2406;
    /// linux/dm-ioctl.h: the type of all device-mapper requests.
    pub const DM_TYPE: usize = 0xfd;
}

/// How many bytes a pointer of a structure names: so many, or so many for each that a field counts.
#[derive(Clone, Copy)]
enum Length {
    Bytes(usize),
    /// A field of 16 bits at an offset, and the size of an element.
    Halves(usize, usize),
    /// One of 32 bits.
    Numbers(usize, usize),
    /// One of 64 bits.
    Words(usize, usize),
}

/// A request, the offset of a pointer in its structure, what it names, and what the kernel does with that.
type Entry = (usize, usize, Length, PinAccess);

/// What a frame of sound takes at most: 32 channels of 4 bytes.
const FRAME_BYTES: usize = 128;

/// Requests whose structure names memory.
#[rustfmt::skip]
const BEHIND: &[Entry] = {
    use Length::{Bytes, Halves, Numbers, Words};
    &[
        // net/if.h: struct ifconf. net/route.h: struct rtentry, for SIOCADDRT and SIOCDELRT.
        (0x8912, 8, Numbers(0, 1), Write),
        (0x890b, std::mem::offset_of!(libc::rtentry, rt_dev), Bytes(libc::IFNAMSIZ), Read),
        (0x890c, std::mem::offset_of!(libc::rtentry, rt_dev), Bytes(libc::IFNAMSIZ), Read),
        // linux/fs.h: PAGEMAP_SCAN (pm_scan_arg), PROCMAP_QUERY (procmap_query).
        (0xc060_6610, 40, Words(48, 24), Write),
        (0xc068_6611, 88, Numbers(80, 1), Write),
        (0xc068_6611, 96, Numbers(84, 1), Write),
        // linux/fsverity.h: FS_IOC_ENABLE_VERITY (fsverity_enable_arg).
        (0x4080_6685, 16, Numbers(12, 1), Read),
        (0x4080_6685, 32, Numbers(24, 1), Read),
        // linux/btrfs.h: BTRFS_IOC_INO_PATHS, BTRFS_IOC_LOGICAL_INO, BTRFS_IOC_LOGICAL_INO_V2.
        (0xc038_9423, 48, Words(8, 1), Write),
        (0xc038_9424, 48, Words(8, 1), Write),
        (0xc038_943b, 48, Words(8, 1), Write),
        // linux/userfaultfd.h: UFFDIO_COPY. linux/if_tun.h: TUNATTACHFILTER (sock_fprog).
        (0xc028_aa03, 8, Words(16, 1), Read),
        (0x4010_54d5, 8, Halves(0, 8), Read),
        // scsi/sg.h: SG_IO (sg_io_hdr); the lengths of command and sense data are a byte each.
        (0x2285, 16, Numbers(12, 1), Write),
        (0x2285, 24, Bytes(255), Read),
        (0x2285, 32, Bytes(255), Write),
        // linux/blkpg.h: BLKPG. linux/cdrom.h: CDROM_SEND_PACKET (cdrom_generic_command, request_sense).
        (0x1269, 16, Numbers(8, 1), Write),
        (0x5393, 16, Numbers(24, 1), Write),
        (0x5393, 32, Bytes(64), Write),
        // linux/nvme_ioctl.h: NVME_IOCTL_ADMIN_CMD, IO_CMD, ADMIN64_CMD, IO64_CMD (nvme_passthru_cmd).
        (0xc048_4e41, 24, Numbers(36, 1), Write),
        (0xc048_4e41, 16, Numbers(32, 1), Write),
        (0xc048_4e43, 24, Numbers(36, 1), Write),
        (0xc048_4e43, 16, Numbers(32, 1), Write),
        (0xc050_4e47, 24, Numbers(36, 1), Write),
        (0xc050_4e47, 16, Numbers(32, 1), Write),
        (0xc050_4e48, 24, Numbers(36, 1), Write),
        (0xc050_4e48, 16, Numbers(32, 1), Write),
        // linux/i2c-dev.h: I2C_SMBUS (i2c_smbus_data).
        (0x0720, 8, Bytes(34), Write),
        // sound/asound.h: SNDRV_PCM_IOCTL_WRITEI_FRAMES, READI_FRAMES (snd_xferi).
        (0x4018_4150, 8, Words(16, FRAME_BYTES), Read),
        (0x8018_4151, 8, Words(16, FRAME_BYTES), Write),
        // drm/drm.h: DRM_IOCTL_VERSION. drm/drm_mode.h: DRM_IOCTL_MODE_GETRESOURCES, DRM_IOCTL_MODE_GETCONNECTOR.
        (0xc040_6400, 24, Words(16, 1), Write),
        (0xc040_6400, 40, Words(32, 1), Write),
        (0xc040_6400, 56, Words(48, 1), Write),
        (0xc040_64a0, 0, Numbers(32, 4), Write),
        (0xc040_64a0, 8, Numbers(36, 4), Write),
        (0xc040_64a0, 16, Numbers(40, 4), Write),
        (0xc040_64a0, 24, Numbers(44, 4), Write),
        (0xc050_64a7, 0, Numbers(40, 4), Write),
        (0xc050_64a7, 8, Numbers(32, 68), Write),
        (0xc050_64a7, 16, Numbers(36, 4), Write),
        (0xc050_64a7, 24, Numbers(36, 8), Write),
        // linux/kd.h: KDFONTOP (console_font_op: 32 rows of 32 pixels), GIO_UNIMAP, PIO_UNIMAP (unimapdesc).
        (0x4b72, 24, Numbers(16, 128), Write),
        (0x4b66, 8, Halves(0, 4), Write),
        (0x4b67, 8, Halves(0, 4), Read),
    ]
};

/// What the kernel reaches through the pointers of a request's structure.
fn entries(asked: usize) -> impl Iterator<Item = &'static Entry> {
    BEHIND.iter().filter(move |(request, ..)| *request == asked)
}

/// Whether pointers lie behind the argument of a request: it must be seen even if the argument is near.
pub(crate) fn names_memory(request: usize) -> bool {
    let asked = request & 0xffff_ffff;
    matches!(asked, request::SIOCETHTOOL | request::I2C_RDWR) || entries(asked).next().is_some()
}

/// ioctl(2): the request's number tells direction and size (`_IOC` of asm-generic/ioctl.h), unless it is an old one.
pub(super) fn ioctl(pins: &mut Pins, request: usize, argument: usize) {
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
    for (_, pointer, length, access) in entries(asked) {
        let bytes = match *length {
            Length::Bytes(bytes) => bytes,
            Length::Halves(at, element) => half(argument + at) * element,
            Length::Numbers(at, element) => number(argument + at) * element,
            Length::Words(at, element) => word(argument + at).saturating_mul(element),
        };
        pins.add(word(argument + pointer), bytes.min(whole_bytes()), *access);
    }
    match asked {
        // struct ifreq: a name of 16 bytes, then the pointer.
        request::SIOCETHTOOL => {
            let command = word(argument + 16);
            pins.add(command, of_ethtool(command), Write);
        }
        // struct i2c_rdwr_ioctl_data: an array of i2c_msg, 16 bytes with length and address of the bytes.
        request::I2C_RDWR => {
            let (first, count) = (word(argument), number(argument + 8).min(I2C_MESSAGES));
            pins.add(first, count * 16, Write);
            for message in (0..count).map(|index| first + index * 16) {
                pins.add(word(message + 8), half(message + 4), Write);
            }
        }
        request::PERF_EVENT_IOC_SET_FILTER => {
            pins.add(argument, TEXT_MAX, Read);
        }
        // struct dm_ioctl tells the size of all that it carries, behind its version.
        other if other >> 8 & 0xff == request::DM_TYPE => {
            pins.add(argument, number(argument + 12).min(whole_bytes()), Write);
        }
        _ => {}
    }
}

/// linux/i2c-dev.h: `I2C_RDWR_IOCTL_MAX_MSGS`.
const I2C_MESSAGES: usize = 42;

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a request's number tells its structure's size, what the table names lies inside it, each pointer once.
    #[test]
    fn fields_lie_inside_the_structures_that_the_numbers_tell_of() {
        for (at, (request, pointer, length, _)) in BEHIND.iter().enumerate() {
            let counted_to = match length {
                Length::Bytes(_) => 0,
                Length::Halves(at, _) => at + 2,
                Length::Numbers(at, _) => at + 4,
                Length::Words(at, _) => at + 8,
            };
            let size = request >> 16 & 0x3fff;
            assert!(size == 0 || pointer + 8 <= size && counted_to <= size, "{request:#x}");
            let same = |other: &Entry| other.0 == *request && other.1 == *pointer;
            assert!(!BEHIND[at + 1..].iter().any(same), "{request:#x} names {pointer} twice");
            assert!(names_memory(*request) && names_memory(*request | 1 << 32), "{request:#x}");
        }
        assert!(!names_memory(usize::try_from(libc::FIONREAD).unwrap()));
    }
}
