//! Forks: parent and child go on with what both had, and neither disturbs the other.
//!
//! A program of their own, because a child holds every descriptor that other tests of the same program have open.

mod common;

use common::{fork_round, with_fork};
use hinterland_backend::{Backend, open};
use std::sync::Arc;

fn opened(urls: &[&str]) -> Arc<dyn Backend> {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    open(&urls).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn processes_share_a_file_for_reading() {
    for parameters in ["", "&direct=off", "&io=plain", "&io=plain&direct=off"] {
        fork_round(&*opened(&[&format!("file:/tmp?size=8M{parameters}")]), 1, 2);
    }
}

#[test]
fn memory_is_duplicated() {
    fork_round(&*opened(&["compressed:64M"]), 2, 2);
    fork_round(&*opened(&["compressed:64M?codec=zstd"]), 3, 2);
    fork_round(&*opened(&["reference:64M"]), 4, 2);
}

#[test]
fn tiers_go_on_in_both() {
    fork_round(&*opened(&["compressed:256K", "file:/tmp?size=16M"]), 5, 2);
}

#[test]
fn a_fork_before_the_first_store_is_harmless() {
    let backend = opened(&["file:/tmp?size=8M"]);
    with_fork(&*backend, || fork_round(&*backend, 6, 1), || fork_round(&*backend, 7, 1));
}
