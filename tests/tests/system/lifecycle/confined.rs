//! Programs that confine themselves by a filter of system calls: they go on as natively, on both fault paths, whether calls that they do
//! not allow are answered with an error or with death; or they are refused with words before the filter is there.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};

const PATHS: [&str; 2] = ["monitor", "inline"];
/// What the filter does to all other calls, and for how many threads it is.
const ACTIONS: [&[&str]; 4] = [&["kill"], &["errno"], &["kill", "tsync"], &["errno", "tsync"]];
/// What the program does under the filter: `programs/c/confined.c`.
const WAYS: [&str; 9] = ["pages", "heap", "calls", "fork", "trap", "mode", "twice", "wrong", "denied"];
/// What is refused, and by which words.
const REFUSED: [(&str, &str); 2] = [("strict", "strict mode"), ("long", "it has 4000 instructions, and no room")];
/// Exit code of a refusal.
const REFUSAL: i32 = 125;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let both = |trial: fn(&'static str) -> Trial| PATHS.map(trial);
    let ways = PATHS.into_iter().flat_map(|path| WAYS.map(|way| as_natively(way, path)));
    let refused = PATHS.into_iter().flat_map(|path| REFUSED.map(|(way, words)| refusal(way, words, path)));
    let masked = PATHS.map(|path| as_natively("masks", path));
    let settings = PATHS.into_iter().flat_map(|path| ["clock", "dispatch"].map(|way| setting(way, path)));
    let all =
        ways.chain(settings).chain(refused).chain(masked).chain(both(gate)).chain(both(file)).chain(both(unlisted));
    let servers = ["monitor", "inline", "auto"].map(sshd);
    all.chain(both(bare)).chain(both(started_under_a_filter)).chain(servers).collect()
}

fn trial(name: &str, path: &str, body: impl Fn(&str) -> Result<()> + Send + Sync + 'static) -> Trial {
    let name = format!("lifecycle::confined::{name}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || body(&name))
}

fn run(name: &str, path: &str, far: &[&str], words: &[&str]) -> Result<Ended> {
    let program = c_program("confined", &["-D_GNU_SOURCE"])?.display().to_string();
    let arguments = [&["--local", "16M", "--fault-path", path], far].concat();
    Launch::new(&format!("{name}-{}", words.join("-")), &arguments, &[&[program.as_str()], words].concat())?.run()
}

/// The same program without Hinterland; its exit code, or 128 and its signal.
fn natively(words: &[&str]) -> Result<(i32, Output)> {
    use std::os::unix::process::ExitStatusExt;
    let output = Command::new(c_program("confined", &["-D_GNU_SOURCE"])?).args(words).output()?;
    let status = output.status;
    Ok((status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1), output))
}

fn as_natively(way: &'static str, path: &'static str) -> Trial {
    trial(way, path, move |name| {
        for action in ACTIONS {
            let words = [&[way], action].concat();
            let (code, native) = natively(&words)?;
            let ended = run(name, path, &[], &words)?;
            let (there, here) = (String::from_utf8_lossy(&native.stdout), &ended.stdout);
            ensure!(
                ended.code == code && there == **here,
                "{words:?}: {} and '{here}', natively {code} and '{there}': {}",
                ended.code,
                ended.stderr
            );
            if !["wrong", "masks"].contains(&way) {
                ended.expect_paging()?;
            }
        }
        Ok(())
    })
}

/// What would take the processor's clock or system calls from the library is answered as by a kernel that does not have it (`EINVAL`).
fn setting(way: &'static str, path: &'static str) -> Trial {
    trial(way, path, move |name| {
        let program = c_program("thread_settings", &[])?.display().to_string();
        let ended = Launch::new(name, &["--local", "16M", "--fault-path", path], &[&program, way])?.run()?;
        ended.expect(0, &format!("{way} {}", libc::EINVAL))?.expect_paging()?;
        Ok(())
    })
}

fn refusal(way: &'static str, words: &'static str, path: &'static str) -> Trial {
    trial(way, path, move |name| {
        let ended = run(name, path, &[], &[way, "kill"])?;
        ensure!(ended.code == REFUSAL && ended.stderr.contains(words), "{}: {}", ended.code, ended.stderr);
        ensure!(ended.stdout.is_empty(), "it went on: {}", ended.stdout);
        Ok(())
    })
}

