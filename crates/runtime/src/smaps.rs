//! The kernel's account of each mapping: `/proc/self/smaps`, proc_pid_smaps(5).
//!
//! Read once at the end of every process, so lines are looked at as bytes, and nothing is allocated for them. The file is opened before the
//! program runs and inside a fork, where the program opens nothing.

use crate::proc_file::ProcFile;
use hinterland_units::PAGE_BYTES;
use std::io::{self, BufRead, BufReader};
use std::ops::{ControlFlow, Range};

static SMAPS: ProcFile = ProcFile::new(c"/proc/self/smaps");

/// Opens this process's smaps. While the program opens nothing.
pub fn open() {
    SMAPS.open();
}

/// In the child of a fork: the parent's file tells of the parent.
pub fn open_in_child() {
    SMAPS.close();
    SMAPS.open();
}

/// This process's smaps from the beginning; `None`: the process may not look. The kernel gives at most a page at a time.
pub fn own() -> Option<impl BufRead> {
    SMAPS.read().map(|file| BufReader::with_capacity(PAGE_BYTES, file))
}

/// The addresses of a mapping, as a line of /proc/PID/maps begins with them.
pub fn addresses(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// One mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Area {
    /// Its first address.
    pub start: usize,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// It is of a file, or of shared memory.
    pub has_file: bool,
    /// The main thread's stack.
    pub is_stack: bool,
    /// Resident bytes.
    pub rss: u64,
    /// Resident bytes, where one that `n` processes map counts `1/n`.
    pub pss: u64,
    /// Those that are no file's.
    pub anonymous: u64,
}

/// Calls `each` for every mapping, in the order of their addresses, until it breaks.
///
/// # Errors
/// The kernel's.
pub fn for_each(mut smaps: impl BufRead, mut each: impl FnMut(&Area) -> ControlFlow<()>) -> io::Result<()> {
    let mut area: Option<Area> = None;
    let mut line = Vec::with_capacity(256);
    loop {
        line.clear();
        let read = smaps.read_until(b'\n', &mut line)?;
        if read == 0 || !line[0].is_ascii_uppercase() {
            if area.take().is_some_and(|area| each(&area).is_break()) || read == 0 {
                return Ok(());
            }
            area = heading(&line);
        } else if let Some(area) = &mut area {
            match line[0] {
                b'R' => set(&mut area.rss, &line, b"Rss:"),
                b'P' => set(&mut area.pss, &line, b"Pss:"),
                b'A' => set(&mut area.anonymous, &line, b"Anonymous:"),
                _ => {}
            }
        }
    }
}

/// The first line of a mapping: `start-end perms offset device inode name`.
fn heading(line: &[u8]) -> Option<Area> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let digits = words.next()?.split(|byte| *byte == b'-').next()?;
    let start = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let shared = words.next()?.ends_with(b"s");
    let has_file = words.nth(2)? != b"0";
    Some(Area { start, shared, has_file, is_stack: words.next() == Some(b"[stack]"), ..Area::default() })
}

/// Takes the bytes out of a line such as `Rss:  12 kB`.
fn set(field: &mut u64, line: &[u8], name: &[u8]) {
    let digits = line.strip_prefix(name).map(<[u8]>::trim_ascii_start).unwrap_or_default();
    let kib = digits.iter().take_while(|byte| byte.is_ascii_digit());
    if !digits.is_empty() {
        *field = kib.fold(0, |kib, digit| kib * 10 + u64::from(digit - b'0')) * 1024;
    }
}
