//! The machines of a cluster: what is free on each, in the order in which dispatching looks for it.

use super::demands::Demand;
use std::collections::BTreeSet;

/// What a machine has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// A program takes one.
    pub cores: u32,
    /// Local memory.
    pub memory_mib: u64,
}

/// Machines that are looked at for one program, of those with a backend that have enough memory: others may lack far memory or bandwidth.
const LOOKS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Fleet {
    machine: Machine,
    rows: Vec<Row>,
    /// By backend: machines that run programs and have a processor left, by free memory.
    online: Vec<BTreeSet<(u64, u32)>>,
    /// By backend: machines that run nothing.
    free: Vec<BTreeSet<u32>>,
    /// Machines from here on have not been used yet.
    first_new: usize,
    limits: Vec<Limits>,
}

/// What a machine has of a kind of far memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Capacity.
    pub far_mib: u64,
    /// Of the path.
    pub bytes_per_second: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    backend: usize,
    running: u32,
    local_mib: u64,
    far_mib: u64,
    bytes_per_second: u64,
}

impl Fleet {
    /// Machines that have not been used yet; `limits` of each kind of far memory.
    pub fn new(machines: u32, machine: Machine, limits: Vec<Limits>) -> Fleet {
        Fleet {
            machine,
            rows: vec![Row::default(); machines as usize],
            online: vec![BTreeSet::new(); limits.len()],
            free: vec![BTreeSet::new(); limits.len()],
            first_new: 0,
            limits,
        }
    }

    /// Whether a program may go to a machine, beside those that run there.
    fn accepts(&self, row: &Row, backend: usize, demand: &Demand) -> bool {
        let limits = &self.limits[backend];
        row.running < self.machine.cores
            && row.local_mib + demand.local_mib <= self.machine.memory_mib
            && row.far_mib + demand.far_mib <= limits.far_mib
            && row.bytes_per_second + demand.far_bytes_per_second <= limits.bytes_per_second
    }

    /// A machine with the backend that runs programs and takes one more: the one with the least memory left.
    pub fn online(&self, backend: usize, demand: &Demand) -> Option<u32> {
        let enough = self.online[backend].range((demand.local_mib, 0)..).take(LOOKS_MAX);
        enough.map(|(_, machine)| *machine).find(|machine| self.accepts(&self.rows[*machine as usize], backend, demand))
    }

    /// A machine with the backend that runs nothing.
    pub fn free(&self, backend: usize, demand: &Demand) -> Option<u32> {
        self.free[backend].first().copied().filter(|_| self.accepts(&Row::default(), backend, demand))
    }

    /// A machine with another backend that runs nothing.
    pub fn free_of_another(&self, backend: usize, demand: &Demand) -> Option<u32> {
        let others = self.free.iter().enumerate().filter(|(other, _)| *other != backend);
        let found = others.filter_map(|(_, machines)| machines.first()).min().copied();
        found.filter(|_| self.accepts(&Row::default(), backend, demand))
    }

    /// A machine that was not used yet.
    pub fn new_one(&self, backend: usize, demand: &Demand) -> Option<u32> {
        let is_there = self.first_new < self.rows.len() && self.accepts(&Row::default(), backend, demand);
        is_there.then(|| u32::try_from(self.first_new).expect("as many as u32 counts"))
    }

    /// A program starts on a machine, which has this backend from now on.
    pub fn start(&mut self, machine: u32, backend: usize, demand: &Demand) {
        self.forget(machine);
        let row = &mut self.rows[machine as usize];
        assert!(row.running == 0 || row.backend == backend, "programs run with another backend there");
        row.backend = backend;
        row.running += 1;
        row.local_mib += demand.local_mib;
        row.far_mib += demand.far_mib;
        row.bytes_per_second += demand.far_bytes_per_second;
        assert!(row.running <= self.machine.cores && row.local_mib <= self.machine.memory_mib, "more than it has");
        self.list(machine);
        self.first_new = self.first_new.max(machine as usize + 1);
    }

    /// A program that was started there has ended.
    pub fn end(&mut self, machine: u32, demand: &Demand) {
        self.forget(machine);
        let row = &mut self.rows[machine as usize];
        row.running -= 1;
        row.local_mib -= demand.local_mib;
        row.far_mib -= demand.far_mib;
        row.bytes_per_second -= demand.far_bytes_per_second;
        self.list(machine);
    }

    /// Processors in use, and local memory in MiB, over all machines.
    pub fn used(&self) -> (u64, u64) {
        self.rows.iter().fold((0, 0), |(cores, mib), row| (cores + u64::from(row.running), mib + row.local_mib))
    }

    fn forget(&mut self, machine: u32) {
        let row = &self.rows[machine as usize];
        self.online[row.backend].remove(&(self.machine.memory_mib - row.local_mib, machine));
        self.free[row.backend].remove(&machine);
    }

    fn list(&mut self, machine: u32) {
        let row = &self.rows[machine as usize];
        if row.running == 0 {
            self.free[row.backend].insert(machine);
        } else if row.running < self.machine.cores {
            self.online[row.backend].insert((self.machine.memory_mib - row.local_mib, machine));
        }
    }
}
