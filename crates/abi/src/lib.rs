//! Layouts shared between processes: the ledger (statistics in shared memory), the profile while it is taken, and the settings that a
//! launched program reads from its environment.

mod activity;
mod commands;
mod handover;
mod hint_site;
mod ledger;
pub mod loader;
mod pin_requests;
pub mod profile;
mod roster;
mod run_link;
mod settings;
pub mod statistics;
mod tapes;
mod text_list;

pub use activity::{ACTIVITIES_MAX, ActivityRow, REGION_PAGES};
pub use commands::{Commands, PATH_CHANGES_MAX, PathChange};
pub use handover::{HandoverFile, addresses};
pub use hint_site::{HINT_SITES_MAX, HintSiteRow, SITE_NAME_BYTES};
pub use ledger::{
    BACKENDS_MAX, CacheLine, Counter, DATA_BYTES_NEEDED, FAULT_BUCKETS, LEDGER_MAGIC, LEDGER_VERSION, Ledger,
    MESSAGE_BYTES, MemoryLimit, Numbered, PROCESSES_MAX, PROCESSOR_WORDS, RowState, Share, TEXT_BYTES, TRACES_MAX,
    Text, TraceRow, bucket_of, bucket_upper_ns, file_id,
};
pub use pin_requests::{PIN_REQUESTS_MAX, PinRequest, PinRequestPhase, PinRequestState, PinRequests};
pub use roster::{ROSTER_NODES_MAX, ROSTERS_MAX, Roster};
pub use run_link::{LINK_USERS_MAX, RUN_LINKS_MAX, RunLink};
pub use settings::{
    EnvError, EvictName, FaultPathName, Form, GranularityName, HeapMode, LauncherSettings, PlacementName, PrefetchName,
    SETTINGS, Setting, Settings, Sources, parse_block, parse_cpus, parse_microset, parse_prefetch_cache, parse_switch,
    variables,
};
pub use statistics::backend::BackendRow;
pub use statistics::process::ProcessRow;
pub use tapes::{TAPES_MAX, TapePlace, TapeTable, TapeTaker};
pub use text_list::TextList;
