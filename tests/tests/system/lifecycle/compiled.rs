//! Programs that are compiled with the compiler's plugin: the same output as without, alone and in little memory; hints that are true.

use anyhow::{Context, Result, ensure};
use hinterland_tests::installation::PLUGIN;
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::{NamedTest, Once, Trial};
use hinterland_tests::{places, skips, suite};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: &str, skip: fn() -> Option<String>, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::compiled::{name}"), skip, test));
    };
    add("alone", no_llvm, Box::new(alone));
    add("noted", no_llvm, Box::new(noted));
    add("recorded", no_llvm, Box::new(recorded));
    add("remarks", no_llvm, Box::new(remarks));
    add("named", no_llvm, Box::new(named));
    add("promises", no_llvm, Box::new(promises));
    add("kept", no_llvm, Box::new(kept));
    add("certain", no_llvm, Box::new(certain));
    add("left", no_llvm, Box::new(left));
    add("early", no_llvm, Box::new(early));
    add("near", no_llvm, Box::new(near));
    add("calls", no_llvm, Box::new(calls));
    add("long_rows", no_llvm, Box::new(long_rows));
    add("deep", no_llvm, Box::new(deep));
    add("fused", no_llvm, Box::new(fused));
    add("linked", no_lld, Box::new(linked));
    add("across", no_lld, Box::new(across));
    add("shapes", no_llvm, Box::new(shapes));
    add("templates", no_llvm, Box::new(templates));
    add("programs", no_llvm, Box::new(programs));
    add("rust", no_rust, Box::new(rust));
    add("rust_checked", no_rust, Box::new(rust_checked));
    add("followed", no_far_llvm, Box::new(followed));
    add("scattered", no_far_llvm, Box::new(scattered));
    add("left_and_called", no_far_llvm, Box::new(left_and_called));
    add("other_input", no_far_llvm, Box::new(other_input));
    add("kept_in_little_memory::inline", no_far_llvm, Box::new(|name| kept_in_little_memory(name, "inline")));
    add("kept_in_little_memory::monitor", no_far_llvm, Box::new(|name| kept_in_little_memory(name, "monitor")));
    add("overwritten::inline", no_far_llvm, Box::new(|name| overwritten(name, "inline")));
    add("overwritten::monitor", no_far_llvm, Box::new(|name| overwritten(name, "monitor")));
    add("far::inline", no_far_llvm, Box::new(|name| far(name, "inline")));
    add("far::monitor", no_far_llvm, Box::new(|name| far(name, "monitor")));
    trials
}

pub fn no_llvm() -> Option<String> {
    let missing = ["clang-22", "clang++-22", "llvm-config-22"].into_iter().find(|name| skips::find(name).is_none());
    missing.map(|name| format!("{name} is not installed (./dev setup, where the distribution has LLVM 22)"))
}

/// Why nothing can be linked by LLVM's linker with the plugin.
fn no_lld() -> Option<String> {
    no_llvm().or_else(|| skips::find("ld.lld-22").is_none().then(|| "ld.lld-22 is not installed".to_owned()))
}

/// A rustc whose bitcode the linker with the plugin reads.
pub fn no_rust() -> Option<String> {
    let has_llvm = |rustc: &str| {
        let said = Command::new(rustc).arg("-vV").output().ok()?;
        String::from_utf8_lossy(&said.stdout).contains("LLVM version: 22.").then_some(())
    };
    let no_rustc = has_llvm("rustc").is_none().then(|| "rustc has another LLVM than 22".to_owned());
    no_lld().or(no_rustc)
}

pub fn no_far_llvm() -> Option<String> {
    no_llvm().or_else(skips::no_userfaultfd)
}

/// Where what these tests compile lies, by the test's name.
pub fn built(test: &str, file: &str) -> PathBuf {
    places::tests().join("bin").join(format!("{}_{file}", test.replace("::", "_")))
}

pub fn source(file: &str) -> String {
    places::program("compiler").join(file).display().to_string()
}

