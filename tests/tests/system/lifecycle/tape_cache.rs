//! `--tape auto`: the first run is recorded, later ones follow a tape of it; whatever is wrong with what is kept costs the tape and a message.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program, launcher};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What `walks` ends with.
const CODE: i32 = 7;
/// What a run says that was recorded.
const RECORDED: &str = "references were recorded for later runs";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: &str, skip: fn() -> Option<String>, test: fn(&str) -> Result<()>| {
        let name = format!("lifecycle::tape_cache::{name}");
        trials.push(suite::trial(name.clone(), skip, move || test(&name)));
    };
    add("recorded_then_followed", skips::no_userfaultfd, recorded_then_followed);
    add("damaged", skips::no_userfaultfd, damaged);
    add("at_the_same_time", skips::no_userfaultfd, at_the_same_time);
    add("unrecorded", skips::no_userfaultfd, unrecorded);
    add("behind_a_shell", skips::no_userfaultfd, behind_a_shell);
    add("opened_later", skips::no_userfaultfd, opened_later);
    add("no_room", || skips::not_root().or_else(skips::no_userfaultfd), no_room);
    trials
}

/// A folder for what is kept, empty.
fn cache(name: &str) -> Result<PathBuf> {
    places::emptied(places::tests().join("lifecycle").join(format!("{}-cache", name.replace("::", "-"))))
}

fn launch(name: &str, cache: &Path, options: &[&str], program: &[&str]) -> Result<Launch> {
    let options = [&["--tape", "auto"], options].concat();
    Ok(Launch::new(name, &options, program)?.with("XDG_CACHE_HOME", &cache.display().to_string()))
}

/// Runs `walks` through 32 MiB, and demands what it prints.
fn walk(name: &str, cache: &Path, options: &[&str], rounds: &str) -> Result<Ended> {
    let walks = c_program("walks", &[])?.display().to_string();
    let ended = launch(name, cache, options, &[&walks, "sequential", "8192", rounds])?.run()?;
    ended.expect(CODE, "done")?;
    Ok(ended)
}

/// The files that are kept with one of the endings.
fn kept(cache: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(cache.join("hinterland/tapes"))?;
    let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    Ok(paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ending)).collect())
}

fn source(ended: &Ended) -> Result<String> {
    Ok(ended.stats()?["tape_source"].as_str().unwrap_or_default().into())
}

fn follows(ended: &Ended, from: &str) -> Result<()> {
    let (source, threads) = (source(ended)?, ended.stats()?["tape_threads"].as_u64().context("no threads")?);
    ensure!(threads == 1 && source.starts_with(from), "{threads} threads followed what is {source}: {}", ended.stderr);
    Ok(())
}

/// The first run is recorded; the next ones follow a tape for their size, on both paths; other arguments are another run.
fn recorded_then_followed(name: &str) -> Result<()> {
    let cache = cache(name)?;
    let first = walk(name, &cache, &["--local", "50%"], "3")?;
    ensure!(source(&first)?.contains(RECORDED) && first.stderr.contains(RECORDED), "{}", first.stderr);
    let files = kept(&cache, "")?;
    ensure!(files.len() == 2, "{files:?}");
    let mode = |path: &Path| Ok::<u32, std::io::Error>(std::fs::metadata(path)?.permissions().mode() & 0o777);
    ensure!(mode(&cache.join("hinterland/tapes"))? == 0o700, "the folder is open to others");
    for file in &files {
        ensure!(mode(file)? == 0o600, "{} is open to others", file.display());
    }
    for (path, from) in [("monitor", "planned in "), ("inline", "kept in ")] {
        let options = ["--local", "50%", "--fault-path", path];
        let ended = walk(&format!("{name}-{path}"), &cache, &options, "3")?;
        follows(&ended, from)?;
        ended.expect_paging()?;
        ensure!(ended.stats()?["local_budget_bytes"].as_u64() <= Some(17 << 20), "a share is of the recorded peak");
    }
    follows(&walk(&format!("{name}-larger"), &cache, &["--local", "75%"], "3")?, "planned in ")?;
    ensure!(kept(&cache, ".tape")?.len() == 2, "{:?}", kept(&cache, "")?);
    let other = walk(&format!("{name}-other"), &cache, &["--local", "16M"], "2")?;
    ensure!(source(&other)?.contains(RECORDED), "{}", other.stderr);
    ensure!(kept(&cache, ".trace")?.len() == 2, "{:?}", kept(&cache, "")?);
    // A job of the program needs no other trace.
    let walks = c_program("walks", &[])?.display().to_string();
    let words = "submit --slurm --backend compressed --dry-run --slowdown 10 --".split(' ');
    let words = words.chain([walks.as_str(), "sequential", "8192", "3"]);
    let job = launcher()?.args(words).env("XDG_CACHE_HOME", &cache).output()?;
    let line = String::from_utf8_lossy(&job.stdout).into_owned();
    ensure!(job.status.success() && line.starts_with("sbatch --job-name=walks --mem="), "{line} {job:?}");
    Ok(())
}

