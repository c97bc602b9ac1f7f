//! Programs that say what use they will make of their memory, by `hinterland.h`, by its table, and from Python; with Hinterland and without.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::{self, NamedTest, Trial};
use hinterland_tests::{Need, places, skips};
use std::path::Path;
use std::process::Command;

/// Pages of the walks: four times what there is room for.
const PAGES: &str = "16384";
/// A link on which a page is worth waiting for.
pub const LINK: &str = "reference:256M?link=15us:10Gb/s";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, skip: fn() -> Option<String>, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::hints::{name}"), skip, test));
    };
    add("native".into(), || None, Box::new(|_| native()));
    for path in ["monitor", "inline"] {
        add(format!("fetched::{path}"), skips::no_userfaultfd, Box::new(move |name| fetched(name, path, "walk")));
        add(format!("high::{path}"), skips::no_userfaultfd, Box::new(move |name| fetched(name, path, "high")));
        add(format!("overwritten::{path}"), skips::no_userfaultfd, Box::new(move |name| overwritten(name, path)));
        add(format!("abused::{path}"), skips::no_userfaultfd, Box::new(move |name| abused(name, path)));
    }
    add("answered".into(), skips::no_userfaultfd, Box::new(answered));
    add("useless".into(), skips::no_userfaultfd, Box::new(useless));
    add("evicted".into(), skips::no_userfaultfd, Box::new(evicted));
    add("kept".into(), skips::no_userfaultfd, Box::new(kept));
    add("loops".into(), skips::no_userfaultfd, Box::new(loops));
    add("searches".into(), skips::no_userfaultfd, Box::new(searches));
    add("versions".into(), skips::no_userfaultfd, Box::new(versions));
    let no_python = || skips::no_userfaultfd().or_else(no_python);
    add("python".into(), no_python, Box::new(python));
    add("lines".into(), no_python, Box::new(lines));
    let no_cargo = || skips::no_userfaultfd().or_else(|| skips::missing(&[Need::Program("cargo")]));
    add("rust".into(), no_cargo, Box::new(rust));
    let no_numpy = || skips::no_userfaultfd().or_else(|| skips::missing(&[Need::Python("numpy")]));
    add("arrays".into(), no_numpy, Box::new(arrays));
    trials
}

fn no_python() -> Option<String> {
    skips::find("python3").is_none().then(|| "python3 is not installed (./dev setup)".into())
}

pub fn program(flags: &[&str]) -> Result<String> {
    let include = format!("-I{}", places::repository().join("crates/runtime/include").display());
    let flags = [&[include.as_str(), "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"], flags].concat();
    Ok(c_program("hints", &flags)?.display().to_string())
}

/// Runs `hints` in a quarter of its memory.
fn run(name: &str, options: &[&str], words: &[&str]) -> Result<Ended> {
    let (options, program) = ([&["--local", "16M", "--quiet"], options].concat(), program(&[])?);
    let ended = Launch::new(name, &options, &[&[program.as_str()], words].concat())?.run()?;
    ended.expect(0, "done")?;
    Ok(ended)
}

fn count(ended: &Ended, figure: &str) -> Result<u64> {
    ended.stats()?[figure].as_u64().with_context(|| format!("no {figure}"))
}

/// Without Hinterland the calls do nothing, however the program was built.
fn native() -> Result<()> {
    for flags in [&[][..], &["-no-pie", "-fno-pic"], &["-static"]] {
        let program = program(flags)?;
        let (loops, promises) = (["loop", "64", "2", "8"], ["overwrite", "64", "2", "8"]);
        for words in
            [["walk", "64", "2", "8"], loops, ["search", "64", "1", "8"], promises, ["abuse", "64", "300", "1"]]
        {
            let output = Command::new(&program).args(words).output()?;
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(output.status.success() && printed.contains("done"), "{flags:?} {words:?}: {printed}");
        }
    }
    Ok(())
}