/// The plugin, beside the launcher.
pub fn build_plugin() -> Result<()> {
    static BUILT: Once<()> = Once::new();
    let build = || {
        let plugin = places::launcher()?.with_file_name(PLUGIN);
        let made = Command::new(places::repository().join("compiler/build")).arg(plugin).output()?;
        ensure!(made.status.success(), "compiler/build: {}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    };
    BUILT.get(build).copied()
}

/// `hinterland LANGUAGE WORDS`, with the plugin built; what clang says.
pub fn compile(test: &str, language: &str, words: &[&str]) -> Result<String> {
    build_plugin()?;
    std::fs::create_dir_all(places::tests().join("bin"))?;
    let ended =
        Launch::bare(&format!("{test}-cc"), &[&[language, "-fverify-intermediate-code"], words].concat())?.run()?;
    ensure!(ended.code == 0, "{words:?}: {}", ended.stderr);
    Ok(ended.stderr)
}

/// `loops.c`, all of whose loops its plan wants hinted.
fn loops(test: &str, flags: &[&str]) -> Result<PathBuf> {
    hinted(test, "loops", flags)
}

/// A program all of whose loops its plan wants hinted.
fn hinted(test: &str, program: &str, flags: &[&str]) -> Result<PathBuf> {
    let to = built(test, program);
    let [plan, code] = ["plan", "c"].map(|kind| source(&format!("{program}.{kind}")));
    let words = ["-O2", "--far-plan", &plan, &code, "-o", &to.display().to_string()];
    compile(test, "cc", &[&words, flags].concat())?;
    Ok(to)
}

/// What a command prints, which ends well.
pub fn printed(command: &mut Command) -> Result<(String, String)> {
    let output = command.output()?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.success(), "{command:?}: {:?}: {stderr}", output.status);
    Ok((stdout, stderr))
}

fn plain_output() -> Result<String> {
    Ok(printed(&mut Command::new(c_program("compiler/loops", &[])?))?.0)
}

/// Without Hinterland a program is as it was, however it was linked.
fn alone(test: &str) -> Result<()> {
    let expected = plain_output()?;
    for flags in
        [&[][..], &["-fno-pic", "-no-pie"], &["-static"], &["-O3", "-march=native"], &["-flto", "-fuse-ld=lld"]]
    {
        let (output, _) = printed(&mut Command::new(loops(test, flags)?))?;
        ensure!(output == expected, "{flags:?}: {output}");
    }
    Ok(())
}

/// The note has the version of the interface and the digest of the plan.
fn noted(test: &str) -> Result<()> {
    let program = loops(test, &[])?;
    let (notes, _) = printed(Command::new("readelf").args(["--notes", "--wide"]).arg(program))?;
    let (digest, _) = printed(Command::new("sha256sum").arg(source("loops.plan")))?;
    let note = notes.lines().skip_while(|line| !line.contains(".note.hinterland")).collect::<Vec<_>>().join("\n");
    let digits: String =
        note.rsplit("description data:").next().context("no data")?.split_whitespace().take(36).collect();
    ensure!(note.contains("Hinterland "), "{notes}");
    ensure!(digits.strip_prefix("01000000") == digest.get(..64), "{digits}, {digest}");
    Ok(())
}

/// What the recorder saw of one object.
struct Seen {
    touched: u32,
    ahead: u32,
    evicted: u32,
    again: u32,
}

/// Each fetch names what the loop touches next and nothing else; what was evicted is not touched again.
fn recorded(test: &str) -> Result<()> {
    let (program, expected) = (loops(test, &[])?, plain_output()?);
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    for distance in ["0", "1", "500", "1000000"] {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distance);
        let (output, report) = printed(&mut command)?;
        ensure!(output == expected, "{distance}: {output}");
        let (mut objects, mut kernels) = (0, 0);
        for line in report.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |name: &str| -> Result<u32> {
                let at = words.iter().position(|word| *word == name).with_context(|| format!("{name}: {line}"))?;
                Ok(words.get(at + 1).context("a number")?.parse()?)
            };
            if words.first() == Some(&"strayed") {
                ensure!(number("strayed")? == 0, "{distance}: {line}");
                ensure!(number("begins")? > 0, "{distance}: {line}");
                continue;
            }
            if words.get(1) == Some(&"evicted") {
                // Only what comes no more.
                let evicts = distance != "0" && !line.starts_with("overlapping_") && !line.starts_with("sliding_");
                ensure!(
                    (number("evicted")? > 40) == evicts && (number("evicted")? > 0) == evicts,
                    "{distance}: {line}"
                );
                kernels += 1;
                continue;
            }
            objects += 1;
            let seen = Seen {
                touched: number("touched")?,
                ahead: number("ahead")?,
                evicted: number("evicted")?,
                again: number("again")?,
            };
            check(words.first().copied().unwrap_or_default(), &seen, distance != "0")
                .with_context(|| format!("{distance}: {line}"))?;
        }
        ensure!(objects == 17 && kernels == 7, "{distance}: {report}");
    }
    Ok(())
}

fn check(object: &str, seen: &Seen, is_hinted: bool) -> Result<()> {
    ensure!(seen.touched >= 40 && seen.again == 0);
    if !is_hinted {
        ensure!(seen.ahead == 0 && seen.evicted == 0);
        return Ok(());
    }
    // The first iteration is touched at once, with what its slice reads. Of a long row the first 64 MiB are fetched.
    let late = if object == "long_rows" { seen.touched / 10 } else { 2 };
    ensure!(seen.ahead + late >= seen.touched);
    let leaves = ["values", "records", "edges", "rows", "columns", "matrix", "to", "square"].contains(&object);
    ensure!(if leaves { seen.evicted + 5 >= seen.touched } else { seen.evicted == 0 });
    Ok(())
}

/// Every insertion and every refusal is said, with its reason. `UPDATE_REFERENCE=1` writes the file anew.
fn remarks(test: &str) -> Result<()> {
    ["loops", "overwrites", "fused", "certain", "left", "calls"]
        .into_iter()
        .try_for_each(|program| remarks_of(test, program, "c", "cc"))?;
    remarks_of(test, "kept", "cpp", "c++")
}

fn remarks_of(test: &str, program: &str, kind: &str, language: &str) -> Result<()> {
    let to = built(test, program).display().to_string();
    let [plan, code, reference] = ["plan", kind, "remarks"].map(|kind| source(&format!("{program}.{kind}")));
    let words = ["-O2", "-w", "-Rpass=hinterland", "-Rpass-missed=hinterland", "-fno-caret-diagnostics", "--far-plan"];
    let said = compile(test, language, &[&words[..], &[&plan, &code, "-o", &to]].concat())?;
    let mut lines: Vec<&str> =
        said.lines().filter_map(|line| Some(line.split_once(&format!("{program}.{kind}:"))?.1)).collect();
    lines.retain(|line| !line.contains("the plan does not name its function"));
    lines.sort_by_key(|line| line.split(':').take(2).filter_map(|word| word.parse().ok()).collect::<Vec<u32>>());
    let said = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&reference, &said)?;
    }
    ensure!(std::fs::read_to_string(&reference)? == said, "other remarks than in {reference}:\n{said}");
    Ok(())
}

