//! Profiles of programs whose waits are known: by function, by allocation, by line, on both fault paths.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::{NamedTest, Trial};
use hinterland_tests::{Need, places, skips, suite};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const PATHS: [&str; 2] = ["monitor", "inline"];
/// What `functions` ends with.
const CODE: i32 = 7;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, skip: fn() -> Option<String>, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::profile::{name}"), skip, test));
    };
    for path in PATHS {
        add(format!("worst::{path}"), skips::no_userfaultfd, Box::new(move |name| worst(name, path)));
        let no_compiler = || skips::no_userfaultfd().or_else(|| skips::find("g++").is_none().then(|| "no g++".into()));
        add(format!("sites::{path}"), skips::no_userfaultfd, Box::new(move |name| sites(name, path)));
        add(format!("lineless::{path}"), skips::no_userfaultfd, Box::new(move |name| lineless(name, path)));
        add(format!("cpp::{path}"), no_compiler, Box::new(move |name| cpp(name, path)));
    }
    let no_numpy = || skips::no_userfaultfd().or_else(|| skips::missing(&[Need::Python("numpy")]));
    add("python".into(), no_numpy, Box::new(python));
    add("exec".into(), skips::no_userfaultfd, Box::new(exec));
    add("refused".into(), skips::no_userfaultfd, Box::new(refused));
    trials
}

/// A run of `hinterland profile`, whose profile is `app.prof` in its directory.
fn profiled(name: &str, options: &[&str], program: &[&str]) -> Result<(Ended, PathBuf)> {
    let arguments =
        [&["profile", "-o", "app.prof", "--local", "16M", "--far", "compressed"], options, &["--"], program];
    let launch = Launch::bare(name, &arguments.concat())?;
    let file = launch.directory.join("app.prof");
    Ok((launch.run()?, file))
}

fn read(file: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// What `hinterland ARGUMENTS` prints.
fn said(name: &str, arguments: &[&str]) -> Result<String> {
    let ended = Launch::bare(&format!("{name}-{}", arguments[0]), arguments)?.run()?;
    ensure!(ended.code == 0, "{}", ended.stderr);
    Ok(ended.stdout)
}

fn list<'a>(profile: &'a Value, name: &str) -> &'a [Value] {
    profile[name].as_array().map_or(&[], Vec::as_slice)
}

fn named<'a>(rows: &'a [Value], part: &str) -> Option<&'a Value> {
    rows.iter().find(|row| row["name"].as_str().is_some_and(|name| name.contains(part)))
}

/// Of 1,000 functions, that which waits most is the first, whichever it is.
fn worst(name: &str, path: &str) -> Result<()> {
    let functions = c_program("functions", &["-g"])?.display().to_string();
    let seed = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let number = (seed % 1000).to_string();
    let (ended, file) = profiled(name, &["--fault-path", path, "--prefetch", "none"], &[&functions, &number])?;
    ensure!(ended.code == CODE, "{}: {}", ended.code, ended.stderr);
    let profile = read(&file)?;
    let all = list(&profile, "functions");
    let wanted = format!("function_{}", 1000 + seed % 1000);
    // First touches wait for what is evicted for them, which takes long on a busy machine: not what is asked here.
    let first = named(all, "function_").context("none of the thousand")?;
    ensure!(first["name"] == wanted.as_str(), "{wanted} is not the first: {first:#}");
    ensure!(all[0]["module"] == "functions-g" && all[0]["lines"][0]["line"].as_u64().is_some_and(|line| line > 0));
    // A copy by libc is its caller's; the child's functions are in the profile, too.
    ensure!(
        named(all, "in_the_child").is_some_and(|child| child["faults"].as_u64() > Some(100)),
        "{:#?}",
        named(all, "child")
    );
    ensure!(
        named(all, "copies").is_some() && named(all, "memcpy").is_none() && named(all, "memmove").is_none(),
        "{all:#?}"
    );
    let site = &list(&profile, "sites")[0];
    ensure!(site["calls"][0]["function"] == "make_words" && site["pattern"] == "random", "{site:#}");
    ensure!(site["held_bytes_max"] == 12 * 1024 * 4096 && site["allocations"] == 1, "{site:#}");
    ensure!(profile["run"]["one_in"].as_u64() == (path == "monitor").then_some(64), "{}", profile["run"]);
    let file = file.display().to_string();
    let plan = said(name, &["plan", &file, "--worst", "2%"])?;
    ensure!(plan.contains(&format!("[[function]]\nname = \"{wanted}\"")) && plan.contains("make_words"), "{plan}");
    let flame = format!("{file}.svg");
    let table = said(name, &["report", &file, "--by", "function,site,line", "--top", "9", "--flame", &flame])?;
    ensure!(table.contains(&wanted) && table.contains("functions.c:"), "{table}");
    let drawn = std::fs::read_to_string(&flame)?;
    ensure!(drawn.contains(&wanted) && drawn.contains(">main ("), "the calls that led there");
    Ok(())
}

