//! Programs whose far memory is a memory node: good days on both fault paths with forks, and the node's bad days.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, c_program, launcher};
use hinterland_tests::node::{Node, Refusing};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use hinterland_wire::{Features, Hello, Outcome, VERSION, Welcome};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

pub const PATHS: [&str; 2] = ["monitor", "inline"];

pub use hinterland_tests::suite::NamedTest as Test;

/// A test that takes its own name; skipped where no program can be managed.
pub fn trial(name: String, test: Test) -> Trial {
    suite::named(name, skips::no_userfaultfd, test)
}

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        for way in ["fork", "forks", "popen", "vfork", "posix_spawn"] {
            add(format!("lifecycle::nodes::{way}::{path}"), Box::new(move |test| children(test, path, way)));
        }
        add(format!("lifecycle::nodes::raw_forks::{path}"), Box::new(move |test| raw_forks(test, path)));
        add(format!("lifecycle::nodes::sort::{path}"), Box::new(move |test| sort(test, path)));
        add(format!("lifecycle::nodes::python::{path}"), Box::new(move |test| python(test, path)));
        add(format!("lifecycle::nodes::tiers::{path}"), Box::new(move |test| tiers(test, path)));
        for (name, signal) in [("killed", Signal::SIGKILL), ("stopped", Signal::SIGSTOP), ("ended", Signal::SIGTERM)] {
            add(format!("lifecycle::nodes::{name}::{path}"), Box::new(move |test| lost(test, path, signal)));
        }
        add(format!("lifecycle::nodes::waited_for::{path}"), Box::new(move |test| waited_for(test, path)));
        add(format!("lifecycle::nodes::full::{path}"), Box::new(move |test| full(test, path)));
        add(format!("lifecycle::nodes::room::{path}"), Box::new(move |test| room(test, path)));
        for seed in 1..=2 {
            add(format!("lifecycle::nodes::damage::{path}::{seed}"), Box::new(move |test| damage(test, path, seed)));
        }
    }
    add("lifecycle::nodes::strangers".into(), Box::new(strangers));
    add("lifecycle::nodes::given_back".into(), Box::new(given_back));
    add("lifecycle::nodes::status".into(), Box::new(status));
    add("lifecycle::nodes::refusals".into(), Box::new(refusals));
    trials
}

pub fn launch(test: &str, far: &[&str], path: &str, program: &[&str]) -> Result<Launch> {
    let mut arguments = vec!["--local", "16M", "--fault-path", path];
    far.iter().for_each(|url| arguments.extend(["--far", url]));
    Launch::new(test, &arguments, program)
}

/// A run in little memory.
pub fn launch_with(test: &str, flags: &[&str], program: &[&str]) -> Result<Launch> {
    Launch::new(test, &[&["--local", "16M"], flags].concat(), program)
}

fn children(test: &str, path: &str, way: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("children", &[])?.display().to_string();
    let ended = launch(test, &[&node.patient_url()], path, &[&program, way])?.run()?;
    ended.expect(0, if way == "fork" { "child ok" } else { "parent ok, child 0" })?.expect_paging()?;
    node.end()?;
    Ok(())
}

fn raw_forks(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("raw_forks", &[])?.display().to_string();
    let native = Command::new(&program).output()?;
    let right = String::from_utf8(native.stdout)?;
    launch(test, &[&node.patient_url()], path, &[&program])?.run()?.expect(0, &right)?;
    node.end()?;
    Ok(())
}

fn sort(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let directory =
        places::emptied(places::tests().join("lifecycle").join(format!("{}-input", test.replace("::", "-"))))?;
    let input = directory.join("lines");
    // Every line once, in an order that is none (a step that shares no factor with their number).
    let lines: Vec<String> =
        (0..350_000u64).map(|n| format!("{:07} {}", n * 432_101 % 350_000, "x".repeat(40))).collect();
    std::fs::write(&input, lines.join("\n") + "\n")?;
    let input = input.display().to_string();
    let sort = ["sort", "--parallel=2", "-S", "200M", "-o", "sorted", &input];
    let launch = launch(test, &[&node.patient_url()], path, &sort)?.with("LC_ALL", "C");
    let place = launch.directory.join("sorted");
    launch.run()?.expect(0, "")?.expect_paging()?;
    let mut right = lines;
    right.sort_unstable();
    ensure!(std::fs::read_to_string(place)? == right.join("\n") + "\n", "the output is not what sort gives natively");
    node.end()?;
    Ok(())
}

fn python(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let script = "import os\n\
                  data = [str(i) * 10 for i in range(400000)]\n\
                  pids = []\n\
                  for k in range(3):\n\
                  \x20   pid = os.fork()\n\
                  \x20   if pid == 0:\n\
                  \x20       data = [text[:k + 1] for text in data]\n\
                  \x20       os._exit(sum(map(len, data)) % 251)\n\
                  \x20   pids.append(pid)\n\
                  print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids], sum(map(len, data)))";
    let python = skips::find("python3").context("python3")?.display().to_string();
    let right = String::from_utf8(Command::new(&python).args(["-c", script]).output()?.stdout)?;
    ensure!(right.ends_with("] 22888900\n"), "natively: {right}");
    launch(test, &[&node.patient_url()], path, &[&python, "-c", script])?.run()?.expect(0, &right)?.expect_paging()?;
    node.end()?;
    Ok(())
}

