//! What was read from files, and is read again when they change, so that a certificate can be renewed while nodes and programs go on.
//!
//! ```text
//! look, every few seconds ──► stamps of the files: another than was read, and the same as at the look before? ──► read
//! again (SIGHUP, a new attempt to connect) ─────────────────────────────────────────────────────────────────────► read
//! read ──► fits together whole? ──► from now on in use      else: what was in use stays, and the caller learns why
//! ```
//! Files that are being written are left alone until two looks have seen the same: a certificate and its key are
//! renewed one after the other. A handshake that has begun goes on with the credentials that were in use.
//!
//! Source: stat(2). A file that another takes the place of (rename(2), a symbolic link that points elsewhere) has another inode.

use crate::CredentialError;
use crate::files::{Hiding, OPEN, Reader};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Time between two looks at files.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a look has come to.
#[derive(Debug)]
pub enum Look<E = CredentialError> {
    /// Nothing is new, or may be said.
    Same,
    /// What the files say now is in use.
    Taken,
    /// What was in use before still is, and why. By `look` this is said once.
    Refused(E),
}

/// See the module.
pub struct Reloaded<T, E = CredentialError> {
    paths: Vec<PathBuf>,
    hiding: Hiding,
    read: Box<Read<T, E>>,
    now: RwLock<(Digest, Arc<T>)>,
    watch: Mutex<Watch>,
}

type Read<T, E> = dyn Fn(&mut Reader) -> Result<T, E> + Send + Sync;
/// SHA-256 of what all files held.
type Digest = [u8; 32];

/// What tells the states of files apart, without reading them; `None`: there is none.
#[derive(Clone, PartialEq, Eq, Default)]
struct Stamps(Vec<Option<[i128; 5]>>);

impl Stamps {
    fn of(paths: &[PathBuf]) -> Stamps {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let stamp = |is: Metadata| {
            let written = nanoseconds(is.mtime(), is.mtime_nsec());
            // Also when the mode changes, which may be what was wrong.
            let changed = nanoseconds(is.ctime(), is.ctime_nsec());
            [is.dev().into(), is.ino().into(), is.size().into(), written, changed]
        };
        Stamps(paths.iter().map(|path| std::fs::metadata(path).ok().map(stamp)).collect())
    }
}

#[derive(Default)]
struct Watch {
    /// When the last look was.
    looked: Option<Instant>,
    /// What it saw.
    seen: Stamps,
    /// What was read, if two looks had seen it.
    read: Option<Stamps>,
    /// Why it could not be used.
    refused: Option<String>,
}

