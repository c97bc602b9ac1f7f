//! Tables for people: columns apart, no lines.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use std::ops::Range;

/// An empty table; the columns in `figures` are aligned to the right.
pub fn table(names: &[&str], figures: Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(names.iter().copied());
    for column in table.column_iter_mut().take(figures.end).skip(figures.start) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
