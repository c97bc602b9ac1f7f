//! Forks past libc's fork(3), forks without privileges, handlers of libraries that are older than ours: the child finds every
//! byte. And a process whose first thread leaves before the others, and one that closes what it does not know.

use anyhow::ensure;
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{process, skips, suite};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let ways = WAYS.into_iter().flat_map(|name| ["monitor", "inline"].map(|path| way(name, path)));
    let raw = RAW.iter().flat_map(|(way, monitor, inline)| [raw(way, "monitor", monitor), raw(way, "inline", inline)]);
    let far_stacks =
        ["stack", "thread", "vfork"].into_iter().flat_map(|way| ["monitor", "inline"].map(|path| far_stack(way, path)));
    ways.chain(raw)
        .chain(far_stacks)
        .chain(FULL.iter().flat_map(|way| ["monitor", "inline"].map(|path| full_table(way, path))))
        .chain(["monitor", "inline"].map(handlers))
        .chain([
            other("exit_in_handler", "exit_in_handler", "all left", skips::no_userfaultfd),
            other("last_thread_ends", "last_thread", "last thread ok", skips::no_userfaultfd),
            own_malloc_behind("monitor"),
            own_malloc_behind("inline"),
            wrapped_malloc("monitor"),
            wrapped_malloc("inline"),
            unserved("monitor"),
            unserved("inline"),
            cancelled("monitor"),
            cancelled("inline"),
            other("fork_without_root", "dropped_root", "child 0", no_device),
            suite::trial("lifecycle::strange_forks::closes_the_far_file", skips::no_userfaultfd, || {
                let program = c_program("close_all", &[])?.display().to_string();
                let far = format!("file:{}?size=1G", std::env::temp_dir().display());
                let launch = Launch::new("close-all", &["--local", "16M", "--far", &far], &[&program])?;
                launch.run()?.expect(0, "all closed")?.expect_paging()?;
                Ok(())
            }),
        ])
        .collect()
}

/// Without the device (Linux 6.1), a process that gave its privileges up cannot serve a child.
fn no_device() -> Option<String> {
    let missing = !std::path::Path::new("/dev/userfaultfd").exists();
    skips::no_userfaultfd().or(missing.then(|| "there is no /dev/userfaultfd".into()))
}

/// A program that prints a line and ends.
fn other(name: &'static str, program: &'static str, line: &'static str, skip: fn() -> Option<String>) -> Trial {
    let name = format!("lifecycle::strange_forks::{name}");
    suite::trial(name.clone(), skip, move || {
        let program = c_program(program, &[])?.display().to_string();
        Launch::new(&name, &["--local", "16M"], &[&program])?.run()?.expect(0, line)?.expect_paging()?;
        Ok(())
    })
}

/// How a child, or with `words-task` and `words-address` a thread, is made. `words-`: the kernel writes numbers to far memory.
const WAYS: [&str; 14] = [
    "clone",
    "syscall-fork",
    "syscall-clone",
    "clone3",
    "cleared",
    "cleared-vfork",
    "library",
    "_Fork",
    "words-clone",
    "words-syscall",
    "words-clone3",
    "words-vfork",
    "words-task",
    "words-address",
];

/// How a limit on descriptors comes to be reached.
const FULL: [&str; 5] = ["hard", "soft", "none", "twice", "full"];

/// Forks of a process that has no descriptor left: output and code are those of a native run, the limit that it sees among them.
fn full_table(way: &'static str, path: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::full_table::{way}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("full_table", &[])?;
        let native = std::process::Command::new(&program).arg(way).output()?;
        let said = String::from_utf8_lossy(&native.stdout).into_owned();
        ensure!(said.contains("the last said 7"), "natively: {said}");
        let arguments = ["--local", "16M", "--fault-path", path];
        let ended = Launch::new(&name, &arguments, &[&program.display().to_string(), way])?.run()?;
        ended.expect(process::code(native.status), &said)?.expect_paging()?;
        Ok(())
    })
}

/// An allocator behind ours that takes the place of glibc's under its own names: libc and ld.so allocate from it, threads' data too.
fn own_malloc_behind(path: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::own_malloc_behind::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let library = c_program("own_malloc", &["-DLIBRARY", "-shared", "-fPIC", "-fno-builtin", "-Wl,-Bsymbolic"])?
            .display()
            .to_string();
        let program = c_program("own_malloc", &["-DPROGRAM", &library])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program])?;
        launch.run()?.expect(0, "all right")?.expect_paging()?;
        Ok(())
    })
}

