//! What of far memory is tuned for a program, by flag and while it runs: NUMA nodes, processors of the pager, widths of paths, blocks.

use super::control::listed;
use super::nodes::{PATHS, Test, trial};
use super::paths::{expect_set, on_path, started, terminated};
use anyhow::{Context, Result, ensure};
use hinterland_paging::{HEAD_BYTES, Log, Step, entry_bytes};
use hinterland_sim::replay;
use hinterland_tests::launch::{Ended, Launch, Running, c_program};
use hinterland_tests::node::Node;
use hinterland_tests::suite::{self, Trial};
use hinterland_tests::{MIB, skips};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Read;
use std::path::Path;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let on_nodes = || skips::no_userfaultfd().or_else(no_numa);
    for path in PATHS {
        let name = format!("lifecycle::tuning::numa::{path}");
        trials.push(suite::trial(name.clone(), on_nodes, move || numa(&name, path)));
        let name = format!("lifecycle::tuning::numa_tree::{path}");
        trials.push(suite::trial(name.clone(), on_nodes, move || numa_tree(&name, path)));
    }
    for path in PATHS {
        let mut add = |name: &str, test: fn(&str, &str) -> Result<()>| {
            let name = format!("lifecycle::tuning::{name}::{path}");
            trials.push(trial(name, Box::new(move |name: &str| test(name, path)) as Test));
        };
        add("cpus", cpus);
        add("cpus_tree", cpus_tree);
        add("widths", widths);
        add("block", block);
        add("shared_link", shared_link);
    }
    trials.push(trial("lifecycle::tuning::no_such_node".into(), Box::new(no_such_node) as Test));
    trials
}

/// Why no memory can be bound to a NUMA node on this machine, if the kernel has none or refuses it to this process.
fn no_numa() -> Option<String> {
    let node = hinterland_backend::parse("numa:0:1M").ok()?;
    hinterland_backend::check(&node).err().map(|error| error.to_string())
}

/// A program's pages move to a NUMA node while it runs: they lie there, bound, and count as far memory.
fn numa(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let running = started(test, path, &["compressed:256M"], &[&hold, "96", "stay"])?;
    let change = ["--add-far", "numa:0:256M", "--drop-far", "compressed:256M", "--ram", "40M", "--wait", "60"];
    expect_set(&running, &change, 0, "have the new paths to far memory, and nothing on the old ones")?;
    ensure!(on_path(&running, "compressed")? == 0 && on_path(&running, "numa:0:256M")? > 64 * MIB, "nothing has moved");
    let run = listed(&running)?.context("it is listed")?;
    ensure!(run["total_ram_bytes"].as_u64() < Some(42 * MIB), "pages on a node are RAM of the run: {run}");
    let program = *running.below().first().context("the program runs")?;
    let maps = std::fs::read_to_string(format!("/proc/{program}/numa_maps"))?;
    ensure!(maps.lines().any(|line| line.contains(" bind:0 ")), "nothing is bound to node 0: {maps}");
    terminated(running)
}

/// Processes that share pages on a node since a fork have them right, beside compressed RAM and in tiers, in a bound on RAM that the pages
/// would exceed; they are told as RAM that the path occupies.
fn numa_tree(test: &str, path: &str) -> Result<()> {
    let program = c_program("children", &[])?.display().to_string();
    for (far, placement) in [
        (["numa:0:256M", "compressed:256M"], "spread"),
        (["compressed:4M", "numa:0"], "tiers"),
        (["numa:0", "compressed"], "auto"),
    ] {
        let arguments = ["--local", "16M", "--ram", "256M", "--fault-path", path, "--placement", placement];
        let arguments = [&arguments[..], &["--far", far[0], "--far", far[1]]].concat();
        let ended = Launch::new(&format!("{test}-{placement}"), &arguments, &[&program, "fork"])?.run()?;
        ended.expect(0, "child ok")?.expect_paging()?;
        let stats = ended.stats()?;
        let rows = stats["backends"].as_array().context("no backends")?;
        let row = rows.iter().find(|row| row["url"].as_str().is_some_and(|url| url.starts_with("numa:0")));
        let row = row.context("no path on the node")?;
        ensure!(
            row["pages_peak"].as_u64() > Some(0) && row["ram_peak_bytes"].as_u64() > row["stored_peak_bytes"].as_u64(),
            "{row}"
        );
    }
    Ok(())
}