/// A plan's functions and allocations are found under any of their names, also where they are inlined, with and without debug information;
/// what is not there is listed.
fn named(test: &str) -> Result<()> {
    let to = built(test, "names").display().to_string();
    let [plan, code] = ["plan", "cpp"].map(|kind| source(&format!("names.{kind}")));
    let words = ["-O2", "-w", "-Rpass=hinterland", "-Rpass-missed=hinterland", "-fno-caret-diagnostics", "--far-plan"];
    for flags in [&[][..], &["-g"]] {
        let said = compile(test, "c++", &[&words[..], &[&plan, &code, "-o", &to], flags].concat())?;
        // Of each function a loop, by its line; `main` is there by its symbol.
        for line in [12, 29, 34, 41, 53, 72] {
            let is_hinted =
                |said: &str| said.contains(&format!("names.cpp:{line}:")) && said.contains("is fetched ahead");
            ensure!(said.lines().any(is_hinted), "{flags:?}: no hints in line {line}: {said}");
        }
        let passed_over = |said: &str| said.contains("names.cpp:47:") && said.contains("is fetched ahead");
        ensure!(!said.lines().any(passed_over), "{flags:?}: the overload has its sibling's entry: {said}");
        let of_site = |said: &&str| said.contains("names.cpp:72:") && said.contains("; evicted behind");
        ensure!(said.lines().filter(of_site).count() == 1, "{flags:?}: {said}");
        let missing: Vec<&str> = said
            .lines()
            .filter_map(|line| Some(line.split_once(" is not in this file: ")?.1.split_once(" [")?.0))
            .collect();
        ensure!(
            missing == ["shapes::Grid<long>::gather:1", "main", "renamed", "shapes::zero:60", "main:7"],
            "{flags:?}: {missing:?}"
        );
    }
    Ok(())
}

/// What is promised to be overwritten may be gone at once, and the output is the same; nothing is promised that is not proven.
fn promises(test: &str) -> Result<()> {
    let expected = printed(&mut Command::new(c_program("compiler/overwrites", &[])?))?.0;
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    for flags in [&[][..], &["-O3", "-march=native"], &["-flto", "-fuse-ld=lld"]] {
        let program = hinted(test, "overwrites", flags)?;
        ensure!(printed(&mut Command::new(&program))?.0 == expected, "{flags:?}: alone");
        for (distance, promises) in [("0", false), ("1", true), ("500", true)] {
            let mut command = Command::new(&program);
            command.env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distance);
            let (output, report) = printed(&mut command)?;
            ensure!(output == expected, "{flags:?}, {distance}: {output}");
            let promised = report.lines().next().and_then(|line| line.rsplit(' ').next()).context("a report")?;
            ensure!((promised.parse::<u32>()? > 1000) == promises, "{flags:?}, {distance}: {report}");
        }
    }
    Ok(())
}

/// `kept.cpp` without the plugin, and with its plan.
fn kept_programs(test: &str, flags: &[&str]) -> Result<[PathBuf; 2]> {
    let [plain, hinted] = ["plain", "hinted"].map(|file| built(test, file));
    let [plan, code] = ["plan", "cpp"].map(|kind| source(&format!("kept.{kind}")));
    printed(Command::new("clang++-22").args(["-O2", &code, "-o"]).arg(&plain))?;
    let words = ["-O2", "--far-plan", &plan, &code, "-o", &hinted.display().to_string()];
    compile(test, "c++", &[&words, flags].concat())?;
    Ok([plain, hinted])
}

/// Of each kernel of `kept.cpp`: how often something is kept; and how often what it expects to be. Rounds walk their indices again, too.
const KEEPS: [(&str, u32, u32); 23] = [
    ("gathered", 1, 1),
    ("cleared", 1, 1),
    ("created", 1, 1),
    ("until", 1, 1),
    ("found", 1, 1),
    ("thrown", 1, 1),
    ("checked", 1, 1),
    ("unchecked", 1, 1),
    ("rounds", 2, 1),
    ("out", 1, 1),
    ("own", 4, 0),
    ("rewalked", 1, 1),
    ("unwalked", 0, 0),
    ("backwards", 1, 1),
    ("empty", 0, 0),
    ("several", 3, 1),
    ("sited", 1, 1),
    ("one", 1, 1),
    ("once", 0, 0),
    ("unsized", 0, 0),
    ("called", 0, 0),
    ("unhinted", 0, 0),
    ("jumped", 0, 0),
];

/// What a plan wants last is kept while the outermost loop runs that comes to it again, and is released behind each of its ends: its count, `break`,
/// `return`, and where it throws. Nothing is kept where a call in the loop may not return, and nothing that is walked once.
fn kept(test: &str) -> Result<()> {
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    for flags in [&[][..], &["-flto", "-fuse-ld=lld"]] {
        let [plain, program] = kept_programs(test, flags)?;
        let (expected, _) = printed(&mut Command::new(plain))?;
        ensure!(printed(&mut Command::new(&program))?.0 == expected, "{flags:?}: alone");
        for distance in ["0", "1", "500", "later,3"] {
            let mut command = Command::new(&program);
            command.env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distance);
            let (output, report) = printed(&mut command)?;
            ensure!(output == expected, "{flags:?}, {distance}: {output}");
            let line = |(kernel, keeps, whole)| format!("{kernel} keeps {keeps} whole {whole} left 0\n");
            ensure!(report == KEEPS.map(line).concat(), "{flags:?}, {distance}: {report}");
        }
    }
    Ok(())
}

