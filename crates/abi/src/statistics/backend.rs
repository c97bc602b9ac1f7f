//! The table of a backend's statistics, in one process.

use super::declare::{figures, json_name, peak_name, statistics};
use super::{Added, Statistic, Unit};
use crate::ledger::{CacheLine, Counter, Text};
use std::sync::atomic::Ordering::Relaxed;

statistics! {
    /// The figures of one backend of one process.
    row BackendRow;
    head {
        /// As the user wrote it.
        url: Text,
    }
    group figures = "From here on: figures, of the threads that store and load." {
        gauges {
            stored_bytes (stored_peak_bytes): Bytes = "Bytes that stored pages occupy.";
            pages (pages_peak): Pages = "Pages stored.";
            ram_bytes (ram_peak_bytes): Bytes = "RAM that it occupies.";
            same_filled_pages: Pages = "Same-filled pages stored.";
            plain_pages: Pages = "Uncompressed pages stored.";
            lacking_pages: Pages = "Pages at a memory node that have fewer copies than are wanted.";
            last_pages: Pages = "Pages that would be lost with a memory node.";
            copied_pages: Pages = "Pages copied to a memory node or away from it in the last ten seconds.";
            absent: Events = "Processes that a memory node has not answered since they began.";
            needed: Events = "Processes for which a memory node cannot be removed, or that do not know it.";
        }
        sums {
            bytes_in: Bytes = "Uncompressed bytes stored.";
            bytes_out: Bytes = "Uncompressed bytes loaded.";
            sent_bytes: Bytes = "Bytes of pages sent to a memory node: less than were stored where they are compressed for the link.";
            received_bytes: Bytes = "Bytes of pages that came from a memory node by messages.";
            recompressed_pages: Pages = "Stored pages that were compressed again, because they stayed.";
            recompression_saved_bytes: Bytes = "Bytes that these took less than before.";
            promoted_pages: Pages = "Pages that came from lower tiers because they were wanted again.";
            demoted_pages: Pages = "Pages that went to lower tiers to make room.";
            tier_changes: Events = "How often the path came to another tier because measured times changed or were forgotten.";
            losses: Events = "Losses of a memory node.";
            rebuilt_pages: Pages = "Pages copied to a memory node in place of lost replicas.";
            hedged_loads: Events = "Loads that were sent to another memory node, too, because this one was late.";
        }
        maxima {
            capacity_bytes: Bytes = "Bytes that may be stored at most; of a memory node, its quota, 0 while it is lost.";
            tier: Events = "Of several paths: the tier in which pages go there, from 1; 0: none do.";
            load_one_ns: Nanoseconds = "A page that is loaded alone from there, at best, where that is measured (`spread`, `auto`); 0: it is not known.";
            load_queue_ns: Nanoseconds = "What a page waits there for those before it, on average.";
            encrypted: Flag = "It receives encrypted pages only.";
            link_processes: Events = "Processes that used its modelled link at the same time, at most; 0: no link is modelled that processes share.";
        }
    }
    tail {}
}