/// A node that is not there, or none at all, is refused before the program starts.
fn no_such_node(test: &str) -> Result<()> {
    for (url, words) in [
        ("numa:1000", &["there is no NUMA node 1000 here", "tells of no NUMA nodes"][..]),
        ("numa:all", &["'all' is no number of a NUMA node"]),
        ("numa:0:9000T", &["NUMA node 0 has only", "tells of no NUMA nodes", "cannot be bound"]),
    ] {
        let ended = Launch::new(test, &["--local", "16M", "--far", url], &["sh", "-c", "echo started"])?.run()?;
        ended.expect(125, "")?.expect_refusal(words)?;
        ensure!(ended.stdout.is_empty(), "the program was started: {}", ended.stdout);
    }
    Ok(())
}

/// A file and a node get other widths while a program runs: the path is opened anew with them, and the old one is emptied.
fn widths(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let hold = c_program("hold", &[])?.display().to_string();
    let narrow = "file:/tmp?size=1G&depth=2&threads=1";
    let running = started(test, path, &[narrow], &[&hold, "96", "stay"])?;
    ensure!(on_path(&running, narrow)? > 64 * MIB, "its width is not told");
    let (all_lanes, one_lane) = (node.patient_url(), format!("{}&lanes=1", node.patient_url()));
    for (old, new) in [(narrow, "file:/tmp?size=1G"), ("file:/tmp?size=1G", &one_lane), (&one_lane, &all_lanes)] {
        expect_set(&running, &["--add-far", new, "--drop-far", old, "--wait", "60"], 0, "nothing on the old ones")?;
        let status = node.status()?;
        let sessions = status["largest_sessions"].as_array().context("no sessions")?;
        // One for demands, and two for all else.
        let are_narrow = sessions.iter().all(|session| session["lanes"].as_u64().is_some_and(|lanes| lanes <= 3));
        ensure!(new != one_lane || !sessions.is_empty() && are_narrow, "{status}");
    }
    for (url, words) in [
        ("file:/tmp?depth=65", "'65' is no value for depth; write operations in flight of one load, 1 to 64"),
        ("file:/tmp?io=plain&depth=2", "io=plain has one operation in flight; leave depth or io=plain out"),
        ("tcp://127.0.0.1:7440?lanes=none", "'none' is no value for lanes"),
    ] {
        expect_set(&running, &["--add-far", url], 125, words)?;
    }
    terminated(running)?;
    node.end()?;
    Ok(())
}

