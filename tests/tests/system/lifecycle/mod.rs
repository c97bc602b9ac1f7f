//! Good and bad days of a managed program: how it starts, makes children, closes things, ends, and what happens when its
//! settings are nonsense or its far memory is too small, full, forbidden or damaged.

mod balance;
mod certificates;
mod children;
mod compiled;
mod confined;
mod control;
mod data_limit;
mod decisions;
mod discovery;
mod drains;
mod encrypted;
mod endings;
mod explain;
mod far_memory;
mod fault_path;
mod field;
mod handover;
mod hints;
mod installed;
mod intervals;
mod kills;
mod last_threads;
mod memory_calls;
mod messages;
mod misbehaving;
mod namespaces;
mod nodes;
mod operators;
mod optimize;
mod other_runs;
mod outside;
mod packaged;
mod pages;
mod partitions;
mod paths;
mod pools;
mod prefetch;
mod profile;
mod random_loops;
mod real;
mod refusals;
mod renewals;
mod schema;
mod secrets;
mod secured;
mod simulated;
mod slurm;
mod snapshots;
mod sockets;
mod start_up;
mod statistics;
mod storm;
mod strange_forks;
mod stressors;
mod tape_cache;
mod taped_trees;
mod tapes;
mod traced_trees;
mod traces;
mod trees;
mod tuning;

use hinterland_tests::suite::{Share, Trial};
use std::collections::HashSet;

/// Files about nodes, links and what the launcher does: code that no fault path has to itself.
const BESIDE_THE_FAULT_PATH: [&str; 19] = [
    "certificates",
    "control",
    "discovery",
    "drains",
    "encrypted",
    "explain",
    "figures",
    "intervals",
    "messages",
    "misbehaving",
    "nodes",
    "operators",
    "other_runs",
    "outside",
    "paths",
    "pools",
    "renewals",
    "sockets",
    "tuning",
];

/// Those of all that only `--full` runs.
pub fn only_in_full(all: &[String]) -> HashSet<String> {
    field::only_in_full().chain(partitions::only_in_full()).chain(other_paths(all)).collect()
}

/// Tests of [`BESIDE_THE_FAULT_PATH`] that run on both fault paths take turns: of each the one that this says is left to `--full`.
fn other_paths(all: &[String]) -> Vec<String> {
    let on = |name: &str, path: &str| name.split("::").skip(2).any(|word| word == path);
    let is_beside = |name: &str| BESIDE_THE_FAULT_PATH.iter().any(|file| name.split("::").nth(1) == Some(file));
    let mut monitored: Vec<&String> = all.iter().filter(|name| is_beside(name) && on(name, "monitor")).collect();
    monitored.sort();
    let both = monitored.into_iter().filter_map(|name| {
        let inline = name.replace("::monitor", "::inline");
        all.contains(&inline).then(|| [name.clone(), inline])
    });
    both.zip([0, 1].into_iter().cycle()).map(|(paths, turn)| paths[turn].clone()).collect()
}

/// Beginnings of names of tests that wait most of the time, in files whose others keep a processor busy: for a pause, a disk, or a delay in
/// which they give the processor away.
const WAITS: [&str; 10] = [
    "lifecycle::decisions::hints::",
    "lifecycle::decisions::sqlite::",
    "lifecycle::namespaces::launcher_silent::",
    "lifecycle::nodes::waited_for::",
    "lifecycle::simulated::recorded::sort::",
    "lifecycle::tapes::the_same_pages",
    "lifecycle::trees::daemon::",
    "lifecycle::trees::fork_storm::",
    "lifecycle::trees::postgresql",
    "lifecycle::tuning::shared_link::",
];

/// The tests of all files. Those of lost nodes, cut networks and slow links wait most of the time. `kills` looks at what appears in directories
/// that all share, and `start_up` reports times: they need the machine alone.
pub fn trials() -> Vec<Trial> {
    let busy = [
        statistics::trials(),
        namespaces::trials(),
        handover::trials(),
        outside::trials(),
        control::trials(),
        other_runs::trials(),
        data_limit::trials(),
        balance::trials(),
        trees::trials(),
        snapshots::trials(),
        simulated::trials(),
        slurm::trials(),
        decisions::trials(),
        prefetch::trials(),
        profile::trials(),
        explain::trials(),
        tapes::trials(),
        taped_trees::trials(),
        hints::trials(),
        intervals::trials(),
        tape_cache::trials(),
        traced_trees::trials(),
        traces::trials(),
        storm::trials(),
        nodes::trials(),
        paths::trials(),
        tuning::trials(),
        encrypted::trials(),
        sockets::trials(),
        installed::trials(),
        packaged::trials(),
        children::trials(),
        compiled::trials(),
        random_loops::trials(),
        confined::trials(),
        endings::trials(),
        last_threads::trials(),
        far_memory::trials(),
        fault_path::trials(),
        field::trials(),
        memory_calls::trials(),
        messages::trials(),
        pages::trials(),
        real::trials(),
        refusals::trials(),
        schema::trials(),
        secrets::trials(),
        strange_forks::trials(),
        stressors::trials(),
    ];
    let waits = [
        optimize::trials(),
        renewals::trials(),
        discovery::trials(),
        partitions::trials(),
        pools::trials(),
        operators::trials(),
        secured::trials(),
        misbehaving::trials(),
        drains::trials(),
        certificates::trials(),
    ];
    let alone = [kills::trials(), start_up::trials()];
    let busy: Vec<Trial> = busy.into_iter().flatten().collect();
    let is_there = |begin: &&str| busy.iter().any(|trial| trial.name().starts_with(begin));
    assert!(WAITS.iter().all(is_there), "of {WAITS:?} one is no test");
    let share = |trial: Trial| {
        let waits = WAITS.iter().any(|begin| trial.name().starts_with(begin));
        trial.taking(if waits { Share::Waits } else { Share::Busy })
    };
    let busy = busy.into_iter().map(share);
    let waits = waits.into_iter().flatten().map(|trial| trial.taking(Share::Waits));
    busy.chain(waits).chain(alone.into_iter().flatten().map(|trial| trial.taking(Share::Alone))).collect()
}
