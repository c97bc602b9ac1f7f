//! Files that commands write: none replaces what the command reads, and none is there in part.
//!
//! ```text
//! .tmpXXXXXX, beside the place ──written, flushed──► renamed: what was there is gone only now
//! ```

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Whether both name one file, by whatever paths. Pipes and devices are not files.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|of| (of.dev(), of.ino()));
    id(one).is_some_and(|one| Some(one) == id(other))
}

/// What a run needs of the file at `path`, in words.
pub fn needed_as(path: &Path, program: &Path, arguments: &[OsString]) -> Option<&'static str> {
    if is_same(path, program) {
        return Some("the program");
    }
    arguments.iter().any(|argument| is_same(path, Path::new(argument))).then_some("an argument of the program")
}

/// Writes a file; after an error, what was there is there still. Pipes and devices are written to as they are.
///
/// # Errors
/// What `write` returns; the system's reasons, as `refuse` words them.
pub fn write<T, E>(
    path: &Path,
    refuse: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let there = fs::metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return fill(&File::create(path).map_err(&refuse)?, refuse, write);
    }
    // Behind a symbolic link; of a file that may not be written, not replaced either.
    let place = path.canonicalize().unwrap_or_else(|_| path.into());
    if there.is_some() {
        OpenOptions::new().write(true).open(&place).map_err(&refuse)?;
    }
    let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut whole = tempfile::Builder::new();
    let whole = whole.permissions(Permissions::from_mode(0o666)).tempfile_in(directory).map_err(&refuse)?;
    let made = fill(whole.as_file(), &refuse, write)?;
    if let Some(there) = there {
        whole.as_file().set_permissions(there.permissions()).map_err(&refuse)?;
    }
    whole.persist(&place).map_err(|error| refuse(error.error))?;
    Ok(made)
}

fn fill<T, E>(
    file: &File,
    refuse: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let mut out = BufWriter::new(file);
    let made = write(&mut out)?;
    out.flush().map_err(refuse)?;
    Ok(made)
}
