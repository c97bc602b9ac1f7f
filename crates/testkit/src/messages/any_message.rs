//! A random message, and what it says.

use crate::Rng;
use hinterland_wire::*;

fn below(rng: &mut Rng, bound: u64) -> u32 {
    u32::try_from(rng.below(bound)).expect("a bound of 32 bits")
}

/// A message with the seed as its number, and what [`described`](super::described) must say of it.
pub fn any_message(rng: &mut Rng) -> (Vec<u8>, String) {
    let (number, mut into) = (rng.0, Vec::new());
    let ranges: Vec<Range> = (0..1 + rng.index(RANGES_MAX))
        .map(|_| Range { address: rng.next_u64() >> 20, bytes: 1 + below(rng, 4096), checksum: rng.next_u64() })
        .collect();
    let numbers: Vec<u32> = (0..rng.index(SLABS_MAX + 1)).map(|_| below(rng, 1 << 32)).collect();
    let sums: Vec<u64> = (0..rng.index(RANGES_MAX + 1)).map(|_| rng.next_u64()).collect();
    let name = "näme".repeat(rng.index(NAME_BYTES_MAX / 5 + 1));
    let token = Token(std::array::from_fn(|_| u8::try_from(rng.below(256)).unwrap()));
    let (a, b, c) = (rng.next_u64(), rng.next_u64(), 1 + below(rng, SLABS_MAX as u64));
    let priority = [Priority::Demand, Priority::Prefetch, Priority::WriteBack, Priority::Migration][rng.index(4)];
    let report = CopiesReport {
        leases: a,
        pages: b,
        lacking_pages: c.into(),
        last_pages: a ^ b,
        copied_pages: b >> 7,
        spare: a & 2 == 2,
        movable: b & 1 == 1,
    };
    let said = match rng.below(22) {
        0 => {
            Request::open(&mut into, number, &name, a, c);
            format!("{:?}", Request::Open { name: &name, quota_bytes: a, lease_ms: c })
        }
        1 => {
            Request::attach(&mut into, number, SessionId(a), token);
            format!("{:?} {:?}", Request::Attach { session: SessionId(a), token }, token.0)
        }
        2 => {
            Request::lease(&mut into, number, c);
            format!("{:?}", Request::Lease { slabs: c })
        }
        3 => {
            Request::give_back(&mut into, number, &numbers);
            format!("Return {numbers:?}")
        }
        21 => {
            let patches: Vec<PagePatch> = (0..1 + rng.index(RANGES_MAX))
                .map(|_| PagePatch {
                    address: (rng.next_u64() >> 20) & !0xfff,
                    granules: GranuleSet(u16::try_from(1 + rng.below(u16::MAX.into())).expect("16 bits")),
                    checksum: rng.next_u64(),
                })
                .collect();
            Request::patch(&mut into, number, priority, patches.iter().copied());
            format!("Patch {priority:?} {patches:?}")
        }
        4 => {
            Request::read(&mut into, number, priority, ranges.iter().copied());
            format!("Read {priority:?} {ranges:?}")
        }
        5 => {
            Request::write(&mut into, number, priority, ranges.iter().copied());
            format!("Write {priority:?} {ranges:?}")
        }
        6 => {
            let kinds = [Kind::Clone, Kind::Statistics, Kind::Close, Kind::Recall, Kind::Copies, Kind::Certificates];
            let kind = kinds[rng.index(kinds.len())];
            Request::plain(&mut into, number, kind);
            format!("{kind:?}")
        }
        7 => {
            Request::drain(&mut into, number, a & 1 == 1);
            format!("{:?}", Request::Drain { on: a & 1 == 1 })
        }
        8 => {
            let grant = Grant { session: SessionId(a), token, quota_bytes: b, lease_ms: c };
            Reply::session(&mut into, number, &grant);
            format!("{grant:?} {:?}", token.0)
        }
        9 => {
            Reply::slabs(&mut into, number, &numbers);
            format!("Slabs {numbers:?}")
        }
        10 => {
            let data_bytes = rng.index(DATA_BYTES_MAX + 1);
            Reply::data(&mut into, number, &sums, data_bytes);
            format!("Data {data_bytes} {sums:?}")
        }
        11 if c & 1 == 0 => {
            Request::share(&mut into, number, c);
            format!("{:?}", Request::Share { slab: c })
        }
        11 => {
            Reply::done(&mut into, number);
            "Done".into()
        }
        12 => {
            Request::resize(&mut into, number, a);
            format!("{:?}", Request::Resize { capacity_bytes: a })
        }
        13 => {
            let recall = Recall { slabs: c, quota_bytes: b };
            Reply::recalled(&mut into, number, &recall);
            format!("{:?}", Reply::Recalled(recall))
        }
        16 => {
            Request::report(&mut into, number, &report);
            format!("{:?}", Request::Report(report))
        }
        17 => {
            let row = |session| SessionCopies {
                session,
                removability: match session % 3 {
                    0 => Removability::Unknown,
                    1 => Removability::Needed,
                    _ => Removability::Spare,
                },
                report,
            };
            let rows: Vec<_> = (0..rng.below(SESSION_ROWS_MAX as u64 + 1)).map(row).collect();
            Reply::copies(&mut into, number, |into| Copies::encode(into, a & 1 == 1, b, &report, &rows));
            format!("{} {b} {report:?} {rows:?}", a & 1 == 1)
        }
        18 => {
            let row =
                |at: usize| CertificateRow { is_ca: at % 2 == 1, left_seconds: a.cast_signed() >> at, subject: &name };
            let rows: Vec<_> = (0..rng.index(CERTIFICATES_MAX + 1)).map(row).collect();
            Reply::certificates(&mut into, number, |into| Certificates::encode(into, &rows));
            format!("{rows:?}")
        }
        14 | 15 => {
            let node = NodeRow { capacity_bytes: a, used_bytes: b, draining: 1, ..NodeRow::default() };
            let row = |session| SessionRow {
                session,
                lanes: c,
                slabs: 3,
                quota_bytes: a,
                read_bytes: b,
                written_bytes: 5,
                name: &name,
            };
            let rows: Vec<_> = (0..rng.below(SESSION_ROWS_MAX as u64 + 1)).map(row).collect();
            Reply::figures(&mut into, number, |into| Statistics::encode(into, &node, &rows));
            format!("{node:?} {rows:?}")
        }
        _ => {
            let refusal = [Refusal::Full, Refusal::Malformed, Refusal::NoSession][rng.index(3)];
            Reply::refused(&mut into, number, refusal, (a, b), &name);
            format!("{:?}", Reply::Refused { refusal, used_bytes: a, capacity_bytes: b, words: &name })
        }
    };
    (into, said)
}