/// What is named ahead of its use is there when it is used: most of it, of a walk at random that no prefetcher can know.
fn fetched(name: &str, path: &str, walk: &str) -> Result<()> {
    let options = ["--far", LINK, "--fault-path", path, "--prefetch", "none"];
    let ended = run(name, &options, &[walk, PAGES, "1", "128"])?;
    let [major, fetched, used, refused] =
        ["major_faults", "hint_fetched_pages", "hint_used_pages", "hint_refused_pages"]
            .map(|figure| count(&ended, figure));
    let (major, fetched, used, refused) = (major?, fetched?, used?, refused?);
    ensure!(fetched > 10_000 && refused == 0, "{fetched} pages were fetched, {refused} refused");
    ensure!(used * 10 > fetched * 8, "of {fetched} pages {used} were used");
    ensure!(major * 4 < fetched, "the program waited for {major} pages beside {fetched} that were fetched");
    Ok(())
}

/// A place that names pages which are not used loses, and the program is not held up for long.
fn useless(name: &str) -> Result<()> {
    let ended = run(name, &["--far", LINK, "--prefetch", "none"], &["useless", PAGES, "2", "64"])?;
    let (fetched, refused) = (count(&ended, "hint_fetched_pages")?, count(&ended, "hint_refused_pages")?);
    ensure!(refused > 5 * fetched, "{fetched} pages were fetched, {refused} refused");
    let sites = ended.stats()?["hint_sites"].clone();
    ensure!(sites[0]["has_lost"] == 1 && sites[0]["unused_pages"].as_u64() > Some(100), "{sites}");
    Ok(())
}

/// What is given up behind its use leaves first.
fn evicted(name: &str) -> Result<()> {
    for soon in ["0", "1"] {
        let ended = run(&format!("{name}-{soon}"), &[], &["evict", PAGES, "2", soon])?;
        let evicted = count(&ended, "hint_evicted_pages")?;
        ensure!(evicted > 20_000, "{evicted} pages left because they were named");
        ended.expect_eviction()?;
    }
    Ok(())
}

/// What a thread has said it overwrites is not fetched when it does, and holds what it wrote.
fn overwritten(name: &str, path: &str) -> Result<()> {
    let options = ["--far", LINK, "--fault-path", path, "--prefetch", "none"];
    let figures = |at: &str| {
        let ended = run(&format!("{name}-{at}"), &options, &["overwrite", PAGES, "2", at])?;
        Ok::<_, anyhow::Error>((count(&ended, "hint_overwritten_pages")?, count(&ended, "major_faults")?))
    };
    let (not_fetched, with) = figures("64")?;
    let (none, without) = figures("0")?;
    ensure!(none == 0, "{none} pages were not fetched that no call had named");
    ensure!(not_fetched > 20_000, "{not_fetched} pages were not fetched");
    // Both look at all pages in the end.
    ensure!(with + not_fetched <= without + 1000, "{with} major faults, without promises {without}");
    Ok(())
}

/// What a call writes into a page that was to be overwritten takes the promise back, on the inline path.
fn answered(name: &str) -> Result<()> {
    let options = ["--far", LINK, "--fault-path", "inline", "--prefetch", "none"];
    let ended = run(name, &options, &["answered", PAGES, "1", "8"])?;
    let (not_fetched, major) = (count(&ended, "hint_overwritten_pages")?, count(&ended, "major_faults")?);
    ensure!(not_fetched == 0, "{not_fetched} pages were not fetched");
    ensure!(major > 1000, "{major} major faults: hardly any page was far");
    Ok(())
}

/// What is kept does not leave; more than a quarter of the budget is not kept.
fn kept(name: &str) -> Result<()> {
    let faults = |share: &str| {
        let options = ["--prefetch", "none", "--evict", "fifo"];
        let ended = run(&format!("{name}-{share}"), &options, &["keep", PAGES, "2", share])?;
        Ok::<_, anyhow::Error>((count(&ended, "hint_kept_pages")?, count(&ended, "major_faults")?))
    };
    // A twentieth of the pages is a fifth of the budget.
    let (kept, major) = faults("20")?;
    ensure!(kept == 819, "{kept} pages were kept");
    // Each other page once a round, and those that are kept once.
    ensure!(major <= 2 * (16_384 - 819) + 819 + 100, "{major} faults: kept pages left");
    let (kept, _) = faults("8")?;
    ensure!((900..=1024).contains(&kept), "{kept} pages of a budget of 4096 were kept");
    Ok(())
}

