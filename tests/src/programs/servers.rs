//! redis-server and memcached under load. The client is the harness itself; it checks what it reads, writes what it saw
//! to a file that counts as output, and shuts the server down.

use crate::process::Ended;
use crate::scenario::no_input;
use crate::{Line, MIB, Need, Place, Scenario};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Keys in one pipeline.
const BATCH: usize = 500;

/// redis-server.
pub const REDIS: Scenario = Scenario {
    name: "redis",
    about: "redis-server: strings, hashes, sorted sets; every value read back, digest of the data set",
    needs: &[Need::Program("redis-server")],
    small_objects: true,
    prepare: no_input,
    command: redis_server,
    beside: Some(redis_load),
    outputs: &["replies.txt"],
};

/// memcached.
pub const MEMCACHED: Scenario = Scenario {
    name: "memcached",
    about: "memcached: fill, overwrite, delete; every value read back",
    needs: &[Need::Program("memcached")],
    small_objects: false,
    prepare: no_input,
    command: memcached,
    beside: Some(memcached_load),
    outputs: &["replies.txt"],
};

fn redis_server(_: &Place) -> Line {
    let words = "redis-server --port 0 --unixsocket server.sock --save \"\" --appendonly no --enable-debug-command yes \
                 --daemonize no --logfile server.log --dir .";
    Line::new(words.split_whitespace().map(|word| if word == "\"\"" { "" } else { word }))
}

/// The value of key `i` in round `round`: 40 to 700 bytes, every tenth 4 to 12 KiB.
fn value(i: u64, round: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(i.wrapping_mul(0x9e37_79b9) ^ round);
    let bytes = if i.is_multiple_of(10) { rng.usize(4096..12_288) } else { rng.usize(40..700) };
    let unit: Vec<u8> = (0..32).map(|_| rng.u8(b'a'..=b'z')).collect();
    unit.iter()
        .copied()
        .cycle()
        .take(bytes)
        .enumerate()
        .map(|(n, byte)| if n % 64 < 8 { rng.u8(..) } else { byte })
        .collect()
}

/// Mean of `value`'s length with what the server adds to it.
const VALUE_BYTES: u64 = 1270;

fn redis_load(place: &Place, ended: &Ended) -> Result<()> {
    let socket = place.run.join("server.sock");
    wait_for(&socket, ended)?;
    let client = redis::Client::open(format!("unix://{}", socket.display()))?;
    let mut connection = client.get_connection()?;
    let keys = place.size_bytes.saturating_sub(4 * MIB) / VALUE_BYTES;
    let mut seen = String::new();

    // The second round overwrites a quarter of the keys.
    for (round, step) in [(0, 1), (1, 4)] {
        for keys in batches((0..keys).step_by(step)) {
            let mut pipe = redis::pipe();
            for i in keys {
                pipe.cmd("SET").arg(format!("key:{i}")).arg(value(i, round)).ignore();
                pipe.cmd("HSET").arg(format!("hash:{}", i / 50)).arg(i % 50).arg(i * 7 + round).ignore();
                pipe.cmd("ZADD").arg("scores").arg(i * 31 % 1009).arg(i % 20_000).ignore();
            }
            pipe.exec(&mut connection)?;
        }
    }
    let mut removed = 0;
    for keys in batches((0..keys).step_by(7)) {
        let mut pipe = redis::pipe();
        for i in keys {
            pipe.cmd("DEL").arg(format!("key:{i}"));
        }
        removed += pipe.query::<Vec<u64>>(&mut connection)?.into_iter().sum::<u64>();
    }
    let _ = writeln!(seen, "removed {removed}");

    for keys in batches(0..keys) {
        let mut pipe = redis::pipe();
        for i in &keys {
            pipe.cmd("GET").arg(format!("key:{i}"));
        }
        let values = pipe.query::<Vec<Option<Vec<u8>>>>(&mut connection)?;
        for (i, got) in keys.into_iter().zip(values) {
            let right = (!i.is_multiple_of(7)).then(|| value(i, u64::from(i.is_multiple_of(4))));
            ensure!(got == right, "redis gave a wrong value for key:{i}");
        }
    }
    let size: u64 = redis::cmd("DBSIZE").query(&mut connection)?;
    let digest: String = redis::cmd("DEBUG").arg("DIGEST").query(&mut connection)?;
    let top: Vec<String> = redis::cmd("ZREVRANGE").arg("scores").arg(0).arg(20).query(&mut connection)?;
    let _ = writeln!(seen, "keys {size}\ndigest {digest}\ntop {}", top.join(" "));
    std::fs::write(place.run.join("replies.txt"), seen)?;
    // The server closes the connection instead of answering.
    let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection);
    Ok(())
}

