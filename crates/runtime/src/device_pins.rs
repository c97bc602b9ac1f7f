//! Devices that keep pages of the program and write to them at any time: GPUs, RDMA and USB adapters, cameras.
//!
//! They learn of the pages by requests of ioctl(2), often inside structures that only their driver knows. So the type of a
//! request decides: all but those that are known to keep nothing count as such a device.

use crate::{on_near_stack, pager};

/// Types of requests (`_IOC_TYPE`, asm-generic/ioctl.h; Documentation/userspace-api/ioctl/ioctl-number.rst) whose drivers keep
/// no pages beyond the call.
const HARMLESS: [usize; 13] = [
    0x54, // terminals; FIONREAD, FIONBIO, FIOCLEX
    0x89, // sockets, network interfaces
    0x66,
    b'X' as usize,
    0x94,
    0x00,
    0x72, // file systems: attributes, freezing, clones; FIBMAP, FIGETBSZ; FAT
    0x12,
    b'L' as usize, // block and loop devices
    b'E' as usize, // input events
    b'$' as usize, // performance counters
    b'R' as usize, // random numbers
    0xb7,          // namespaces
];

/// Before a request: if its device may keep pages, they leave by copy no more.
pub(crate) fn note(request: usize) {
    if !keeps_no_pages(request) {
        end_copies();
    }
}

/// Before a socket option is set: the same for the memory of an AF_XDP socket (linux/if_xdp.h).
pub(crate) fn note_option(level: usize, option: usize) {
    const SOL_XDP: usize = 283;
    const XDP_UMEM_REG: usize = 4;
    if (level, option) == (SOL_XDP, XDP_UMEM_REG) {
        end_copies();
    }
}

fn end_copies() {
    if let Some(pager) = pager() {
        on_near_stack(|| pager.departs_by_move_only());
    }
}

/// Whether a request is known to keep no page.
fn keeps_no_pages(request: usize) -> bool {
    HARMLESS.contains(&(request >> 8 & 0xff))
}

#[cfg(test)]
mod tests {
    use super::keeps_no_pages;

    #[test]
    fn graphics_and_rdma_may_keep_pages() {
        const DRM_VERSION: usize = 0xc040_6400;
        const NVIDIA: usize = 0xc0c8_4600 | 0x2a;
        const RDMA_VERBS: usize = 0xc018_1b01;
        const AMD_KFD: usize = 0xc018_4b16;
        const VIDEO_BUFFERS: usize = 0xc014_5608;
        for request in [DRM_VERSION, NVIDIA, RDMA_VERBS, AMD_KFD, VIDEO_BUFFERS] {
            assert!(!keeps_no_pages(request), "{request:#x}");
        }
        for request in [libc::TIOCGWINSZ, libc::FIONREAD, libc::FIONBIO, 0x8912] {
            assert!(keeps_no_pages(usize::try_from(request).unwrap()), "{request:#x}");
        }
    }
}
