//! Good and bad days of a managed program: how it starts, makes children, closes things, ends, and what happens when its
//! settings are nonsense or its far memory is too small, full, forbidden or damaged.

mod certificates;
mod children;
mod discovery;
mod encrypted;
mod endings;
mod explain;
mod far_memory;
mod fault_path;
mod kills;
mod misbehaving;
mod nodes;
mod operators;
mod pages;
mod partitions;
mod pools;
mod prefetch;
mod refusals;
mod secrets;
mod secured;
mod simulated;
mod snapshots;
mod sockets;
mod start_up;
mod storm;
mod strange_forks;
mod traces;
mod trees;

use std::process::ExitCode;

fn main() -> ExitCode {
    let suites = [
        certificates::trials(),
        children::trials(),
        discovery::trials(),
        encrypted::trials(),
        endings::trials(),
        explain::trials(),
        far_memory::trials(),
        fault_path::trials(),
        kills::trials(),
        misbehaving::trials(),
        nodes::trials(),
        operators::trials(),
        pages::trials(),
        partitions::trials(),
        pools::trials(),
        sockets::trials(),
        prefetch::trials(),
        refusals::trials(),
        secrets::trials(),
        secured::trials(),
        simulated::trials(),
        snapshots::trials(),
        start_up::trials(),
        storm::trials(),
        strange_forks::trials(),
        traces::trials(),
        trees::trials(),
    ];
    hinterland_tests::suite::run(suites.into_iter().flatten().collect()).exit_code()
}