fn memcached(place: &Place) -> Line {
    let limit = (place.size_bytes * 2 / MIB).to_string();
    let mut words = vec!["memcached", "-s", "server.sock", "-A", "-t", "2", "-m", &limit];
    if nix::unistd::Uid::effective().is_root() {
        words.extend(["-u", "root"]);
    }
    Line::new(words)
}

fn memcached_load(place: &Place, ended: &Ended) -> Result<()> {
    let socket = place.run.join("server.sock");
    wait_for(&socket, ended)?;
    let mut server = Memcached { stream: BufReader::new(UnixStream::connect(&socket)?) };
    let keys = place.size_bytes.saturating_sub(4 * MIB) / VALUE_BYTES;

    for (round, step) in [(0, 1), (1, 3)] {
        for keys in batches((0..keys).step_by(step)) {
            let mut batch = Vec::new();
            for i in keys {
                let value = value(i, round);
                write!(batch, "set key:{i} 0 0 {} noreply\r\n", value.len())?;
                batch.extend_from_slice(&value);
                batch.extend_from_slice(b"\r\n");
            }
            server.send(&batch)?;
        }
    }
    for keys in batches((0..keys).step_by(11)) {
        server.send_lines("delete", &keys)?;
        for i in keys {
            ensure!(server.line()? == "DELETED", "memcached did not delete key:{i}");
        }
    }
    for keys in batches(0..keys) {
        server.send_lines("get", &keys)?;
        for i in keys {
            let right = (!i.is_multiple_of(11)).then(|| value(i, u64::from(i.is_multiple_of(3))));
            ensure!(server.value(i)? == right, "memcached gave a wrong value for key:{i}");
        }
    }
    let items = server.statistic("curr_items")?;
    let evictions = server.statistic("evictions")?;
    ensure!(evictions == "0", "memcached evicted {evictions} items: its limit is too small for the test");
    std::fs::write(place.run.join("replies.txt"), format!("items {items}\n"))?;
    server.send(b"shutdown\r\n")
}

/// A connection that speaks memcached's text protocol (protocol.txt of its source).
struct Memcached {
    stream: BufReader<UnixStream>,
}

impl Memcached {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(!line.is_empty(), "memcached closed the connection");
        Ok(line.trim_end().to_owned())
    }

    /// A command for each of the keys.
    fn send_lines(&mut self, command: &str, keys: &[u64]) -> Result<()> {
        self.send(keys.iter().map(|i| format!("{command} key:{i}\r\n")).collect::<String>().as_bytes())
    }

    /// The answer to `get`.
    fn value(&mut self, i: u64) -> Result<Option<Vec<u8>>> {
        let head = self.line()?;
        if head == "END" {
            return Ok(None);
        }
        let bytes: usize = head.rsplit(' ').next().context("a VALUE line ends with a length")?.parse()?;
        let mut value = vec![0; bytes + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(bytes);
        ensure!(self.line()? == "END", "memcached's answer for key:{i} does not end");
        Ok(Some(value))
    }

    fn statistic(&mut self, name: &str) -> Result<String> {
        self.send(b"stats\r\n")?;
        let mut found = None;
        loop {
            match self.line()?.split(' ').collect::<Vec<_>>()[..] {
                ["END"] => return found.with_context(|| format!("memcached has no statistic {name}")),
                ["STAT", key, value] if key == name => found = Some(value.to_owned()),
                _ => {}
            }
        }
    }
}

/// The keys, as many at a time as are sent together.
fn batches(keys: impl Iterator<Item = u64>) -> impl Iterator<Item = Vec<u64>> {
    let mut keys = keys.peekable();
    std::iter::from_fn(move || {
        keys.peek()?;
        Some(keys.by_ref().take(BATCH).collect())
    })
}

/// Waits until the server listens at `socket`.
fn wait_for(socket: &Path, ended: &Ended) -> Result<()> {
    while UnixStream::connect(socket).is_err() {
        ensure!(!ended.yes(), "the server ended before it listened");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
