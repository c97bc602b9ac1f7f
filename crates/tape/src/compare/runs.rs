//! The pages of all runs, in order, by slots that they share.

use super::stretch::Stretch;
use super::{AGREES_PERMILLE, CompareError, Run, permille};
use crate::tape::PageRange;
use crate::{Region, Slots, Trace};
use std::collections::BTreeMap;

/// A page is in many sets if it is in more than this part of those that differ, and in more than so many.
const MANY_PART: usize = 4;
const MANY_MIN: usize = 2;

/// See the module.
#[derive(Debug, Default)]
pub struct Runs {
    slots: Slots,
    /// By run: the slots of its references, of all threads.
    touched: Vec<Vec<u32>>,
    regions: Vec<Region>,
}

impl Runs {
    /// Reads traces.
    pub fn read(traces: &[Trace<'_>]) -> Result<Runs, CompareError> {
        let mut runs = Runs::default();
        for (index, trace) in traces.iter().enumerate() {
            let (mut touched, mut references) = (Vec::new(), trace.references());
            // By the trace's numbers of its regions.
            let mut numbers = Vec::new();
            while let Some(reference) = references.next() {
                let reference = reference.map_err(|source| CompareError::Trace { index, source })?;
                for region in &references.regions()[numbers.len()..] {
                    numbers.push(runs.number(region));
                }
                touched.push(runs.slots.slot(numbers[reference.region as usize], reference.page));
            }
            if touched.is_empty() {
                return Err(CompareError::Empty { index });
            }
            runs.touched.push(touched);
        }
        Ok(runs)
    }

    /// The number of a region for all runs: those of one name are the same.
    fn number(&mut self, region: &Region) -> u32 {
        let at = self.regions.iter().position(|known| known.name == region.name).unwrap_or_else(|| {
            self.regions.push(region.clone());
            self.regions.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// By run: the slots of its references.
    pub fn touched(&self) -> &[Vec<u32>] {
        &self.touched
    }

    /// Slots: whole chunks.
    pub fn slots(&self) -> usize {
        self.slots.count()
    }

    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// What each run is.
    pub fn figures(&self) -> Vec<Run> {
        let figures = |touched: &Vec<u32>| {
            let (mut seen, mut pages) = (vec![false; self.slots()], 0);
            for slot in touched {
                pages += u64::from(!std::mem::replace(&mut seen[*slot as usize], true));
            }
            Run { references: touched.len() as u64, pages }
        };
        self.touched.iter().map(figures).collect()
    }

    /// By stretch: what all runs touch from where it begins to where the next one does; where it agrees, also what they touch where it
    /// comes again.
    pub fn sets(&self, stretches: &[Stretch]) -> Vec<Vec<PageRange>> {
        let mut kinds = Kinds::new(self.slots());
        let kind_of = |(stretch, set): (&Stretch, Vec<u32>)| stretch.agrees.then(|| kinds.add(set));
        let kind_of: Vec<Option<usize>> = stretches.iter().zip(self.common(stretches)).map(kind_of).collect();
        let ranges: Vec<Vec<PageRange>> = kinds.of_few().iter().map(|set| self.ranges(set)).collect();
        kind_of.into_iter().map(|kind| kind.map_or(Vec::new(), |kind| ranges[kind].clone())).collect()
    }

    /// By stretch: the slots of what all runs touch from where it begins to where the next one does.
    fn common(&self, stretches: &[Stretch]) -> Vec<Vec<u32>> {
        let mut sets = Vec::with_capacity(stretches.len());
        // By slot: in which stretch it was found last, and in how many runs in a row.
        let mut found = vec![(0_usize, 0_usize); self.slots()];
        for (at, stretch) in stretches.iter().enumerate() {
            let mut set = Vec::new();
            for (run, touched) in self.touched.iter().enumerate() {
                let end = stretches.get(at + 1).map_or(touched.len(), |next| next.begins[run]);
                for slot in touched.get(stretch.begins[run]..end).unwrap_or_default() {
                    let found = &mut found[*slot as usize];
                    let runs = if found.0 == at + 1 { found.1 } else { 0 };
                    if runs == run {
                        *found = (at + 1, run + 1);
                        set.extend((run + 1 == self.touched.len()).then_some(*slot));
                    }
                }
            }
            sets.push(set);
        }
        sets
    }

    /// Slots as ranges of pages, in ascending order.
    fn ranges(&self, slots: &[u32]) -> Vec<PageRange> {
        let mut pages: Vec<(u32, u32)> = slots.iter().map(|slot| self.slots.page(*slot)).collect();
        pages.sort_unstable();
        let neighbours = |a: &(u32, u32), b: &(u32, u32)| a.0 == b.0 && a.1 + 1 == b.1;
        let range = |run: &[(u32, u32)]| {
            let (region, first_page) = run[0];
            PageRange { region, first_page, pages: u32::try_from(run.len()).unwrap_or(u32::MAX) }
        };
        pages.chunk_by(neighbours).map(range).collect()
    }
}

/// Phases that come again: in a loop of phases their sets agree, too, and what one occurrence lacks, another may have.
struct Kinds {
    /// By kind: the slots of its set.
    sets: Vec<Vec<u32>>,
    /// By slot: the last kind that has it, plus one.
    of: Vec<usize>,
}

impl Kinds {
    fn new(slots: usize) -> Kinds {
        Kinds { sets: Vec::new(), of: vec![0; slots] }
    }

    /// The sets, without pages that are in many of them: these stay local by themselves, and say nothing of where the program is.
    fn of_few(mut self) -> Vec<Vec<u32>> {
        let mut counts = vec![0_usize; self.of.len()];
        self.sets.iter().flatten().for_each(|slot| counts[*slot as usize] += 1);
        let most = (self.sets.len() / MANY_PART).max(MANY_MIN);
        self.sets.iter_mut().for_each(|set| set.retain(|slot| counts[*slot as usize] <= most));
        self.sets
    }

    /// Adds a phase's set to the kind that agrees with it, or as a new one; returns which.
    fn add(&mut self, set: Vec<u32>) -> usize {
        let mut votes = BTreeMap::new();
        for slot in &set {
            *votes.entry(self.of[*slot as usize]).or_insert(0_usize) += 1;
        }
        let most = votes.into_iter().filter(|(kind, _)| *kind > 0).max_by_key(|(_, pages)| *pages);
        let agrees = |(kind, pages): &(usize, usize)| {
            permille(*pages as u64, self.sets[kind - 1].len().max(set.len()) as u64) >= AGREES_PERMILLE
        };
        let kind = most.filter(agrees).map_or(self.sets.len() + 1, |(kind, _)| kind);
        if kind > self.sets.len() {
            self.sets.push(Vec::new());
        }
        let of_kind = &mut self.sets[kind - 1];
        of_kind.extend(set.into_iter().filter(|slot| std::mem::replace(&mut self.of[*slot as usize], kind) != kind));
        // A page that another kind has, too, may have been here before.
        of_kind.sort_unstable();
        of_kind.dedup();
        kind - 1
    }
}
