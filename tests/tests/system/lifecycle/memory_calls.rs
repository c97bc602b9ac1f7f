//! Memory calls that do not come through the functions of their names: what is mapped that way is managed.

use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{skips, suite};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    ["monitor", "inline"].map(mapped_by_number).into()
}

/// `syscall(SYS_mmap, …)` maps far memory, and `syscall(SYS_madvise, …)` drops it.
fn mapped_by_number(path: &'static str) -> Trial {
    let name = format!("lifecycle::memory_calls::mapped_by_number::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("mapped_by_number", &[])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program])?;
        launch.run()?.expect(0, "wrong 0, dropped 0: 0 not zero, 0 lost; unmapped 0")?.expect_paging()?;
        Ok(())
    })
}
