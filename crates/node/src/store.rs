//! What may be lent, and to whom: counted before memory is taken.

use crate::turns::Turns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Slabs in use and the bound on them: of the node, or of one tenant.
#[derive(Debug)]
pub(crate) struct Account {
    used: AtomicU64,
    bound: AtomicU64,
    /// The node ends: what it lent goes with its last user.
    over: AtomicBool,
}

impl Account {
    pub(crate) fn new(bound_slabs: u64) -> Account {
        Account { used: AtomicU64::new(0), bound: AtomicU64::new(bound_slabs), over: AtomicBool::new(false) }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The node ends.
    pub(crate) fn end(&self) {
        self.over.store(true, Relaxed);
    }

    pub(crate) fn bound(&self) -> u64 {
        self.bound.load(Relaxed)
    }

    /// Changes the bound; what is in use stays so, even if it is more.
    pub(crate) fn set_bound(&self, bound_slabs: u64) {
        self.bound.store(bound_slabs, Relaxed);
    }

    fn take(&self) -> bool {
        self.used.fetch_update(Relaxed, Relaxed, |used| (used < self.bound()).then_some(used + 1)).is_ok()
    }

    fn give(&self) {
        self.used.fetch_sub(1, Relaxed);
    }
}

/// Who uses slabs: a session and all that were cloned from it. A clone does not widen the quota.
#[derive(Debug)]
pub(crate) struct Tenant {
    store: Arc<Account>,
    quota: Account,
    /// Its reads and writes.
    pub(crate) turns: Turns,
}

/// Why no slab can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    Node,
    Quota,
    /// The operating system has no memory.
    System,
}

impl Tenant {
    pub(crate) fn new(store: Arc<Account>, quota_slabs: u64) -> Tenant {
        Tenant { store, quota: Account::new(quota_slabs), turns: Turns::default() }
    }

    pub(crate) fn quota(&self) -> &Account {
        &self.quota
    }

    pub(crate) fn store(&self) -> &Account {
        &self.store
    }
}

/// One slab's part of the accounts; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge(Arc<Tenant>);

impl Charge {
    pub(crate) fn take(tenant: &Arc<Tenant>) -> Result<Charge, NoRoom> {
        if !tenant.quota.take() {
            return Err(NoRoom::Quota);
        }
        if !tenant.store.take() {
            tenant.quota.give();
            return Err(NoRoom::Node);
        }
        Ok(Charge(tenant.clone()))
    }
}

impl Charge {
    /// Whether the node ends.
    pub(crate) fn is_over(&self) -> bool {
        self.0.store.over.load(Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.quota.give();
        self.0.store.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_bound_is_exceeded_by_threads_that_race() {
        let store = Arc::new(Account::new(100));
        let tenants: Vec<Arc<Tenant>> = (0..4).map(|_| Arc::new(Tenant::new(store.clone(), 40))).collect();
        let held: Vec<Charge> = std::thread::scope(|scope| {
            let take = |tenant| (0..60).filter_map(|_| Charge::take(tenant).ok()).collect::<Vec<_>>();
            let threads: Vec<_> = tenants.iter().map(|tenant| scope.spawn(move || take(tenant))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!((held.len(), store.used()), (100, 100));
        assert!(tenants.iter().all(|tenant| tenant.quota.used() <= 40));
        assert!(matches!(Charge::take(&tenants[0]), Err(NoRoom::Node | NoRoom::Quota)));
        drop(held);
        assert_eq!(store.used(), 0);
        assert!(tenants.iter().all(|tenant| tenant.quota.used() == 0));
    }
}
