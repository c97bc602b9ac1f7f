//! Sets of processors, and the threads that are kept to one (sched_setaffinity(2)).

/// Words of a set: 1024 processors, as in glibc's `cpu_set_t`.
pub const WORDS: usize = 16;

/// Processors, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors([u64; WORDS]);

impl Processors {
    /// As many as can be named: the kernel takes those of them that the process's cpuset allows.
    pub const ALL: Processors = Processors([u64::MAX; WORDS]);

    /// One; `None`: no set has its number.
    pub fn one(number: usize) -> Option<Processors> {
        let mut words = [0; WORDS];
        *words.get_mut(number / 64)? = 1 << (number % 64);
        Some(Processors(words))
    }

    /// Those on which the calling thread may run; `None`: the kernel does not say.
    pub fn allowed() -> Option<Processors> {
        Processors::allowed_to(0)
    }

    /// Those on which a thread may run that has this number; 0: the calling one. `None`: there is none, or the kernel does not say.
    pub fn allowed_to(thread: i32) -> Option<Processors> {
        let mut words = [0u64; WORDS];
        if cfg!(miri) {
            return None;
        }
        // SAFETY: the set is valid for the call.
        let bytes =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&words), words.as_mut_ptr()) };
        (bytes > 0).then_some(Processors(words))
    }

    /// Those whose bits are set, 64 in each word.
    pub fn of(words: [u64; WORDS]) -> Processors {
        Processors(words)
    }

    /// A bit for each.
    pub fn words(&self) -> [u64; WORDS] {
        self.0
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..WORDS * 64).filter(|number| (self.0[number / 64] >> (number % 64)) & 1 == 1)
    }

    /// So many of them, from the `first`-th on, and from the beginning again behind the last.
    #[must_use]
    pub fn part(&self, count: usize, first: usize) -> Processors {
        let (all, mut words) = (self.count(), [0; WORDS]);
        let skipped = first.checked_rem(all).unwrap_or(0);
        let in_turn = self.numbers().chain(self.numbers()).skip(skipped);
        in_turn.take(count.min(all)).for_each(|number| words[number / 64] |= 1 << (number % 64));
        Processors(words)
    }

    /// Keeps the calling thread to these. False: the kernel refused, for example because the process may use none of them.
    pub fn keep_to(&self) -> bool {
        // SAFETY: the set is valid for the call; 0 means the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&self.0), self.0.as_ptr()) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[usize]) -> Processors {
        let mut words = [0; WORDS];
        numbers.iter().for_each(|number| words[number / 64] |= 1 << (number % 64));
        Processors(words)
    }

    #[test]
    fn a_part_goes_round_and_is_never_more_than_the_whole() {
        let all = of(&[1, 3, 64, 700]);
        assert_eq!((all.count(), all.part(2, 0), all.part(1, 2)), (4, of(&[1, 3]), of(&[64])));
        assert_eq!((all.part(2, 3), all.part(2, 7), all.part(9, 2)), (of(&[700, 1]), of(&[700, 1]), all));
        assert_eq!(of(&[]).part(3, 5), of(&[]));
        assert_eq!((Processors::one(65), Processors::one(1024)), (Some(of(&[65])), None));
        assert_eq!(Processors::ALL.part(1024, 0), Processors::ALL);
    }

    #[test]
    fn a_thread_is_kept_to_a_part_and_let_go_again() {
        std::thread::spawn(|| {
            let all = Processors::allowed().expect("the kernel says it");
            let part = all.part(1, 5);
            assert!(part.keep_to());
            assert_eq!((Processors::allowed(), part.count()), (Some(part), 1));
            assert!(all.keep_to() && Processors::allowed() == Some(all));
            assert!(!of(&[]).keep_to(), "on no processor nothing runs");
        })
        .join()
        .unwrap();
    }
}
