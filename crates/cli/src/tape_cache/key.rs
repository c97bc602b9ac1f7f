//! What a kept trace is of: the run that would touch the same pages in the same order.

use crate::encode::hexadecimal;
use crate::file_magic;
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
const THREAD_VARIABLES: [&str; 17] = [
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "OMP_SCHEDULE",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TBB_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "JULIA_NUM_THREADS",
];

/// Programs that run a script which an argument names, without the version in their names.
const INTERPRETERS: &[&str] = &[
    "R", "Rscript", "bash", "bun", "dash", "deno", "dotnet", "escript", "ghc", "guile", "java", "julia", "lua",
    "luajit", "mono", "node", "ocaml", "octave", "perl", "php", "pypy", "python", "racket", "ruby", "runghc", "sbcl",
    "sh", "swipl", "tclsh", "zsh",
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
    /// The key of a run: format, program, arguments, the folder of a script, numbers of threads and the processors that they follow by default, heap.
    /// What the arguments name may change.
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
            "hinterland {}, trace {VERSION}, tape {}, layout {LAYOUT}\nprogram {}, {}\narguments {digest:016x}\nheap {}\nprocessors {}\n",
            env!("CARGO_PKG_VERSION"),
            tape::VERSION,
            file.display(),
            identity(&file)?,
            settings.heap,
            std::thread::available_parallelism().map_or(0, usize::from)
        );
        let here = std::env::current_dir().ok();
        if let Some(folder) = here.and_then(|here| script_folder(&file, arguments, &here)) {
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

/// The folder of a script that an interpreter is given, relative to the working directory `here`: two scripts of the same name are different
/// programs. A script is the first argument that names a file with an extension or with `#!` at its beginning.
fn script_folder(program: &Path, arguments: &[OsString], here: &Path) -> Option<PathBuf> {
    if !is_interpreter(program) {
        return None;
    }
    let is_script = |path: &&Path| {
        let file = here.join(path);
        file.is_file() && (path.extension().is_some() || begins_as_script(&file))
    };
    let script = arguments.iter().map(Path::new).find(is_script).filter(|script| script.is_relative())?;
    let folder = here.join(script.parent()?);
    Some(folder.canonicalize().unwrap_or(folder))
}

/// Whether a program is one of [`INTERPRETERS`], of any version: `python3.12`, `guile-3.0`.
fn is_interpreter(program: &Path) -> bool {
    let name = program.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let version = |letter: char| letter.is_ascii_digit() || ".-".contains(letter);
    name.split(version).next().is_some_and(|name| INTERPRETERS.contains(&name))
}

fn begins_as_script(file: &Path) -> bool {
    file_magic::of(file) == Some(*b"#!")
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

    #[test]
    fn with_another_number_of_threads_a_run_is_another() {
        let key = |variable: Option<&str>| {
            let env = |name: &str| (variable == Some(name)).then(|| "2".to_owned());
            Key::of(Path::new("/proc/self/exe"), &[], &Settings::default(), &env).unwrap()
        };
        let without = key(None);
        assert!(THREAD_VARIABLES.into_iter().all(|name| key(Some(name)).name != without.name));
        assert_eq!(key(Some("LANG")), without);
        let processors = std::thread::available_parallelism().unwrap();
        assert!(without.text.contains(&format!("processors {processors}\n")), "{}", without.text);
    }

    #[test]
    fn a_script_of_another_folder_is_another_program() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().canonicalize().unwrap();
        fs::create_dir(here.join("src")).unwrap();
        let files = [("fft.py", ""), ("input.npy", ""), ("src/fft.py", ""), ("src/fft", "#!/bin/sh\n"), ("data", "1")];
        files.iter().for_each(|(name, content)| fs::write(here.join(name), content).unwrap());
        let folder = |program: &str, words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            script_folder(Path::new(program), &words, &here)
        };
        let python = "/usr/bin/python3.12";
        for words in [&["fft.py", "src/fft.py"][..], &["-u", "-W", "ignore", "fft.py"], &["data", "src/../fft.py"]] {
            assert_eq!(folder(python, words).as_ref(), Some(&here), "{words:?}");
        }
        for program in ["/bin/bash", "/opt/guile-3.0", "/opt/node-x64"] {
            assert_eq!(folder(program, &["src/fft"]), Some(here.join("src")), "{program}");
        }
        let absolute = here.join("fft.py").display().to_string();
        for words in [&[][..], &["4096"], &["data"], &["src"], &["gone.py"], &[absolute.as_str(), "input.npy"]] {
            assert_eq!(folder(python, words), None, "{words:?}");
        }
        for program in ["./fft", "/usr/bin/node_exporter", "/opt/pythonic"] {
            assert_eq!(folder(program, &["input.npy"]), None, "{program} is no interpreter");
        }
    }
}
