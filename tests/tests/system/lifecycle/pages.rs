//! Single pages: locked, dropped by a raw call, zero, freed, read again and again; and those of a program that is not
//! to be managed.

use anyhow::{Result, ensure};
use hinterland_tests::frozen::mappings_bytes;
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{MIB, places, skips, suite};
use std::process::Command;

/// The program's data.
const DATA_BYTES: u64 = 48 * MIB;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let on_both = ["monitor", "inline"].into_iter().flat_map(|path| {
        let name = |what: &str| format!("lifecycle::pages::{what}::{path}");
        [
            suite::trial(name("locked"), skips::no_userfaultfd, move || locked(path)),
            suite::trial(name("dropped"), skips::no_userfaultfd, move || dropped(path)),
            suite::trial(name("zero"), skips::no_userfaultfd, move || zero(path)),
            suite::trial(name("freed"), skips::no_userfaultfd, move || freed(path)),
            suite::trial(name("lazily"), skips::no_userfaultfd, move || lazily(path)),
            suite::trial(name("sorted"), skips::no_userfaultfd, move || sorted(path)),
            suite::trial(name("clean"), skips::no_userfaultfd, move || clean(path)),
            suite::trial(name("rounds"), skips::no_userfaultfd, move || rounds(path)),
            suite::trial(name("copies"), skips::no_userfaultfd, move || copies(path)),
            suite::trial(name("tight"), skips::no_userfaultfd, move || tight(path)),
        ]
    });
    let once = [
        suite::trial("lifecycle::pages::nobody_asked", skips::no_userfaultfd, nobody_asked),
        suite::trial("lifecycle::pages::small_objects", skips::no_userfaultfd, small_objects),
    ];
    on_both.chain(once).collect()
}

fn run(what: &str, path: &str, far: &str) -> Result<Ended> {
    run_as(what, what, path, far)
}

/// Of a name of its own, where another test does the same with other far memory.
fn run_as(name: &str, what: &str, path: &str, far: &str) -> Result<Ended> {
    let program = c_program("pages", &[])?.display().to_string();
    let arguments = ["--local", "16M", "--fault-path", path, "--far", far];
    Launch::new(&format!("pages-{name}-{path}"), &arguments, &[&program, what])?.run()
}

/// Locks of more than half the budget are refused, as is mlockall(2).
fn locked(path: &str) -> Result<()> {
    let ended = run("lock", path, "compressed")?;
    ensure!(ended.code == 0, "ended with {}: {}", ended.code, ended.stderr);
    let expected = "half ok\nunlock ok\nmost ENOMEM\nall ENOMEM\ndone\n";
    ensure!(ended.stdout == expected, "{}", ended.stdout);
    Ok(())
}

/// Local pages that the program drops by the instruction itself read as zeros, their neighbours as before.
fn dropped(path: &str) -> Result<()> {
    run("drop", path, "compressed")?.expect(0, "dropped 0\ndone\n")?.expect_paging()?;
    Ok(())
}

/// The copy of the array that qsort(3) makes is the program's memory: the array and its copy do not fit into what is resident.
fn sorted(path: &str) -> Result<()> {
    let ended = run("sorted", path, "compressed")?;
    ended.expect(0, "wrong 0\n")?;
    let said = ended.stdout.lines().find_map(|line| line.strip_prefix("resident ")?.parse::<u64>().ok());
    ensure!(said.is_some_and(|resident| resident > 0 && resident * MIB < DATA_BYTES), "{}", ended.stdout);
    Ok(())
}

/// Pages of zeros take no far memory.
fn zero(path: &str) -> Result<()> {
    let ended = run("zeros", path, "compressed")?;
    let stats = ended.expect(0, "zeros\n")?.stats()?;
    let (zero, stored) = (stats["evicted_zero_pages"].as_u64(), stats["backends"][0]["bytes_in"].as_u64());
    ensure!(zero > Some(DATA_BYTES / 4096 / 2), "few pages were found to be zero: {stats}");
    ensure!(stored < Some(MIB), "zeros were stored: {stats}");
    Ok(())
}

/// Pages that the heap has freed and keeps for reuse leave without being stored; what was not freed is there.
fn freed(path: &str) -> Result<()> {
    let stats = run("freed", path, "compressed")?.expect(0, "freed\n")?.expect_paging()?.stats()?;
    ensure!(stats["evicted_free_pages"].as_u64() > Some(0), "every page that left was stored: {stats}");
    Ok(())
}

/// Pages that the program may lose are dropped at once where frames are wanted, and stay where there is room.
fn lazily(path: &str) -> Result<()> {
    run("lazily", path, "compressed")?.expect(0, "free ok\nzero 1024\ndone\n")?.expect_eviction()?;
    let program = c_program("pages", &[])?.display().to_string();
    let arguments = ["--local", "256M", "--fault-path", path];
    let roomy = Launch::new(&format!("pages-lazily-roomy-{path}"), &arguments, &[&program, "lazily"])?.run()?;
    roomy.expect(0, "free ok\nzero 0\ndone\n")?;
    Ok(())
}

