//! The memory of a slab: private to the node, or a file without a name (memfd) that its session may map for reading.
//!
//! A shared slab's file never changes its length: it is sealed, so a client that has mapped it never gets SIGBUS,
//! whatever the node or another client does. Clients get a descriptor for reading. When the slab ends before the node,
//! a hole is punched into all of it: a client that still has it mapped reads zeros, and pages that it touches there are
//! charged to the client.

use crate::slab::SLAB_LEN;
use hinterland_units::PAGE_BYTES;
use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::process::{Resource, Rlimit};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `SLAB_LEN` bytes, zeros at first.
pub(crate) enum Memory {
    /// Fresh from the kernel; it goes back to it when the slab ends.
    Private(MmapMut),
    Shared(SharedFile),
}

impl Memory {
    /// Zeros; memory arrives page by page when it is written. Private also where `shared` is wanted and no file can be had.
    pub(crate) fn new(shared: bool) -> io::Result<Memory> {
        match shared.then(SharedFile::new) {
            Some(Ok(file)) => return Ok(Memory::Shared(file)),
            Some(Err(error)) => UNSHARED.call_once(|| tracing::warn!(%error, "{}", crate::lane::UNSHARED)),
            None => {}
        }
        MmapMut::map_anon(SLAB_LEN).map(Memory::Private)
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Memory::Shared(_))
    }

    /// Appends the bytes from `offset` on.
    pub(crate) fn read(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Memory::Private(memory) => into.extend_from_slice(&memory[offset..offset + bytes]),
            Memory::Shared(shared) => {
                let begin = into.len();
                into.resize(begin + bytes, 0);
                shared.read(offset, &mut into[begin..])?;
            }
        }
        Ok(())
    }

    /// The bytes from `offset` on; `None`: they are in a file.
    pub(crate) fn bytes(&self, offset: usize, bytes: usize) -> Option<&[u8]> {
        match self {
            Memory::Private(memory) => Some(&memory[offset..offset + bytes]),
            Memory::Shared(_) => None,
        }
    }

    /// Puts `data` at `offset`.
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) -> io::Result<()> {
        match self {
            Memory::Private(memory) => memory[offset..offset + data.len()].copy_from_slice(data),
            Memory::Shared(shared) => shared.write(offset, data)?,
        }
        Ok(())
    }

    /// Copies the page at `offset` from there.
    pub(crate) fn copy_page(&mut self, from: &Memory, offset: usize) -> io::Result<()> {
        match from {
            Memory::Private(memory) => self.write(offset, &memory[offset..offset + PAGE_BYTES]),
            Memory::Shared(shared) => {
                let mut page = [0; PAGE_BYTES];
                shared.read(offset, &mut page)?;
                self.write(offset, &page)
            }
        }
    }

    /// Gives shared memory back to the kernel, even while a client has it mapped.
    pub(crate) fn give_back(&mut self) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Memory::Shared(SharedFile(file)) = self
            && let Err(error) = rustix::fs::fallocate(file, hole, 0, SLAB_LEN as u64)
        {
            // It is freed when nobody has it mapped any more.
            tracing::warn!(%error, "a slab's memory was not given back at once");
        }
    }

    /// A descriptor to read it with; `None`: it is private.
    pub(crate) fn reader(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Memory::Private(_) => Ok(None),
            Memory::Shared(SharedFile(file)) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                Ok(Some(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
            }
        }
    }
}

/// See the module.
pub(crate) struct SharedFile(OwnedFd);

/// The first slab that could not be shared is told of.
static UNSHARED: Once = Once::new();

/// Shared files of this process: each keeps a descriptor.
static FILES: AtomicU64 = AtomicU64::new(0);

/// How many there may be: connections need descriptors, too.
fn files_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2
}

impl SharedFile {
    fn new() -> io::Result<SharedFile> {
        let file = rustix::fs::memfd_create("hinterland-slab", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        if FILES.fetch_add(1, Relaxed) >= files_max() {
            FILES.fetch_sub(1, Relaxed);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        // From here on its end is counted.
        let shared = SharedFile(file);
        rustix::fs::ftruncate(&shared.0, SLAB_LEN as u64)?;
        // Nobody else can open it for writing by way of /proc.
        rustix::fs::fchmod(&shared.0, Mode::RUSR)?;
        rustix::fs::fcntl_add_seals(&shared.0, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(shared)
    }

    fn read(&self, mut offset: usize, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.0, &mut *into, offset as u64))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into = &mut into[read..];
            offset += read;
        }
        Ok(())
    }

    fn write(&self, mut offset: usize, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.0, data, offset as u64))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            data = &data[written..];
            offset += written;
        }
        Ok(())
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Relaxed);
    }
}

/// Lets this process have as many descriptors as it may: each shared slab keeps one.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Where it cannot be raised, fewer slabs are shared.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_reader_reads_what_is_written_and_can_do_nothing_else() {
        let mut memory = Memory::new(true).expect("memory");
        let reader = File::from(memory.reader().expect("a descriptor").expect("it is shared"));
        memory.write(PAGE_BYTES, b"content").expect("room");
        let mut bytes = [0; 7];
        reader.read_exact_at(&mut bytes, PAGE_BYTES as u64).expect("bytes");
        assert_eq!(&bytes, b"content");
        assert!(reader.write_at(b"x", 0).is_err() && reader.set_len(0).is_err() && reader.set_len(1 << 30).is_err());
        let seals = rustix::fs::fcntl_get_seals(&reader).expect("seals");
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
        memory.give_back();
        reader.read_exact_at(&mut bytes, PAGE_BYTES as u64).expect("the length is as it was");
        assert_eq!(bytes, [0; 7]);
        assert_eq!(rustix::fs::fstat(&reader).expect("figures").st_blocks, 0, "the memory was not given back");
    }
}
