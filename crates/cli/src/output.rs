//! Files that commands write: none replaces what the command reads, and none is there in part.
//!
//! ```text
//! a file          .tmpXXXXXX, beside the place ──written, flushed──► renamed, with the mode of what was there, which is gone only now
//! anything else   a pipe, a device, a descriptor (/dev/stdout): opened at the beginning, written to as it is
//! ```
//!
//! Symbolic links are followed here and not by the kernel, because the file beside must lie where the links lead. In a
//! directory where every user may make links but not remove those of others (`/tmp`), another user's link is not
//! followed, whatever the kernel is set to (`protected_symlinks`, proc_sys_fs(5)).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Seek, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// Links on the way to one file (the kernel's MAXSYMLINKS).
const LINKS_MAX: usize = 40;
/// Everybody may write there, and remove only what is their own.
const STICKY: u32 = libc::S_ISVTX | libc::S_IWOTH;

/// Whether both name one file, by whatever paths. Pipes and devices are not files.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|of| (of.dev(), of.ino()));
    id(one).is_some_and(|one| Some(one) == id(other))
}

/// Whether what is written to both would be one file, which need not be there yet.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    let new = |path| match resolve(path) {
        Ok(Leads::To(place)) if !place.exists() => Some(place),
        _ => None,
    };
    is_same(one, other) || new(one).is_some_and(|place| Some(place) == new(other))
}

/// What a run needs of the file at `path`, in words; `read`: files that were read for it.
pub fn needed_as(
    path: &Path,
    program: &Path,
    arguments: &[OsString],
    read: &[(&'static str, PathBuf)],
) -> Option<&'static str> {
    if is_same(path, program) {
        return Some("the program");
    }
    if arguments.iter().any(|argument| is_same(path, Path::new(argument))) {
        return Some("an argument of the program");
    }
    read.iter().find(|(_, file)| is_same(path, file)).map(|(what, _)| *what)
}

/// Where a file is to be written, found out before there is anything to write.
pub enum Output {
    /// What is no file: written to as it is.
    Direct(File),
    /// A file that cannot be replaced, because nothing can be made beside it: written over.
    Over(File),
    /// A file, or the place for one.
    Beside(PathBuf),
}

impl Output {
    /// Looks where `path` leads, and that it can be written there. Changes nothing. The reader of a FIFO is waited for.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path) -> io::Result<Output> {
        let place = match resolve(path)? {
            Leads::Descriptor(fd) => return duplicate(fd).map(Output::Direct),
            Leads::To(place) => place,
        };
        let to_write = || OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&place);
        match fs::symlink_metadata(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => beside(&place).map(drop)?,
            Err(error) => return Err(error),
            Ok(there) if there.is_file() => {
                // One that may not be written is not replaced either.
                let file = to_write()?;
                match beside(&place) {
                    Ok(_) => {}
                    Err(error) if is_forbidden(&error) => return Ok(Output::Over(file)),
                    Err(error) => return Err(error),
                }
            }
            Ok(there) if there.file_type().is_socket() => return Err(io::Error::other("is a socket")),
            Ok(there) if there.is_dir() => {
                return Err(io::Error::new(ErrorKind::IsADirectory, "is a folder; name a file, which may be in it"));
            }
            Ok(_) => return to_write().map(Output::Direct),
        }
        Ok(Output::Beside(place))
    }

    /// Writes it; after an error, what was there is there still, if it is a file that could be replaced.
    ///
    /// # Errors
    /// What `write` returns; the system's reasons, as `refuse` words them.
    pub fn write<T, E>(
        self,
        refuse: impl Fn(io::Error) -> E,
        write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Output::Direct(file) => fill(&file, refuse, write),
            Output::Over(file) => {
                let mut whole = Vec::new();
                let made = write(&mut whole)?;
                overwrite(&file, &mut whole.as_slice()).map_err(refuse)?;
                Ok(made)
            }
            Output::Beside(place) => {
                let whole = beside(&place).map_err(&refuse)?;
                let made = fill(whole.as_file(), &refuse, write)?;
                replace(whole, &place).map_err(refuse)?;
                Ok(made)
            }
        }
    }
}

