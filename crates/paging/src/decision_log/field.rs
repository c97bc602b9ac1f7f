//! How numbers, choices and lists are written to a decision log: numbers as LEB128, choices by their place in a list, lists after their length.

use super::{GiveBack, KeyPageState};
use crate::{Urgency, Way};
use hinterland_policy::{Arrival, Block, HintBatch, Prefetch, PrefetchWindow, Request, TapeBatch, Unmapped};
use hinterland_units::PageNo;

/// What can be written to a log.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Option<Self>;
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        out.push(rest.to_le_bytes()[0]);
    }

    fn take(from: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = from.split_first()?;
            *from = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// Numbers that are written as another type.
macro_rules! written_as {
    ($($type:ty, $as:ty, $into:expr, $back:expr;)+) => {
        $(impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let into: fn(&$type) -> $as = $into;
                into(self).put(out);
            }

            fn take(from: &mut &[u8]) -> Option<$type> {
                let back: fn($as) -> Option<$type> = $back;
                back(<$as>::take(from)?)
            }
        })+
    };
}

written_as! {
    u32, u64, |number| (*number).into(), |number| number.try_into().ok();
    u8, u64, |number| (*number).into(), |number| number.try_into().ok();
    bool, u64, |is_so| (*is_so).into(), |number| [false, true].get(usize::try_from(number).ok()?).copied();
    i64, u64, |number| (number << 1 ^ number >> 63).cast_unsigned(), |number| Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
    PageNo, u32, |page| page.0, |number| Some(PageNo(number));
    String, Vec<u8>, |text| text.as_bytes().to_vec(), |bytes| String::from_utf8(bytes).ok();
    u16, u64, |number| (*number).into(), |number| number.try_into().ok();
}

/// Choices, by their place in a list.
macro_rules! one_of {
    ($($type:ty: $($variant:ident),+;)+) => {
        $(impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let all = [$(<$type>::$variant),+];
                (all.iter().position(|one| one == self).unwrap_or(all.len()) as u64).put(out);
            }

            fn take(from: &mut &[u8]) -> Option<$type> {
                [$(<$type>::$variant),+].get(usize::try_from(u64::take(from)?).ok()?).copied()
            }
        })+
    };
}

one_of! {
    Arrival: FirstTouch, Demand, Prefetched, SwapCacheHit, Hinted;
    Request: FirstTouch, Major, Minor, PrefetchHit;
    Urgency: Ahead, Now;
    Way: Copy, Move;
    KeyPageState: Elsewhere, Waiting, Resident;
    GiveBack: Busy, Unused, Stale;
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|some| some.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Option<T>> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Vec<T>> {
        let items = u64::take(from)?;
        // Each takes a byte at least: a broken length is refused before memory is taken for it.
        if items > from.len() as u64 {
            return None;
        }
        (0..items).map(|_| T::take(from)).collect()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<(A, B)> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Field for Prefetch {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Prefetch::Window(PrefetchWindow { first, step, pages, unmapped }) => {
                0_u8.put(out);
                ((*first, *step), *pages).put(out);
                match unmapped {
                    Unmapped::All => None,
                    Unmapped::Key(key) => Some(*key),
                }
                .put(out);
            }
            Prefetch::Batch(TapeBatch { pages, key, thread }) => {
                1_u8.put(out);
                ((pages.to_vec(), *key), *thread).put(out);
            }
            Prefetch::Hinted(HintBatch { pages, key, site }) => {
                2_u8.put(out);
                ((pages.to_vec(), *key), *site).put(out);
            }
            Prefetch::Block(Block { first, pages, at }) => {
                3_u8.put(out);
                ((*first, *pages), *at).put(out);
            }
        }
    }

    fn take(from: &mut &[u8]) -> Option<Prefetch> {
        match u8::take(from)? {
            0 => {
                let (((first, step), pages), key) = Field::take(from)?;
                let unmapped = Option::map_or(key, Unmapped::All, Unmapped::Key);
                Some(Prefetch::Window(PrefetchWindow { first, step, pages, unmapped }))
            }
            1 => {
                let ((pages, key), thread): ((Vec<PageNo>, _), _) = Field::take(from)?;
                Some(Prefetch::Batch(TapeBatch { pages: pages.into(), key, thread }))
            }
            2 => {
                let ((pages, key), site): ((Vec<PageNo>, _), _) = Field::take(from)?;
                Some(Prefetch::Hinted(HintBatch { pages: pages.into(), key, site }))
            }
            3 => {
                let ((first, pages), at) = Field::take(from)?;
                Some(Prefetch::Block(Block { first, pages, at }))
            }
            _ => None,
        }
    }
}
