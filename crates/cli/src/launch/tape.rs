//! The tapes of a run: read and checked before the program starts, and handed to its processes as one sealed memfd, which has no name.

use crate::error::{Error, complain};
use crate::tape::folder;
use hinterland_abi::{Ledger, TAPES_MAX, TapePlace};
use hinterland_tape::tape::{Order, Tape, TapeHead, ThreadTotals};
use hinterland_units::{ByteCount, Foreign, PAGE_BYTES, PageCount};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Local memory that is planned for threads which did not come is no reason to trace again where it is less than this part.
const IDLE_PART: u64 = 16;
/// A tape is not for another size where a run has less than this part below that which it was planned for.
const LESS_PART: u64 = 100;

/// A whole tape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedTape {
    /// Where it was read.
    pub path: PathBuf,
    head: TapeHead,
    threads: Vec<ThreadTotals>,
    bytes: Vec<u8>,
}

impl CheckedTape {
    /// Reads a tape, and all of its records.
    ///
    /// # Errors
    /// It cannot be used, in words.
    pub fn read(path: &Path) -> Result<CheckedTape, String> {
        let refuse = |why: String| format!("{}: {why}", path.display());
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(refuse("a tape is a file".into()));
        }
        let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        CheckedTape::of(path, bytes)
    }

    /// Reads all records of a tape that is in memory; `path` is where it belongs.
    ///
    /// # Errors
    /// As above.
    pub fn of(path: &Path, bytes: Vec<u8>) -> Result<CheckedTape, String> {
        let refuse = |why: String| format!("{}: {why}", path.display());
        let tape = Tape::open(&bytes).map_err(|error| refuse(error.to_string()))?;
        let (head, threads) = (tape.head().clone(), tape.threads().to_vec());
        if head.page_bytes as usize != PAGE_BYTES {
            return Err(refuse(format!("it has pages of {} bytes, and here they have {PAGE_BYTES}", head.page_bytes)));
        }
        if !head.forks.is_known() {
            let why = format!("it is {}", crate::tape::NOT_KNOWN);
            return Err(refuse(why));
        }
        Ok(CheckedTape { path: path.into(), head, threads, bytes })
    }

    /// Pages of local memory that its plan needs.
    fn planned_pages(&self) -> u64 {
        self.head.local_pages.min(self.head.peak_pages)
    }

    /// Threads that it has pages to fetch for.
    fn fetching(&self) -> impl Iterator<Item = &ThreadTotals> {
        self.threads.iter().filter(|thread| thread.fetched > 0)
    }

    /// Pages of local memory that are planned for other threads than so many, at least.
    fn idle_pages(&self, followed: u64) -> u64 {
        let mut shares: Vec<u64> = self.fetching().map(|thread| thread.share_pages).collect();
        shares.sort_unstable();
        let others = shares.len().saturating_sub(usize::try_from(followed).unwrap_or(usize::MAX));
        shares[..others].iter().sum()
    }
}

/// The tapes that the processes of a run take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunTapes {
    /// The file, or the folder.
    pub path: PathBuf,
    is_folder: bool,
    /// In the order in which their traces were begun.
    tapes: Vec<CheckedTape>,
}

impl From<CheckedTape> for RunTapes {
    fn from(tape: CheckedTape) -> RunTapes {
        RunTapes { path: tape.path.clone(), is_folder: false, tapes: vec![tape] }
    }
}

impl RunTapes {
    /// Reads a tape, or all tapes of a folder; `leave_out` is told which of those are of no use, and why.
    ///
    /// # Errors
    /// There is none that can be used, in words.
    pub fn read(path: &Path, mut leave_out: impl FnMut(String)) -> Result<RunTapes, String> {
        if !path.is_dir() {
            return CheckedTape::read(path).map(RunTapes::from);
        }
        let refuse = |why: &str| format!("{}: {why}", path.display());
        let paths = folder::paths(path).map_err(|error| refuse(&error.to_string()))?;
        if paths.is_empty() {
            return Err(refuse(folder::WITHOUT_TAPES));
        }
        let mut tapes = Vec::new();
        for path in paths {
            match CheckedTape::read(&path) {
                Ok(tape) if tape.head.program.is_empty() => {
                    leave_out(format!("{}: it does not say of which program it is", path.display()));
                }
                Ok(tape) => tapes.push(tape),
                Err(why) => leave_out(why),
            }
        }
        tapes.sort_by(|one, other| folder::order(&one.head, &one.path).cmp(&folder::order(&other.head, &other.path)));
        for beyond in tapes.drain(TAPES_MAX.min(tapes.len())..) {
            leave_out(format!("{}: a run has {TAPES_MAX} tapes at most", beyond.path.display()));
        }
        if tapes.is_empty() {
            return Err(refuse("no tape in it can be used"));
        }
        Ok(RunTapes { path: path.into(), is_folder: true, tapes })
    }

