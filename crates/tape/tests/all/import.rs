//! Imports: what others wrote means the same in a trace.

use hinterland_tape::import::{ImportError, lackey, text};
use hinterland_tape::{Head, Trace};
use std::io::{BufReader, Read, repeat};

fn head(microset_pages: u32) -> Head {
    Head { origin: "test".into(), page_bytes: 4096, microset_pages, ..Head::default() }
}

/// Thread, page of the address space, microset.
fn read(trace: &[u8]) -> Vec<(u32, u64, u64)> {
    let mut references = Trace::open(trace).unwrap().references();
    let mut seen = Vec::new();
    while let Some(reference) = references.next() {
        let reference = reference.unwrap();
        let name = &references.regions()[reference.region as usize].name;
        let base = u64::from_str_radix(name.strip_prefix("pages from 0x").unwrap(), 16).unwrap();
        seen.push((reference.thread, base + u64::from(reference.page), reference.microset));
    }
    assert!(references.is_whole());
    seen
}

#[test]
fn lackey_loads_stores_and_modifies() {
    let output = "==17== Lackey, an example Valgrind tool\n==17== \nI  04001090,3\n S 1ffeffe7e0,8\n\
                  I  04001093,5\n L 04222ffe,4\n M 0421c7cc,4\n L 0421c000,1\nhello L 1,2\n==17== Counted 3 calls\n";
    let mut trace = Vec::new();
    let imported = lackey(output.as_bytes(), &mut trace, &head(1)).unwrap();
    assert_eq!((imported.references, imported.lines), (4, 10));
    let pages: Vec<u64> = read(&trace).iter().map(|(_, page, _)| *page).collect();
    assert_eq!(pages, [0x1ff_effe, 0x4222, 0x4223, 0x421c]);
}

#[test]
fn a_microset_has_each_page_once_in_order_of_first_touch() {
    // 3PO, figure 2: microsets of two.
    let mut trace = Vec::new();
    text("1\n2\n1\n2\n3\n1\n3\n4\n".as_bytes(), &mut trace, &head(2)).unwrap();
    assert_eq!(read(&trace), [(0, 1, 0), (0, 2, 0), (0, 3, 1), (0, 1, 1), (0, 4, 2)]);
}

#[test]
fn text_has_threads_hexadecimal_and_comments() {
    let written = "# thread page\n7 0x10\n\n  9   17 # the next\n7 16\n4294967296 68719476735\n";
    let mut trace = Vec::new();
    text(written.as_bytes(), &mut trace, &head(1)).unwrap();
    assert_eq!(read(&trace), [(0, 16, 0), (1, 17, 1), (0, 16, 2), (2, (1 << 36) - 1, 3)]);
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    let refuse_text = |written: &str| text(written.as_bytes(), Vec::new(), &head(1)).unwrap_err().to_string();
    assert_eq!(refuse_text("1\n2\nthree\n"), "line 3: the page is no number: 'three'");
    assert_eq!(refuse_text("1 2 3\n"), "line 1: more than a thread and a page: '1 2 3'");
    assert!(refuse_text("x 5").contains("thread is no number"));
    assert!(refuse_text("0xffffffffffffffff").contains("outside"));
    let long = "0".repeat(4097);
    assert!(refuse_text(&format!("1\n{long}\n2\n")).starts_with("line 2: the line is longer than 4096 bytes: '0"));
    let threads: String = (0..=65_536).map(|thread| format!("{thread} {thread}\n")).collect();
    assert!(refuse_text(&threads).starts_with("line 65537: this is one thread too many"));
    let refuse_lackey = |written: &str| lackey(written.as_bytes(), Vec::new(), &head(1)).unwrap_err();
    assert!(matches!(refuse_lackey(" L 10,4\n S zz,4\n"), ImportError::Line { line: 2, .. }));
    assert!(matches!(refuse_lackey(" L 10,0\n"), ImportError::Line { line: 1, .. }));
    assert!(matches!(refuse_lackey(" L ffffffffffffffff,2\n"), ImportError::Line { line: 1, .. }));
    assert!(matches!(refuse_lackey("nothing here\n"), ImportError::Empty { .. }));
}

#[test]
fn of_a_long_line_the_beginning_is_read() {
    let mut trace = Vec::new();
    let long = "x".repeat(10_000);
    let written = format!("{:>4096}\n2 # {long}\n{:>4095}\n# {long}", 1, 3);
    let imported = text(written.as_bytes(), &mut trace, &head(1)).unwrap();
    assert_eq!((imported.references, imported.lines), (3, 4));
    let mut trace = Vec::new();
    let imported = lackey(format!("{long}\n L 2000,4\n{long}").as_bytes(), &mut trace, &head(1)).unwrap();
    assert_eq!((imported.references, imported.lines), (1, 3));
    let endless = BufReader::new(repeat(b'7').take(u64::MAX));
    assert!(matches!(text(endless, Vec::new(), &head(1)), Err(ImportError::Line { line: 1, .. })));
}
