//! Where pages live when they are not local.
//!
//! A [`Backend`] stores whole pages and gives each a [`Location`]; the pager keeps the location and a checksum in its page
//! table. Backends know nothing of page states, faults or budgets.

mod codec;
mod coded;
mod compressed;
mod contract;
mod counters;
mod decorate;
mod file;
mod link_compression;
mod mapping;
mod modelled_link;
mod node;
mod node_error;
mod open;
mod paths;
mod reference;
mod same_filled;
pub mod samples;
mod sealed;
mod shard;
mod sync;
mod url;

pub use codec::CodecName;
pub use coded::{Coded, ErasureCode};
pub use compressed::{Compressed, Recompression};
pub use contract::{
    Backend, BackendUsage, ForkSide, FullCause, GRANULE_BYTES, GRANULES, GranuleSet, LoadError, LoadItem, Location,
    Patch, Priority, StoreError,
};
pub use decorate::Delay;
pub use file::{FileBackend, FileOptions, FileWidth, IoMethod};
pub use link_compression::{LinkCompressed, LinkCompression};
pub use modelled_link::{Direction, Duplex, Link, LinkError, LinkModel, LinkShare, bandwidth};
pub use node::{
    AnswerLimit, DEMAND_LANES, DEMAND_LANES_MAX, Membership, NODES_MAX, NodeAddress, NodePool, Secured, TIMEOUT_S_MAX,
    Timing,
};
pub use node_error::NodeError;
pub use open::{OpenError, OpenOptions, check, default_file, open, open_with, stated_cost};
pub use paths::{PAGES_MAX, PATHS_MAX, Paths};
pub use reference::Reference;
pub use sealed::Sealed;
pub use shard::Shard;
pub use url::{BackendUrl, Decoration, Scheme, UrlError, kind, names_nodes, parse, set_replicas};
