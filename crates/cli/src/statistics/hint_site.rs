//! What the hints of single places in programs led to: those of a process, and of a run those that had most fetched.

use hinterland_abi::{HintSiteRow, ProcessRow, hint_site_statistics};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;

/// Places of a run that are reported.
const REPORTED_MAX: usize = 64;
#[cfg(test)]
const NAME: &str =
    "What the compiler calls the loop, or where the call by hand is in the program; empty: of further places together.";

macro_rules! declare {
    ($($field:ident: $type:ident = $meaning:literal;)*) => {
        /// One place. Written to the JSON of `--stats` as it stands here.
        #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        pub struct HintSite {
            /// The process.
            pub pid: i32,
            #[doc = "What it is called."]
            pub name: String,
            $(#[doc = $meaning] pub $field: $type,)*
        }

        impl HintSite {
            /// Its members, and what they mean.
            #[cfg(test)]
            pub const MEMBERS: &'static [(&'static str, &'static str)] =
                &[("pid", "The process."), ("name", NAME), $((stringify!($field), $meaning),)*];

            fn of(pid: i32, row: &HintSiteRow) -> HintSite {
                HintSite { pid, name: row.name.get(), $($field: row.$field.load(Relaxed),)* }
            }
        }

        #[cfg(test)]
        impl crate::schema::Described for HintSite {
            fn schema() -> serde_json::Value {
                let types = [
                    <i32 as crate::schema::Described>::schema(),
                    <String as crate::schema::Described>::schema(),
                    $(<$type as crate::schema::Described>::schema(),)*
                ];
                let mut object = crate::schema::Object::default();
                HintSite::MEMBERS.iter().zip(types).for_each(|((name, meaning), of)| object.own(name, meaning, of));
                object.schema()
            }
        }
    };
}
hint_site_statistics!(declare);

impl HintSite {
    /// The rows in use.
    pub fn read(process: &ProcessRow) -> Vec<HintSite> {
        let pid = process.pid.load(Relaxed);
        let in_use = process.hint_sites.iter().filter(|row| row.key.load(Relaxed) != 0);
        in_use.map(|row| HintSite::of(pid, row)).collect()
    }

    /// Adds those of a process to those of a run.
    pub fn merge(run: &mut Vec<HintSite>, process: &[HintSite]) {
        run.extend_from_slice(process);
        run.sort_by(|one, other| other.weight().cmp(&one.weight()).then_with(|| one.name.cmp(&other.name)));
        run.truncate(REPORTED_MAX);
    }

    fn weight(&self) -> (u64, u64) {
        (self.fetched_pages + self.refused_pages, self.runs + self.plain_runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_had_most_fetched_come_first() {
        let mut run = Vec::new();
        for pid in 0..3 {
            let of = |at: u64| HintSite { pid, name: at.to_string(), fetched_pages: at, ..HintSite::default() };
            HintSite::merge(&mut run, &(0..30).map(of).collect::<Vec<_>>());
        }
        assert_eq!((run.len(), run[0].fetched_pages, run[63].fetched_pages), (REPORTED_MAX, 29, 8));
    }
}
