//! The rounds, for people and for scripts.

use super::rounds::{Loop, Outcome, Round};
use crate::print;
use crate::report::{count, duration, percent};
use crate::table::table;
use hinterland_units::{Foreign, cut};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Of an outcome as much is shown; the rest of what a compiler said is in the JSON.
const OUTCOME_BYTES: usize = 200;

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    rounds: &'a [Round],
    /// The number of the best one.
    best: usize,
    /// Time without hints / time of the best one.
    times_as_fast: f64,
    /// Where the plan is; null: none is better than none.
    plan: Option<String>,
}

/// Prints the rounds, and where the best plan is.
pub fn print(rounds: &Loop, plan: Option<&Path>, as_json: bool) -> io::Result<()> {
    let best = rounds.best();
    let times_as_fast = rounds.plain_measured().seconds / best.measured.seconds;
    if as_json {
        let plan = plan.map(|plan| plan.display().to_string());
        let document = Document { rounds: &rounds.rounds, best: best.round, times_as_fast, plan };
        return print::json(&(serde_json::to_string_pretty(&document)? + "\n")).map(drop);
    }
    let mut shown = table(&["round", "what", "functions", "sites", "time", "waiting", "major faults", "outcome"], 2..7);
    for (number, round) in rounds.rounds.iter().enumerate() {
        shown.add_row(row(number, round, number == best.round));
    }
    let last = match plan {
        Some(plan) => {
            let plan = plan.display().to_string();
            format!("{times_as_fast:.2} times as fast as without hints, with the plan {}", Foreign(&plan))
        }
        None if rounds.is_best_built => "no plan is faster than none: the program is built without hints".into(),
        None => "no plan is faster than none".into(),
    };
    let built = if rounds.is_best_built {
        ""
    } else {
        "; the build that was to be the last one failed: the program is not built so"
    };
    print::text(&format!("{shown}\n{last}{built}\n")).map(drop)
}

fn row(number: usize, round: &Round, is_best: bool) -> Vec<String> {
    let figure = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let measured = round.measured;
    let outcome = match &round.outcome {
        Outcome::Plain => String::new(),
        Outcome::Kept if is_best => "kept: the best".into(),
        Outcome::Kept => "kept".into(),
        Outcome::RolledBack(why) => format!("rolled back: {}", cut(&Foreign(why).to_string(), OUTCOME_BYTES)),
    };
    vec![
        number.to_string(),
        round.what.clone(),
        round.functions.to_string(),
        round.sites.to_string(),
        figure(measured.map(|measured| duration(Duration::from_secs_f64(measured.seconds)))),
        figure(measured.map(|measured| percent(measured.waiting))),
        figure(measured.map(|measured| count(measured.major_faults))),
        outcome,
    ]
}
