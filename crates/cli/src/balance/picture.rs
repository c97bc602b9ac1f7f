//! A contour plot: α from left to right, β from bottom to top, one colour for each band of effectiveness.

use super::effectiveness::Balance;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::io;

type DrawError = DrawingAreaErrorKind<io::Error>;

const SIZE: (u32, u32) = (860, 640);
/// The colour of the highest band (Okabe and Ito's blue).
const COLOUR: RGBColor = RGBColor(0, 114, 178);
/// Bands between the least and the most.
const BANDS: u8 = 8;

/// Draws the figures of all pairs of thresholds, which are `steps` apart, as SVG.
pub fn draw(title: &str, pairs: &[Balance], steps: (f64, f64)) -> Result<String, DrawError> {
    let mut picture = String::new();
    draw_on(SVGBackend::with_string(&mut picture, SIZE).into_drawing_area(), title, pairs, steps)?;
    Ok(picture)
}

/// The least and the most.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)))
}

/// The band of a figure between the least and the most.
fn band(value: f64, (least, most): (f64, f64)) -> u8 {
    if most <= least {
        return 0;
    }
    let part = (value - least) / (most - least) * f64::from(BANDS);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the number of bands")]
    let band = part as u8;
    band.min(BANDS - 1)
}

fn colour(band: u8) -> RGBAColor {
    COLOUR.mix(f64::from(band + 1) / f64::from(BANDS))
}

fn draw_on(
    root: DrawingArea<SVGBackend, Shift>,
    title: &str,
    pairs: &[Balance],
    (alpha_step, beta_step): (f64, f64),
) -> Result<(), DrawError> {
    root.fill(&WHITE)?;
    let all = bounds(pairs.iter().map(|pair| pair.effectiveness));
    let (left, right) = bounds(pairs.iter().map(|pair| pair.alpha));
    let (bottom, top) = bounds(pairs.iter().map(|pair| pair.beta));
    let (half_alpha, half_beta) = (alpha_step / 2.0, beta_step / 2.0);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(left - half_alpha..right + half_alpha, bottom - half_beta..top + half_beta)?;
    let percent = |value: &f64| format!("{value:.0} %");
    let mesh = &mut chart.configure_mesh();
    mesh.disable_mesh()
        .x_desc("alpha")
        .y_desc("beta")
        .x_label_formatter(&percent)
        .y_label_formatter(&percent)
        .draw()?;
    for shade in 0..BANDS {
        let of_band = pairs.iter().filter(|pair| band(pair.effectiveness, all) == shade);
        let cells = of_band.map(|pair| {
            let low = (pair.alpha - half_alpha, pair.beta - half_beta);
            Rectangle::new([low, (pair.alpha + half_alpha, pair.beta + half_beta)], colour(shade).filled())
        });
        let edge = |edge: u8| all.0 + (all.1 - all.0) * f64::from(edge) / f64::from(BANDS);
        let name = format!("{:.1} to {:.1} %", edge(shade), edge(shade + 1));
        let sample = move |(x, y)| Rectangle::new([(x, y - 5), (x + 16, y + 5)], colour(shade).filled());
        chart.draw_series(cells)?.label(name).legend(sample);
    }
    // Where β is below α nothing is drawn.
    let legend = &mut chart.configure_series_labels();
    legend.position(SeriesLabelPosition::LowerRight).background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_equal_parts_from_the_least_to_the_most() {
        let of = |value| band(value, (10.0, 18.0));
        assert_eq!([10.0, 10.9, 11.0, 17.9, 18.0].map(of), [0, 0, 1, 7, 7]);
        assert_eq!(band(5.0, (5.0, 5.0)), 0, "all are equal");
    }

    #[test]
    fn the_picture_is_drawn() {
        let pair = |alpha: f64, beta: f64| Balance { alpha, beta, low: 0.0, high: 0.0, effectiveness: beta - alpha };
        let pairs: Vec<Balance> =
            (0..10).flat_map(|a| (a..10).map(move |b| pair(f64::from(a), f64::from(b)))).collect();
        let text = draw("a cluster", &pairs, (1.0, 1.0)).unwrap();
        assert!(text.contains("<svg") && text.contains("a cluster") && text.contains("alpha"), "{text}");
        assert!(text.matches("<rect").count() >= pairs.len(), "{text}");
        assert!(draw("one", &pairs[..1], (1.0, 1.0)).is_ok());
    }
}
