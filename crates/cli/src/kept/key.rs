//! What a kept trace is of: the run that would touch the same pages in the same order.

use crate::encode::hexadecimal;
use hinterland_abi::Settings;
use hinterland_tape::{Head, VERSION, tape};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ReadCache};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Variables by which programs are told how many threads to start, and how OpenMP divides loops among them.
const THREAD_VARIABLES: [&str; 11] = [
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "OMP_SCHEDULE",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TBB_NUM_THREADS",
    "RAYON_NUM_THREADS",
];

/// Which pages a run's allocations get, and what its trace says of them. It grows with every change after which the same run is at other pages, or
/// its kept trace would be planned or recorded otherwise: the run is then recorded anew. 2: caches of threads do not go by the time.
const LAYOUT: u32 = 2;

/// See the module. Text, of which files are named by a digest; the text stands in them, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    pub text: String,
    pub name: String,
}

impl Key {
    /// The key of a run: format, program, arguments, numbers of threads, heap. What the arguments name may change.
    ///
    /// # Errors
    /// The program's file cannot be read.
    pub fn of(
        file: &Path,
        arguments: &[OsString],
        settings: &Settings,
        env: &impl Fn(&str) -> Option<String>,
    ) -> io::Result<Key> {
        let file = file.canonicalize()?;
        let digest = Head::digest(arguments.iter().map(|argument| argument.as_bytes()));
        let mut text = format!(
            "hinterland {}, trace {VERSION}, tape {}, layout {LAYOUT}\nprogram {}, {}\narguments {digest:016x}\nheap {}\n",
            env!("CARGO_PKG_VERSION"),
            tape::VERSION,
            file.display(),
            identity(&file)?,
            settings.heap
        );
        for name in THREAD_VARIABLES {
            if let Some(value) = env(name) {
                text += &format!("{name}={value}\n");
            }
        }
        let name = format!("{:016x}", Head::digest([text.as_bytes()]));
        Ok(Key { text, name })
    }
}

/// Tells a file of a program or library from another version of it: its build-id; where it has none, its length and when it was changed.
///
/// # Errors
/// It cannot be read.
pub fn identity(path: &Path) -> io::Result<String> {
    let cache = ReadCache::new(File::open(path)?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache);
    if let Some(id) = elf.ok().and_then(|elf| elf.build_id().ok().flatten()) {
        return Ok(format!("build-id {}", hexadecimal(id)));
    }
    let found = fs::metadata(path)?;
    Ok(format!("{} bytes, changed {}.{:09}", found.len(), found.mtime(), found.mtime_nsec()))
}
