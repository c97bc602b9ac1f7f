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
    /// By [`list_of`] their backend: machines that run programs and have a processor left, by free memory.
    online: Vec<BTreeSet<(u64, u32)>>,
    /// Likewise: machines that run nothing.
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
    /// `None`: it has no far memory yet.
    backend: Option<usize>,
    /// When it is there, and has its far memory.
    ready_ms: u64,
    running: u32,
    local_mib: u64,
    far_mib: u64,
    bytes_per_second: u64,
}

/// Where machines with a backend are listed.
fn list_of(backend: Option<usize>) -> usize {
    backend.map_or(0, |backend| backend + 1)
}

impl Fleet {
    /// Machines that have not been used yet; `limits` of each kind of far memory.
    pub fn new(machines: u32, machine: Machine, limits: Vec<Limits>) -> Fleet {
        Fleet {
            machine,
            rows: vec![Row::default(); machines as usize],
            online: vec![BTreeSet::new(); limits.len() + 1],
            free: vec![BTreeSet::new(); limits.len() + 1],
            first_new: 0,
            limits,
        }
    }

    /// Whether a program may go to a machine, beside those that run there.
    fn accepts(&self, row: &Row, backend: Option<usize>, demand: &Demand) -> bool {
        let has_far = |limits: &Limits| {
            row.far_mib + demand.far_mib <= limits.far_mib
                && row.bytes_per_second + demand.far_bytes_per_second <= limits.bytes_per_second
        };
        row.running < self.machine.cores
            && row.local_mib + demand.local_mib <= self.machine.memory_mib
            && backend.is_none_or(|backend| has_far(&self.limits[backend]))
    }

    /// The lists of the machines that have a backend; without one, of all.
    fn lists(&self, backend: Option<usize>) -> std::ops::Range<usize> {
        match backend {
            Some(_) => list_of(backend)..list_of(backend) + 1,
            None => 0..self.free.len(),
        }
    }

    /// A machine with the backend that runs programs and takes one more: the one with the least memory left.
    pub fn online(&self, backend: Option<usize>, demand: &Demand) -> Option<u32> {
        let accepts = |machine: u32| self.accepts(&self.rows[machine as usize], backend, demand);
        let of_list = |list: &BTreeSet<(u64, u32)>| {
            let enough = list.range((demand.local_mib, 0)..).take(LOOKS_MAX);
            enough.copied().find(|(_, machine)| accepts(*machine))
        };
        let found = self.online[self.lists(backend)].iter().filter_map(of_list).min();
        found.map(|(_, machine)| machine)
    }

    /// A machine with the backend that runs nothing.
    pub fn free(&self, backend: Option<usize>, demand: &Demand) -> Option<u32> {
        let found = self.free[self.lists(backend)].iter().filter_map(|machines| machines.first()).min().copied();
        found.filter(|_| self.accepts(&Row::default(), backend, demand))
    }

    /// A machine with another backend that runs nothing.
    pub fn free_of_another(&self, backend: usize, demand: &Demand) -> Option<u32> {
        let others = self.free.iter().enumerate().filter(|(other, _)| *other != list_of(Some(backend)));
        let found = others.filter_map(|(_, machines)| machines.first()).min().copied();
        found.filter(|_| self.accepts(&Row::default(), Some(backend), demand))
    }

    /// A machine that was not used yet.
    pub fn new_one(&self, backend: Option<usize>, demand: &Demand) -> Option<u32> {
        let is_there = self.first_new < self.rows.len() && self.accepts(&Row::default(), backend, demand);
        is_there.then(|| u32::try_from(self.first_new).expect("as many as u32 counts"))
    }

    /// A program starts on a machine, which has this backend from now on; without one, what it had.
    pub fn start(&mut self, machine: u32, backend: Option<usize>, demand: &Demand) {
        self.forget(machine);
        let row = &mut self.rows[machine as usize];
        let stays = backend.is_none() || row.backend == backend;
        assert!(row.running == 0 || stays, "programs run with another backend there");
        row.backend = backend.or(row.backend);
        row.running += 1;
        row.local_mib += demand.local_mib;
        row.far_mib += demand.far_mib;
        row.bytes_per_second += demand.far_bytes_per_second;
        assert!(row.running <= self.machine.cores && row.local_mib <= self.machine.memory_mib, "more than it has");
        self.list(machine);
        self.first_new = self.first_new.max(machine as usize + 1);
    }

    /// A machine that runs nothing is new, or switched, and ready then.
    pub fn prepare(&mut self, machine: u32, ready_ms: u64) {
        self.rows[machine as usize].ready_ms = ready_ms;
    }

    /// When programs can run on a machine.
    pub fn ready_ms(&self, machine: u32) -> u64 {
        self.rows[machine as usize].ready_ms
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
        self.online[list_of(row.backend)].remove(&(self.machine.memory_mib - row.local_mib, machine));
        self.free[list_of(row.backend)].remove(&machine);
    }

    fn list(&mut self, machine: u32) {
        let row = &self.rows[machine as usize];
        if row.running == 0 {
            self.free[list_of(row.backend)].insert(machine);
        } else if row.running < self.machine.cores {
            self.online[list_of(row.backend)].insert((self.machine.memory_mib - row.local_mib, machine));
        }
    }
}
