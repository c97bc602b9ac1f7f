//! Injects faults, by probability or at chosen operations, from a seed: failing stores, failing loads, and loads that
//! deliver a page with one flipped bit.

use super::pass_on;
use crate::samples::Rng;
use crate::{Backend, LoadError, LoadItem, Location, Patch, Priority, StoreError};
use hinterland_units::PageBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A store fails with `EIO`.
    Store,
    /// A load fails with `EIO`.
    Load,
    /// A load delivers a page with one bit flipped.
    Flip,
}

/// When it goes wrong. Operations are single pages; stores and loads are counted each for itself, from 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FaultWhen {
    /// With this probability.
    Probability(f64),
    /// At this operation.
    At(u64),
}

/// One sort of fault.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FaultRule {
    /// What goes wrong.
    pub kind: FaultKind,
    /// When.
    pub when: FaultWhen,
}

/// A backend that fails on purpose.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    url: String,
    rules: Vec<FaultRule>,
    seed: u64,
    stores: AtomicU64,
    loads: AtomicU64,
}

impl Faulty {
    /// Applies `rules` to `inner`; `url` names the backend in messages.
    pub fn new(inner: Arc<dyn Backend>, url: String, rules: Vec<FaultRule>, seed: u64) -> Faulty {
        Faulty { inner, url, rules, seed, stores: AtomicU64::new(0), loads: AtomicU64::new(0) }
    }

    /// Whether a fault of `kind` hits operation `number`.
    fn hits(&self, kind: FaultKind, number: u64) -> bool {
        self.rules.iter().enumerate().filter(|(_, rule)| rule.kind == kind).any(|(index, rule)| match rule.when {
            FaultWhen::At(at) => number == at,
            FaultWhen::Probability(probability) => {
                let draw = Rng(self.seed ^ (number << 8) ^ index as u64).next_u64() >> 11;
                // 53 random bits, exact as f64.
                #[allow(clippy::cast_precision_loss, reason = "both numbers are below 2^53 or a power of two")]
                let share = draw as f64 / (1u64 << 53) as f64;
                share < probability
            }
        })
    }

    /// Takes back what was stored of a batch and is to fail.
    fn fail_stores(&self, out: &mut [Result<Location, StoreError>]) {
        let first = self.stores.fetch_add(out.len() as u64, Relaxed) + 1;
        for (index, answer) in out.iter_mut().enumerate() {
            if let Ok(location) = *answer
                && self.hits(FaultKind::Store, first + index as u64)
            {
                self.inner.free(&[location]);
                *answer = Err(StoreError::Device { url: self.url.clone(), errno: libc::EIO });
            }
        }
    }

    /// `page` with one bit of its first `bytes` flipped.
    fn flipped(&self, page: &PageBytes, bytes: usize, number: u64) -> Box<PageBytes> {
        let mut copy = Box::new(*page);
        let bit = Rng(self.seed ^ number).index(bytes * 8);
        copy[bit / 8] ^= 1 << (bit % 8);
        copy
    }
}

impl Backend for Faulty {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        self.inner.store_while(pages, bytes, priority, out, meanwhile);
        self.fail_stores(out);
    }

    fn store_if_compressible(
        &self,
        pages: &[&PageBytes],
        bytes_max: usize,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        self.inner.store_if_compressible(pages, bytes_max, priority, out);
        self.fail_stores(out);
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let first = self.loads.fetch_add(items.len() as u64, Relaxed) + 1;
        let bytes = self.inner.prefix_bytes(&mut items.iter().map(|item| item.location));
        let flips = (0..items.len()).filter(|index| self.hits(FaultKind::Flip, first + *index as u64));
        let mut flips: Vec<(usize, Option<Box<PageBytes>>)> = flips.map(|index| (index, None)).collect();
        let mut failing = |index, result: Result<&PageBytes, LoadError>| {
            let number = first + index as u64;
            if self.hits(FaultKind::Load, number) {
                return done(index, Err(LoadError::Device { url: self.url.clone(), errno: libc::EIO }));
            }
            match (flips.iter_mut().find(|(flip, _)| *flip == index), result) {
                (Some((_, damaged)), Ok(page)) => {
                    done(index, Ok(&**damaged.insert(self.flipped(page, bytes[index], number))))
                }
                (_, result) => done(index, result),
            }
        };
        self.inner.load_while(items, priority, &mut failing, meanwhile);
        // Whoever looks at the buffers instead sees the same damage.
        for (index, damaged) in flips {
            if let Some(damaged) = damaged {
                *items[index].into = *damaged;
            }
        }
    }

    /// One that fails counts as a store, and may have written: what is there then is not known.
    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        let first = self.stores.fetch_add(patches.len() as u64, Relaxed) + 1;
        self.inner.patch(patches, priority, out);
        for (index, answer) in out.iter_mut().enumerate() {
            *answer &= !self.hits(FaultKind::Store, first + index as u64);
        }
    }

    pass_on!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reference;
    use crate::samples::{Kind, page};
    use hinterland_units::PAGE_BYTES;

    fn faulty(rules: Vec<FaultRule>) -> Faulty {
        Faulty::new(Arc::new(Reference::new("reference".into(), 64 << 20).unwrap()), "faulty".into(), rules, 7)
    }

    fn store_one(backend: &Faulty, page: &PageBytes) -> Result<Location, StoreError> {
        let mut out = [Ok(Location(0))];
        backend.store(&[page], Priority::WriteBack, &mut out);
        out[0].clone()
    }

    fn load_one(backend: &Faulty, location: Location) -> Result<PageBytes, LoadError> {
        let mut into = [0; PAGE_BYTES];
        let mut answer = None;
        let mut items = [LoadItem { location, into: &mut into }];
        backend.load(&mut items, Priority::Demand, &mut |_, result| answer = Some(result.copied()));
        let answer = answer.expect("answered");
        assert!(answer.as_ref().is_ok_and(|page| *page == into) || answer.is_err(), "the buffer disagrees");
        answer
    }

    #[test]
    fn the_chosen_operation_fails_and_no_other() {
        let rule = |kind, at| FaultRule { kind, when: FaultWhen::At(at) };
        let backend = faulty(vec![rule(FaultKind::Store, 2), rule(FaultKind::Load, 2), rule(FaultKind::Flip, 3)]);
        let page = page(Kind::Text, 1);
        let location = store_one(&backend, &page).expect("the first store");
        assert!(matches!(store_one(&backend, &page), Err(StoreError::Device { .. })));
        store_one(&backend, &page).expect("the third store");
        assert_eq!(load_one(&backend, location), Ok(page));
        assert!(matches!(load_one(&backend, location), Err(LoadError::Device { .. })));
        let damaged = load_one(&backend, location).expect("loads, but damaged");
        let flipped: u32 = damaged.iter().zip(&page).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
        assert_eq!(load_one(&backend, location), Ok(page), "the stored page is whole");
        let mut rows = Vec::new();
        backend.usage(&mut rows);
        assert_eq!(rows[0].pages, 2, "a failed store leaves nothing behind");
    }

    #[test]
    fn probabilities_hold_roughly() {
        let rule = FaultRule { kind: FaultKind::Flip, when: FaultWhen::Probability(0.01) };
        let backend = faulty(vec![rule]);
        let page = page(Kind::Text, 1);
        let location = store_one(&backend, &page).expect("room");
        let damaged = (0..10_000).filter(|_| load_one(&backend, location) != Ok(page)).count();
        assert!((50..200).contains(&damaged), "{damaged} of 10000 loads damaged at 1 %");
    }
}
