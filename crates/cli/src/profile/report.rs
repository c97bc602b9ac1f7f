//! Showing a profile: tables, JSON, a flame graph of waiting.

use super::file::{Call, Function, LineWaits, Part, ProfileFile, Site, Waits};
use super::{Refusal, ended};
use crate::output;
use crate::print;
use crate::report::{count, duration, percent};
use crate::table::table;
use clap::{Args, ValueEnum};
use hinterland_units::{ByteCount, Foreign, whole_number};
use inferno::flamegraph::{self, Options};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// `hinterland report`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// The profile, as `hinterland profile` writes it
    profile: PathBuf,
    /// What the rows are, one table for each
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", default_value = "function")]
    by: Vec<By>,
    /// Rows of a table
    #[arg(long, value_name = "ROWS", default_value_t = 20, value_parser = whole_number::<usize>(1.., "--top 20"))]
    top: usize,
    /// As JSON, all rows
    #[arg(long)]
    json: bool,
    /// Also draw which calls led to how much waiting
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  hinterland report app.prof
  hinterland report app.prof --by function,site,line --top 5
  hinterland report app.prof --flame app.svg
  hinterland report app.prof --by site --json | jq '.site[0].calls'

Exit code: 0, or 125 when the profile cannot be read.";

/// Functions of a site that the table names.
const FUNCTIONS_SHOWN: usize = 2;

/// What a row is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    /// A function of the program: where it waits.
    Function,
    /// An allocation: what is waited for.
    Site,
    /// A line of the source.
    Line,
}

/// A line of the source, in one function.
#[derive(Serialize)]
struct LineRow {
    file: String,
    line: u32,
    function: String,
    module: String,
    /// The function that it was written in, where that was put into `function`.
    #[serde(skip_serializing_if = "Option::is_none")]
    inlined: Option<String>,
    wait_share: f64,
    #[serde(flatten)]
    waits: Waits,
}

/// Runs the command.
pub fn run(args: &ReportArgs) -> ExitCode {
    ended(shown(args))
}

fn shown(args: &ReportArgs) -> Result<(), Refusal> {
    let file = ProfileFile::read(&args.profile)?;
    if let Some(path) = &args.flame {
        flame(&file, &args.profile, path)?;
    }
    let words = |error: std::io::Error| Refusal::Words(format!("standard output: {error}"));
    if args.json {
        let document = serde_json::to_string_pretty(&rows(&file, &args.by)).map_err(|error| words(error.into()))?;
        return print::json(&format!("{document}\n")).map(drop).map_err(words);
    }
    print::text(&text(&file, &args.by, args.top)).map(drop).map_err(words)
}

/// The rows by what they are, with what stands above the tables, as JSON.
fn rows(file: &ProfileFile, by: &[By]) -> serde_json::Value {
    let mut all = serde_json::Map::new();
    all.insert("program".into(), serde_json::json!(file.program));
    all.insert("run".into(), serde_json::json!(file.run));
    all.insert("modules".into(), serde_json::json!(file.modules));
    for by in by {
        let (name, rows) = match by {
            By::Function => ("function", serde_json::json!(functions_with_sites(file))),
            By::Site => ("site", serde_json::json!(sites_with_functions(file))),
            By::Line => ("line", serde_json::json!(lines(file))),
        };
        all.insert(name.into(), rows);
    }
    all.into()
}

/// A function, with what its sites are.
fn functions_with_sites(file: &ProfileFile) -> Vec<serde_json::Value> {
    let part = |part: &Part| {
        let site = &file.sites[part.index];
        with(serde_json::json!(part), [("calls", serde_json::json!(site.calls))])
    };
    let row = |function: &Function| {
        let sites: Vec<_> = function.sites.iter().map(part).collect();
        with(serde_json::json!(function), [("sites", sites.into())])
    };
    file.functions.iter().map(row).collect()
}

