//! What is found in the libc that the test itself runs on, and small functions made by hand.

use super::scan::{Numbers, sites_in};
use super::*;
use std::collections::HashMap;
use std::time::Instant;

/// The calls that are caught.
fn wanted(number: i64) -> bool {
    crate::inline::signals::is_signal_call(number) || crate::inline::syscalls::table::must_be_seen(number)
}

#[test]
fn the_sites_of_libc_are_found_with_their_numbers() {
    let libc = libc_image().expect("the test runs on glibc");
    let begin = Instant::now();
    let all = scan::sites_of(&libc, &|_| true);
    let all_us = begin.elapsed().as_micros();
    let begin = Instant::now();
    let some = scan::sites_of(&libc, &wanted);
    let some_us = begin.elapsed().as_micros();
    let mut count: HashMap<i64, usize> = HashMap::new();
    for site in &all {
        if let Numbers::One(number) = site.numbers {
            *count.entry(number).or_default() += 1;
        }
    }
    let any = all.iter().filter(|site| site.numbers == Numbers::Any).count();
    println!("{} sites in {all_us} µs, {any} of unknown number; {} looked at in {some_us} µs", all.len(), some.len());
    assert!(all.len() > 300, "{} sites", all.len());
    assert!(any * 50 < all.len(), "{any} sites of unknown number");
    for number in [libc::SYS_rt_sigprocmask, libc::SYS_rt_sigaction, libc::SYS_writev, libc::SYS_read, libc::SYS_futex]
    {
        assert!(count.contains_key(&number), "no site makes call {number}");
    }
    let named = |sites: &[scan::Site]| {
        sites.iter().filter(|site| site.numbers.may_be(&wanted)).map(|site| site.address).collect::<Vec<_>>()
    };
    assert_eq!(named(&some), named(&all), "looking at some functions only must find the same");
}

#[test]
fn a_number_is_what_reaches_eax() {
    let one = |code: &[u8]| sites_in(code, 0x1000).into_iter().map(|site| site.numbers).next();
    // mov eax, 14; syscall
    assert_eq!(one(&[0xb8, 14, 0, 0, 0, 0x0f, 0x05]), Some(Numbers::One(14)));
    // xor eax, eax; mov edi, 7; syscall
    assert_eq!(one(&[0x31, 0xc0, 0xbf, 7, 0, 0, 0, 0x0f, 0x05]), Some(Numbers::One(0)));
    // mov r8d, 202; mov eax, r8d; syscall
    assert_eq!(one(&[0x41, 0xb8, 202, 0, 0, 0, 0x44, 0x89, 0xc0, 0x0f, 0x05]), Some(Numbers::One(202)));
    // mov eax, 20; jmp +5; mov eax, 19; syscall: one of both
    assert_eq!(one(&[0xb8, 20, 0, 0, 0, 0xeb, 5, 0xb8, 19, 0, 0, 0, 0x0f, 0x05]), Some(Numbers::Some(vec![19, 20])));
    // mov eax, edi; syscall
    assert_eq!(one(&[0x89, 0xf8, 0x0f, 0x05]), Some(Numbers::Any));
    // mov eax, [rdi]; syscall
    assert_eq!(one(&[0x8b, 0x07, 0x0f, 0x05]), Some(Numbers::Any));
    // mov eax, 0x050f0000: the bytes are in a constant
    assert_eq!(one(&[0xb8, 0, 0, 0x0f, 0x05, 0xc3]), None);
}

#[test]
fn data_among_the_code_is_no_call() {
    let site = |code: &[u8]| sites_in(code, 0x1000).into_iter().map(|site| (site.numbers, site.genuine)).next();
    // mov eax, 14; syscall
    assert_eq!(site(&[0xb8, 14, 0, 0, 0, 0x0f, 0x05]), Some((Numbers::One(14), true)));
    // nop; syscall: nothing says which call
    assert_eq!(site(&[0x90, 0x0f, 0x05]), Some((Numbers::Any, false)));
    // mov eax, [rdi]; syscall; and a byte that begins no instruction
    assert_eq!(site(&[0x8b, 0x07, 0x0f, 0x05, 0x06]), Some((Numbers::Any, false)));
    assert_eq!(site(&[0x8b, 0x07, 0x0f, 0x05, 0xc3]), Some((Numbers::Any, true)));
}

#[test]
fn no_library_of_the_systems_makes_a_call_of_its_own() {
    let begin = Instant::now();
    // The test's own instructions do not count: it holds this library.
    assert_eq!(first_direct_syscall(&|_| true), None);
    println!("in {} µs", begin.elapsed().as_micros());
}
