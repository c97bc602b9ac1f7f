//! Opens the file behind the `file` backend: without a name from the start, so that nothing is left behind, whatever
//! becomes of the process.

use hinterland_units::ByteCount;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A file and how it was opened.
pub(super) struct FarFile {
    file: ManuallyDrop<File>,
    /// Device and inode, by which the file is known again.
    identity: (u64, u64),
    /// Whether the page cache is bypassed.
    pub(super) direct: bool,
}

impl FarFile {
    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether the descriptor still stands for our file. A program that closes descriptors it did not open could make it
    /// stand for one of its own, which we must never write to.
    pub(super) fn is_ours(&self) -> bool {
        identity(&self.file).is_ok_and(|identity| identity == self.identity)
    }
}

impl Drop for FarFile {
    fn drop(&mut self) {
        let fd = self.file.as_raw_fd();
        hinterland_sys::descriptor::show(fd);
        if self.is_ours() {
            // By the raw call: libc's may be ours.
            // SAFETY: our own descriptor, which nothing uses any more.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
}

/// By the raw call: it is made under filters of the program's, too.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    // SAFETY: stat is plain data, for which all zeros is a valid value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is the kernel's structure on x86-64, and outlives the call.
    if unsafe { libc::syscall(libc::SYS_fstat, file.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((stat.st_dev, stat.st_ino))
}

/// The directory that the file for `path` is made in: `path` itself, or its parent if `path` does not exist.
///
/// # Errors
/// `path` exists and is no directory, or its parent does not exist.
pub(crate) fn directory_of(path: &Path) -> io::Result<PathBuf> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(path.to_owned()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it exists and is no directory; existing files are never overwritten: name a directory or a new file",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let found = std::fs::metadata(parent).map_err(|error| {
                io::Error::new(error.kind(), format!("its directory {} cannot be used: {error}", parent.display()))
            })?;
            if found.is_dir() { Ok(parent.to_owned()) } else { Err(io::Error::from_raw_os_error(libc::ENOTDIR)) }
        }
        Err(error) => Err(error),
    }
}

/// Makes a nameless file of `bytes` (sparse) in `directory`; direct unless the file system refuses or `want_direct` is
/// false.
pub(super) fn create(directory: &Path, bytes: u64, want_direct: bool) -> io::Result<FarFile> {
    let length = i64::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // Asked for here, because the kernel would not only refuse, but send a signal that ends the program.
    if bytes > length_limit_bytes() {
        let limit = ByteCount(length_limit_bytes());
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("files may have {limit} (ulimit -f), and it would have {}", ByteCount(bytes)),
        ));
    }
    let direct = if want_direct { open_nameless(directory, libc::O_DIRECT) } else { Err(io::ErrorKind::Other.into()) };
    let (file, direct) = match direct {
        Ok(file) => (file, true),
        Err(error) if want_direct && error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
        Err(_) => (open_nameless(directory, 0)?, false),
    };
    let file = out_of_the_way(file);
    // The full length at once: a write that lengthens the file would hold up all others.
    // SAFETY: a plain system call on our own descriptor.
    if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(FarFile { identity: identity(&file)?, file: ManuallyDrop::new(file), direct })
}

/// Moves a descriptor to a high number, so that the program finds the numbers that it is used to. Keeps it where it is if
/// that cannot be done.
fn out_of_the_way(file: File) -> File {
    /// Below the usual limit of 1024 open files.
    const LOWEST: libc::c_int = 900;
    // SAFETY: a plain system call on our own descriptor.
    let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST) };
    if fd < 0 {
        return file;
    }
    // Out of reach, too, where the library that lives in the program knows how: programs close what they do not know.
    let hidden = hinterland_sys::descriptor::hide(fd).unwrap_or(fd);
    // SAFETY: a fresh descriptor, owned here alone.
    unsafe { File::from_raw_fd(hidden) }
}

/// Opens a file without a name; where the file system cannot, one with a name that is removed at once.
fn open_nameless(directory: &Path, flags: libc::c_int) -> io::Result<File> {
    match open(directory, flags | libc::O_TMPFILE) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
        answer => return answer,
    }
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!(".hinterland-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let path = directory.join(name);
    let file = open(&path, flags | libc::O_CREAT | libc::O_EXCL);
    // Also when opening failed: a file system that refuses O_DIRECT does so after it has made the file.
    let removed = std::fs::remove_file(&path);
    let file = file?;
    removed?;
    Ok(file)
}

fn open(path: &Path, flags: libc::c_int) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_RDWR | libc::O_CLOEXEC, 0o600) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor, owned here alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Free and total bytes of the file system behind `directory`, as far as this user may use them.
pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: statvfs is plain data, for which all zeros is a valid value.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// The longest that a file of this process may become (`ulimit -f`).
pub(crate) fn length_limit_bytes() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel fills the limit in, or leaves it.
    unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, 0usize, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_no_name_behind() {
        let directory = std::env::temp_dir().join(format!("hinterland-far-file-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a fresh directory");
        let file = create(&directory, 1 << 30, true).expect("a sparse file");
        assert_eq!(std::fs::read_dir(&directory).expect("readable").count(), 0);
        assert_eq!(file.file.metadata().expect("its size").len(), 1 << 30);
        std::fs::remove_dir(&directory).expect("empty");
    }

    #[test]
    fn a_descriptor_that_became_another_file_is_noticed() {
        let far = create(&std::env::temp_dir(), 1 << 20, true).expect("a sparse file");
        assert!(far.is_ours());
        let other = create(&std::env::temp_dir(), 1 << 20, true).expect("a sparse file");
        // SAFETY: replaces a descriptor that this test owns.
        assert_eq!(unsafe { libc::dup2(other.fd(), far.fd()) }, far.fd());
        assert!(!far.is_ours());
    }

    #[test]
    fn existing_files_are_refused() {
        let path = std::env::current_exe().expect("this test");
        assert_eq!(directory_of(&path).map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
        let missing = Path::new("/no/such/place/at/all");
        assert_eq!(directory_of(missing).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        assert_eq!(directory_of(Path::new("/far.new")).expect("its parent exists"), Path::new("/"));
    }
}