/// A site, with what its functions are; that which waited longest is the first.
fn sites_with_functions(file: &ProfileFile) -> Vec<serde_json::Value> {
    let part = |part: &Part| {
        let function = &file.functions[part.index];
        let named = [("name", function.name.as_str().into()), ("module", function.module.as_str().into())];
        with(serde_json::json!(part), named)
    };
    let row = |site: &Site| {
        let functions: Vec<_> = by_waiting(site).into_iter().map(part).collect();
        with(serde_json::json!(site), [("functions", functions.into())])
    };
    file.sites.iter().map(row).collect()
}

fn with<const N: usize>(mut object: serde_json::Value, members: [(&str, serde_json::Value); N]) -> serde_json::Value {
    for (name, value) in members {
        object[name] = value;
    }
    object
}

/// The functions that waited for a site, that which waited longest first.
fn by_waiting(site: &Site) -> Vec<&Part> {
    let mut parts: Vec<&Part> = site.functions.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.waits.wait_ns));
    parts
}

fn text(file: &ProfileFile, by: &[By], top: usize) -> String {
    let mut out = head(file);
    if file.functions.is_empty() && file.sites.is_empty() {
        return out + "  nothing was waited for: a smaller --local shows more waiting\n";
    }
    for by in by {
        let table = match by {
            By::Function => functions(file, top),
            By::Site => sites(file, top),
            By::Line => line_table(file, top),
        };
        let _ = write!(out, "\n{table}\n");
    }
    out
}

fn time(ns: u64) -> String {
    duration(Duration::from_nanos(ns))
}

fn head(file: &ProfileFile) -> String {
    let run = &file.run;
    let local = run.local_bytes.map_or(String::new(), |bytes| format!(", {} local", ByteCount(bytes)));
    let mut out = format!(
        "{}: {}{local}; {} faults were served in {}, of which {} fetched a page\n",
        Foreign(&file.program.name),
        time(run.wall_ns),
        count(run.waits.faults),
        time(run.waits.wait_ns),
        count(run.waits.fetches),
    );
    if let Some(one_in) = run.one_in {
        let _ = writeln!(out, "  the monitor served faults: functions and lines are estimates from one in {one_in}");
    }
    let lost = [
        (run.lost.faults, "faults have no function"),
        (run.lost.stacks, "faults have no calls"),
        (run.lost.allocations, "allocations have no site"),
    ];
    for (number, what) in lost.into_iter().filter(|(number, _)| *number > 0) {
        let _ = writeln!(out, "  {} {what}: the profile has no room for more", count(number));
    }
    if run.lost.lives > 0 {
        let lives = count(run.lost.lives);
        let _ = writeln!(
            out,
            "  {lives} allocations were not followed until they are freed: what sites held is too little"
        );
    }
    if run.lost.unplaced > 0 {
        let _ = writeln!(
            out,
            "  {} faults have no function: their threads could not be looked at",
            count(run.lost.unplaced)
        );
    }
    for module in file.modules.iter().filter(|module| module.unnamed_because.is_some()) {
        let why = module.unnamed_because.as_deref().unwrap_or_default();
        let _ = writeln!(out, "  {} has no names: {why}", Foreign(&module.path));
    }
    out
}

/// Long names of templates leave no room for figures.
fn cut(name: &str) -> String {
    hinterland_units::cut(&Foreign(name).to_string(), 72).into_owned()
}

fn wait_cells(waits: &Waits, share: f64) -> [String; 5] {
    let each = waits.wait_ns.checked_div(waits.faults).unwrap_or(0);
    [percent(share), time(waits.wait_ns), count(waits.faults), count(waits.fetches), time(each)]
}

fn functions(file: &ProfileFile, top: usize) -> String {
    let mut table = table(&["waiting", "time", "faults", "fetches", "each", "function", "in"], 0..5);
    for function in file.functions.iter().take(top) {
        let cells = wait_cells(&function.waits, function.wait_share);
        table.add_row(cells.into_iter().chain([cut(&function.name), cut(&function.module)]));
    }
    table.to_string()
}