/// Pages whose stored copy was kept are not written again.
fn clean(path: &str) -> Result<()> {
    let ended = run("clean", path, "file:far?size=1G")?;
    let stats = ended.expect(0, "done\n")?.expect_paging()?.stats()?;
    let (clean, stored) = (stats["evicted_clean_pages"].as_u64(), stats["backends"][0]["bytes_in"].as_u64());
    ensure!(clean > Some(DATA_BYTES / 4096), "few pages left without a write: {stats}");
    ensure!(stored < Some(DATA_BYTES * 3 / 2), "pages were written again: {stats}");
    Ok(())
}

/// Of a program that goes round and round through a little more than the budget, victims are chosen at random, and the summary says so.
fn rounds(path: &str) -> Result<()> {
    let ended = run("rounds", path, "compressed")?;
    let stats = ended.expect(0, "done\n")?.expect_eviction()?.stats()?;
    ensure!(stats["random_victim_pages"].as_u64() > Some(0), "no victim was chosen at random: {stats}");
    ensure!(ended.stderr.contains("chosen at random, because nearly all fits"), "{}", ended.stderr);
    Ok(())
}

/// As many copies are retained in RAM as the setting says: with all of them almost every page leaves clean, with none nearly all are stored again.
fn copies(path: &str) -> Result<()> {
    let run = |copies: &str| {
        let program = c_program("pages", &[])?.display().to_string();
        let arguments = ["--local", "16M", "--fault-path", path, "--far", "compressed", "--copies", copies];
        let name = format!("pages-copies-{}-{path}", copies.trim_end_matches('%'));
        let stats = Launch::new(&name, &arguments, &[&program, "clean"])?.run()?.expect(0, "done\n")?.stats()?;
        Ok::<_, anyhow::Error>((stats["evicted_clean_pages"].as_u64(), stats["evicted_dirty_pages"].as_u64()))
    };
    let (all, none) = (run("100%")?, run("0%")?);
    ensure!(all.0 > Some(DATA_BYTES / 4096) && all.0 > all.1, "clean and dirty: {all:?}");
    ensure!(none.1 > none.0, "clean and dirty: {none:?}");
    Ok(())
}

/// A file that holds what is not local, and little more: it keeps copies of local pages as long as there is room for them.
fn tight(path: &str) -> Result<()> {
    let stats = run_as("tight", "clean", path, "file:far?size=35M")?.expect(0, "done\n")?.expect_paging()?.stats()?;
    let (clean, dropped) = (stats["evicted_clean_pages"].as_u64(), stats["dropped_copies"].as_u64());
    ensure!(clean > Some(0) && dropped > Some(0), "no copy was retained, or none was dropped: {stats}");
    Ok(())
}

/// What the heap keeps near about 64 MiB of small objects takes a sixty-fourth of them at most, more than about one large object.
fn small_objects() -> Result<()> {
    let large = near_bytes_beside(64 * MIB)?;
    for bytes in [32, 48, 64, 512, 1024, 1536, 2048] {
        let small = near_bytes_beside(bytes)?;
        ensure!(
            small < large + MIB,
            "{small} bytes are near beside objects of {bytes} bytes, {large} beside one object"
        );
    }
    Ok(())
}

/// Anonymous bytes outside the far range in a program of 64 MiB in objects of so many bytes, all of them local.
fn near_bytes_beside(bytes: u64) -> Result<u64> {
    let program = c_program("pages", &[])?.display().to_string();
    let name = format!("pages-objects-{bytes}");
    let ended = Launch::new(&name, &["--local", "256M"], &[&program, "objects", &bytes.to_string()])?.run()?;
    let near = mappings_bytes(&ended.expect(0, "Anonymous:")?.stdout, "Anonymous", |is_far, _| !is_far);
    ensure!(near > 0, "no anonymous memory outside the far range");
    Ok(near)
}

/// The preloaded library leaves a program without settings alone; with them, the far range is there.
fn nobody_asked() -> Result<()> {
    let far = format!("{:x}-", hinterland_tests::frozen::FAR.start);
    let library = places::launcher()?.with_file_name("libhinterland.so");
    let mut command = Command::new("cat");
    command.arg("/proc/self/maps").env("LD_PRELOAD", library);
    let left_alone = Launch::of("pages-nobody-asked", command)?.run()?;
    ensure!(left_alone.code == 0 && left_alone.stderr.is_empty(), "{}: {}", left_alone.code, left_alone.stderr);
    ensure!(left_alone.stdout.contains("libhinterland.so"), "not preloaded: {}", left_alone.stdout);
    ensure!(!left_alone.stdout.contains(&far), "a far range without settings: {}", left_alone.stdout);
    let managed = Launch::new("pages-asked", &["--local", "16M"], &["cat", "/proc/self/maps"])?.run()?;
    managed.expect(0, &far)?;
    Ok(())
}
