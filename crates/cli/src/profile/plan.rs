//! Choosing what is worth a compiler's work (Mira §4.1): the functions that wait longest, with what they call, and the largest of the
//! objects that they wait for.

use super::file::{Function, ProfileFile, Site};
use super::{Refusal, ended};
use crate::output;
use crate::print;
use crate::report::{count, duration, percent};
use clap::Args;
use hinterland_units::{ByteCount, Foreign};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// `hinterland plan`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// The profile, as `hinterland profile` writes it
    profile: PathBuf,
    /// Where the plan goes; what is there is replaced. Without it, the plan is only shown
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Of the functions that wait, take this part, those that wait longest
    #[arg(long, value_name = "PERCENT%", default_value = "10%", value_parser = part)]
    worst: f64,
    /// Of the allocations that these wait for, take this part, the largest
    #[arg(long, value_name = "PERCENT%", default_value = "10%", value_parser = part)]
    largest: f64,
    /// Also take what these functions call, to this depth
    #[arg(long, value_name = "CALLS", default_value_t = 2)]
    depth: usize,
}

const EXAMPLES: &str = "\
Examples:
  hinterland plan app.prof
  hinterland plan app.prof -o app.plan
  hinterland plan app.prof -o app.plan --worst 20% --largest 20%

A plan is TOML and may be edited: functions that are not in it are left alone. At least one function and one allocation are taken.

Exit code: 0, or 125 when there is nothing to plan or a file cannot be used.";

/// What stands above a plan.
const HEAD: &str = "\
# Functions and allocations that wait for far memory, as `hinterland plan` chose them from a profile. Edit as you like:
# what is not listed is left alone.

";

/// The version of plans.
const VERSION: u32 = 1;

/// A plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Plan {
    version: u32,
    /// The program's file.
    program: String,
    /// Its build-id, hexadecimal; empty: it has none.
    build_id: String,
    #[serde(default)]
    function: Vec<PlannedFunction>,
    #[serde(default)]
    site: Vec<PlannedSite>,
}

/// A function that is worth it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct PlannedFunction {
    /// As its language writes it.
    name: String,
    /// As the linker has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol: Option<String>,
    /// The file that it is in.
    module: String,
    /// In words.
    why: String,
    faults: u64,
    /// Of the time that all functions waited, 0 to 1.
    wait_share: f64,
}

/// An allocation that is worth it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct PlannedSite {
    /// The calls that make it, the innermost first, as `function file:line`.
    calls: Vec<String>,
    /// In words.
    why: String,
    /// The most that it held.
    bytes: u64,
    pattern: String,
}

/// A part of a whole, 0 to 1.
fn part(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let fits = number.filter(|number| *number > 0.0 && *number <= 100.0);
    fits.map(|number| number / 100.0).ok_or_else(|| "write a part such as 10%, above 0% and at most 100%".into())
}

/// Runs the command.
pub fn run(args: &PlanArgs) -> ExitCode {
    ended(planned(args))
}

fn planned(args: &PlanArgs) -> Result<(), Refusal> {
    let file = ProfileFile::read(&args.profile)?;
    if file.functions.iter().all(|function| function.waits.wait_ns == 0) {
        let why = "no function of it waited, so there is nothing to plan; profile the program with a smaller --local";
        return Err(Refusal::File { path: args.profile.clone(), why: why.into() });
    }
    let plan = choose(&file, args.worst, args.largest, args.depth);
    let text = toml::to_string_pretty(&plan).map_err(|error| Refusal::Words(format!("the plan: {error}")))?;
    let text = format!("{HEAD}{text}");
    let Some(path) = &args.output else {
        let words = |error| Refusal::Words(format!("standard output: {error}"));
        return print::text(&text).map(drop).map_err(words);
    };
    if output::is_same(&args.profile, path) {
        return Err(Refusal::Own { flag: "--output", path: path.clone() });
    }
    let refuse = |source| Refusal::Output { flag: "--output", path: path.clone(), source };
    output::write(path, refuse, |out| out.write_all(text.as_bytes()).map_err(refuse))
}

/// So many of a list, as a part of it says; one at least, if there is one.
fn part_of(len: usize, part: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not more than `len`")]
    let taken = (len as f64 * part).ceil() as usize;
    taken.clamp(len.min(1), len)
}

