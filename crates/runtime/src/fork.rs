//! Forks: the child goes on with every page as it was, served by its own userfaultfd.
//!
//! glibc runs atfork handlers around every fork that a library call makes (fork, forkpty, daemon, …). The library
//! registers its own before any other, so they are the innermost: the last to prepare and the first in parent and
//! child. The constructors of the program's libraries run before ours, so the first registration of any handler brings
//! ours. jemalloc's run just around ours, because all of the program's may allocate. vfork and posix_spawn share the
//! parent's memory and need nothing, except in a debugger (`vfork`). `_Fork`, `clone` and forks by `syscall` run no handlers
//! and are interposed (`raw`).

#[cfg(not(feature = "local-only"))]
pub(crate) mod id_words;
#[cfg(not(feature = "local-only"))]
pub(crate) mod path;
#[cfg(not(feature = "local-only"))]
pub(crate) mod raw;
pub(crate) mod turns;
#[cfg(not(feature = "local-only"))]
pub(crate) mod vfork;

#[cfg(not(feature = "local-only"))]
mod handlers {
    use super::path;
    use super::turns::TURNS;
    use crate::region_map::{self, ForkRule};
    use crate::{Pager, arena, ledger, start, tape};
    use hinterland_sys::thread::Uncancellable;
    use hinterland_sys::{last_thread, mem, thread};
    use hinterland_units::{PAGE_BYTES, PageNo};
    use libc::{c_int, c_void};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

    /// An atfork handler.
    pub type Handler = Option<extern "C" fn()>;

    /// Those of a library: before the fork, and after it in parent and child.
    #[derive(Clone, Copy)]
    pub struct Handlers {
        pub prepare: Handler,
        pub parent: Handler,
        pub child: Handler,
    }

    /// jemalloc's. Between them its locks are held, and a thread that needs more than its cache has waits for ever: so they run just around
    /// ours, whenever they came.
    pub static OF_THE_HEAP: OnceLock<Handlers> = OnceLock::new();

    /// Calls one of jemalloc's, in a process that has far memory: others have nothing from it.
    fn call_heaps(which: impl FnOnce(&Handlers) -> Handler) {
        if let Some(handler) = crate::pager().and_then(|_| which(OF_THE_HEAP.get()?)) {
            handler();
        }
    }

    /// Registers the handlers, once.
    pub fn init() {
        static DONE: AtomicBool = AtomicBool::new(false);
        if !DONE.swap(true, SeqCst) {
            // SAFETY: the handlers are functions of this library, which is never unloaded.
            let rc = unsafe {
                register(Some(prepare_with_heap), Some(parent_with_heap), Some(child_with_heap), std::ptr::null_mut())
            };
            assert_eq!(rc, 0, "atfork handlers cannot be registered");
        }
    }

    extern "C" fn prepare_with_heap() {
        TURNS.begin_fork();
        call_heaps(|heaps| heaps.prepare);
        prepare();
    }

    extern "C" fn parent_with_heap() {
        parent();
        call_heaps(|heaps| heaps.parent);
        TURNS.end_fork();
    }

    /// The heap's first: it makes its locks anew, and threads of ours, which may wait for them, start then.
    extern "C" fn child_with_heap() {
        TURNS.begin_child();
        call_heaps(|heaps| heaps.child);
        child();
    }

    /// libc's own registration; `owner` is the object whose unloading ends it.
    ///
    /// # Safety
    /// The handlers stay callable until then.
    pub unsafe fn register(prepare: Handler, parent: Handler, child: Handler, owner: *mut c_void) -> c_int {
        // SAFETY: the name is a C string.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__register_atfork".as_ptr()) };
        assert!(!next.is_null(), "libc has no __register_atfork");
        // SAFETY: libc's function of that name has this type.
        let next: unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
            unsafe { std::mem::transmute(next) };
        // SAFETY: the caller's promise.
        unsafe { next(prepare, parent, child, owner) }
    }

    /// Before the fork, which is no cancellation point: nor is what is done around it. Signals are blocked from here on, by the region map's lock.
    pub fn prepare() {
        let _whole = Uncancellable::new();
        if let Some(pager) = crate::pager() {
            freeze(pager);
            path::before_fork();
            arena::lock_for_fork();
        }
    }

    /// Stack that a fork works on below and above the frame of `prepare`: what libc's fork and ours need, several times over.
    const STACK_BELOW: usize = 64 << 10;
    const STACK_ABOVE: usize = 16 << 10;

    /// Locks the region map and freezes the pager, with the stack of this thread in place.
    fn freeze(pager: &Pager) {
        let mark = 0u8;
        let here = (&raw const mark).addr() & !(PAGE_BYTES - 1);
        loop {
            let stack = region_map::writable_around(here, here - STACK_BELOW, here + STACK_ABOVE);
            for page in stack.iter().flat_map(|stack| stack.clone().step_by(PAGE_BYTES)) {
                // SAFETY: a writable page of the program's.
                unsafe { mem::touch(page) };
            }
            region_map::lock_for_fork();
            let left = runs_with(ForkRule::Leave);
            match stack {
                None => return pager.freeze(&left),
                Some(ref stack) if pager.freeze_on(stack.clone(), &left) => return,
                Some(_) => region_map::unlock_after_fork(),
            }
        }
    }