/// What is kept of a program in little memory, and the same output.
fn kept_in_little_memory(test: &str, path: &str) -> Result<()> {
    let [plain, hinted] = kept_programs(test, &[])?;
    let (expected, _) = printed(Command::new(&plain).arg("far"))?;
    let options = ["--local", "16M", "--fault-path", path, "--quiet"];
    let ended = Launch::new(test, &options, &[&hinted.display().to_string(), "far"])?.run()?;
    ended.expect(0, &expected)?.expect_paging()?;
    // 2 MiB in each of three rounds.
    let kept = ended.stats()?["hint_kept_pages"].as_u64().context("no hints in the figures")?;
    ensure!((3 * 512..=3 * 514).contains(&kept), "{kept} pages were kept");
    Ok(())
}

/// What a loop may not read, or may not keep, is neither read ahead nor promised: cases of `certain.c`.
fn certain(test: &str) -> Result<()> {
    let (plain, program) = (c_program("compiler/certain", &["-pthread"])?, hinted(test, "certain", &["-pthread"])?);
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    let of_threads = ["acquired", "asked", "waited"];
    let of_memory =
        ["counted", "guarded", "broken", "left", "carried", "inlined", "opened", "released", "released_rows"];
    for case in of_threads.into_iter().chain(of_memory) {
        let (expected, _) = printed(Command::new(&plain).arg(case))?;
        for distance in ["1", "500", "64,0"] {
            let mut command = Command::new(&program);
            command.arg(case).env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distance);
            let (output, _) = printed(&mut command).with_context(|| format!("{case}, {distance}"))?;
            ensure!(output == expected, "{distance}: {output}, not {expected}");
        }
    }
    Ok(())
}

/// Loops that can be left in the middle of an iteration: cases of `left.c`, and the part of what each touches that was fetched before, in hundredths.
fn left(test: &str) -> Result<()> {
    let fetched = [
        ("checked", 90),
        ("failed", 90),
        ("until", 90),
        ("backwards", 90),
        ("walked", 90),
        ("found", 90),
        ("stepped", 99),
        ("rows", 95),
        ("chosen", 90),
        ("written", 95),
        // What leads to their indices may not be there.
        ("twice", 0),
        ("released", 0),
    ];
    each_case(test, "left", "values", &fetched)?;
    // Without a plan a search has no hints, and a loop with checks has them.
    let (code, to) = (source("left.c"), built(test, "default").display().to_string());
    let words = ["-O2", "-w", "-Rpass=hinterland", "-Rpass-missed=hinterland", "-fno-caret-diagnostics", &code];
    let said = compile(test, "cc", &[&words[..], &["-o", &to]].concat())?;
    let says = |line: u32, words: &str| {
        said.lines().any(|said| said.contains(&format!("left.c:{line}:")) && said.contains(words))
    };
    ensure!(says(27, "is fetched ahead: indirect; its indices are read ahead"), "{said}");
    ensure!(says(34, "loop is not hinted: it may be left early"), "{said}");
    Ok(())
}

/// What functions touch that a loop calls is fetched before: cases of `calls.c`, as in `left`.
fn calls(test: &str) -> Result<()> {
    let fetched = [("each", 99), ("some", 99), ("pointed", 99), ("marked", 99), ("stopped", 0), ("stuck", 0)];
    each_case(test, "calls", "items", &fetched)?;
    // Rows that the function's other arguments bound; what it hands on; where rows begin whose length may not be there; not what may recur, or is the
    // same in each iteration.
    let rows = [
        ("lines", 99),
        ("ragged", 99),
        ("counted", 99),
        ("corners", 99),
        ("filled", 99),
        ("through", 99),
        ("until", 40),
        ("recursive", 0),
        ("again", 0),
    ];
    each_case(test, "calls", "matrix", &rows)?;
    each_case(test, "calls", "values", &[("smooth", 99)])
}

/// Rows of which a call walks more than 64 MiB: the beginning of each is fetched where it is certain that it is walked, and else nothing;
/// nothing of one that has a length of 0, or below. Cases of `calls.c`.
fn long_rows(test: &str) -> Result<()> {
    let not_fetched = ["wide_chosen", "wide_written", "wide_empty", "wide_none"];
    let cases = [("wide", 90), ("wide_loaded", 90)].into_iter().chain(not_fetched.map(|case| (case, 0)));
    each_case(test, "calls", "matrix", &cases.collect::<Vec<_>>())?;
    let program = hinted(test, "calls", &[])?;
    for case in not_fetched {
        let (_, report) = seen(&program, case, "500", None)?;
        ensure!(number(&report, "begins")? > 0 && number(&report, "fetched")? == 0, "{case}: {report}");
    }
    Ok(())
}

/// What a hinted program prints under the recorder, and what that has seen; `far`: the pages of the watched object that are.
fn seen(program: &Path, case: &str, distance: &str, far: Option<&str>) -> Result<(String, String)> {
    let mut command = Command::new(program);
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    command.arg(case).env("LD_PRELOAD", recorder).env("HINTED_DISTANCE", distance);
    command.envs(far.map(|far| ("HINTED_FAR", far)));
    printed(&mut command).with_context(|| format!("{case}, {distance}"))
}

/// A figure of the recorder's.
fn number(report: &str, name: &str) -> Result<u32> {
    let is_there = |line: &&str| line.split(' ').any(|word| word == name);
    let line = report.lines().find(is_there).with_context(|| format!("no {name}: {report}"))?;
    Ok(line.split(' ').skip_while(|word| *word != name).nth(1).context("a number")?.parse()?)
}

