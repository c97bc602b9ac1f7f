//! What the simulator predicts is what happens: the same touches, by a real program and replayed, have as many faults. So has a
//! program that was recorded.

use anyhow::{Context, Result, ensure};
use hinterland_sim::{FaultPath, LinkModel, ReplayStats, Setup, pages_in_order, simulate};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::{Once, Trial};
use hinterland_tests::{MIB, Need, places, skips, suite};
use hinterland_units::{Budget, ByteCount};
use std::sync::Arc;

/// Pages of the program, 64 MiB, of which a quarter is local.
const PAGES: u32 = 16_384;
const LOCAL_MIB: u64 = 16;
/// Touches after the first ones, and before the last ones.
const TOUCHES: u32 = 2 * PAGES;
/// Processor time of a touch: the program does next to nothing.
const TOUCH_NS: u64 = 20;

const PATHS: [&str; 2] = ["monitor", "inline"];

/// A program that is recorded once, for both fault paths.
struct Recorded {
    name: &'static str,
    obstacle: fn() -> Option<String>,
    command: fn() -> Result<Vec<String>>,
    /// What it prints, in part.
    prints: &'static str,
    recording: Once<Recording>,
}

struct Recording {
    command: Vec<String>,
    trace: String,
    printed: String,
}

/// Small objects, reached by keys that have nothing to do with where they lie.
fn objects() -> Recorded {
    Recorded {
        name: "python",
        obstacle: || skips::missing(&[Need::Program("python3")]).or_else(skips::no_userfaultfd),
        command: || Ok(["/usr/bin/env", "PYTHONHASHSEED=0", "python3", "-c", OBJECTS].map(str::to_owned).into()),
        prints: "sum ",
        recording: Once::new(),
    }
}

const OBJECTS: &str = "\
import random
random.seed(2)
table = {random.getrandbits(40): [number, str(number)] for number in range(120000)}
print('sum', sum(table[key][0] * len(table[key][1]) for key in sorted(table)))";

/// A program in C, whose heap is one buffer: lines in no order, of which two fifths are local while they are merged.
fn sort() -> Recorded {
    Recorded {
        name: "sort",
        obstacle: skips::no_userfaultfd,
        command: || {
            let input = places::emptied(places::tests().join("lifecycle/lifecycle-simulated-recorded-sort-input"))?
                .join("lines");
            // Long lines: each comparison is a reference of the trace, and there are as many as lines times their number's logarithm.
            let line = |number: u64| format!("{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(50) + "\n";
            std::fs::write(&input, (0..40_000).map(line).collect::<String>())?;
            let words = ["/usr/bin/env", "LC_ALL=C", "sort", "-S", "200M", "--parallel=1", "-o", "/dev/null"];
            Ok(words.map(str::to_owned).into_iter().chain([input.display().to_string()]).collect())
        },
        prints: "",
        recording: Once::new(),
    }
}

/// Orders, policies, prefetchers. Not `next-n`: pages that it maps make no fault, and how many come in time depends on when its
/// thread gets a processor.
const CASES: [(&str, &str, &str); 7] = [
    ("sequential", "s3-fifo", "none"),
    ("stride", "s3-fifo", "none"),
    ("random", "s3-fifo", "none"),
    ("random", "2q", "none"),
    ("skewed", "s3-fifo", "none"),
    ("skewed", "second-chance", "none"),
    ("random", "s3-fifo", "leap"),
];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let runs = CASES.iter().flat_map(|case| PATHS.map(|path| (*case, path)));
    runs.map(|((order, evict, prefetch), path)| {
        let name = format!("lifecycle::simulated::{order}::{evict}::{prefetch}::{path}");
        suite::trial(name.clone(), skips::no_userfaultfd, move || agrees(&name, order, evict, prefetch, path))
    })
    .chain([objects(), sort()].into_iter().flat_map(|recorded| {
        let recorded = Arc::new(recorded);
        PATHS.map(|path| {
            let (name, recorded) =
                (format!("lifecycle::simulated::recorded::{}::{path}", recorded.name), recorded.clone());
            suite::trial(name.clone(), recorded.obstacle, move || agrees_with_a_recording(&name, path, &recorded))
        })
    }))
    .collect()
}