/// A program that needs neighbours in no order gets blocks of the size that is set, at its start and while it runs, and none any more; its memory
/// is right meanwhile.
fn block(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let arguments =
        ["--local", "32M", "--fault-path", path, "--prefetch", "none", "--block", "16K", "--granularity", "block"];
    let launch = Launch::new(test, &arguments, &[&hold, "96", "stay"])?;
    let directory = launch.directory.clone();
    let mut running = launch.with("HINTERLAND_TEST_DECISIONS", &directory.display().to_string()).start()?;
    running.wait_for("ready")?;
    let socket = running.directory.join("tmp/hinterland").join(running.pid.to_string());
    suite::wait_until("a socket", || Ok(socket.exists()))?;
    let brings = |granularity: &str, bytes: Option<u64>| -> Result<()> {
        let run = listed(&running)?.context("it is listed")?;
        ensure!(run["granularity"] == granularity && run["block_bytes"].as_u64() == bytes, "{run}");
        Ok(())
    };
    brings("block", Some(16 << 10))?;
    let prefetched = || -> Result<u64> {
        listed(&running)?.context("it is listed")?["prefetched_pages"].as_u64().context("no figure")
    };
    let comes = |what: &str| {
        let before = prefetched()?;
        suite::wait_until(what, || Ok(prefetched()? > before + 1000))
    };
    comes("pages of blocks of 16 KiB")?;
    // A 64th of local memory is less.
    expect_set(&running, &["--block", "2M"], 0, "have the new granularity and block size (512 KiB)")?;
    brings("block", Some(512 << 10))?;
    comes("pages of blocks of 512 KiB")?;
    expect_set(&running, &["--local", "24M"], 0, "budget of 24 MiB")?;
    brings("block", Some(256 << 10))?;
    expect_set(&running, &["--local", "32M"], 0, "budget of 32 MiB")?;
    expect_set(&running, &["--granularity", "page", "--block", "auto"], 0, "have the new granularity and block size")?;
    brings("page", None)?;
    expect_set(&running, &["--block", "64K"], 0, "have the new granularity and block size")?;
    brings("auto", Some(64 << 10))?;
    comes("pages of blocks of 64 KiB")?;
    for (arguments, words) in [
        (&["--block", "48K"][..], "'48K' is neither auto nor the size of a block: a power of two from 4 KiB to 2 MiB"),
        (&["--block", "64K", "--granularity", "page"], "no blocks are asked for with --granularity page"),
        (&["--granularity", "line"], "'line' is no granularity"),
    ] {
        expect_set(&running, arguments, 125, words)?;
    }
    brings("auto", Some(64 << 10))?;
    terminated(running)?;
    are_replayed(&directory)
}

/// The simulator decides as the pager did, with the blocks that were commanded. (A build as it is shipped notes no decisions.)
fn are_replayed(directory: &Path) -> Result<()> {
    let files = std::fs::read_dir(directory)?.flatten().map(|file| file.path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "decisions")) {
        let mut head = [0; HEAD_BYTES];
        let mut log = std::fs::File::open(&file)?;
        log.read_exact(&mut head)?;
        let mut bytes = head.to_vec();
        log.take(entry_bytes(&head)?).read_to_end(&mut bytes)?;
        let log = Log::read(&bytes)?;
        let replayed = replay(&log)?;
        let changes = log.entries.iter().filter(|entry| matches!(entry.step, Step::Blocks { .. })).count();
        ensure!(changes == 3 || log.is_full, "{changes} changes are noted, {replayed:?}");
    }
    Ok(())
}

/// Processes of a run are at one modelled link: each counts the other while both have pages on it.
fn shared_link(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let run = |name: &str, script: &str| {
        let arguments = ["--local", "16M", "--fault-path", path, "--prefetch", "none"];
        let far = ["--far", "compressed:256M?link=1us:200Mb/s"];
        Launch::new(&format!("{test}-{name}"), &[&arguments[..], &far].concat(), &["sh", "-c", script])
    };
    let users = |ended: &Ended| -> Result<u64> {
        let stats = ended.stats()?;
        stats["backends"][0]["link_processes"].as_u64().with_context(|| format!("no figure: {stats}"))
    };
    let alone = run("alone", &format!("{hold} 32"))?.run()?;
    alone.expect(0, "done")?.expect_paging()?;
    ensure!(users(&alone)? == 1, "{} processes used the link of one", users(&alone)?);
    let mut running = run("both", &format!("{hold} 32 stay & {hold} 32 stay & wait; echo ended"))?.start()?;
    running.wait_for("ready\nready")?;
    let faults =
        || -> Result<u64> { listed(&running)?.context("it is listed")?["major_faults"].as_u64().context("no figure") };
    let before = faults()?;
    suite::wait_until("faults of both", || Ok(faults()? > before + 2000))?;
    for pid in running.below().into_iter().skip(1) {
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    }
    let both = running.end()?;
    both.expect(0, "ended")?.expect_paging()?;
    ensure!(!both.stdout.contains("WRONG"), "{}", both.stdout);
    ensure!(users(&both)? == 2, "{} processes used the link of two", users(&both)?);
    Ok(())
}

