//! docs/reference: the settings and the statistics as tables, and the schema of the JSON, made of the same rows as the command itself. The
//! tests fail when a file is stale; `UPDATE_REFERENCE=1 cargo test -p hinterland-cli reference` writes them.

use crate::advise::{ADVICE_VERSION, Advice, Misses, Ranked, RegionTraits, Traits};
use crate::control::{Behind, Change, PS_VERSION, PathStatus, Running, Status};
use crate::report::{
    Backend, Document, FaultNs, LargerMemory, Others, Outside, Process, RunFeatures, STATS_VERSION, Service, Unmanaged,
    WaitNs,
};
use crate::schema::Described;
use crate::statistics::{Activity, HintSite};
use hinterland_abi::statistics::{Statistic, backend, process};
use hinterland_abi::{
    EvictName, FaultPathName, GranularityName, HeapMode, PlacementName, PrefetchName, SETTINGS, Setting, Sources,
};
use std::fmt::Write;
use std::path::Path;

const MADE: &str = "by `UPDATE_REFERENCE=1 cargo test -p hinterland-cli reference`; a test fails when it is stale";

/// A table of markdown.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.trim().replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(head.iter().map(|cell| (*cell).to_owned()).collect());
    let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
    rows.into_iter().for_each(|row| text += &line(row));
    text + "\n"
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn rows_of(sources: &[Sources], row: impl Fn(&Setting) -> Vec<String>) -> Vec<Vec<String>> {
    SETTINGS.iter().filter(|setting| sources.contains(&setting.sources)).map(row).collect()
}

fn settings() -> String {
    let flag = |setting: &Setting| match setting.sources {
        Sources::Run | Sources::FlagOrVariable => {
            format!("{} {}", setting.flag(), setting.value_name()).trim().to_owned()
        }
        Sources::Variable | Sources::Launcher => String::new(),
    };
    let key = |setting: &Setting| if setting.sources == Sources::Run { setting.key() } else { String::new() };
    let all = |setting: &Setting| {
        let [flag, variable, key] = [&flag(setting), setting.variable, &key(setting)].map(code);
        vec![flag, variable, key, setting.meaning(), setting.default.to_owned()]
    };
    let handed = |setting: &Setting| vec![code(setting.variable), setting.meaning(), setting.default.to_owned()];
    let mut text = format!(
        "# Settings\n\nThe settings of `hinterland run`. A flag counts before its variable, a variable before the settings file (TOML), \
         and that before\nthe default.\nThis file is generated from `crates/abi/src/settings/table.rs`\n({MADE}).\n\n"
    );
    text += &table(
        &["flag", "variable", "key", "meaning", "default"],
        rows_of(&[Sources::Run, Sources::FlagOrVariable, Sources::Variable], all),
    );
    text += "Sizes are numbers with `K`, `M`, `G` or `T` (powers of 1024). A variable that is empty counts as unset. Yes is `1`, `true`, `yes` \
             or `on`\nin variables, `true` in the settings file. Several values stand with spaces between them in\n`HINTERLAND_FAR` and \
             `HINTERLAND_COSTS`, in a list in the file.\n\nThe launcher hands these over beside the others; they are not for users:\n\n";
    text += &table(&["variable", "meaning", "default"], rows_of(&[Sources::Launcher], handed));
    text += "## Choices\n\n";
    let choices = [
        ("--prefetch", PrefetchName::ALL.iter().map(|choice| (choice.name(), choice.meaning())).collect::<Vec<_>>()),
        ("--granularity", GranularityName::ALL.iter().map(|choice| (choice.name(), choice.meaning())).collect()),
        ("--evict", EvictName::ALL.iter().map(|choice| (choice.name(), choice.meaning())).collect()),
        ("--fault-path", FaultPathName::ALL.iter().map(|choice| (choice.name(), choice.meaning())).collect()),
        ("--placement", PlacementName::ALL.iter().map(|choice| (choice.name(), choice.meaning())).collect()),
        ("--heap", HeapMode::ALL.iter().map(|choice| (choice.name(), choice.meaning())).collect()),
    ];
    for (flag, choices) in choices {
        let rows = choices.into_iter().map(|(name, meaning)| vec![code(name), meaning.to_owned()]);
        text += &table(&[&code(flag), "meaning"], rows);
    }
    text.trim_end().to_owned() + "\n"
}

