//! LZ4 blocks, one page each, through the C library.
//!
//! The state is initialised once; `LZ4_compress_fast_extState_fastReset` then resets only what the next page needs.

use hinterland_units::{PAGE_BYTES, PageBytes};
use std::ffi::{c_char, c_int, c_void};

// Declared here because the bindings leave them out. Signatures: lz4.h of LZ4 1.10; both symbols are in the library that
// lz4-sys builds.
unsafe extern "C" {
    fn LZ4_initStream(buffer: *mut c_void, size: usize) -> *mut c_void;
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// `sizeof(LZ4_stream_t)`: `(1 << LZ4_MEMORY_USAGE) + 32` in lz4.h, with the default `LZ4_MEMORY_USAGE` of 14.
const STATE_BYTES: usize = (1 << 14) + 32;
/// The library's fastest setting that does not yet give up compression.
const ACCELERATION: c_int = 1;

/// A page's bytes as LZ4 counts them.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "4096 fits")]
const PAGE_LENGTH: c_int = PAGE_BYTES as c_int;

/// Working memory of the compressor.
#[repr(align(64))]
struct State(#[allow(dead_code, reason = "read and written by LZ4 alone")] [u8; STATE_BYTES]);

/// Compresses pages.
pub(crate) struct Compressor {
    state: Box<State>,
}

impl Compressor {
    pub(crate) const RAM_BYTES: u64 = size_of::<State>() as u64;

    pub(crate) fn new() -> Compressor {
        let mut state = Box::new(State([0; STATE_BYTES]));
        // SAFETY: the buffer is as large and at least as aligned (64) as LZ4_stream_t, and exclusively ours.
        let stream = unsafe { LZ4_initStream((&raw mut *state).cast(), STATE_BYTES) };
        assert!(!stream.is_null(), "LZ4_stream_t is larger than {STATE_BYTES} bytes in this LZ4");
        Compressor { state }
    }

    pub(crate) fn compress(&mut self, page: &PageBytes, out: &mut [u8]) -> Option<usize> {
        let capacity = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: the state was initialised by LZ4_initStream and used by this function only, always with the same kind of
        // call; source and destination are valid for the lengths given.
        let length = unsafe {
            LZ4_compress_fast_extState_fastReset(
                (&raw mut *self.state).cast(),
                page.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                PAGE_LENGTH,
                capacity,
                ACCELERATION,
            )
        };
        usize::try_from(length).ok().filter(|length| *length > 0)
    }
}

/// Restores a page; needs no working memory. `None` if `bytes` are not one whole compressed page.
pub(crate) fn decompress(bytes: &[u8], into: &mut PageBytes) -> Option<()> {
    let length = c_int::try_from(bytes.len()).ok()?;
    // SAFETY: LZ4_decompress_safe reads `length` bytes from the source and writes at most PAGE_BYTES to the destination,
    // whatever the source holds.
    let written =
        unsafe { lz4_sys::LZ4_decompress_safe(bytes.as_ptr().cast(), into.as_mut_ptr().cast(), length, PAGE_LENGTH) };
    (written == PAGE_LENGTH).then_some(())
}
