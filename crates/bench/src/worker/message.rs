//! What the worker tells the bench: one JSON line on standard output for each state that it reaches. After `Ready`, and
//! after `Done`, it waits for a line on standard input.

use super::counters::{Paging, Processor};
use super::times::Times;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// A line of the worker's.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Message {
    /// Everything but the data is in place.
    Ready,
    /// The data is written.
    Filled {
        /// How long that took.
        seconds: f64,
    },
    /// The warm-up is over; the timed phase begins.
    Warm,
    /// The timed phase is over; the data is still there.
    Done(Box<Measured>),
    /// The run cannot go on.
    Failed {
        /// Why.
        reason: String,
    },
}

/// The figures of the timed phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Accesses made, by all threads together.
    pub accesses: u64,
    /// The time limit came before the last access.
    pub cut_short: bool,
    /// Wall-clock time.
    pub seconds: f64,
    /// Processor time.
    pub processor: Processor,
    /// Faults and what the pager did.
    pub paging: Paging,
    /// A digest of the pages touched, in order: equal for equal streams.
    pub stream_digest: u64,
    /// How long the accesses took, where that was asked for.
    pub access_times: Option<Times>,
}

impl Message {
    /// Writes the line.
    ///
    /// # Errors
    /// The bench no longer listens.
    pub fn send(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

/// Waits for the bench's word.
///
/// # Errors
/// The bench is gone.
pub fn wait_for_word() -> io::Result<()> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line)? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the bench is gone")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_survive_the_message() {
        let mut cells = vec![0; super::super::times::CELLS];
        (0..100).for_each(|_| super::super::times::timed(&mut cells, &mut [1; 8]));
        let times = Times::of(std::iter::once(&cells[..]));
        let measured = Measured {
            accesses: 100,
            cut_short: false,
            seconds: 1.0,
            processor: Processor::default(),
            paging: Paging::default(),
            stream_digest: 7,
            access_times: Some(times.clone()),
        };
        let text = serde_json::to_string(&Message::Done(Box::new(measured))).unwrap();
        match serde_json::from_str(&text).unwrap() {
            Message::Done(read) => assert_eq!(read.access_times, Some(times)),
            other => panic!("{other:?}"),
        }
    }
}
