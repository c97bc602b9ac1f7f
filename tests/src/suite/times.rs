//! How long each test of a suite took: the slowest are printed at the end, and all are listed in `target/tests/times.txt`, suite after
//! suite.

use crate::places;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// As many are printed.
const PRINTED: usize = 20;

static TAKEN: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Notes what a test took.
pub fn note(test: &str, took: Duration) {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push((took, test.to_owned()));
}

/// Prints the slowest tests, and lists all for who wants to know where the time goes. That list is no result of the tests: a full disk
/// does not matter.
pub fn print() {
    let mut taken = std::mem::take(&mut *TAKEN.lock().unwrap_or_else(PoisonError::into_inner));
    taken.sort_by(|one, other| other.cmp(one));
    let sum: Duration = taken.iter().map(|(took, _)| *took).sum();
    println!("{} tests took {:.0} s in all; those that took longest:", taken.len(), sum.as_secs_f64());
    for (took, test) in taken.iter().take(PRINTED) {
        println!("{:>8.2} s  {test}", took.as_secs_f64());
    }
    println!();
    let mut list = String::new();
    for (took, test) in &taken {
        let _ = writeln!(list, "{:.2} {test}", took.as_secs_f64());
    }
    let times = OpenOptions::new().create(true).append(true).open(places::tests().join("times.txt"));
    let _ = times.and_then(|mut times| times.write_all(list.as_bytes()));
}