/// The processors of the pager's own threads in the processes of a run, by name of thread; of those that sleep until something happens only
/// where `sleepers` are wanted, too.
fn processors(running: &Running, sleepers: bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for pid in running.below() {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads.map(|thread| thread.path()) {
            let name = std::fs::read_to_string(thread.join("comm")).unwrap_or_default().trim().to_owned();
            let is_meant = match name.as_str() {
                "far-exit" | "far-maintenance" => sleepers,
                name => name.starts_with("far-"),
            };
            let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
            found.extend(allowed(&status).filter(|_| is_meant).map(|allowed| (name, allowed.to_owned())));
        }
    }
    found
}

/// The processors that a thread may take, by its `/proc/…/status`.
pub(super) fn allowed(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim)
}

/// Whether all of these threads are kept to the same processor.
fn are_on_one(threads: &[(String, String)]) -> bool {
    let first = threads.first().map(|(_, allowed)| allowed);
    first.is_some_and(|first| first.parse::<u32>().is_ok() && threads.iter().all(|(_, allowed)| allowed == first))
}

/// The pager's threads of a program take one processor from the start, then all, then one again; its memory is right meanwhile.
fn cpus(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let arguments = ["--local", "16M", "--fault-path", path, "--cpus", "1"];
    let mut running = Launch::new(test, &arguments, &[&hold, "96", "stay"])?.start()?;
    running.wait_for("ready")?;
    let socket = running.directory.join("tmp/hinterland").join(running.pid.to_string());
    suite::wait_until("a socket", || Ok(socket.exists()))?;
    suite::wait_until("all threads on one processor", || {
        let threads = processors(&running, true);
        Ok(threads.iter().any(|(name, _)| name == "far-evictor") && are_on_one(&threads))
    })?;
    ensure!(listed(&running)?.context("it is listed")?["pager_cpus"] == 1);
    expect_set(&running, &["--cpus", "auto"], 0, "let the pager's own threads run on all processors")?;
    ensure!(listed(&running)?.context("it is listed")?["pager_cpus"].is_null());
    let own = std::fs::read_to_string("/proc/self/status")?;
    let own = allowed(&own).context("no processors")?;
    // A monitor follows the thread that faults to its processor.
    suite::wait_until("threads on all processors", || {
        let threads = processors(&running, false);
        Ok(threads.iter().all(|(name, allowed)| name == "far-monitor" || allowed == own))
    })?;
    expect_set(&running, &["--cpus", "1"], 0, "keep the pager's own threads to 1 processor")?;
    suite::wait_until("threads on one processor", || Ok(are_on_one(&processors(&running, false))))?;
    for nonsense in ["0", "-1", "many", "1025"] {
        let refused = [&format!("--cpus={nonsense}")[..]];
        expect_set(&running, &refused, 125, "is neither auto nor a number of processors from 1 to 1024")?;
    }
    terminated(running)
}

/// Children, and programs that the run starts later, have their pager's threads on the processor that was commanded, too.
fn cpus_tree(test: &str, path: &str) -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    let script = format!("{hold} 48 stay & echo waits; while [ ! -e go ]; do sleep 0.02; done; exec {hold} 48 stay");
    let mut running = Launch::new(test, &["--local", "16M", "--fault-path", path], &["sh", "-c", &script])?.start()?;
    running.wait_for("waits")?;
    running.wait_for("ready")?;
    let socket = running.directory.join("tmp/hinterland").join(running.pid.to_string());
    suite::wait_until("a socket", || Ok(socket.exists()))?;
    expect_set(&running, &["--cpus", "1"], 0, "to 1 processor")?;
    std::fs::write(running.directory.join("go"), "")?;
    let said = running.directory.join("stdout");
    suite::wait_until("both", || Ok(std::fs::read_to_string(&said)?.matches("ready").count() == 2))?;
    suite::wait_until("all threads of both on one processor", || {
        let threads = processors(&running, false);
        let evictors = threads.iter().filter(|(name, _)| name == "far-evictor").count();
        Ok(evictors >= 2 && are_on_one(&threads))
    })?;
    let said = std::fs::read_to_string(&said)?;
    ensure!(!said.contains("WRONG"), "{said}");
    Ok(())
}
