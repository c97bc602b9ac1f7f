//! The words of the command, as a table: what is run, with which code it ends, and the line that it says, to the letter.

use super::far_memory::Mounted;
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::{self, Trial};
use hinterland_tests::{places, skips};
use hinterland_units::ByteCount;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// One line of the table.
struct Message {
    name: &'static str,
    /// Variables.
    with: &'static [(&'static str, &'static str)],
    /// The command's arguments, separated by blanks; `{launcher}` is the command itself.
    arguments: &'static str,
    code: i32,
    /// A line of standard error after `hinterland: `; `{}` stands for a number.
    says: &'static str,
}

const NOBODY: &str = "Connection refused (os error 111); does a node run there? `hinterland node` starts one, with the credentials or the \
                      --insecure-loopback of this side";

#[rustfmt::skip]
const MESSAGES: &[Message] = &[
    Message { name: "local_without_unit", with: &[], arguments: "run --local 512 -- true", code: 125,
        says: "--local: 512 bytes: did you mean 512M? The smallest budget is 16 MiB" },
    Message { name: "local_in_gibibytes", with: &[], arguments: "run --local 8 -- true", code: 125,
        says: "--local: 8 bytes: did you mean 8G? The smallest budget is 16 MiB" },
    Message { name: "variable_without_unit", with: &[("HINTERLAND_RAM", "512")], arguments: "run -- true", code: 125,
        says: "HINTERLAND_RAM: 512 bytes: did you mean 512M? The smallest budget is 16 MiB" },
    Message { name: "local_with_unit", with: &[], arguments: "run --local 1M -- true", code: 125,
        says: "--local: '1M' is below the smallest budget, 16 MiB" },
    Message { name: "cache_without_unit", with: &[], arguments: "run --prefetch-cache 64 -- true", code: 125,
        says: "--prefetch-cache: 64 bytes: did you mean 64M? 64 B is below the smallest prefetch cache, 1 MiB: four usual windows" },
    Message { name: "tier_without_unit", with: &[], arguments: "run --far compressed:4 -- true", code: 125,
        says: "--far: 'compressed:4': 4 bytes: did you mean 4M? the capacity is smaller than one page; write at least 4K" },
    Message { name: "node_without_unit", with: &[], arguments: "node --capacity 16", code: 125,
        says: "16 bytes: did you mean 16M? a capacity of 16 B is less than one slab, 2 MiB; give at least 2M" },
    Message { name: "resize_without_unit", with: &[], arguments: "node resize tcp://127.0.0.1:1 8", code: 125,
        says: "SIZE: 8 bytes: did you mean 8M? 8 is less than one slab; give at least 2M, or drain the node" },
    Message { name: "nobody_to_ask", with: &[], arguments: "node status tcp://127.0.0.1:1", code: 125,
        says: "the node tcp://127.0.0.1:1 cannot be asked: {nobody}" },
    Message { name: "no_socket_to_ask", with: &[], arguments: "node status unix:/nonexistent/node", code: 125,
        says: "the node unix:/nonexistent/node cannot be asked: No such file or directory (os error 2); does a node run there? \
               `hinterland node --capacity 16G --listen unix:/nonexistent/node` starts one" },
    Message { name: "nobody_to_use", with: &[], arguments: "run --quiet --local 64M --far tcp://127.0.0.1:1 -- true", code: 125,
        says: "true (process {}): not started: the memory node tcp://127.0.0.1:1 cannot be used: {nobody}; --allow-unmanaged runs it \
               without Hinterland" },
    Message { name: "run_can_do_without", with: &[], arguments: "run --features no-uffd -- true", code: 125,
        says: "userfaultfd is switched off by --features no-uffd; leave that out. `hinterland doctor` shows all checks; \
               --allow-unmanaged runs the program without Hinterland" },
    Message { name: "trace_can_not", with: &[], arguments: "trace -o t --features no-uffd -- true", code: 125,
        says: "userfaultfd is switched off by --features no-uffd; leave that out. `hinterland doctor` shows all checks" },
    Message { name: "traced_program_can_not", with: &[], arguments: "trace -o t --quiet --local 64M --far tcp://127.0.0.1:1 -- true",
        code: 125,
        says: "true (process {}): not started: the memory node tcp://127.0.0.1:1 cannot be used: {nobody}" },
    Message { name: "far_without_credentials", with: &[], arguments: "trace -o t --far tcp://10.0.0.7:7440 -- true", code: 125,
        says: "--far: 'tcp://10.0.0.7:7440' is not a loopback address, and other machines may reach it: give --tls CERT,KEY and \
               --tls-ca CA, or a --key-file, to node and program alike; or let the node listen on a socket and forward that, for \
               example with ssh -N -L /run/user/1000/far.sock:/run/user/1000/hinterland.sock HOST" },
    Message { name: "traced_with_credentials", with: &[], arguments: "trace -o t --key-file /nonexistent -- true", code: 125,
        says: "--key-file: /nonexistent: No such file or directory (os error 2)" },
    Message { name: "unknown_variable", with: &[("HINTERLAND_LOCL", "1G")], arguments: "run --quiet -- true", code: 0,
        says: "warning: HINTERLAND_LOCL is no setting; did you mean HINTERLAND_LOCAL?" },
    Message { name: "unlike_variable", with: &[("HINTERLAND_COLOUR", "1")], arguments: "trace -o t --quiet -- true", code: 0,
        says: "warning: HINTERLAND_COLOUR is no setting; `hinterland run --help` lists them" },
    Message { name: "no_place_for_far_files", with: &[("TMPDIR", "/nonexistent/tmp")], arguments: "run --quiet --local 64M -- true", code: 0,
        says: "warning: no file will be far memory when compressed RAM is full: 'file:/nonexistent/tmp': /nonexistent/tmp cannot be \
               used: its directory /nonexistent cannot be used: No such file or directory (os error 2); set TMPDIR to a directory on a disk, or name one with --far" },
    Message { name: "full_disk", with: &[], arguments: "run --quiet --stats /dev/full -- true", code: 125,
        says: "--stats: /dev/full: the figures cannot be written: No space left on device (os error 28)" },
    Message { name: "full_disk_and_code", with: &[], arguments: "run --quiet --stats /dev/full -- false", code: 1,
        says: "--stats: /dev/full: the figures cannot be written: No space left on device (os error 28)" },
    Message { name: "no_directory", with: &[], arguments: "run --stats none/stats.json -- touch started", code: 125,
        says: "--stats: none/stats.json: the figures cannot be written: its folder does not exist; make it first (mkdir -p)" },
    Message { name: "pace_of_no_tape", with: &[], arguments: "run --tape-batch 8 -- touch started", code: 125,
        says: "--tape-batch: it is about following a tape, and none is named: give one with --tape FILE, or leave it out" },
    Message { name: "folder_without_traces", with: &[], arguments: "trace show /dev/fd", code: 125,
        says: "/dev/fd: a folder without traces, whose names would end in .trace; `hinterland trace -o FOLDER/ -- PROGRAM` records one of each process" },
    Message { name: "folder_without_tapes", with: &[], arguments: "tape show /dev/fd", code: 125,
        says: "/dev/fd: a folder without tapes, whose names would end in .tape; `hinterland tape TRACES/ --local 50% -o TAPES/` plans one \
               for each trace of a folder" },
    Message { name: "pages_into_no_folder", with: &[], arguments: "man /dev/null", code: 125,
        says: "/dev/null: this is no folder, and the pages are files in one; name a folder, which is made where it does not exist" },
    Message { name: "own_budget_within_a_run", with: &[],
        arguments: "run --quiet --local 64M -- {launcher} run --local 32M -- true", code: 0,
        says: "a run within a run: the budget of this inner one (32 MiB, --local) holds for true, and the outer one does not count it" },
    Message { name: "inherited_budget_within_a_run", with: &[],
        arguments: "run --quiet --local 64M -- {launcher} run -- true", code: 0,
        says: "a run within a run: the budget of this inner one (64 MiB, as the outer run has it) holds for true, and the outer one \
               does not count it" },
    Message { name: "own_ram_within_a_run", with: &[],
        arguments: "run --quiet --local 64M -- {launcher} run --ram 32M -- true", code: 0,
        says: "a run within a run: the budget of this inner one (32 MiB) holds for true, and the outer one does not count it" },
    Message { name: "put_aside_within_a_run", with: &[],
        arguments: "run --quiet --local 64M -- {launcher} run --ram 32M -- true", code: 0,
        says: "a run inside another does not inherit HINTERLAND_LOCAL, which would conflict with its flags" },
    Message { name: "own_blocks_within_a_run", with: &[],
        arguments: "run --quiet --local 64M -- {launcher} run --block 64K -- true", code: 0,
        says: "a run within a run: the budget of this inner one (64 MiB, as the outer run has it) holds for true, and the outer one \
               does not count it" },
];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = MESSAGES
        .iter()
        .map(|message| {
            let name = format!("lifecycle::messages::{}", message.name);
            suite::trial(name, skips::no_userfaultfd, || said(message))
        })
        .collect();
    for path in ["monitor", "inline"] {
        trials.extend([
            suite::trial(format!("lifecycle::messages::verdict::{path}"), skips::no_userfaultfd, move || verdict(path)),
            suite::trial(format!("lifecycle::messages::last_message::{path}"), skips::no_userfaultfd, move || {
                last_message(path)
            }),
            suite::trial(format!("lifecycle::messages::killed_by_the_cgroup::{path}"), no_memory_group, move || {
                killed_by_the_cgroup(path)
            }),
        ]);
    }
    trials.extend([
        suite::trial("lifecycle::messages::resize_beyond_the_machine", || None, resize_beyond_the_machine),
        suite::trial("lifecycle::messages::not_nested", skips::no_userfaultfd, not_nested),
        suite::trial("lifecycle::messages::full_disk_for_figures", skips::not_root, full_disk_for_figures),
    ]);
    trials
}