/// Writes a file that is opened only now.
///
/// # Errors
/// As `Output::open` and `Output::write`.
pub fn write<T, E>(
    path: &Path,
    refuse: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    Output::open(path).map_err(&refuse)?.write(refuse, write)
}

/// Empties a file that somebody else will write, or makes it; what is no file is only looked at: a FIFO has one beginning.
///
/// # Errors
/// It cannot be written.
pub fn empty(path: &Path) -> io::Result<()> {
    let place = match resolve(path)? {
        Leads::Descriptor(fd) => return duplicate(fd).map(drop),
        Leads::To(place) => place,
    };
    if fs::symlink_metadata(&place).is_ok_and(|there| !there.is_file()) {
        return Ok(nix::unistd::access(&place, nix::unistd::AccessFlags::W_OK)?);
    }
    let mut new = OpenOptions::new();
    new.write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(&place).map(drop)
}

/// A new file beside the place.
fn beside(place: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = place.parent().unwrap_or(Path::new("/"));
    // The system's own words, without the temporary file's name, which the user has not given.
    let plain = |error: io::Error| {
        let words = error.to_string();
        io::Error::new(error.kind(), words.split(" at path ").next().unwrap_or(&words).to_owned())
    };
    tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(directory).map_err(plain)
}

/// Puts a whole file in the place of what is there, as whose it stays, as far as that is allowed.
fn replace(whole: tempfile::NamedTempFile, place: &Path) -> io::Result<()> {
    if let Some(there) = fs::symlink_metadata(place).ok().filter(Metadata::is_file) {
        let new = whole.as_file().metadata()?;
        if (new.uid(), new.gid()) != (there.uid(), there.gid()) {
            let _ = std::os::unix::fs::fchown(whole.as_file(), Some(there.uid()), Some(there.gid()));
        }
        whole.as_file().set_permissions(there.permissions())?;
    }
    match whole.persist(place) {
        Ok(_) => Ok(()),
        // Something is mounted there, as containers do with one file: it can only be written over.
        Err(failed) if failed.error.raw_os_error() == Some(libc::EBUSY) => {
            let mut whole = failed.file.reopen()?;
            overwrite(&OpenOptions::new().write(true).open(place)?, &mut whole)
        }
        Err(failed) => Err(failed.error),
    }
}

fn overwrite(mut file: &File, whole: &mut dyn io::Read) -> io::Result<()> {
    file.rewind()?;
    let bytes = io::copy(whole, &mut file)?;
    file.set_len(bytes)
}

fn is_forbidden(error: &io::Error) -> bool {
    [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem].contains(&error.kind())
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

/// Where a path leads.
#[derive(PartialEq, Eq, Debug)]
enum Leads {
    /// To an open descriptor of this process: `/dev/stdout`, `/dev/fd/3`.
    Descriptor(RawFd),
    /// To this place, without a link on the way; its last part may not be there.
    To(PathBuf),
}

/// Follows links.
fn resolve(path: &Path) -> io::Result<Leads> {
    let own = fs::read_link("/proc/self").unwrap_or_default();
    let descriptors = Path::new("/proc").join(own).join("fd");
    let absolute = std::path::absolute(path)?;
    let mut left: Vec<OsString> = parts(&absolute);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        if at == descriptors
            && left.is_empty()
            && let Some(fd) = part.to_str().and_then(|number| number.parse().ok())
        {
            return Ok(Leads::Descriptor(fd));
        }
        let next = at.join(&part);
        match fs::symlink_metadata(&next) {
            Ok(link) if link.is_symlink() => {
                refuse_planted(&at, &link)?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    at = "/".into();
                }
                left.extend(parts(&target));
            }
            Ok(_) => at = next,
            Err(error) if error.kind() == ErrorKind::NotFound && left.is_empty() => at = next,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(io::Error::new(error.kind(), "its folder does not exist; make it first (mkdir -p)"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Leads::To(at))
}

/// The parts of a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

/// Refuses a link that somebody else has put where everybody can: only its owner's and the directory's owner's are followed.
fn refuse_planted(directory: &Path, link: &Metadata) -> io::Result<()> {
    let directory_of = fs::metadata(directory)?;
    let trusted = [nix::unistd::geteuid().as_raw(), directory_of.uid()];
    if directory_of.mode() & STICKY != STICKY || trusted.contains(&link.uid()) {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "is a link of another user in {}, where every user can make links; name the file itself",
            directory.display()
        ),
    ))
}

