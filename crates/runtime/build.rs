//! Has the linker put functions of this crate in the place of others for the C code inside the library: of `pthread_mutex_lock`
//! (`escaped.rs`), of `pthread_atfork` (`fork.rs`), and of those by which jemalloc's extents are freed and reused, and their heaps made
//! (`extents.rs`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_jemalloc =
        ["ecache_alloc", "ecache_alloc_grow", "ecache_dalloc", "eset_init"].map(|name| format!("_rjem_je_{name}"));
    // A build that never pages has no forks of its own to care for.
    let forks = std::env::var_os("CARGO_FEATURE_LOCAL_ONLY").is_none().then_some("pthread_atfork");
    for name in of_jemalloc.iter().map(String::as_str).chain(["pthread_mutex_lock"]).chain(forks) {
        println!("cargo:rustc-link-arg=-Wl,--wrap={name}");
    }
}
