//! What is found in the libc that the test itself runs on, and small functions made by hand.

use super::decode::{NUMBERS, Source, Step, steps};
use super::scan::{Numbers, sites_in};
use super::*;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
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
fn a_load_is_seen_wherever_it_stands() {
    let is_load = |bytes: &[u8]| matches!(bytes, [0xb8..=0xc7, 14, 0, 0, 0]);
    for len in 0..200 {
        for at in 0..len {
            // Bytes around it that begin like a load, and are none.
            let mut code: Vec<u8> = (0..len).map(|index| if index % 7 == 0 { 0xbf } else { 0 }).collect();
            code.splice(at.., [0xb8, 14, 0, 0, 0]);
            code.truncate(len.max(at + 4));
            assert_eq!(scan::any_window(&code, is_load), code.windows(5).any(is_load), "{at} of {len}");
        }
    }
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

#[test]
fn a_function_ends_where_its_description_says() {
    let libc = libc_image().expect("the test runs on glibc");
    let getppid = libc::getppid as *const () as usize;
    let function = libc.function_around(getppid).unwrap();
    const RET: u8 = 0xc3;
    assert_eq!(
        (function.start, libc.bytes(function.clone()).last()),
        (getppid, Some(&RET)),
        "without what fills the space"
    );
}

/// What another decoder says of a function.
fn steps_of_another(code: &[u8], start: usize) -> Vec<(usize, Step)> {
    let decoder = Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE);
    // Two REX prefixes: the text "CRYPTOGAMS", which hand-written functions carry, and no compiler's code.
    let is_text = |at: u64| {
        let at = usize::try_from(at).unwrap() - start;
        code[at..].iter().take(2).filter(|byte| *byte >> 4 == 4).count() == 2
    };
    let step = |instruction: &Instruction| match (instruction.code(), instruction.op0_kind()) {
        (Code::INVALID, _) => Step::Garbage,
        _ if is_text(instruction.ip()) => Step::Garbage,
        (Code::Syscall, _) if instruction.len() == SITE_BYTES => Step::Syscall,
        (_, OpKind::NearBranch64) => Step::Branch(usize::try_from(instruction.near_branch_target()).unwrap()),
        (_, OpKind::Register) => load_of_another(instruction).unwrap_or(Step::Other),
        _ => Step::Other,
    };
    decoder.into_iter().map(|found| (usize::try_from(found.ip()).unwrap(), step(&found))).collect()
}

fn load_of_another(instruction: &Instruction) -> Option<Step> {
    // Where the two name operands differently.
    match instruction.code() {
        Code::Xchg_r32_EAX | Code::Xchg_r64_RAX => return Some(Step::Load(0, Source::Other)),
        Code::Scasb_AL_m8 | Code::Scasd_EAX_m32 | Code::Scasq_RAX_m64 => return None,
        _ => {}
    }
    let full = |register: Register| match register {
        Register::AL | Register::AH | Register::AX => Some(0),
        part if (Register::EAX..=Register::R15D).contains(&part) => {
            u8::try_from(part as u32 - Register::EAX as u32).ok()
        }
        whole if (Register::RAX..=Register::R15).contains(&whole) => {
            u8::try_from(whole as u32 - Register::RAX as u32).ok()
        }
        _ => None,
    };
    let register = full(instruction.op0_register())?;
    let source = match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32 | Code::Mov_rm32_imm32 => {
            let number = Some(instruction.immediate(1)).filter(|number| *number < u64::from(NUMBERS));
            number.map_or(Source::Other, |number| Source::Number(number.cast_signed()))
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 if instruction.op0_register() == instruction.op1_register() => {
            Source::Number(0)
        }
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
            if instruction.op1_kind() == OpKind::Register =>
        {
            full(instruction.op1_register()).map_or(Source::Other, Source::Register)
        }
        _ => Source::Other,
    };
    let reads = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt);
    let matters = matches!(source, Source::Number(_)) || register == 0 && !reads;
    matters.then_some(Step::Load(register, source))
}

/// Every function of every loaded object.
#[test]
fn two_decoders_agree_on_what_instructions_do() {
    let (mut functions, mut instructions) = (0, 0);
    for image in elf::images() {
        for text in &image.text {
            let mut at = text.start;
            while let Some(function) = (at..text.end).find_map(|at| image.function_around(at)) {
                let code = image.bytes(function.clone());
                // From the first byte on that begins no instruction, the rest is data.
                let garbage = |(_, step): &(usize, Step)| *step == Step::Garbage;
                let theirs = steps_of_another(code, function.start);
                let code_steps = theirs.iter().position(garbage).unwrap_or(theirs.len());
                let ours: Vec<_> = steps(code, function.start).take(code_steps).collect();
                let different = ours.iter().zip(&theirs[..code_steps]).find(|(one, other)| one != other);
                assert_eq!(different, None, "{} at {:#x}", image.name, function.start - text.start);
                assert_eq!(ours.len(), code_steps, "{} at {:#x}", image.name, function.start - text.start);
                functions += 1;
                instructions += ours.len();
                at = function.end;
            }
        }
    }
    println!("{instructions} instructions of {functions} functions");
    assert!(functions > 3000 && instructions > 300_000, "{instructions} instructions of {functions} functions");
}