impl<T, E: ToString> Reloaded<T, E> {
    /// Reads for the first time.
    ///
    /// # Errors
    /// What `read` says.
    pub fn new(
        paths: Vec<PathBuf>,
        read: impl Fn(&mut Reader) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Reloaded<T, E>, E> {
        Reloaded::hidden(paths, OPEN, read)
    }

    /// As `new`; files that are open are hidden.
    pub(crate) fn hidden(
        paths: Vec<PathBuf>,
        hiding: Hiding,
        read: impl Fn(&mut Reader) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Reloaded<T, E>, E> {
        let mut reader = Reader::new(hiding);
        let first = Arc::new(read(&mut reader)?);
        Ok(Reloaded {
            paths,
            hiding,
            read: Box::new(read),
            now: RwLock::new((reader.digest(), first)),
            watch: Mutex::default(),
        })
    }

    /// The files.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What is in use.
    pub fn now(&self) -> Arc<T> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Looks whether the files have changed, unless the last look is less than `every` ago.
    pub fn look(&self, every: Duration) -> Look<E> {
        let mut watch = self.watch();
        if watch.looked.is_some_and(|looked| looked.elapsed() < every) {
            return Look::Same;
        }
        watch.looked = Some(Instant::now());
        let stamps = Stamps::of(&self.paths);
        let is_still = stamps == watch.seen;
        watch.seen.clone_from(&stamps);
        if !is_still || watch.read.as_ref() == Some(&stamps) {
            return Look::Same;
        }
        watch.read = Some(stamps);
        let said = watch.refused.clone();
        match self.take(&mut watch) {
            Look::Refused(error) if said == Some(error.to_string()) => Look::Same,
            other => other,
        }
    }

    /// Reads the files at once.
    pub fn again(&self) -> Look<E> {
        let mut watch = self.watch();
        // They may be in the middle of a change.
        watch.read = None;
        self.take(&mut watch)
    }

    fn take(&self, watch: &mut Watch) -> Look<E> {
        let mut reader = Reader::new(self.hiding);
        match (self.read)(&mut reader) {
            Ok(new) => {
                watch.refused = None;
                let digest = reader.digest();
                if self.now.read().unwrap_or_else(PoisonError::into_inner).0 == digest {
                    return Look::Same;
                }
                *self.now.write().unwrap_or_else(PoisonError::into_inner) = (digest, Arc::new(new));
                Look::Taken
            }
            Err(error) => {
                watch.refused = Some(error.to_string());
                Look::Refused(error)
            }
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, E> std::fmt::Debug for Reloaded<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloaded").field("paths", &self.paths).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// A pair that fits when both files say the same.
    fn pair(directory: &Path) -> (Reloaded<String>, [PathBuf; 2]) {
        let paths = ["a", "b"].map(|name| directory.join(name));
        paths.iter().for_each(|path| std::fs::write(path, "1").unwrap());
        let [a, b] = paths.clone();
        let read = move |reader: &mut Reader| {
            let (one, other) = (reader.read(&a, false)?, reader.read(&b, false)?);
            let fits = one == other;
            let text = String::from_utf8_lossy(&one).into_owned();
            if fits { Ok(text) } else { Err(CredentialError::content(&b, "it does not fit")) }
        };
        (Reloaded::new(paths.to_vec(), read).unwrap(), paths)
    }

    #[test]
    fn what_changes_is_taken_when_two_looks_have_seen_the_same_and_it_fits() {
        let directory = tempfile::tempdir().unwrap();
        let (files, [a, b]) = pair(directory.path());
        let look = || files.look(Duration::ZERO);
        (0..5).for_each(|_| assert!(matches!(look(), Look::Same)));
        let before = files.now();
        std::fs::write(&a, "2").unwrap();
        assert!(matches!(look(), Look::Same), "it may be half written");
        // It is, and whoever has asked for it is told each time; by looks it is told once.
        assert!(matches!(files.again(), Look::Refused(_)));
        assert!(matches!(look(), Look::Same) && *files.now() == "1");
        std::fs::write(&a, "22").unwrap();
        assert!(matches!(look(), Look::Same));
        assert!(matches!(look(), Look::Same), "said by `again`, in the same words");
        std::fs::write(&b, "22").unwrap();
        assert!(matches!(look(), Look::Same) && *files.now() == "1");
        assert!(matches!(look(), Look::Taken) && *files.now() == "22");
        assert_eq!(*before, "1", "who began before goes on");
        assert!(matches!(look(), Look::Same) && matches!(files.again(), Look::Same));
    }

    #[test]
    fn looks_say_once_what_is_wrong_and_a_file_in_the_place_of_another_is_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let (files, [a, b]) = pair(directory.path());
        let look = || files.look(Duration::ZERO);
        (0..3).for_each(|_| assert!(matches!(look(), Look::Same)));
        std::fs::remove_file(&b).unwrap();
        assert!(matches!(look(), Look::Same));
        let Look::Refused(error) = look() else { panic!("nothing is said of a file that is gone") };
        assert!(error.to_string().contains(&b.display().to_string()), "{error}");
        assert!(matches!(look(), Look::Same));
        for path in [&a, &b] {
            let other = directory.path().join("other");
            std::fs::write(&other, "3").unwrap();
            std::fs::rename(&other, path).unwrap();
        }
        assert!(matches!(look(), Look::Same) && matches!(look(), Look::Taken) && *files.now() == "3");
    }

    #[test]
    fn files_are_hidden_while_they_are_read_and_closed_also_when_they_cannot_be_used() {
        static OPEN_NOW: AtomicUsize = AtomicUsize::new(0);
        static HIDDEN: AtomicUsize = AtomicUsize::new(0);
        fn hide(file: File) -> std::io::Result<File> {
            OPEN_NOW.fetch_add(1, Relaxed);
            HIDDEN.fetch_add(1, Relaxed);
            Ok(file)
        }
        fn close(file: File) {
            OPEN_NOW.fetch_sub(1, Relaxed);
            drop(file);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "1").unwrap();
        let of = path.clone();
        let files = Reloaded::hidden(vec![path.clone()], Hiding { hide, close }, move |reader| {
            assert_eq!(OPEN_NOW.load(Relaxed), 0);
            reader.read(&of, false).map(|bytes| bytes.len())
        });
        let files = files.unwrap();
        std::fs::write(&path, "12").unwrap();
        assert!(matches!(files.again(), Look::Taken) && *files.now() == 2);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(files.again(), Look::Refused(_)));
        assert_eq!((HIDDEN.load(Relaxed), OPEN_NOW.load(Relaxed)), (3, 0));
    }

    #[test]
    fn looks_keep_their_distance() {
        let directory = tempfile::tempdir().unwrap();
        let (files, [a, b]) = pair(directory.path());
        files.look(LOOK_EVERY);
        [a, b].iter().for_each(|path| std::fs::write(path, "4").unwrap());
        (0..100).for_each(|_| assert!(matches!(files.look(Duration::from_secs(3600)), Look::Same)));
        assert_eq!(*files.now(), "1");
        assert!(matches!(files.again(), Look::Taken));
    }
}
