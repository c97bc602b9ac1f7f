//! Whose loads and stores are replayed: those of a workload, or of any program that valgrind has seen.

use crate::compression::Compressor;
use crate::filter::{Filter, MISSES_MAX};
use crate::lines;
use crate::parameters::{MEAN_RATIO, PAGE_BYTES};
use crate::workloads::{Trace, Workload};
use std::fs::File;
use std::io::{BufReader, stdin};
use std::path::{Path, PathBuf};

/// Where loads and stores are from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A program of the model's own, of this size.
    Workload {
        /// Which one.
        workload: &'static Workload,
        /// In its unit.
        size: u64,
    },
    /// Text of valgrind's lackey; `-`: standard input.
    Lines(PathBuf),
}

/// How much of it is taken, and with which data.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Of a workload's data.
    pub seed: u64,
    /// References before those that are measured.
    pub warm_up: u64,
    /// References that are measured.
    pub references: u64,
    /// What compresses samples of the data.
    pub compressor: Compressor,
    /// Cores that the program runs on.
    pub threads: u8,
    /// Programs that run at once, with equal parts of the last-level cache.
    pub programs: usize,
}

impl Extent {
    fn filter(&self, bytes: u64) -> Filter {
        Filter::new(bytes, self.warm_up, self.references).on(self.threads, self.programs)
    }
}

impl Source {
    /// What figures call it.
    pub fn name(&self) -> String {
        match self {
            Source::Workload { workload, .. } => workload.name.to_owned(),
            Source::Lines(path) => path.display().to_string(),
        }
    }

    /// What it does.
    pub fn what(&self) -> &'static str {
        match self {
            Source::Workload { workload, .. } => workload.what,
            Source::Lines(_) => "loads and stores recorded by valgrind's lackey",
        }
    }

    /// Its size and the unit of that.
    pub fn size(&self, trace: &Trace) -> (u64, &'static str) {
        match self {
            Source::Workload { workload, size } => (*size, workload.unit),
            Source::Lines(_) => (trace.stream.touched_pages.into(), "pages"),
        }
    }

    /// Whether its data are known, so that samples of them are compressed.
    pub fn has_data(&self) -> bool {
        matches!(self, Source::Workload { .. })
    }

    /// Runs or reads it.
    ///
    /// # Errors
    /// Why a file is of no use, or that more misses the LLC than is kept.
    pub fn trace(&self, extent: Extent) -> Result<Trace, String> {
        let trace = self.trace_of(extent)?;
        if trace.stream.is_cut {
            let (name, most) = (self.name(), MISSES_MAX / extent.programs);
            return Err(format!("{name}: more than {most} misses; take a smaller --references or --warm-up"));
        }
        Ok(trace)
    }

    fn trace_of(&self, extent: Extent) -> Result<Trace, String> {
        match self {
            Source::Workload { workload, size } => {
                Ok(workload.trace_through(*size, extent.seed, extent.compressor, |bytes| extent.filter(bytes)))
            }
            Source::Lines(path) => {
                let mut filter = extent.filter(0);
                let has_end = read(path, &mut filter).map_err(|why| format!("{}: {why}", path.display()))?;
                let stream = filter.finish();
                let measured_bytes = vec![u16::try_from(PAGE_BYTES).expect("a page"); stream.pages as usize];
                Ok(Trace { stream, measured_bytes, has_end })
            }
        }
    }

    /// Bytes of a page when compressed by the paper's ratio: that of the workload, or the mean.
    pub fn paper_bytes(&self, compressor: Compressor) -> u16 {
        match self {
            Source::Workload { workload, .. } => workload.paper_bytes(compressor),
            Source::Lines(_) => compressor.bytes_at(MEAN_RATIO),
        }
    }
}

fn read(path: &Path, filter: &mut Filter) -> Result<bool, String> {
    let read = if path == Path::new("-") {
        lines::read(stdin().lock(), filter)
    } else {
        let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
        lines::read(BufReader::with_capacity(1 << 20, file), filter)
    };
    read.map_err(|error| error.to_string())
}
