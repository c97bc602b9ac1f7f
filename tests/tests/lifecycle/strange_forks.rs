//! Forks past libc's fork(3), and handlers of libraries that are older than ours: the child finds every byte.

use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::{skips, suite};
use libtest_mimic::Trial;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    ["clone", "syscall-fork", "syscall-clone", "clone3", "library"].into_iter().map(trial).collect()
}

fn trial(way: &'static str) -> Trial {
    let name = format!("lifecycle::strange_forks::{way}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let library = c_program("early", &["-shared", "-fPIC"])?.display().to_string();
        let program = c_program("strange_forks", &[&library])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M"], &[&program, way])?;
        launch.run()?.expect(0, &format!("{way}: child 0, parent 0"))?.expect_paging()?;
        Ok(())
    })
}
