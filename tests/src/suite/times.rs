//! How long each test of a suite took: the slowest are printed at the end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// As many are printed.
const PRINTED: usize = 20;

static TAKEN: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Notes what a test took.
pub fn note(test: &str, took: Duration) {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push((took, test.to_owned()));
}

/// Prints the slowest tests.
pub fn print() {
    let mut taken = std::mem::take(&mut *TAKEN.lock().unwrap_or_else(PoisonError::into_inner));
    taken.sort_by(|one, other| other.cmp(one));
    let sum: Duration = taken.iter().map(|(took, _)| *took).sum();
    println!("{} tests took {:.0} s in all; those that took longest:", taken.len(), sum.as_secs_f64());
    for (took, test) in taken.iter().take(PRINTED) {
        println!("{:>8.2} s  {test}", took.as_secs_f64());
    }
    println!();
}
