//! Children and threads while most of the memory is far: right bytes or a clear message, never a wrong byte.

use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};

/// Ways of starting another program: all must work.
const WAYS: [&str; 6] = ["fork-exec", "vfork", "posix_spawn", "system", "popen", "forks"];
/// Departure differs between these kernels, and with it what fork must be protected from.
const KERNELS: [&str; 3] = ["all", "6.1", "5.15"];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for kernel in KERNELS {
        for way in WAYS {
            let name = format!("lifecycle::children::{way}::{kernel}");
            trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || {
                let program = c_program("children", &[])?.display().to_string();
                let launch = Launch::new(&name, &["--local", "16M", "--features", kernel], &[&program, way])?;
                launch.run()?.expect(0, "parent ok, child 0")?.expect_paging()?;
                Ok(())
            }));
        }
        let name = format!("lifecycle::children::living_on::{kernel}");
        trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || living_on(&name, kernel)));
    }
    trials.push(suite::trial("lifecycle::threads_come_and_go", skips::no_userfaultfd, || {
        let program = c_program("threads", &[])?.display().to_string();
        let native = std::process::Command::new(&program).output()?;
        let right = String::from_utf8(native.stdout)?;
        Launch::new("threads", &["--local", "16M"], &[&program])?.run()?.expect(0, &right)?.expect_paging()?;
        Ok(())
    }));
    trials.push(suite::trial("lifecycle::library_loaded_late", skips::no_userfaultfd, || {
        let library = c_program("plugin", &["-shared", "-fPIC"])?.display().to_string();
        let program = c_program("loader", &[])?.display().to_string();
        let launch = Launch::new("library", &["--local", "16M"], &[&program, &library])?;
        launch.run()?.expect(0, "plugin ok")?.expect_paging()?;
        Ok(())
    }));
    trials.push(suite::trial("lifecycle::python_subprocesses", no_python, || {
        let script = "import subprocess, sys\n\
                      data = [str(i) * 10 for i in range(400000)]\n\
                      out = [subprocess.check_output([sys.executable, '-c', f'print({i}**2)']) for i in range(4)]\n\
                      print(sum(map(int, out)), sum(map(len, data)))";
        let python = places::python().display().to_string();
        let launch = Launch::new("python-subprocesses", &["--local", "16M"], &[&python, "-c", script])?;
        launch.run()?.expect(0, "14 22888900")?;
        Ok(())
    }));
    trials
}

/// A child that lives on works with right bytes, or stops with a message; the parent is right in both cases.
fn living_on(name: &str, kernel: &str) -> anyhow::Result<()> {
    let program = c_program("children", &[])?.display().to_string();
    let ended = Launch::new(name, &["--local", "16M", "--features", kernel], &[&program, "fork"])?.run()?;
    anyhow::ensure!(!ended.stdout.contains("WRONG") && ended.code != 99, "a wrong byte: {ended:?}");
    if ended.code == 0 {
        ended.expect(0, "child ok")?;
    } else {
        ended.expect(ended.code, "child ended with")?.expect_refusal(&["fork"])?;
    }
    ended.expect_paging()?;
    Ok(())
}

fn no_python() -> Option<String> {
    let missing = (!places::python().exists()).then(|| "no .venv (./dev setup)".to_owned());
    missing.or_else(skips::no_userfaultfd)
}
