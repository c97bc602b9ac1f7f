//! `docs/system-calls.md`, written from the table. The test fails when the file is stale; with `HINTERLAND_TEST_WRITE_DOCS=1` in
//! the environment it writes the file.

use super::*;
use std::fmt::Write;
use std::path::PathBuf;

const HEAD: &str = "\
# System calls on far memory

On the inline fault path the kernel cannot wait for a missing page: a call that meets one fails. So far pages that a call
works on are brought in and pinned before the call. This is how each system call of x86-64 (up to Linux 6.18) is covered.
The file is written from `crates/runtime/src/inline/syscalls/table.rs` by its test (`HINTERLAND_TEST_WRITE_DOCS=1 cargo test -p
hinterland-runtime document`). On the monitor path none of this is needed.

*Seen*: `filter` when one of its own pointer arguments is far (seccomp, anywhere in the process), for memory calls also when an address
is; `always` also when all of them
are near, because far memory or a signal mask may hide behind them: then only calls through libc are seen, by a wrapper or a
replaced call site; `by request` when the request is one of those that may hide it, in libc's function of this name and in `syscall`.
`-`: never.

Arguments: `in` and `out` with their size (`#2`: the value of the third argument; `*#2`: the number it points at), `text`,
`iovec`, `msghdr`; `addr` is an address whose content the call leaves alone; `·` is no pointer. Arguments that are left out are
no pointers.

Numbers that are newer than the table are trapped when any of their six arguments looks like a far pointer; the page there is
pinned as far as 4096 bytes.

Every pointer in the table is handed to the kernel from far memory in every state by `tests/conformance/calls.c` and `rare.c`, and
the answer compared with the plain one. What they leave out is listed, with the reason, in `table/exercised.rs`.

## What is not covered

- `iovec` arrays, masks and other nested pointers of calls made by `syscall` instructions outside libc. `process_madvise` with advice that
  loses content is refused to these (`EINVAL`).