fn choose(file: &ProfileFile, worst: f64, largest: f64, depth: usize) -> Plan {
    let waiting = file.functions.iter().filter(|function| function.waits.wait_ns > 0).count();
    let chosen = &file.functions[..part_of(waiting, worst)];
    let mut function: Vec<PlannedFunction> = chosen.iter().map(worst_one).collect();
    for caller in chosen {
        for (name, module) in callees(file, caller, depth) {
            if function.iter().all(|there| (&there.name, &there.module) != (&name, &module)) {
                function.push(called(file, name, module, &caller.name));
            }
        }
    }
    let mut sites: Vec<&Site> = file
        .sites
        .iter()
        .filter(|site| site.functions.iter().any(|part| part.index < chosen.len() && part.waits.wait_ns > 0))
        .collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.held_bytes_max));
    sites.truncate(part_of(sites.len(), largest));
    let site = sites.into_iter().map(large_one).collect();
    let program = file.program.path.clone();
    Plan { version: VERSION, program, build_id: file.program.build_id.clone(), function, site }
}

fn worst_one(function: &Function) -> PlannedFunction {
    let (share, waits) = (percent(function.wait_share), &function.waits);
    let time = duration(Duration::from_nanos(waits.wait_ns));
    PlannedFunction {
        name: function.name.clone(),
        symbol: function.symbol.clone(),
        module: function.module.clone(),
        why: format!("waited {time}, {share} of all waiting, in {} faults", count(waits.faults)),
        faults: waits.faults,
        wait_share: function.wait_share,
    }
}

fn called(file: &ProfileFile, name: String, module: String, caller: &str) -> PlannedFunction {
    let own = file.functions.iter().find(|function| function.name == name && function.module == module);
    PlannedFunction {
        symbol: own.and_then(|function| function.symbol.clone()),
        why: format!("called by {caller}"),
        faults: own.map_or(0, |function| function.waits.faults),
        wait_share: own.map_or(0.0, |function| function.wait_share),
        name,
        module,
    }
}

/// What a function calls where it waits, in its own file.
fn callees(file: &ProfileFile, caller: &Function, depth: usize) -> BTreeSet<(String, String)> {
    let mut callees = BTreeSet::new();
    for stack in &file.stacks {
        let frames = stack.frames.iter().map(|frame| &file.frames[*frame]);
        let below = frames.skip_while(|frame| (&frame.function, &frame.module) != (&caller.name, &caller.module));
        let own = below.skip(1).take(depth).filter(|frame| frame.module == caller.module);
        callees.extend(own.map(|frame| (frame.function.clone(), frame.module.clone())));
    }
    callees
}

fn large_one(site: &Site) -> PlannedSite {
    let call = |call: &super::file::Call| match (&call.file, call.line) {
        (Some(file), Some(line)) => format!("{} {file}:{line}", call.function),
        _ => format!("{} {}", call.function, call.module),
    };
    let time = duration(Duration::from_nanos(site.waits.wait_ns));
    PlannedSite {
        calls: site.calls.iter().map(call).collect(),
        why: Foreign(&format!("{} held, waited for {time}", ByteCount(site.held_bytes_max))).to_string(),
        bytes: site.held_bytes_max,
        pattern: site.pattern.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::example;
    use super::*;

    fn file() -> ProfileFile {
        ProfileFile::of(example().to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_worst_are_taken_with_what_they_call_and_what_they_wait_for() {
        let plan = choose(&file(), 0.1, 0.1, 2);
        let names: Vec<(&str, &str)> = plan.function.iter().map(|f| (f.name.as_str(), f.why.as_str())).collect();
        let waited = "waited 800.0 µs, 90.0 % of all waiting, in 10 faults";
        assert_eq!(names, [("walk(int*)", waited), ("step", "called by walk(int*)")], "and nothing of libc's");
        assert_eq!(plan.function[0].symbol.as_deref(), Some("_Z4walkPi"));
        assert_eq!(plan.site.len(), 1);
        assert_eq!(plan.site[0].calls, ["make app.cpp:3"]);
        assert_eq!(choose(&file(), 1.0, 1.0, 0).function.len(), 2, "all of them, and nothing that they call");
    }

    #[test]
    fn a_plan_is_toml_that_reads_back() {
        let plan = choose(&file(), 1.0, 1.0, 2);
        let text = format!("{HEAD}{}", toml::to_string_pretty(&plan).unwrap());
        assert!(text.contains("[[function]]\nname = \"walk(int*)\"") && text.contains("[[site]]"), "{text}");
        assert_eq!(toml::from_str::<Plan>(&text).unwrap(), plan);
    }

    #[test]
    fn parts_are_read_and_nonsense_is_refused() {
        assert_eq!((part("10%"), part("100%"), part("0.5 %")), (Ok(0.1), Ok(1.0), Ok(0.005)));
        for nonsense in ["10", "0%", "101%", "-5%", "x%", "", "NaN%", "inf%"] {
            assert!(part(nonsense).is_err(), "{nonsense}");
        }
        assert_eq!([0, 1, 9, 10, 11, 1000].map(|len| part_of(len, 0.1)), [0, 1, 1, 1, 2, 100]);
    }
}