/// A filter that nobody saw, which answers our calls with errors: the process would try one fault again for ever.
fn bare(path: &'static str) -> Trial {
    trial("bare", path, move |name| {
        let ended = run(name, path, &[], &["bare", "errno"])?;
        let said = ended.stderr.contains("installed past libc's functions");
        ensure!(ended.code == REFUSAL && said, "{}: {}", ended.code, ended.stderr);
        Ok(())
    })
}

/// What the filter lets through is let through for the library alone: whoever jumps to its instructions opens nothing.
fn gate(path: &'static str) -> Trial {
    trial("gate", path, move |name| {
        let ended = run(name, path, &[], &["gate", "errno"])?;
        ensure!(ended.code == 3, "{}: {}", ended.code, ended.stderr);
        Ok(())
    })
}

/// Far memory in a file: its reads and writes are let through.
fn file(path: &'static str) -> Trial {
    trial("file", path, move |name| {
        let far = format!("file:{}?size=1G", std::env::temp_dir().display());
        for action in ACTIONS {
            let ended = run(name, path, &["--far", &far], &[&["calls"], action].concat())?;
            ended.expect(0, "wrong 0\nresult 0")?.expect_paging()?;
        }
        Ok(())
    })
}

/// Far memory whose calls nobody can list is named before the filter is there.
fn unlisted(path: &'static str) -> Trial {
    trial("unlisted", path, move |name| {
        let far = ["--far", "reference:1G"];
        let ended = run(name, path, &far, &["pages", "kill"])?;
        let words = "such a filter cannot be made to allow what this far memory needs";
        ensure!(ended.code == REFUSAL && ended.stderr.contains(words), "{}: {}", ended.code, ended.stderr);
        Ok(())
    })
}

/// A program that is started under a filter of the program's runs unmanaged and is named; or, where it takes the place of the run's
/// program, is refused with words.
fn started_under_a_filter(path: &'static str) -> Trial {
    trial("started_under_a_filter", path, move |name| {
        for action in ["kill", "errno"] {
            let child = run(name, path, &[], &["spawn", action])?;
            child.expect(0, "here\nchild 0\nwrong 0")?.expect_paging()?;
            ensure!(child.stderr.contains("echo (not managed)"), "not named: {}", child.stderr);
            let refused = run(name, path, &[], &["exec", action])?;
            let said =
                refused.stderr.contains("under a filter of system calls that a program of the run has installed");
            ensure!(refused.code == REFUSAL && said, "{}: {}", refused.code, refused.stderr);
            let allowed = run(name, path, &["--allow-unmanaged"], &["exec", action])?;
            allowed.expect(0, "here")?;
        }
        Ok(())
    })
}

/// sshd on a loopback port: its child before the login confines itself, with limits that let it start no thread and open no file.
fn sshd(path: &'static str) -> Trial {
    let skip = || skips::not_full().or_else(skips::no_userfaultfd).or_else(skips::not_root).or_else(no_sshd);
    let name = format!("lifecycle::confined::sshd::{path}");
    suite::trial(name.clone(), skip, move || {
        let directory =
            places::emptied(places::tests().join("lifecycle").join(format!("{}-keys", name.replace("::", "-"))))?;
        let file = |name: &str| directory.join(name).display().to_string();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]).status()?;
            ensure!(made.success(), "ssh-keygen: {made}");
        }
        // The directory in which the child lives; distributions make it when they start the service.
        std::fs::create_dir_all("/run/sshd")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin yes\n",
            file("host"),
            file("user.pub")
        );
        std::fs::write(directory.join("settings"), settings)?;
        let server = skips::find("sshd").context("sshd")?.display().to_string();
        let program = [server.as_str(), "-D", "-e", "-f", &file("settings")];
        let _server = Launch::new(&name, &["--local", "16M", "--fault-path", path], &program)?.start()?;
        suite::wait_until("sshd", || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
        let mut client = Command::new("ssh");
        client.args(["-F", "none", "-p", &port.to_string(), "-i", &file("user"), "-o", "StrictHostKeyChecking=no"]);
        client.args([
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "BatchMode=yes",
            "root@127.0.0.1",
            "echo in $((6*7))",
        ]);
        for _ in 0..3 {
            let output = client.output()?;
            let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            ensure!(output.status.success() && said == "in 42\n", "{}: '{said}': {errors}", output.status);
        }
        Ok(())
    })
}

fn no_sshd() -> Option<String> {
    let missing = ["sshd", "ssh", "ssh-keygen"].into_iter().find(|name| skips::find(name).is_none());
    missing.map(|name| format!("{name} is not installed"))
}