fn of_statistics(prefix: &str, statistics: &[&[Statistic]]) -> String {
    let row = |statistic: &Statistic| {
        let mut name = code(&format!("{prefix}{}", statistic.json));
        if let Some(peak) = statistic.peak.filter(|_| !prefix.is_empty()) {
            let _ = write!(name, ", `{prefix}{peak}`");
        }
        let [unit, added, meaning] =
            [statistic.unit.name(), statistic.added.name(), statistic.meaning].map(str::to_owned);
        vec![name, unit, meaning, added]
    };
    table(&["member", "unit", "meaning", "of several processes"], statistics.iter().copied().flatten().map(row))
}

fn of_members(prefix: &str, members: &[(&str, &str)]) -> Vec<Vec<String>> {
    let own = members.iter().filter(|(name, _)| *name != "statistics");
    own.map(|(name, meaning)| vec![code(&format!("{prefix}{name}")), (*meaning).to_owned()]).collect()
}

fn statistics() -> String {
    let mut text = format!(
        "# Statistics\n\nThe JSON that `hinterland run --stats FILE` writes; [stats.schema.json](stats.schema.json) is its schema (JSON \
         Schema 2020-12).\nNames that end in `_peak_bytes` are the most that was seen during the run, the others what the run ended with.\nThis file is generated from `crates/abi/src/statistics` and \
         `crates/cli/src/report/json.rs`\n({MADE}).\n\n## Counted\n\n"
    );
    text += &of_statistics(
        "",
        &[
            process::Counters::STATISTICS,
            process::Gauges::STATISTICS,
            process::Maxima::STATISTICS,
            process::Principal::STATISTICS,
            process::Own::STATISTICS,
            process::Histograms::STATISTICS,
        ],
    );
    text += "Each object of `processes`, and `processes_others`, has some of these, too.\n\n### Of each tier\n\n";
    let of_a_tier = [backend::Counters::STATISTICS, backend::Gauges::STATISTICS, backend::Maxima::STATISTICS];
    text += &of_statistics("backends[].", &of_a_tier);
    text += "## Derived, or known to the launcher\n\n";
    let objects = [
        ("", Document::MEMBERS),
        ("unmanaged.", Unmanaged::MEMBERS),
        ("service_level.", Service::MEMBERS),
        ("fault_ns.", FaultNs::MEMBERS),
        ("prefetch_wait_ns.", WaitNs::MEMBERS),
        ("features.", RunFeatures::MEMBERS),
        ("features.larger_memory[].", LargerMemory::MEMBERS),
        ("backends[].", Backend::MEMBERS),
        ("processes[].", Process::MEMBERS),
        ("processes_others.", Others::MEMBERS),
        ("not_managed[].", Outside::MEMBERS),
    ];
    text += &table(&["member", "meaning"], objects.iter().flat_map(|(prefix, members)| of_members(prefix, members)));
    text += "## Of each of the busiest threads and regions\n\nThe objects of `threads` and `regions`:\n\n";
    text += &table(&["member", "meaning"], of_members("", Activity::MEMBERS));
    text += "## Of each place that gives hints\n\nThe objects of `hint_sites`:\n\n";
    text += &table(&["member", "meaning"], of_members("", HintSite::MEMBERS));
    text.trim_end().to_owned() + "\n"
}

/// The schema of what `--stats` writes.
pub fn stats_schema() -> serde_json::Value {
    let mut schema = Document::schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "The figures that hinterland run --stats writes".into();
    schema["$comment"] = format!("generated {MADE}").into();
    schema["properties"]["stats_version"]["const"] = STATS_VERSION.into();
    schema
}

