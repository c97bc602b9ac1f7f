//! The calls of `hinterland_sys`, answered by the simulated machine where the calling thread is in a simulation.

use super::access::FIRST_ID;
use super::machine::page_at;
use super::turns::Wait;
use super::{Current, current};
use hinterland_sys::SysError;
use hinterland_units::PAGE_BYTES;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Duration;
use uffd::{Message, Partial};

fn pages_of(start: usize, len: usize) -> impl Iterator<Item = usize> {
    (start..start + len).step_by(PAGE_BYTES)
}

fn failed<T>(call: &'static str, errno: i32) -> Result<T, SysError> {
    Err(SysError { call, errno })
}

/// As `hinterland_sys::Mapping`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Mapping {
    fn of(made: Result<hinterland_sys::Mapping, SysError>) -> Result<Mapping, SysError> {
        let made = made?;
        if let Some(current) = current() {
            current.with(|state| state.machine.memory.keep(made));
        }
        Ok(Mapping { start: made.start, len: made.len })
    }

    pub(crate) fn anonymous(len: usize) -> Result<Mapping, SysError> {
        Mapping::of(hinterland_sys::Mapping::anonymous(len))
    }

    pub(crate) fn read_only(len: usize) -> Result<Mapping, SysError> {
        Mapping::of(hinterland_sys::Mapping::read_only(len))
    }

    /// No step of the simulation: the pager's own tables are not in its memory.
    pub(crate) fn allow_writes(self, part: Range<usize>) -> Result<(), SysError> {
        self.real().allow_writes(part)
    }

    /// As above.
    pub(crate) fn make_writable(self, part: Range<usize>) -> Result<(), SysError> {
        self.real().make_writable(part)
    }

    fn real(self) -> hinterland_sys::Mapping {
        hinterland_sys::Mapping { start: self.start, len: self.len }
    }

    pub(crate) fn reserve_at(start: usize, len: usize) -> Result<Mapping, SysError> {
        Mapping::of(hinterland_sys::Mapping::reserve_at(start, len))
    }

    /// In a simulation, mappings end with it.
    ///
    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn end(self) {
        if current().is_none() {
            // SAFETY: the caller's.
            unsafe { self.real().end() };
        }
    }

    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.start as *mut u8
    }
}

/// Calls on memory.
pub(crate) mod mem {
    use super::{PAGE_BYTES, RawFd, SysError, current, failed, page_at, pages_of};
    use hinterland_sys::mem as real;

    fn bytes_of(ranges: &[libc::iovec]) -> impl Iterator<Item = usize> {
        ranges.iter().flat_map(|range| pages_of(range.iov_base.addr(), range.iov_len))
    }

    /// mprotect(2).
    pub(crate) fn protect(start: usize, len: usize, protection: i32) -> Result<(), SysError> {
        let Some(current) = current() else { return real::protect(start, len, protection) };
        current.step("mprotect", start);
        current.with(|state| {
            for page in state.machine.memory.pages(start, len).into_iter().flatten() {
                page.readable = protection & libc::PROT_READ != 0;
                page.writable = protection & libc::PROT_WRITE != 0;
            }
        });
        Ok(())
    }

    /// madvise(2) without loss of data.
    pub(crate) fn advise(start: usize, len: usize, advice: i32) -> Result<(), SysError> {
        let Some(current) = current() else { return real::advise(start, len, advice) };
        current.step("madvise", start);
        Ok(())
    }

    /// futex(2), which writes nothing to a page.
    pub(crate) fn make_exclusive(page: usize) -> Result<(), SysError> {
        let Some(current) = current() else { return real::make_exclusive(page) };
        current.step("writes nothing", page);
        let is_there = current.with(|state| state.machine.memory.access(page, true).is_ok());
        if is_there { Ok(()) } else { failed("futex", libc::EFAULT) }
    }

