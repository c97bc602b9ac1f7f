//! What `--costs` states: files for it are read here, because the library reads none, and each URL becomes the one by which the library knows the path.

use super::FarNames;
use super::merge::Merged;
use crate::advise::stated_costs;
use hinterland_abi::{PlacementName, Settings, variables};
use hinterland_backend::{UrlError, kind, parse, stated_cost};
use std::path::{Path, PathBuf};

/// Puts what files for `--costs` say in their place and returns the files. Where pages do not go by costs, nothing looks at them, and as a flag
/// `--costs` is refused; in a variable or the settings file it holds for the runs with `--placement auto`.
pub fn state(settings: &mut Settings, names: FarNames, merged: &Merged) -> Result<Vec<PathBuf>, String> {
    if settings.placement != PlacementName::Auto {
        return match merged.is_flag(variables::COSTS) {
            true => Err("pages go by costs with --placement auto alone: give that, too, or leave it out".into()),
            false => Ok(Vec::new()),
        };
    }
    let (mut stated, mut files) = (Vec::new(), Vec::new());
    for written in &settings.costs {
        match stated_cost(written) {
            Ok(_) => stated.push(known(written, names)?),
            Err(why) if written.contains('=') && !Path::new(written).exists() => return Err(why),
            Err(_) => {
                let file = PathBuf::from(written);
                for cost in stated_costs(&file)? {
                    stated.push(known(&cost, names).map_err(|why| format!("{written}: {why}"))?);
                }
                files.push(file);
            }
        }
    }
    settings.costs = stated;
    Ok(files)
}

/// `URL=COST` with the URL by which the run's processes know the path. A kind of far memory stays as it is, and a URL that cannot be had, as those
/// with HOST and NODE in the example.
fn known(stated: &str, names: FarNames) -> Result<String, String> {
    if stated.contains(char::is_whitespace) {
        return Err(format!("'{stated}' contains a space; write %20 for a blank in a path"));
    }
    let (of, cost) = stated_cost(stated)?;
    if let Err(unknown @ UrlError::Scheme { .. }) = parse(&format!("{}:", kind(&of))) {
        return Err(unknown.to_string());
    }
    Ok(names.known("--costs", &of).map_or_else(|_| stated.to_owned(), |url| format!("{url}={cost}")))
}
