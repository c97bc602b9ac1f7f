//! Has the linker put functions of this crate in the place of others for the C code inside the library: of `pthread_mutex_lock`
//! (`escaped.rs`), and of those by which jemalloc's extents are freed and reused, and their heaps made (`extents.rs`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_jemalloc =
        ["ecache_alloc", "ecache_alloc_grow", "ecache_dalloc", "eset_init"].map(|name| format!("_rjem_je_{name}"));
    for name in of_jemalloc.iter().map(String::as_str).chain(["pthread_mutex_lock"]) {
        println!("cargo:rustc-link-arg=-Wl,--wrap={name}");
    }
}
