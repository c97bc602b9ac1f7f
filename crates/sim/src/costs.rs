//! What the pager's work costs, beside the link. Measured on the 2-vCPU development VM, Linux 6.18, ±20 %.
//!
//! The evictor and the read-ahead thread are taken to have processors of their own.

use hinterland_paging::FaultPath;

/// Processor time of single steps, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A fault that needs nothing from far memory, from the touch to the program's next instruction.
    pub fault_ns: u64,
    /// What a major fault costs beyond it, without its time on the link: page table, policy, checksum.
    pub major_extra_ns: u64,
    /// A page mapped in a batch.
    pub map_page_ns: u64,
    /// A run of neighbouring victims that is moved out of the program.
    pub move_run_ns: u64,
    /// Each page of it.
    pub move_page_ns: u64,
    /// A page that is written back or dropped: checksum, tables, its frame.
    pub write_back_page_ns: u64,
}

impl Costs {
    /// The costs of a fault path.
    ///
    /// - `fault_ns`: measured for the first prototypes, before decision 0011. Inline 2.9–3.0 µs; monitor 4–12.7 µs, the middle.
    /// - `major_extra_ns`: what is left of a major fault with its eviction beside (decision 0011: 5.2 µs inline, 10.4 µs with the
    ///   monitor) after `fault_ns` and 1.0 µs for decompression, which plain pages do not need.
    /// - `map_page_ns`, `move_run_ns`, `move_page_ns`: decision 0001, COPY and MOVE of 64 neighbours, MOVE of one page.
    ///   A victim that leaves by copy costs as much: what its block saves (decision 0012) are interruptions of other processors, which
    ///   are not modelled.
    /// - `write_back_page_ns`: 4.1 µs of the evictor's time for a page that leaves in random access (decision 0011), less its MOVE
    ///   and 1.27 µs of compression.
    pub fn of(path: FaultPath) -> Costs {
        let (fault_ns, major_extra_ns) = match path {
            FaultPath::Inline => (2_950, 1_250),
            FaultPath::Monitor => (8_350, 1_050),
        };
        Costs {
            fault_ns,
            major_extra_ns,
            map_page_ns: 760,
            move_run_ns: 830,
            move_page_ns: 90,
            write_back_page_ns: 2_000,
        }
    }
}
