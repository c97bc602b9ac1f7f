//! Hostile clients beside a pool: they send its nodes half requests, nonsense or lengths beyond all bounds, stop after
//! the handshake, or disconnect in the middle of a word, all the time.

use super::address;
use hinterland_node::{BUFFERS_BYTES_MAX, Listening, raise_descriptor_limit};
use hinterland_testkit::Rng;
use hinterland_wire::{Hello, Priority, Range, Request};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections at a time: more to each of three nodes than it has memory for long requests.
const HELD_MAX: usize = 120;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(1);
/// A node that takes nothing in is not waited for.
const TIMEOUT: Duration = Duration::from_millis(5);

/// Neighbours at work, until this is dropped.
pub struct Neighbours {
    over: Arc<AtomicBool>,
    said: Arc<AtomicU64>,
    work: Option<JoinHandle<()>>,
}

impl Neighbours {
    /// Begins at `nodes`, not at the proxies before them.
    pub fn of(nodes: &[Listening], seed: u64) -> Neighbours {
        raise_descriptor_limit();
        let (over, said) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (nodes, is_over, counts) = (nodes.iter().map(address).collect::<Vec<_>>(), over.clone(), said.clone());
        let work = std::thread::spawn(move || {
            let (mut rng, mut held) = (Rng(seed), Vec::new());
            while !is_over.load(Relaxed) {
                if held.len() == HELD_MAX {
                    held.swap_remove(rng.index(HELD_MAX));
                }
                let node = nodes[rng.index(nodes.len())];
                held.extend(speak(&mut rng, node));
                counts.fetch_add(1, Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        Neighbours { over, said, work: Some(work) }
    }

    /// How often they have connected.
    pub fn said(&self) -> u64 {
        self.said.load(Relaxed)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(Err(panic)) = self.work.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Says something to a node; the connection, unless it is left at once. A node that is not there, or hangs up, is no news.
fn speak(rng: &mut Rng, node: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(node).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).expect("a limit");
    let (hello, mut words) = (Hello::ours().encode(), Vec::new());
    let noise = |rng: &mut Rng, bytes: usize| -> Vec<u8> {
        std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten().take(bytes).collect()
    };
    let mut request = Vec::new();
    let range = |page: u32| Range { address: u64::from(page) << 12, bytes: 4096, checksum: 0 };
    Request::write(&mut request, 1, Priority::WriteBack, (0..64).map(range));
    let kind = rng.index(8);
    if kind > 1 {
        words.extend_from_slice(&hello);
    }
    match kind {
        0 => words.extend_from_slice(&hello[..rng.index(hello.len())]),
        1 => words = noise(rng, 200),
        2 => words.extend(noise(rng, 600)),
        3 => {
            request[4..12].copy_from_slice(&[0xff; 8]);
            words.extend_from_slice(&request);
        }
        4 => {}
        // Half of a long request, of which the node knows only that it is long.
        5 => words.extend_from_slice(&request[..request.len() / 2]),
        // Half of its data is missing.
        6 => {
            words.extend_from_slice(&request);
            words.extend(noise(rng, 32 << 10));
        }
        // In a session of its own.
        _ => {
            Request::open(&mut request, 1, "a neighbour", 0, 0);
            words.extend_from_slice(&request);
            Request::write(&mut request, 2, Priority::Demand, (0..64).map(range));
            words.extend_from_slice(&request);
            words.extend(noise(rng, 4096));
        }
    }
    let _ = stream.write_all(&words);
    (rng.below(8) > 0).then_some(stream)
}

/// The nodes keep their bounds, whoever connects.
pub fn check_bounds(nodes: &[Listening]) {
    for node in nodes {
        let (node, figures) = (node.node(), node.node().figures());
        assert!(figures.used_bytes <= figures.capacity_bytes, "more is leased than is lent: {figures:?}");
        let bytes = node.buffer_bytes();
        assert!(bytes <= BUFFERS_BYTES_MAX, "{bytes} bytes for requests that are not whole");
    }
}
