//! What the next `./dev test` runs: `reached` prints variables for its programs, nothing if all has to run; `reached --passed` notes
//! that what ran has passed.

use anyhow::Result;
use hinterland_tests::reach::{self, PACKAGES, Reach, SUITES};
use std::collections::BTreeSet;

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("--passed") {
        return reach::passed();
    }
    let words = |words: BTreeSet<String>| words.into_iter().collect::<Vec<_>>().join(" ");
    if let Reach::Some { packages, suites } = reach::begin()? {
        println!("{PACKAGES}={}", words(packages));
        if !suites.contains("") {
            println!("{SUITES}={}", words(suites));
        }
    }
    Ok(())
}
