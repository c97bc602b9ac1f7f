//! What this process knows of each sealed page: key, nonce and tag, by location.
//!
//! Locations lie close together, but begin anywhere and come and go: so the table is made of stretches of 512 locations, each of
//! which is there while one of its pages is.

use super::key::{Key, TAG_BYTES};
use hinterland_sys::SysError;
use std::collections::BTreeMap;
use std::sync::Arc;

const STRETCH_SEALS: usize = 512;
/// Bits of a nonce in a row of the table; the others say which key.
const NONCE_BITS: u32 = 48;
const KEYS_MAX: usize = 1 << (u64::BITS - NONCE_BITS);

/// A page's row: 24 bytes.
#[derive(Clone, Copy)]
struct Row {
    /// Key number and nonce; `VACANT`: nothing is known.
    which: u64,
    tag: [u8; TAG_BYTES],
}

const VACANT: u64 = u64::MAX;

struct Stretch {
    used: usize,
    rows: Box<[Row]>,
}

/// See the module.
pub(super) struct Seals {
    stretches: BTreeMap<u64, Stretch>,
    /// The last one seals; all of them open.
    keys: Vec<Arc<Key>>,
    /// Pages that a key seals at most.
    pages_of_a_key: u64,
}

/// What opens a page.
pub(super) struct Seal {
    pub(super) key: Arc<Key>,
    pub(super) nonce: u64,
    pub(super) tag: [u8; TAG_BYTES],
}

/// A key for some pages, and the first of their nonces.
pub(super) struct Ready {
    pub(super) key: Arc<Key>,
    number: u64,
    pub(super) first: u64,
}

impl Seals {
    pub(super) fn new(pages_of_a_key: u64) -> Result<Seals, SysError> {
        assert!(pages_of_a_key < 1 << (NONCE_BITS - 1), "nonces have {NONCE_BITS} bits");
        Ok(Seals { stretches: BTreeMap::new(), keys: vec![Arc::new(Key::draw()?)], pages_of_a_key })
    }

    /// A new key seals from now on: this process is a new one, which must not count on where another counts.
    ///
    /// # Errors
    /// The system's; `ENOKEY` when there have been too many.
    pub(super) fn renew(&mut self) -> Result<(), SysError> {
        if self.keys.len() == KEYS_MAX {
            return Err(SysError { call: "getrandom", errno: libc::ENOKEY });
        }
        let key = Arc::new(Key::draw()?);
        // What has sealed nothing opens nothing.
        self.keys.pop_if(|last| last.used() == 0);
        self.keys.push(key);
        Ok(())
    }

    /// What is needed to seal `count` pages.
    pub(super) fn ready(&mut self, count: usize) -> Result<Ready, SysError> {
        if self.newest().used() >= self.pages_of_a_key {
            self.renew()?;
        }
        let key = self.newest().clone();
        let first = key.take(count);
        Ok(Ready { key, number: self.keys.len() as u64 - 1, first })
    }

    fn newest(&self) -> &Arc<Key> {
        self.keys.last().expect("there is always one")
    }

    /// The page at `location` is the one that was sealed as number `index` of `ready`.
    pub(super) fn set(&mut self, location: u64, ready: &Ready, index: usize, tag: [u8; TAG_BYTES]) {
        let (number, at) = place(location);
        let stretch = self.stretches.entry(number).or_insert_with(|| Stretch {
            used: 0,
            rows: vec![Row { which: VACANT, tag: [0; TAG_BYTES] }; STRETCH_SEALS].into(),
        });
        stretch.used += usize::from(stretch.rows[at].which == VACANT);
        stretch.rows[at] = Row { which: ready.number << NONCE_BITS | (ready.first + index as u64), tag };
    }

    /// What opens the page at `location`; `None`: no page is stored there.
    pub(super) fn get(&self, location: u64) -> Option<Seal> {
        let (number, at) = place(location);
        let Row { which, tag } = self.stretches.get(&number)?.rows[at];
        let key = usize::try_from(which >> NONCE_BITS).ok().filter(|_| which != VACANT)?;
        Some(Seal { key: self.keys[key].clone(), nonce: which & ((1 << NONCE_BITS) - 1), tag })
    }

    /// The page at `location` is gone.
    pub(super) fn forget(&mut self, location: u64) {
        let (number, at) = place(location);
        let Some(stretch) = self.stretches.get_mut(&number) else { return };
        stretch.used -= usize::from(stretch.rows[at].which != VACANT);
        stretch.rows[at].which = VACANT;
        if stretch.used == 0 {
            self.stretches.remove(&number);
        }
    }

    /// Memory of the table and the keys.
    pub(super) fn ram_bytes(&self) -> u64 {
        const STRETCH_BYTES: usize = STRETCH_SEALS * size_of::<Row>() + size_of::<Stretch>();
        (self.stretches.len() * STRETCH_BYTES) as u64 + self.keys.len() as u64 * Key::RAM_BYTES
    }
}

fn place(location: u64) -> (u64, usize) {
    let at = usize::try_from(location % STRETCH_SEALS as u64).expect("below the rows of a stretch");
    (location / STRETCH_SEALS as u64, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Rng;

    #[test]
    fn agrees_with_a_map() {
        let mut seals = Seals::new(1000).unwrap();
        let mut model = BTreeMap::new();
        let mut rng = Rng(4);
        for step in 0..20_000u64 {
            let location = if rng.below(2) == 0 { rng.below(2000) } else { (1 << 44) - 1 - rng.below(2000) };
            if rng.below(3) == 0 {
                seals.forget(location);
                model.remove(&location);
            } else {
                let ready = seals.ready(2).unwrap();
                let tag = (u128::from(step)).to_le_bytes();
                seals.set(location, &ready, 1, tag);
                model.insert(location, (ready.first + 1, tag));
            }
            let looked_up = rng.below(2000);
            let found = seals.get(looked_up).map(|seal| (seal.nonce, seal.tag));
            assert_eq!(found, model.get(&looked_up).copied(), "step {step}");
        }
        assert!(seals.keys.len() > 10, "keys of 1000 pages are used up");
        model.keys().for_each(|location| seals.forget(*location));
        assert!(seals.stretches.is_empty());
    }

    #[test]
    fn no_nonce_is_given_out_twice_under_a_key() {
        let mut seals = Seals::new(100).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..200 {
            let ready = seals.ready(7).unwrap();
            assert!((ready.first..ready.first + 7).all(|nonce| seen.insert((ready.number, nonce))));
            if round % 50 == 0 {
                let keys = seals.keys.len();
                seals.renew().unwrap();
                seals.renew().unwrap();
                assert_eq!(seals.keys.len(), keys + 1, "a key without a page is not kept");
            }
        }
    }
}