/// The pages that `walker.c` touches.
fn touched(order: &str) -> impl Iterator<Item = u32> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 32
    };
    let (order, pages) = (order.to_owned(), u64::from(PAGES));
    let middle = (0..u64::from(TOUCHES)).map(move |touch| match order.as_str() {
        "sequential" => touch % pages,
        "stride" => {
            let column = pages / 10;
            let at = touch % (column * 10);
            at % column * 10 + at / column
        }
        "random" => random() % pages,
        _ => {
            let share = random();
            let cube = (((share * share) >> 32) * share) >> 32;
            ((cube * pages) >> 32) * 7919 % pages
        }
    });
    let middle = middle.map(|page| u32::try_from(page).expect("a page of the program"));
    (0..PAGES).chain(middle).chain(0..PAGES)
}

fn predicted(order: &str, evict: &str, prefetch: &str, path: &str) -> Result<ReplayStats> {
    let work = pages_in_order(touched(order), TOUCH_NS)?;
    // Compressed memory is no link: what a page costs there is in the decompression.
    let link: LinkModel = "1us:100Gb/s".parse()?;
    let path = if path == "inline" { FaultPath::Inline } else { FaultPath::Monitor };
    let local = Budget::Bytes(ByteCount(LOCAL_MIB * MIB));
    let setup = Setup::new(local, link).on(path);
    Ok(simulate(&work, &setup, evict, prefetch, &mut |_| {})?)
}

fn agrees(name: &str, order: &str, evict: &str, prefetch: &str, path: &str) -> Result<()> {
    let program = c_program("walker", &[])?.display().to_string();
    let (pages, touches) = (PAGES.to_string(), TOUCHES.to_string());
    let local = format!("{LOCAL_MIB}M");
    let arguments =
        ["--local", &local, "--far", "compressed", "--fault-path", path, "--evict", evict, "--prefetch", prefetch];
    let ended = Launch::new(name, &arguments, &[&program, &pages, order, &touches])?.run()?;
    let stats = ended.expect(0, "done")?.stats()?;
    let count = |name: &str| stats[name].as_u64().with_context(|| format!("no {name}: {stats}"));
    let (major, minor, hits) = (count("major_faults")?, count("minor_faults")?, count("prefetch_hits_observed")?);
    let found = predicted(order, evict, prefetch, path)?;
    let (real, simulated) = (major + minor + hits, found.major + found.minor + found.prefetch_hits);
    ensure!(real > 1000, "the program hardly paged: {stats}");
    ensure!(
        real.abs_diff(simulated) * 10 <= real,
        "{real} faults on far memory ({major} major, {minor} minor, {hits} on prefetched pages), and the simulator found {simulated}: \
         {found:?}"
    );
    Ok(())
}

impl Recorded {
    /// The recording; the first of those that need it makes it.
    fn recording(&self) -> Result<&Recording> {
        self.recording.get(|| self.record())
    }

    fn record(&self) -> Result<Recording> {
        let command = (self.command)()?;
        let words = ["trace", "-o", "app.trace", "--"].into_iter().chain(command.iter().map(String::as_str));
        let name = format!("lifecycle::simulated::recorded::{}::trace", self.name);
        let launch = Launch::bare(&name, &words.collect::<Vec<_>>())?;
        let trace = launch.directory.join("app.trace").display().to_string();
        let printed = launch.run()?.expect(0, self.prints)?.stdout.clone();
        Ok(Recording { command, trace, printed })
    }
}

/// The commands, as a user gives them: what `sim` finds in a trace of a program is what `run` has.
fn agrees_with_a_recording(name: &str, path: &str, of: &Recorded) -> Result<()> {
    let Recording { command, trace, printed } = of.recording()?;
    let program: Vec<&str> = command.iter().map(String::as_str).collect();
    let local = format!("{LOCAL_MIB}M");
    let of_both = ["--local", &local, "--prefetch", "none", "--fault-path", path];

    let real =
        Launch::new(&format!("{name}::run"), &[&of_both[..], &["--far", "compressed"]].concat(), &program)?.run()?;
    let stats = real.expect(0, printed)?.stats()?;
    let replay = [&["sim", trace, "--evict", "s3-fifo", "--link", "1us:100Gb/s", "--json"], &of_both[..]].concat();
    let replay: serde_json::Value =
        serde_json::from_str(&Launch::bare(&format!("{name}::sim"), &replay)?.run()?.expect(0, "")?.stdout)?;
    let row = &replay["rows"][0];

    let faults = |of: &serde_json::Value| Some(of["major_faults"].as_u64()? + of["minor_faults"].as_u64()?);
    let (real, simulated) = (faults(&stats).context("no faults")?, faults(row).context("no faults")?);
    ensure!(real > 10_000, "the program hardly paged: {stats}");
    ensure!(
        real.abs_diff(simulated) * 10 <= real,
        "{real} faults on far memory, and the simulator found {simulated}: {row}"
    );
    Ok(())
}