/// A descriptor of its own for what a descriptor of this process stands for: at the same position, which a path would not be.
fn duplicate(fd: RawFd) -> io::Result<File> {
    // SAFETY: asks for the descriptor's mode; no memory is touched.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: makes a descriptor; no memory is touched.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and this function alone has it.
    Ok(unsafe { OwnedFd::from_raw_fd(own) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{lchown, symlink};

    #[test]
    fn links_are_followed_to_the_place_and_loops_end() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().canonicalize().unwrap();
        fs::create_dir(here.join("real")).unwrap();
        symlink("real", here.join("dir")).unwrap();
        symlink("../dir/new", here.join("real/link")).unwrap();
        symlink("loop", here.join("loop")).unwrap();
        let leads = |path: &str| resolve(&here.join(path));
        assert_eq!(leads("dir/link").unwrap(), Leads::To(here.join("real/new")));
        assert_eq!(leads("dir/../x").unwrap(), Leads::To(here.join("x")));
        assert_eq!(leads("loop").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(leads("none/x").unwrap_err().kind(), ErrorKind::NotFound);
        for (path, fd) in [("/dev/stdout", 1), ("/dev/fd/2", 2), ("/proc/self/fd/17", 17)] {
            assert_eq!(resolve(Path::new(path)).unwrap(), Leads::Descriptor(fd), "{path}");
        }
    }

    /// In a directory where nothing can be made, as a user who may write the file alone.
    #[test]
    fn a_file_that_cannot_be_replaced_is_written_over() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: only root can become another user");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stats.json");
        fs::write(&file, "a longer text than before").unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let nobody = nix::unistd::Uid::from_raw(65534);
        std::os::unix::fs::chown(&file, Some(nobody.as_raw()), None).unwrap();
        let as_nobody = || {
            // Of this thread alone; with it go root's rights to files.
            nix::unistd::setfsuid(nobody);
            assert!(fs::write(directory.path().join("new"), "").is_err(), "a place where nothing can be made");
            write(&file, |error| error, |out: &mut dyn Write| out.write_all(b"new"))
        };
        std::thread::scope(|scope| scope.spawn(as_nobody).join()).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn a_link_that_another_user_planted_is_not_followed() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: only root can make a link of another user");
        }
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        fs::write(here.join("precious"), "kept").unwrap();
        symlink("precious", here.join("link")).unwrap();
        lchown(here.join("link"), Some(65534), Some(65534)).unwrap();
        let try_it = || {
            let (file, sink) = (here.join("link"), |out: &mut dyn Write| out.write_all(b"new"));
            write(&file, |error| error, sink)
        };
        fs::set_permissions(here, Permissions::from_mode(0o1777)).unwrap();
        let refused = try_it().unwrap_err();
        assert!(refused.to_string().contains("is a link of another user"), "{refused}");
        assert_eq!(fs::read_to_string(here.join("precious")).unwrap(), "kept");
        fs::set_permissions(here, Permissions::from_mode(0o755)).unwrap();
        try_it().unwrap();
        assert_eq!(fs::read_to_string(here.join("precious")).unwrap(), "new");
        assert!(here.join("link").is_symlink());
    }
}
