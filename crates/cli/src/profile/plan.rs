//! Choosing what is worth a compiler's work (Mira §4.1): the functions that wait longest, with what they call, and the largest of the
//! objects that they wait for.

use super::file::{Call, Function, ProfileFile, Site};
use super::names::has_name;
use super::{Refusal, ended};
use crate::error::complain;
use crate::output;
use crate::plan::{Eviction, Function as Planned, Plan, Site as PlannedSite, VERSION};
use crate::print;
use crate::report::{count, duration, percent};
use clap::Args;
use hinterland_units::{ByteCount, Foreign, whole_number};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
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
    #[arg(long, value_name = "CALLS", default_value_t = 2, value_parser = whole_number::<usize>(.., "--depth 2"))]
    depth: usize,
}

const EXAMPLES: &str = "\
Examples:
  hinterland plan app.prof
  hinterland plan app.prof -o app.plan
  hinterland plan app.prof -o app.plan --worst 20% --largest 20%

A plan is TOML and may be edited: functions that are not in it are left alone. At least one function and one allocation are taken. What \
has no name, in a file without symbols, is left out. An allocation changes what the compiler does only where it has a word on eviction. The plan says \
evict = \"last\" of allocations whose faults followed no order, as long as they fit together into a quarter of --local; other words people write, and \
`hinterland optimize` tries.

Exit code: 0, or 125 when there is nothing to plan or a file cannot be used.";

/// The part of the budget that hints may keep (`KEPT_PART` of the pager).
const KEPT_PART: u64 = 4;

/// What stands above a plan.
pub const HEAD: &str = "\
# Functions and allocations that wait for far memory, as they were chosen from a profile. Edit as you like: what is not listed
# is left alone.

";

/// A part of a whole, 0 to 1.
pub fn part(text: &str) -> Result<f64, String> {
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
    say_unnamed(&args.profile, &file)?;
    let plan = choose(&file, args.worst, args.largest, args.depth);
    let text = plan.text(HEAD).map_err(Refusal::Words)?;
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

/// Says how much is left out because it has no name.
///
/// # Errors
/// It is all that waited.
fn say_unnamed(path: &Path, file: &ProfileFile) -> Result<(), Refusal> {
    let waits = |function: &&Function| function.waits.wait_ns > 0;
    let (named, unnamed): (Vec<&Function>, Vec<&Function>) =
        file.functions.iter().filter(waits).partition(|one| is_named(one));
    let Some(longest) = unnamed.first() else { return Ok(()) };
    let remedy = "compile with symbols (without -s, not stripped), or install the debug information, and profile again";
    let (name, module) = (Foreign(&longest.name), Foreign(&longest.module));
    if named.is_empty() {
        let why = format!("no function of it that waited has a name ({name} in {module} waited longest); {remedy}");
        return Err(Refusal::File { path: path.into(), why });
    }
    let share = percent(unnamed.iter().map(|function| function.wait_share).sum());
    complain(format_args!(
        "warning: {} functions that waited have no names and are left out, {share} of all waiting, {name} in {module} first; {remedy}",
        count(unnamed.len() as u64)
    ));
    Ok(())
}

fn is_named(function: &Function) -> bool {
    has_name(&function.name, &function.module)
}

/// So many of a list, as a part of it says; one at least, if there is one.
fn part_of(len: usize, part: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not more than `len`")]
    let taken = (len as f64 * part).ceil() as usize;
    taken.clamp(len.min(1), len)
}

/// Chooses the `worst` part of the functions that wait, what they call to a depth, and the `largest` part of the allocations that they
/// wait for. What has no name is left out: its place is another one in the next build.
pub fn choose(file: &ProfileFile, worst: f64, largest: f64, depth: usize) -> Plan {
    let waiting = |function: &&Function| function.waits.wait_ns > 0 && is_named(function);
    let mut chosen: Vec<(usize, &Function)> =
        file.functions.iter().enumerate().filter(|(_, function)| waiting(function)).collect();
    chosen.truncate(part_of(chosen.len(), worst));
    let mut functions: Vec<Planned> = chosen.iter().map(|(_, function)| worst_one(file, function)).collect();
    for (_, caller) in &chosen {
        for (name, module) in callees(file, caller, depth) {
            if functions.iter().all(|there| (&there.name, &there.module) != (&name, &module)) {
                functions.push(called(file, name, module, &caller.name));
            }
        }
    }
    let is_chosen = |at: usize| chosen.iter().any(|(index, _)| *index == at);
    let mut sites: Vec<&Site> = file
        .sites
        .iter()
        .filter(|site| site.functions.iter().any(|part| is_chosen(part.index) && part.waits.wait_ns > 0))
        .filter(|site| site.calls.first().is_some_and(|call| has_name(&call.function, &call.module)))
        .collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.held_bytes_max));
    sites.truncate(part_of(sites.len(), largest));
    let mut known = HashSet::new();
    // Without lines the allocations of a function are one to the compiler.
    let is_new = |site: &PlannedSite| known.insert((site.function.clone(), site.line, site.column));
    let mut sites: Vec<PlannedSite> = sites.into_iter().map(|site| large_one(file, site)).filter(is_new).collect();
    keep_scattered(&mut sites, file);
    let (program, build_id) = (file.program.path.clone(), file.program.build_id.clone());
    Plan { version: VERSION, program, build_id, functions, sites, measured: None }
}

