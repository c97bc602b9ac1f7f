//! The paths of the sockets of a user's runs: one directory of the user's alone, a socket for each launcher, named by its number.
//!
//! ```text
//! $XDG_RUNTIME_DIR/hinterland/PID     where that is the user's own directory
//! /run/user/UID/hinterland/PID        else, where there is one: a launcher without the variable (cron) is found all the same
//! /tmp/hinterland-UID/PID             else
//! ```
//! Beside it lie `PID.files`, at which the launcher hands files of the run over (`launch::handover`), and `PID.share`, which says what memory
//! the run has (`share_file`).
//!
//! A directory that is not the user's own, or open to others, is not used. A socket is reached through a descriptor of its directory,
//! so its path may have any length. It is complete when it appears under its name; the one of a launcher that was killed is swept by the next command that lists runs.

use super::acceptor::Acceptor;
use super::file_lock::is_held;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Uid, geteuid};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const DIRECTORY_MODE: u32 = 0o700;
const ENTRY_MODE: u32 = 0o600;
/// Launchers that are looked at: more than one user has.
const RUNS_MAX: usize = 4096;
/// The end of the name of a socket at which files are handed over.
const FILES: &str = ".files";
/// The end of the name of a file that says what memory a run has.
pub const SHARE: &str = ".share";

/// A directory of sockets, open.
pub struct SocketDirectory {
    open: File,
    path: PathBuf,
}

/// What a launcher has put in the directory under a name; removed when it goes.
pub struct Entry {
    directory: SocketDirectory,
    name: String,
    inode: u64,
}

/// The socket of a launcher that listens; removed when it goes.
pub struct Bound {
    entry: Entry,
    /// Takes connections.
    pub acceptor: Acceptor,
}

/// The directories that a user's sockets may lie in, best first; each with whether the one above it must be the user's own.
fn candidates(user: Uid, runtime: Option<PathBuf>) -> Vec<(PathBuf, bool)> {
    let given = runtime.filter(|path| path.is_absolute()).map(|path| path.join("hinterland"));
    let usual = Path::new("/run/user").join(user.to_string()).join("hinterland");
    let shared = Path::new("/tmp").join(format!("hinterland-{user}"));
    let mut found: Vec<(PathBuf, bool)> = given.into_iter().chain([usual]).map(|path| (path, true)).collect();
    found.dedup();
    found.push((shared, false));
    found
}

