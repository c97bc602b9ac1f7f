//! exec and posix_spawn(3) with an environment that may name auditors of the loader (`auditors`). Not those whose arguments vary in number:
//! execl(3) and its kind, system(3) and popen(3) start programs past these.

use super::next_symbol::next;
use crate::auditors::with_room;
use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

type Texts = *const *const c_char;

unsafe extern "C" {
    static environ: Texts;
}

/// The environment of the program as it is now.
fn present() -> usize {
    // SAFETY: libc's variable; the program does not change it while it calls exec.
    unsafe { environ }.addr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, words: Texts, environment: Texts) -> c_int {
    let next = next!(execve: unsafe extern "C" fn(*const c_char, Texts, Texts) -> c_int);
    // SAFETY: the program's own call.
    with_room(environment.addr(), |environment| unsafe { next(path, words, environment as Texts) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, words: Texts) -> c_int {
    // SAFETY: the program's own call.
    unsafe { execve(path, words, present() as Texts) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, words: Texts, environment: Texts) -> c_int {
    let next = next!(execvpe: unsafe extern "C" fn(*const c_char, Texts, Texts) -> c_int);
    // SAFETY: the program's own call.
    with_room(environment.addr(), |environment| unsafe { next(file, words, environment as Texts) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, words: Texts) -> c_int {
    // SAFETY: the program's own call.
    unsafe { execvpe(file, words, present() as Texts) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, words: Texts, environment: Texts) -> c_int {
    let next = next!(fexecve: unsafe extern "C" fn(c_int, Texts, Texts) -> c_int);
    // SAFETY: the program's own call.
    with_room(environment.addr(), |environment| unsafe { next(fd, words, environment as Texts) })
}

/// posix_spawn(3) and posix_spawnp(3).
macro_rules! spawns {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            child: *mut pid_t,
            file: *const c_char,
            actions: *const posix_spawn_file_actions_t,
            attributes: *const posix_spawnattr_t,
            words: Texts,
            environment: Texts,
        ) -> c_int {
            type Spawn = unsafe extern "C" fn(
                *mut pid_t,
                *const c_char,
                *const posix_spawn_file_actions_t,
                *const posix_spawnattr_t,
                Texts,
                Texts,
            ) -> c_int;
            let next = next!($name: Spawn);
            // SAFETY: the program's own call.
            let spawn = |environment: usize| unsafe { next(child, file, actions, attributes, words, environment as Texts) };
            with_room(environment.addr(), spawn)
        }
    )*};
}

spawns! { posix_spawn posix_spawnp }