fn call(call: &Call) -> String {
    let place = match (&call.file, call.line) {
        (Some(file), Some(line)) => format!(" ({}:{line})", base(file)),
        _ => format!(" ({})", call.module),
    };
    let offset = call.offset.map_or(String::new(), |offset| format!("+{offset:#x}"));
    format!("{}{offset}{}", cut(&call.function), Foreign(&place))
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn sites(file: &ProfileFile, top: usize) -> String {
    let names = [
        "waiting",
        "time",
        "faults",
        "fetches",
        "each",
        "held",
        "allocations",
        "life",
        "pattern",
        "allocated by",
        "waited for in",
    ];
    let mut table = table(&names, 0..8);
    for site in file.sites.iter().take(top) {
        let calls: Vec<String> = site.calls.iter().map(call).collect();
        let functions = by_waiting(site);
        let mut waited: Vec<String> =
            functions.iter().take(FUNCTIONS_SHOWN).map(|part| cut(&file.functions[part.index].name)).collect();
        if functions.len() > FUNCTIONS_SHOWN {
            waited.push(format!("and {} others", functions.len() - FUNCTIONS_SHOWN));
        }
        let calls = if calls.is_empty() { "(not known)".into() } else { calls.join("\n  ") };
        table.add_row(wait_cells(&site.waits, site.wait_share).into_iter().chain([
            ByteCount(site.held_bytes_max).to_string(),
            count(site.allocations),
            site.life_ns.map_or("-".into(), time),
            Foreign(&site.pattern).to_string(),
            calls,
            waited.join("\n"),
        ]));
    }
    table.to_string()
}

fn lines(file: &ProfileFile) -> Vec<LineRow> {
    let known: u64 = file.functions.iter().map(|function| function.waits.wait_ns).sum();
    let all = known.max(file.run.waits.wait_ns).max(1) as f64;
    let row = |function: &Function, line: &LineWaits| LineRow {
        file: line.file.clone(),
        line: line.line,
        function: function.name.clone(),
        module: function.module.clone(),
        inlined: line.inlined.clone(),
        wait_share: line.waits.wait_ns as f64 / all,
        waits: line.waits,
    };
    let rows = |function| move |line| row(function, line);
    let mut lines: Vec<LineRow> =
        file.functions.iter().flat_map(|function| function.lines.iter().map(rows(function))).collect();
    lines.sort_by_key(|row| std::cmp::Reverse(row.waits.wait_ns));
    lines
}

fn line_table(file: &ProfileFile, top: usize) -> String {
    let rows = lines(file);
    if rows.is_empty() {
        return "No line is known: compile the program with -g, or install its debug information.".into();
    }
    let mut table = table(&["waiting", "time", "faults", "fetches", "each", "line", "function"], 0..5);
    for row in rows.iter().take(top) {
        let place = Foreign(&format!("{}:{}", row.file, row.line)).to_string();
        let function = match &row.inlined {
            Some(inlined) => format!("{} in {}", cut(inlined), cut(&row.function)),
            None => cut(&row.function),
        };
        table.add_row(wait_cells(&row.waits, row.wait_share).into_iter().chain([place, function]));
    }
    table.to_string()
}

/// Draws the stacks: how wide a function is says how long was waited in it and in what it called.
fn flame(file: &ProfileFile, read: &Path, path: &Path) -> Result<(), Refusal> {
    if output::is_same(read, path) {
        return Err(Refusal::Own { flag: "--flame", path: path.into() });
    }
    let folded: Vec<String> = file
        .stacks
        .iter()
        .filter(|stack| stack.wait_ns > 0 && !stack.frames.is_empty())
        .map(|stack| {
            let functions: Vec<String> = stack
                .frames
                .iter()
                .map(|frame| Foreign(&file.frames[*frame].function).to_string().replace(';', ":"))
                .collect();
            format!("{} {}", functions.join(";"), stack.wait_ns / 1000)
        })
        .collect();
    if folded.is_empty() {
        return Err(Refusal::File {
            path: read.into(),
            why: "it has no stacks to draw: nothing was waited for".into(),
        });
    }
    let mut options = Options::default();
    options.title = format!("Waiting of {}", Foreign(&file.program.name));
    options.count_name = "µs".into();
    options.deterministic = true;
    let refuse = |source| Refusal::Output { flag: "--flame", path: path.into(), source };
    output::write(path, refuse, |out| {
        flamegraph::from_lines(&mut options, folded.iter().map(String::as_str), out).map_err(refuse)
    })
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::example;
    use super::*;

    fn file() -> ProfileFile {
        ProfileFile::of(example().to_string().as_bytes()).unwrap()
    }

    #[test]
    fn tables_begin_with_the_worst_and_end_where_they_are_told() {
        let text = text(&file(), &[By::Function, By::Site, By::Line], 1);
        assert!(
            text.starts_with("./app: 5.00 s; 10 faults were served in 900.0 µs, of which 8 fetched a page"),
            "{text}"
        );
        let row = |begin: &str| text.lines().find(|line| line.trim_start().starts_with(begin)).unwrap_or_default();
        assert!(row("90.0 %").contains("walk(int*)"), "{text}");
        assert!(!text.contains("sum"), "one row: {text}");
        assert!(text.lines().any(|line| line.contains("make (app.cpp:3)") && line.contains("walk(int*)")), "{text}");
        assert!(text.contains("make (app.cpp:3)") && text.contains("random") && text.contains("app.cpp:7"), "{text}");
    }

    #[test]
    fn a_line_that_was_put_into_several_functions_has_a_row_for_each() {
        let lines = lines(&file());
        let rows: Vec<_> = lines.iter().map(|row| (row.line, row.function.as_str(), row.waits.wait_ns)).collect();
        assert_eq!(rows, [(7, "walk(int*)", 700_000), (90, "walk(int*)", 100_000), (90, "sum", 60_000)]);
        let shares: f64 = lines.iter().map(|row| row.wait_share).sum();
        assert!((shares - 860.0 / 900.0).abs() < 1e-9, "{shares}");
        let table = line_table(&file(), 9);
        assert!(table.contains("at in walk(int*)") && table.contains("at in sum"), "{table}");
    }

    #[test]
    fn a_profile_without_waiting_says_so() {
        let mut value = example();
        ["functions", "sites", "stacks"].into_iter().for_each(|list| value[list] = serde_json::json!([]));
        let text = text(&ProfileFile::of(value.to_string().as_bytes()).unwrap(), &[By::Function, By::Site], 5);
        assert!(text.ends_with("  nothing was waited for: a smaller --local shows more waiting\n"), "{text}");
    }

    #[test]
    fn json_has_all_rows_and_each_says_what_its_parts_are() {
        let sites = rows(&file(), &[By::Site]);
        assert_eq!(sites["site"][0]["functions"][0]["name"], "walk(int*)");
        let rows = rows(&file(), &[By::Function, By::Line]);
        assert_eq!(rows["function"][0]["sites"][0]["calls"][0]["function"], "make");
        assert_eq!(rows["function"].as_array().map(Vec::len), Some(2));
        assert_eq!(rows["line"][0]["line"], 7);
        assert_eq!((&rows["run"]["wait_ns"], &rows["program"]["name"]), (&900_000.into(), &"./app".into()));
        assert!(rows.get("site").is_none());
    }

    #[test]
    fn a_flame_graph_has_the_functions_and_does_not_replace_the_profile() {
        let directory = tempfile::tempdir().unwrap();
        let [profile, svg] = ["app.prof", "app.svg"].map(|name| directory.path().join(name));
        std::fs::write(&profile, example().to_string()).unwrap();
        flame(&file(), &profile, &svg).unwrap();
        let drawn = std::fs::read_to_string(&svg).unwrap();
        assert!(drawn.contains("<svg") && drawn.contains("walk(int*)"), "{}", &drawn[..200]);
        assert!(matches!(flame(&file(), &profile, &profile), Err(Refusal::Own { .. })));
    }
}