- ioctl requests with pointers inside their structure, other than SIOCGIFCONF, SIOCETHTOOL, SIOCADDRT, PAGEMAP_SCAN, PROCMAP_QUERY,
  FS_IOC_ENABLE_VERITY, BTRFS_IOC_INO_PATHS, BTRFS_IOC_LOGICAL_INO, UFFDIO_COPY, TUNATTACHFILTER, SG_IO, BLKPG, CDROM_SEND_PACKET,
  NVMe commands, I2C_RDWR, I2C_SMBUS, sound frames that lie interleaved (up to 32 channels), DRM_IOCTL_VERSION, DRM's resources and connectors,
  KDFONTOP, GIO_UNIMAP, PIO_UNIMAP; and of these what one call may pin (a quarter of the budget, at most 16 MiB). Drivers that work on
  memory after the call (USB, video buffers, KVM guests' memory).
- Arrays behind the structure of an ioctl request that reach beyond 4096 bytes, other than those of FS_IOC_FIEMAP, FS_IOC_GETFSMAP,
  FIDEDUPERANGE, BLKREPORTZONE, BTRFS_IOC_TREE_SEARCH_V2, BTRFS_IOC_SPACE_INFO, XFS_IOC_BULKSTAT, XFS_IOC_INUMBERS, XFS_IOC_GETBMAP,
  XFS_IOC_GETBMAPX, RNDADDENTROPY, the device mapper, and the commands of SIOCETHTOOL.
- Of bpf(2): the names of the probes of a link to many of them, and what information about a link names.
- Socket options with pointers inside their structure, other than filter programs and TCP_ZEROCOPY_RECEIVE (netfilter's tables).
- A robust list that the program registers by `set_robust_list` itself: the kernel walks it when the thread ends. libc's is covered: its
  mutexes stay local, and so do the descriptors of threads on far stacks.
- Words that clone(2) writes numbers to, when the call is made by a `syscall` instruction outside libc.
- A futex_waitv on more than 24 far words spread over as many pages.
- Writes larger than what one step pins (a sixteenth of the budget, at most 4 MiB) are several calls: another process that appends
  to the same file may write in between.
- SO_ZEROCOPY is refused (`EOPNOTSUPP`), io_uring and AIO as on a kernel without them; vmsplice copies far memory.

";

const WAYS: &str = "\
## How calls are covered

| covered | |
|---|---|
| `-` | the kernel follows no pointer |
| `pinned` | what the arguments name is pinned |
| `pinned, fewer` | and the count is lowered to what a step may pin |
| `in pieces` | a buffer of any size; datagrams, and looks at a stream (`MSG_PEEK`), whole |
| `vectors`, `messages` | arrays of buffers, in groups; datagrams, looks, and writes of what one step pins, whole |
| `mask` | pinned, with SIGBUS, SIGSYS and SIGILL taken out of a copy of the mask |
| `copied` | path, arguments and environment are copied to near memory |
| `by request` | what is pinned depends on the request |
| `signals` | virtual masks and dispositions |
| `descriptors` | Hinterland's own descriptors are left out |
| `memory` | done by the region map and the pager, as the function of that name does it |
| `refused` | fails with the error |

";

fn size(size: Size) -> String {
    match size {
        Size::Bytes(bytes) => bytes.to_string(),
        Size::Times(index, 1) => format!("#{index}"),
        Size::Times(index, element) => format!("#{index}×{element}"),
        Size::Plus(index, header) => format!("#{index}+{header}"),
        Size::Bits(index) => format!("#{index} bits"),
        Size::Pages(index) => format!("#{index} pages"),
        Size::At(index) => format!("*#{index}"),
    }
}

fn shape(shape: Shape) -> String {
    match shape {
        Shape::Value => "·".into(),
        Shape::Address => "addr".into(),
        Shape::In(bytes) => format!("in {}", size(bytes)),
        Shape::Out(bytes) => format!("out {}", size(bytes)),
        Shape::Text => "text".into(),
        Shape::Texts => "texts".into(),
        Shape::Vector(count) => format!("iovec #{count}"),
        Shape::Message => "msghdr".into(),
        Shape::Messages(count) => format!("mmsghdr #{count}"),
    }
}

fn way(way: Way) -> String {
    match way {
        Way::Pass => "-".into(),
        Way::Pin => "pinned".into(),
        Way::Fewer(..) => "pinned, fewer".into(),
        Way::Pieces => "in pieces".into(),
        Way::Vectors => "vectors".into(),
        Way::Messages => "messages".into(),
        Way::Masked(_) => "mask".into(),
        Way::Exec => "copied".into(),
        Way::Nested => "by request".into(),
        Way::Signals => "signals".into(),
        Way::Descriptors => "descriptors".into(),
        Way::Memory => "memory".into(),
        Way::Refused(errno) => {
            let error = std::io::Error::from_raw_os_error(errno.into()).to_string();
            format!("refused: {}", error.split(" (").next().unwrap_or_default())
        }
    }
}

fn document() -> String {
    let mut text =
        HEAD.to_owned() + WAYS + "## The calls\n\n| | call | arguments | covered | seen |\n|---|---|---|---|---|\n";
    for row in rows() {
        let shapes: Vec<String> = row.shapes.iter().map(|part| shape(*part)).collect();
        let seen = match (row.seen, row.pointers(), row.way) {
            (Seen::Always, ..) => "always",
            (Seen::Asked, ..) => "by request",
            (Seen::Far, 0, way) if way != Way::Memory => "-",
            (Seen::Far, ..) => "filter",
        };
        let (number, name, shapes, way) = (row.number, row.name, shapes.join(", "), way(row.way));
        writeln!(text, "| {number} | {name} | {shapes} | {way} | {seen} |").unwrap();
    }
    text
}

#[test]
fn the_document_is_what_the_table_says() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/system-calls.md");
    let text = document();
    if std::env::var_os("HINTERLAND_TEST_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    let stale = "docs/system-calls.md is stale: HINTERLAND_TEST_WRITE_DOCS=1 cargo test -p hinterland-runtime document";
    assert!(file == text, "{stale}");
}
