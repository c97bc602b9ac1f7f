//! A map of references: time from left to right, pages from bottom to top.
//!
//! Pages stand in the order of their positions, without the gaps of pages that are never touched: so the pages must be known
//! before the first reference is drawn.

/// References by column and row.
pub struct AccessMap {
    /// Positions that were touched, sorted.
    pages: Vec<u64>,
    references: u64,
    columns: usize,
    rows: usize,
    /// Row by row, from the first page on.
    cells: Vec<u32>,
}

impl AccessMap {
    /// An empty map for a trace of so many references to `pages`.
    pub fn new(mut pages: Vec<u64>, references: u64, columns: usize, rows: usize) -> AccessMap {
        pages.sort_unstable();
        pages.dedup();
        let (columns, rows) = (columns.max(1), rows.clamp(1, pages.len().max(1)));
        AccessMap { pages, references: references.max(1), columns, rows, cells: vec![0; columns * rows] }
    }

    /// Draws the reference that is `index`-th of those that were announced. One to another page is left out.
    pub fn reference(&mut self, index: u64, position: u64) {
        let Ok(place) = self.pages.binary_search(&position) else { return };
        let row = place * self.rows / self.pages.len();
        let column = u128::from(index.min(self.references - 1)) * self.columns as u128 / u128::from(self.references);
        let cell = &mut self.cells[row * self.columns + usize::try_from(column).unwrap_or(0)];
        *cell = cell.saturating_add(1);
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Pages that stand in the map.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// References in a cell.
    pub fn cell(&self, column: usize, row: usize) -> u32 {
        self.cells[row * self.columns + column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_a_diagonal() {
        let pages: Vec<u64> = (0..100).map(|page| page * 1000).collect();
        let mut map = AccessMap::new(pages.clone(), 100, 10, 10);
        pages.iter().zip(0..).for_each(|(page, index)| map.reference(index, *page));
        for (column, row) in (0..10).flat_map(|column| (0..10).map(move |row| (column, row))) {
            assert_eq!(map.cell(column, row), if column == row { 10 } else { 0 });
        }
    }

    #[test]
    fn fewer_pages_than_rows_have_a_row_each() {
        let mut map = AccessMap::new(vec![5, 5, 9], 2, 4, 100);
        assert_eq!((map.rows(), map.pages()), (2, 2));
        map.reference(1, 9);
        map.reference(1, 7);
        assert_eq!((map.cell(2, 1), map.cell(2, 0)), (1, 0));
    }
}
