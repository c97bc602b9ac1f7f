//! Eviction policies by the names that `--evict` takes.

use crate::{EvictionPolicy, Fifo, S3Fifo, SecondChance, TwoQ};

/// The eviction policy of that name (`fifo`, `second-chance`, `s3-fifo`, `2q`), shaped for a budget of
/// `capacity_pages`; `None` if there is none.
pub fn make(name: &str, capacity_pages: usize) -> Option<Box<dyn EvictionPolicy>> {
    Some(match name {
        "fifo" => Box::new(Fifo::new()),
        "second-chance" => Box::new(SecondChance::new()),
        "s3-fifo" => Box::new(S3Fifo::new(capacity_pages)),
        "2q" => Box::new(TwoQ::new(capacity_pages)),
        _ => return None,
    })
}

/// The names that [`make`] knows.
pub const EVICTION_POLICIES: [&str; 4] = ["fifo", "second-chance", "s3-fifo", "2q"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_names_and_no_others() {
        assert!(EVICTION_POLICIES.iter().all(|name| make(name, 1000).is_some()));
        assert!(make("lru", 1000).is_none());
    }
}