/// Says of allocations that were touched in no order that they leave last: a loop that comes to them again keeps them (Mira §4.4). Those that have
/// room together in what the run's budget lets a program keep, the largest first.
fn keep_scattered(sites: &mut [PlannedSite], file: &ProfileFile) {
    let mut room_bytes = file.run.local_bytes.unwrap_or(0) / KEPT_PART;
    for site in sites.iter_mut().filter(|site| site.pattern == "random" && site.bytes > 0) {
        if let Some(rest) = room_bytes.checked_sub(bytes_of(site, file)) {
            room_bytes = rest;
            site.evict = Some(Eviction::Last);
        }
    }
}

/// What all allocations held that are one with this to the compiler, by whichever calls they came.
fn bytes_of(site: &PlannedSite, file: &ProfileFile) -> u64 {
    let is_it = |call: &&Call| {
        let has_place = site.line == 0 || Some(site.line) == call.line;
        call.function == site.function && has_place && (site.column == 0 || Some(site.column) == call.column)
    };
    let those = file.sites.iter().filter(|other| other.calls.first().filter(is_it).is_some());
    those.fold(0, |sum, other| sum.saturating_add(other.held_bytes_max))
}

fn worst_one(file: &ProfileFile, function: &Function) -> Planned {
    let (share, waits) = (percent(function.wait_share), &function.waits);
    let time = duration(Duration::from_nanos(waits.wait_ns));
    Planned {
        name: function.name.clone(),
        symbol: function.symbol.clone().unwrap_or_default(),
        file: end_of_file(file, function).into(),
        module: function.module.clone(),
        why: format!("waited {time}, {share} of all waiting, in {} faults", count(waits.faults)),
        fetch: true,
        ..Planned::default()
    }
}

/// What of a function's source file tells it from others of its name: the end of the path alone, because the source may lie elsewhere
/// when it is compiled again. Empty: there are no others.
fn end_of_file<'a>(file: &ProfileFile, function: &'a Function) -> &'a str {
    let has_its_name = |other: &&Function| (&other.name, &other.module) == (&function.name, &function.module);
    let others = file.functions.iter().filter(has_its_name).filter_map(|other| other.file.as_deref());
    let path = function.file.as_deref().unwrap_or_default();
    let others: Vec<&str> = others.filter(|other| *other != path).collect();
    if others.is_empty() {
        return "";
    }
    let ends = path.rmatch_indices('/').map(|(at, _)| &path[at + 1..]);
    let is_own = |end: &&str| !others.iter().any(|other| lies_at(other, end));
    ends.filter(|end| !end.is_empty()).find(is_own).unwrap_or(path)
}

