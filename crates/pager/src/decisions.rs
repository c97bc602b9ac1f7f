//! The decision log of a process ([`hinterland_paging::Log`]), which the simulator replays: what the pager hears, what it is answered, and
//! what it decides. For tests: only a build with debug assertions can write one, and in every other build all of this is nothing.
//!
//! While a log is written the pager makes one decision at a time (`DecisionTurn`), so the entries are in the order in which the decisions were
//! made. What threads do between decisions overlaps as always. A decision that is a part of another one is not noted: a replay
//! of the one makes the other, too. A turn is the outermost lock of the pager: no load, store or request to the kernel is made in one.
//!
//! The log is memory that the process shares with a file: to note an entry is no system call, and nothing is lost when the process ends.

#[cfg(not(debug_assertions))]
pub use absent::Decisions;
#[cfg(not(debug_assertions))]
pub(crate) use absent::{Answers, DecisionTurn};
#[cfg(debug_assertions)]
pub use written::Decisions;
#[cfg(debug_assertions)]
pub(crate) use written::{Answers, DecisionTurn};

#[cfg(not(debug_assertions))]
mod absent {
    use hinterland_paging::Step;
    use std::marker::PhantomData;

    /// No log.
    #[derive(Clone, Copy, Default)]
    pub struct Decisions;

    /// No turn.
    pub(crate) struct DecisionTurn;

    /// None is kept.
    pub(crate) struct Answers<T>(PhantomData<T>);

    impl Decisions {
        #[inline]
        pub(crate) const fn turn(self) -> DecisionTurn {
            DecisionTurn
        }

        #[inline]
        pub(crate) const fn answers<T>(self) -> Answers<T> {
            Answers(PhantomData)
        }

        #[inline]
        pub(crate) const fn end(self) {}
    }

    impl DecisionTurn {
        #[inline]
        pub(crate) fn note(&self, _: impl FnOnce() -> Step) {}
    }

    impl<T> Answers<T> {
        #[inline]
        pub(crate) fn put(&mut self, _: T) {}

        pub(crate) fn take(&mut self) -> Vec<T> {
            Vec::new()
        }
    }
}