/// A search that may end early is asked for as far as it has come: of what it begins with, and behind that as it goes on. Only some pages are far.
fn early(test: &str) -> Result<()> {
    let program = hinted(test, "left", &[])?;
    let pages = |case: &str, far: &str| -> Result<[u32; 3]> {
        let (_, report) = seen(&program, case, "500", Some(far))?;
        Ok([number(&report, "touched")?, number(&report, "ahead")?, number(&report, "fetched")?])
    };
    // It ends on its first page.
    let [touched, _, fetched] = pages("early", "1000-8192")?;
    ensure!((touched, fetched) == (1, 0), "{fetched} pages were fetched for nothing");
    let [_, _, fetched] = pages("early", "0-16")?;
    ensure!((1..=16).contains(&fetched), "{fetched} pages");
    // It goes on to the end, which is far away.
    let [touched, ahead, _] = pages("stepped", "1-16")?;
    ensure!(touched > 8000 && (10..=40).contains(&ahead), "{ahead} pages, of which the first are far");
    let [_, ahead, _] = pages("stepped", "1000-8192")?;
    ensure!(ahead * 10 > touched * 8, "{ahead} pages, of which all but the first are far");
    Ok(())
}

/// A search asks one question for each array, and is as it was written where nothing of them is far. What else it asks it asks on its way.
fn near(test: &str) -> Result<()> {
    let (plain, program) = (c_program("compiler/left", &[])?, hinted(test, "left", &[])?);
    let questions = |case: &str, distance: &str, far: &str| -> Result<[u32; 3]> {
        let (expected, _) = printed(Command::new(&plain).arg(case))?;
        let (output, report) = seen(&program, case, distance, Some(far))?;
        ensure!(output == expected, "{case}, {distance}, {far}: {output}");
        Ok([number(&report, "begins")?, number(&report, "ends")?, number(&report, "fetched")?])
    };
    for (case, arrays) in [("stepped", 1), ("early", 1), ("rows", 1), ("found", 2)] {
        let asked = questions(case, "500", "8192-8193")?;
        ensure!(asked == [arrays, 0, 0], "{case}: {asked:?}, nothing is far");
    }
    for far in ["0-8192", "1000-8192"] {
        let asked = questions("early", "500", far)?;
        ensure!(asked[..2] == [1, 1], "{far}: {asked:?}");
    }
    let mut older = Command::new(&program);
    older.arg("early").env("LD_PRELOAD", c_program("compiler/recorder", &["-shared", "-fPIC"])?);
    let (_, report) = printed(older.env("HINTED_DISTANCE", "500").env("HINTED_OLDER", "1"))?;
    ensure!(number(&report, "begins")? == 0, "a library that has no such question: {report}");
    // Only what comes later is far, each time that it asks.
    let [begins, ends, fetched] = questions("stepped", "later", "0-8192")?;
    ensure!(begins > 1 && begins == ends && fetched == 0, "{begins} questions, {ends} ends, {fetched} pages");
    Ok(())
}

/// Each case of a program prints the same with hints and without, whatever the runtime answers; of the watched object at least so many hundredths are
/// touched after they were fetched.
fn each_case(test: &str, program: &str, object: &str, cases: &[(&str, u32)]) -> Result<()> {
    let (plain, hinted) = (c_program(&format!("compiler/{program}"), &[])?, hinted(test, program, &[])?);
    for (case, least) in cases {
        let (expected, _) = printed(Command::new(&plain).arg(case))?;
        ensure!(printed(Command::new(&hinted).arg(case))?.0 == expected, "{case}: alone");
        for distance in ["1", "500", "64,0", "later,64"] {
            let (output, report) = seen(&hinted, case, distance, None)?;
            ensure!(output == expected, "{case}, {distance}: {output}, not {expected}");
            let (touched, ahead) = (number(&report, "touched")?, number(&report, "ahead")?);
            let has_hints = *least == 0 || number(&report, "begins")? > 0;
            let is_fetched = distance != "500" || u64::from(ahead) * 100 >= u64::from(touched) * u64::from(*least);
            ensure!(report.starts_with(object) && has_hints && is_fetched, "{case}, {distance}: {report}");
        }
    }
    Ok(())
}

/// 10,000 frames of a function with hinted loops fit into a stack.
fn deep(test: &str) -> Result<()> {
    let expected = printed(&mut Command::new(c_program("compiler/deep", &[])?))?.0;
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    for flags in [&[][..], &["-O3"], &["-flto", "-fuse-ld=lld"]] {
        let program = hinted(test, "deep", flags)?;
        ensure!(printed(&mut Command::new(&program))?.0 == expected, "{flags:?}: alone");
        let mut command = Command::new(&program);
        let (output, _) = printed(command.env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", "100"))?;
        ensure!(output == expected, "{flags:?}: {output}");
    }
    Ok(())
}

/// Loops that overwrite their memory do not fetch it; a prefetcher that follows them has the pages there sooner than a fault for each.
fn overwritten(test: &str, path: &str) -> Result<()> {
    let words = ["24", "2"];
    let expected = printed(Command::new(c_program("compiler/overwrites", &[])?).args(words))?.0;
    let program = hinted(test, "overwrites", &[])?.display().to_string();
    for (prefetch, promises) in [("none", true), ("auto", false)] {
        let options = ["--local", "16M", "--fault-path", path, "--prefetch", prefetch, "--quiet"];
        let words = [&[program.as_str()], &words[..]].concat();
        let ended = Launch::new(&format!("{test}-{prefetch}"), &options, &words)?.run()?;
        ended.expect(0, &expected)?.expect_paging()?;
        let pages = ended.stats()?["hint_overwritten_pages"].as_u64().context("no pages that were overwritten")?;
        // In the second round what the first one has evicted of 24 MiB, in two functions.
        ensure!((pages > 4096) == promises && (pages > 0) == promises, "{prefetch}: {pages} pages were not fetched");
    }
    Ok(())
}

/// Loops that are fused compute what they did apart.
fn fused(test: &str) -> Result<()> {
    let expected = printed(&mut Command::new(c_program("compiler/fused", &[])?))?.0;
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    for flags in [&[][..], &["-O3", "-march=native", "-ffp-contract=off"]] {
        let program = hinted(test, "fused", flags)?;
        ensure!(printed(&mut Command::new(&program))?.0 == expected, "{flags:?}: alone");
        for distance in ["1", "500"] {
            let mut command = Command::new(&program);
            let (output, _) = printed(command.env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distance))?;
            ensure!(output == expected, "{flags:?}, {distance}: {output}");
        }
    }
    Ok(())
}

