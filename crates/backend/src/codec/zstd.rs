//! zstd frames, one page each, level 1, through the C library with static contexts: all their memory is ours.

use hinterland_units::{PAGE_BYTES, PageBytes};
use std::ffi::c_int;
use std::ptr::NonNull;
use zstd_sys as c;

/// The fastest of zstd's regular levels.
const LEVEL: c_int = 1;

/// A compression and a decompression context in one piece of memory.
pub(crate) struct Contexts {
    compress: NonNull<c::ZSTD_CCtx>,
    decompress: NonNull<c::ZSTD_DCtx>,
    /// What the contexts live in; words, because zstd wants 8-byte alignment.
    _memory: Box<[u64]>,
}

// SAFETY: the contexts are plain memory without ties to a thread, and every method takes `&mut self`.
unsafe impl Send for Contexts {}

/// Words for a compression and for a decompression context.
fn context_words() -> (usize, usize) {
    // SAFETY: pure functions of their arguments.
    let (compress, decompress) = unsafe {
        let parameters = c::ZSTD_getCParams(LEVEL, PAGE_BYTES as u64, 0);
        // ZSTD_compressCCtx on a static context may need the level's parameters for any size: reserve the larger.
        (
            c::ZSTD_estimateCCtxSize(LEVEL).max(c::ZSTD_estimateCCtxSize_usingCParams(parameters)),
            c::ZSTD_estimateDCtxSize(),
        )
    };
    (compress.div_ceil(8), decompress.div_ceil(8))
}

impl Contexts {
    pub(crate) fn ram_bytes() -> u64 {
        let (compress, decompress) = context_words();
        ((compress + decompress) * 8) as u64
    }

    pub(crate) fn new() -> Contexts {
        let (compress_words, decompress_words) = context_words();
        let mut memory = vec![0u64; compress_words + decompress_words].into_boxed_slice();
        let (for_compress, for_decompress) = memory.split_at_mut(compress_words);
        // SAFETY: both buffers are aligned to 8, large enough by zstd's own estimate, and live as long as the contexts
        // (`_memory` is dropped with them; static contexts need no free).
        let (compress, decompress) = unsafe {
            (
                c::ZSTD_initStaticCCtx(for_compress.as_mut_ptr().cast(), size_of_val(for_compress)),
                c::ZSTD_initStaticDCtx(for_decompress.as_mut_ptr().cast(), size_of_val(for_decompress)),
            )
        };
        let compress = NonNull::new(compress).expect("zstd's own estimate of a compression context is enough");
        let decompress = NonNull::new(decompress).expect("zstd's own estimate of a decompression context is enough");
        Contexts { compress, decompress, _memory: memory }
    }

    pub(crate) fn compress(&mut self, page: &PageBytes, out: &mut [u8]) -> Option<usize> {
        // SAFETY: the context is valid and exclusively ours; both buffers are valid for the lengths given.
        unsafe {
            let length = c::ZSTD_compressCCtx(
                self.compress.as_ptr(),
                out.as_mut_ptr().cast(),
                out.len(),
                page.as_ptr().cast(),
                PAGE_BYTES,
                LEVEL,
            );
            (c::ZSTD_isError(length) == 0).then_some(length)
        }
    }

    pub(crate) fn decompress(&mut self, bytes: &[u8], into: &mut PageBytes) -> Option<()> {
        // SAFETY: the context is valid and exclusively ours; zstd writes at most PAGE_BYTES, whatever the source holds.
        let written = unsafe {
            c::ZSTD_decompressDCtx(
                self.decompress.as_ptr(),
                into.as_mut_ptr().cast(),
                PAGE_BYTES,
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        (written == PAGE_BYTES).then_some(())
    }
}
