//! Input files, the same bytes for the same size on every machine.

use anyhow::Result;
use fastrand::Rng;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Text of about `bytes` bytes: words of an invented vocabulary, frequent ones first, and now and then a copy of an
/// earlier passage, so that compressors find short and far matches.
pub fn text(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let words: Vec<String> = (0..20_000).map(|_| word(&mut rng)).collect();
    let mut passages: Vec<String> = Vec::new();
    let mut file = BufWriter::new(File::create(path)?);
    let mut written = 0;
    while written < bytes {
        let passage = match passages.len() {
            0..=9 => fresh(&mut rng, &words),
            known if rng.u32(..100) < 15 => passages[rng.usize(..known)].clone(),
            _ => fresh(&mut rng, &words),
        };
        file.write_all(passage.as_bytes())?;
        written += u64::try_from(passage.len())?;
        if rng.u32(..20) == 0 {
            passages.push(passage);
        }
    }
    Ok(file.flush()?)
}

/// The longest line of [`lines`], but for its key.
const LINE_MAX: usize = 2080;

/// Lines of 18 to 2,100 characters in no order. Were they short, a sort in a quarter of its memory would fetch a page for each of
/// a million.
pub fn lines(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let mut file = BufWriter::new(File::create(path)?);
    let mut written = 0;
    let words: Vec<String> = (0..2000).map(|_| word(&mut rng)).collect();
    let text = (0..20_000).map(|_| rng.choice(&words).map_or("", String::as_str)).collect::<Vec<_>>().join(" ");
    while written < bytes {
        let (from, length) = (rng.usize(..text.len() - LINE_MAX), rng.usize(..LINE_MAX));
        let line = format!("{:016x} {}\n", rng.u64(..), &text[from..from + length]);
        file.write_all(line.as_bytes())?;
        written += u64::try_from(line.len())?;
    }
    Ok(file.flush()?)
}

/// 64-bit integers, half of whose bytes are unpredictable.
pub fn integers(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let mut file = BufWriter::new(File::create(path)?);
    for _ in 0..bytes / 8 {
        file.write_all(&i64::from(rng.i32(..)).to_le_bytes())?;
    }
    Ok(file.flush()?)
}

fn word(rng: &mut Rng) -> String {
    (0..rng.usize(2..10)).map(|_| rng.lowercase()).collect()
}

/// A new passage of 40 to 120 words.
fn fresh(rng: &mut Rng, words: &[String]) -> String {
    let mut passage = String::new();
    for _ in 0..rng.usize(40..120) {
        // The product of two uniform numbers prefers small ones: frequent words.
        let index = rng.usize(..words.len()) * rng.usize(..words.len()) / words.len();
        passage.push_str(&words[index]);
        passage.push(' ');
    }
    passage.push('\n');
    passage
}
