//! A memory node beside a hostile client: whatever it sends, the node lives, and a neighbour's pages are what they were.

use arbitrary::{Result, Unstructured};
use hinterland_backend::{Backend, LoadItem, Location, Priority};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_units::{PAGE_BYTES, PageBytes};
use hinterland_wire::{Endpoint, HEADER_BYTES, Hello, Kind, Range, Request, SessionId, Token};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const SLABS: u64 = 64;
const MESSAGES_MAX: usize = 24;
/// An answer that does not come within so long never comes.
const LIMIT: Duration = Duration::from_secs(20);
/// The neighbour's page.
const PAGE: PageBytes = [0xa5; PAGE_BYTES];

struct World {
    node: Listening,
    socket: String,
    neighbour: Arc<dyn Backend>,
    location: Location,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        let socket = directory.join("node").display().to_string();
        let endpoint = Endpoint::Unix { path: socket.clone() };
        let node = Listening::start(&endpoint, Options::new(SLABS * SLAB_BYTES)).expect("a node");
        let neighbour = hinterland_backend::open(&[endpoint.to_string()]).expect("a backend");
        let mut stored = [Ok(Location(0))];
        neighbour.store(&[&PAGE], Priority::WriteBack, &mut stored);
        let [stored] = stored;
        World { node, socket, neighbour, location: stored.expect("stored") }
    })
}

/// One input.
pub fn run(bytes: &[u8]) {
    let world = world();
    let mut stream = UnixStream::connect(&world.socket).expect("the node lives");
    stream.set_read_timeout(Some(LIMIT)).expect("an option");
    stream.set_write_timeout(Some(LIMIT)).expect("an option");
    let said = speech(&mut Unstructured::new(bytes)).unwrap_or_default();
    let mut hearing = stream.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut heard = [0; 4096];
            loop {
                match hearing.read(&mut heard) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                    Err(error) => panic!("the node neither answers nor hangs up: {error}"),
                }
            }
        });
        // It may hang up in the middle.
        let _ = stream.write_all(&said);
        let _ = stream.shutdown(Shutdown::Write);
    });
    world.node.node().drain(false);
    world.node.node().resize(SLABS * SLAB_BYTES);
    let mut page = [0; PAGE_BYTES];
    let mut right = false;
    let mut items = [LoadItem { location: world.location, into: &mut page }];
    world.neighbour.load(&mut items, Priority::Demand, &mut |_, loaded| right = loaded.is_ok_and(|page| *page == PAGE));
    assert!(right, "a neighbour's page is gone, or another");
}

/// What the client says, from the first byte to the last.
fn speech(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut said = Vec::new();
    match input.int_in_range(0..=15)? {
        0 => said.extend(input.bytes(input.len().min(64))?),
        _ => said.extend(Hello::ours().encode()),
    }
    let mut number = 0;
    for _ in 0..MESSAGES_MAX {
        if input.is_empty() {
            break;
        }
        // One that does not count up is the last that is heard.
        number = if input.ratio(1, 16)? { input.int_in_range(0..=number)? } else { number + 1 };
        let mut one = message(input, number)?;
        if input.ratio(1, 4)? && one.len() > HEADER_BYTES {
            let at = input.choose_index(one.len())?;
            one[at] = input.arbitrary()?;
            hinterland_testkit::messages::sealed_again(&mut one);
        }
        said.append(&mut one);
        if input.ratio(1, 8)? {
            said.extend(input.bytes(input.len().min(16))?);
        }
    }
    Ok(said)
}

/// A message with its data.
fn message(input: &mut Unstructured<'_>, number: u64) -> Result<Vec<u8>> {
    let mut into = Vec::new();
    match input.int_in_range(0..=9)? {
        0 | 1 => {
            Request::open(&mut into, number, "fuzz", u64::from(input.arbitrary::<u32>()?), input.int_in_range(0..=2)?)
        }
        2 => Request::attach(&mut into, number, SessionId(input.int_in_range(0..=9)?), Token(input.arbitrary()?)),
        3 => Request::lease(&mut into, number, input.int_in_range(1..=4)?),
        4 => {
            let slabs: Vec<u32> =
                (0..input.int_in_range(0..=3)?).map(|_| input.int_in_range(0..=5)).collect::<Result<_>>()?;
            Request::give_back(&mut into, number, &slabs);
        }
        5 => Request::read(&mut into, number, hinterland_wire::Priority::Demand, ranges(input)?.into_iter()),
        6 => {
            let ranges = ranges(input)?;
            let data_bytes: usize = ranges.iter().map(|range| range.bytes as usize).sum();
            Request::write(&mut into, number, hinterland_wire::Priority::WriteBack, ranges.into_iter());
            into.resize(into.len() + data_bytes, 0x5a);
        }
        7 => {
            let kinds = [Kind::Clone, Kind::Statistics, Kind::Close, Kind::Recall, Kind::Copies, Kind::Certificates];
            Request::plain(&mut into, number, *input.choose(&kinds)?);
        }
        8 => Request::share(&mut into, number, input.int_in_range(0..=5)?),
        _ if input.arbitrary()? => Request::drain(&mut into, number, input.arbitrary()?),
        _ => Request::resize(&mut into, number, u64::from(input.arbitrary::<u32>()?)),
    }
    Ok(into)
}

/// Ranges, most of them in the first slabs; their data is all the same byte, and the checksum is that of it.
fn ranges(input: &mut Unstructured<'_>) -> Result<Vec<Range>> {
    let count = input.int_in_range(1..=3)?;
    let range = |input: &mut Unstructured<'_>| {
        let bytes = input.int_in_range(1..=u32::try_from(PAGE_BYTES).unwrap_or(u32::MAX))?;
        let address = u64::from(input.arbitrary::<u32>()?) % (6 * SLAB_BYTES);
        let checksum = hinterland_wire::checksum(address, &vec![0x5a; bytes as usize]);
        Ok(Range { address, bytes, checksum })
    };
    (0..count).map(|_| range(input)).collect()
}
