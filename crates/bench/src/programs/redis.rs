//! The client of redis-server: stores values, then asks for as many again twice, chosen at random, and checks every one.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Half of a value is random bytes, the rest repeats one.
const VALUE_BYTES: usize = 1000;
/// A value with its key and what the server adds.
const ENTRY_BYTES: u64 = 1120;
/// Requests for each key.
const ASKED: u32 = 2;
/// How long the server may take to listen, and to answer.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    keys: u32,
    /// Requests that are sent before an answer is read.
    batch: u32,
}

impl Client {
    /// For a server that holds about `bytes` in the end.
    pub fn new(bytes: u64, batch: u32) -> Client {
        Client { keys: u32::try_from(bytes / ENTRY_BYTES).unwrap_or(u32::MAX), batch }
    }

    /// Loads the server that runs in `directory` and ends it. Returns the seconds of storing and asking, and the server's digest of its data.
    ///
    /// # Errors
    /// It does not listen, not answer, or answers wrongly.
    pub fn load(&self, directory: &Path, alive: impl Fn() -> bool) -> Result<(f64, String), String> {
        let mut server = Connection::to(&directory.join("server.sock"), alive)?;
        let says = |error: std::io::Error| format!("the client of redis: {error}");
        let begun = Instant::now();
        let all: Vec<u32> = (0..self.keys).collect();
        for keys in all.chunks(self.batch as usize) {
            let sets = keys.iter().map(|key| [b"SET".to_vec(), name(*key), value(*key)]);
            server.send(sets).map_err(says)?;
            for _ in keys {
                server.expect(b"+OK\r\n").map_err(says)?;
            }
        }
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..self.keys.saturating_mul(ASKED) / self.batch {
            let keys: Vec<u32> = (0..self.batch).map(|_| rng.random_range(0..self.keys)).collect();
            server.send(keys.iter().map(|key| [b"GET".to_vec(), name(*key)])).map_err(says)?;
            for key in keys {
                let mut right = format!("${VALUE_BYTES}\r\n").into_bytes();
                right.extend(value(key));
                right.extend(b"\r\n");
                server.expect(&right).map_err(says)?;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        server.send([[b"DEBUG".to_vec(), b"DIGEST".to_vec()]]).map_err(says)?;
        // `+` and forty digits.
        let mut digest = [0; 43];
        server.0.read_exact(&mut digest).map_err(says)?;
        server.send([[b"SHUTDOWN".to_vec(), b"NOSAVE".to_vec()]]).map_err(says)?;
        Ok((seconds, String::from_utf8_lossy(&digest).trim().to_owned()))
    }
}

fn name(key: u32) -> Vec<u8> {
    format!("key:{key:012}").into_bytes()
}

fn value(key: u32) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(u64::from(key));
    let mut value = vec![b'a' + rng.random_range(0..26); VALUE_BYTES];
    rng.fill_bytes(&mut value[..VALUE_BYTES / 2]);
    value
}

/// Speaks redis's protocol (redis.io, RESP).
struct Connection(BufReader<UnixStream>);

impl Connection {
    fn to(socket: &Path, alive: impl Fn() -> bool) -> Result<Connection, String> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    let bounded =
                        stream.set_read_timeout(Some(TIMEOUT)).and_then(|()| stream.set_write_timeout(Some(TIMEOUT)));
                    return bounded.map(|()| Connection(BufReader::new(stream))).map_err(|error| error.to_string());
                }
                Err(_) if alive() && begun.elapsed() < TIMEOUT => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(format!("redis-server does not listen: {error}")),
            }
        }
    }

    fn send<const N: usize>(&mut self, commands: impl IntoIterator<Item = [Vec<u8>; N]>) -> std::io::Result<()> {
        let mut message = Vec::new();
        for command in commands {
            write!(message, "*{N}\r\n")?;
            for word in command {
                write!(message, "${}\r\n", word.len())?;
                message.extend(word);
                message.extend(b"\r\n");
            }
        }
        self.0.get_mut().write_all(&message)
    }

    /// Reads as many bytes as are `right`, which must be those.
    fn expect(&mut self, right: &[u8]) -> std::io::Result<()> {
        let mut answer = vec![0; right.len()];
        // An error is shorter than a value: the first byte tells it.
        self.0.read_exact(&mut answer[..1])?;
        if answer[0] == right[0] {
            self.0.read_exact(&mut answer[1..])?;
        }
        if answer == right {
            return Ok(());
        }
        let answer = String::from_utf8_lossy(&answer[..answer.len().min(40)]).into_owned();
        Err(std::io::Error::other(format!("a wrong answer: '{}'", answer.escape_debug())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_keys_own_and_compress_by_half() {
        assert_eq!(value(7), value(7));
        assert_ne!(value(7), value(8));
        assert!(value(7)[VALUE_BYTES / 2..].windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn a_wrong_answer_ends_the_run() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut server = Connection(BufReader::new(ours));
        theirs.write_all(b"+OK\r\n$4\r\nhalf\r\n-ERR no\r\n").unwrap();
        server.expect(b"+OK\r\n").unwrap();
        assert!(server.expect(b"$4\r\nhole\r\n").unwrap_err().to_string().contains("half"));
        assert!(server.expect(b"$4\r\nhalf\r\n").unwrap_err().to_string().contains("wrong answer"));
    }
}
