//! Loads and stores of any program, as valgrind's lackey writes them: a line of text for each instruction, load, store and modification.
//!
//! ```text
//! ==4711== Lackey, an example Valgrind tool
//! I  0023C790,2
//!  L BE801950,4
//!  S BE80199C,4
//!  M 0025747C,1
//! ==4711== Exit code:       0
//! ```
//!
//! Addresses are hexadecimal, sizes decimal. Pages are numbered in the order of their first touch, since the model's address space begins at 0. Lackey
//! says nothing of which address depends on which data: misses overlap as far as the core's window reaches. The text is read as a stream.

use crate::filter::{Data, Filter};
use crate::parameters::{LINE_BYTES, PAGE_BYTES};
use hinterland_units::{Foreign, cut};
use std::collections::HashMap;
use std::io::{BufRead, Read};

/// Bytes of a line of text; lackey's have a tenth, valgrind's messages are cut by itself.
const TEXT_BYTES_MAX: u64 = 4096;
/// Bytes of one access; the largest, of FXSAVE and XSAVE, are some hundred.
const ACCESS_BYTES_MAX: u64 = PAGE_BYTES;
/// What lackey says when the program has ended.
const END: &[u8] = b"Exit code:";
/// Of a wrong line, so much is shown.
const SHOWN_BYTES_MAX: usize = 40;

/// Why such a text was refused.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// It cannot be read.
    #[error("cannot be read after line {after}: {error}")]
    Read {
        /// The last line that was read.
        after: u64,
        /// Why.
        error: std::io::Error,
    },
    /// Not of lackey.
    #[error(
        "line {number} is '{text}', not lackey's ' L 1ffeffe7e8,8'; record with valgrind --tool=lackey --trace-mem=yes --log-file=FILE ./program"
    )]
    Foreign {
        /// Which line.
        number: u64,
        /// Its beginning.
        text: String,
    },
    /// The last line has no end.
    #[error("line {number} ends without a line break: the rest is missing; record again, and let the program end")]
    Cut {
        /// Which line.
        number: u64,
    },
    /// Nothing to replay.
    #[error("has no loads and stores in its {lines} lines; record with --trace-mem=yes")]
    Empty {
        /// How many there are.
        lines: u64,
    },
    /// More than the model counts.
    #[error("line {number} touches one page more than the {pages} that the model has room for")]
    TooLarge {
        /// Which line.
        number: u64,
        /// How many pages there are.
        pages: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    /// What valgrind says beside; `is_end`: with which code the program ended.
    Message {
        is_end: bool,
    },
    Instruction,
    Load(Access),
    Store(Access),
    /// A load, then a store.
    Modify(Access),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Access {
    address: u64,
    bytes: u64,
}

/// Gives all loads and stores to the filter, until it is full. Returns whether no more were asked for, or the program ended: a recording that was cut
/// where a line ends looks like a whole one otherwise.
///
/// # Errors
/// What is wrong with which line.
pub fn read(mut input: impl BufRead, filter: &mut Filter) -> Result<bool, LinesError> {
    let (mut pages, mut number, mut text) = (Pages::default(), 0, Vec::new());
    // Instructions since the last access: lackey names one before its accesses, and the filter counts an access as one.
    let mut instructions: u64 = 0;
    let (mut is_empty, mut has_end) = (true, false);
    while !filter.is_full() {
        text.clear();
        let bytes = input.by_ref().take(TEXT_BYTES_MAX).read_until(b'\n', &mut text);
        if bytes.map_err(|error| LinesError::Read { after: number, error })? == 0 {
            break;
        }
        number += 1;
        let foreign = || LinesError::Foreign { number, text: shown(&text) };
        let Some(line) = text.strip_suffix(b"\n") else {
            return Err(if text.len() as u64 == TEXT_BYTES_MAX { foreign() } else { LinesError::Cut { number } });
        };
        let record = parse(line).ok_or_else(foreign)?;
        let (access, is_loaded, is_stored) = match record {
            Record::Message { is_end } => {
                has_end |= is_end;
                continue;
            }
            Record::Instruction => {
                instructions += 1;
                continue;
            }
            Record::Load(access) => (access, true, false),
            Record::Store(access) => (access, false, true),
            Record::Modify(access) => (access, true, true),
        };
        is_empty = false;
        filter.work(std::mem::take(&mut instructions).saturating_sub(1));
        for line in access.address / LINE_BYTES..=(access.address + (access.bytes - 1)) / LINE_BYTES {
            let too_large = |pages| LinesError::TooLarge { number, pages };
            let address = pages.address(line * LINE_BYTES, filter).map_err(too_large)?;
            if is_loaded {
                filter.load(address, Data::READY);
            }
            if is_stored {
                filter.store(address, Data::READY);
            }
        }
    }
    filter.work(instructions);
    if is_empty { Err(LinesError::Empty { lines: number }) } else { Ok(has_end || filter.is_full()) }
}

/// A line without its end; `None`: it is not lackey's.
fn parse(line: &[u8]) -> Option<Record> {
    if line.starts_with(b"==") || line.starts_with(b"--") {
        return Some(Record::Message { is_end: line.windows(END.len()).any(|part| part == END) });
    }
    let (kind, rest) = line.split_at_checked(3)?;
    let access = access(std::str::from_utf8(rest).ok()?)?;
    match kind {
        b"I  " => Some(Record::Instruction),
        b" L " => Some(Record::Load(access)),
        b" S " => Some(Record::Store(access)),
        b" M " => Some(Record::Modify(access)),
        _ => None,
    }
}

fn access(text: &str) -> Option<Access> {
    let (address, bytes) = text.split_once(',')?;
    let is_number = |text: &str, is_digit: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(is_digit);
    if !is_number(address, u8::is_ascii_hexdigit) || !is_number(bytes, u8::is_ascii_digit) {
        return None;
    }
    let (address, bytes) = (u64::from_str_radix(address, 16).ok()?, bytes.parse().ok()?);
    address.checked_add(bytes)?;
    (1..=ACCESS_BYTES_MAX).contains(&bytes).then_some(Access { address, bytes })
}

/// The beginning of a line, for people.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    Foreign(&cut(text.trim_end_matches('\n'), SHOWN_BYTES_MAX)).to_string()
}

