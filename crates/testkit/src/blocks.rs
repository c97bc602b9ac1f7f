//! Blocks of traces with the right frame, and whatever in it: as a program that is not ours might write them.

use twox_hash::XxHash3_64;

/// Bytes of a frame.
const FRAME_BYTES: usize = 24;

/// Appends a block to a file that begins with a head; `kind` and the frame are those of docs/tape.md.
///
/// # Panics
/// The file does not consist of blocks.
pub fn append_block(file: &mut Vec<u8>, version: u8, kind: u8, payload: &[u8]) {
    let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().expect("a whole block"));
    let (mut at, mut number) = (0, 0_u32);
    while at < file.len() {
        at += FRAME_BYTES + word(at + 8) as usize;
        number += 1;
    }
    let seed = u64::from_le_bytes(*file[16..].first_chunk().expect("a whole head"));
    let length = u32::try_from(payload.len()).expect("a short payload");
    let mut frame = file[..4].to_vec();
    frame.extend_from_slice(&[version, kind, 0, 0]);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    let checksum = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(seed, &frame), payload);
    file.extend_from_slice(&frame);
    file.extend_from_slice(&checksum.to_le_bytes());
    file.extend_from_slice(payload);
}

/// Gives the head of a file, which was changed, the right checksum; blocks behind it are another file's then.
///
/// # Panics
/// The file does not begin with a block.
pub fn seal_head(file: &mut [u8]) {
    let length = u32::from_le_bytes(*file[8..].first_chunk().expect("a whole block")) as usize;
    let payload = &file[FRAME_BYTES..FRAME_BYTES + length];
    let checksum = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(0, &file[..16]), payload);
    file[16..FRAME_BYTES].copy_from_slice(&checksum.to_le_bytes());
}
