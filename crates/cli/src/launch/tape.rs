//! The tape of a run: read and checked before the program starts, and handed to it as a sealed memfd, which has no name.

use crate::error::{Error, complain};
use hinterland_abi::Ledger;
use hinterland_tape::tape::{Tape, TapeHead};
use hinterland_units::{ByteCount, Foreign, PAGE_BYTES};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// A whole tape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedTape {
    /// Where it was read.
    pub path: PathBuf,
    head: TapeHead,
    threads: usize,
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
        let (head, threads) = (tape.head().clone(), tape.threads().len());
        if head.page_bytes as usize != PAGE_BYTES {
            return Err(refuse(format!("it has pages of {} bytes, and here they have {PAGE_BYTES}", head.page_bytes)));
        }
        Ok(CheckedTape { path: path.into(), head, threads, bytes })
    }

    /// The digest of the arguments that its program had when it was traced; 0: not known.
    pub fn arguments_digest(&self) -> u64 {
        self.head.arguments_digest
    }

    /// All pages that its program touched when it was traced.
    pub fn recorded_peak(&self) -> ByteCount {
        ByteCount(self.head.peak_pages * PAGE_BYTES as u64)
    }

    /// What the user should know once the program has ended, of which `without` threads had no tape.
    pub fn say(&self, ledger: &Ledger, without: u64) {
        let path = self.path.display();
        if ledger.tape_pid.load(Relaxed) == 0 {
            complain(format_args!(
                "--tape: {path} is of {}, and no process of the run was that program: none followed it",
                Foreign(&self.head.program)
            ));
        } else if without > 0 {
            complain(format_args!(
                "--tape: {path} is of {} threads; {without} more were prefetched for without one: trace the program with as many",
                self.threads
            ));
        }
    }
}

/// The tape in memory that managed processes open through `/proc/LAUNCHER/fd/N`.
pub struct SharedTape(OwnedFd);

impl SharedTape {
    /// Copies a tape there.
    ///
    /// # Errors
    /// The system's.
    pub fn create(tape: &CheckedTape) -> Result<SharedTape, Error> {
        let needed = tape.bytes.len() as u64;
        // The kernel would not only refuse what is longer, but end the launcher by a signal.
        if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_FSIZE)
            && limit < needed
        {
            return Err(Error::FileLength { limit: ByteCount(limit), needed: ByteCount(needed) });
        }
        let what = "cannot keep the tape in memory";
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"hinterland-tape", flags).map_err(Error::system(what))?);
        file.write_all(&tape.bytes).map_err(|source| Error::System { what, source })?;
        let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(Error::system(what))?;
        Ok(SharedTape(file.into()))
    }

    /// The path by which other processes open it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", nix::unistd::getpid(), self.0.as_raw_fd())
    }
}
