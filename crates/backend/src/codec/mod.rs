//! Page codecs. The C libraries work in memory that is allocated once, by Rust's allocator: they never call malloc.

mod lz4;
mod zstd;

pub(crate) use lz4::decompress as decompress_lz4;
pub(crate) use zstd::{Compressor as ZstdCompressor, Decompressor as ZstdDecompressor};

use hinterland_units::PageBytes;
use std::fmt;
use std::str::FromStr;

/// How pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CodecName {
    /// LZ4, fast mode.
    #[default]
    Lz4,
    /// zstd, level 1.
    Zstd,
}

impl fmt::Display for CodecName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CodecName::Lz4 => "lz4",
            CodecName::Zstd => "zstd",
        })
    }
}

impl FromStr for CodecName {
    type Err = ();
    fn from_str(text: &str) -> Result<CodecName, ()> {
        match text {
            "lz4" => Ok(CodecName::Lz4),
            "zstd" => Ok(CodecName::Zstd),
            _ => Err(()),
        }
    }
}

/// One compressor with the memory that it works in.
pub(crate) enum Codec {
    Lz4(lz4::Compressor),
    Zstd(ZstdCompressor),
}

impl Codec {
    pub(crate) fn new(name: CodecName) -> Codec {
        match name {
            CodecName::Lz4 => Codec::Lz4(lz4::Compressor::new()),
            CodecName::Zstd => Codec::Zstd(ZstdCompressor::new()),
        }
    }

    /// Memory that one occupies.
    pub(crate) fn ram_bytes(name: CodecName) -> u64 {
        match name {
            CodecName::Lz4 => lz4::Compressor::RAM_BYTES,
            CodecName::Zstd => ZstdCompressor::ram_bytes(),
        }
    }

    /// Compresses `page` into `out`; returns the compressed length, or `None` if it does not fit.
    pub(crate) fn compress(&mut self, page: &PageBytes, out: &mut [u8]) -> Option<usize> {
        match self {
            Codec::Lz4(lz4) => lz4.compress(page, out),
            Codec::Zstd(zstd) => zstd.compress(page, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Kind, page};
    use hinterland_units::PAGE_BYTES;

    #[test]
    fn every_kind_of_page_comes_back() {
        let mut zstd = ZstdDecompressor::new();
        for name in [CodecName::Lz4, CodecName::Zstd] {
            let mut codec = Codec::new(name);
            for seed in 0..200 {
                for kind in Kind::ALL {
                    let page = page(kind, seed);
                    let mut out = [0u8; PAGE_BYTES + 256];
                    let length = codec.compress(&page, &mut out).expect("the buffer holds any page");
                    let mut back = [0u8; PAGE_BYTES];
                    let whole = match name {
                        CodecName::Lz4 => decompress_lz4(&out[..length], &mut back),
                        CodecName::Zstd => zstd.decompress(&out[..length], &mut back),
                    };
                    assert!(whole.is_some() && back == page, "{name} {kind:?} {seed}");
                }
            }
        }
    }

    #[test]
    fn a_zstd_compressor_is_as_large_as_pages_need() {
        assert!(ZstdCompressor::ram_bytes() <= 128 << 10, "{} bytes", ZstdCompressor::ram_bytes());
        let (mut zstd, mut back) = (ZstdCompressor::new(), ZstdDecompressor::new());
        // Also after pages for which there was no room.
        for seed in 0..50 {
            let mut out = [0u8; PAGE_BYTES - 256];
            assert_eq!(zstd.compress(&page(Kind::Random, seed), &mut out), None);
            let text = page(Kind::Text, seed);
            let length = zstd.compress(&text, &mut out).expect("text shrinks");
            let mut into = [0u8; PAGE_BYTES];
            assert!(back.decompress(&out[..length], &mut into).is_some() && into == text, "{seed}");
        }
    }

    #[test]
    fn a_cut_page_is_refused() {
        let mut zstd = ZstdDecompressor::new();
        for name in [CodecName::Lz4, CodecName::Zstd] {
            let mut codec = Codec::new(name);
            let mut out = [0u8; PAGE_BYTES];
            let length = codec.compress(&page(Kind::Text, 1), &mut out).expect("text shrinks");
            let mut back = [0u8; PAGE_BYTES];
            let whole = match name {
                CodecName::Lz4 => decompress_lz4(&out[..length - 9], &mut back),
                CodecName::Zstd => zstd.decompress(&out[..length - 9], &mut back),
            };
            assert_eq!(whole, None, "{name}");
        }
    }

    #[test]
    fn random_bytes_do_not_fit() {
        for name in [CodecName::Lz4, CodecName::Zstd] {
            let mut out = [0u8; 3840];
            assert_eq!(Codec::new(name).compress(&page(Kind::Random, 1), &mut out), None, "{name}");
        }
    }
}
