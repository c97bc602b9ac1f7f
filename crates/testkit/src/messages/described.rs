//! What a message says.

use hinterland_wire::*;

/// Decodes a message as the side that it is for does, and looks at every entry of every list.
pub fn described(header: &Header, control: &[u8]) -> Result<String, WireError> {
    if header.kind as u8 & 0x80 == 0 {
        let request = Request::decode(header, control)?;
        return Ok(match request {
            Request::Attach { token, .. } => format!("{request:?} {:?}", token.0),
            Request::Return { slabs } => format!("Return {:?}", slabs.iter().collect::<Vec<_>>()),
            Request::Read { ranges } | Request::Write { ranges } => {
                assert!(ranges.data_bytes() <= DATA_BYTES_MAX && ranges.count() <= RANGES_MAX);
                format!("{:?} {:?} {:?}", header.kind, header.priority, ranges.iter().collect::<Vec<_>>())
            }
            Request::Patch { patches } => {
                assert!(patches.data_bytes() <= DATA_BYTES_MAX && patches.count() <= RANGES_MAX);
                format!("{:?} {:?} {:?}", header.kind, header.priority, patches.iter().collect::<Vec<_>>())
            }
            Request::Clone
            | Request::Statistics
            | Request::Close
            | Request::Recall
            | Request::Copies
            | Request::Certificates => format!("{:?}", header.kind),
            _ => format!("{request:?}"),
        });
    }
    let reply = Reply::decode(header, control)?;
    Ok(match reply {
        Reply::Session(grant) => format!("{grant:?} {:?}", grant.token.0),
        Reply::Slabs(numbers) => format!("Slabs {:?}", numbers.iter().collect::<Vec<_>>()),
        Reply::Data(sums) => format!("Data {} {:?}", header.data_bytes, sums.iter().collect::<Vec<_>>()),
        Reply::Figures(figures) => format!("{:?} {:?}", figures.node, figures.sessions().collect::<Vec<_>>()),
        Reply::Copies(copies) => {
            let rows = copies.sessions().collect::<Vec<_>>();
            format!("{} {} {:?} {rows:?}", copies.removable, copies.unknown_sessions, copies.sums)
        }
        Reply::Certificates(certificates) => format!("{:?}", certificates.rows().collect::<Vec<_>>()),
        Reply::Done => "Done".into(),
        Reply::Refused { .. } | Reply::Recalled(_) => format!("{reply:?}"),
    })
}
