//! What a client asks.

use crate::bytes::{Reader, put_text};
use crate::header::{begin, seal};
use crate::{
    CopiesReport, Header, Kind, NAME_BYTES_MAX, Numbers, PagePatch, Patches, Priority, Range, Ranges, SLABS_MAX,
    SessionId, Token, WireError,
};

/// A request, borrowed from the bytes that it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Begin a session on this lane. Answer: `Session`.
    Open {
        /// For operators of the node.
        name: &'a str,
        /// Bytes that it wants to keep at most; 0: as many as the node allows.
        quota_bytes: u64,
        /// Time that it is kept without a lane, in milliseconds. The node has an upper bound.
        lease_ms: u32,
    },
    /// Join a session with this lane. Answer: `Session`.
    Attach {
        /// Which.
        session: SessionId,
        /// Its token.
        token: Token,
    },
    /// Give `slabs` more slabs; they read as zeros. Answer: `Slabs`, all of them or none.
    Lease {
        /// How many, 1 to `SLABS_MAX`.
        slabs: u32,
    },
    /// Take these slabs back. Answer: `Done`.
    Return {
        /// Which.
        slabs: Numbers<'a>,
    },
    /// Give these bytes. Answer: `Data`.
    Read {
        /// Which; no range crosses the end of a slab.
        ranges: Ranges<'a>,
    },
    /// Keep these bytes, which follow as data. Answer: `Done`.
    Write {
        /// Where they go, with the checksum of each; no range crosses the end of a slab.
        ranges: Ranges<'a>,
    },
    /// Keep these granules of pages, which follow as data; all of them or none. Answer: `Done`.
    Patch {
        /// Which, with the checksum of each page as it is then.
        patches: Patches<'a>,
    },
    /// Make a session of its own with the same slabs, whose content neither changes for the other. Answer: `Session`, the new one;
    /// this lane stays with the old.
    Clone,
    /// Answer: `Figures`. Needs no session.
    Statistics,
    /// Lease no more memory, or do so again. Answer: `Done`. Needs no session.
    Drain {
        /// Whether to stop.
        on: bool,
    },
    /// Forget the session and all that it holds. Answer: `Done`.
    Close,
    /// How many slabs of this session does the node want back? Answer: `Recalled`.
    Recall,
    /// Lend so much from now on. Answer: `Done`. Needs no session.
    Resize {
        /// Bytes; rounded down to whole slabs.
        capacity_bytes: u64,
    },
    /// Give a descriptor to read this slab with. Answer: `Done`, with the descriptor beside its first byte.
    Share {
        /// Which.
        slab: u32,
    },
    /// How many copies the session's pages have. Answer: `Recalled`.
    Report(CopiesReport),
    /// Whether the node may be removed. Answer: `CopiesAre`. Needs no session.
    Copies,
    /// For how long the node's certificates are good. Answer: `CertificatesAre`. Needs no session.
    Certificates,
}

