//! The table of cases for readers is that of the tests.

use hinterland_tests::{field, places};

#[test]
fn the_document_of_cases_is_the_table() {
    let (path, made) = (places::repository().join("docs/reference/cases.md"), field::document());
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &made).expect("docs/reference can be written to");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == made,
        "{} is stale: UPDATE_REFERENCE=1 cargo test -p hinterland-tests --test repository cases",
        path.display()
    );
}
