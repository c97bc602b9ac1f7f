//! Runs the end-to-end programs by hand: natively, under Hinterland with chosen settings, or both side by side (`demo`).

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use hinterland_tests::{
    EVICTS, FARS, FEATURES, HEAPS, MIB, PATHS, Scenario, Variant, managed, native, places, programs, published,
    results, skips, verdict,
};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The end-to-end programs, one at a time.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Do,
}

#[derive(Subcommand)]
enum Do {
    /// Lists the programs.
    List,
    /// Runs programs natively and shows time, memory and whether the output repeats.
    Native {
        /// Programs; all when none is given.
        names: Vec<String>,
        /// Peak of anonymous memory to aim at, in MiB.
        #[arg(long, default_value_t = 112)]
        size: u64,
    },
    /// Runs programs natively and under Hinterland at a quarter of their memory.
    Run(RunArgs),
    /// Shows one program natively and under Hinterland side by side.
    Demo {
        /// The program.
        #[arg(default_value = "pandas")]
        name: String,
        /// Peak of anonymous memory to aim at, in MiB.
        #[arg(long, default_value_t = 768)]
        size: u64,
    },
    /// Makes the inputs of a program and writes its command line as JSON: words, environment, outputs in the working directory.
    Line {
        /// The program.
        name: String,
        /// Peak of anonymous memory to aim at, in MiB.
        #[arg(long, default_value_t = 112)]
        size: u64,
    },
    /// Writes the rows of the runs so far to docs/results: programs.json, and runtimes.json with a table.
    Results,
}

