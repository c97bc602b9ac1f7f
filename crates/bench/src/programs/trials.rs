//! Which limit and which settings the kernel's swap gets: the limit with which it takes as much RAM in all as Hinterland did, and of the
//! settings the one with which it is fastest there.

use super::run::Run;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How often a limit is tried.
const LIMITS_MAX: usize = 5;
/// Total RAM of the trial that is taken, beside Hinterland's: never less than this …
pub const RAM_LEAST: f64 = 0.98;
/// … and if that can be had, not more than this.
const RAM_MOST: f64 = 1.04;
/// zram's tables and the header of the swap area: with no more than this, nothing was swapped.
const EMPTY_SWAP_BYTES: u64 = 256 << 10;
/// The least limit that is tried.
const LIMIT_LEAST_BYTES: u64 = 8 << 20;
/// A byte of limit more adds a byte of resident memory and frees its compressed copy; so much remains at least, whatever compresses how badly.
const SLOPE_LEAST: f64 = 0.2;

/// A setting of the kernel's swap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// zram's; of a file none.
    pub compressor: String,
    /// `vm.page-cluster`.
    pub page_cluster: u8,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, page-cluster {}", self.compressor, self.page_cluster)
    }
}

/// Every compressor with every page cluster.
pub fn settings(compressors: &[String], page_clusters: &[u8]) -> Vec<Setting> {
    let of = |compressor: &String| {
        let compressor = compressor.clone();
        page_clusters.iter().map(move |cluster| Setting { compressor: compressor.clone(), page_cluster: *cluster })
    };
    compressors.iter().flat_map(of).collect()
}

/// One trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trial {
    #[serde(flatten)]
    pub setting: Setting,
    pub limit_bytes: u64,
    /// None when it did not finish; `ended` says why.
    pub seconds: Option<f64>,
    pub total_ram_peak_bytes: Option<u64>,
    pub zram_peak_bytes: Option<u64>,
    /// In the swap area.
    pub swap_peak_bytes: Option<u64>,
    pub ended: String,
}

impl Trial {
    /// Of an outcome.
    pub fn of(setting: &Setting, limit_bytes: u64, outcome: &Result<Run, String>) -> Trial {
        let run = outcome.as_ref().ok();
        Trial {
            setting: setting.clone(),
            limit_bytes,
            seconds: run.map(|run| run.seconds),
            total_ram_peak_bytes: run.map(|run| run.total_ram_peak_bytes),
            zram_peak_bytes: run.map(|run| run.zram_peak_bytes),
            swap_peak_bytes: run.map(|run| run.swap_peak_bytes),
            ended: run.map_or_else(|| outcome.as_ref().err().cloned().unwrap_or_default(), |_| "ok".into()),
        }
    }

    /// Whether it had no less RAM than it should, or as much as it could use.
    fn is_fair(&self, wanted_bytes: u64) -> bool {
        self.total_ram_peak_bytes.is_some_and(|total| ratio(total, wanted_bytes) >= RAM_LEAST)
            || self.swap_peak_bytes.is_some_and(is_empty)
    }
}

/// Whether a swap area with so many bytes holds no pages.
pub fn is_empty(swap_bytes: u64) -> bool {
    swap_bytes <= EMPTY_SWAP_BYTES
}

#[allow(clippy::cast_precision_loss, reason = "bytes of a machine")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

/// A search for the limit with which the total RAM is `wanted_bytes`.
pub struct Search {
    pub wanted_bytes: u64,
    /// The native peak of total RAM: with it as limit, nothing is swapped.
    pub native_bytes: u64,
}

