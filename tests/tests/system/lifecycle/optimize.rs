//! `hinterland optimize`: a program that waits becomes faster by a plan; what hurts is rolled back; the best build is the last one.

use super::compiled::{build_plugin, no_far_llvm, no_rust};
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch};
use hinterland_tests::suite::{NamedTest, Trial};
use hinterland_tests::{places, skips, suite};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: &str, test: NamedTest| {
        trials.push(suite::named(format!("lifecycle::optimize::{name}"), no_far_llvm, test));
    };
    add("gains", Box::new(gains));
    add("made", Box::new(made));
    add("rolled_back", Box::new(rolled_back));
    add("goes_on", Box::new(goes_on));
    add("stripped", Box::new(stripped));
    add("interrupted", Box::new(interrupted));
    add("interrupted_twice", Box::new(interrupted_twice));
    add("unbuilt", Box::new(unbuilt));
    add("refused", Box::new(refused));
    trials.push(suite::named("lifecycle::optimize::of_cargo".to_owned(), no_cargo, Box::new(of_cargo)));
    trials
}

fn no_cargo() -> Option<String> {
    let missing = || skips::find("cargo").is_none().then(|| "cargo is not installed".to_owned());
    no_far_llvm().or_else(no_rust).or_else(missing)
}

/// Far memory on which waiting outweighs everything else by far, so that what is faster does not depend on the machine: seconds of
/// waiting become tenths.
const RUN: [&str; 6] = ["--local", "16M", "--prefetch", "none", "--far", "compressed:128M?link=2ms:1Gb/s"];

/// A build of `partners.c`, with `when_planned` where the plan names a function.
fn build(when_planned: &str) -> String {
    let source = places::program("compiler").join("partners.c");
    let compile = format!("$CC -O2 {} -o app", source.display());
    format!("if grep -q 'name = ' \"$HINTERLAND_PLAN\"; then {compile} {when_planned}; else {compile}; fi")
}

fn optimize(test: &str, words: &[&str], program: &[&str]) -> Result<(Ended, std::path::PathBuf)> {
    let launch = optimizing(test, words, program)?;
    let directory = launch.directory.clone();
    Ok((launch.run()?, directory))
}

fn optimizing(test: &str, words: &[&str], program: &[&str]) -> Result<Launch> {
    build_plugin()?;
    Launch::bare(test, &[&["optimize", "--json"], words, &RUN, &["--"], program].concat())
}

fn rounds(ended: &Ended) -> Result<Value> {
    ensure!(ended.code == 0, "{}: {}", ended.code, ended.stderr);
    serde_json::from_str(&ended.stdout).context(ended.stdout.clone())
}

/// The digest of a plan stands in the program's note.
fn carries(program: &Path, plan: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(plan)?;
    let until = text.find("\n[measured]\n").context("nothing was measured")?;
    let directory = plan.with_file_name("plan-only");
    std::fs::write(&directory, &text[..until])?;
    let said =
        |command: &mut Command| -> Result<String> { Ok(String::from_utf8_lossy(&command.output()?.stdout).into()) };
    let digest = said(Command::new("sha256sum").arg(directory))?;
    let notes = said(Command::new("readelf").args(["--notes", "--wide"]).arg(program))?.replace([' ', '\n'], "");
    Ok(notes.contains(digest.get(..64).context("a digest")?))
}

