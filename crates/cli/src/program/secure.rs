//! Programs that the kernel starts in secure-execution mode (`AT_SECURE`): the loader then ignores LD_PRELOAD.
//!
//! Source: `security/commoncap.c` (`cap_bprm_creds_from_file`), ld.so(8). Rights are raised when the file is set-uid or
//! set-gid for another user or group, or carries capabilities and the user is not root; never on a nosuid mount or
//! under no_new_privs.

use nix::sys::prctl::get_no_new_privs;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getegid, geteuid, getuid};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SET_UID: u32 = libc::S_ISUID;
const SET_GID: u32 = libc::S_ISGID | libc::S_IXGRP;

/// What raises the rights of a process that executes `file`; `None` when nothing does.
pub fn raises_rights(file: &Path) -> Option<&'static str> {
    let meta = std::fs::metadata(file).ok()?;
    let what = if meta.mode() & SET_UID != 0 && meta.uid() != geteuid().as_raw() {
        "is set-uid"
    } else if meta.mode() & SET_GID == SET_GID && meta.gid() != getegid().as_raw() {
        "is set-gid"
    } else if !getuid().is_root() && has_capabilities(file) {
        "has file capabilities"
    } else {
        return None;
    };
    let nosuid = statvfs(file).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOSUID));
    let no_new_privs = get_no_new_privs().unwrap_or(false);
    (!nosuid && !no_new_privs).then_some(what)
}

/// Whether `file` carries capabilities (setcap).
fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names are terminated strings that outlive the call; a zero size asks for the length and writes nothing.
    let length = unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}