    /// Where they come from, for people.
    pub fn source(&self) -> String {
        let path = self.path.display();
        if self.is_folder { format!("{path}: {} tapes", self.tapes.len()) } else { path.to_string() }
    }

    /// All pages that its program touched when it was traced. Of a folder it is not known: which of the programs run at the same time?
    pub fn recorded_peak(&self) -> Option<ByteCount> {
        (!self.is_folder).then(|| self.largest_peak())
    }

    /// The most that any of the programs touched.
    pub fn largest_peak(&self) -> ByteCount {
        ByteCount(self.tapes.iter().map(|tape| tape.head.peak_pages * PAGE_BYTES as u64).max().unwrap_or(0))
    }

    /// Their files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.tapes.iter().map(|tape| tape.path.as_path())
    }

    /// What the run's figures call them, by number from 1.
    pub fn names(&self) -> Vec<String> {
        let name = |tape: &CheckedTape| tape.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.tapes.iter().map(name).collect()
    }

    /// What the run's processes are to know of them before they start.
    fn places(&self) -> Vec<TapePlace> {
        let mut offset = 0;
        let place = |tape: &CheckedTape| {
            let bytes = tape.bytes.len() as u64;
            offset += bytes;
            let TapeHead { arguments_digest: arguments, forks, .. } = &tape.head;
            let forks = forks.key().unwrap_or(u64::MAX);
            TapePlace { program: tape.head.program_key(), arguments: *arguments, forks, offset: offset - bytes, bytes }
        };
        self.tapes.iter().map(place).collect()
    }

    /// Threads that it has pages to fetch for; of a folder it is not known which of them run.
    pub fn threads(&self) -> u64 {
        if self.is_folder { 0 } else { self.tapes[0].fetching().count() as u64 }
    }

    /// What `hinterland tape` takes to plan such ones.
    fn planned_by(&self) -> &'static str {
        match self.tapes[0].head.order {
            _ if self.is_folder => "TRACES/ --local SIZE -o TAPES/",
            Order::Ordered => "TRACE --local SIZE -o TAPE",
            Order::Sets => "TRACE TRACE … --local SIZE -o TAPE",
        }
    }

    /// Threads that it is of: those that it has pages to fetch for, where there are some.
    fn traced_threads(&self) -> u64 {
        match self.threads() {
            0 => self.tapes[0].threads.len() as u64,
            fetching => fetching,
        }
    }

    /// What the user should know before the program starts with so much local memory: there are tapes for more.
    pub fn warning(&self, local: ByteCount) -> Option<String> {
        let has_less = |tape: &&CheckedTape| {
            let planned = tape.planned_pages();
            planned - planned / LESS_PART > local.0 / PAGE_BYTES as u64
        };
        let planned = self.tapes.iter().filter(has_less).map(CheckedTape::planned_pages).max()?;
        let (path, planned) = (self.path.display(), ByteCount(PageCount(planned).bytes()));
        let is = match self.tapes.iter().filter(has_less).count() {
            _ if !self.is_folder => "was planned for".to_owned(),
            count => format!("has tapes ({count} of {}) that were planned for up to", self.tapes.len()),
        };
        Some(format!(
            "warning: --tape: {path} {is} {planned} of local memory, and this run has {local}: pages leave earlier than planned; \
             `hinterland tape {}` plans for less",
            self.planned_by()
        ))
    }

    /// What the user should know once the program has ended, of which so many threads `followed` a tape, and others had none.
    pub fn say(&self, ledger: &Ledger, followed: u64, without: u64) {
        let (path, first) = (self.path.display(), &self.tapes[0]);
        match (ledger.tapes.any_taken(), self.is_folder) {
            (false, true) => complain(format_args!(
                "--tape: {path} has tapes of {}, and no process of the run was any of these programs: none was followed",
                Foreign(&self.programs())
            )),
            (false, false) => {
                let again = match first.head.build_id.as_str() {
                    "" => "",
                    _ => "; one that was built anew is another, and has to be traced again",
                };
                complain(format_args!(
                    "--tape: {path} is of {}, and no process of the run was that program: none followed it{again}",
                    Foreign(&first.head.program)
                ));
            }
            (true, true) if without > 0 => complain(format_args!(
                "--tape: {without} threads more than were traced were prefetched for without a tape: trace the programs with as many"
            )),
            (true, false) if without > 0 => complain(format_args!(
                "--tape: {path} is of {} threads; {without} more were prefetched for without one: trace the program with as many",
                self.traced_threads()
            )),
            (true, false) => self.fewer_threads(followed).iter().for_each(complain),
            _ => {}
        }
    }

    /// A message where much of local memory was planned for threads that did not come.
    fn fewer_threads(&self, followed: u64) -> Option<String> {
        let first = &self.tapes[0];
        let idle = first.idle_pages(followed);
        (followed > 0 && idle > first.planned_pages() / IDLE_PART).then(|| {
            format!(
                "--tape: {} is of {} threads, and {followed} followed it: {} of local memory are planned for the others; if there are \
                 fewer now, trace the program with as many",
                self.path.display(),
                self.threads(),
                ByteCount(PageCount(idle).bytes())
            )
        })
    }

    /// The programs that they are of, each once, by name.
    fn programs(&self) -> String {
        /// Programs that are named.
        const NAMED_MAX: usize = 3;
        let mut names: Vec<String> = Vec::new();
        for tape in &self.tapes {
            let name = Path::new(&tape.head.program).file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = if names.len() > NAMED_MAX { " …" } else { "" };
        names.truncate(NAMED_MAX);
        format!("{}{more}", names.join(", "))
    }
}