/// The function that waits is found and hinted, which gains; the plan goes on from there, and a run that waits for more says so.
fn gains(test: &str) -> Result<()> {
    let build = build("");
    let words = ["--build", &build, "--rounds", "1", "--repeat", "1"];
    let (ended, directory) = optimize(test, &words, &["./app", "5000"])?;
    let said = rounds(&ended)?;
    let (app, plan) = (directory.join("app"), directory.join("app.plan"));
    ensure!(said["best"] == 1 && said["rounds"][1]["outcome"] == "kept", "{said}: {}", ended.stderr);
    let faults = |round: usize| said["rounds"][round]["figures"]["major_faults"].as_u64();
    ensure!(faults(1).is_some() && faults(1).map(|hinted| 2 * hinted) < faults(0), "{said}");
    let text = std::fs::read_to_string(&plan)?;
    ensure!(text.contains("name = \"look_up\"") && text.contains("major_faults = "), "{text}");
    ensure!(carries(&app, &plan)?, "{text}");
    // As much memory, and a plan that promised to wait for nearly nothing.
    std::fs::write(&plan, replaced(&text, "waiting = ", "0.0"))?;
    let program = app.display().to_string();
    let run =
        Launch::bare(&format!("{test}-run"), &[&["run", "--quiet"], &RUN[..], &["--", &program, "5000"]].concat())?
            .run()?;
    ensure!(run.code == 0 && run.stderr.contains("hinterland optimize --plan"), "{}", run.stderr);
    // Over a slower link it promised nothing, and neither with a budget that follows a slowdown.
    let slower = [&RUN[..4], &["--far", "compressed:128M?link=3ms:1Gb/s"]].concat();
    for (name, flags) in [("other", &slower[..]), ("bound", &[&RUN[..], &["--slowdown", "10"]].concat())] {
        let words = [&["run", "--quiet"], flags, &["--", &program, "5000"]].concat();
        let run = Launch::bare(&format!("{test}-{name}"), &words)?.run()?;
        ensure!(run.code == 0 && !run.stderr.contains("its plan"), "{name}: {}", run.stderr);
    }
    // A plan that was changed after the build is another one.
    for (name, end, is_other) in [("same", "", false), ("changed", "\n[[function]]\nname = \"other\"\n", true)] {
        std::fs::write(&plan, format!("{text}{end}"))?;
        let words = [&["run"], &RUN[..], &["--", &program, "5000"]].concat();
        let run = Launch::bare(&format!("{test}-{name}"), &words)?.run()?;
        let says_so = run.stderr.contains("app.plan is not the plan that it was compiled with");
        ensure!(run.code == 0 && says_so == is_other, "{name}: {}", run.stderr);
    }
    Ok(())
}

/// make, which sees no source that has changed, compiles each round.
fn made(test: &str) -> Result<()> {
    let words = ["--build", "make app", "--rounds", "1", "--repeat", "1"];
    let launch = optimizing(test, &words, &["./app", "5000"])?;
    let source = places::program("compiler").join("partners.c");
    let rule = format!("app: {0}\n\t$(CC) -O2 {0} -o $@\n", source.display());
    std::fs::write(launch.directory.join("Makefile"), rule)?;
    is_kept(launch, "app")
}

/// So does cargo, with the compiler for Rust.
fn of_cargo(test: &str) -> Result<()> {
    // Lints of the tests' own build are none of this program's.
    let build = "env -u RUSTC_WORKSPACE_WRAPPER -u RUSTC_WRAPPER -u RUSTFLAGS cargo build --release --offline --target-dir target";
    let words = ["--build", build, "--rounds", "1", "--repeat", "1"];
    let launch = optimizing(test, &words, &["target/release/app", "5000"])?;
    let source = places::program("compiler").join("partners.rs");
    let package = format!(
        "[package]\nname = 'app'\nversion = '0.1.0'\nedition = '2024'\n[[bin]]\nname = 'app'\npath = '{}'\n[workspace]\n",
        source.display()
    );
    std::fs::write(launch.directory.join("Cargo.toml"), package)?;
    is_kept(launch, "target/release/app")
}

/// The first round is kept, and the program was built with its plan.
fn is_kept(launch: Launch, program: &str) -> Result<()> {
    let program = launch.directory.join(program);
    let ended = launch.run()?;
    let said = rounds(&ended)?;
    ensure!(said["best"] == 1 && said["rounds"][1]["outcome"] == "kept", "{said}: {}", ended.stderr);
    ensure!(!ended.stderr.contains("warning"), "{}", ended.stderr);
    ensure!(carries(&program, &program.with_extension("plan"))?, "{said}");
    Ok(())
}

