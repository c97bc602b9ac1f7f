//! Good and bad days of a managed program: how it starts, makes children, closes things, ends, and what happens when its
//! settings are nonsense or its far memory is too small, full, forbidden or damaged.

mod children;
mod endings;
mod far_memory;
mod kills;
mod refusals;
mod start_up;
mod strange_forks;

use std::process::ExitCode;

fn main() -> ExitCode {
    let suites = [
        children::trials(),
        endings::trials(),
        far_memory::trials(),
        kills::trials(),
        refusals::trials(),
        start_up::trials(),
        strange_forks::trials(),
    ];
    hinterland_tests::suite::run(suites.into_iter().flatten().collect()).exit_code()
}
