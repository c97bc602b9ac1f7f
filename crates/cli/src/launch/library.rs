//! Finds the preloaded library and words LD_PRELOAD.

use crate::error::Error;
use crate::program::own_path;
use hinterland_abi::loader;
use hinterland_abi::variables::LIBRARY;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The library's file name.
const NAME: &str = "libhinterland.so";
/// Where it and the compiler's plugin may be, seen from the directory of the executable.
const PLACES: [&str; 3] = ["", "../lib", "../lib/hinterland"];

/// The library: `HINTERLAND_LIBRARY`, or beside the executable.
///
/// # Errors
/// It is nowhere, or its path cannot stand in LD_PRELOAD.
pub fn find() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os(LIBRARY).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(Error::Library { what: format!("{LIBRARY}: {} is not a file", path.display()) }),
        };
    }
    let executable = own_path()?;
    beside(NAME)?
        .ok_or_else(|| Error::Library { what: format!("{NAME} is not installed with {}", executable.display()) })
}

/// A file that is installed with the executable; `None`: it is not.
///
/// # Errors
/// The executable's own path cannot be found.
pub fn beside(name: &str) -> Result<Option<PathBuf>, Error> {
    let executable = own_path()?;
    let home = executable.parent().unwrap_or(Path::new("/"));
    let mut places = PLACES.iter().map(|place| home.join(place).join(name));
    Ok(places.find_map(|path| path.canonicalize().ok().filter(|path| path.is_file())))
}

/// The value of LD_PRELOAD: the library before whatever stands there.
///
/// # Errors
/// The loader splits LD_PRELOAD at spaces and colons, so a path with either cannot be preloaded.
pub fn preload(library: &Path, existing: Option<&OsStr>) -> Result<OsString, Error> {
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n')) {
        let what = format!("{}: the loader cannot preload from a path with a space or a colon", library.display());
        return Err(Error::Library { what });
    }
    let mut value = library.as_os_str().to_owned();
    let others = existing.unwrap_or_default().as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    for other in others.filter(|other| !other.is_empty() && *other != library.as_os_str().as_bytes()) {
        value.push(":");
        value.push(OsStr::from_bytes(other));
    }
    Ok(value)
}

/// The value of GLIBC_TUNABLES for a program that is started with auditors ([`loader`]). A size that stands there already is kept. `None`: no
/// auditor, so nothing is changed.
pub fn tunables(existing: Option<&OsStr>, auditors: Option<&OsStr>) -> Option<OsString> {
    auditors.filter(|auditors| !auditors.is_empty())?;
    let mut value = existing.unwrap_or_default().to_owned();
    if loader::asks_for_static_tls(value.as_bytes()) {
        return Some(value);
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(loader::STATIC_TLS);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stands_before_what_is_preloaded_already() {
        let value = |existing: Option<&str>| preload(Path::new("/l/h.so"), existing.map(OsStr::new)).unwrap();
        assert_eq!(value(None), "/l/h.so");
        assert_eq!(value(Some("")), "/l/h.so");
        assert_eq!(value(Some("/a.so b.so")), "/l/h.so:/a.so:b.so");
        assert_eq!(value(Some("/a.so:/l/h.so")), "/l/h.so:/a.so");
        assert!(preload(Path::new("/my libs/h.so"), None).is_err());
    }

    #[test]
    fn beside_an_auditor_there_is_room_for_its_storage() {
        let value = |existing: Option<&str>, auditors: Option<&str>| {
            tunables(existing.map(OsStr::new), auditors.map(OsStr::new)).map(|value| value.into_string().unwrap())
        };
        assert_eq!([value(None, None), value(Some("a=1"), Some(""))], [None, None]);
        assert_eq!(value(None, Some("/a.so")).as_deref(), Some(loader::STATIC_TLS));
        assert_eq!(value(Some("a=1"), Some("/a.so")), Some(format!("a=1:{}", loader::STATIC_TLS)));
        let chosen = "b=2:glibc.rtld.optional_static_tls=65536";
        assert_eq!(value(Some(chosen), Some("/a.so")).as_deref(), Some(chosen));
    }
}