/// A text whose line that begins so says something else.
fn replaced(text: &str, begin: &str, value: &str) -> String {
    let line = |line: &str| if line.starts_with(begin) { format!("{begin}{value}") } else { line.to_owned() };
    text.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// Another output, a program that fails, a build that fails: the best build is made last, and no plan is written.
fn rolled_back(test: &str) -> Result<()> {
    for (name, flags, why) in
        [("output", "-DOTHER", "it prints something else"), ("fails", "-DFAILS", "it ended with 3")]
    {
        let build = build(flags);
        let words = ["--build", &build, "--rounds", "1", "--repeat", "1"];
        let (ended, directory) = optimize(&format!("{test}-{name}"), &words, &["./app", "2000"])?;
        let said = rounds(&ended)?;
        let round = &said["rounds"][1];
        ensure!(said["best"] == 0 && round["outcome"] == "rolled_back" && round["why"] == why, "{said}");
        ensure!(said["plan"].is_null() && !directory.join("app.plan").exists(), "{said}");
        let again = Command::new(directory.join("app")).arg("2000").output()?;
        ensure!(again.status.success() && again.stdout.iter().all(|byte| byte.is_ascii_digit() || *byte == b'\n'));
    }
    let build = build("-c no-such-file.c");
    let words = ["--build", &build, "--rounds", "1", "--repeat", "1"];
    let (ended, directory) = optimize(&format!("{test}-build"), &words, &["./app", "2000"])?;
    let said = rounds(&ended)?;
    let why = said["rounds"][1]["why"].as_str().unwrap_or_default();
    ensure!(why.starts_with("its build ended with ") && why.contains("no-such-file.c"), "{said}");
    ensure!(said["plan"].is_null() && Command::new(directory.join("app")).arg("2000").output()?.status.success());
    Ok(())
}

/// After a round whose build fails, and takes the program away, the next one is tried.
fn goes_on(test: &str) -> Result<()> {
    let source = places::program("compiler").join("partners.c");
    let build = format!(
        "if grep -q 'not_there' \"$HINTERLAND_PLAN\"; then rm -f app; echo no such plan; exit 7; fi; $CC -O2 {} -o app",
        source.display()
    );
    let words = ["--build", &build, "--rounds", "2", "--repeat", "1", "--plan", "given.plan"];
    let launch = optimizing(test, &words, &["./app", "5000"])?;
    let directory = launch.directory.clone();
    std::fs::write(
        directory.join("given.plan"),
        "hinterland-plan = 1\nprogram = '/bin/other'\n[[function]]\nname = 'not_there'\n",
    )?;
    let ended = launch.run()?;
    ensure!(
        ended.stderr.contains("given.plan was made for /bin/other: are its functions those of"),
        "{}",
        ended.stderr
    );
    let said = rounds(&ended)?;
    let [given, found] = [1, 2].map(|round| &said["rounds"][round]);
    ensure!(given["outcome"] == "rolled_back" && given["why"] == "its build ended with 7: no such plan", "{said}");
    ensure!(said["best"] == 2 && found["outcome"] == "kept", "{said}");
    ensure!(carries(&directory.join("app"), &directory.join("app.plan"))?, "{said}");
    Ok(())
}

/// A program without names has no plan, which is said.
fn stripped(test: &str) -> Result<()> {
    let build = format!("$CC -O2 -s {} -o app", places::program("compiler").join("partners.c").display());
    let (ended, directory) = optimize(test, &["--build", &build, "--repeat", "1"], &["./app", "2000"])?;
    let said = rounds(&ended)?;
    ensure!(said["rounds"].as_array().map(Vec::len) == Some(1) && said["plan"].is_null(), "{said}");
    ensure!(ended.stderr.contains("no plan was tried, because no function with a name waited"), "{}", ended.stderr);
    ensure!(!directory.join("app.plan").exists());
    Ok(())
}

/// A signal in the middle of a round: its build is ended, and the best one until then is made.
fn interrupted(test: &str) -> Result<()> {
    let source = places::program("compiler").join("partners.c");
    let build = format!(
        "rm -f app; if grep -q 'name = ' \"$HINTERLAND_PLAN\"; then echo $$ >begun; mv begun building; exec sleep 1000; fi; \
         $CC -O2 {} -o app",
        source.display()
    );
    let launch = optimizing(test, &["--build", &build, "--rounds", "2", "--repeat", "1"], &["./app", "2000"])?;
    let directory = launch.directory.clone();
    let running = launch.start()?;
    suite::wait_until("a build with a plan", || Ok(directory.join("building").exists()))?;
    running.signal(Signal::SIGTERM)?;
    let ended = running.end()?;
    ensure!(ended.code == 128 + Signal::SIGTERM as i32 && ended.stderr.contains("signal 15"), "{}", ended.stderr);
    let said: Value = serde_json::from_str(&ended.stdout).context(ended.stdout.clone())?;
    ensure!(said["best"] == 0 && said["rounds"].as_array().map(Vec::len) == Some(1), "{said}");
    let build = std::fs::read_to_string(directory.join("building"))?;
    ensure!(!Path::new("/proc").join(build.trim()).exists(), "the build goes on");
    ensure!(Command::new(directory.join("app")).arg("2000").output()?.status.success(), "the best build is there");
    Ok(())
}

/// A second signal ends the build that is made last, too, with all that it has started.
fn interrupted_twice(test: &str) -> Result<()> {
    let source = places::program("compiler").join("partners.c");
    let wait = |file: &str| format!("echo $$ >begun; mv begun {file}; sleep 1000; exit 1");
    let build = format!(
        "if grep -q 'name = ' \"$HINTERLAND_PLAN\"; then {}; elif [ -e app ]; then {}; fi; $CC -O2 {} -o app",
        wait("building"),
        wait("again"),
        source.display()
    );
    let launch = optimizing(test, &["--build", &build, "--rounds", "2", "--repeat", "1"], &["./app", "2000"])?;
    let directory = launch.directory.clone();
    let running = launch.start()?;
    for file in ["building", "again"] {
        suite::wait_until(file, || Ok(directory.join(file).exists()))?;
        running.signal(Signal::SIGTERM)?;
    }
    let ended = running.end()?;
    ensure!(ended.code != 0, "{}: {}", ended.code, ended.stderr);
    let group = std::fs::read_to_string(directory.join("again"))?;
    let last = Path::new("/proc").join(group.trim());
    suite::wait_until("the end of the last build", || Ok(!last.exists()))?;
    Ok(())
}

/// Where the best build cannot be made again, that is said beside what ended the loop.
fn unbuilt(test: &str) -> Result<()> {
    let source = places::program("compiler").join("partners.c");
    let build = format!(
        "if grep -q 'name = ' \"$HINTERLAND_PLAN\"; then echo no hints; exit 7; fi; \
         if [ -e app ]; then echo not again; exit 8; fi; $CC -O2 {} -o app",
        source.display()
    );
    let words = ["--build", &build, "--rounds", "1", "--repeat", "1"];
    let (ended, _) = optimize(test, &words, &["./app", "2000"])?;
    ensure!(ended.code == 125 && ended.stderr.contains("not again"), "{}: {}", ended.code, ended.stderr);
    ensure!(ended.stdout.contains("its build ended with 7: no hints"), "{}", ended.stdout);
    Ok(())
}

/// What cannot be optimized is said at once.
fn refused(test: &str) -> Result<()> {
    let good = build("");
    for (name, build, program, why) in [
        ("build", "echo it is broken; exit 7", &["./app"][..], "ended with 7: it is broken"),
        (
            "program",
            &format!("{good}; exit 0"),
            &["sh", "-c", "echo no >&2; exit 3"],
            "sh ended with 3, as it was built without hints: no",
        ),
        ("missing", "true", &["./app"], "./app: no such file"),
        ("unsteady", &good, &["sh", "-c", "echo $$"], "--ignore-output"),
    ] {
        let (ended, _) = optimize(&format!("{test}-{name}"), &["--build", build, "--repeat", "2"], program)?;
        ensure!(ended.code == 125 && ended.stderr.contains(why), "{name}: {}: {}", ended.code, ended.stderr);
    }
    let words = ["--build", &good, "--repeat", "1", "--output", "app"];
    let (ended, _) = optimize(&format!("{test}-replaced"), &words, &["./app", "2000"])?;
    ensure!(ended.code == 125 && ended.stderr.contains("--output: app is the program"), "{}", ended.stderr);
    Ok(())
}
