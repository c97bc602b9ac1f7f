//! The table against the system's own list of numbers, and against itself.

use super::*;

fn arguments_of(size: Size) -> Option<usize> {
    match size {
        Size::Bytes(_) => None,
        Size::Times(index, _) | Size::Plus(index, _) | Size::Bits(index) | Size::Pages(index) | Size::At(index) => {
            Some(index.into())
        }
    }
}

#[test]
fn every_number_has_one_row_in_order() {
    let numbers: Vec<u32> = rows().map(|row| row.number).collect();
    let expected: Vec<u32> = (0..=336).chain(424..=469).collect();
    assert_eq!(numbers, expected);
    assert!(numbers.iter().all(|number| row((*number).into()).is_some_and(|row| row.number == *number)));
    assert!(row(337).is_none() && row(-1).is_none() && row(470).is_none());
}

#[test]
fn names_are_those_of_the_systems_header() {
    let Ok(header) = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h") else { return };
    let mut compared = 0;
    for line in header.lines() {
        let Some((name, number)) = line.strip_prefix("#define __NR_").and_then(|line| line.split_once(' ')) else {
            continue;
        };
        let number: i64 = number.trim().parse().unwrap();
        assert_eq!(row(number).map(|row| row.name), Some(name), "{number}");
        compared += 1;
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn shapes_name_arguments_that_exist_and_are_no_pointers() {
    for row in rows() {
        assert!(row.shapes.len() <= 6, "{}", row.name);
        for (index, shape) in row.shapes.iter().enumerate() {
            let named = match shape {
                Shape::In(size) | Shape::Out(size) => arguments_of(*size),
                Shape::Vector(count) | Shape::Messages(count) => Some((*count).into()),
                _ => None,
            };
            let Some(named) = named else { continue };
            assert_ne!(named, index, "{}", row.name);
            let is_length = matches!(shape, Shape::In(Size::At(_)) | Shape::Out(Size::At(_)));
            let length = row.shapes.get(named).copied().unwrap_or(Shape::Value);
            assert_eq!(is_length, length != Shape::Value, "{}: argument {named} is {length:?}", row.name);
        }
    }
}

#[test]
fn calls_with_pointers_do_something_about_them() {
    for row in rows() {
        let (pointers, name) = (row.pointers(), row.name);
        match row.way {
            Way::Pass | Way::Descriptors => assert_eq!(pointers, 0, "{name}"),
            Way::Memory => assert!(crate::mapping::MEMORY_CALL_NUMBERS.contains(&row.number.into()), "{name}"),
            _ => assert_ne!(pointers, 0, "{name}"),
        }
        let nests = row
            .shapes
            .iter()
            .any(|shape| matches!(shape, Shape::Vector(_) | Shape::Message | Shape::Messages(_) | Shape::Texts));
        assert!(row.seen == Seen::Always || !nests, "{name} may name far memory behind near pointers");
        assert!(row.seen == Seen::Always || !matches!(row.way, Way::Masked(_) | Way::Signals), "{name} carries a mask");
        if let Way::Fewer(count, _) = row.way {
            assert_eq!(row.shapes.get(usize::from(count)).copied().unwrap_or(Shape::Value), Shape::Value, "{name}");
        }
    }
}

#[test]
fn every_memory_call_that_names_an_address_is_made_by_its_function() {
    for number in crate::mapping::MEMORY_CALL_NUMBERS {
        let row = row(number).unwrap();
        assert_eq!(row.way == Way::Memory, row.pointers() | row.addresses() != 0, "{}", row.name);
    }
}

#[test]
fn the_rules_make_a_filter_that_the_kernel_takes() {
    use hinterland_pager::{FAR_BASE, FAR_PAGES};
    use hinterland_sys::seccomp::Filter;
    let far = FAR_BASE..FAR_BASE + FAR_PAGES as usize * hinterland_units::PAGE_BYTES;
    let instructions = Filter::new(&rules(), far).instructions();
    assert!((400..1500).contains(&instructions), "{instructions} instructions");
    assert_eq!(row(libc::SYS_read).map(Row::rule), Some(Rule::Pointers(0b10)));
    assert_eq!(row(libc::SYS_munmap).map(Row::rule), Some(Rule::Pointers(0b1)));
    assert_eq!(row(libc::SYS_getpid).map(Row::rule), Some(Rule::Allow));
    assert_eq!(row(libc::SYS_io_uring_setup).map(Row::rule), Some(Rule::Refuse(38)));
}
