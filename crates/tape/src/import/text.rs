//! Page numbers as text, one reference a line: `PAGE`, or `THREAD PAGE`.
//!
//! Numbers are decimal, or hexadecimal after `0x`. Empty lines and what follows a `#` are passed over.

use super::touches::Touches;
use super::{ImportError, Imported, Line, for_each_line, refuse};
use crate::Head;
use std::io;

/// Pages of an address space of 64 bits.
const PAGES_MAX: u64 = 1 << 44;

/// Reads text into a trace with `head`, whose microset size counts.
///
/// # Errors
/// A line that makes no sense, no line at all, or what reading and writing say.
pub fn text(input: impl io::BufRead, sink: impl io::Write, head: &Head) -> Result<Imported, ImportError> {
    let mut touches = Touches::new(sink, head)?;
    let lines = for_each_line(input, |line, &Line { text, is_cut }| {
        if is_cut && !text.contains('#') {
            return Err(refuse(line, "the line is longer than 4096 bytes", text));
        }
        let mut words = text.split('#').next().unwrap_or("").split_whitespace();
        let (thread, page) = match (words.next(), words.next(), words.next()) {
            (None, ..) => return Ok(()),
            (Some(page), None, _) => (Some(0), number(page)),
            (Some(thread), Some(page), None) => (number(thread), number(page)),
            _ => return Err(refuse(line, "more than a thread and a page", text)),
        };
        let thread = thread.ok_or_else(|| refuse(line, "the thread is no number", text))?;
        let page = page.ok_or_else(|| refuse(line, "the page is no number", text))?;
        if page >= PAGES_MAX {
            return Err(refuse(line, "the page lies outside 64 bits of address space", text));
        }
        if !touches.has_room_for(thread) {
            return Err(refuse(line, "this is one thread too many for a trace, which has 65536", text));
        }
        touches.touch(thread, page)
    })?;
    touches.finish(lines, "each line is a page number, or a thread and a page number")
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}