/// Memory that was freed is no longer its allocation's, and what a site held is what one process held of it.
fn sites(name: &str, path: &str) -> Result<()> {
    let program = c_program("sites", &["-g"])?.display().to_string();
    let (ended, file) = profiled(name, &["--fault-path", path, "--prefetch", "none"], &[&program])?;
    ensure!(ended.code == 0 && ended.stdout.ends_with(" 0\n"), "{}: {}{}", ended.code, ended.stdout, ended.stderr);
    let profile = read(&file)?;
    let all = list(&profile, "sites");
    let site = |function: &str| {
        let site = all.iter().position(|site| site["calls"][0]["function"] == function);
        site.with_context(|| format!("no site in {function}: {all:#?}"))
    };
    let has_column = |site: &Value| site["calls"][0]["column"].as_u64() > Some(0);
    ensure!(all.iter().all(has_column), "{all:#?}");
    let (freed, unmapped, of_child) = (site("first")?, site("mapped")?, site("in_a_child")?);
    // Its own faults are those of its first touches; `second` waited for what came in its place.
    let second = named(list(&profile, "functions"), "second").context("it waits")?;
    ensure!(second["fetches"].as_u64() > Some(1000), "{second:#}");
    ensure!(list(second, "sites").iter().all(|part| part["index"] != freed), "{second:#}");
    // Few faults, of which a monitor may sample none.
    let reserved = named(list(&profile, "functions"), "reserved");
    ensure!(path == "monitor" || reserved.is_some(), "it waits");
    let parts = reserved.map_or(&[][..], |reserved| list(reserved, "sites"));
    ensure!(parts.iter().all(|part| part["index"] != unmapped), "{parts:#?}");
    ensure!(all[of_child]["allocations"] == 5 && all[of_child]["held_bytes_max"] == 8 << 20, "{:#}", all[of_child]);
    Ok(())
}

/// Without lines the allocations of a function are told apart by where in it they are made.
fn lineless(name: &str, path: &str) -> Result<()> {
    let program = c_program("compiler/partners", &[])?.display().to_string();
    let (ended, file) = profiled(name, &["--fault-path", path, "--prefetch", "none"], &[&program])?;
    ensure!(ended.code == 0, "{}: {}", ended.code, ended.stderr);
    let profile = read(&file)?;
    let of_main = |site: &&Value| site["calls"][0]["function"] == "main";
    let all: Vec<&Value> = list(&profile, "sites").iter().filter(of_main).collect();
    let held = |bytes: u64| all.iter().find(|site| site["held_bytes_max"].as_u64() == Some(bytes));
    let (table, keys) = (held(24 << 20).context("no table")?, held(512 << 10).context("no keys")?);
    let offset = |site: &Value| site["calls"][0]["offset"].as_u64();
    ensure!(offset(table) > Some(0) && offset(keys) > offset(table), "{all:#?}");
    let shown = said(name, &["report", &file.display().to_string(), "--by", "site"])?;
    let row = format!("main+{:#x}", offset(table).unwrap_or(0));
    ensure!(shown.lines().any(|line| line.contains(&row) && line.contains("look_up")), "{shown}");
    Ok(())
}