/// The program's pages, numbered in the order of their first touch.
#[derive(Debug, Default)]
struct Pages {
    numbers: HashMap<u64, u32>,
    /// The one that was touched last, and its number.
    last: Option<(u64, u32)>,
}

impl Pages {
    /// Where an address is in the model; `Err`: no more than so many pages are counted.
    fn address(&mut self, address: u64, filter: &mut Filter) -> Result<u64, u32> {
        let page = address / PAGE_BYTES;
        let number = match self.last {
            Some((last, number)) if last == page => number,
            _ => match self.numbers.get(&page) {
                Some(number) => *number,
                None => {
                    let number = filter.add_page()?;
                    self.numbers.insert(page, number);
                    number
                }
            },
        };
        self.last = Some((page, number));
        Ok(u64::from(number) * PAGE_BYTES + address % PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Stream;

    fn stream(text: &str) -> Result<Stream, String> {
        let mut filter = Filter::new(0, 0, 1000);
        read(text.as_bytes(), &mut filter).map_err(|error| error.to_string())?;
        Ok(filter.finish())
    }

    #[test]
    fn loads_stores_and_modifications_reach_the_filter_with_their_instructions() {
        let text = "\
==4711== Lackey, an example Valgrind tool
==4711== 
I  04001090,3
I  04001093,5
 L 1ffefff000,8
I  04001098,2
 S 04025000,4
 M 04025040,1
I  0400109a,2
";
        let stream = stream(text).expect("good");
        // Two instructions up to the load, one for the store, two for the modification, and one without an access at the end.
        assert_eq!((stream.references, stream.instructions), (4, 6));
        let misses: Vec<_> = stream.misses.iter().map(|miss| (miss.line, miss.is_load, miss.instructions)).collect();
        assert_eq!(misses, [(0, true, 2), (64, false, 1), (65, true, 1)]);
        assert_eq!((stream.pages, stream.touched_pages), (2, 2));
    }

    #[test]
    fn an_access_across_lines_and_pages_is_one_of_each_line() {
        let stream = stream(" L 1ffc,8\n S 203c,16\n").expect("good");
        let lines: Vec<u32> = stream.misses.iter().map(|miss| miss.line).collect();
        // The end of the first page, the beginning of the second, and its next line.
        assert_eq!(lines, [63, 64, 65]);
        assert_eq!(stream.references, 4);
    }

    #[test]
    fn what_is_cut_or_foreign_is_refused_with_its_line() {
        let good = "I  04001090,3\n L 1ffefff000,8\n";
        for (text, reason) in [
            (format!("{good} L 1ffefff"), "line 3 ends without a line break"),
            (format!("{good} L 1ffefff000,8"), "line 3 ends without a line break"),
            (format!("{good}hello\u{1b}[2J world\n"), "line 3 is 'hello\\u{1b}[2J world', not lackey's"),
            (format!("{good}\n"), "line 3 is ''"),
            (format!(" X 1000,8\n{good}"), "line 1 is ' X 1000,8'"),
            (" L 1000\n".to_owned(), "line 1"),
            (" L 0x1000,8\n".to_owned(), "line 1"),
            (" L 1000,+8\n".to_owned(), "line 1"),
            (" L 1000,0\n".to_owned(), "line 1"),
            (" L 1000,4097\n".to_owned(), "line 1"),
            (" L ffffffffffffffff,8\n".to_owned(), "line 1"),
            (" L 11111111111111111,8\n".to_owned(), "line 1"),
            (" L 1000,99999999999999999999\n".to_owned(), "line 1"),
            (format!("{good}{}\n", "x".repeat(10_000)), "line 3 is 'xxx"),
            (String::new(), "no loads and stores in its 0 lines"),
            ("==1== Lackey\nI  04001090,3\n".to_owned(), "no loads and stores in its 2 lines"),
        ] {
            let refused = stream(&text).expect_err(&text);
            assert!(refused.contains(reason), "{text}: {refused}");
            assert!(refused.len() < 250, "{refused}");
        }
    }

    #[test]
    fn nothing_is_read_once_the_filter_is_full() {
        let mut filter = Filter::new(0, 1, 2);
        read(&b" L 1000,8\n L 2000,8\n L 3000,8\nwrong\n"[..], &mut filter).expect("three references");
        let stream = filter.finish();
        assert_eq!((stream.references, stream.measured_from, stream.misses.len()), (3, 1, 3));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let mut filter = Filter::new(0, 0, 1000);
        let refused = read(&b" L 10\xff0,8\n"[..], &mut filter).expect_err("no text");
        assert!(matches!(refused, LinesError::Foreign { number: 1, .. }), "{refused}");
    }
}