/// The schema of what `ps --json` writes.
fn ps_schema() -> serde_json::Value {
    let mut schema = Running::schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "What hinterland ps --json writes".into();
    schema["$comment"] = format!("generated {MADE}").into();
    schema["properties"]["ps_version"]["const"] = PS_VERSION.into();
    schema
}

/// The schema of what `advise --json` writes.
fn advice_schema() -> serde_json::Value {
    let mut schema = Advice::schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "What hinterland advise --json writes".into();
    schema["$comment"] = format!("generated {MADE}").into();
    schema["properties"]["advice_version"]["const"] = ADVICE_VERSION.into();
    schema
}

/// The table of what `advise --json` writes.
fn advice() -> String {
    let mut text = format!(
        "# Advice\n\nThe JSON that `hinterland advise --json` writes; [advice.schema.json](advice.schema.json) is its schema (JSON \
         Schema 2020-12). Ratios\nare from 0 to 1.\nThis file is generated from `crates/cli/src/advise`\n({MADE}).\n\n"
    );
    let objects = [
        ("", Advice::MEMBERS),
        ("features.", Traits::MEMBERS),
        ("miss_ratios[].", Misses::MEMBERS),
        ("regions[].", RegionTraits::MEMBERS),
        ("backends[].", Ranked::MEMBERS),
    ];
    text += &table(&["member", "meaning"], objects.iter().flat_map(|(prefix, members)| of_members(prefix, members)));
    text.trim_end().to_owned() + "\n"
}

/// The tables of what a launcher says of its run.
fn runs() -> String {
    let mut text = format!(
        "# Runs that are under way\n\nThe JSON that `hinterland ps --json` writes; [ps.schema.json](ps.schema.json) is its schema (JSON \
         Schema 2020-12). A launcher answers with\nthe same objects on its socket ([control.md](../control.md)).\nThis file is generated from \
         `crates/cli/src/control`\n({MADE}).\n\n"
    );
    let document = [
        ("", Running::MEMBERS),
        ("runs[].", Status::MEMBERS),
        ("runs[].features.", RunFeatures::MEMBERS),
        ("runs[].features.larger_memory[].", LargerMemory::MEMBERS),
        ("runs[].paths[].", PathStatus::MEMBERS),
    ];
    text += &table(&["member", "meaning"], document.iter().flat_map(|(prefix, members)| of_members(prefix, members)));
    text += "## A change\n\nThe object `set` in the answer of a launcher:\n\n";
    let change = [("", Change::MEMBERS), ("behind[].", Behind::MEMBERS)];
    text += &table(&["member", "meaning"], change.iter().flat_map(|(prefix, members)| of_members(prefix, members)));
    text.trim_end().to_owned() + "\n"
}

/// Compares a file with what it should be; with `UPDATE_REFERENCE` set, writes it.
fn check(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, made).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == made, "{} is stale: UPDATE_REFERENCE=1 cargo test -p hinterland-cli reference", path.display());
}

#[test]
fn the_table_of_settings_is_up_to_date() {
    check("settings.md", &settings());
}

#[test]
fn the_table_of_statistics_is_up_to_date() {
    check("statistics.md", &statistics());
}

#[test]
fn the_schema_of_the_figures_is_up_to_date() {
    let schema = serde_json::to_string_pretty(&stats_schema()).expect("JSON");
    check("stats.schema.json", &(schema + "\n"));
}

#[test]
fn the_table_of_runs_and_its_schema_are_up_to_date() {
    check("runs.md", &runs());
    let schema = serde_json::to_string_pretty(&ps_schema()).expect("JSON");
    check("ps.schema.json", &(schema + "\n"));
}

#[test]
fn the_table_of_advice_and_its_schema_are_up_to_date() {
    check("advice.md", &advice());
    let schema = serde_json::to_string_pretty(&advice_schema()).expect("JSON");
    check("advice.schema.json", &(schema + "\n"));
}
