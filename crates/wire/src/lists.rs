//! Lists inside control parts: views of the bytes that were received, checked once.

use crate::bytes::{Reader, put_count};
use crate::{DATA_BYTES_MAX, RANGES_MAX, SLABS_MAX, WireError};

/// A range of bytes in a session's address space: slab n begins at n × the node's slab size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Where it begins.
    pub address: u64,
    /// How long it is; not 0.
    pub bytes: u32,
    /// Of the data that is written (`checksum`); 0 in a read.
    pub checksum: u64,
}

const RANGE_BYTES: usize = 20;

/// The ranges of a read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranges<'a> {
    entries: &'a [[u8; RANGE_BYTES]],
    data_bytes: usize,
}

impl<'a> Ranges<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Ranges<'a>, WireError> {
        let entries = entries(&mut reader, "the number of ranges", RANGES_MAX)?;
        reader.end()?;
        let mut ranges = Ranges { entries, data_bytes: 0 };
        let lengths = ranges.iter().map(|range| u64::from(range.bytes));
        let data_bytes: u64 = lengths.clone().sum();
        if lengths.clone().any(|bytes| bytes == 0) {
            return Err(WireError::Value("the length of a range"));
        }
        let bound = DATA_BYTES_MAX as u64;
        let too_long = WireError::TooLong { what: "the data of all ranges", is: data_bytes, bound };
        ranges.data_bytes =
            usize::try_from(data_bytes).ok().filter(|bytes| *bytes <= DATA_BYTES_MAX).ok_or(too_long)?;
        Ok(ranges)
    }

    pub(crate) fn encode(into: &mut Vec<u8>, ranges: impl ExactSizeIterator<Item = Range>) -> usize {
        assert!((1..=RANGES_MAX).contains(&ranges.len()), "1 to {RANGES_MAX} ranges in a message");
        put_count(into, ranges.len());
        let mut data_bytes = 0;
        for Range { address, bytes, checksum } in ranges {
            into.extend_from_slice(&address.to_le_bytes());
            into.extend_from_slice(&bytes.to_le_bytes());
            into.extend_from_slice(&checksum.to_le_bytes());
            data_bytes += bytes as usize;
        }
        data_bytes
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range> + Clone + use<'a> {
        self.entries.iter().map(|entry| {
            let (address, rest) = entry.split_first_chunk().expect("20 bytes");
            let (bytes, checksum) = rest.split_first_chunk().expect("12 bytes");
            Range {
                address: u64::from_le_bytes(*address),
                bytes: u32::from_le_bytes(*bytes),
                checksum: u64::from_le_bytes(*checksum.first_chunk().expect("8 bytes")),
            }
        })
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all ranges together, at most `DATA_BYTES_MAX`.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }
}

/// The numbers of slabs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers<'a>(&'a [[u8; 4]]);

impl<'a> Numbers<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Numbers<'a>, WireError> {
        let numbers = entries(&mut reader, "the number of slabs", SLABS_MAX)?;
        reader.end().map(|()| Numbers(numbers))
    }

    pub(crate) fn encode(into: &mut Vec<u8>, numbers: &[u32]) {
        assert!(numbers.len() <= SLABS_MAX, "at most {SLABS_MAX} slabs in a message");
        put_count(into, numbers.len());
        numbers.iter().for_each(|number| into.extend_from_slice(&number.to_le_bytes()));
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.0.iter().map(|number| u32::from_le_bytes(*number))
    }
}

/// The checksums of ranges that were read, in the order of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checksums<'a>(&'a [[u8; 8]]);

impl<'a> Checksums<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Checksums<'a>, WireError> {
        let checksums = entries(&mut reader, "the number of checksums", RANGES_MAX)?;
        reader.end().map(|()| Checksums(checksums))
    }

    pub(crate) fn encode(into: &mut Vec<u8>, checksums: &[u64]) {
        assert!(checksums.len() <= RANGES_MAX, "at most {RANGES_MAX} ranges in a message");
        put_count(into, checksums.len());
        checksums.iter().for_each(|sum| into.extend_from_slice(&sum.to_le_bytes()));
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.0.iter().map(|sum| u64::from_le_bytes(*sum))
    }
}

/// Entries of N bytes behind their count.
pub(crate) fn entries<'a, const N: usize>(
    reader: &mut Reader<'a>,
    what: &'static str,
    bound: usize,
) -> Result<&'a [[u8; N]], WireError> {
    let count = reader.count(what, bound)?;
    let (entries, rest) = reader.take(count * N)?.as_chunks();
    assert!(rest.is_empty(), "whole entries");
    Ok(entries)
}
