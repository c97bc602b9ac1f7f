//! `vm.page-cluster`: the kernel's swap read-ahead, as a power of two of pages.

use super::undo::{Changes, Guard, Undo};
use crate::error::{BenchError, read, write};
use std::path::Path;

const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";

/// Sets it until the guard is dropped.
///
/// # Errors
/// It cannot be read or written.
pub fn set_page_cluster(value: u8, changes: &Changes) -> Result<Guard, BenchError> {
    let path = Path::new(PAGE_CLUSTER);
    let guard = changes.register(Undo::Write(path.to_owned(), read(path)?));
    write(path, &value.to_string())?;
    Ok(guard)
}