/// What is damaged is planned or recorded again.
fn damaged(name: &str) -> Result<()> {
    let cache = cache(name)?;
    let run = |what: &str| walk(&format!("{name}-{what}"), &cache, &["--local", "16M"], "2");
    run("first")?;
    follows(&run("second")?, "planned in ")?;
    let cut = |ending: &str| -> Result<()> {
        let file = kept(&cache, ending)?.pop().context("nothing is kept")?;
        let bytes = std::fs::read(&file)?;
        Ok(std::fs::write(&file, &bytes[..bytes.len() / 2])?)
    };
    cut(".tape")?;
    let ended = run("tape")?;
    follows(&ended, "planned in ")?;
    ensure!(ended.stderr.contains("--tape auto: ") && ended.stderr.contains(".tape: "), "{}", ended.stderr);
    for ending in [".trace", ".json"] {
        cut(ending)?;
        // A tape needs no trace.
        kept(&cache, ".tape")?.iter().try_for_each(std::fs::remove_file)?;
        let ended = run(ending)?;
        ensure!(ended.stderr.contains("recorded anew") && source(&ended)?.contains(RECORDED), "{}", ended.stderr);
        follows(&run("again")?, "planned in ")?;
    }
    Ok(())
}

/// Two first runs at once: both are recorded, and what is kept is whole.
fn at_the_same_time(name: &str) -> Result<()> {
    let (cache, walks) = (cache(name)?, c_program("walks", &[])?.display().to_string());
    let start = |which: u32| {
        launch(&format!("{name}-{which}"), &cache, &["--local", "16M"], &[&walks, "sequential", "8192", "4"])?.start()
    };
    let running = [start(0)?, start(1)?];
    for run in running {
        let ended = run.end()?;
        ended.expect(CODE, "done")?;
        ensure!(source(&ended)?.contains(RECORDED), "{}", ended.stderr);
    }
    ensure!(kept(&cache, "")?.len() == 2, "{:?}", kept(&cache, "")?);
    follows(&walk(&format!("{name}-next"), &cache, &["--local", "16M"], "4")?, "planned in ")
}

/// Where a run cannot be recorded, or nothing be kept, it runs as without.
fn unrecorded(name: &str) -> Result<()> {
    let folder = cache(name)?;
    let says = |ended: &Ended, words: &str| -> Result<()> {
        ensure!(ended.stderr.contains("--tape auto: ") && ended.stderr.contains(words), "{words}: {}", ended.stderr);
        ensure!(source(ended)?.is_empty(), "a tape from somewhere");
        Ok(())
    };
    let inline = walk(&format!("{name}-inline"), &folder, &["--local", "16M", "--fault-path", "inline"], "2")?;
    says(&inline, "this run is not recorded")?;
    let nowhere = walk(&format!("{name}-nowhere"), Path::new("/proc"), &["--local", "16M"], "2")?;
    says(&nowhere, "nothing is recorded, and no tape is followed")?;
    let open = folder.join("hinterland/tapes");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777))?;
    says(&walk(&format!("{name}-open"), &folder, &["--local", "16M"], "2")?, "others may write there")?;
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o700))?;
    let killed =
        launch(&format!("{name}-killed"), &folder, &["--local", "16M"], &["sh", "-c", "kill -KILL $$"])?.run()?;
    ensure!(killed.code == 137 && killed.stderr.contains("is not kept: "), "{}: {}", killed.code, killed.stderr);
    ensure!(kept(&folder, "")?.is_empty(), "{:?}", kept(&folder, "")?);
    Ok(())
}

