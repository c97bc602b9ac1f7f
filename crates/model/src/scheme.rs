//! The data movement schemes that are compared (§2.2, §6), as the parts that they are made of.

use crate::bus::Sharing;

/// How data move between remote memory and the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// All data are local.
    Local,
    /// Lines alone, into the LLC; local memory is not used (§2.2 ii).
    CacheLine,
    /// Pages alone: what is usual (§2.2 iii).
    Remote,
    /// A line over the network, and its page for nothing (§2.2 iv).
    PageFree,
    /// Line and page, on one queue (§2.2 v).
    CacheLinePage,
    /// Remote with compressed pages (§6).
    Lc,
    /// Line and page always, each with its share of the bandwidth (§6).
    Bp,
    /// BP with the selection unit, which throttles either (§6).
    Pq,
    /// PQ with compressed pages (§6).
    #[value(name = "daemon")]
    #[serde(rename = "daemon")]
    DaeMon,
    /// DaeMon whose lines and pages lend each other their shares, and that asks for a line if it comes before its page. Not in the paper.
    Ours,
}

/// When a line is asked for by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lines {
    /// Never.
    Never,
    /// With each access that misses local memory.
    Always,
    /// As the selection unit says (§4.2).
    Selected,
}

/// When a page is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Never.
    Never,
    /// Unless it is on its way.
    Moved,
    /// It is there with the first of its lines, without a transfer.
    Free,
}

impl Scheme {
    /// All of them: the paper's in its order, then ours.
    pub const ALL: [Scheme; 10] = [
        Scheme::Local,
        Scheme::CacheLine,
        Scheme::Remote,
        Scheme::PageFree,
        Scheme::CacheLinePage,
        Scheme::Lc,
        Scheme::Bp,
        Scheme::Pq,
        Scheme::DaeMon,
        Scheme::Ours,
    ];

    /// When it asks for lines.
    pub fn lines(self) -> Lines {
        match self {
            Scheme::Local | Scheme::Remote | Scheme::Lc => Lines::Never,
            Scheme::CacheLine | Scheme::PageFree | Scheme::CacheLinePage | Scheme::Bp => Lines::Always,
            Scheme::Pq | Scheme::DaeMon | Scheme::Ours => Lines::Selected,
        }
    }

    /// When it asks for pages.
    pub fn pages(self) -> Pages {
        match self {
            Scheme::Local | Scheme::CacheLine => Pages::Never,
            Scheme::PageFree => Pages::Free,
            _ => Pages::Moved,
        }
    }

    /// Whether engines hold lines and pages in queues of their own until there is room for them.
    pub fn has_engines(self) -> bool {
        matches!(self, Scheme::Bp | Scheme::Pq | Scheme::DaeMon | Scheme::Ours)
    }

    /// How lines and pages share network and memory bus, if lines have so many percent of a partitioned one.
    pub fn sharing(self, line_percent: u64) -> Sharing {
        match self {
            Scheme::Bp | Scheme::Pq | Scheme::DaeMon => Sharing::Kept { line_percent },
            Scheme::Ours => Sharing::Lent,
            _ => Sharing::OneQueue,
        }
    }

    /// Whether pages are compressed on the network.
    pub fn compresses(self) -> bool {
        matches!(self, Scheme::Lc | Scheme::DaeMon | Scheme::Ours)
    }

    /// Its name, as it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Local => "local",
            Scheme::CacheLine => "cache-line",
            Scheme::Remote => "remote",
            Scheme::PageFree => "page-free",
            Scheme::CacheLinePage => "cache-line-page",
            Scheme::Lc => "lc",
            Scheme::Bp => "bp",
            Scheme::Pq => "pq",
            Scheme::DaeMon => "daemon",
            Scheme::Ours => "ours",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn names_are_those_of_command_line_and_json() {
        for scheme in Scheme::ALL {
            let written = scheme.to_possible_value().expect("a value");
            assert_eq!(written.get_name(), scheme.name());
            assert_eq!(serde_json::to_string(&scheme).expect("a string"), format!("\"{}\"", scheme.name()));
        }
        assert_eq!(Scheme::value_variants(), Scheme::ALL);
    }
}