/// Whether a path is, or ends with, those parts.
pub fn lies_at(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

fn called(file: &ProfileFile, name: String, module: String, caller: &str) -> Planned {
    let own = file.functions.iter().find(|function| function.name == name && function.module == module);
    Planned {
        symbol: own.and_then(|function| function.symbol.clone()).unwrap_or_default(),
        why: format!("called by {caller}"),
        name,
        module,
        fetch: true,
        ..Planned::default()
    }
}

/// What a function calls where it waits, in its own file.
fn callees(file: &ProfileFile, caller: &Function, depth: usize) -> BTreeSet<(String, String)> {
    let mut callees = BTreeSet::new();
    for stack in &file.stacks {
        let frames = stack.frames.iter().map(|frame| &file.frames[*frame]);
        let below = frames.skip_while(|frame| (&frame.function, &frame.module) != (&caller.name, &caller.module));
        let own = below.skip(1).take(depth).filter(|frame| frame.module == caller.module);
        let own = own.filter(|frame| has_name(&frame.function, &frame.module));
        callees.extend(own.map(|frame| (frame.function.clone(), frame.module.clone())));
    }
    callees
}

fn large_one(file: &ProfileFile, site: &Site) -> PlannedSite {
    let call = |call: &Call| match (&call.file, call.line) {
        (Some(file), Some(line)) => format!("{} {file}:{line}", call.function),
        _ if has_name(&call.function, &call.module) => format!("{} {}", call.function, call.module),
        _ => format!("(no name) {}", call.module),
    };
    let time = duration(Duration::from_nanos(site.waits.wait_ns));
    let own = site.calls.first();
    // The column only where the line does not do: compilers differ in it.
    let place = |call: &Call| (call.function.clone(), call.module.clone(), call.line);
    let is_beside = |other: &Call, own: &Call| place(other) == place(own) && other.column != own.column;
    let has_others =
        |own: &&Call| file.sites.iter().filter_map(|site| site.calls.first()).any(|other| is_beside(other, own));
    PlannedSite {
        function: own.map_or(String::new(), |call| call.function.clone()),
        symbol: own.and_then(|call| call.symbol.clone()).unwrap_or_default(),
        line: own.and_then(|call| call.line).unwrap_or(0),
        column: own.filter(has_others).and_then(|call| call.column).unwrap_or(0),
        evict: None,
        bytes: site.held_bytes_max,
        pattern: site.pattern.clone(),
        calls: site.calls.iter().map(call).collect(),
        why: Foreign(&format!("{} held, waited for {time}", ByteCount(site.held_bytes_max))).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::example;
    use super::*;
    use crate::plan::Written;

    fn file() -> ProfileFile {
        ProfileFile::of(example().to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_worst_are_taken_with_what_they_call_and_what_they_wait_for() {
        let plan = choose(&file(), 0.1, 0.1, 2);
        let names: Vec<(&str, &str)> = plan.functions.iter().map(|f| (f.name.as_str(), f.why.as_str())).collect();
        let waited = "waited 800.0 µs, 90.0 % of all waiting, in 10 faults";
        assert_eq!(names, [("walk(int*)", waited), ("step", "called by walk(int*)")], "and nothing of libc's");
        assert_eq!(plan.functions[0].symbol, "_Z4walkPi");
        assert_eq!(plan.sites.len(), 1);
        assert_eq!(plan.sites[0].calls, ["make app.cpp:3"]);
        assert_eq!(choose(&file(), 1.0, 1.0, 0).functions.len(), 2, "all of them, and nothing that they call");
    }

    #[test]
    fn what_is_touched_in_no_order_leaves_last_where_it_has_room_in_a_quarter_of_the_budget() {
        let mut value = example();
        let site = |line: u32, bytes: u64, pattern: &str| {
            let mut site = example()["sites"][0].clone();
            site["calls"][0]["line"] = line.into();
            (site["held_bytes_max"], site["pattern"]) = (bytes.into(), pattern.into());
            site
        };
        let all = [
            site(3, 900, "random"),
            site(4, 700, "sequential"),
            site(5, 600, "random"),
            site(6, 500, "random"),
            site(7, 400, "random"),
            site(8, 300, "once"),
        ];
        value["sites"] = all.to_vec().into();
        let mut lines_for = |local: Option<u64>| -> Vec<u32> {
            value["run"]["local_bytes"] = local.map_or(serde_json::Value::Null, Into::into);
            let plan = choose(&ProfileFile::of(value.to_string().as_bytes()).unwrap(), 1.0, 1.0, 0);
            assert_eq!(plan.sites.len(), all.len());
            let last = plan.sites.iter().filter(|site| site.evict == Some(Eviction::Last));
            last.map(|site| site.line).collect()
        };
        assert_eq!(lines_for(Some(4 * 1000)), [3], "the others have no room beside it");
        assert_eq!(lines_for(Some(4 * 899)), [5], "nor this one with any other");
        assert_eq!(lines_for(Some(4 * 1500)), [3, 5]);
        assert!(lines_for(Some(1024)).is_empty() && lines_for(None).is_empty());
    }

    #[test]
    fn allocations_of_one_place_leave_last_where_all_of_them_have_room() {
        let mut value = example();
        let called_by = |caller: &str, bytes: u64| {
            let mut site = example()["sites"][0].clone();
            site["held_bytes_max"] = bytes.into();
            site["calls"].as_array_mut().unwrap().push(serde_json::json!({"function": caller, "module": "app"}));
            site
        };
        value["sites"] = vec![called_by("one", 900), called_by("two", 300)].into();
        let mut leaves_last = |local: u64| {
            value["run"]["local_bytes"] = local.into();
            let plan = choose(&ProfileFile::of(value.to_string().as_bytes()).unwrap(), 1.0, 1.0, 0);
            assert_eq!(plan.sites.len(), 1, "they are one to the compiler");
            plan.sites[0].evict == Some(Eviction::Last)
        };
        assert!(!leaves_last(4 * 1000) && leaves_last(4 * 1200));
    }

    #[test]
    fn what_has_no_name_is_in_no_plan() {
        let mut value = example();
        // The one that waits longest, what it calls, and who allocates.
        value["functions"][0]["name"] = "app+0x401136".into();
        value["functions"][1]["sites"] =
            serde_json::json!([{"index": 0, "faults": 1, "fetches": 1, "first_touches": 0, "wait_ns": 9}]);
        value["sites"][0]["functions"][0]["index"] = 1.into();
        value["sites"][0]["calls"][0] = serde_json::json!({"function": "app+0x4011c0", "module": "app"});
        value["frames"][1]["function"] = "sum".into();
        value["frames"][2]["function"] = "app+0x401200".into();
        let read = |value: &serde_json::Value| ProfileFile::of(value.to_string().as_bytes()).unwrap();
        let plan = choose(&read(&value), 1.0, 1.0, 2);
        assert_eq!((plan.functions.len(), plan.functions[0].name.as_str(), plan.sites.len()), (1, "sum", 0));
        // Who calls who allocates is for people.
        value["sites"][0]["calls"] =
            serde_json::json!([{"function": "make", "module": "app"}, {"function": "app+0x7", "module": "app"}]);
        let plan = choose(&read(&value), 1.0, 1.0, 2);
        assert_eq!(plan.sites[0].calls, ["make app", "(no name) app"]);
        assert!(!plan.text(HEAD).unwrap().contains("0x"));
        value["functions"][1]["name"] = "app+0x9".into();
        let refused = say_unnamed(Path::new("app.prof"), &read(&value)).unwrap_err().to_string();
        assert!(
            refused.contains("app.prof: no function of it that waited has a name (app+0x401136 in app"),
            "{refused}"
        );
    }

    #[test]
    fn what_has_one_name_or_one_line_is_told_apart_by_file_and_column() {
        let mut value = example();
        let mut other = value["functions"][0].clone();
        (value["functions"][0]["file"], other["file"]) = ("/old/src/a/app.cpp".into(), "/old/src/b/app.cpp".into());
        value["functions"].as_array_mut().unwrap().push(other);
        let mut beside = value["sites"][0].clone();
        value["sites"][0]["calls"][0]["column"] = 17.into();
        beside["calls"][0]["column"] = 31.into();
        value["sites"].as_array_mut().unwrap().push(beside);
        let plan = choose(&ProfileFile::of(value.to_string().as_bytes()).unwrap(), 1.0, 1.0, 0);
        let files: Vec<&str> = plan.functions.iter().map(|function| function.file.as_str()).collect();
        assert_eq!(files, ["a/app.cpp", "", "b/app.cpp"]);
        assert_eq!(plan.sites.iter().map(|site| (site.line, site.column)).collect::<Vec<_>>(), [(3, 17), (3, 31)]);
        // Without lines the compiler cannot tell them apart.
        for (at, offset) in [(0, 16), (1, 32)] {
            value["sites"][at]["calls"][0] = serde_json::json!({"function": "make", "module": "app", "offset": offset});
        }
        let plan = choose(&ProfileFile::of(value.to_string().as_bytes()).unwrap(), 1.0, 1.0, 0);
        assert_eq!(plan.sites.len(), 1);
    }

    #[test]
    fn a_plan_is_toml_that_reads_back() {
        let plan = choose(&file(), 1.0, 1.0, 2);
        let text = plan.text(HEAD).unwrap();
        assert!(text.contains("[[function]]\nname = \"walk(int*)\"") && text.contains("[[site]]"), "{text}");
        assert_eq!(Written::parse(&text).unwrap().plan, plan, "what the compiler reads");
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
