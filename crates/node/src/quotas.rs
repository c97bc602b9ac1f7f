//! Capacity and quotas: slabs are counted before their memory is taken.

use crate::admission::Admission;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How much is in use of something, and the bound on it. Of slabs: of the node, of a tenant, of a clone group.
#[derive(Debug)]
pub(crate) struct ResourceCounter {
    used: AtomicU64,
    bound: AtomicU64,
    /// The node ends: what it lent goes with its last user.
    over: AtomicBool,
}

impl ResourceCounter {
    pub(crate) fn new(bound: u64) -> ResourceCounter {
        ResourceCounter { used: AtomicU64::new(0), bound: AtomicU64::new(bound), over: AtomicBool::new(false) }
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

    pub(crate) fn charge(&self) -> bool {
        self.used.fetch_update(Relaxed, Relaxed, |used| (used < self.bound()).then_some(used + 1)).is_ok()
    }

    pub(crate) fn uncharge(&self) {
        self.used.fetch_sub(1, Relaxed);
    }
}

/// Numbers of tenants and clone groups, from 1 on.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Whom a quota and a share of processors and link belong to: all sessions of one certificate's key, or, where nothing is proved
/// that tells clients apart, one session and all that were cloned from it.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) number: u64,
    quota: ResourceCounter,
    sessions: ResourceCounter,
    pub(crate) lanes: ResourceCounter,
    /// Its requests.
    pub(crate) admission: Admission,
}

impl Tenant {
    pub(crate) fn new(bounds: Bounds) -> Tenant {
        let Bounds { slabs, sessions, lanes } = bounds;
        let [quota, sessions, lanes] = [slabs, sessions, lanes].map(ResourceCounter::new);
        Tenant { number: next_number(), quota, sessions, lanes, admission: Admission::default() }
    }
}

/// What a tenant may have at most.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) slabs: u64,
    pub(crate) sessions: u64,
    pub(crate) lanes: u64,
}

/// The owner of slabs: a session and all that were cloned from it. A clone does not widen a quota.
#[derive(Debug)]
pub(crate) struct CloneGroup {
    pub(crate) number: u64,
    store: Arc<ResourceCounter>,
    pub(crate) tenant: Arc<Tenant>,
    /// What it asked for itself.
    quota: ResourceCounter,
}

/// The permit of one of the sessions that a tenant may have; given back when it is dropped.
pub(crate) struct SessionPermit(Arc<CloneGroup>);

impl SessionPermit {
    /// `None`: there are too many.
    pub(crate) fn take(group: &Arc<CloneGroup>) -> Option<SessionPermit> {
        group.tenant.sessions.charge().then(|| SessionPermit(group.clone()))
    }

    pub(crate) fn group(&self) -> &Arc<CloneGroup> {
        &self.0
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.0.tenant.sessions.uncharge();
    }
}

/// Why no slab can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    Node,
    Quota,
    /// The operating system has no memory.
    System,
}

impl CloneGroup {
    pub(crate) fn new(store: Arc<ResourceCounter>, tenant: Arc<Tenant>, quota_slabs: u64) -> CloneGroup {
        CloneGroup { number: next_number(), store, tenant, quota: ResourceCounter::new(quota_slabs) }
    }

    /// Slabs that it may have, beside what its tenant's other sessions have.
    pub(crate) fn bound(&self) -> u64 {
        let others = self.tenant.quota.used().saturating_sub(self.quota.used());
        self.quota.bound().min(self.tenant.quota.bound().saturating_sub(others)).min(self.store.bound())
    }

    /// The quota that is nearest to its end.
    pub(crate) fn quota(&self) -> &ResourceCounter {
        [&self.quota, &self.tenant.quota]
            .into_iter()
            .min_by_key(|quota| quota.bound().saturating_sub(quota.used()))
            .expect("two")
    }

    pub(crate) fn store(&self) -> &ResourceCounter {
        &self.store
    }
}

/// One slab's part of the accounts; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge(Arc<CloneGroup>);

impl Charge {
    pub(crate) fn take(group: &Arc<CloneGroup>) -> Result<Charge, NoRoom> {
        let accounts =
            [(&group.quota, NoRoom::Quota), (&group.tenant.quota, NoRoom::Quota), (&*group.store, NoRoom::Node)];
        for (count, (account, refusal)) in accounts.iter().enumerate() {
            if !account.charge() {
                accounts[..count].iter().for_each(|(account, _)| account.uncharge());
                return Err(*refusal);
            }
        }
        Ok(Charge(group.clone()))
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
        self.0.quota.uncharge();
        self.0.tenant.quota.uncharge();
        self.0.store.uncharge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant_of(slabs: u64) -> Arc<Tenant> {
        Arc::new(Tenant::new(Bounds { slabs, sessions: 1, lanes: 1 }))
    }

    fn take(group: &Arc<CloneGroup>, wanted: usize) -> Vec<Charge> {
        (0..wanted).filter_map(|_| Charge::take(group).ok()).collect()
    }

    #[test]
    fn no_bound_is_exceeded_by_concurrent_threads() {
        let store = Arc::new(ResourceCounter::new(100));
        let tenants = [40, 50].map(tenant_of);
        let groups: Vec<Arc<CloneGroup>> =
            (0..6).map(|group| Arc::new(CloneGroup::new(store.clone(), tenants[group % 2].clone(), 30))).collect();
        let held: Vec<Charge> = std::thread::scope(|scope| {
            let threads: Vec<_> = groups.iter().map(|group| scope.spawn(move || take(group, 60))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!((held.len(), store.used()), (90, 90));
        assert_eq!(tenants.each_ref().map(|tenant| tenant.quota.used()), [40, 50]);
        assert!(groups.iter().all(|group| group.quota.used() <= 30));
        assert!(matches!(Charge::take(&groups[0]), Err(NoRoom::Quota)));
        drop(held);
        assert_eq!(store.used(), 0);
        assert!(groups.iter().all(|group| group.quota.used() == 0 && group.tenant.quota.used() == 0));
    }

    #[test]
    fn what_is_refused_by_one_account_is_given_back_to_the_others() {
        let store = Arc::new(ResourceCounter::new(5));
        let tenant = tenant_of(4);
        let of_tenant = |quota| Arc::new(CloneGroup::new(store.clone(), tenant.clone(), quota));
        let (few, many) = (of_tenant(1), of_tenant(9));
        let mut held = [take(&few, 3), take(&many, 9)];
        assert_eq!(held.each_ref().map(Vec::len), [1, 3]);
        // Beside what the other one has.
        assert_eq!((few.bound(), many.bound()), (1, 3));
        let stranger = Arc::new(CloneGroup::new(store.clone(), tenant_of(9), 9));
        let last = take(&stranger, 2);
        assert_eq!((last.len(), store.used(), stranger.bound()), (1, 5, 5));
        assert!(matches!(Charge::take(&stranger), Err(NoRoom::Node)));
        held[0].clear();
        assert_eq!(take(&many, 9).len(), 1);
        assert_eq!(store.used(), 4);
        drop((held, last));
        assert_eq!((store.used(), tenant.quota.used(), few.quota.used(), many.quota.used()), (0, 0, 0, 0));
    }
}