/// A loop of compiled code learns how far ahead to fetch, and that it need not where nothing is far.
fn loops(name: &str) -> Result<()> {
    let ended = run(name, &["--far", LINK, "--prefetch", "none"], &["loop", PAGES, "3", "0"])?;
    let stats = ended.stats()?;
    let site = &stats["hint_sites"][0];
    ensure!(site["name"].as_str().is_some_and(|name| name.starts_with("walk_loop hints.c:")), "{site}");
    let distance = site["distance"].as_u64().context("a distance")?;
    ensure!(site["runs"] == 3 && site["plain_runs"] == 0 && (2..4096).contains(&distance), "{site}");
    ensure!(count(&ended, "hint_fetched_pages")? > 20_000, "{site}");
    let explained = Launch::bare(
        &format!("{name}-explain"),
        &["explain", &ended.directory().join("stats.json").display().to_string()],
    )?;
    explained.run()?.expect(0, "walk_loop hints.c:")?;
    let ended = run(&format!("{name}-local"), &[], &["loop", "1024", "3", "0"])?;
    ensure!(
        count(&ended, "hint_plain_loops")? == 3 && count(&ended, "hint_loops")? == 0,
        "a loop fetched what is local"
    );
    Ok(())
}

/// A loop that may end early learns by one answer whether what it begins with is far, or only what may follow.
fn searches(name: &str) -> Result<()> {
    let ended = run(name, &["--prefetch", "none"], &["search", PAGES, "1", "8"])?;
    for said in ["8 and 16384 pages: far", "8 and 16384 pages: later", "8 and 8 pages: near"] {
        ended.expect(0, said)?;
    }
    let site = ended.stats()?["hint_sites"][0].clone();
    ensure!(site["plain_runs"] == 1 && site["distance"].as_u64() <= Some(8), "{site}");
    Ok(())
}

/// Code that was compiled for a newer interface runs, and the runtime warns that its hints have no effect.
fn versions(name: &str) -> Result<()> {
    for (version, is_newer) in [("1", false), ("2", true)] {
        let program = program(&[&format!("-DNOTE_VERSION={version}")])?;
        let options = ["--local", "16M", "--quiet"];
        let ended = Launch::new(&format!("{name}-{version}"), &options, &[&program, "walk", "64", "1", "8"])?.run()?;
        ended.expect(0, "done")?;
        let words =
            "the program was compiled to give hints by version 2 of their interface, and this library knows version 1";
        ensure!(ended.stderr.contains(words) == is_newer, "{}", ended.stderr);
    }
    Ok(())
}

/// A script of Python, which must print the same natively and in 16 MiB: the run, and what it printed.
fn script(name: &str, python: &Path, script: &str, options: &[&str]) -> Result<(Ended, String)> {
    let python = python.display().to_string();
    let package = places::repository().join("packaging/python").display().to_string();
    let output = Command::new(&python).args(["-c", script]).env("PYTHONPATH", &package).output()?;
    ensure!(output.status.success(), "{output:?}");
    let native = String::from_utf8_lossy(&output.stdout).into_owned();
    let options = [&["--local", "16M"], options].concat();
    let ended = Launch::new(name, &options, &[&python, "-c", script])?.with("PYTHONPATH", &package).run()?;
    ended.expect(0, &native)?;
    Ok((ended, native))
}

