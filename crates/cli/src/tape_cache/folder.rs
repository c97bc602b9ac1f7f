//! The folder of the tape cache: `$XDG_CACHE_HOME/hinterland/tapes`, which no other user can read.
//!
//! ```text
//!   KEY.json          what the trace is of; what has none is not there
//!   KEY.trace         the trace
//!   KEY-PAGES.tape    what was planned from it for that much local memory
//!   .new-*/           a run that is being recorded; its launcher holds the lock in there
//! ```
//!
//! Each file is written beside its place and renamed, so that of runs at the same time the last one counts, and none is there in part. All
//! together take 1 GiB: those that were not used for the longest time go, of the run that is beginning its tapes, too. A run that is
//! recorded has what others have left of half of that when it begins, and what is kept has what recorded runs leave, half of it at least.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::{NamedTempFile, TempDir, TempPath};

/// Bytes of all files at most.
pub const BYTES_MAX: u64 = 1 << 30;
/// How the names of files begin that are being written.
const NEW: &str = ".new-";
/// In a folder for a run that is being recorded, the file that its launcher has locked.
const LOCK: &str = "lock";
/// Of the bytes of all files, this part is too little to record a run in.
const USEFUL_PART: u64 = 32;
/// A file under a temporary name that was not written for so long was left behind.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The user's, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or is somebody else's.
    pub fn open(env: &impl Fn(&str) -> Option<String>) -> Result<Folder, String> {
        let cache = env("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = cache.or_else(|| env("HOME").map(|home| Path::new(&home).join(".cache")));
        let path = cache.ok_or("neither XDG_CACHE_HOME nor HOME names a place for tapes")?.join("hinterland/tapes");
        let refuse = |error: io::Error| format!("{}: {error}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(refuse)?;
        let found = fs::metadata(&path).map_err(refuse)?;
        if found.uid() != nix::unistd::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(format!("{}: others may write there", path.display()));
        }
        Ok(Folder(path))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file that is to be renamed when it is whole; mode 0600.
    fn begin(&self) -> io::Result<TempPath> {
        tempfile::Builder::new().prefix(NEW).tempfile_in(&self.0).map(NamedTempFile::into_temp_path)
    }

    /// A folder for files that are to be renamed when they are whole; mode 0700.
    pub fn begin_folder(&self) -> io::Result<NewFolder> {
        let private = Permissions::from_mode(0o700);
        loop {
            let place = tempfile::Builder::new().prefix(NEW).permissions(private.clone()).tempdir_in(&self.0)?;
            let path = place.path().join(LOCK);
            // Until it is locked, it is like one whose launcher was killed, and another launcher may remove it.
            match File::create(&path).and_then(|lock| lock.lock().map(|()| lock)) {
                Ok(lock) if path.exists() => return Ok(NewFolder { place, _lock: lock }),
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }

    /// Renames a whole file into its place, readable for the user alone.
    pub fn take(&self, from: &Path, name: &str) -> io::Result<()> {
        fs::set_permissions(from, Permissions::from_mode(0o600))?;
        fs::rename(from, self.path(name))
    }

    /// Writes a whole file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let place = self.begin()?;
        File::options().write(true).open(&place)?.write_all(bytes)?;
        place.persist(self.path(name)).map_err(|error| error.error)
    }

    /// The files of a key were used now, of its tapes this one.
    pub fn used(&self, key: &str, tape: &Path) {
        let is_used = |path: &Path| key_of(path) == key && (path == tape || !is_tape(path));
        for (path, ..) in self.files().into_iter().filter(|(path, ..)| is_used(path)) {
            // It counts as older than it is, if it cannot be.
            let _ = File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    /// Removes a trace that is to be replaced, and what was planned from it.
    pub fn remove(&self, key: &str) {
        self.remove_those(|path| key_of(path) == key);
    }

    fn remove_those(&self, which: impl Fn(&Path) -> bool) {
        for (path, ..) in self.files().into_iter().filter(|(path, ..)| which(path)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Writes a tape, for which others go where there is no room: in the end those of the same trace.
    ///
    /// # Errors
    /// The system's, or the trace and the tape are too large together; nothing goes then.
    pub fn keep_tape(&self, key: &str, path: &Path, bytes: &[u8], bytes_max: u64) -> io::Result<()> {
        let room = self.room_of_kept(bytes_max).saturating_sub(bytes.len() as u64);
        let is_needed = |path: &Path| key_of(path) == key && !is_tape(path);
        if self.bytes_of(is_needed) > room {
            return Err(io::Error::other("there is no room for it"));
        }
        self.bound(key, room);
        if self.bytes_of(|_| true) > room {
            self.remove_those(|path| key_of(path) == key && is_tape(path));
        }
        self.write(&path.file_name().unwrap_or_default().to_string_lossy(), bytes)
    }

    /// Makes room for the trace of a key that was recorded just now.
    pub fn make_room_for_trace(&self, key: &str, bytes_max: u64) {
        self.bound(key, self.room_of_kept(bytes_max));
    }

    /// Makes room for a run that is to be recorded; bytes that it may take. `None`: the runs that are being recorded leave too little.
    pub fn room_to_record(&self, bytes_max: u64) -> Option<u64> {
        self.remove_left_behind();
        let room = (bytes_max / 2).saturating_sub(self.recorded_bytes());
        let room = (room > bytes_max / USEFUL_PART).then_some(room)?;
        self.bound("", bytes_max / 2);
        Some(room)
    }

    /// What kept files may take.
    fn room_of_kept(&self, bytes_max: u64) -> u64 {
        bytes_max - self.recorded_bytes().min(bytes_max / 2)
    }

    /// Bytes of these kept files.
    fn bytes_of(&self, which: impl Fn(&Path) -> bool) -> u64 {
        self.files().iter().filter(|(path, ..)| which(path)).map(|(_, _, bytes)| bytes).sum()
    }

    /// Bytes of runs that are being recorded.
    fn recorded_bytes(&self) -> u64 {
        self.new_folders().into_iter().map(|path| Folder(path).bytes_of(|_| true)).sum()
    }

    /// Removes what launchers that were killed have recorded.
    fn remove_left_behind(&self) {
        for folder in self.new_folders() {
            // Locked until it is gone: a launcher that has just made it waits, and begins another one.
            if let Some(_lock) = left_behind(&folder) {
                let _ = fs::remove_dir_all(folder);
            }
        }
    }

    /// Makes room: of the keys other than `but`, those that were used least lately go, until kept files take no more than `bytes_max`; then tapes of
    /// `but`, all except the one that was used last.
    fn bound(&self, but: &str, bytes_max: u64) {
        self.remove_left_behind();
        let is_abandoned = |written: &SystemTime| written.elapsed().is_ok_and(|idle| idle > ABANDONED);
        let mut keys: BTreeMap<String, (SystemTime, u64, Vec<PathBuf>)> = BTreeMap::new();
        let mut own_tapes = Vec::new();
        for (path, used, bytes) in self.files() {
            if is_new(&path) && is_abandoned(&used) {
                let _ = fs::remove_file(&path);
                continue;
            }
            if key_of(&path) == but && is_tape(&path) {
                own_tapes.push((used, bytes, path.clone()));
            }
            let of = keys.entry(key_of(&path)).or_insert((used, 0, Vec::new()));
            *of = (of.0.max(used), of.1 + bytes, std::mem::take(&mut of.2));
            of.2.push(path);
        }
        let mut all = keys.values().map(|(_, bytes, _)| bytes).sum::<u64>();
        let mut by_use: Vec<_> = keys.into_iter().filter(|(key, _)| key != but && !key.starts_with(NEW)).collect();
        by_use.sort_unstable_by_key(|(_, (used, ..))| *used);
        for (_, (_, bytes, paths)) in by_use {
            if all <= bytes_max {
                break;
            }
            // Without its description nothing of it is used.
            paths.iter().rev().for_each(|path| drop(fs::remove_file(path)));
            all -= bytes;
        }
        own_tapes.sort_unstable();
        own_tapes.pop();
        for (_, bytes, path) in own_tapes {
            if all <= bytes_max {
                break;
            }
            let _ = fs::remove_file(path);
            all -= bytes;
        }
    }

    /// Folders of runs that are being recorded, or whose launchers were killed.
    fn new_folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| is_new(path) && path.is_dir()).collect()
    }

    /// All files: when they were used, and their bytes.
    fn files(&self) -> Vec<(PathBuf, SystemTime, u64)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let of = |entry: fs::DirEntry| {
            let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((entry.path(), found.modified().ok()?, found.len()))
        };
        entries.filter_map(of).collect()
    }
}

/// A folder for files of a run that is being recorded. Where it is dropped, nothing is left of it.
pub struct NewFolder {
    place: TempDir,
    /// Locked until then.
    _lock: File,
}

impl NewFolder {
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

/// The lock of a new folder whose launcher was killed: it is free, or was not made.
fn left_behind(folder: &Path) -> Option<File> {
    let lock = File::options().create(true).append(true).open(folder.join(LOCK)).ok()?;
    lock.try_lock().is_ok().then_some(lock)
}

fn is_new(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NEW))
}

fn is_tape(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "tape")
}

/// The key that a file is of; of one that is being written, its name.
fn key_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_new(path) { name.into_owned() } else { name.split(['-', '.']).next().unwrap_or_default().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_least_lately_goes_with_all_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().display().to_string();
        let folder = Folder::open(&|name| (name == "HOME").then(|| home.clone())).unwrap();
        let names = || {
            let mut names: Vec<String> =
                folder.files().iter().map(|(path, ..)| path.file_name().unwrap().to_string_lossy().into()).collect();
            names.sort();
            names
        };
        for (age, key) in [(30, "a"), (20, "b"), (10, "c")] {
            for file in [".json", ".trace", "-4096.tape"] {
                folder.write(&format!("{key}{file}"), &[0; 100]).unwrap();
                let file = File::options().append(true).open(folder.path(&format!("{key}{file}"))).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(age * 3600)).unwrap();
            }
        }
        let being_written = folder.begin().unwrap();
        let abandoned = folder.begin().unwrap().keep().unwrap();
        File::options().append(true).open(&abandoned).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        folder.bound("c", 1_000);
        assert_eq!(names().len(), 10, "the abandoned file is gone: {:?}", names());
        assert!(being_written.exists());
        folder.used("a", &folder.path("a-4096.tape"));
        folder.bound("c", 650);
        let left: Vec<String> = names().into_iter().filter(|name| !name.starts_with(NEW)).collect();
        assert_eq!(left, ["a-4096.tape", "a.json", "a.trace", "c-4096.tape", "c.json", "c.trace"]);
        folder.bound("a", 0);
        assert_eq!(names().len(), 4);
        folder.remove_those(|path| key_of(path) == "a" && is_tape(path));
        assert_eq!(names().len(), 3);
        // Of the key that is in use tapes go, but for the one that was used last.
        for (age, pages) in [(30, 1), (20, 2), (10, 3), (15, 4)] {
            let path = folder.path(&format!("a-{pages}.tape"));
            folder.write(&format!("a-{pages}.tape"), &[0; 100]).unwrap();
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 3600)).unwrap();
        }
        folder.used("a", &folder.path("a-2.tape"));
        let tapes = || names().into_iter().filter(|name| name.ends_with(".tape")).collect::<Vec<_>>();
        folder.bound("a", 400);
        assert_eq!(tapes(), ["a-2.tape", "a-3.tape"]);
        folder.bound("a", 0);
        assert_eq!(tapes(), ["a-2.tape"]);
        assert!(names().contains(&"a.trace".into()) && names().contains(&"a.json".into()));
        // A tape is kept where there is room beside its trace; all others go for it.
        let keep = |bytes_max| folder.keep_tape("a", &folder.path("a-5.tape"), &[0; 100], bytes_max);
        keep(400).unwrap();
        assert_eq!(tapes(), ["a-2.tape", "a-5.tape"]);
        keep(300).unwrap();
        assert_eq!(tapes(), ["a-5.tape"]);
        assert!(keep(299).is_err());
        assert_eq!(tapes(), ["a-5.tape"], "nothing goes where that makes no room");
        let modes = folder.files().iter().map(|(path, ..)| fs::metadata(path).unwrap().mode() & 0o777).max();
        assert_eq!((modes, fs::metadata(folder.path("")).unwrap().mode() & 0o777), (Some(0o600), 0o700));
    }

    #[test]
    fn runs_that_are_being_recorded_have_half_of_the_room_and_what_is_kept_has_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().display().to_string();
        let folder = Folder::open(&|name| (name == "HOME").then(|| home.clone())).unwrap();
        for (age, key) in [(30, "a"), (20, "b"), (10, "c")] {
            let file = format!("{key}.trace");
            folder.write(&file, &[0; 100]).unwrap();
            let file = File::options().append(true).open(folder.path(&file)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 3600)).unwrap();
        }
        let traces = || ["a", "b", "c"].into_iter().filter(|key| folder.path(&format!("{key}.trace")).exists());
        let are_left = |expected: &str| assert_eq!(traces().collect::<String>(), expected);
        assert_eq!(folder.room_to_record(1_000), Some(500));
        are_left("abc");
        assert_eq!(folder.room_to_record(500), Some(250), "what was not used for the longest time goes");
        are_left("bc");
        let record = |bytes: usize| {
            let place = folder.begin_folder().unwrap();
            fs::write(place.path().join("17.trace"), vec![0; bytes]).unwrap();
            place
        };
        let half = record(200);
        assert_eq!(fs::metadata(half.path()).unwrap().mode() & 0o777, 0o700);
        assert_eq!((folder.room_to_record(500), folder.room_to_record(400)), (Some(50), None));
        let keep = |bytes_max| folder.keep_tape("c", &folder.path("c-5.tape"), &[0; 100], bytes_max);
        keep(500).unwrap();
        are_left("bc");
        // However much others record, half is for what is kept.
        let more = record(1_000);
        assert_eq!(folder.room_to_record(600), None);
        keep(800).unwrap();
        are_left("bc");
        folder.make_room_for_trace("c", 500);
        are_left("c");
        assert!(folder.path("c-5.tape").exists() && half.path().exists() && more.path().exists());
        drop(half);
        // One that a killed launcher has left behind goes at once.
        let NewFolder { place, _lock: lock } = more;
        let left = place.keep();
        folder.room_to_record(500);
        assert!(left.exists(), "it is locked");
        drop(lock);
        assert_eq!(folder.room_to_record(500), Some(250));
        assert!(!left.exists() && folder.new_folders().is_empty());
    }
}