    /// After the fork, in the parent.
    pub fn parent() {
        let _whole = Uncancellable::new();
        if let Some(pager) = crate::pager() {
            arena::unlock_after_fork();
            pager.thaw();
            region_map::unlock_after_fork();
        }
    }

    /// After the fork, in the child.
    pub fn child() {
        let _whole = Uncancellable::new();
        let Some(pager) = crate::pager() else { return };
        arena::unlock_after_fork();
        hinterland_sys::confinement::begin_child();
        // From its start on, the evictor may take out pages of this stack.
        if let Err(error) = crate::on_near_stack(|| begin(pager)) {
            // Its far memory would read as zeros: it must not run.
            let why = format!("a forked process cannot go on, because its far memory cannot be served: {error}");
            let why = hinterland_units::Foreign(&why).to_string();
            let row = ledger::row_for_child();
            row.forked.store(1, Relaxed);
            // A launcher says it, and does not end as if nothing had happened.
            row.fatal.set(&why);
            if row.pid.load(Relaxed) == 0 {
                thread::write_stderr(&format!("hinterland: {why}\n"));
            }
            thread::exit_now(hinterland_pager::FATAL_EXIT_CODE);
        }
        region_map::unlock_after_fork();
    }

    fn begin(pager: &'static Pager) -> Result<(), start::KernelError> {
        let (left, wiped) = (runs_with(ForkRule::Leave), runs_with(ForkRule::Wipe));
        for fd in pager.kernel().descriptors().into_iter().chain([last_thread::descriptor()]) {
            crate::descriptors::release(fd);
        }
        crate::descriptor_limit::give_spares_up();
        let (uffd, memory) = start::open_kernel(pager.kernel().features(), pager.path())?;
        crate::smaps::open_in_child();
        crate::thread_processor::close();
        crate::profile::begin_child();
        last_thread::prepare();
        path::begin_child();
        let row = ledger::row_for_child();
        row.fault_path.set(start::name_of(pager.path()));
        row.reason.set("forked");
        row.forked.store(1, Relaxed);
        crate::memory_limit::begin_child(pager.row(), row);
        pager.begin_child(uffd, memory, row, &left, &wiped)?;
        if crate::inline::active() {
            crate::inline::trap::begin_child();
        }
        region_map::forget_after_fork(&left);
        // Before the evictor starts: the kernel kills a thread whose descriptor it cannot write (rseq).
        crate::inline::stacks::tasks::begin_child();
        crate::inline::stacks::far::begin_child();
        crate::inline::syscall_sites::begin_child();
        pager.start()?;
        if let Some(tapes) = tape::begin_child(row) {
            pager.follow(tapes);
        }
        pager.begin_child_trace();
        Ok(())
    }

    /// Runs of ours that a child gets in this way. Between `lock_for_fork` and `unlock_after_fork`.
    fn runs_with(wanted: ForkRule) -> Vec<(PageNo, u32)> {
        let mut runs = Vec::new();
        region_map::for_each_fork_flag(|first, count, rule| {
            if rule == wanted {
                runs.push((first, count));
            }
        });
        runs
    }
}

#[cfg(not(feature = "local-only"))]
pub use handlers::{child, init, parent, prepare};

/// What `pthread_atfork` calls. Our handlers come first, whoever registers first.
#[cfg(not(feature = "local-only"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: handlers::Handler,
    parent: handlers::Handler,
    child: handlers::Handler,
    owner: *mut libc::c_void,
) -> libc::c_int {
    init();
    // SAFETY: the caller's own registration.
    unsafe { handlers::register(prepare, parent, child, owner) }
}

#[cfg(not(feature = "local-only"))]
unsafe extern "C" {
    /// libc's, by the linker's `--wrap` (`build.rs`).
    fn __real_pthread_atfork(
        prepare: handlers::Handler,
        parent: handlers::Handler,
        child: handlers::Handler,
    ) -> libc::c_int;
}

/// What the C code in this library calls: jemalloc, once, when it begins.
///
/// # Safety
/// As pthread_atfork(3).
#[cfg(not(feature = "local-only"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_atfork(
    prepare: handlers::Handler,
    parent: handlers::Handler,
    child: handlers::Handler,
) -> libc::c_int {
    match handlers::OF_THE_HEAP.set(handlers::Handlers { prepare, parent, child }) {
        Ok(()) => 0,
        // SAFETY: the caller's own registration.
        Err(_) => unsafe { __real_pthread_atfork(prepare, parent, child) },
    }
}