    /// mlock2(2), of pages that are there.
    pub(crate) fn lock(start: usize, len: usize, on_fault: bool) -> Result<(), SysError> {
        let Some(current) = current() else { return real::lock(start, len, on_fault) };
        current.step("mlock", start);
        current.with(|state| {
            state.machine.memory.pages(start, len).into_iter().flatten().for_each(|page| page.locked = true);
        });
        if !on_fault && !pages_of(start, len).all(|page| current.reach_by_kernel(page, true)) {
            return failed("mlock2", libc::ENOMEM);
        }
        Ok(())
    }

    /// munlock(2).
    pub(crate) fn unlock(start: usize, len: usize) -> Result<(), SysError> {
        let Some(current) = current() else { return real::unlock(start, len) };
        current.step("munlock", start);
        current.with(|state| {
            state.machine.memory.pages(start, len).into_iter().flatten().for_each(|page| page.locked = false);
        });
        Ok(())
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn drop_pages(start: usize, len: usize) -> Result<(), SysError> {
        // SAFETY: the caller's.
        let Some(current) = current() else { return unsafe { real::drop_pages(start, len) } };
        for page in pages_of(start, len) {
            current.step("drops", page);
            let is_locked = current.with(|state| {
                let is_locked = state.machine.memory.page(page).is_some_and(|page| page.locked);
                if !is_locked {
                    state.machine.memory.empty(page);
                }
                is_locked
            });
            if is_locked {
                return failed("madvise(MADV_DONTNEED)", libc::EINVAL);
            }
        }
        Ok(())
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn drop_vector(ranges: &[libc::iovec]) -> Result<usize, SysError> {
        // SAFETY: the caller's.
        let Some(current) = current() else { return unsafe { real::drop_vector(ranges) } };
        let mut done = 0;
        for range in ranges {
            // A call that stops inside of a range has dropped a part of it, which it does not count.
            let stops = current.with(|state| state.does(|chances| chances.stops));
            let (start, len) = (range.iov_base.addr(), range.iov_len);
            let len = if stops { len / 2 / PAGE_BYTES * PAGE_BYTES } else { len };
            // SAFETY: the caller's.
            let dropped = unsafe { drop_pages(start, len) };
            if stops || dropped.is_err() {
                return if done > 0 { Ok(done) } else { failed("process_madvise", libc::EINVAL) };
            }
            done += len;
        }
        Ok(done)
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn copy_vector(ranges: &[libc::iovec], into: usize) -> Result<usize, SysError> {
        // SAFETY: the caller's.
        let Some(current) = current() else { return unsafe { real::copy_vector(ranges, into) } };
        let mut done = 0;
        for page in bytes_of(ranges) {
            current.step("copies by vector", page);
            let can = current
                .with(|state| !state.does(|chances| chances.stops) && state.machine.memory.access(page, false).is_ok());
            if !can {
                return if done > 0 { Ok(done) } else { failed("process_vm_readv", libc::EFAULT) };
            }
            // SAFETY: the page is there, and the caller answers for `into`.
            unsafe { std::ptr::copy(page as *const u8, (into + done) as *mut u8, PAGE_BYTES) };
            done += PAGE_BYTES;
        }
        Ok(done)
    }

    /// mincore(2) of a page.
    pub(crate) fn is_in_memory(page: usize) -> bool {
        let Some(current) = current() else { return real::is_in_memory(page) };
        current.step("mincore", page);
        current.with(|state| state.machine.memory.page(page).is_none_or(|page| page.present && !page.swapped))
    }

    /// mincore(2) of pages.
    pub(crate) fn look_in_memory(first: usize, answers: &mut [u8]) {
        if current().is_none() {
            return real::look_in_memory(first, answers);
        }
        let pages = pages_of(first, answers.len() * PAGE_BYTES);
        answers.iter_mut().zip(pages).for_each(|(answer, page)| *answer = is_in_memory(page).into());
    }

    /// Whether there is a page, in memory or in the kernel's swap.
    pub(crate) fn has_page(page: usize) -> Option<bool> {
        let Some(current) = current() else { return real::has_page(page) };
        current.step("pagemap", page);
        Some(current.with(|state| state.machine.memory.page(page).is_none_or(|page| page.present)))
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn touch(address: usize) {
        match current() {
            // SAFETY: the caller's.
            None => unsafe { real::touch(address) },
            Some(current) => current.reach(address, true),
        }
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn move_mapping(from: usize, to: usize, len: usize) -> Result<(), SysError> {
        // SAFETY: the caller's.
        let Some(current) = current() else { return unsafe { real::move_mapping(from, to, len) } };
        current.step("mremap", from);
        current.with(|state| {
            let memory = &mut state.machine.memory;
            for (from, to) in pages_of(from, len).zip(pages_of(to, len)) {
                let source = memory.page(from).copied().unwrap_or_default();
                if memory.page(to).is_some_and(|page| page.present) {
                    memory.empty(to);
                }
                if source.present {
                    memory.transfer(from, to);
                }
                if let Some(page) = memory.page(to) {
                    (page.readable, page.writable, page.registered) = (source.readable, source.writable, false);
                }
            }
        });
        Ok(())
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn remap_inaccessible(start: usize, len: usize) -> Result<(), SysError> {
        // SAFETY: the caller's.
        let Some(current) = current() else { return unsafe { real::remap_inaccessible(start, len) } };
        current.step("mmap", start);
        current.with(|state| {
            for page in pages_of(start, len) {
                state.machine.memory.empty(page);
            }
            state.machine.memory.pages(start, len).into_iter().flatten().for_each(|page| *page = Default::default());
        });
        Ok(())
    }

    /// The process's memory as a file.
    #[derive(Debug)]
    pub struct OwnMemory(real::OwnMemory);

    impl OwnMemory {
        pub(crate) fn open() -> Result<OwnMemory, SysError> {
            match current() {
                None => real::OwnMemory::open().map(OwnMemory),
                Some(_) => Ok(OwnMemory::none()),
            }
        }

        pub(crate) fn none() -> OwnMemory {
            OwnMemory(real::OwnMemory::none())
        }

        pub(crate) fn fd(&self) -> RawFd {
            self.0.fd()
        }

        /// # Safety
        /// As the real one.
        pub(crate) unsafe fn read_page(&self, address: usize, into: *mut u8) -> Result<(), SysError> {
            // SAFETY: the caller's.
            let Some(current) = current() else { return unsafe { self.0.read_page(address, into) } };
            current.step("reads /proc/self/mem", address);
            // Whatever its protection. It waits for no fault: a missing page is an error (`handle_userfault` without
            // `FAULT_FLAG_ALLOW_RETRY`, fs/userfaultfd.c).
            if !current.with(|state| state.machine.memory.page(page_at(address)).is_none_or(|page| page.present)) {
                return failed("pread of /proc/self/mem", libc::EIO);
            }
            // SAFETY: the page is there, and the caller answers for `into`.
            unsafe { std::ptr::copy(address as *const u8, into, PAGE_BYTES) };
            Ok(())
        }
    }
}

/// userfaultfd.
pub(crate) mod uffd {
    use hinterland_sys::Fault;
    pub(crate) use hinterland_sys::uffd::Partial;

    /// A message that was read, or none.
    #[derive(Clone, Copy)]
    pub(crate) struct Message(pub(super) Option<Fault>);

    impl Message {
        pub(crate) const EMPTY: Message = Message(None);

        pub(crate) fn fault(&self) -> Option<Fault> {
            self.0
        }
    }
}

/// An open userfaultfd, or that of a simulation.
#[derive(Debug)]
pub enum Uffd {
    Kernel(hinterland_sys::Uffd),
    Simulated,
}

impl Uffd {
    pub(crate) fn open(features: u64) -> Result<Uffd, SysError> {
        hinterland_sys::Uffd::open(features).map(Uffd::Kernel)
    }

    pub(crate) fn open_user_only(features: u64) -> Result<Uffd, SysError> {
        hinterland_sys::Uffd::open_user_only(features).map(Uffd::Kernel)
    }

    pub(crate) fn fd(&self) -> RawFd {
        match self {
            Uffd::Kernel(uffd) => uffd.fd(),
            Uffd::Simulated => -1,
        }
    }

    /// The simulation, or the kernel's userfaultfd.
    fn by(&self) -> Result<Current, &hinterland_sys::Uffd> {
        match self {
            Uffd::Kernel(uffd) => Err(uffd),
            Uffd::Simulated => Ok(current().expect("only threads of a simulation know its userfaultfd")),
        }
    }

    pub(crate) fn register(&self, start: usize, len: usize, write_protect: bool) -> Result<(), SysError> {
        match self.by() {
            Err(uffd) => uffd.register(start, len, write_protect),
            Ok(current) => {
                current.step("registers", start);
                current.with(|state| state.machine.memory.register(start, len));
                Ok(())
            }
        }
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn copy(&self, dst: usize, src: *const u8, len: usize) -> Result<(), Partial> {
        let current = match self.by() {
            // SAFETY: the caller's.
            Err(uffd) => return unsafe { uffd.copy(dst, src, len) },
            Ok(current) => current,
        };
        let mut done = 0;
        let mut stopped = None;
        while done < len && stopped.is_none() {
            let (to, from) = (dst + done, src.expose_provenance() + done);
            current.step("COPY", to);
            stopped = current.reach_source(from).err().or_else(|| {
                current.with(|state| {
                    let stops = done > 0 && state.does(|chances| chances.stops);
                    let memory = &mut state.machine.memory;
                    match memory.page(to).copied() {
                        Some(page) if !page.registered => Some(libc::ENOENT),
                        Some(page) if page.present => Some(libc::EEXIST),
                        // For want of memory, say.
                        Some(_) if stops => Some(libc::ENOMEM),
                        Some(_) => {
                            // SAFETY: the source was reached, and no other thread runs before the next step.
                            unsafe { memory.fill(to, from) };
                            None
                        }
                        None => Some(libc::ENOENT),
                    }
                })
            });
            done += if stopped.is_none() { PAGE_BYTES } else { 0 };
        }
        current.with(|state| state.wake_faults(&(dst..dst + done)));
        stopped.map_or(Ok(()), |errno| Err(Partial { done, errno }))
    }

    /// # Safety
    /// As the real one.
    pub(crate) unsafe fn move_pages(&self, dst: usize, src: usize, len: usize) -> Result<(), Partial> {
        let current = match self.by() {
            // SAFETY: the caller's.
            Err(uffd) => return unsafe { uffd.move_pages(dst, src, len) },
            Ok(current) => current,
        };
        current.step("MOVE", src);
        // The mappings are compared before anything moves.
        let alike = current.with(|state| {
            let memory = &mut state.machine.memory;
            let source = memory.pages(src, len).map(|pages| pages.to_vec()).unwrap_or_default();
            let target = memory.pages(dst, len).map(|pages| pages.to_vec()).unwrap_or_default();
            let open = |page: &super::memory::Page| page.readable && page.writable && !page.locked && page.registered;
            !source.is_empty() && source.iter().chain(&target).all(open)
        });
        if !alike {
            return Err(Partial { done: 0, errno: libc::EINVAL });
        }
        let (mut done, mut uncounted, mut stopped) = (0, 0, None);
        while done + uncounted < len && stopped.is_none() {
            let (to, from) = (dst + done + uncounted, src + done + uncounted);
            current.step("MOVE", from);
            stopped = current.with(|state| {
                let stops = state.does(|chances| chances.stops) || state.does(|chances| chances.busy);
                let memory = &mut state.machine.memory;
                let (source, target) = (memory.page(from).copied(), memory.page(to).copied());
                match (source.unwrap_or_default(), target.unwrap_or_default()) {
                    (_, target) if target.present => Some(libc::EEXIST),
                    (source, _) if !source.present => Some(libc::ENOENT),
                    (source, _) if source.devices > 0 || stops => Some(libc::EBUSY),
                    _ => {
                        memory.transfer(from, to);
                        None
                    }
                }
            });
            if stopped.is_some() {
                break;
            }
            if uncounted > 0 || current.with(|state| state.does(|chances| chances.uncounted)) {
                uncounted += PAGE_BYTES;
            } else {
                done += PAGE_BYTES;
            }
        }
        current.with(|state| state.wake_faults(&(dst..dst + done)));
        match stopped {
            // It tries the first page again that it has not counted.
            _ if uncounted > 0 => Err(Partial { done, errno: libc::EEXIST }),
            Some(errno) => Err(Partial { done, errno }),
            None => Ok(()),
        }
    }

    pub(crate) fn write_protect(&self, start: usize, len: usize, protect: bool) -> Result<(), SysError> {
        let current = match self.by() {
            Err(uffd) => return uffd.write_protect(start, len, protect),
            Ok(current) => current,
        };
        for page in pages_of(start, len) {
            current.step(if protect { "protects" } else { "lifts protection" }, page);
            let is_known = current.with(|state| match state.machine.memory.page(page) {
                Some(page) if page.registered => {
                    page.protected = protect && page.present;
                    true
                }
                _ => false,
            });
            if !is_known {
                return failed("UFFDIO_WRITEPROTECT", libc::ENOENT);
            }
        }
        if !protect {
            current.with(|state| state.wake_faults(&(start..start + len)));
        }
        Ok(())
    }

    pub(crate) fn wake(&self, start: usize, len: usize) {
        let _ = self.try_wake(start, len);
    }

    pub(crate) fn try_wake(&self, start: usize, len: usize) -> Result<(), SysError> {
        match self.by() {
            Err(uffd) => uffd.try_wake(start, len),
            Ok(current) => {
                current.step("wakes", start);
                current.with(|state| state.wake_faults(&(start..start + len)));
                Ok(())
            }
        }
    }

    pub(crate) fn read(&self, messages: &mut [Message]) -> Result<usize, SysError> {
        match self.by() {
            Err(uffd) => {
                let mut read = vec![hinterland_sys::uffd::Message::EMPTY; messages.len()];
                let count = uffd.read(&mut read)?;
                messages.iter_mut().zip(&read[..count]).for_each(|(message, read)| *message = Message(read.fault()));
                Ok(count)
            }
            Ok(current) => loop {
                current.step("reads faults", 0);
                let taken = current.with(|state| state.take_messages(messages.len()));
                if !taken.is_empty() {
                    messages.iter_mut().zip(&taken).for_each(|(message, fault)| *message = Message(Some(*fault)));
                    return Ok(taken.len());
                }
                current.wait(Wait::Message, None);
            },
        }
    }
}

impl Current {
    /// The kernel reads a page of the process's for COPY.
    fn reach_source(&self, address: usize) -> Result<(), i32> {
        let page = page_at(address);
        let is_known = self.with(|state| state.machine.memory.page(page).is_some());
        if is_known && !self.reach_by_kernel(page, false) { Err(libc::EFAULT) } else { Ok(()) }
    }
}

/// The gate, and sleeping on words.
pub(crate) mod gate {
    use super::{Duration, Wait, current};
    use hinterland_sys::gate as real;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    pub(crate) type Gate = real::Gate<Words>;
    pub(crate) type Inside<'a> = real::Inside<'a, Words>;

    /// How threads sleep in the gate.
    #[derive(Debug)]
    pub(crate) struct Words;

    impl real::Sleep for Words {
        fn wait(word: &AtomicU32, value: u32) {
            futex_wait(word, value);
        }
        fn wake(word: &AtomicU32) {
            futex_wake(word);
        }
    }

    pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
        futex_wait_for(word, value, None);
    }

    pub(crate) fn futex_wait_for(word: &AtomicU32, value: u32, limit: Option<Duration>) {
        let Some(current) = current() else { return real::futex_wait_for(word, value, limit) };
        current.step("waits on a word", 0);
        if current.with(|state| state.does(|chances| chances.spurious)) {
            return current.yield_now("wakes unasked");
        }
        if word.load(SeqCst) == value {
            current.wait(Wait::Futex(word.as_ptr().addr()), limit);
        }
    }

    pub(crate) fn futex_wake(word: &AtomicU32) {
        let Some(current) = current() else { return real::futex_wake(word) };
        current.step("wakes a word", 0);
        let address = word.as_ptr().addr();
        current.with(|state| state.wake(|waits| waits == Wait::Futex(address)));
    }

    pub(crate) fn shared_futex_wait_for(word: &AtomicU32, value: u32, limit: Duration) {
        match current() {
            None => real::shared_futex_wait_for(word, value, limit),
            Some(_) => futex_wait_for(word, value, Some(limit)),
        }
    }

    pub(crate) fn shared_futex_wake(word: &AtomicU32) {
        match current() {
            None => real::shared_futex_wake(word),
            Some(_) => futex_wake(word),
        }
    }

    pub(crate) fn shared_futex_bump(word: &AtomicU32) {
        word.fetch_add(1, SeqCst);
        shared_futex_wake(word);
    }
}

/// Threads.
pub(crate) mod thread {
    use super::{Duration, FIRST_ID, SysError, Wait, current};
    use hinterland_sys::thread as real;
    pub(crate) use hinterland_sys::thread::{code_position_of, forget_ours, never_preempt};
    use std::ffi::CStr;

    /// As the real one: simulated threads get no signals.
    pub(crate) struct SignalsBlocked {
        _real: Option<real::SignalsBlocked>,
    }

    impl SignalsBlocked {
        pub(crate) fn new() -> SignalsBlocked {
            SignalsBlocked { _real: current().is_none().then(real::SignalsBlocked::new) }
        }

        pub(crate) fn already() -> SignalsBlocked {
            SignalsBlocked { _real: current().is_none().then(real::SignalsBlocked::already) }
        }
    }

    pub(crate) fn id() -> u32 {
        current().map_or_else(real::id, |current| current.thread_id())
    }

    pub(crate) fn pointer() -> usize {
        current().map_or_else(real::pointer, |current| (current.storage_of() + FIRST_ID as usize) << 12)
    }

    pub(crate) fn number() -> u64 {
        current().map_or_else(real::number, |current| current.thread_id().into())
    }

    pub(crate) fn process() -> u32 {
        current().map_or_else(real::process, |_| FIRST_ID)
    }

    /// In a simulation every thread is at work.
    pub(crate) fn process_cpu_time() -> Duration {
        current().map_or_else(real::process_cpu_time, |current| current.elapsed())
    }

    pub(crate) fn cpu_time() -> Duration {
        current().map_or_else(real::cpu_time, |current| current.elapsed())
    }

    pub(crate) fn yield_now() {
        #[cfg(feature = "loom")]
        return loom::thread::yield_now();
        #[cfg(not(feature = "loom"))]
        current().map_or_else(real::yield_now, |current| current.yield_now("yields"));
    }

    pub(crate) fn sleep(time: Duration) {
        current().map_or_else(|| real::sleep(time), |current| current.wait(Wait::Time, Some(time)));
    }

    pub(crate) fn spawn(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> Result<(), SysError> {
        let Some(current) = current() else { return real::spawn(name, body) };
        current.spawn(name.to_str().expect("names of threads are ASCII"), body);
        Ok(())
    }

    pub(crate) fn spawn_needed(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> Result<(), SysError> {
        match current() {
            None => real::spawn_needed(name, body),
            Some(_) => spawn(name, body),
        }
    }

    pub(crate) fn run_on(processor: Option<usize>) -> bool {
        current().is_none() && real::run_on(processor)
    }

    pub(crate) fn write_stderr(message: &str) {
        match current() {
            None => real::write_stderr(message),
            Some(current) => current.with(|state| state.fail(message.to_owned())),
        }
    }

    pub(crate) fn exit_now(code: i32) -> ! {
        let Some(current) = current() else { real::exit_now(code) };
        current.fail(format!("the program was ended with {code}"))
    }
}

/// The end of a process.
pub(crate) mod last_thread {
    pub(crate) use hinterland_sys::last_thread::{wake_watch, watch};

    pub(crate) fn can_watch() -> bool {
        super::current().is_none() && hinterland_sys::last_thread::can_watch()
    }
}