impl<'a> Request<'a> {
    /// Reads a request whose header and control part were checked.
    ///
    /// # Errors
    /// The control part does not fit the kind, or the data does not fit the ranges.
    pub fn decode(header: &Header, control: &'a [u8]) -> Result<Request<'a>, WireError> {
        let mut reader = Reader(control);
        let data_bytes = if matches!(header.kind, Kind::Write | Kind::Patch) { None } else { Some(0) };
        if data_bytes.is_some_and(|bytes| bytes != header.data_bytes) {
            return Err(WireError::Length);
        }
        let request = match header.kind {
            Kind::Open => Request::Open {
                quota_bytes: reader.u64()?,
                lease_ms: reader.u32()?,
                name: reader.text("the name", NAME_BYTES_MAX)?,
            },
            Kind::Attach => Request::Attach { session: SessionId(reader.u64()?), token: Token(reader.array()?) },
            Kind::Lease => Request::Lease { slabs: reader.u32()? },
            Kind::Return => return Numbers::decode(reader).map(|slabs| Request::Return { slabs }),
            Kind::Read => return Ranges::decode(reader).map(|ranges| Request::Read { ranges }),
            Kind::Write => {
                let ranges = Ranges::decode(reader)?;
                let fits = ranges.data_bytes() == header.data_bytes;
                return if fits { Ok(Request::Write { ranges }) } else { Err(WireError::Length) };
            }
            Kind::Patch => {
                let patches = Patches::decode(reader)?;
                let fits = patches.data_bytes() == header.data_bytes;
                return if fits { Ok(Request::Patch { patches }) } else { Err(WireError::Length) };
            }
            Kind::Clone => Request::Clone,
            Kind::Statistics => Request::Statistics,
            Kind::Drain => match reader.u8()? {
                0 => Request::Drain { on: false },
                1 => Request::Drain { on: true },
                _ => return Err(WireError::Value("the switch")),
            },
            Kind::Close => Request::Close,
            Kind::Recall => Request::Recall,
            Kind::Resize => Request::Resize { capacity_bytes: reader.u64()? },
            Kind::Share => Request::Share { slab: reader.u32()? },
            Kind::Report => Request::Report(CopiesReport::decode(&mut reader)?),
            Kind::Copies => Request::Copies,
            Kind::Certificates => Request::Certificates,
            other => return Err(WireError::Kind(other as u8)),
        };
        if matches!(request, Request::Lease { slabs } if slabs == 0 || slabs as usize > SLABS_MAX) {
            return Err(WireError::Value("the number of slabs"));
        }
        reader.end()?;
        Ok(request)
    }

    /// `Open` as request `number`.
    pub fn open(into: &mut Vec<u8>, number: u64, name: &str, quota_bytes: u64, lease_ms: u32) {
        begin(into, Kind::Open, Priority::Demand, number);
        into.extend_from_slice(&quota_bytes.to_le_bytes());
        into.extend_from_slice(&lease_ms.to_le_bytes());
        put_text(into, name, NAME_BYTES_MAX);
        seal(into, 0);
    }

    /// `Attach` as request `number`.
    pub fn attach(into: &mut Vec<u8>, number: u64, session: SessionId, token: Token) {
        begin(into, Kind::Attach, Priority::Demand, number);
        into.extend_from_slice(&session.0.to_le_bytes());
        into.extend_from_slice(&token.0);
        seal(into, 0);
    }

    /// `Lease` as request `number`.
    pub fn lease(into: &mut Vec<u8>, number: u64, slabs: u32) {
        begin(into, Kind::Lease, Priority::WriteBack, number);
        into.extend_from_slice(&slabs.to_le_bytes());
        seal(into, 0);
    }

    /// `Return` as request `number`.
    pub fn give_back(into: &mut Vec<u8>, number: u64, slabs: &[u32]) {
        begin(into, Kind::Return, Priority::WriteBack, number);
        Numbers::encode(into, slabs);
        seal(into, 0);
    }

    /// `Read` as request `number`.
    pub fn read(into: &mut Vec<u8>, number: u64, priority: Priority, ranges: impl ExactSizeIterator<Item = Range>) {
        begin(into, Kind::Read, priority, number);
        Ranges::encode(into, ranges);
        seal(into, 0);
    }

    /// `Write` as request `number`; the data follows on the wire in the order of the ranges.
    pub fn write(into: &mut Vec<u8>, number: u64, priority: Priority, ranges: impl ExactSizeIterator<Item = Range>) {
        begin(into, Kind::Write, priority, number);
        let data_bytes = Ranges::encode(into, ranges);
        seal(into, data_bytes);
    }

    /// `Patch` as request `number`; the granules follow on the wire in the order of the patches.
    pub fn patch(
        into: &mut Vec<u8>,
        number: u64,
        priority: Priority,
        patches: impl ExactSizeIterator<Item = PagePatch>,
    ) {
        begin(into, Kind::Patch, priority, number);
        let data_bytes = Patches::encode(into, patches);
        seal(into, data_bytes);
    }

    /// `Clone`, `Statistics`, `Close`, `Recall`, `Copies` or `Certificates` as request `number`.
    pub fn plain(into: &mut Vec<u8>, number: u64, kind: Kind) {
        let is_plain = matches!(
            kind,
            Kind::Clone | Kind::Statistics | Kind::Close | Kind::Recall | Kind::Copies | Kind::Certificates
        );
        debug_assert!(is_plain, "{kind:?} has a control part");
        begin(into, kind, Priority::Demand, number);
        seal(into, 0);
    }

    /// `Resize` as request `number`.
    pub fn resize(into: &mut Vec<u8>, number: u64, capacity_bytes: u64) {
        begin(into, Kind::Resize, Priority::Demand, number);
        into.extend_from_slice(&capacity_bytes.to_le_bytes());
        seal(into, 0);
    }

    /// `Report` as request `number`.
    pub fn report(into: &mut Vec<u8>, number: u64, report: &CopiesReport) {
        begin(into, Kind::Report, Priority::WriteBack, number);
        report.encode(into);
        seal(into, 0);
    }

    /// `Share` as request `number`.
    pub fn share(into: &mut Vec<u8>, number: u64, slab: u32) {
        begin(into, Kind::Share, Priority::WriteBack, number);
        into.extend_from_slice(&slab.to_le_bytes());
        seal(into, 0);
    }

    /// `Drain` as request `number`.
    pub fn drain(into: &mut Vec<u8>, number: u64, on: bool) {
        begin(into, Kind::Drain, Priority::Demand, number);
        into.push(u8::from(on));
        seal(into, 0);
    }
}
