//! Settings that are one of several names. A choice is one row: its variant, its name, what it is.

use super::kind::EnvError;
use std::fmt;
use std::str::FromStr;

/// Literals, with commas between them.
macro_rules! listed {
    ($first:literal $(, $rest:literal)*) => { concat!($first $(, ", ", $rest)*) };
}

/// Makes an enum whose values are read and written by name.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$attribute:meta])* $variant:ident = $text:literal, $meaning:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum $name { $($(#[$attribute])* #[doc = $meaning] $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),+];
            /// Their names.
            pub const CHOICES: &str = listed!($($text),+);

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// What it is.
            pub fn meaning(self) -> &'static str {
                match self { $($name::$variant => $meaning),+ }
            }
        }

        impl FromStr for $name {
            type Err = EnvError;
            fn from_str(text: &str) -> Result<$name, EnvError> {
                let named = $name::ALL.iter().copied().find(|choice| choice.name() == text);
                named.ok_or_else(|| EnvError::Choice { what: $what, written: text.into(), choices: $name::CHOICES })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

choices! {
    /// Which allocations are far.
    HeapMode, "heap" {
        #[default] All = "all", "every allocation and private anonymous mapping of the program";
        Large = "large", "allocations of at least 64 KiB and private anonymous mappings";
    }
}

choices! {
    /// Which of several far memories a page goes to.
    PlacementName, "placement" {
        #[default] Tiers = "tiers", "to the first path; its oldest pages are demoted to the next when it is full";
        Spread = "spread", "all of them, in proportion to their measured bandwidth";
        Auto = "auto", "as tiers, with the paths ordered by measured latency × memory cost, and spread over paths that are alike";
    }
}

choices! {
    /// How much comes to a thread that waits for a page.
    GranularityName, "granularity" {
        #[default] Page = "page", "the page";
        Block = "block", "the aligned block around it, of 16 KiB to 1 MiB or as --block says, in one load";
        Both = "both", "the page, and its block behind it, as far as blocks have room on the link";
        Auto = "auto", "the page, and its block behind it where a quarter of such pages is used; both in one load where pages queue more than blocks";
    }
}

choices! {
    /// Which thread serves faults.
    FaultPathName, "fault path" {
        #[default] Auto = "auto", "the fastest path that is safe for the program on this machine";
        Monitor = "monitor", "a thread of Hinterland's in the program's process";
        Inline = "inline", "the thread that faults";
    }
}

choices! {
    /// The eviction policies that `--evict` selects.
    EvictName, "eviction policy" {
        Fifo = "fifo", "first in, first out";
        SecondChance = "second-chance", "a FIFO whose victims get a second round when they are touched in the swap cache";
        #[default] S3Fifo = "s3-fifo", "small, main and ghost queues; resists scans";
        TwoQ = "2q", "in-queue, main queue and ghost queue; resists scans";
    }
}

choices! {
    /// The prefetchers that `--prefetch` selects.
    PrefetchName, "prefetcher" {
        #[default] Auto = "auto", "by region: streams of any step, or objects of a few pages whole";
        None = "none", "nothing is prefetched";
        NextN = "next-n", "sequential streams, several at once";
        Streams = "streams", "streams of any step, several at once";
        NextNLine = "next-n-line", "the next pages after every major fault (Leap's paper: Next-N-Line)";
        ReadAhead = "readahead", "the aligned block around a fault, as Linux does";
        ReadAheadVma = "readahead-vma", "along the direction of the last two faults, as Linux does";
        Stride = "stride", "along the last step once it has repeated (Leap's paper: Stride)";
        Leap = "leap", "along the step of most of the last 32 requests (Leap's paper)";
        LeapPerThread = "leap-per-thread", "the same for each thread by itself";
    }
}
