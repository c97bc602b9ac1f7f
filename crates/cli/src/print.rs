//! What commands write to standard output, and that they end as usual when the reader stops before its end (`| head`).
//!
//! Foreign text (names and words that others have chosen) reaches no terminal as it is: output is escaped line by line,
//! and code that puts a foreign text into a line escapes its line breaks, too (`hinterland_units::Foreign`).

use hinterland_units::{Foreign, ForeignJson};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};

/// Whether somebody reads what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// As far as we know.
    Reads,
    /// The pipe has no other end any more: whoever read has seen enough.
    Gone,
}

/// Lines for people.
///
/// # Errors
/// Standard output cannot be written.
pub fn text(text: &str) -> io::Result<Reader> {
    as_is(&escaped(text))
}

/// A JSON document, or several, for scripts and for people who look at it.
///
/// # Errors
/// As for `text`.
pub fn json(document: &str) -> io::Result<Reader> {
    as_is(&ForeignJson(document).to_string())
}

/// What is ours alone.
///
/// # Errors
/// As for `text`.
pub fn as_is(text: &str) -> io::Result<Reader> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        outcome => outcome.map(|()| Reader::Reads),
    }
}

/// The lines of a text, each escaped.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        let _ = write!(shown, "{}{}", if number > 0 { "\n" } else { "" }, Foreign(line));
    }
    shown
}
