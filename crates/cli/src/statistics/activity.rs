//! What the prefetcher saw of single threads and regions: the busiest of each process, and of a run.

use hinterland_abi::{ActivityRow, ProcessRow, activity_statistics};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;

/// Threads and regions of a run that are reported.
const REPORTED_MAX: usize = 16;

/// What a word of a row holds.
trait Word {
    fn of(word: u64) -> Self;
}

impl Word for u64 {
    fn of(word: u64) -> u64 {
        word
    }
}

impl Word for i64 {
    fn of(word: u64) -> i64 {
        word.cast_signed()
    }
}

macro_rules! declare {
    ($($field:ident: $type:ident = $meaning:literal;)*) => {
        /// One thread or region. Written to the JSON of `--stats` as it stands here.
        #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        pub struct Activity {
            /// The process.
            pub pid: i32,
            /// The thread's kernel id, or the address of the region's first byte.
            pub name: u64,
            $(#[doc = $meaning] pub $field: $type,)*
        }

        impl Activity {
            /// Its members, and what they mean.
            #[cfg(test)]
            pub const MEMBERS: &'static [(&'static str, &'static str)] = &[
                ("pid", "The process."),
                ("name", "The thread's kernel id, or the address of the region's first byte."),
                $((stringify!($field), $meaning),)*
            ];

            fn of(pid: i32, row: &ActivityRow) -> Activity {
                Activity {
                    pid,
                    name: row.name.load(Relaxed),
                    $($field: <$type as Word>::of(row.$field.load(Relaxed)),)*
                }
            }
        }

        #[cfg(test)]
        impl crate::schema::Described for Activity {
            fn schema() -> serde_json::Value {
                let types = [
                    <i32 as crate::schema::Described>::schema(),
                    <u64 as crate::schema::Described>::schema(),
                    $(<$type as crate::schema::Described>::schema(),)*
                ];
                let mut object = crate::schema::Object::default();
                Activity::MEMBERS.iter().zip(types).for_each(|((name, meaning), of)| object.own(name, meaning, of));
                object.schema()
            }
        }
    };
}
activity_statistics!(declare);

impl Activity {
    /// The rows in use.
    pub fn read(process: &ProcessRow, rows: &[ActivityRow]) -> Vec<Activity> {
        let pid = process.pid.load(Relaxed);
        rows.iter().map(|row| Activity::of(pid, row)).filter(|activity| activity.name != 0).collect()
    }

    /// Requests for content that was not mapped.
    pub fn requests(&self) -> u64 {
        self.major + self.minor + self.prefetch_hits
    }

    /// Requests that followed from none before them.
    pub fn irregular(&self) -> u64 {
        self.requests().saturating_sub(self.sequential + self.strided)
    }

    /// Adds some to the busiest of a run.
    pub fn merge(run: &mut Vec<Activity>, process: &[Activity]) {
        run.extend(process.iter().filter(|one| one.requests() > 0).cloned());
        run.sort_by_key(|one| (std::cmp::Reverse(one.requests()), one.pid, one.name));
        run.truncate(REPORTED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_busiest_are_kept() {
        let mut run = Vec::new();
        for pid in 0..10 {
            let of =
                |name| Activity { pid, name, major: u64::try_from(pid).unwrap() * 10 + name, ..Activity::default() };
            Activity::merge(&mut run, &(0..5).map(of).collect::<Vec<_>>());
        }
        assert_eq!(run.len(), REPORTED_MAX);
        assert_eq!((run[0].pid, run[0].name, run[15].requests()), (9, 4, 64));
    }
}
