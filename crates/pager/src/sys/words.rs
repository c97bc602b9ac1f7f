//! Arrays of words that threads share, zero at first, in memory that is taken as it is used.

use super::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use hinterland_sys::SysError;
use std::ops::Range;

/// What may begin as zeros.
///
/// # Safety
/// All zeros are a valid value, that of its default, without a destructor.
pub(crate) unsafe trait Zeros: Default {}

// SAFETY: a number.
unsafe impl Zeros for AtomicU16 {}
// SAFETY: a number.
unsafe impl Zeros for AtomicU32 {}
// SAFETY: a number.
unsafe impl Zeros for AtomicU64 {}

/// See the module.
#[cfg(not(all(test, feature = "loom")))]
pub(crate) struct Words<A> {
    start: usize,
    count: usize,
    of: std::marker::PhantomData<A>,
}

#[cfg(not(all(test, feature = "loom")))]
impl<A: Zeros> Words<A> {
    /// So many.
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub(crate) fn new(count: usize) -> Result<Words<A>, SysError> {
        let start = super::Mapping::anonymous(count * size_of::<A>())?.start;
        Ok(Words { start, count, of: std::marker::PhantomData })
    }

    /// So many, none of which may be written to before [`Words::allow_writes`].
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub(crate) fn read_only(count: usize) -> Result<Words<A>, SysError> {
        let start = super::Mapping::read_only(count * size_of::<A>())?.start;
        Ok(Words { start, count, of: std::marker::PhantomData })
    }

    /// Has some be writable, by their indices: their bytes begin and end at bounds of pages, or with the last one.
    ///
    /// # Errors
    /// `ENOMEM` when writable memory is limited.
    pub(crate) fn allow_writes(&self, some: Range<usize>) -> Result<(), SysError> {
        let all = super::Mapping { start: self.start, len: self.count * size_of::<A>() };
        all.allow_writes(some.start * size_of::<A>()..some.end.min(self.count) * size_of::<A>())
    }

    /// All of them.
    #[inline]
    pub(crate) fn all(&self) -> &[A] {
        // SAFETY: the mapping is aligned and long enough, its zeros are valid, and it lives for ever.
        unsafe { std::slice::from_raw_parts(self.start as *const A, self.count) }
    }

    /// One of them.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &A {
        &self.all()[index]
    }
}

/// As above: Loom knows each word from its making on.
#[cfg(all(test, feature = "loom"))]
pub(crate) struct Words<A>(Vec<A>);

#[cfg(all(test, feature = "loom"))]
impl<A: Zeros> Words<A> {
    pub(crate) fn new(count: usize) -> Result<Words<A>, SysError> {
        Ok(Words((0..count).map(|_| A::default()).collect()))
    }

    pub(crate) fn read_only(count: usize) -> Result<Words<A>, SysError> {
        Words::new(count)
    }

    pub(crate) fn allow_writes(&self, _: Range<usize>) -> Result<(), SysError> {
        Ok(())
    }

    pub(crate) fn all(&self) -> &[A] {
        &self.0
    }

    pub(crate) fn at(&self, index: usize) -> &A {
        &self.0[index]
    }
}
