//! redis-server saves itself by a fork while it is written to: each dump is the data of the moment of the fork, whatever the
//! parent writes, evicts and fetches meanwhile.
//!
//! The commands are numbered and the same in every run. A save begins when all commands before a known number have been
//! answered, and the next ones go on until it is done. A native server that has loaded the dump must have the digest of a
//! native server that was given the commands up to that number.

use super::trees::wait_until_within;
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use hinterland_tests::launch::{Launch, Running};
use hinterland_tests::suite::Trial;
use hinterland_tests::{skips, suite};
use redis::Connection;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// Keys that the commands choose from: 40 MiB when all are there.
const KEYS: u64 = 40_000;
/// Commands that are answered together.
const BATCH: u64 = 500;
/// Commands before the first save: about half of the keys are there.
const BEFORE: u64 = 60_000;
/// Saves, and so dumps.
static SAVES: LazyLock<usize> = LazyLock::new(|| if suite::full() { 5 } else { 3 });
/// The budget: a third of what the server takes at the last save.
const LOCAL_MIB: u64 = 16;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    ["monitor", "inline"]
        .into_iter()
        .map(|path| {
            let name = format!("lifecycle::snapshots::redis::{path}");
            suite::trial(name.clone(), no_redis, move || redis_saves(&name, path))
        })
        .collect()
}

fn no_redis() -> Option<String> {
    let missing =
        skips::find("redis-server").is_none().then(|| "redis-server is not installed (./dev setup)".to_owned());
    missing.or_else(skips::no_userfaultfd)
}

fn redis_saves(name: &str, path: &'static str) -> Result<()> {
    let local = format!("{LOCAL_MIB}M");
    let launch = Launch::new(name, &["--local", &local, "--fault-path", path], &server("none.rdb"))?;
    let directory = launch.directory.clone();
    let running = launch.start()?;
    let mut connection = connect(&running)?;
    let mut sent = 0;
    write_until(&mut connection, &mut sent, BEFORE)?;
    let mut points = Vec::new();
    for save in 0..*SAVES {
        points.push(sent);
        write_while_it_saves(&mut connection, &mut sent)?;
        std::fs::rename(directory.join("none.rdb"), directory.join(format!("{save}.rdb")))?;
    }
    points.push(sent);
    let last = digest(&mut connection)?;
    wait_until_within(&running, LOCAL_MIB)?;
    let stats = end(&mut connection, running)?.expect_paging()?.stats()?;
    ensure!(stats["process_count"] == 1 + *SAVES && stats["processes_uncounted"] == 0, "{stats}");

    let right = native_digests(name, &points)?;
    ensure!(last == right[*SAVES], "the server that was saved from has other data than a native one");
    for save in 0..*SAVES {
        let file = directory.join(format!("{save}.rdb"));
        let (running, mut connection) = native_server(&format!("{name}-{save}"), &file.display().to_string())?;
        let found = digest(&mut connection)?;
        end(&mut connection, running)?;
        ensure!(found == right[save], "dump {save} is not the data of command {}", points[save]);
    }
    Ok(())
}

/// A server that listens at a socket in its directory only, and saves when it is told to.
fn server(dump: &str) -> [&str; 15] {
    let words = ["redis-server", "--port", "0", "--unixsocket", "server.sock", "--save", "", "--appendonly", "no"];
    let mut all = [""; 15];
    all[..9].copy_from_slice(&words);
    all[9..].copy_from_slice(&["--enable-debug-command", "yes", "--logfile", "server.log", "--dbfilename", dump]);
    all
}

/// The digests of a native server after each of the numbers of commands.
fn native_digests(name: &str, points: &[u64]) -> Result<Vec<String>> {
    let (running, mut connection) = native_server(&format!("{name}-native"), "none.rdb")?;
    let mut sent = 0;
    let mut digests = Vec::new();
    for point in points {
        write_until(&mut connection, &mut sent, *point)?;
        digests.push(digest(&mut connection)?);
    }
    end(&mut connection, running)?;
    let different = digests.windows(2).all(|pair| pair[0] != pair[1]);
    ensure!(different, "the commands between two saves changed nothing: no proof");
    Ok(digests)
}