/// Link-time optimisation that has the plugin, too, leaves loops alone that have their hints.
fn linked(test: &str) -> Result<()> {
    let expected = plain_output()?;
    let plugin = format!("-Wl,--load-pass-plugin={}", places::launcher()?.with_file_name(PLUGIN).display());
    let hinted_loops = |flags: &[&str]| -> Result<usize> {
        let program = loops(test, flags)?;
        ensure!(printed(&mut Command::new(&program))?.0 == expected, "{flags:?}");
        let (symbols, _) = printed(Command::new("nm").arg(program))?;
        Ok(symbols.lines().filter(|line| line.contains(" hinterland.loop")).count())
    };
    let once = hinted_loops(&[])?;
    for lto in ["-flto", "-flto=thin"] {
        let linked = hinted_loops(&[lto, "-fuse-ld=lld", &plugin])?;
        ensure!(once > 0 && linked == once, "{lto}: {linked} hinted loops, {once} without");
    }
    Ok(())
}

/// Link-time optimisation hints what it has inlined from another file.
fn across(test: &str) -> Result<()> {
    let [plan, code] = ["plan", "c"].map(|kind| source(&format!("across.{kind}")));
    let plain = c_program("compiler/across", &["-DCALLEE", "-c"])?;
    let callee = plain.display().to_string();
    let plain = c_program("compiler/across", &[&callee])?.display().to_string();
    for lto in ["-flto", "-flto=thin"] {
        let object = |part: &str| -> Result<String> {
            let to = built(test, &format!("{part}.o")).display().to_string();
            compile(test, "cc", &["-O2", lto, "--far-plan", &plan, &format!("-D{part}"), "-c", &code, "-o", &to])?;
            Ok(to)
        };
        let hinted = built(test, "hinted").display().to_string();
        let words = ["-O2", "-fuse-ld=lld", "--far-plan", &plan, &object("CALLER")?, &object("CALLEE")?, "-o", &hinted];
        // lld optimises bitcode, whatever the words of the link say.
        for at_link in [&[lto][..], &[]] {
            compile(test, "cc", &[&words, at_link].concat())?;
            prints_the_same(&plain, &hinted, &[]).context(lto)?;
            let (symbols, _) = printed(Command::new("nm").arg(&hinted))?;
            let is_fetched = symbols.contains(" look_up.hint.gather");
            ensure!(is_fetched, "{lto}, {at_link:?}: what it looks up is not fetched: {symbols}");
        }
    }
    Ok(())
}

/// Functions of unusual shape compile and link, each time to the same bytes.
fn shapes(test: &str) -> Result<()> {
    let (code, to) = (source("shapes.c"), built(test, "shapes").display().to_string());
    let words = ["-O2", "-Rpass-missed=hinterland", "-fopenmp", "-shared", "-fPIC", "-nostdlib", &code, "-o", &to];
    for flags in [&[][..], &["-flto", "-fuse-ld=lld"], &["-flto=thin", "-fuse-ld=lld"]] {
        let said = compile(test, "cc", &[&words[..], flags].concat()).with_context(|| format!("{flags:?}"))?;
        ensure!(said.contains("its computation is too long"), "{flags:?}: {said}");
        let (symbols, _) = printed(Command::new("nm").arg(&to))?;
        for function in ["gathered", "parallel.omp_outlined", "clamped"] {
            ensure!(symbols.contains(&format!(" {function}.hint.gather")), "{flags:?}: {function}: {symbols}");
        }
    }
    let mut objects = std::collections::BTreeSet::new();
    for _ in 0..8 {
        compile(test, "cc", &["-O2", "-c", &code, "-o", &to])?;
        objects.insert(std::fs::read(&to)?);
    }
    ensure!(objects.len() == 1, "{} different objects of one source", objects.len());
    Ok(())
}

/// The standard library and templates, with and without hints that are followed.
fn templates(test: &str) -> Result<()> {
    let (plain, hinted) = (built(test, "plain"), built(test, "hinted"));
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    let words = ["-O2", "-pthread", &source("templates.cpp"), "-o"].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    printed(Command::new("clang++-22").args(&words).arg(&plain))?;
    compile(test, "c++", &[&words[..], &[&hinted.display().to_string()]].concat())?;
    let (expected, _) = printed(&mut Command::new(plain))?;
    ensure!(printed(&mut Command::new(&hinted))?.0 == expected);
    for distance in ["1", "700"] {
        let mut command = Command::new(&hinted);
        let (output, _) = printed(command.env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distance))?;
        ensure!(output == expected, "{distance}: {output}");
    }
    Ok(())
}

