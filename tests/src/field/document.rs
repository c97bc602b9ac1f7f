//! The table for readers: `docs/reference/cases.md`.

use super::{DOCUMENTED, KINDS, Outcome, Proof, WAYS};
use std::fmt::Write;

/// The document.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    for (kind, cases) in KINDS {
        let _ = write!(
            text,
            "\n## {kind}\n\n| the program | monitor | inline | inline, unprivileged | test |\n|---|---|---|---|---|\n"
        );
        for case in cases {
            let [monitor, inline, _, unprivileged] = case.outcomes.map(|outcome| cell(outcome, case.otherwise));
            let test = match case.proof {
                Proof::Test(name) => name.to_owned(),
                _ => case.name.to_owned(),
            };
            let _ = writeln!(text, "| {} | {monitor} | {inline} | {unprivileged} | `{test}` |", case.about);
        }
    }
    text.push_str("\n## Documented only\n\n");
    for (what, place) in DOCUMENTED {
        let _ = writeln!(text, "- [{what}]({place})");
    }
    text
}

/// What stands above the tables.
const HEAD: &str = "# Cases

Problems reported by others: bug reports of preloaded allocators, of users of userfaultfd and of memory limits, language runtimes, other
projects' suites. Each case has, on each fault path, exactly one outcome:

- **as natively**: output and exit code are those of the program without Hinterland;
- **refused**: it is not started (exit code 125), with these words;
- **named**: a message with these words; the run ends with 125, or else output and exit code are as natively. In cases marked † the program
  goes on, but not as natively: the message says in what.

A test shows each cell: `lifecycle::field::NAME::PATH`, where a name has no `::`; where both cells of the inline path say the same, only
`./dev test --full` runs both. Budgets are 16 MiB. *Unprivileged* is an ordinary user. On the monitor path such a user is refused with the remedy, whatever the
program is, unless the machine lets every user serve the faults of system calls; that is shown for each case, too.

This file is made from `tests/src/field/table.rs` (by `UPDATE_REFERENCE=1 cargo test -p hinterland-tests --test repository cases`; a test
fails when it is stale).
";

fn cell(outcome: Outcome, otherwise: bool) -> String {
    match outcome {
        Outcome::AsNatively => "as natively".into(),
        Outcome::Refused(words) => format!("refused: *{words}*"),
        Outcome::Named(words) => format!("named{}: *{words}*", if otherwise { " †" } else { "" }),
    }
}

/// The ways whose outcome has a column; the one that is left out is the same for all cases.
const _: () = assert!(WAYS.len() == 4);