#[cfg(debug_assertions)]
mod written {
    use crate::backoff::Backoff;
    use hinterland_paging::{Begin, Entry, HEAD_BYTES, Step, head};
    use hinterland_sys::{Mapping, thread};
    use std::fs::File;
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    };

    /// Bytes of a log at most; the file takes as many as are used.
    const LOG_BYTES: usize = 256 << 20;
    /// Programs that one process runs after each other.
    const PROGRAMS_MAX: u32 = 100;
    /// Threads that have numbers; a log ends at the next one.
    const THREADS_MAX: usize = 256;

    struct Log {
        memory: Mapping,
        /// Bytes of entries.
        len: AtomicU64,
        /// Whose turn it is, by thread pointer; 0: no thread's.
        owner: AtomicUsize,
        /// How often the owner has taken the turn.
        depth: AtomicU32,
        has_ended: AtomicBool,
        /// By number: thread pointers.
        threads: [AtomicUsize; THREADS_MAX],
    }

    /// The log of this process, if there is one.
    #[derive(Clone, Copy, Default)]
    pub struct Decisions(Option<&'static Log>);

    /// No other thread makes a decision meanwhile.
    pub(crate) struct DecisionTurn {
        log: Option<&'static Log>,
        /// It is not part of another decision.
        is_outermost: bool,
    }

    /// What was answered in the course of a decision, if there is a log.
    pub(crate) struct Answers<T>(Option<Vec<T>>);

    impl Decisions {
        /// A log in a new file of the folder, named after the process and the programs that it ran before.
        ///
        /// # Errors
        /// The file cannot be made or mapped.
        pub fn create(folder: &Path, with: Begin) -> io::Result<Decisions> {
            let path = |before: u32| folder.join(format!("{}-{before}.decisions", std::process::id()));
            let path = (0..PROGRAMS_MAX).map(path).find(|path| !path.exists()).unwrap_or_else(|| path(PROGRAMS_MAX));
            let file = File::options().read(true).write(true).create_new(true).open(path)?;
            file.set_len(LOG_BYTES as u64)?;
            let log = Log {
                memory: Mapping::of_file(&file, LOG_BYTES)?,
                len: AtomicU64::new(0),
                owner: AtomicUsize::new(0),
                depth: AtomicU32::new(0),
                has_ended: AtomicBool::new(false),
                threads: [const { AtomicUsize::new(0) }; THREADS_MAX],
            };
            let decisions = Decisions(Some(Box::leak(Box::new(log))));
            decisions.turn().note(|| Step::Begins { with });
            Ok(decisions)
        }

        /// Waits for a turn.
        pub(crate) fn turn(self) -> DecisionTurn {
            let Some(log) = self.0.filter(|log| !log.has_ended.load(Relaxed)) else {
                return DecisionTurn { log: None, is_outermost: false };
            };
            let me = thread::pointer();
            if log.owner.load(Relaxed) != me {
                let mut backoff = Backoff::new();
                while log.owner.compare_exchange(0, me, Acquire, Relaxed).is_err() {
                    backoff.pause();
                }
            }
            DecisionTurn { log: Some(log), is_outermost: log.depth.fetch_add(1, Relaxed) == 0 }
        }

        pub(crate) fn answers<T>(self) -> Answers<T> {
            Answers(self.0.map(|_| Vec::new()))
        }

        /// Nothing more is noted: in the child of a fork, which shares the file.
        pub(crate) fn end(self) {
            self.0.iter().for_each(|log| log.has_ended.store(true, Relaxed));
        }
    }

    impl DecisionTurn {
        /// Notes what was decided.
        pub(crate) fn note(&self, step: impl FnOnce() -> Step) {
            if let Some(log) = self.log.filter(|log| self.is_outermost && !log.has_ended.load(Relaxed)) {
                log.write(step());
            }
        }
    }

    impl Drop for DecisionTurn {
        fn drop(&mut self) {
            if let Some(log) = self.log
                && log.depth.fetch_sub(1, Relaxed) == 1
            {
                log.owner.store(0, Release);
            }
        }
    }

    impl<T> Answers<T> {
        pub(crate) fn put(&mut self, answer: T) {
            if let Some(answers) = &mut self.0 {
                answers.push(answer);
            }
        }

        pub(crate) fn take(&mut self) -> Vec<T> {
            self.0.as_mut().map(std::mem::take).unwrap_or_default()
        }
    }

    impl Log {
        /// The number of the calling thread, whose turn it is; `None`: there are too many.
        fn thread(&self) -> Option<u32> {
            let me = thread::pointer();
            let at = self.threads.iter().position(|known| [0, me].contains(&known.load(Relaxed)))?;
            self.threads[at].store(me, Relaxed);
            u32::try_from(at).ok()
        }

        fn write(&self, step: Step) {
            let at = self.len.load(Relaxed);
            let entry = self.thread().map(|thread| Entry { thread, step }.bytes());
            let begin = HEAD_BYTES + usize::try_from(at).unwrap_or(LOG_BYTES);
            let Some(entry) = entry.filter(|entry| begin + entry.len() <= LOG_BYTES) else {
                self.has_ended.store(true, Relaxed);
                return self.put(0, &head(at, true));
            };
            self.put(begin, &entry);
            self.len.store(at + entry.len() as u64, Relaxed);
            self.put(0, &head(at + entry.len() as u64, false));
        }

        fn put(&self, at: usize, bytes: &[u8]) {
            // SAFETY: the mapping has these bytes, lives as long as the process, and only the thread whose turn it is writes there.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.as_ptr().add(at), bytes.len()) };
        }
    }
}