/// A program in C++ at -O2: templates and objects behind `new` have the names that they have in the source.
fn cpp(name: &str, path: &str) -> Result<()> {
    let built = places::emptied(places::tests().join("bin").join(format!("grid-{path}")))?.join("grid");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O2", "-g", "-o"]).arg(&built).arg(places::program("grid.cpp"));
    ensure!(compiler.status().context("cannot start g++")?.success(), "g++ cannot compile grid.cpp");
    let (ended, file) = profiled(name, &["--fault-path", path], &[&built.display().to_string()])?;
    ensure!(ended.code == 0 && ended.stdout == "40000\n", "{}: {}{}", ended.code, ended.stdout, ended.stderr);
    let profile = read(&file)?;
    let gather = named(list(&profile, "functions"), "shapes::Grid<double>::gather").context("no gather")?;
    ensure!(gather["symbol"].as_str().is_some_and(|symbol| symbol.starts_with("_ZNK6shapes4Grid")), "{gather:#}");
    let is_line = |line: &Value| line["file"].as_str().is_some_and(|file| file.ends_with("grid.cpp"));
    ensure!(list(gather, "lines").iter().any(is_line), "{gather:#}");
    let site = &list(&profile, "sites")[0];
    let calls: Vec<&str> = list(site, "calls").iter().filter_map(|call| call["function"].as_str()).collect();
    ensure!(calls.iter().any(|call| call.contains("make_grid")), "{calls:?}");
    ensure!(calls.iter().all(|call| !call.contains("operator new") && !call.contains("std::allocator")), "{calls:?}");
    Ok(())
}

/// A program in Python: the functions of NumPy's libraries, which have no debug information, appear with their files.
fn python(name: &str) -> Result<()> {
    let script = "import numpy as np\na = np.ones(4 << 20)\nfor i in range(3): a += np.roll(a, 7)\nprint(int(a[5]))";
    let python = places::python().display().to_string();
    let (ended, file) = profiled(name, &["--prefetch", "none"], &[&python, "-c", script])?;
    ensure!(ended.code == 0 && ended.stdout == "8\n", "{}: {}{}", ended.code, ended.stdout, ended.stderr);
    let profile = read(&file)?;
    let of_numpy = |function: &&Value| function["module"].as_str().is_some_and(|module| module.contains("multiarray"));
    let share: f64 = list(&profile, "functions")
        .iter()
        .filter(of_numpy)
        .filter_map(|function| function["wait_share"].as_f64())
        .sum();
    ensure!(share > 0.5, "{share}: {:#?}", list(&profile, "functions").iter().take(5).collect::<Vec<_>>());
    ensure!(list(&profile, "sites").iter().any(|site| site["held_bytes_max"].as_u64() >= Some(32 << 20)));
    Ok(())
}

/// A program that a shell calls exec for is in the shell's profile, beside programs that it starts.
fn exec(name: &str) -> Result<()> {
    let functions = c_program("functions", &["-g"])?.display().to_string();
    let script = format!("{functions} 3 >/dev/null; exec {functions} 5");
    let (ended, file) = profiled(name, &["--prefetch", "none"], &["/bin/sh", "-c", &script])?;
    ensure!(ended.code == CODE, "{}: {}", ended.code, ended.stderr);
    let profile = read(&file)?;
    let first: Vec<&str> = list(&profile, "functions").iter().filter_map(|row| row["name"].as_str()).take(3).collect();
    ensure!(first.contains(&"function_1003") && first.contains(&"function_1005"), "{first:?}");
    Ok(())
}

/// What is no profile is refused, and so is a place where none can be written, before the program runs.
fn refused(name: &str) -> Result<()> {
    let launch = Launch::bare(name, &["profile", "-o", "nowhere/app.prof", "--", "/bin/sh", "-c", "touch ran"])?;
    let ran = launch.directory.join("ran");
    let ended = launch.run()?;
    ensure!(ended.code == 125 && ended.stderr.contains("nowhere/app.prof") && !ran.exists(), "{}", ended.stderr);
    let file = ran.with_file_name("foreign.prof");
    for (content, words) in [
        ("{\"format\": \"hinterland profile\", \"version\": 9}", "of a newer Hinterland"),
        ("{\"format\": \"hinterland pro", "cut off at line 1"),
        ("HLTRACE", "no profile of Hinterland's"),
    ] {
        std::fs::write(&file, content)?;
        for command in ["report", "plan"] {
            let ended = Launch::bare(&format!("{name}-{command}"), &[command, &file.display().to_string()])?.run()?;
            ensure!(ended.code == 125 && ended.stderr.contains(words), "{command} {content}: {}", ended.stderr);
            ensure!(ended.stderr.contains("hinterland profile -o FILE"), "{}", ended.stderr);
        }
    }
    Ok(())
}