/// Pages go to compressed memory first, and the oldest of them to the node.
fn tiers(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("children", &[])?.display().to_string();
    let ended = launch(test, &["compressed:8M", &node.patient_url()], path, &[&program, "fork"])?.run()?;
    ended.expect(0, "child ok")?.expect_paging()?;
    ensure!(node.status()?["written_bytes"].as_u64() > Some(8 << 20), "hardly anything reached the node");
    node.end()?;
    Ok(())
}

/// A node that is gone in whatever way ends the run soon, with its name, and with no wrong byte.
fn lost(test: &str, path: &str, signal: Signal) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("hold", &[])?.display().to_string();
    // Of one that is stopped its silence tells.
    let url = if signal == Signal::SIGSTOP { format!("{}?timeout=20", node.url) } else { node.patient_url() };
    let mut running = launch(test, &[&url], path, &[&program, "64", "stay"])?.start()?;
    running.wait_for("ready")?;
    node.signal(signal)?;
    let ended = running.end()?;
    ended.expect(125, "ready")?.expect_refusal(&[&format!("the memory node {} is lost: ", node.url)])?;
    Ok(())
}

/// A node that makes no progress for longer than a default allows, and for less than `timeout=` of its URL, is not lost.
fn waited_for(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let url = node.patient_url();
    let program = c_program("hold", &[])?.display().to_string();
    let mut running = launch(test, &[&url], path, &[&program, "64", "stay"])?.start()?;
    running.wait_for("ready")?;
    node.signal(Signal::SIGSTOP)?;
    std::thread::sleep(Duration::from_secs(4));
    node.signal(Signal::SIGCONT)?;
    super::paths::terminated(running)?;
    node.end()?;
    Ok(())
}

fn full(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "20M")?;
    let program = c_program("hold", &[])?.display().to_string();
    let ended = launch(test, &[&node.patient_url()], path, &[&program, "96"])?.run()?;
    let words = format!("{} takes no more: the node has leased all that it lends", node.url);
    ended.expect(125, "")?.expect_refusal(&[&words])?;
    node.wait_until_free()?;
    // With a tier below, nothing is missing.
    let tiers = [&node.patient_url(), "compressed:1G"];
    launch(&format!("{test}-tiers"), &tiers, path, &[&program, "96"])?.run()?.expect(0, "done")?.expect_paging()?;
    node.end()?;
    Ok(())
}

/// What a program held, and what a child held that has ended, is room for the next one at once, as far as anybody can tell.
fn room(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "80M")?;
    let hold = c_program("hold", &[])?.display().to_string();
    for run in 0..3 {
        let ended = launch(&format!("{test}-{run}"), &[&node.patient_url()], path, &[&hold, "72"])?.run()?;
        ended.expect(0, "done")?.expect_paging()?;
    }
    let leavers = c_program("leavers", &[])?.display().to_string();
    launch(test, &[&node.patient_url()], path, &[&leavers, "36", "6"])?.run()?.expect(0, "done")?.expect_paging()?;
    node.end()?;
    Ok(())
}

/// One page in a hundred comes back with a flipped bit.
fn damage(test: &str, path: &str, seed: u32) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("hold", &[])?.display().to_string();
    let url = format!("{}&fault=flip:0.01&seed={seed}", node.patient_url());
    let ended = launch(test, &[&url], path, &[&program, "64"])?.run()?;
    ended.expect_refusal(&["damaged", "checksum"])?;
    ensure!(!ended.stdout.contains("done"), "the program finished on damaged memory: {}", ended.stdout);
    node.end()?;
    Ok(())
}

/// Whatever listens on the port and is no node, or one of another version: the program does not start, and the reason is said.
fn strangers(test: &str) -> Result<()> {
    let welcome = Welcome {
        outcome: Outcome::Version,
        version: 0,
        versions: (VERSION + 1, VERSION + 3),
        features: Features::ALL,
        slab_bytes: 1 << 21,
    };
    let other_version = format!("it speaks versions {} to {}", VERSION + 1, VERSION + 3);
    let no_clone = Welcome {
        outcome: Outcome::Accepted,
        version: VERSION,
        versions: (VERSION, VERSION),
        features: Features(0),
        ..welcome
    };
    let answers: [(&str, Vec<u8>, &str); 6] = [
        ("garbage", vec![0xa5; 4096], "this is not Hinterland's protocol"),
        ("http", format!("HTTP/1.1 400 Bad Request\r\n\r\n{}", " ".repeat(80)).into(), "not Hinterland's protocol"),
        ("short", b"HINTNODE".to_vec(), "Connection reset"),
        ("silent", Vec::new(), "it has not answered for 2 seconds"),
        ("version", welcome.encode().into(), &other_version),
        ("clone", no_clone.encode().into(), "cannot clone sessions"),
    ];
    for (name, answer, words) in answers {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("tcp://{}", listener.local_addr()?);
        let silent = answer.is_empty();
        std::thread::spawn(move || {
            let mut held: Vec<TcpStream> = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let mut hello = [0; hinterland_wire::HELLO_BYTES];
                let read = stream.read_exact(&mut hello);
                assert!(read.is_ok() && Hello::decode(&hello).is_ok(), "no hello");
                let _ = stream.write_all(&answer);
                held.extend(silent.then_some(stream));
            }
        });
        let ended = launch(&format!("{test}-{name}"), &[&url], "monitor", &["true"])?.run()?;
        ended.expect(125, "")?.expect_refusal(&[words])?;
        ensure!(ended.stderr.contains(&url), "{name}: {url} is not named in: {}", ended.stderr);
    }
    let nobody = Refusing::new()?;
    let ended = launch(&format!("{test}-nobody"), &[&nobody.url], "monitor", &["true"])?.run()?;
    ended.expect(125, "")?.expect_refusal(&["Connection refused"])?;
    Ok(())
}

