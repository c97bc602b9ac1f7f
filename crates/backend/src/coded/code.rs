//! The arithmetic: Reed-Solomon over GF(2^8), from a library.

use hinterland_units::{PAGE_BYTES, PageBytes};
use reed_solomon_erasure::galois_8::ReedSolomon;
use std::fmt;
use std::str::FromStr;

/// k data pages and m parity pages in a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErasureCode {
    data: usize,
    parity: usize,
}

impl ErasureCode {
    /// Pages that the program has stored, in a stripe.
    pub fn data(self) -> usize {
        self.data
    }

    /// Pages that are computed from them. So many nodes may be lost at a time.
    pub fn parity(self) -> usize {
        self.parity
    }

    /// Both together: each lies at another node.
    pub fn units(self) -> usize {
        self.data + self.parity
    }
}

impl FromStr for ErasureCode {
    type Err = ();

    /// `4+2`: two to seven data pages, one to six parity pages, eight at most together.
    fn from_str(text: &str) -> Result<ErasureCode, ()> {
        let (data, parity) = text.split_once('+').ok_or(())?;
        let number = |text: &str| text.parse::<usize>().map_err(drop);
        let code = ErasureCode { data: number(data)?, parity: number(parity)? };
        let is_one = code.data >= 2 && code.parity >= 1 && code.units() <= crate::NODES_MAX;
        if is_one { Ok(code) } else { Err(()) }
    }
}

impl fmt::Display for ErasureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

/// Computes parity and what is missing.
pub(super) struct Arithmetic(ReedSolomon);

impl Arithmetic {
    pub(super) fn new(code: ErasureCode) -> Arithmetic {
        Arithmetic(ReedSolomon::new(code.data, code.parity).expect("numbers that were checked"))
    }

    /// The parity pages of a stripe's data pages.
    pub(super) fn parity(&self, data: &[&PageBytes]) -> Vec<PageBytes> {
        let mut parity = vec![[0; PAGE_BYTES]; self.0.parity_shard_count()];
        self.0.encode_sep(data, &mut parity).expect("pages of one length");
        parity
    }

    /// Computes the units of a stripe that are not `known`; as many must be as there are data pages.
    pub(super) fn complete(&self, units: &mut [PageBytes], known: &[bool]) {
        let mut units: Vec<(&mut PageBytes, bool)> = units.iter_mut().zip(known.iter().copied()).collect();
        self.0.reconstruct(&mut units).expect("enough units");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Kind, page};

    #[test]
    fn any_units_give_the_others() {
        for text in ["2+1", "3+2", "4+2", "5+3"] {
            let code: ErasureCode = text.parse().expect("a code");
            assert_eq!(code.to_string(), text);
            let arithmetic = Arithmetic::new(code);
            let data: Vec<PageBytes> = (0..code.data() as u64).map(|seed| page(Kind::Random, seed)).collect();
            let parity = arithmetic.parity(&data.iter().collect::<Vec<_>>());
            let whole = [data, parity].concat();
            for lost in 0u32..1 << code.units() {
                if lost.count_ones() as usize > code.parity() {
                    continue;
                }
                let known: Vec<bool> = (0..code.units()).map(|unit| lost & 1 << unit == 0).collect();
                let mut units = whole.clone();
                units.iter_mut().zip(&known).filter(|(_, known)| !**known).for_each(|(page, _)| page.fill(0xaa));
                arithmetic.complete(&mut units, &known);
                assert!(units == whole, "{text} without {lost:b}");
            }
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        for text in ["", "4", "4+", "1+1", "4+0", "0+2", "7+2", "4+2+1", "-4+2", "4 + 2"] {
            assert!(text.parse::<ErasureCode>().is_err(), "{text}");
        }
    }
}