/// Real programs, with their plans: the same output with and without hints that are followed.
fn programs(test: &str) -> Result<()> {
    for (source, language, flags, ends, words) in [
        ("columns.cpp", ("clang++-22", "c++"), &["-O2"][..], &[][..], &["all", "4"][..]),
        ("gpt2.c", ("clang-22", "cc"), &["-O3", "-march=native"], &["-lm"], &["small", "2", "8"]),
    ] {
        let code = benched(source).display().to_string();
        let [plain, hinted] = ["plain", "hinted"].map(|kind| built(test, kind).display().to_string());
        printed(Command::new(language.0).args(flags).args([&code, "-o", &plain]).args(ends))?;
        let plan = benched(source).with_extension("plan").display().to_string();
        compile(test, language.1, &[flags, &["--far-plan", &plan, &code, "-o", &hinted], ends].concat())?;
        prints_the_same(&plain, &hinted, words).context(source)?;
    }
    Ok(())
}

/// The same of a program in Rust, which the linker hints.
fn rust(test: &str) -> Result<()> {
    let [code, plan] = ["rs", "plan"].map(|kind| benched("pagerank").with_extension(kind).display().to_string());
    let [plain, hinted] = ["plain", "hinted"].map(|kind| built(test, kind).display().to_string());
    printed(Command::new("rustc").args(["-O", &code, "-o", &plain]))?;
    build_plugin()?;
    let words = ["rustc", "-O", "--far-plan", &plan, &code, "-o", &hinted];
    let ended = Launch::bare(&format!("{test}-rustc"), &words)?.run()?;
    ensure!(ended.code == 0, "{}", ended.stderr);
    prints_the_same(&plain, &hinted, &["4"])
}

/// Loops of Rust with their checks of bounds: without a plan those that end only by their count, or in a panic; with one a search, too.
fn rust_checked(test: &str) -> Result<()> {
    let [code, plan] = ["rs", "plan"].map(|kind| source(&format!("checked.{kind}")));
    let plain = built(test, "plain").display().to_string();
    printed(Command::new("rustc").args(["-O", "-o", &plain, &code]))?;
    build_plugin()?;
    for (kind, words, functions) in [
        ("default", &[][..], &["scattered", "count_all"][..]),
        ("planned", &["--far-plan", &plan], &["scattered", "count_all", "find"]),
    ] {
        let hinted = built(test, kind).display().to_string();
        let words = [&["rustc", "-O"], words, &[&code, "-o", &hinted]].concat();
        let ended = Launch::bare(&format!("{test}-{kind}"), &words)?.run()?;
        ensure!(ended.code == 0, "{}", ended.stderr);
        prints_the_same(&plain, &hinted, &[])?;
        let (symbols, _) = printed(Command::new("nm").arg(&hinted))?;
        for function in ["scattered", "count_all", "find"] {
            let is_fetched = symbols.lines().any(|line| line.contains(function) && line.contains("hint.gather"));
            ensure!(is_fetched == functions.contains(&function), "{kind}: {function}: {symbols}");
        }
    }
    Ok(())
}

/// A program of the benches, which has a plan beside it.
fn benched(source: &str) -> PathBuf {
    places::repository().join("benches/programs").join(source)
}

/// What a plain program prints, a hinted one does alone, and where its hints are followed.
fn prints_the_same(plain: &str, hinted: &str, words: &[&str]) -> Result<()> {
    let (expected, _) = printed(Command::new(plain).args(words))?;
    ensure!(printed(Command::new(hinted).args(words))?.0 == expected, "alone");
    let recorder = c_program("compiler/recorder", &["-shared", "-fPIC"])?;
    for distance in ["1", "500"] {
        let mut command = Command::new(hinted);
        command.args(words).env("LD_PRELOAD", &recorder).env("HINTED_DISTANCE", distance).env("HINTED_TOTAL", "1");
        let (output, said) = printed(&mut command)?;
        ensure!(output == expected, "{distance}: {output}, not {expected}");
        let begins = said.lines().find_map(|line| line.strip_prefix("begins ")).context("no total")?;
        ensure!(begins.parse::<u32>()? > 0, "{distance}: no loop has hints");
    }
    Ok(())
}

/// In little memory: the same output, and pages come before they are waited for.
fn far(test: &str, path: &str) -> Result<()> {
    let [plan, walks] = ["walks.plan", "walks.cpp"].map(|file| benched(file).display().to_string());
    let [plain, hinted] = ["plain", "hinted"].map(|file| built(test, file).display().to_string());
    printed(Command::new("clang++-22").args(["-O2", &walks, "-o", &plain]))?;
    compile(test, "c++", &["-O2", "--far-plan", &plan, &walks, "-o", &hinted])?;
    let some = if suite::full() { &["edges", "sum", "sparse", "join"][..] } else { &["edges", "sparse"] };
    for walk in some.iter().copied() {
        let (expected, _) = printed(Command::new(&plain).args([walk, "32"]))?;
        let run = |program: &str, kind: &str| -> Result<(u64, Ended)> {
            let options = ["--local", "16M", "--fault-path", path, "--prefetch", "none", "--quiet"];
            let ended = Launch::new(&format!("{test}-{walk}-{kind}"), &options, &[program, walk, "32"])?.run()?;
            ended.expect(0, &expected)?.expect_paging()?;
            let faults = ended.stats()?["major_faults"].as_u64().context("no major faults")?;
            Ok((faults, ended))
        };
        let (without, _) = run(&plain, "plain")?;
        let (with, ended) = run(&hinted, "hinted")?;
        ensure!(with * 3 < without * 2, "{walk}: {with} major faults with hints, {without} without: {}", ended.stderr);
    }
    Ok(())
}