/// The tapes in memory that managed processes open through `/proc/LAUNCHER/fd/N`, one behind the other.
pub struct SharedTapes(OwnedFd);

impl SharedTapes {
    /// Copies them there, and says in the ledger where each is. `arguments_must_match`: a process with other arguments has none.
    ///
    /// # Errors
    /// The system's.
    pub fn create(tapes: &RunTapes, ledger: &Ledger, arguments_must_match: bool) -> Result<SharedTapes, Error> {
        let needed = tapes.tapes.iter().map(|tape| tape.bytes.len() as u64).sum();
        // The kernel would not only refuse what is longer, but end the launcher by a signal.
        if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_FSIZE)
            && limit < needed
        {
            return Err(Error::FileLength { limit: ByteCount(limit), needed: ByteCount(needed) });
        }
        let what = "cannot keep the tapes in memory";
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"hinterland-tape", flags).map_err(Error::system(what))?);
        for tape in &tapes.tapes {
            file.write_all(&tape.bytes).map_err(|source| Error::System { what, source })?;
        }
        let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(Error::system(what))?;
        ledger.tapes.fill(&tapes.places(), arguments_must_match);
        Ok(SharedTapes(file.into()))
    }

    /// The path by which other processes open it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", nix::unistd::getpid(), self.0.as_raw_fd())
    }

    /// Their file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_tape::tape::TapeWriter;

    fn tape(program: &str, build_id: &str, begun_unix_s: u64, process: u32) -> Vec<u8> {
        let head = TapeHead {
            program: program.into(),
            build_id: build_id.into(),
            page_bytes: 4096,
            peak_pages: 5_000 + u64::from(process),
            begun_unix_s,
            process,
            ..TapeHead::default()
        };
        let mut bytes = Vec::new();
        TapeWriter::new(&mut bytes, &head, &[]).unwrap().finish(&[]).unwrap();
        bytes
    }

    #[test]
    fn tapes_of_a_folder_come_in_the_order_of_their_traces_and_what_is_of_no_use_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
        put("1000.tape", &tape("/bin/join", "0b", 7, 1000));
        put("999.tape", &tape("/bin/sort", "", 7, 999));
        put("17.tape", &tape("/bin/sort", "0a", 8, 17));
        // It has called exec, and then again and again.
        for name in ["17-10.tape", "17-2.tape"] {
            put(name, &tape("/bin/sort", "0a", 8, 17));
        }
        put("18.tape", &tape("", "", 1, 18));
        put("19.tape", &tape("/bin/sort", "0a", 1, 19)[..70]);
        put("20.tape", b"no tape");
        put("21.trace", b"whatever");
        let mut left_out = Vec::new();
        let tapes = RunTapes::read(directory.path(), |why| left_out.push(why)).unwrap();
        assert_eq!(tapes.names(), ["999.tape", "1000.tape", "17.tape", "17-2.tape", "17-10.tape"]);
        left_out.sort();
        for (said, (name, why)) in left_out.iter().zip([
            ("18.tape", "it does not say of which program it is"),
            ("19.tape", "plan the tape again"),
            ("20.tape", "this is no tape"),
        ]) {
            assert!(said.contains(name) && said.contains(why), "{said}");
        }
        assert_eq!(left_out.len(), 3, "{left_out:?}");
        let places = tapes.places();
        assert_eq!(places[1].program, hinterland_tape::program_key("0b", "/bin/join"));
        assert_eq!(places[2].offset, places[0].bytes + places[1].bytes, "one behind the other");
        assert_eq!((tapes.recorded_peak(), tapes.largest_peak()), (None, ByteCount(6_000 * 4096)));
        assert_eq!(tapes.programs(), "sort, join");
    }

    #[test]
    fn a_folder_without_a_tape_that_can_be_used_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = || RunTapes::read(directory.path(), |_| {}).unwrap_err();
        assert!(refused().contains("a folder without tapes"), "{}", refused());
        std::fs::write(directory.path().join("1.tape"), b"no tape").unwrap();
        assert!(refused().contains("no tape in it can be used"), "{}", refused());
    }

    /// A tape for so much local memory, of which threads have these shares.
    fn planned(local_pages: u64, shares: &[u64]) -> RunTapes {
        let mut tape = CheckedTape::of(Path::new("app.tape"), tape("/bin/sort", "0a", 7, 100)).unwrap();
        let of = |share: &u64| ThreadTotals { share_pages: *share, fetched: 1, ..ThreadTotals::default() };
        tape.head.local_pages = local_pages;
        tape.threads = shares.iter().map(of).chain([ThreadTotals::default()]).collect();
        tape.into()
    }

    #[test]
    fn of_threads_that_did_not_come_a_tape_is_warned_of_where_much_is_planned_for_them() {
        let tapes = planned(4_096, &[1_024; 4]);
        assert_eq!((tapes.threads(), tapes.traced_threads()), (4, 4), "it has nothing for the fifth");
        assert_eq!((planned(4_096, &[]).threads(), planned(4_096, &[]).traced_threads()), (0, 1));
        assert_eq!(
            tapes.fewer_threads(2).unwrap(),
            "--tape: app.tape is of 4 threads, and 2 followed it: 8 MiB of local memory are planned for the others; if there are \
             fewer now, trace the program with as many"
        );
        assert_eq!([4, 0].map(|followed| tapes.fewer_threads(followed)), [None, None]);
        assert_eq!(planned(4_096, &[200, 3_896]).fewer_threads(1), None);
    }

    #[test]
    fn a_tape_for_more_local_memory_is_warned_of() {
        let warned = |local_pages: u64, run_pages: u64| {
            planned(local_pages, &[1]).warning(ByteCount(PageCount(run_pages).bytes())).is_some()
        };
        let peak = 5_100;
        assert!(warned(4_096, 4_000) && warned(peak + 10_000, peak - 100));
        assert!(!warned(4_096, 4_096) && !warned(4_096, 4_060), "a hundredth is nothing");
        assert!(!warned(peak + 10_000, peak), "it needs no more than the program touched");
        let words = planned(4_096, &[1]).warning(ByteCount(8 << 20)).unwrap();
        assert!(words.contains("app.tape was planned for 16 MiB of local memory, and this run has 8 MiB"), "{words}");
        assert!(words.contains("`hinterland tape TRACE --local SIZE -o TAPE` plans for less"), "{words}");
        let mut sets = planned(4_096, &[1]);
        sets.tapes[0].head.order = Order::Sets;
        let words = sets.warning(ByteCount(8 << 20)).unwrap();
        assert!(words.contains("`hinterland tape TRACE TRACE … --local SIZE -o TAPE`"), "{words}");
        let two = [4_096, 2_048].into_iter().flat_map(|pages| planned(pages, &[1]).tapes).collect();
        let folder = RunTapes { path: "tapes".into(), is_folder: true, tapes: two };
        let words = folder.warning(ByteCount(8 << 20)).unwrap();
        assert!(words.contains("tapes has tapes (1 of 2) that were planned for up to 16 MiB"), "{words}");
        assert!(words.contains("`hinterland tape TRACES/ --local SIZE -o TAPES/`"), "{words}");
    }
}