/// The command ends with the code, and says the line.
fn said(message: &Message) -> Result<()> {
    let launcher = places::launcher()?.display().to_string();
    let words: Vec<&str> =
        message.arguments.split(' ').map(|word| if word == "{launcher}" { &launcher } else { word }).collect();
    let mut launch = Launch::bare(&format!("messages-{}", message.name), &words)?;
    for (name, value) in message.with {
        launch = launch.with(name, value);
    }
    let started = launch.directory.join("started");
    let ended = launch.run()?;
    ended.expect(message.code, "")?;
    expect_line(&ended, &message.says.replace("{nobody}", NOBODY))?;
    ensure!(!started.exists(), "the program was started all the same");
    Ok(())
}

/// Standard error has the line; `{}` in it stands for a number.
fn expect_line(ended: &Ended, line: &str) -> Result<()> {
    let wanted = format!("hinterland: {line}");
    let is_it = |said: &str| match wanted.split_once("{}") {
        None => said == wanted,
        Some((before, after)) => {
            let number = said.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        }
    };
    ensure!(ended.stderr.lines().any(is_it), "standard error lacks '{wanted}':\n{}", ended.stderr);
    Ok(())
}

/// The first line of a summary says what the program needed, used and waited; all of it is among the figures, too.
fn verdict(path: &str) -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let test = format!("messages-verdict-{path}");
    let ended = Launch::new(&test, &["--local", "16M", "--fault-path", path], &[&program, "64"])?.run()?;
    let stats = ended.expect(0, "done")?.stats()?;
    let first = ended.stderr.lines().next().unwrap_or_default();
    let figure = |name: &str| stats[name].as_u64().context(name.to_owned());
    let [needed, used] =
        [figure("managed_peak_bytes")?, figure("total_ram_peak_bytes")?].map(|bytes| ByteCount(bytes).to_string());
    let share = stats["stall_share"].as_f64().context("stall_share")?;
    ensure!(stats["stall_threads"] == 1, "{stats}");
    let waited = if share < 0.005 { "less than 1 %".into() } else { format!("{:.0} %", share * 100.0) };
    let wanted = format!("hinterland: needed {needed}, used {used} of RAM, waited {waited} of the time");
    ensure!(first == wanted, "'{first}' instead of '{wanted}'");
    let second = ended.stderr.lines().nth(1).unwrap_or_default();
    let begin = format!("  program        {program} ended with exit code 0 after ");
    ensure!(second.starts_with(&begin), "{}", ended.stderr);
    Ok(())
}

