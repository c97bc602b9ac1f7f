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
use std::path::{Path, PathBuf};

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
    /// The key of a run: format, program, arguments, the folder of a script, numbers of threads, heap. What the arguments name may change.
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
        if let Some(folder) = script_folder(arguments) {
            text += &format!("script in {}\n", folder.display());
        }
        for name in THREAD_VARIABLES {
            if let Some(value) = env(name) {
                text += &format!("{name}={value}\n");
            }
        }
        let name = format!("{:016x}", Head::digest([text.as_bytes()]));
        Ok(Key { text, name })
    }
}

/// The folder of a script that is named relative to the working directory: two scripts of the same name are different programs. A script is the first
/// argument that is no option, where that looks like the name of a file; whether there is such a file does not matter, because another run may
/// write it.
fn script_folder(arguments: &[OsString]) -> Option<PathBuf> {
    let first = Path::new(arguments.iter().find(|argument| !argument.as_bytes().starts_with(b"-"))?);
    let ends_as_file =
        first.extension().and_then(|ending| ending.as_bytes().first()).is_some_and(u8::is_ascii_alphabetic);
    if first.is_absolute() || !(ends_as_file || first.components().count() > 1) {
        return None;
    }
    let folder = std::env::current_dir().ok()?.join(first.parent()?);
    Some(folder.canonicalize().unwrap_or(folder))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(words: &[&str]) -> Option<PathBuf> {
        script_folder(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_script_of_another_folder_is_another_program() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(folder(&["-u", "fft.py", "input.npy"]).as_ref(), Some(&here), "an option is no script");
        assert_eq!(folder(&["src/lib.rs"]), Some(here.join("src")));
        assert_eq!(folder(&["src/../src/fft"]), Some(here.join("src")), "one folder, by two names");
        for other in [&[][..], &["4096"], &["0.5"], &["-x"], &["all", "fft.py"], &["/srv/fft.py"]] {
            assert_eq!(folder(other), None, "{other:?}");
        }
    }
}
