//! Forks past libc's fork(3), forks without privileges, handlers of libraries that are older than ours: the child finds every
//! byte. And a process whose first thread leaves before the others, and one that closes what it does not know.

use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::{skips, suite};
use libtest_mimic::Trial;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let ways = ["clone", "syscall-fork", "syscall-clone", "clone3", "library"].into_iter().map(way);
    ways.chain([
        other("exit_in_handler", "exit_in_handler", "all left", skips::no_userfaultfd),
        other("last_thread_ends", "last_thread", "last thread ok", skips::no_userfaultfd),
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

fn way(way: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::{way}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let library = c_program("early", &["-shared", "-fPIC"])?.display().to_string();
        let program = c_program("strange_forks", &[&library])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M"], &[&program, way])?;
        launch.run()?.expect(0, &format!("{way}: child 0, parent 0"))?.expect_paging()?;
        Ok(())
    })
}
