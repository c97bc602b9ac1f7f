//! The installation: the preloaded library and the C library that it must live with.

use super::Check;
use crate::launch::find_library;
use nix::libc;
use std::ffi::CStr;

/// All checks of this file.
pub fn checks() -> Vec<Check> {
    vec![library(), c_library()]
}

fn library() -> Check {
    match find_library() {
        Ok(path) => Check::ok("library", path.display().to_string()),
        Err(error) => {
            let text = error.to_string();
            let (found, remedy) = text.split_once("; ").unwrap_or((&text, "reinstall Hinterland"));
            Check::missing("library", found, remedy)
        }
    }
}

fn c_library() -> Check {
    // SAFETY: returns a static, terminated string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    Check::ok("glibc", version.to_string_lossy())
}