/// A native server that has loaded `dump`, if it exists.
fn native_server(test: &str, dump: &str) -> Result<(Running, Connection)> {
    let path = Path::new(dump);
    let words = server(path.file_name().and_then(|name| name.to_str()).context("a dump has a name")?);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let launch = Launch::of(test, command)?;
    if path.is_absolute() {
        std::fs::copy(path, launch.directory.join(path.file_name().context("a dump has a name")?))?;
    }
    let running = launch.start()?;
    let connection = connect(&running)?;
    Ok((running, connection))
}

/// Waits until the server has loaded what it loads.
fn connect(running: &Running) -> Result<Connection> {
    let client = redis::Client::open(format!("unix://{}", running.directory.join("server.sock").display()))?;
    let mut found = None;
    suite::wait_until("a server that listens", || {
        let connection = client.get_connection().ok();
        found = connection.and_then(|mut one| redis::cmd("PING").query::<String>(&mut one).is_ok().then_some(one));
        Ok(found.is_some())
    })?;
    found.context("a connection")
}

/// Shuts the server down.
fn end(connection: &mut Connection, running: Running) -> Result<hinterland_tests::launch::Ended> {
    // It closes the connection instead of answering.
    let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(connection);
    let ended = running.end()?;
    ended.expect(0, "")?;
    Ok(ended)
}

/// Sends all commands up to number `end`, which is a multiple of [`BATCH`], and waits for the answers.
fn write_until(connection: &mut Connection, sent: &mut u64, end: u64) -> Result<()> {
    while *sent < end {
        let mut pipe = redis::pipe();
        for number in *sent..*sent + BATCH {
            pipe.add_command(command(number)).ignore();
        }
        pipe.exec(connection)?;
        *sent += BATCH;
    }
    Ok(())
}

/// Begins a save and goes on with the commands until it is done: at least one batch is answered meanwhile.
fn write_while_it_saves(connection: &mut Connection, sent: &mut u64) -> Result<()> {
    redis::cmd("BGSAVE").query::<String>(connection)?;
    let first = *sent;
    loop {
        write_until(connection, sent, *sent + BATCH)?;
        let state: String = redis::cmd("INFO").arg("persistence").query(connection)?;
        if !state.contains("rdb_bgsave_in_progress:1") {
            ensure!(state.contains("rdb_last_bgsave_status:ok"), "the save failed: {state}");
            ensure!(*sent > first + BATCH, "nothing was written while the server saved: no proof");
            return Ok(());
        }
    }
}

/// Command `number` of the stream.
fn command(number: u64) -> redis::Cmd {
    let mut rng = Rng::with_seed(number);
    let key = rng.u64(0..KEYS);
    let (name, on, most_bytes) = match rng.u32(0..100) {
        0..55 => ("SET", format!("key:{key}"), 2000),
        55..65 => ("APPEND", format!("key:{key}"), 300),
        65..75 => ("HSET", format!("hash:{}", key / 50), 200),
        75..83 => ("ZADD", format!("scores:{}", key % 20), 0),
        83..90 => ("RPUSH", format!("list:{}", key % 200), 400),
        90..93 => ("LPOP", format!("list:{}", key % 200), 0),
        _ => ("DEL", format!("key:{key}"), 0),
    };
    let mut command = redis::cmd(name);
    command.arg(on);
    match name {
        "HSET" => _ = command.arg(key % 50),
        "ZADD" => _ = command.arg(rng.u32(..)).arg(key),
        _ => {}
    }
    if most_bytes > 0 {
        command.arg(value(&mut rng, most_bytes));
    }
    command
}

/// Some bytes: half of them random, the other half the same letter.
fn value(rng: &mut Rng, most_bytes: usize) -> Vec<u8> {
    let (length, letter) = (rng.usize(10..most_bytes), rng.u8(b'a'..=b'z'));
    (0..length).map(|n| if n % 64 < 32 { rng.u8(..) } else { letter }).collect()
}

fn digest(connection: &mut Connection) -> Result<String> {
    Ok(redis::cmd("DEBUG").arg("DIGEST").query(connection)?)
}