impl Search {
    /// Tries settings through `run`, which gives a setting and a limit: each compressor's own limit is searched with its first setting, its others get
    /// that limit; compressors that store less get more of the program. The fastest of those is taken, none if none finished.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn choose<E>(
        &self,
        settings: &[Setting],
        trials: &mut Vec<Trial>,
        mut run: impl FnMut(&Setting, u64) -> Result<Trial, E>,
    ) -> Result<Option<Trial>, E> {
        let (mut limit_bytes, mut found) = (self.first(), Vec::new());
        for of_compressor in settings.chunk_by(|a, b| a.compressor == b.compressor) {
            let mut searched = vec![run(&of_compressor[0], limit_bytes)?];
            while let Some(next) = self.next(&searched) {
                searched.push(run(&of_compressor[0], next)?);
            }
            let best = self.best(&searched).cloned();
            trials.extend(searched);
            let Some(best) = best else { continue };
            limit_bytes = best.limit_bytes;
            found.push(best);
            for setting in &of_compressor[1..] {
                found.push(run(setting, limit_bytes)?);
                trials.extend(found.last().cloned());
            }
        }
        Ok(self.fastest(&found).cloned())
    }

    /// Of trials with different settings, the fastest that has no less RAM than Hinterland; when all have less, that with the most.
    fn fastest<'a>(&self, found: &'a [Trial]) -> Option<&'a Trial> {
        let seconds = |trial: &&Trial| trial.seconds.unwrap_or(f64::INFINITY);
        let fair = found.iter().filter(|trial| trial.is_fair(self.wanted_bytes));
        fair.min_by(|a, b| seconds(a).total_cmp(&seconds(b))).or_else(|| self.best(found))
    }

    /// The first limit to try: what is left when pages are stored at a third of their size.
    pub fn first(&self) -> u64 {
        let stored = self.native_bytes.saturating_sub(self.wanted_bytes) / 2;
        self.clamp(self.wanted_bytes.saturating_sub(stored))
    }

    /// The next limit after `trials`; none when one of them is good enough, or enough were made.
    pub fn next(&self, trials: &[Trial]) -> Option<u64> {
        let last = trials.last()?;
        if trials.len() >= LIMITS_MAX || trials.iter().any(|trial| self.is_good(trial)) {
            return None;
        }
        let (Some(total), Some(zram)) = (last.total_ram_peak_bytes, last.zram_peak_bytes) else {
            // It did not finish: too small.
            return Some(self.clamp(last.limit_bytes + last.limit_bytes / 2)).filter(|next| *next != last.limit_bytes);
        };
        let swapped = self.native_bytes.saturating_sub(last.limit_bytes).max(1);
        let slope = (1.0 - ratio(zram, swapped)).clamp(SLOPE_LEAST, 1.0);
        let step = |bytes: u64| {
            #[allow(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "bytes of a machine, positive"
            )]
            let step = (bytes as f64 / slope) as u64;
            step
        };
        let next = if total < self.wanted_bytes {
            last.limit_bytes + step(self.wanted_bytes - total)
        } else {
            last.limit_bytes.saturating_sub(step(total - self.wanted_bytes))
        };
        Some(self.clamp(next)).filter(|next| trials.iter().all(|trial| trial.limit_bytes != *next))
    }

    fn is_good(&self, trial: &Trial) -> bool {
        let total = trial.total_ram_peak_bytes.map_or(0.0, |total| ratio(total, self.wanted_bytes));
        (RAM_LEAST..=RAM_MOST).contains(&total) || (trial.swap_peak_bytes.is_some_and(is_empty) && total <= RAM_MOST)
    }

    /// Of the trials, that with the least RAM that is no less than Hinterland's; when all have less, that with the most.
    pub fn best<'a>(&self, trials: &'a [Trial]) -> Option<&'a Trial> {
        let total = |trial: &&Trial| trial.total_ram_peak_bytes;
        let finished = || trials.iter().filter(|trial| trial.total_ram_peak_bytes.is_some());
        finished()
            .filter(|trial| trial.is_fair(self.wanted_bytes))
            .min_by_key(total)
            .or_else(|| finished().max_by_key(total))
    }

    fn clamp(&self, limit_bytes: u64) -> u64 {
        // Copies of files are charged too.
        limit_bytes.clamp(LIMIT_LEAST_BYTES, (self.native_bytes * 2).max(LIMIT_LEAST_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Pages that compress to so many percent of their size; `files` are copies of files that are charged.
    fn trial(limit: u64, native: u64, percent: u64, files: u64) -> Trial {
        let resident = limit.saturating_sub(files).min(native);
        let zram = (native - resident) * percent / 100 + 12288;
        Trial {
            setting: Setting { compressor: "lz4".into(), page_cluster: 0 },
            limit_bytes: limit,
            seconds: Some(1.0),
            total_ram_peak_bytes: Some(resident + zram),
            zram_peak_bytes: Some(zram),
            swap_peak_bytes: Some(zram),
            ended: "ok".into(),
        }
    }

    fn searched(wanted: u64, native: u64, percent: u64, files: u64) -> (Vec<Trial>, Trial) {
        let search = Search { wanted_bytes: wanted, native_bytes: native };
        let mut trials = vec![trial(search.first(), native, percent, files)];
        while let Some(limit) = search.next(&trials) {
            trials.push(trial(limit, native, percent, files));
        }
        let best = search.best(&trials).unwrap().clone();
        (trials, best)
    }

    #[test]
    fn the_limit_is_found_whatever_compresses_how() {
        for percent in [5, 33, 50, 80] {
            for wanted in [120 * MIB, 180 * MIB, 230 * MIB] {
                let (trials, best) = searched(wanted, 256 * MIB, percent, 20 * MIB);
                // What does not fit even when all is compressed cannot be had.
                let least = 256 * MIB * percent / 100 + LIMIT_LEAST_BYTES;
                if wanted > least + 10 * MIB {
                    let share = ratio(best.total_ram_peak_bytes.unwrap(), wanted);
                    assert!(
                        (RAM_LEAST..=RAM_MOST).contains(&share),
                        "{percent} % {} MiB: {share} {trials:?}",
                        wanted / MIB
                    );
                }
                assert!(trials.len() <= LIMITS_MAX);
            }
        }
    }

    /// A file holds pages as they are, and takes no RAM.
    #[test]
    fn the_limit_is_found_for_a_file_too() {
        let search = Search { wanted_bytes: 150 * MIB, native_bytes: 256 * MIB };
        let on_disk = |limit: u64| Trial {
            total_ram_peak_bytes: Some(limit),
            zram_peak_bytes: Some(0),
            swap_peak_bytes: Some(256 * MIB - limit),
            ..trial(limit, 256 * MIB, 100, 0)
        };
        let mut trials = vec![on_disk(search.first())];
        assert!(!trials[0].is_fair(150 * MIB), "less RAM, and it swapped: {trials:?}");
        while let Some(limit) = search.next(&trials) {
            trials.push(on_disk(limit));
        }
        assert_eq!((trials.len(), search.best(&trials).unwrap().limit_bytes), (2, 150 * MIB));
    }

    #[test]
    fn a_rival_with_room_for_all_is_not_given_more() {
        let (trials, best) = searched(300 * MIB, 256 * MIB, 100, 0);
        assert!(best.swap_peak_bytes.is_some_and(is_empty));
        assert!(trials.len() <= 2, "{trials:?}");
    }

    /// A setting's compressor and page cluster, the percent to which it compresses, and seconds by its limit.
    type Kind = (&'static str, u8, u64, fn(u64) -> f64);

    /// What `choose` takes of these.
    fn chosen(of: &[Kind]) -> (Option<Trial>, Vec<Trial>) {
        let search = Search { wanted_bytes: 128 * MIB, native_bytes: 256 * MIB };
        let setting = |(compressor, page_cluster, ..): &Kind| Setting {
            compressor: (*compressor).into(),
            page_cluster: *page_cluster,
        };
        let run = |given: &Setting, limit: u64| -> Result<Trial, ()> {
            let (.., percent, seconds) = of.iter().find(|one| setting(one) == *given).unwrap();
            Ok(Trial { setting: given.clone(), seconds: Some(seconds(limit)), ..trial(limit, 256 * MIB, *percent, 0) })
        };
        let mut trials = Vec::new();
        (search.choose(&of.iter().map(setting).collect::<Vec<_>>(), &mut trials, run).unwrap(), trials)
    }

    #[test]
    fn compressors_are_compared_at_equal_ram() {
        // With the limit of the first the second has more RAM in all, and is quicker; with as much RAM it is slower.
        let weak = |limit: u64| if limit >= 60 * MIB { 0.9 } else { 1.2 };
        let (taken, trials) = chosen(&[("strong", 0, 25, |_| 1.0), ("weak", 0, 40, weak)]);
        assert!(
            trials.iter().any(|trial| trial.seconds == Some(0.9))
                && trials.iter().any(|trial| trial.seconds == Some(1.2))
        );
        assert_eq!(taken.unwrap().setting.compressor, "strong");
        // The other way round it is what a lower limit hides.
        let strong = |limit: u64| if limit >= 70 * MIB { 0.9 } else { 1.2 };
        let (taken, _) = chosen(&[("weak", 0, 40, |_| 1.0), ("strong", 0, 25, strong)]);
        assert_eq!(taken.unwrap().setting.compressor, "strong");
    }

    #[test]
    fn a_setting_with_less_ram_is_not_taken_for_its_speed() {
        let (taken, trials) = chosen(&[("lz4", 0, 30, |_| 1.0), ("lz4", 3, 10, |_| 0.5), ("lz4", 5, 31, |_| 0.8)]);
        assert_eq!(taken.unwrap().setting.page_cluster, 5);
        let limits: Vec<u64> = trials.iter().rev().take(3).map(|trial| trial.limit_bytes).collect();
        assert!(limits.iter().all(|limit| *limit == limits[0]), "{limits:?}");
        let (taken, _) = chosen(&[("lz4", 0, 30, |_| 1.0)]);
        assert_eq!(taken.unwrap().seconds, Some(1.0));
    }

    #[test]
    fn the_rival_never_gets_less_if_that_can_be_had() {
        let search = Search { wanted_bytes: 100 * MIB, native_bytes: 256 * MIB };
        let with =
            |total: u64| Trial { total_ram_peak_bytes: Some(total * MIB), ..trial(total * MIB, 256 * MIB, 30, 0) };
        let trials = [with(90), with(120), with(110)];
        assert_eq!(search.best(&trials).unwrap().total_ram_peak_bytes, Some(110 * MIB));
        assert_eq!(search.best(&trials[..1]).unwrap().total_ram_peak_bytes, Some(90 * MIB));
        let failed = Trial::of(&with(80).setting, 80 * MIB, &Err("killed".into()));
        assert_eq!(search.best(std::slice::from_ref(&failed)), None);
        assert_eq!(search.next(&[failed]), Some(120 * MIB));
    }
}