/// A library before ours that keeps a book of allocations under a lock, and passes them on: no thread of ours waits for that.
fn wrapped_malloc(path: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::wrapped_malloc::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let library = c_program("wrapped_malloc", &["-DLIBRARY", "-shared", "-fPIC", "-fno-builtin"])?;
        let program = c_program("wrapped_malloc", &[])?;
        let script = format!("LD_PRELOAD={}:$LD_PRELOAD exec {}", library.display(), program.display());
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &["sh", "-c", &script])?;
        launch.run()?.expect(0, "child 0x300")?.expect_paging()?;
        Ok(())
    })
}

/// A child whose far memory cannot be served, because it may open no file, ends before it touches any; its parent goes on. The run says
/// so, and is no success.
fn unserved(path: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::unserved::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("unserved_child", &[])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program])?;
        let ended = launch.run()?;
        ended.expect(125, "child: exited 1 code 125")?.expect_paging()?;
        ensure!(ended.stats()?["exit_code"] == 0, "the program's own code: {}", ended.stats()?);
        ensure!(ended.stderr.contains("a forked process cannot go on"), "{}", ended.stderr);
        Ok(())
    })
}

/// A thread that was cancelled goes on until it comes to a cancellation point: neither are faults such points, though they read a file, nor
/// is a fork.
fn cancelled(path: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::cancelled::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("cancelled", &[])?.display().to_string();
        let far = format!("file:{}?size=1G", std::env::temp_dir().display());
        let options = ["--local", "16M", "--fault-path", path, "--far", &far];
        Launch::new(&name, &options, &[&program])?.run()?.expect(0, "went on, child 3")?.expect_paging()?;
        let options = ["trace", "-o", "traces/", "--", &program];
        Launch::bare(&format!("{name}::traced"), &options)?.run()?.expect(0, "went on, child 3")?;
        Ok(())
    })
}

/// What becomes of a child that was made by an instruction of the program's own: by way, on the monitor path and inline. It
/// dies where it touches what was far, or is told that it is not there (6: a call failed); never does it find zeros (99).
/// On the inline path its call fails if the page was near at the fork; if it was far, the library is asked for it, and ends it.
const RAW: [(&str, &[&str], &[&str]); 8] = [
    ("read", &["read: signal 11"], &["read: signal 11"]),
    ("write", &["write: code 6"], &["write: code 125", "write: code 6"]),
    ("heap", &["heap: signal 11"], &["heap: signal 11"]),
    ("heaps", &["heaps: code 7"], &["heaps: code 7"]),
    ("busy", &["busy: code 7"], &["busy: code 7"]),
    ("stack", &["stack: code 7"], &["stack: code 7"]),
    ("exit", &["exit: code 7"], &["exit: code 7"]),
    ("grandchild", &[GRANDCHILD], &[GRANDCHILD]),
];

const GRANDCHILD: &str = "grandchild: signal 11\nchild: code 0\nread: signal 11";

/// A fork from a stack in far memory; a clone whose parent waits, while another thread needs far memory.
fn far_stack(way: &'static str, path: &'static str) -> Trial {
    let name = format!("lifecycle::far_stack_fork::{way}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("far_stack_fork", &[])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program, way])?;
        let right = if way == "vfork" { "waited, child 0\nparent ok" } else { "parent ok" };
        launch.run()?.expect(0, right)?.expect_paging()?;
        Ok(())
    })
}

/// Handlers of the program's own (pthread_atfork) read and write far memory before and after the fork, in child and grandchild.
fn handlers(path: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::handlers::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("atfork", &[])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program, "4"])?;
        launch.run()?.expect(0, "4 of 4 forks right, handlers ran 4 times")?.expect_paging()?;
        Ok(())
    })
}

fn raw(way: &'static str, path: &'static str, outcomes: &'static [&'static str]) -> Trial {
    let name = format!("lifecycle::raw_forks::{way}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("raw_forks", &[])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program, way])?;
        let ended = launch.run()?;
        let outcome = outcomes.iter().find(|outcome| ended.stdout.contains(**outcome)).unwrap_or(&outcomes[0]);
        ended.expect(0, &format!("{outcome}\nparent ok"))?.expect_paging()?;
        Ok(())
    })
}

fn way(way: &'static str, path: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::{way}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let library = c_program("early", &["-shared", "-fPIC"])?.display().to_string();
        let program = c_program("strange_forks", &[&library])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program, way])?;
        launch.run()?.expect(0, &format!("{way}: child 0, parent 0"))?.expect_paging()?;
        Ok(())
    })
}