/// Loops whose elements may be anywhere are hinted, although what they begin with is local.
fn scattered(test: &str) -> Result<()> {
    let expected = printed(&mut Command::new(c_program("compiler/scattered", &[])?))?.0;
    let program = hinted(test, "scattered", &[])?.display().to_string();
    let options = ["--local", "16M", "--prefetch", "none", "--quiet"];
    let ended = Launch::new(test, &options, &[&program])?.run()?;
    ended.expect(0, &expected)?.expect_paging()?;
    let sites = ended.stats()?["hint_sites"].as_array().context("places")?.clone();
    for function in ["follow ", "add "] {
        let is_it = |site: &&serde_json::Value| site["name"].as_str().is_some_and(|name| name.starts_with(function));
        let site = sites.iter().find(is_it).with_context(|| format!("no {function}in {sites:?}"))?;
        // A run of `add` is in several parts, after each of which it asks again.
        ensure!(site["runs"].as_u64() > Some(0), "{site}");
    }
    Ok(())
}

/// Loops that may be left, and loops that walk in calls, in little memory: the same output, and hints that fetch.
fn left_and_called(test: &str) -> Result<()> {
    for (program, cases) in [("left", ["stepped", "found"]), ("calls", ["lines", "counted"])] {
        let plain = c_program(&format!("compiler/{program}"), &[])?;
        let hinted = hinted(test, program, &[])?.display().to_string();
        for (case, path) in cases.into_iter().zip(["inline", "monitor"]) {
            let (expected, _) = printed(Command::new(&plain).arg(case))?;
            let options = ["--local", "16M", "--fault-path", path, "--prefetch", "none", "--quiet"];
            let ended = Launch::new(&format!("{test}-{case}"), &options, &[&hinted, case])?.run()?;
            ended.expect(0, &expected)?.expect_paging()?;
            let fetched = ended.stats()?["hint_fetched_pages"].as_u64().context("no hints in the figures")?;
            ensure!(fetched > 500, "{program} {case}: {fetched} pages were fetched");
        }
    }
    Ok(())
}

/// A plan that was made of one input is used with others, larger ones, small ones, and such that run other functions: the same output, and where the
/// planned function runs, its hints fetch.
fn other_input(test: &str) -> Result<()> {
    let walks = benched("walks.cpp").display().to_string();
    let [plain, hinted] = ["plain", "hinted"].map(|file| built(test, file).display().to_string());
    compile(test, "c++", &["-O2", &walks, "-o", &plain])?;
    let limits = ["--local", "16M", "--prefetch", "none", "--quiet"];
    let profiled = [&["profile", "-o", "app.prof"], &limits[..], &["--", &plain, "edges", "32"]].concat();
    let profile = Launch::bare(&format!("{test}-profile"), &profiled)?;
    let [of, plan] = ["app.prof", "app.plan"].map(|file| profile.directory.join(file).display().to_string());
    let ended = profile.run()?;
    ensure!(ended.code == 0, "{}", ended.stderr);
    let planned = Launch::bare(&format!("{test}-plan"), &["plan", &of, "-o", &plan])?.run()?;
    ensure!(planned.code == 0 && std::fs::read_to_string(&plan)?.contains("traverse"), "{}", planned.stderr);
    compile(test, "c++", &["-O2", "--far-plan", &plan, &walks, "-o", &hinted])?;
    for (walk, mebibytes, fetched) in [("edges", "48", 1000), ("edges", "2", 0), ("sparse", "32", 0), ("sum", "24", 0)]
    {
        let (expected, _) = printed(Command::new(&plain).args([walk, mebibytes]))?;
        ensure!(printed(Command::new(&hinted).args([walk, mebibytes]))?.0 == expected, "{walk} {mebibytes}: alone");
        let words = [hinted.as_str(), walk, mebibytes];
        let ended = Launch::new(&format!("{test}-{walk}-{mebibytes}"), &limits, &words)?.run()?;
        ended.expect(0, &expected)?;
        let pages = ended.stats()?["hint_fetched_pages"].as_u64().context("no hints in the figures")?;
        ensure!(pages >= fetched, "{walk} {mebibytes}: {pages} pages were fetched");
    }
    Ok(())
}

/// A loop that walks in steps is the prefetcher's, where that follows steps; else its hints have effect.
fn followed(test: &str) -> Result<()> {
    let [plan, walks] = ["walks.plan", "walks.cpp"].map(|file| benched(file).display().to_string());
    let hinted = built(test, "hinted").display().to_string();
    compile(test, "c++", &["-O2", "--far-plan", &plan, &walks, "-o", &hinted])?;
    for (prefetch, has_hints) in [("auto", false), ("none", true)] {
        let options = ["--local", "16M", "--prefetch", prefetch, "--quiet"];
        let ended = Launch::new(&format!("{test}-{prefetch}"), &options, &[&hinted, "sum", "32"])?.run()?;
        ensure!(ended.code == 0, "{}", ended.stderr);
        let fetched = ended.stats()?["hint_fetched_pages"].as_u64().context("no hints in the figures")?;
        ensure!((fetched > 1000) == has_hints && (fetched > 0) == has_hints, "{prefetch}: {fetched} pages");
    }
    Ok(())
}