fn of_this_user() -> Vec<(PathBuf, bool)> {
    candidates(geteuid(), std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

fn is_own_directory(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_dir() && data.uid() == geteuid().as_raw())
}

/// The user at the other end of a connection.
pub fn peer(stream: &UnixStream) -> Option<Uid> {
    getsockopt(stream, PeerCredentials).ok().map(|peer| Uid::from_raw(peer.uid()))
}

/// Whether a process of that number exists, of any user.
pub fn exists(pid: i32) -> bool {
    // SAFETY: signal 0 is not sent.
    let rc = unsafe { libc::kill(pid, 0) };
    rc == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

impl SocketDirectory {
    /// Opens a directory that is the user's alone.
    fn open(path: &Path) -> io::Result<SocketDirectory> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let data = directory.metadata()?;
        if data.uid() != geteuid().as_raw() {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        if data.mode() & 0o777 != DIRECTORY_MODE {
            directory.set_permissions(Permissions::from_mode(DIRECTORY_MODE))?;
        }
        Ok(SocketDirectory { open: directory, path: path.into() })
    }

    /// The best directory that there is or can be made.
    ///
    /// # Errors
    /// What the last one says; its name is in it.
    pub fn make() -> io::Result<SocketDirectory> {
        let mut refused = io::Error::from(ErrorKind::NotFound);
        for (path, in_own) in of_this_user() {
            if in_own && !path.parent().is_some_and(is_own_directory) {
                continue;
            }
            let made = match DirBuilder::new().mode(DIRECTORY_MODE).create(&path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                _ => SocketDirectory::open(&path),
            };
            match made {
                Ok(directory) => return Ok(directory),
                Err(error) => refused = io::Error::new(error.kind(), format!("{}: {error}", path.display())),
            }
        }
        Err(refused)
    }

    /// For tests: a directory of theirs.
    #[cfg(test)]
    pub fn of_test(path: &Path) -> SocketDirectory {
        SocketDirectory::open(path).expect("the test's own directory")
    }

    /// The directories that there are.
    fn all() -> Vec<SocketDirectory> {
        of_this_user().iter().filter_map(|(path, _)| SocketDirectory::open(path).ok()).collect()
    }

    /// The path of what lies here under a name.
    pub fn at(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.open.as_raw_fd().to_string()).join(name)
    }

    /// The names of what launchers have put here, each with its launcher's number.
    pub fn entries(&self) -> Vec<(String, i32)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.take(3 * RUNS_MAX).filter_map(|entry| entry.file_name().into_string().ok());
        let number = |name: &str| {
            [FILES, SHARE].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).parse::<i32>().ok()
        };
        let numbered = names.filter_map(|name| Some((number(&name)?, name)));
        numbered.filter(|(pid, _)| *pid > 0).map(|(pid, name)| (name, pid)).collect()
    }

    /// The numbers of launchers that take commands here.
    fn launchers(&self) -> Vec<i32> {
        self.entries().into_iter().filter(|(name, pid)| *name == pid.to_string()).map(|(_, pid)| pid).collect()
    }

    /// Removes what launchers have left that are gone: a socket at which none listens and whose process does not exist, a file that none holds.
    fn sweep(&self) {
        for (name, pid) in self.entries() {
            let path = self.at(&name);
            let is_left = if name.ends_with(SHARE) { !is_held(&path) } else { is_left(&path, pid) };
            if is_left {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Whether a socket is that of a launcher which has ended.
fn is_left(socket: &Path, pid: i32) -> bool {
    let refused = || UnixStream::connect(socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    // In another PID namespace it may exist all the same; then it listens.
    !exists(pid) && refused() && !exists(pid)
}

/// Listens for commands to the launcher of this number.
///
/// # Errors
/// No directory can be made, or the socket.
pub fn listen(pid: i32) -> io::Result<Bound> {
    let directory = SocketDirectory::make()?;
    directory.sweep();
    directory.listen(pid.to_string())
}

/// Listens for processes that the launcher of this number is to hand files to.
///
/// # Errors
/// As for `listen`.
pub fn listen_for_files(pid: i32) -> io::Result<Bound> {
    SocketDirectory::make()?.listen(format!("{pid}{FILES}"))
}

impl Bound {
    /// The socket's path, for those who have no descriptor of its directory.
    pub fn path(&self) -> PathBuf {
        self.entry.directory.path.join(&self.entry.name)
    }
}

impl Entry {
    /// Where it lies.
    pub fn directory(&self) -> &SocketDirectory {
        &self.directory
    }

    /// The number of its file.
    pub fn inode(&self) -> u64 {
        self.inode
    }
}

impl SocketDirectory {
    /// Listens here under a name.
    pub fn listen(self, name: String) -> io::Result<Bound> {
        let (entry, acceptor) = self.put(name, |fresh| Acceptor::new(UnixListener::bind(fresh)?))?;
        Ok(Bound { entry, acceptor })
    }

    /// Puts here what `make` makes at a path; it appears under its name when it is complete.
    ///
    /// # Errors
    /// What `make` says, or the file system.
    pub fn put<T>(self, name: String, make: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<(Entry, T)> {
        let fresh = self.at(&format!(".{name}"));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let finish = || {
            let made = make(&fresh)?;
            fs::set_permissions(&fresh, Permissions::from_mode(ENTRY_MODE))?;
            let inode = fs::symlink_metadata(&fresh)?.ino();
            // One that lies there is that of a launcher which was killed and whose number this is now.
            fs::rename(&fresh, self.at(&name)).map(|()| (inode, made))
        };
        match finish() {
            Ok((inode, made)) => Ok((Entry { directory: self, name, inode }, made)),
            Err(error) => {
                let _ = fs::remove_file(&fresh);
                Err(error)
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let path = self.directory.at(&self.name);
        if fs::symlink_metadata(&path).is_ok_and(|data| data.ino() == self.inode) {
            let _ = fs::remove_file(path);
        }
    }
}

/// The launchers of this user that may listen, in order.
pub fn launchers() -> Vec<i32> {
    let directories = SocketDirectory::all();
    directories.iter().for_each(SocketDirectory::sweep);
    let mut found: Vec<i32> = directories.iter().flat_map(SocketDirectory::launchers).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether there is a socket with a launcher's number; it may be that of one that has ended.
pub fn has_socket(pid: i32) -> bool {
    SocketDirectory::all().iter().any(|directory| fs::symlink_metadata(directory.at(&pid.to_string())).is_ok())
}

/// A connection to a launcher; `None`: none of that number has a socket.
///
/// # Errors
/// It has one, and does not take connections.
pub fn connect(pid: i32) -> io::Result<Option<UnixStream>> {
    for directory in SocketDirectory::all() {
        match UnixStream::connect(directory.at(&pid.to_string())) {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // The launcher has ended or was killed.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_runtime_directory_comes_first_and_a_relative_one_does_not_count() {
        let paths = |runtime: Option<&str>| {
            let found = candidates(Uid::from_raw(7), runtime.map(PathBuf::from));
            found.into_iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>()
        };
        let usual = ["/run/user/7/hinterland", "/tmp/hinterland-7"];
        assert_eq!(paths(Some("/x")), ["/x/hinterland", usual[0], usual[1]]);
        assert_eq!(paths(Some("/run/user/7")), usual);
        assert_eq!(paths(Some("x")), usual);
        assert_eq!(paths(None), usual);
    }

    #[test]
    fn a_directory_of_sockets_is_its_users_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hinterland");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let sockets = SocketDirectory::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, DIRECTORY_MODE, "others are kept out");
        assert_eq!(sockets.launchers(), Vec::<i32>::new());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(SocketDirectory::open(&link).is_err(), "a link leads where another user may have chosen");
    }

    #[test]
    fn sockets_of_the_dead_are_swept_and_those_of_the_living_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a-directory-with-a-name-of-some-length".repeat(4)).join("hinterland");
        fs::create_dir_all(&path).unwrap();
        let sockets = SocketDirectory::open(&path).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (dead, own) = (i32::try_from(child.id()).unwrap(), i32::try_from(std::process::id()).unwrap());
        // A socket keeps its file when its listener goes.
        for (pid, end) in [(dead, ""), (dead, FILES), (own, ""), (own, FILES)] {
            drop(UnixListener::bind(sockets.at(&format!("{pid}{end}"))).unwrap());
        }
        fs::write(sockets.at("notes"), "").unwrap();
        // What no launcher holds is swept, whichever process has its number.
        for pid in [dead, own] {
            fs::write(sockets.at(&format!("{pid}{SHARE}")), "").unwrap();
        }
        sockets.sweep();
        assert_eq!((sockets.launchers(), sockets.entries().len()), (vec![own], 2));
        assert!(sockets.at("notes").exists());
    }
}