#[derive(Args)]
struct RunArgs {
    /// Programs; all when none is given.
    names: Vec<String>,
    /// Peak of anonymous memory to aim at, in MiB.
    #[arg(long, default_value_t = 112)]
    size: u64,
    /// Fault path.
    #[arg(long, default_value = "monitor", value_parser = PATHS)]
    path: String,
    /// Kernel feature set.
    #[arg(long, default_value = "all", value_parser = FEATURES)]
    features: String,
    /// Far memory.
    #[arg(long, default_value = "compressed", value_parser = FARS)]
    far: String,
    /// Heap mode.
    #[arg(long, default_value = "all", value_parser = HEAPS)]
    heap: String,
    /// Eviction policy.
    #[arg(long, default_value = "s3-fifo", value_parser = EVICTS)]
    evict: String,
    /// Time for each run, in seconds.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Do::List => list(),
        Do::Native { names, size } => chosen(&names).and_then(|found| natively(&found, size * MIB)),
        Do::Run(args) => run(&args),
        Do::Demo { name, size } => demo(&name, size * MIB),
        Do::Line { name, size } => write_line(&name, size * MIB),
        Do::Results => write_results(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if names.is_empty() {
        return Ok(programs::ALL.iter().collect());
    }
    names.iter().map(|name| programs::named(name).with_context(|| format!("no program '{name}'; see 'list'"))).collect()
}

fn list() -> Result<ExitCode> {
    for scenario in programs::ALL {
        let state = skips::missing(scenario.needs).map_or(String::new(), |reason| format!("  (skipped: {reason})"));
        println!("{:<16} {}{state}", scenario.name, scenario.about);
    }
    Ok(ExitCode::SUCCESS)
}

fn natively(scenarios: &[&Scenario], size_bytes: u64) -> Result<ExitCode> {
    let mut all_repeat = true;
    for scenario in scenarios {
        let place = native::prepare(scenario, size_bytes)?;
        let [first, second] = [(); 2].map(|()| native::run_native(scenario, &place, Duration::from_secs(600)));
        let (first, second) = (first?, second?);
        let repeats = first.digest == second.digest;
        all_repeat &= repeats;
        let ran = &first.finished;
        println!(
            "{:<16} {:>6.2} s  peak anonymous {:>5} MiB, resident {:>5} MiB  output {} {}",
            scenario.name,
            ran.wall.as_secs_f64(),
            ran.anonymous_peak_bytes / MIB,
            ran.resident_peak_bytes / MIB,
            &first.digest[..12],
            if repeats { "repeats" } else { "DIFFERS between two runs" },
        );
    }
    Ok(if all_repeat { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The value of `list` that equals `text`: settings are static names.
fn known(list: &[&'static str], text: &str) -> Result<&'static str> {
    list.iter().copied().find(|name| *name == text).with_context(|| format!("'{text}' is not among {list:?}"))
}

fn run(args: &RunArgs) -> Result<ExitCode> {
    let variant = Variant {
        path: known(&PATHS, &args.path)?,
        features: known(&FEATURES, &args.features)?,
        far: known(&FARS, &args.far)?,
        heap: known(&HEAPS, &args.heap)?,
        evict: known(&EVICTS, &args.evict)?,
    };
    let (mut failed, limit) = (0, Duration::from_secs(args.limit));
    for scenario in chosen(&args.names)? {
        let place = native::prepare(scenario, args.size * MIB)?;
        let native = native::run_native(scenario, &place, limit)?;
        let budget_bytes = managed::budget_bytes(&native);
        let managed = match managed::run_managed(scenario, &place, &variant, budget_bytes, limit) {
            Ok(managed) => managed,
            Err(error) => {
                println!("{:<16} FAILED: {error:#}", scenario.name);
                failed += 1;
                continue;
            }
        };
        let violations = verdict::violations(scenario, &variant, &native, &managed);
        results::Row::new(scenario, variant, place.size_bytes, &native, &managed, &violations)
            .append_to(&results::file())?;
        let (seconds, slower) = (managed.finished.wall.as_secs_f64(), slowdown(&native, &managed));
        print!("{:<16} {seconds:>7.2} s ({slower:.1} × native) in {} MiB", scenario.name, budget_bytes / MIB);
        if let Ok(stats) = &managed.stats {
            print!("  majors {} share {:.3}", stats.major_faults, stats.managed_share_of_anonymous);
            print!(" resident {} MiB", stats.resident_managed_peak_bytes / MIB);
        }
        println!("  {}", if violations.is_empty() { "ok" } else { "FAILED" });
        if !violations.is_empty() {
            failed += 1;
            println!("    - {}\n{}", violations.join("\n    - "), managed.stderr);
        }
    }
    if failed > 0 {
        bail!("{failed} failed");
    }
    Ok(ExitCode::SUCCESS)
}

fn slowdown(native: &native::Native, managed: &managed::Managed) -> f64 {
    managed.finished.wall.as_secs_f64() / native.finished.wall.as_secs_f64()
}

fn demo(name: &str, size_bytes: u64) -> Result<ExitCode> {
    let scenario = programs::named(name).with_context(|| format!("no program '{name}'; see 'list'"))?;
    if let Some(reason) = skips::missing(scenario.needs) {
        bail!("the demo cannot run: {reason}");
    }
    let limit = Duration::from_secs(1800);
    println!("{}: {}\n", scenario.name, scenario.about);
    let place = native::prepare(scenario, size_bytes)?;
    let native = native::run_native(scenario, &place, limit)?;
    let budget_bytes = managed::budget_bytes(&native);
    let managed = managed::run_managed(scenario, &place, &Variant::DEFAULT, budget_bytes, limit)?;
    let violations = verdict::violations(scenario, &Variant::DEFAULT, &native, &managed);

    let mib = |bytes: u64| format!("{} MiB", bytes / MIB);
    let row = |what: &str, left: String, right: String| println!("{what:<34}{left:>18}{right:>18}");
    row("", "native".into(), "under Hinterland".into());
    let digest = managed.digest.as_ref().map_or("none".into(), |digest| digest[..16].to_owned());
    row("digest of the output", native.digest[..16].to_owned(), digest);
    row("local memory allowed", "all".into(), mib(budget_bytes));
    let seconds = |finished: &hinterland_tests::process::Finished| format!("{:.2} s", finished.wall.as_secs_f64());
    row("wall time", seconds(&native.finished), seconds(&managed.finished));
    if let Ok(stats) = &managed.stats {
        row(
            "peak of pages in local memory",
            mib(native.finished.anonymous_peak_bytes),
            mib(stats.resident_managed_peak_bytes),
        );
    }
    let (left, right) = (native.finished.resident_peak_bytes, managed.finished.resident_peak_bytes);
    row("peak RSS, compressed far pages too", mib(left), mib(right));
    println!("\nThe summary of hinterland run:\n{}\n", managed.stderr);
    if violations.is_empty() {
        println!("The outputs are equal.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("NOT as promised:\n  - {}", violations.join("\n  - "));
    Ok(ExitCode::FAILURE)
}

/// For other harnesses. A program with a client of the tests' is none for them.
fn write_line(name: &str, size_bytes: u64) -> Result<ExitCode> {
    let scenario = programs::named(name).with_context(|| format!("no program '{name}'; see 'list'"))?;
    if let Some(reason) = skips::missing(scenario.needs) {
        bail!(reason);
    }
    if scenario.beside.is_some() {
        bail!("{name} is a server: its client is the tests' own");
    }
    let place = native::prepare(scenario, size_bytes)?;
    let line = (scenario.command)(&place);
    let environment: std::collections::BTreeMap<_, _> = line.env.into_iter().collect();
    println!("{}", serde_json::json!({"words": line.words, "environment": environment, "outputs": scenario.outputs}));
    Ok(ExitCode::SUCCESS)
}

/// What the rows so far say, as the files of `docs/results` that are made of them.
fn write_results() -> Result<ExitCode> {
    let directory = places::repository().join("docs/results");
    let write = |name: &str, text: String| {
        println!("writes {}", directory.join(name).display());
        std::fs::write(directory.join(name), text)
    };
    let rows = |file: &Path| std::fs::read_to_string(file).map(|text| published::last_rows(&text));
    let (programs, runtimes) = (rows(&results::file()), rows(&results::runtimes_file()));
    if programs.is_err() && runtimes.is_err() {
        bail!("no runs so far: use 'run' or ./dev test");
    }
    if let Ok(rows) = programs {
        write("programs.json", serde_json::to_string_pretty(&rows?)? + "\n")?;
    }
    if let Ok(rows) = runtimes {
        let results = published::runtimes(&rows?);
        write("runtimes.json", serde_json::to_string_pretty(&results)? + "\n")?;
        write("runtimes.md", published::runtimes_table(&results))?;
    }
    Ok(ExitCode::SUCCESS)
}
