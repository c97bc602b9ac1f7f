//! coreutils sort, with two threads and its whole input in memory.

use super::data;
use crate::{Line, Need, Place, Scenario};

/// Share of the peak that the input file makes up, in per cent: the rest is `sort`'s table of lines.
const INPUT_PERCENT: u64 = 98;

/// `sort --parallel=2`.
pub const SORT: Scenario = Scenario {
    name: "sort",
    about: "coreutils sort, two threads",
    needs: &[Need::Program("sort")],
    small_objects: false,
    prepare: |place| data::lines(&place.inputs.join("lines"), place.size_bytes * INPUT_PERCENT / 100, 1),
    command,
    beside: None,
    outputs: &["sorted"],
};

fn command(place: &Place) -> Line {
    let buffer = format!("{}b", place.size_bytes * 2);
    Line::new(["sort", "--parallel=2", "-S", &buffer, "-o", "sorted", &place.input("lines")]).with("LC_ALL", "C")
}