/// Objects with the buffer protocol, with Hinterland and without; what is none has its words.
fn python(name: &str) -> Result<()> {
    const SCRIPT: &str = r#"
import array, hinterland
data = bytearray(40 << 20)
data[::4096] = bytes(at % 251 for at in range(len(data) // 4096))
numbers = array.array("d", range(100000))
every_other = memoryview(data)[1::2]
for buffer in (data, memoryview(data)[4096:8192], bytes(5000), numbers, b"", every_other, memoryview(data)[::-1]):
    for hint in (hinterland.keep, hinterland.release, hinterland.evict_soon, hinterland.evict, hinterland.fetch):
        hint(buffer)
hinterland.fetchv([data, memoryview(data)[4096:8192], numbers, b"", every_other])
hinterland.fetchv(())
for first in range(0, len(data), 1 << 20):
    hinterland.fetch(memoryview(data)[first + (1 << 20):first + (2 << 20)])
    assert all(data[at] == at // 4096 % 251 for at in range(first, first + (1 << 20), 4096))
    hinterland.evict(memoryview(data)[first:first + (1 << 20)])
hinterland.phase(1)
hinterland.overwrite(every_other)
every_other[:] = bytes(len(every_other))
assert all(data[at] == at // 4096 % 251 for at in range(0, len(data), 4096)), "only every other byte was to be overwritten"
every_other.release()
del buffer
hinterland.overwrite(data)
data[:] = bytes(len(data))
data.append(1)
try:
    hinterland.phase("one")
except TypeError as error:
    print(error)
try:
    hinterland.overwrite(b"read only")
except BufferError as error:
    print(error)
for fetch, what in ((hinterland.fetch, 7), (hinterland.fetchv, [b"", 7]), (hinterland.fetchv, 7)):
    try:
        fetch(what)
    except TypeError as error:
        print(error)
"#;
    let (ended, native) = script(name, &skips::find("python3").context("python3")?, SCRIPT, &[])?;
    ensure!(native.contains("bytes-like object is required"), "{native}");
    let [evicted, phases] = ["hint_evicted_pages", "hint_phases"].map(|figure| count(&ended, figure));
    let (evicted, phases) = (evicted?, phases?);
    ensure!(evicted > 1000 && phases == 1, "{evicted} pages left because they were named; {phases} phases");
    Ok(())
}

/// Each line of a script is a place of its own, also in a forked child: one that names what is not used loses, and another is not blamed.
fn lines(name: &str) -> Result<()> {
    const SCRIPT: &str = r#"
import hinterland, os, random
PAGE, PAGES, AHEAD = 4096, 8192, 64
data = bytearray(2 * PAGES * PAGE)
view = memoryview(data)
for page in range(2 * PAGES):
    view[page * PAGE:page * PAGE + 512] = random.randbytes(512)
def walk():
    order = list(range(PAGES))
    random.Random(1).shuffle(order)
    for at, page in enumerate(order):
        coming = order[min(at + AHEAD, PAGES - 1)]
        hinterland.fetch(view[coming * PAGE:(coming + 1) * PAGE])
        hinterland.fetch(view[(PAGES + page) * PAGE:(PAGES + page + 1) * PAGE])
        data[page * PAGE]
walk()
if os.fork() == 0:
    walk()
    os._exit(0)
assert os.wait()[1] == 0
"#;
    let python = skips::find("python3").context("python3")?;
    let (ended, _) = script(name, &python, SCRIPT, &["--far", LINK, "--prefetch", "none"])?;
    let sites = ended.stats()?["hint_sites"].as_array().context("places")?.clone();
    for (line, has_lost) in [("<string>:13", 0), ("<string>:14", 1)] {
        let of_line: Vec<_> = sites.iter().filter(|site| site["name"] == line).collect();
        ensure!(of_line.len() == 2 && of_line[0]["pid"] != of_line[1]["pid"], "{line}: {sites:?}");
        for site in of_line {
            ensure!(site["has_lost"] == has_lost && (site["refused_pages"] == 0) == (has_lost == 0), "{site}");
        }
    }
    Ok(())
}

/// Arrays of numpy in any order of their elements, also such that do not lie together.
fn arrays(name: &str) -> Result<()> {
    const SCRIPT: &str = r#"
import numpy, hinterland
table = numpy.arange(5 << 20).reshape(2048, 2560)
kinds = [table.T, table[:, 0], table[::2, ::3], table[::-1], table[:0], numpy.broadcast_to(table[0], (4, 2560)), numpy.array(3.0),
         numpy.asfortranarray(table[:9]), table[:4].view("M8[s]"), numpy.zeros(9, "i4,f8"), numpy.array([{}, None])]
for kind in kinds:
    for hint in (hinterland.keep, hinterland.release, hinterland.evict_soon, hinterland.evict, hinterland.fetch):
        hint(kind)
    if kind.flags.writeable and not kind.flags.forc:
        hinterland.overwrite(kind)
hinterland.phase(numpy.int64(1))
hinterland.overwrite(table[:, 0])
table[:, 0] = 7
hinterland.evict(table.T)
total = 0
for row in range(0, 2048, 32):
    hinterland.fetch(table[row + 32:row + 64, ::2])
    total += int(table[row:row + 32].sum())
hinterland.fetchv(table[row] for row in range(0, 512, 8))
print(total, int(table[:, 1].sum()))
"#;
    let options = ["--far", LINK, "--prefetch", "none"];
    let (ended, _) = script(name, &places::python(), SCRIPT, &options)?;
    let (evicted, fetched) = (count(&ended, "hint_evicted_pages")?, count(&ended, "hint_fetched_pages")?);
    ensure!(evicted > 1000 && fetched > 1000, "{evicted} pages left because they were named, {fetched} were fetched");
    let line = 1 + SCRIPT.lines().position(|line| line.contains("fetchv")).context("a line")?;
    let sites = ended.stats()?["hint_sites"].as_array().context("places")?.clone();
    let of_line = sites.iter().find(|site| site["name"] == format!("<string>:{line}")).context("no such place")?;
    ensure!(of_line["fetched_pages"].as_u64() > Some(0), "{of_line}");
    Ok(())
}

/// The crate for Rust: its examples pass, and a program that depends on it prints the same natively and under Hinterland, which follows its hints,
/// optimised or not. Two places that fetch are two.
fn rust(name: &str) -> Result<()> {
    let library = places::repository().join("packaging/rust");
    let program = places::emptied(places::tests().join("rust"))?;
    // Where a program may have it, too: in its own folder.
    for file in ["Cargo.toml", "src/lib.rs"] {
        std::fs::create_dir_all(program.join("hinterland/src"))?;
        std::fs::copy(library.join(file), program.join("hinterland").join(file))?;
    }
    std::fs::copy(places::repository().join("tests/programs/hints.rs"), program.join("main.rs"))?;
    std::fs::write(
        program.join("Cargo.toml"),
        "[package]\nname = \"hints\"\nedition = \"2021\"\n[[bin]]\nname = \"hints\"\npath = \"main.rs\"\n\
         [dependencies]\nhinterland = { path = \"hinterland\" }\n[workspace]\n",
    )?;
    let cargo = |words: &[&str], place: &Path| {
        let mut command = Command::new("cargo");
        command.args(words).args(["--offline", "--target-dir"]).arg(program.join("target")).current_dir(place);
        let output = command.output()?;
        ensure!(output.status.success(), "cargo {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let tested = cargo(&["test"], &program.join("hinterland"))?;
    ensure!(tested.contains(" - overwrite "), "{tested}");
    for (words, profile) in [(&["build"][..], "debug"), (&["build", "--release"], "release")] {
        cargo(words, &program)?;
        let words = [&program.join("target").join(profile).join("hints").display().to_string(), PAGES];
        let output = Command::new(words[0]).arg(words[1]).output()?;
        let native = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success() && native.starts_with("in force: None\n"), "{output:?}");
        let options = ["--local", "16M", "--far", LINK, "--prefetch", "none"];
        let ended = Launch::new(&format!("{name}-{profile}"), &options, &words)?.run()?;
        ended.expect(0, &native)?;
        for (figure, least) in [("fetched", 10_000), ("used", 5_000), ("evicted", 1000), ("overwritten", 1000)] {
            let found = count(&ended, &format!("hint_{figure}_pages"))?;
            ensure!(found > least, "{profile}: {found} pages were {figure}");
        }
        ensure!(count(&ended, "hint_kept_pages")? >= 64 && count(&ended, "hint_phases")? == 2, "{profile}");
        let sites = ended.stats()?["hint_sites"].as_array().context("places")?.clone();
        ensure!(sites.len() == 2, "{profile}: {sites:?}");
    }
    Ok(())
}

/// Hints that name anything at any moment change nothing: near, freed, foreign and unmapped memory, lengths of any size, from threads, handlers
/// and forked children.
fn abused(name: &str, path: &str) -> Result<()> {
    let ended = run(name, &["--fault-path", path], &["abuse", "8192", "1500", "1"])?;
    ended.expect_eviction()?;
    ensure!(count(&ended, "hint_fetched_pages")? > 0, "no hint had an effect");
    Ok(())
}
