//! Bars in groups: a group for each case, in it one bar for each rival, with its least and greatest value as a line.

use super::plot::distinct;
use super::statistics::Spread;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;

/// Room that a group of bars takes of its width.
const GROUP_SHARE: f64 = 0.8;

/// One colour for each rival, by its place (Okabe and Ito's, which colour-blind readers can tell apart).
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(240, 228, 66),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
];

/// The bars of one rival.
pub struct Series {
    /// What the legend says.
    pub name: String,
    pub colour: RGBColor,
    /// By group; `None` where there is no value.
    pub bars: Vec<Option<Spread>>,
}

/// One picture of bars.
pub struct Chart<'a> {
    pub caption: &'a str,
    /// What the values are.
    pub measure: &'a str,
    /// Names of the groups.
    pub groups: &'a [String],
    pub series: &'a [Series],
}

/// The bars of each rival, in the order of their names: `value` of its runs in every case.
pub fn series<Case, Run>(
    cases: &[Case],
    runs: impl Fn(&Case) -> &BTreeMap<String, Vec<Run>>,
    value: fn(&Case, &Run) -> Option<f64>,
) -> Vec<Series> {
    let names = distinct(cases.iter().flat_map(|case| runs(case).keys()));
    let of = |case: &Case, name: &String| Spread::of(runs(case).get(name)?.iter().filter_map(|run| value(case, run)));
    let bars = |name: &String| cases.iter().map(|case| of(case, name)).collect();
    let named = names.into_iter().enumerate();
    named
        .map(|(place, name)| Series { name: name.clone(), colour: COLOURS[place % COLOURS.len()], bars: bars(name) })
        .collect()
}

/// Draws into `area`; the bars begin at 0.
///
/// # Errors
/// The picture cannot be written.
pub fn draw(area: &DrawingArea<SVGBackend, Shift>, what: &Chart) -> Result<(), Box<dyn std::error::Error>> {
    let top = what.series.iter().flat_map(|series| series.bars.iter().flatten()).map(|spread| spread.max);
    let top = top.fold(0.0, f64::max);
    let (left, right) = (-0.5, f64::from(u32::try_from(what.groups.len())?) - 0.5);
    let mut chart = ChartBuilder::on(area)
        .caption(what.caption, ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(48)
        .build_cartesian_2d(left..right, 0.0..(top * 1.1).max(0.001))?;
    chart.configure_mesh().disable_x_mesh().disable_x_axis().y_desc(what.measure).max_light_lines(0).draw()?;
    for (place, name) in what.groups.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(f64::from(u32::try_from(place)?), 0.0));
        let centre = x - i32::try_from(name.len())? * 3;
        area.draw(&Text::new(name.clone(), area_point(area, (centre, y + 6)), ("sans-serif", 12)))?;
    }
    let width = GROUP_SHARE / f64::from(u32::try_from(what.series.len().max(1))?);
    for (turn, series) in what.series.iter().enumerate() {
        let colour = series.colour;
        let offset = width * f64::from(u32::try_from(turn)?) - GROUP_SHARE / 2.0;
        let places = (0_u32..).map(|place| f64::from(place) + offset);
        let bars: Vec<(f64, Spread)> = places.zip(&series.bars).filter_map(|(x, bar)| Some((x, (*bar)?))).collect();
        let rectangles =
            bars.iter().map(|(x, bar)| Rectangle::new([(*x, 0.0), (x + width * 0.92, bar.median)], colour.filled()));
        chart
            .draw_series(rectangles)?
            .label(series.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        let whiskers =
            bars.iter().map(|(x, bar)| PathElement::new([bar.min, bar.max].map(|end| (x + width * 0.46, end)), BLACK));
        chart.draw_series(whiskers)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.2))
        .draw()?;
    Ok(())
}

/// A point of the whole picture as a point of `area`.
fn area_point(area: &DrawingArea<SVGBackend, Shift>, (x, y): (i32, i32)) -> (i32, i32) {
    let (left, top) = area.get_base_pixel();
    (x - left, y - top)
}
