//! Whole numbers as people write them for flags.

use std::num::IntErrorKind;
use std::ops::{Bound, RangeBounds};

/// A reader of whole numbers within `bounds`. What is wrong with a number is said without the number, which stands before it on a command line, and
/// with an `example` of the flag.
pub fn whole_number<N: TryFrom<u64>>(
    bounds: impl RangeBounds<u64> + Clone,
    example: &'static str,
) -> impl Fn(&str) -> Result<N, String> + Clone {
    move |written: &str| {
        let why = match written.parse() {
            Ok(number) if bounds.contains(&number) => match N::try_from(number) {
                Ok(number) => return Ok(number),
                Err(_) => "too large a number".into(),
            },
            Err(error) if *error.kind() == IntErrorKind::PosOverflow && bounds.end_bound() == Bound::Unbounded => {
                "too large a number".into()
            }
            _ => not_within(&bounds),
        };
        Err(format!("{why}; write for example {example}"))
    }
}

fn not_within(bounds: &impl RangeBounds<u64>) -> String {
    let least = match bounds.start_bound() {
        Bound::Included(least) => *least,
        Bound::Excluded(below) => below.saturating_add(1),
        Bound::Unbounded => 0,
    };
    match bounds.end_bound() {
        Bound::Included(most) => format!("not a whole number from {least} to {most}"),
        Bound::Excluded(above) => format!("not a whole number from {least} to {}", above.saturating_sub(1)),
        Bound::Unbounded if least == 0 => "not a whole number".into(),
        Bound::Unbounded => format!("not a whole number of at least {least}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_and_what_is_wrong_is_said_with_an_example() {
        let rounds = whole_number::<u32>(1..=100, "--rounds 4");
        assert_eq!((rounds("1"), rounds("100")), (Ok(1), Ok(100)));
        for written in ["", "x", "0", "101", "-1", "1.5", "4 rounds", "99999999999999999999"] {
            let why = "not a whole number from 1 to 100; write for example --rounds 4";
            assert_eq!(rounds(written), Err(why.into()), "{written}");
        }
        let looks = whole_number::<u64>(1.., "--count 12");
        assert_eq!(looks("0"), Err("not a whole number of at least 1; write for example --count 12".into()));
        assert_eq!(looks("18446744073709551616"), Err("too large a number; write for example --count 12".into()));
        assert_eq!(looks("18446744073709551615"), Ok(u64::MAX));
        let seed = whole_number::<u8>(.., "--seed 7");
        assert_eq!(seed("x"), Err("not a whole number; write for example --seed 7".into()));
        assert_eq!(seed("256"), Err("too large a number; write for example --seed 7".into()));
        assert_eq!(
            whole_number::<u8>(..3, "2")("3"),
            Err("not a whole number from 0 to 2; write for example 2".into())
        );
    }
}
