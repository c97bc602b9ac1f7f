//! zstd frames, one page each, level 1, through the C library with static contexts: all their memory is ours.

use hinterland_units::{PAGE_BYTES, PageBytes};
use std::ffi::c_int;
use std::ptr::NonNull;
use zstd_sys as c;

/// The fastest of zstd's regular levels. Of pages the higher ones make no less: SQLite's 1,318 bytes on the mean at levels 1 and 3, Python
/// dictionaries' 528 and 518 (LZ4: 1,788 and 1,202).
const LEVEL: c_int = 1;

/// Compresses pages.
pub(crate) struct Compressor {
    context: NonNull<c::ZSTD_CCtx>,
    /// What the context lives in; words, because zstd wants 8-byte alignment.
    _memory: Box<[u64]>,
}

/// Restores pages.
pub(crate) struct Decompressor {
    context: NonNull<c::ZSTD_DCtx>,
    /// As for `Compressor`.
    _memory: Box<[u64]>,
}

// SAFETY: the context is plain memory without ties to a thread, and every method takes `&mut self`.
unsafe impl Send for Compressor {}
// SAFETY: as for `Compressor`.
unsafe impl Send for Decompressor {}

impl Compressor {
    /// Words for a context.
    fn words() -> usize {
        // Those that ZSTD_compressCCtx takes for a page: about 71 KiB instead of the 568 that serve any size. What a context needs depends on
        // them alone, so where one page can be compressed, all can.
        // SAFETY: pure functions of their arguments.
        let bytes = unsafe { c::ZSTD_estimateCCtxSize_usingCParams(c::ZSTD_getCParams(LEVEL, PAGE_BYTES as u64, 0)) };
        bytes.div_ceil(8)
    }

    /// Memory that one occupies.
    pub(crate) fn ram_bytes() -> u64 {
        (Compressor::words() * 8) as u64
    }

    pub(crate) fn new() -> Compressor {
        let mut memory = vec![0u64; Compressor::words()].into_boxed_slice();
        // SAFETY: the memory is aligned to 8, large enough by zstd's own estimate, and lives as long as the context (`_memory` is
        // dropped with it; a static context needs no free).
        let context = unsafe { c::ZSTD_initStaticCCtx(memory.as_mut_ptr().cast(), size_of_val(&*memory)) };
        let context = NonNull::new(context).expect("zstd's own estimate of a compression context is enough");
        Compressor { context, _memory: memory }
    }

    /// Compresses `page` into `out`; returns the compressed length, or `None` if it does not fit.
    pub(crate) fn compress(&mut self, page: &PageBytes, out: &mut [u8]) -> Option<usize> {
        // SAFETY: the context is valid and exclusively ours; both buffers are valid for the lengths given.
        unsafe {
            let length = c::ZSTD_compressCCtx(
                self.context.as_ptr(),
                out.as_mut_ptr().cast(),
                out.len(),
                page.as_ptr().cast(),
                PAGE_BYTES,
                LEVEL,
            );
            (c::ZSTD_isError(length) == 0).then_some(length)
        }
    }
}

impl Decompressor {
    /// Words for a context.
    fn words() -> usize {
        // SAFETY: a pure function.
        unsafe { c::ZSTD_estimateDCtxSize() }.div_ceil(8)
    }

    /// Memory that one occupies.
    pub(crate) fn ram_bytes() -> u64 {
        (Decompressor::words() * 8) as u64
    }

    pub(crate) fn new() -> Decompressor {
        let mut memory = vec![0u64; Decompressor::words()].into_boxed_slice();
        // SAFETY: as for a `Compressor`.
        let context = unsafe { c::ZSTD_initStaticDCtx(memory.as_mut_ptr().cast(), size_of_val(&*memory)) };
        let context = NonNull::new(context).expect("zstd's own estimate of a decompression context is enough");
        Decompressor { context, _memory: memory }
    }

    /// Restores a page. `None` if `bytes` are not one whole compressed page.
    pub(crate) fn decompress(&mut self, bytes: &[u8], into: &mut PageBytes) -> Option<()> {
        // SAFETY: the context is valid and exclusively ours; zstd writes at most PAGE_BYTES, whatever the source holds.
        let written = unsafe {
            c::ZSTD_decompressDCtx(
                self.context.as_ptr(),
                into.as_mut_ptr().cast(),
                PAGE_BYTES,
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        (written == PAGE_BYTES).then_some(())
    }
}
