//! What libFuzzer feeds, fed without it: the inputs that it has found (`fuzz/corpus`), and many others that come from a seed and
//! from those. An input that makes a target panic is printed; `./dev fuzz` looks for new ones.

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use fastrand::Rng;
use hinterland_tests::places;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use targets::{node, tape, trace, wire, words};

/// Inputs from the seed for each target: `HINTERLAND_TEST_FUZZ_INPUTS`, else this many.
const INPUTS: usize = 20_000;
/// The longest input, as `./dev fuzz` has it.
const LENGTH_MAX: usize = 8192;
const SEED: u64 = 1;

/// The inputs that libFuzzer has found for a target: a line of hexadecimal digits each.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let path = places::repository().join("fuzz/corpus").join(target).with_extension("hex");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| hex::decode(line).unwrap_or_else(|error| panic!("{}: {line}: {error}", path.display())))
        .collect()
}

/// An input of no sense, a changed one of the corpus, or two of them in one.
fn made_up(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = match rng.u8(..8) {
        0 => {
            let longest = LENGTH_MAX >> rng.u8(..10);
            (0..rng.usize(..longest)).map(|_| rng.u8(..)).collect()
        }
        1 | 2 => {
            let (head, tail) = (&corpus[rng.usize(..corpus.len())], &corpus[rng.usize(..corpus.len())]);
            [&head[..rng.usize(..=head.len())], &tail[rng.usize(..=tail.len())..]].concat()
        }
        _ => corpus[rng.usize(..corpus.len())].clone(),
    };
    for _ in 0..rng.usize(..6) {
        let at = rng.usize(..=input.len());
        match rng.u8(..5) {
            0 => input.insert(at, rng.u8(..)),
            1 if at < input.len() => drop(input.remove(at)),
            2 if at < input.len() => input[at] = rng.u8(..),
            3 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
            _ => input.truncate(at),
        }
    }
    input.truncate(LENGTH_MAX);
    input
}

/// Feeds `run` with the corpus and with what is made up.
fn feed(target: &str, run: fn(&[u8])) {
    let (corpus, mut rng) = (corpus(target), Rng::with_seed(SEED));
    assert!(!corpus.is_empty(), "no corpus of {target}");
    let count = std::env::var("HINTERLAND_TEST_FUZZ_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(INPUTS);
    let made_up = (0..count).map(|_| made_up(&mut rng, &corpus)).collect::<Vec<_>>();
    for input in corpus.iter().chain(&made_up) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
            eprintln!("{target} fails on {input:?}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn wire() {
    feed("wire", wire::run);
}

#[test]
fn node() {
    feed("node", node::run);
}

#[test]
fn trace() {
    feed("trace", trace::run);
}

#[test]
fn tape() {
    feed("tape", tape::run);
}

#[test]
fn words() {
    feed("words", words::run);
}

/// The inputs that are made up differ, from each other and from the corpus, and are the same each time.
#[test]
fn inputs_come_from_the_seed() {
    let corpus = corpus("wire");
    let some = || (0..200).scan(Rng::with_seed(SEED), |rng, _| Some(made_up(rng, &corpus))).collect::<Vec<_>>();
    assert_eq!(some(), some());
    let different = some().into_iter().collect::<std::collections::HashSet<_>>();
    assert!(different.len() > 150 && different.iter().filter(|input| !corpus.contains(input)).count() > 100);
}
