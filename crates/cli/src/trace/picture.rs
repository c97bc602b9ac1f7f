//! A picture of a trace: time from left to right, pages from bottom to top, darker where more references fall.

use hinterland_tape::study::AccessMap;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::io;

type DrawError = DrawingAreaErrorKind<io::Error>;

const SIZE: (u32, u32) = (960, 640);
/// The darkest colour (Okabe and Ito's blue).
const COLOUR: RGBColor = RGBColor(0, 114, 178);
/// Shades; cells of the same shade beside each other are one rectangle.
const SHADES: u32 = 8;

/// Draws a map of so many references, as SVG.
pub fn draw(map: &AccessMap, references: u64) -> Result<String, DrawError> {
    let mut picture = String::new();
    draw_on(SVGBackend::with_string(&mut picture, SIZE).into_drawing_area(), map, references)?;
    Ok(picture)
}

fn draw_on(root: DrawingArea<SVGBackend, Shift>, map: &AccessMap, references: u64) -> Result<(), DrawError> {
    root.fill(&WHITE)?;
    #[allow(clippy::cast_precision_loss, reason = "coordinates of a picture")]
    let (right, top) = (references.max(1) as f64, map.pages().max(1) as f64);
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{references} references to {} pages", map.pages()), ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("references")
        .y_desc("pages, in order, without those never touched")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    #[allow(clippy::cast_precision_loss, reason = "coordinates of a picture")]
    let (width, height) = (right / map.columns() as f64, top / map.rows() as f64);
    chart.draw_series(rectangles(map).into_iter().map(|(row, columns, shade)| {
        #[allow(clippy::cast_precision_loss, reason = "coordinates of a picture")]
        let corners = [
            (columns.start as f64 * width, row as f64 * height),
            (columns.end as f64 * width, (row + 1) as f64 * height),
        ];
        Rectangle::new(corners, COLOUR.mix(f64::from(shade) / f64::from(SHADES)).filled())
    }))?;
    root.present()?;
    Ok(())
}

/// Cells with references: row, columns, shade from 1 to `SHADES`.
fn rectangles(map: &AccessMap) -> Vec<(usize, std::ops::Range<usize>, u32)> {
    let cells = (0..map.rows()).flat_map(|row| (0..map.columns()).map(move |column| (row, column)));
    let most = cells.clone().map(|(row, column)| map.cell(column, row)).max().unwrap_or(0);
    let mut found: Vec<(usize, std::ops::Range<usize>, u32)> = Vec::new();
    for (row, column) in cells {
        let shade = shade(map.cell(column, row), most);
        match found.last_mut() {
            Some((last, columns, same)) if (*last, columns.end, *same) == (row, column, shade) => columns.end += 1,
            _ if shade > 0 => found.push((row, column..column + 1, shade)),
            _ => {}
        }
    }
    found
}

/// By the logarithm, because few cells have most references.
fn shade(references: u32, most: u32) -> u32 {
    if references == 0 {
        return 0;
    }
    let log = |count: u32| count.ilog2() + 1;
    (log(references) * SHADES).div_ceil(log(most)).clamp(2, SHADES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_shade_are_one_rectangle() {
        let mut map = AccessMap::new(vec![1, 2], 8, 8, 2);
        (0..4).for_each(|index| map.reference(index, 1));
        (4..8).for_each(|index| map.reference(index, 2));
        assert_eq!(rectangles(&map), [(0, 0..4, SHADES), (1, 4..8, SHADES)]);
    }

    #[test]
    fn the_picture_is_drawn() {
        let mut map = AccessMap::new((0..50).collect(), 50, 10, 10);
        (0..50).for_each(|page| map.reference(page, page));
        let text = draw(&map, 50).unwrap();
        assert!(text.contains("<svg") && text.matches("<rect").count() > 10, "{text}");
    }
}
