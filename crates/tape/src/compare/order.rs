//! How much of a sequence comes in order.

/// The length of the longest ascending part of different numbers, of which some may be left out (patience sorting).
pub fn longest_ascending(numbers: impl IntoIterator<Item = u32>) -> u64 {
    // By length: the least number that ends an ascending part of that length.
    let mut ends: Vec<u32> = Vec::new();
    for number in numbers {
        let at = ends.partition_point(|end| *end < number);
        match ends.get_mut(at) {
            Some(end) => *end = number,
            None => ends.push(number),
        }
    }
    ends.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_order_is_left_out() {
        for (numbers, longest) in
            [(vec![], 0), (vec![5], 1), (vec![1, 2, 3], 3), (vec![3, 2, 1], 1), (vec![9, 1, 2, 8, 3, 4, 7], 5)]
        {
            assert_eq!(longest_ascending(numbers.clone()), longest, "{numbers:?}");
        }
    }
}