/// What ended a program is told to its last letter, however long the names in it are; in the figures, too.
fn last_message(path: &str) -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let long = ["é".repeat(100).as_str(); 4].join("/");
    let url = format!("file:{long}/far?size=4M");
    let test = format!("messages-last-{path}");
    let launch =
        Launch::new(&test, &["--local", "16M", "--quiet", "--fault-path", path, "--far", &url], &[&program, "64"])?;
    std::fs::create_dir_all(launch.directory.join(&long))?;
    let ended = launch.run()?;
    ended.expect(125, "")?;
    let said = ended.stderr.lines().next().unwrap_or_default();
    ensure!(
        said.len() > 1000
            && said.contains("far memory is used up: file:/")
            && said.contains(&format!("/{long}/far?size=4M is full")),
        "{said}"
    );
    ensure!(said.ends_with(" --far or --local"), "cut: {said}");
    let fatal = ended.stats()?["fatal"][0].as_str().map(|text| format!("hinterland: {text}"));
    ensure!(fatal.as_deref() == Some(said), "the figures say {fatal:?}");
    Ok(())
}

/// A group whose memory is bounded, that is removed when the test ends.
struct Group(PathBuf);

impl Group {
    /// Makes one, of whichever version has the memory controller here.
    fn make(name: &str, limit_bytes: u64) -> Result<Group> {
        let version_1 = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = match version_1.exists() {
            true => (version_1, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Group(root.join(format!("hinterland-{name}-{}", std::process::id())));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join(limit), limit_bytes.to_string())?;
        // Whatever swap the machine has, or another test gives it.
        let swap = ["memory.swappiness", "memory.swap.max"].map(|file| group.0.join(file));
        for file in swap.iter().filter(|file| file.exists()) {
            std::fs::write(file, "0")?;
        }
        ensure!(group.0.join("cgroup.procs").exists(), "no group in {}", root.display());
        Ok(group)
    }

    fn limit(&self) -> PathBuf {
        let version_1 = self.0.join("memory.limit_in_bytes");
        if version_1.exists() { version_1 } else { self.0.join("memory.max") }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Why no group with bounded memory can be made here, if so.
fn no_memory_group() -> Option<String> {
    static MADE: LazyLock<Option<String>> = LazyLock::new(|| {
        Group::make("try", 64 << 20).err().map(|error| format!("no memory cgroup can be made: {error:#}"))
    });
    skips::not_root().or_else(skips::no_userfaultfd).or_else(|| MADE.clone())
}

/// A budget above the cgroup's limit is warned of before the program starts, and the kernel's kill has a name.
fn killed_by_the_cgroup(path: &str) -> Result<()> {
    let launcher = places::launcher()?;
    let program = c_program("hold", &[])?;
    // A group for each run: what a killed one leaves charged is freed by and by.
    let run = |budget: &str| -> Result<(Ended, String)> {
        let group = Group::make(&format!("killed-{path}-{budget}"), 96 << 20)?;
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec {} run --local {budget} --fault-path {path} --far file:far?size=1G -- {} 256",
            group.0.display(),
            launcher.display(),
            program.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let ended = Launch::of(&format!("messages-killed-{path}-{budget}"), command)?.run()?;
        Ok((ended, group.limit().display().to_string()))
    };
    let (killed, limit) = run("1G")?;
    killed.expect(137, "")?;
    expect_line(
        &killed,
        &format!(
            "warning: --local (1 GiB) is above the cgroup's limit (96 MiB, {limit}): the kernel would kill processes of the run before \
             the budget is reached; give less than the limit, or no budget (80 % of the limit)"
        ),
    )?;
    expect_line(
        &killed,
        &format!(
            "the kernel killed {}: its cgroup's memory was used up (96 MiB, {limit}); bound all of its RAM with --ram (--local does not count the compressed store), or raise the limit",
            program.display()
        ),
    )?;
    let (fine, _) = run("32M")?;
    fine.expect(0, "done")?;
    ensure!(!fine.stderr.contains("warning") && !fine.stderr.contains("the kernel killed"), "{}", fine.stderr);
    Ok(())
}

/// A node that is told to lend more than its machine has says so, and so does the command when it runs on the same machine.
fn resize_beyond_the_machine() -> Result<()> {
    let mut node =
        Launch::bare("messages-resize", &["node", "--capacity", "64M", "--listen", "tcp://127.0.0.1:0"])?.start()?;
    node.wait_for("listening on ")?;
    let said = std::fs::read_to_string(node.directory.join("stdout"))?;
    let url = said.trim_start_matches("listening on ").split(',').next().unwrap_or_default().to_owned();
    let resize = |test: &str, size: &str| Launch::bare(test, &["node", "resize", &url, size])?.run();
    let less = resize("messages-resize-less", "128M")?;
    less.expect(0, "lends 128 MiB")?;
    ensure!(less.stderr.is_empty(), "{}", less.stderr);
    let more = resize("messages-resize-more", "1000T")?;
    more.expect(0, "lends 1000 TiB")?;
    let begin = "hinterland: warning: 1000 TiB is more than the memory of this machine (";
    ensure!(more.stderr.starts_with(begin) && more.stderr.ends_with("is used; give less\n"), "{}", more.stderr);
    let log = std::fs::read_to_string(node.directory.join("stderr"))?;
    ensure!(log.matches("more is lent than there is").count() == 1, "{log}");
    Ok(())
}

/// A ledger's name that leads to none any more makes no run within a run.
fn not_nested() -> Result<()> {
    let ended = Launch::new("messages-not-nested", &["--local", "64M"], &["true"])?
        .with("HINTERLAND_LEDGER", "/proc/1/fd/77777")
        .run()?;
    ended.expect(0, "")?;
    ensure!(!ended.stderr.contains("a run within a run"), "{}", ended.stderr);
    Ok(())
}

/// A disk with room for a name and not for the figures: the run does not end well, an older file stays, and no empty one is left.
fn full_disk_for_figures() -> Result<()> {
    let point = places::emptied(places::tests().join("lifecycle").join("messages-full"))?;
    let options = Some("size=8k");
    nix::mount::mount(Some("tmpfs"), &point, Some("tmpfs"), nix::mount::MsFlags::empty(), options)?;
    let _mounted = Mounted(point.clone());
    std::fs::write(point.join("old.json"), "old\n")?;
    // What is over fills the rest.
    let _ = std::fs::write(point.join("filler"), vec![0; 1 << 20]);
    for name in ["old.json", "new.json"] {
        let stats = point.join(name).display().to_string();
        let ended =
            Launch::bare(&format!("messages-full-{name}"), &["run", "--quiet", "--stats", &stats, "--", "true"])?
                .run()?;
        ended.expect(125, "")?;
        expect_line(
            &ended,
            &format!("--stats: {stats}: the figures cannot be written: No space left on device (os error 28)"),
        )?;
    }
    let mut left: Vec<_> = std::fs::read_dir(&point)?.flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    ensure!(left == ["filler", "old.json"], "{left:?}");
    ensure!(std::fs::read_to_string(point.join("old.json"))? == "old\n", "the older figures are gone");
    Ok(())
}
