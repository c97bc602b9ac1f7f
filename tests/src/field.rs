//! Cases that others have met: what bug reports of preloaded allocators, of users of userfaultfd and of memory limits, language
//! runtimes and other projects' suites have shown, as one table.
//!
//! Each case, on each fault path, with and without privileges, has exactly one outcome: as natively, refused before the start, or named
//! at run time. Wrong bytes and a hang are none. The tests `lifecycle::field::CASE::PATH` are made from this table, and so is
//! `docs/reference/cases.md`.

mod document;
mod table;

pub use document::document;
pub use table::{DOCUMENTED, KINDS};

/// The ways in which a case runs, in the order of [`Case::outcomes`].
pub const WAYS: [Way; 4] = [
    Way { name: "monitor", path: "monitor", privileged: true },
    Way { name: "inline", path: "inline", privileged: true },
    Way { name: "monitor-unprivileged", path: "monitor", privileged: false },
    Way { name: "inline-unprivileged", path: "inline", privileged: false },
];

/// A fault path, as root or as somebody without rights.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// As in names of tests.
    pub name: &'static str,
    /// As the launcher calls it.
    pub path: &'static str,
    /// As root.
    pub privileged: bool,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Output and exit code are those of the program without Hinterland, started by the same user.
    AsNatively,
    /// The program is not started; the message has these words.
    Refused(&'static str),
    /// A message with these words; and the run ends with 125, or else output and exit code are as natively, but for cases in which
    /// the program goes on otherwise.
    Named(&'static str),
}

/// What shows it.
#[derive(Clone, Copy, Debug)]
pub enum Proof {
    /// A C program (`tests/programs/FOLDER/NAME.c`, or `c/NAME.c`) with these words.
    Program(&'static str, &'static [&'static str]),
    /// A shell's script, with this C program as `$PROGRAM`.
    Script(&'static str, &'static str),
    /// A test of its own: of this name, or one for each way under it.
    Test(&'static str),
}

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// As in names of tests.
    pub name: &'static str,
    /// What a program does, for readers.
    pub about: &'static str,
    /// What shows it.
    pub proof: Proof,
    /// Pages must leave meanwhile.
    pub pages: bool,
    /// Where it is named, what the program does next may differ from what it does natively.
    pub otherwise: bool,
    /// What happens, in each of [`WAYS`].
    pub outcomes: [Outcome; WAYS.len()],
}

impl Case {
    /// The test that shows the case in this way, or tells of all ways.
    pub fn test(&self, way: Way) -> String {
        match self.proof {
            Proof::Test(name) => format!("{name}::{}", way.name),
            _ => format!("lifecycle::field::{}::{}", self.name, way.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_case_has_a_name_of_its_own_and_no_outcome_is_without_words() {
        let mut names = HashSet::new();
        for case in KINDS.iter().flat_map(|(_, cases)| *cases) {
            assert!(names.insert(case.name), "{} twice", case.name);
            for outcome in case.outcomes {
                let (Outcome::Refused(words) | Outcome::Named(words)) = outcome else { continue };
                assert!(words.len() > 8, "{}: '{words}' may be anything", case.name);
            }
        }
        assert!(names.len() > 30);
    }
}