/// Behind a shell, the program that holds the most is recorded, and follows its tape; the one with other arguments does not.
fn behind_a_shell(name: &str) -> Result<()> {
    let (cache, program) = (cache(name)?, c_program("walks", &[])?.display().to_string());
    let line = format!("{program} sequential 2048 2; {program} sequential 8192 3; exit 3");
    let run = |what: &str| {
        let ended = launch(&format!("{name}-{what}"), &cache, &["--local", "50%"], &["sh", "-c", &line])?.run()?;
        ended.expect(3, "done")?;
        Ok::<Ended, anyhow::Error>(ended)
    };
    let first = run("first")?;
    ensure!(source(&first)?.contains(RECORDED), "{}", first.stderr);
    ensure!(kept(&cache, "")?.len() == 2, "{:?}", kept(&cache, "")?);
    let second = run("second")?;
    follows(&second, "planned in ")?;
    second.expect_paging()?;
    ensure!(
        second.stats()?["tape_left"] == 0 && second.stats()?["tape_pages"].as_u64() > Some(8192),
        "{}",
        second.stderr
    );
    Ok(())
}

/// A library that the program opens is compared like those that it was linked with, unless it is not there any more.
fn opened_later(name: &str) -> Result<()> {
    let (cache, loader) = (cache(name)?, c_program("loader", &[])?.display().to_string());
    let library = cache.join("plugin.so");
    let build = |level: &str| -> Result<()> {
        std::fs::copy(c_program("plugin", &["-shared", "-fPIC", level])?, cache.join("new.so"))?;
        Ok(std::fs::rename(cache.join("new.so"), &library)?)
    };
    let opened = library.display().to_string();
    let run =
        |what: &str| launch(&format!("{name}-{what}"), &cache, &["--local", "16M"], &[&loader, &opened, "keep"])?.run();
    build("-O2")?;
    ensure!(source(&run("first")?)?.contains(RECORDED), "the first run is recorded");
    follows(&run("second")?, "planned in ")?;
    build("-O1")?;
    let ended = run("built")?;
    ended.expect(0, "plugin ok")?;
    let says = "plugin.so has changed since the program was recorded: the program is recorded anew";
    ensure!(ended.stderr.contains(says) && source(&ended)?.contains(RECORDED), "{}", ended.stderr);
    follows(&run("again")?, "planned in ")?;
    std::fs::remove_file(&library)?;
    let ended = run("gone")?;
    ended.expect(96, "dlopen: ")?;
    ensure!(source(&ended)?.starts_with("kept in ") && !ended.stderr.contains("recorded anew"), "{}", ended.stderr);
    Ok(())
}

/// A full disk: the run goes on, and is not kept.
fn no_room(name: &str) -> Result<()> {
    let cache = cache(name)?;
    mount(Some("none"), &cache, Some("tmpfs"), MsFlags::empty(), Some("size=32k")).context("cannot mount a tmpfs")?;
    let walks = c_program("walks", &[])?.display().to_string();
    // At random places, of which a trace has more to tell.
    let walk = [walks.as_str(), "random", "8192", "3"];
    let run = launch(&format!("{name}-run"), &cache, &["--local", "16M"], &walk)?.run();
    let left = kept(&cache, "");
    umount2(&cache, MntFlags::MNT_DETACH)?;
    let ended = run?;
    ended.expect(CODE, "done")?;
    ensure!(ended.stderr.contains("the trace of this run is not kept: No space left"), "{}", ended.stderr);
    ensure!(left?.is_empty(), "something is left in the folder");
    Ok(())
}
