//! Everything at once for an hour: each program and each runtime again and again, all at the same time on far fewer processors than
//! they would keep busy, with settings drawn at random. What a schedule of the short tests never meets, one of these may.

use crate::e2e::Natives;
use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use hinterland_tests::runs::{self, SMALL_SIZE_BYTES};
use hinterland_tests::suite::{self, Share, Trial};
use hinterland_tests::{AUTO, MIB, PATHS, Scenario, Variant, managed, native, programs, runtimes, skips, verdict};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long, unless `HINTERLAND_TEST_SOAK` names other seconds.
const LASTS: Duration = Duration::from_secs(3600);
/// Memory that one program may take with everything of Hinterland's, its far pages and its nodes, above which fewer run at a time.
const BYTES_EACH: u64 = 512 * MIB;

/// The test of this file.
pub fn trials(natives: Arc<Natives>) -> Vec<Trial> {
    vec![
        suite::trial("e2e::soak", || skips::not_full().or_else(skips::no_userfaultfd), move || soak(&natives))
            .taking(Share::Alone),
    ]
}

/// A program, how large, and what it may be run with.
struct Soaked {
    scenario: &'static Scenario,
    size_bytes: u64,
    budget_bytes: fn(&native::Native) -> u64,
    variants: Vec<Variant>,
}

/// All that can run on this machine: the programs with every combination of settings, the runtimes on each fault path.
fn soaked() -> Vec<Soaked> {
    let product = runs::product();
    let variants = |name: &str| product.iter().filter(|run| run.scenario.name == name).map(|run| run.variant).collect();
    let programs = programs::ALL.iter().map(|scenario| Soaked {
        scenario,
        size_bytes: SMALL_SIZE_BYTES,
        budget_bytes: managed::budget_bytes,
        variants: variants(scenario.name),
    });
    let runtimes = runtimes::ALL.iter().map(|runtime| Soaked {
        scenario: &runtime.scenario,
        size_bytes: runtimes::SIZE_BYTES,
        budget_bytes: runtimes::budget_bytes,
        variants: runtime
            .paths(&PATHS[..2])
            .chain((!runtime.by_shell).then_some(AUTO))
            .map(|path| Variant { path, ..Variant::DEFAULT })
            .collect(),
    });
    programs.chain(runtimes).filter(|soaked| skips::missing(soaked.scenario.needs).is_none()).collect()
}

/// What the programs that run at the same time share.
struct Soak {
    ends: Instant,
    seed: u64,
    /// A run was wrong: no other begins.
    failed: AtomicBool,
    runs: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

fn soak(natives: &Natives) -> Result<()> {
    let seconds =
        |name: &str| std::env::var(name).ok().map(|text| text.parse().with_context(|| format!("{name}={text}")));
    let lasts = seconds("HINTERLAND_TEST_SOAK").transpose()?.map_or(LASTS, Duration::from_secs);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = seconds("HINTERLAND_TEST_SOAK_SEED").transpose()?.unwrap_or(clock);

    let mut soaked = soaked();
    for one in &soaked {
        natives.of(one.scenario, one.size_bytes)?;
    }
    let mut rng = Rng::with_seed(seed);
    rng.shuffle(&mut soaked);
    // Each lane runs its programs in turn; on a machine with memory enough, each has a lane of its own.
    let lanes = usize::try_from(available_bytes()? / BYTES_EACH)?.clamp(1, soaked.len());
    println!("{} programs in {lanes} lanes for {} s, HINTERLAND_TEST_SOAK_SEED={seed}", soaked.len(), lasts.as_secs());

    let soak = Soak {
        ends: Instant::now() + lasts,
        seed,
        failed: AtomicBool::new(false),
        runs: AtomicU64::new(0),
        wrong: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for lane in 0..lanes {
            let (soak, of_lane) = (&soak, soaked.iter().skip(lane).step_by(lanes).collect::<Vec<_>>());
            scope.spawn(move || soak.lane(lane, &of_lane, natives));
        }
    });
    let runs = soak.runs.into_inner();
    let wrong = soak.wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{runs} runs");
    ensure!(wrong.is_empty(), "seed {seed}, after {runs} runs: {}", wrong.join("\n"));
    ensure!(
        runs >= soaked.len() as u64,
        "only {runs} runs of {} programs ended in {} s",
        soaked.len(),
        lasts.as_secs()
    );
    Ok(())
}

impl Soak {
    /// Runs the programs of a lane one after the other until the time is over, each at least once.
    fn lane(&self, lane: usize, soaked: &[&Soaked], natives: &Natives) {
        let mut rng = Rng::with_seed(self.seed.wrapping_add(1 + lane as u64));
        for turn in 0.. {
            let late = Instant::now() >= self.ends && turn >= soaked.len();
            if late || self.failed.load(Relaxed) || suite::watchdog::is_ended() {
                return;
            }
            let one = soaked[turn % soaked.len()];
            let variant = one.variants[rng.usize(..one.variants.len())];
            if let Err(error) = one.run(variant, lane, natives) {
                self.failed.store(true, Relaxed);
                let text = format!("{} with {variant}, turn {turn} of lane {lane}: {error:#}", one.scenario.name);
                self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            }
            self.runs.fetch_add(1, Relaxed);
        }
    }
}

impl Soaked {
    /// One run, which must have the output of the native one and keep all other promises.
    fn run(&self, variant: Variant, lane: usize, natives: &Natives) -> Result<()> {
        let (place, native) = natives.of(self.scenario, self.size_bytes)?;
        let budget_bytes = (self.budget_bytes)(&native);
        // Names of sockets are short: a lane's slot is all that tells its runs apart.
        let place = place.in_slot(lane);
        let managed = managed::run_managed(self.scenario, &place, &variant, budget_bytes, Duration::MAX)?;
        let violations = verdict::violations(self.scenario, &variant, &native, &managed);
        if violations.is_empty() {
            return Ok(());
        }
        bail!("it {}\nstandard error ends with:\n{}", violations.join(";\n  "), managed.stderr)
    }
}

/// Memory that could be had now.
fn available_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("no MemAvailable")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
