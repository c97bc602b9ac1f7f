//! The systems that are compared, and in which variants the kernel's are tried.

use crate::error::BenchError;
use crate::rivals::swapfile::SwapFile;
use crate::rivals::sysctl;
use crate::rivals::undo::{Changes, Guard};
use crate::rivals::zram::{self, Zram};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `vm.page-cluster` values to try: no read-ahead, and the kernel's default of 2^3 pages.
const PAGE_CLUSTERS: [u8; 2] = [0, 3];

/// A system under test.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// The worker under `hinterland run`.
    Hinterland,
    /// Kernel swap on compressed RAM under a cgroup limit.
    Zram,
    /// Kernel swap to a file under a cgroup limit.
    SsdSwap,
    /// No limit.
    AllLocal,
}

impl System {
    /// Whether it is the kernel that pages.
    pub fn is_kernel_swap(self) -> bool {
        matches!(self, System::Zram | System::SsdSwap)
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |v| v.get_name()))
    }
}

/// A system in one of its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Variant {
    /// As the command line says.
    Hinterland,
    /// With one compressor and read-ahead.
    Zram {
        /// Of those that the kernel offers.
        compressor: String,
        /// Read-ahead.
        page_cluster: u8,
    },
    /// With one read-ahead.
    SsdSwap {
        /// Read-ahead.
        page_cluster: u8,
    },
    /// Has no settings.
    AllLocal,
}

impl Variant {
    /// All variants of `system`.
    ///
    /// # Errors
    /// The kernel has no zram.
    pub fn all_of(system: System) -> Result<Vec<Variant>, BenchError> {
        Ok(match system {
            System::Hinterland => vec![Variant::Hinterland],
            System::AllLocal => vec![Variant::AllLocal],
            System::SsdSwap => PAGE_CLUSTERS.map(|page_cluster| Variant::SsdSwap { page_cluster }).to_vec(),
            System::Zram => {
                let pairs = zram::compressors()?.into_iter().flat_map(|compressor| {
                    PAGE_CLUSTERS
                        .map(move |page_cluster| Variant::Zram { compressor: compressor.clone(), page_cluster })
                });
                pairs.collect()
            }
        })
    }

    /// Whose variant it is.
    pub fn system(&self) -> System {
        match self {
            Variant::Hinterland => System::Hinterland,
            Variant::Zram { .. } => System::Zram,
            Variant::SsdSwap { .. } => System::SsdSwap,
            Variant::AllLocal => System::AllLocal,
        }
    }

    /// Sets the machine up for one run; dropped, it is as before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(&self, swap_bytes: u64, file: Option<&SwapFile>, changes: &Changes) -> Result<InPlace, BenchError> {
        let mut place = InPlace::default();
        match self {
            Variant::Hinterland | Variant::AllLocal => {}
            Variant::Zram { compressor, page_cluster } => {
                place.sysctl = Some(sysctl::set_page_cluster(*page_cluster, changes)?);
                place.zram = Some(Zram::begin(compressor, swap_bytes, changes)?);
            }
            Variant::SsdSwap { page_cluster } => {
                let file = file.expect("a swap file is written before the first run that needs it");
                place.sysctl = Some(sysctl::set_page_cluster(*page_cluster, changes)?);
                place.file = Some(file.begin(changes)?);
            }
        }
        Ok(place)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Hinterland | Variant::AllLocal => Ok(()),
            Variant::Zram { compressor, page_cluster } => write!(f, "{compressor}, page-cluster {page_cluster}"),
            Variant::SsdSwap { page_cluster } => write!(f, "page-cluster {page_cluster}"),
        }
    }
}

/// What a variant put in place; order of fields is order of taking back.
#[derive(Default)]
pub struct InPlace {
    zram: Option<Zram>,
    file: Option<Guard>,
    sysctl: Option<Guard>,
}