/// What programs held is free when they have ended, killed ones too, and the next one finds room.
fn given_back(test: &str) -> Result<()> {
    let node = Node::start(test, "100M")?;
    let program = c_program("hold", &[])?.display().to_string();
    for (round, end) in [Some(Signal::SIGKILL), Some(Signal::SIGTERM), None].into_iter().enumerate() {
        let words = if end.is_some() { vec![&*program, "90", "stay"] } else { vec![&*program, "90"] };
        let mut running =
            launch(&format!("{test}-{round}"), &[&node.patient_url()], PATHS[round % 2], &words)?.start()?;
        running.wait_for("ready")?;
        if let Some(signal) = end {
            running.signal(signal)?;
        }
        let ended = running.end()?;
        ensure!(end.is_some() || ended.code == 0, "round {round}: {ended:?}");
        node.wait_until_free()?;
    }
    node.end()?;
    Ok(())
}

fn status(test: &str) -> Result<()> {
    let node = Node::start(test, "256M")?;
    let program = c_program("hold", &[])?.display().to_string();
    let mut running = launch(test, &[&node.patient_url()], "monitor", &[&program, "64", "stay"])?.start()?;
    running.wait_for("ready")?;
    let status = node.status()?;
    ensure!(status["capacity_bytes"] == 256 << 20 && status["sessions"] == 1, "{status}");
    ensure!(status["used_bytes"].as_u64() > Some(40 << 20), "{status}");
    let session = &status["largest_sessions"][0];
    ensure!(session["name"].as_str().is_some_and(|name| name.starts_with("hold ")), "{status}");
    let table = launcher()?.args(["node", "status", &node.url]).output()?;
    let table = String::from_utf8(table.stdout)?;
    ensure!(table.contains("of 256 MiB leased") && table.contains("hold "), "{table}");
    // A draining node keeps what it has, and takes nobody new.
    let drain = launcher()?.args(["node", "drain", &node.url]).output()?;
    ensure!(drain.status.success(), "drain: {}", String::from_utf8_lossy(&drain.stderr));
    let late = launch(&format!("{test}-late"), &[&node.patient_url()], "monitor", &["true"])?.run()?;
    late.expect(125, "")?.expect_refusal(&["takes no new sessions"])?;
    ensure!(node.status()?["draining"] == true);
    running.signal(Signal::SIGTERM)?;
    running.end()?;
    node.end()?;
    Ok(())
}

/// What the command refuses, with the remedy.
fn refusals(test: &str) -> Result<()> {
    let node = Node::start(test, "16M")?;
    let taken = node.url.clone();
    for (index, (arguments, words)) in [
        (vec!["--capacity", "1G", "--listen", "tcp://0.0.0.0:7440"], "ssh -N -L /run/user/1000/far.sock"),
        (vec!["--capacity", "1G", "--listen", "tcp://192.0.2.1:7440"], "is not a loopback address"),
        (vec!["--capacity", "1G", "--listen", "127.0.0.1:7440"], "write for example tcp://127.0.0.1:7440"),
        (vec!["--capacity", "1M"], "give at least 2M"),
        (vec!["--capacity", "much"], "--capacity: 'much' is not a size"),
        (vec![], "--capacity"),
        (vec!["--capacity", "1G", "--listen", &*taken], "cannot listen on"),
        (vec!["status", "tcp://127.0.0.1:9"], "cannot be asked: Connection refused"),
    ]
    .into_iter()
    .enumerate()
    {
        let ended = Launch::bare(&format!("{test}-{index}"), &[&["node"][..], &arguments].concat())?.run()?;
        ended.expect(125, "")?.expect_refusal(&[words])?;
    }
    let far = launch(&format!("{test}-far"), &["tcp://192.0.2.1:7440"], "monitor", &["true"])?.run()?;
    far.expect(125, "")?.expect_refusal(&["ssh -N -L /run/user/1000/far.sock"])?;
    // A name is looked up by the launcher.
    let named = node.url.replace("127.0.0.1", "localhost");
    launch(&format!("{test}-name"), &[&named], "monitor", &["true"])?.run()?.expect(0, "")?;
    node.end()?;
    Ok(())
}
