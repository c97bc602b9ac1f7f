//! Which replays are asked for.

use super::SimArgs;
use hinterland_sim::{EVICTION_POLICIES, PREFETCHERS, REFERENCES, Setup, SetupError, TAPE};

/// One replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Combination {
    /// Memory, link, costs.
    pub setup: Setup,
    /// Eviction policy or reference; of a tape, the tape.
    pub evict: String,
    /// Prefetcher, or the tape.
    pub prefetch: String,
}

impl Combination {
    /// A tape is followed.
    pub fn is_tape(&self) -> bool {
        self.prefetch == TAPE
    }
}

/// All of them, link by link; those that do not go together are left out, unless nothing else was asked of one of them.
///
/// # Errors
/// A name that does not exist, or a reference that goes with none of the prefetchers.
pub fn of(args: &SimArgs) -> Result<Vec<Combination>, SetupError> {
    let evictions = expand(&args.evict, &[&EVICTION_POLICIES[..], &REFERENCES[..]].concat());
    let mut prefetchers = expand(&args.prefetch, &PREFETCHERS);
    let named = prefetchers.len();
    prefetchers.retain(|name| name != TAPE);
    let tape = (args.tape.is_some() || prefetchers.len() < named).then(|| TAPE.to_owned());
    if let Some(name) = prefetchers.iter().find(|name| !PREFETCHERS.contains(&name.as_str())) {
        return Err(SetupError::Prefetcher { name: name.clone() });
    }
    let is_reference = |name: &str| REFERENCES.contains(&name);
    for name in &evictions {
        if !is_reference(name) && !EVICTION_POLICIES.contains(&name.as_str()) {
            return Err(SetupError::Eviction { name: name.clone() });
        }
    }
    let asked: Vec<(&String, &String)> = evictions
        .iter()
        .flat_map(|evict| prefetchers.iter().map(move |prefetch| (evict, prefetch)))
        .filter(|(evict, prefetch)| !is_reference(evict) || *prefetch == "none")
        .collect();
    let nothing_else = asked.is_empty() && tape.is_none();
    if let (true, Some(eviction), Some(prefetcher)) = (nothing_else, evictions.first(), prefetchers.first()) {
        return Err(SetupError::Reference { eviction: eviction.clone(), prefetcher: prefetcher.clone() });
    }
    let of_link = |link| {
        let setup = args.setup(link);
        let both = asked.iter().copied().chain(tape.iter().map(|tape| (tape, tape)));
        both.map(move |(evict, prefetch)| Combination {
            setup: setup.clone(),
            evict: evict.clone(),
            prefetch: prefetch.clone(),
        })
    };
    Ok(args.link.iter().flat_map(of_link).collect())
}

/// The names of a list, each once; `all` stands for all of them.
fn expand(list: &[String], all: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for written in list {
        let meant = if written == "all" { all.to_vec() } else { vec![written.as_str()] };
        for name in meant {
            if !names.iter().any(|known| known == name) {
                names.push(name.into());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimArgs,
    }

    fn of_line(line: &str) -> Result<Vec<(String, String, String)>, String> {
        let words = ["sim", "app.trace"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let found = of(&line.args).map_err(|error| error.to_string())?;
        Ok(found.into_iter().map(|one| (one.setup.link.name, one.evict, one.prefetch)).collect())
    }

    #[test]
    fn all_is_every_policy_with_every_prefetcher_and_the_references_with_none() {
        let all = of_line("--prefetch all --evict all --link ssd,1us:10Gb/s").unwrap();
        assert_eq!(all.len(), 2 * (EVICTION_POLICIES.len() * PREFETCHERS.len() + REFERENCES.len()));
        assert_eq!(all[0].0, "ssd");
        assert_eq!(of_line("").unwrap().len(), 3 * (PREFETCHERS.len() + 1));
        let tape = of_line("--prefetch none,tape --evict s3-fifo,min --link ssd").unwrap();
        let last = tape.last().map(|(_, evict, prefetch)| (evict.as_str(), prefetch.as_str()));
        assert_eq!((tape.len(), last), (3, Some(("tape", "tape"))), "once, whatever evicts beside it");
        let once = of_line("--evict fifo,fifo --prefetch none,all --link ssd").unwrap();
        assert_eq!(once.len(), PREFETCHERS.len());
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (line, says) in [
            ("--evict random", "'random' is no eviction policy"),
            ("--prefetch markov", "'markov' is no prefetcher"),
            ("--evict min --prefetch leap", "goes with prefetcher none"),
            ("--link ethernet", "'ethernet' is no link"),
            ("--link 5us:", "'' is no bandwidth"),
            ("--share fixed:100", "'fixed:100' divides no link"),
            ("--local 1M", "below the smallest budget"),
            ("--local 0%", "not a percentage"),
            ("--local 25%ram", "a share of the RAM"),
            ("--granularity line", "'line' is no granularity"),
            ("--block 3M", "'3M' is neither auto nor the size of a block"),
            ("--written 101", "not a whole number from 0 to 100; write for example --written 50"),
            ("--reference-ns 18446744073709551615", "not a whole number from 0 to 1000000000"),
            ("--read-ahead 513", "not a whole number from 0 to 512; write for example --read-ahead 64"),
        ] {
            let refusal = of_line(line).err().unwrap_or_default();
            assert!(refusal.contains(says), "{line}: {refusal}");
        }
    }
}
