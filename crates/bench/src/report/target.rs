//! Targets, beside the figures reached.

use super::table::table;
use serde::{Deserialize, Serialize};

/// A target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Of what.
    pub what: String,
    /// What was measured.
    pub reached: f64,
    /// The least that it should be.
    pub at_least: Option<f64>,
    /// The most that it should be.
    pub at_most: Option<f64>,
    /// Whether it is.
    pub met: bool,
}

impl Target {
    /// For what should be small; none when it was not measured.
    pub fn at_most(what: String, reached: Option<f64>, most: f64) -> Option<Target> {
        reached.map(|reached| Target { what, reached, at_least: None, at_most: Some(most), met: reached <= most })
    }

    /// For what should be large; none when it was not measured.
    pub fn at_least(what: String, reached: Option<f64>, least: f64) -> Option<Target> {
        reached.map(|reached| Target { what, reached, at_least: Some(least), at_most: None, met: reached >= least })
    }
}

/// The targets as a table with an empty line before it; nothing when there are none.
pub fn render(targets: &[Target]) -> String {
    if targets.is_empty() {
        return String::new();
    }
    let mut table = table(&["target", "reached", "wanted", ""], 1);
    for target in targets {
        let wanted = match (target.at_least, target.at_most) {
            (Some(least), _) => format!("≥ {least}"),
            (_, Some(most)) => format!("≤ {most}"),
            _ => String::new(),
        };
        let met = if target.met { "met" } else { "missed" };
        table.add_row([target.what.clone(), format!("{:.3}", target.reached), wanted, met.into()]);
    }
    format!("\n{table}\n")
}
