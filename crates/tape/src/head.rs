//! What a trace says of itself: its head and its regions.

use crate::bytes::{Bytes, put, put_text, put_texts};
use std::fmt;
use std::path::Path;
use twox_hash::XxHash3_64;

/// Pages that positions count from zero in: the far range of a traced program, or a part of an imported one's address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The same in every run of the program.
    pub name: String,
    /// Pages that it can have.
    pub pages: u64,
}

/// What a trace is of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// The recorder: `hinterland 0.1.0`, `lackey`, `text`.
    pub origin: String,
    /// The program's file name.
    pub program: String,
    /// [`Head::digest`] of its arguments; 0: not known.
    pub arguments_digest: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages that were mapped at the same time at most; 1: every change from one page to another is recorded.
    pub microset_pages: u32,
    /// References carry the processor time of their thread.
    pub has_cpu_times: bool,
    /// Where it was recorded: architecture, kernel, processors.
    pub machine: String,
    /// When recording began, in seconds since 1970; 0: not known.
    pub begun_unix_s: u64,
    /// Nanoseconds in that second; in versions 1 to 5, none.
    pub begun_ns: u32,
    /// Only intervals of the program were recorded, of which it said where they begin and end (3PO §3.1.1); in version 1, none was.
    pub has_intervals: bool,
    /// Files with code that were mapped when recording began: the program and the libraries that it was linked with.
    pub objects: Vec<String>,
    /// The process, as its own PID namespace numbers it; 0: not known. In versions 1 to 3, of none it was.
    pub process: u32,
    /// Its parent when recording began; 0: not known.
    pub parent: u32,
    /// It was forked, and has gone on in its parent's program.
    pub is_forked: bool,
    /// By which forks it came from that program.
    pub forks: ForkPath,
    /// Its program and arguments, for people: cut where they are long.
    pub command: String,
    /// The program's build-id, hexadecimal; empty: it has none, or, in versions 1 to 4, it is not known.
    pub build_id: String,
}

/// By which forks a process came from the program that it runs: of each fork its number, from 1, among those that its parent's first thread made.
/// These come in the program's own order, so the numbers are the same in every run. Which thread comes first to its fork is another question each time:
/// what another one than the first has forked is not known again in another run, nor are the children of that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForkPath(Option<Vec<u32>>);

impl Default for ForkPath {
    /// The program itself.
    fn default() -> ForkPath {
        ForkPath(Some(Vec::new()))
    }
}

impl ForkPath {
    /// Not known: it was forked by another thread than the first, or, in versions 1 to 5 of traces, it was forked.
    pub const UNKNOWN: ForkPath = ForkPath(None);
    /// Forks after one another that are told apart.
    const FORKS_MAX: usize = 32;

    /// That of a child; `fork`: the number of its fork, if its parent's first thread has made it.
    #[must_use]
    pub fn child(&self, fork: Option<u32>) -> ForkPath {
        let (Some(forks), Some(fork)) = (&self.0, fork) else { return ForkPath::UNKNOWN };
        let is_told = forks.len() < ForkPath::FORKS_MAX;
        ForkPath(is_told.then(|| forks.iter().copied().chain([fork]).collect()))
    }

    /// Whether it is known.
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Tells paths apart. 0: of the program itself; `None`: it is not known.
    pub fn key(&self) -> Option<u64> {
        let forks = self.0.as_ref()?;
        let bytes: Vec<u8> = forks.iter().flat_map(|fork| fork.to_le_bytes()).collect();
        Some(if forks.is_empty() { 0 } else { XxHash3_64::oneshot_with_seed(3, &bytes).max(1) })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.0.as_ref().map_or(0, |forks| forks.len() as u64 + 1));
        self.0.iter().flatten().for_each(|fork| put(out, (*fork).into()));
    }

    pub(crate) fn take(left: &mut Bytes<'_>) -> Option<ForkPath> {
        let Some(forks) = left.number()?.checked_sub(1) else { return Some(ForkPath::UNKNOWN) };
        if forks > ForkPath::FORKS_MAX as u64 {
            return None;
        }
        (0..forks).map(|_| left.small()).collect::<Option<_>>().map(|forks| ForkPath(Some(forks)))
    }
}

impl fmt::Display for ForkPath {
    /// `2.1`: the first child of the second one; nothing for the program itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("?"),
            Some(forks) => f.write_str(&forks.iter().map(u32::to_string).collect::<Vec<_>>().join(".")),
        }
    }
}

/// Tells programs apart: by the build-id, hexadecimal, where they have one, or else by the name of the file, because files move. 0: of a trace
/// that was imported it is not known.
pub fn program_key(build_id: &str, program: &str) -> u64 {
    match (build_id, Path::new(program).file_name()) {
        ("", None) => 0,
        ("", Some(name)) => XxHash3_64::oneshot_with_seed(1, name.as_encoded_bytes()),
        (id, _) => XxHash3_64::oneshot_with_seed(2, id.as_bytes()),
    }
}

impl Head {
    /// Tells arguments of different runs apart without keeping them: XXH3 of the arguments, a zero byte after each.
    pub fn digest<'a>(arguments: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let joined: Vec<u8> = arguments.into_iter().flat_map(|argument| argument.iter().copied().chain([0])).collect();
        XxHash3_64::oneshot(&joined)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.origin);
        put_text(&mut out, &self.program);
        put(&mut out, self.arguments_digest);
        put(&mut out, self.page_bytes.into());
        put(&mut out, self.microset_pages.into());
        put(&mut out, self.has_cpu_times.into());
        put_text(&mut out, &self.machine);
        put(&mut out, self.begun_unix_s);
        put(&mut out, self.has_intervals.into());
        put_texts(&mut out, &self.objects);
        put(&mut out, self.process.into());
        put(&mut out, self.parent.into());
        put(&mut out, self.is_forked.into());
        put_text(&mut out, &self.command);
        put_text(&mut out, &self.build_id);
        put(&mut out, self.begun_ns.into());
        self.forks.put(&mut out);
        out
    }

    pub(crate) fn decode(payload: &[u8], version: u8) -> Option<Head> {
        let mut left = Bytes(payload);
        let mut head = Head {
            origin: left.text()?,
            program: left.text()?,
            arguments_digest: left.number()?,
            page_bytes: left.small()?,
            microset_pages: left.small()?,
            has_cpu_times: left.number()? == 1,
            machine: left.text()?,
            begun_unix_s: left.number()?,
            has_intervals: version > 1 && left.number()? == 1,
            objects: if version > 1 { left.texts()? } else { Vec::new() },
            ..Head::default()
        };
        if version > 3 {
            (head.process, head.parent) = (left.small()?, left.small()?);
            head.is_forked = left.number()? == 1;
            head.command = left.text()?;
        }
        if version > 4 {
            head.build_id = left.text()?;
        }
        head.forks = if head.is_forked { ForkPath::UNKNOWN } else { ForkPath::default() };
        if version > 5 {
            head.begun_ns = left.small().filter(|begun_ns| *begun_ns < 1_000_000_000)?;
            head.forks = ForkPath::take(&mut left)?;
        }
        left.is_empty().then_some(head)
    }
}

impl Region {
    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, number.into());
        put_text(&mut out, &self.name);
        put(&mut out, self.pages);
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<(u32, Region)> {
        let mut left = Bytes(payload);
        let number = left.small()?;
        let region = Region { name: left.text()?, pages: left.number()? };
        left.is_empty().then_some((number, region))
    }
}
