//! Calls of the program on ranges, against faults and departures of the same pages.

use super::{For, Stage, compressed, on, on_both_kernel_paths, on_both_paths, on_simulated};
use crate::points::Point;
use crate::sys::thread::SignalsBlocked;
use crate::{FaultPath, NotReplaced, State};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::Arc;

const PAGE: PageNo = PageNo(19);
const TARGET: PageNo = PageNo(219);

#[test]
fn a_discard_waits_for_the_departure_of_its_page() {
    on_both_paths(|stage| {
        stage.write(PAGE, 1);
        let out = stage.hold(Point::TakenOut, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let out = out.reached();
        let discard = stage.beside(|s| s.pager.discard(PAGE, 1));
        stage.must_wait(&discard, For::Owner(PAGE));
        out.release();
        evictor.must_end();
        discard.must_end();
        stage.check(PAGE, 0);
        stage.reclaim(&[]);
        stage.check(PAGE, 0);
    });
}

#[test]
fn a_discard_waits_for_the_fetch_of_its_page() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, 2);
        let loaded = stage.hold(Point::Loaded, PAGE);
        let reader = stage.beside(|s| s.touch(PAGE));
        let loaded = loaded.reached();
        let discard = stage.beside(|s| s.pager.discard(PAGE, 1));
        stage.must_wait(&discard, For::Owner(PAGE));
        loaded.release();
        reader.must_end();
        discard.must_end();
        stage.check(PAGE, 0);
        assert_eq!(stage.stored_pages(), 0, "no copy is left behind");
    });
}

#[test]
fn a_fault_waits_for_the_discard_of_its_page() {
    on_both_paths(|stage| {
        stage.write(PAGE, 3);
        let dropped = stage.hold(Point::Discarded, PAGE);
        let discard = stage.beside(|s| s.pager.discard(PAGE, 1));
        let dropped = dropped.reached();
        let writer = stage.beside(|s| s.write(PAGE, 4));
        stage.must_wait(&writer, For::Page(PAGE));
        dropped.release();
        discard.must_end();
        writer.must_end();
        stage.check(PAGE, 4);
    });
}

#[test]
fn a_move_waits_for_the_departure_of_its_page() {
    on_both_paths(|stage| {
        stage.write(PAGE, 5);
        let out = stage.hold(Point::TakenOut, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let out = out.reached();
        let mover = stage.beside(|s| s.pager.relocate(PAGE, TARGET, 1));
        stage.must_wait(&mover, For::Owner(PAGE));
        out.release();
        evictor.must_end();
        mover.must_end();
        stage.check(TARGET, 5);
        stage.check(PAGE, 0);
    });
}

/// A move of eight pages from `from` to `to`, of which the third and fifth have content (1 and 2), over content in the second, third and fifth, beside a
/// discard of `count` pages from `to`. The move waits for the departure of `leaving`, owning what it claims before that.
fn a_move_and_a_discard_both_end(from: PageNo, to: PageNo, leaving: PageNo, count: u32) {
    let at = |place: PageNo, index: u32| PageNo(place.0 + index);
    on_both_paths(move |stage| {
        [(from, 2, 1), (from, 4, 2), (to, 1, 3), (to, 2, 4), (to, 4, 5)]
            .into_iter()
            .for_each(|(place, index, seed)| stage.write(at(place, index), seed));
        let out = stage.hold(Point::TakenOut, leaving);
        let evictor = stage.beside(move |s| s.evict(leaving));
        let out = out.reached();
        let mover = stage.beside(move |s| s.pager.relocate(from, to, 8));
        stage.must_wait(&mover, For::Owner(leaving));
        let discard = stage.beside(move |s| s.pager.discard(to, count));
        // At the first page that it comes to: with that, it would own what the move comes to later.
        stage.must_wait(&discard, For::Owner(at(to, 1)));
        out.release();
        evictor.must_end();
        mover.must_end();
        discard.must_end();
        (0..4).for_each(|index| stage.check(at(to, index), 0));
        (0..8).for_each(|index| stage.check(at(from, index), 0));
        stage.check(at(to, 4), if count > 4 { 0 } else { 2 });
    });
}

#[test]
fn a_move_to_a_higher_place_and_a_discard_of_that_do_not_wait_for_each_other() {
    a_move_and_a_discard_both_end(PAGE, TARGET, PageNo(TARGET.0 + 4), 4);
}

#[test]
fn a_move_to_a_lower_place_and_a_discard_of_both_do_not_wait_for_each_other() {
    a_move_and_a_discard_both_end(TARGET, PAGE, PageNo(TARGET.0 + 4), TARGET.0 - PAGE.0 + 4);
}

#[test]
fn a_drain_keeps_the_slot_of_a_page_that_moves() {
    on_both_paths(|stage| {
        stage.write(PAGE, 6);
        stage.evict(PAGE);
        let moved = stage.hold(Point::Moved, PAGE);
        let mover = stage.beside(|s| s.pager.relocate(PAGE, TARGET, 1));
        let moved = moved.reached();
        stage.reclaim(&[]);
        moved.release();
        mover.must_end();
        stage.check(TARGET, 6);
        stage.check(PAGE, 0);
    });
}

#[test]
fn a_page_is_given_up_after_it_has_left() {
    on_both_paths(|stage| {
        stage.write(PAGE, 7);
        let out = stage.hold(Point::TakenOut, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let out = out.reached();
        let giver = stage.beside(|s| s.pager.give_up(PAGE, 1, || Ok::<(), NotReplaced<()>>(())).unwrap());
        stage.must_wait(&giver, For::Owner(PAGE));
        out.release();
        evictor.must_end();
        giver.must_end();
        assert_eq!(stage.state(PAGE), State::Foreign);
        stage.reclaim(&[PAGE]);
        assert_eq!((stage.state(PAGE), stage.stored_pages()), (State::Foreign, 0));
        stage.pager.take_back(PAGE, 1).unwrap();
        stage.pager.protect(PAGE, 1, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        stage.check(PAGE, 0);
    });
}

#[test]
fn a_page_that_another_mapping_cannot_replace_keeps_its_content() {
    on_both_paths(|stage| {
        stage.write(PAGE, 9);
        let refuse = || {
            assert_eq!(stage.state(PAGE), State::Changing, "a fault would not wait");
            Err::<(), _>(NotReplaced { error: libc::ENOMEM, is_intact: true })
        };
        assert_eq!(stage.pager.give_up(PAGE, 1, refuse), Err(libc::ENOMEM));
        stage.check(PAGE, 9);
    });
}

/// Maps private memory, of a file or anonymous, in the place of a page.
fn map_over(address: usize, file: Option<&std::fs::File>) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let (anonymous, protection) =
        if file.is_some() { (0, libc::PROT_READ) } else { (libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE) };
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | anonymous;
    let fd = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a page of the stage's range that it has given up.
    let mapped = unsafe { libc::mmap(address as *mut libc::c_void, PAGE_BYTES, protection, flags, fd, 0) };
    if mapped == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn a_page_that_is_ours_again_is_served_to_a_fault_that_found_another_mapping() {
    on(FaultPath::Inline, |stage| {
        stage.pager.give_up(PAGE, 1, || Ok::<(), NotReplaced<()>>(())).unwrap();
        let found = stage.hold(Point::FoundForeign, PAGE);
        let reader = stage.beside(|s| {
            let _signals = SignalsBlocked::new();
            assert!(s.pager.serve_inline(s.pager.address(PAGE), true), "the page cannot be had");
        });
        let found = found.reached();
        let address = stage.pager.address(PAGE);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        stage.pager.take_back_open(PAGE, 1, protection, || map_over(address, None)).unwrap();
        found.release();
        reader.must_end();
        assert_eq!(stage.state(PAGE), State::Resident);
        stage.check(PAGE, 0);
    });
}

#[test]
fn a_page_that_cannot_be_managed_again_is_a_childs_too() {
    on_both_kernel_paths(|stage| {
        stage.pager.give_up(PAGE, 1, || Ok::<(), NotReplaced<()>>(())).unwrap();
        // The kernel lets no page of a file be managed, unless the file is in memory.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let address = stage.pager.address(PAGE);
        let replace = || map_over(address, Some(&file));
        if stage.pager.take_back_open(PAGE, 1, libc::PROT_READ, replace).is_ok() {
            eprintln!("skipped: this program's file is in memory");
            return;
        }
        assert_eq!(stage.state(PAGE), State::Foreign);
        stage.touch(PAGE);
        stage.fork(|s| s.touch(PAGE)).must_be_well();
    });
}

#[test]
fn a_page_that_a_device_holds_moves_with_its_frame() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 8);
        let Some(_ring) = lend_to_a_device(stage.pager.address(PAGE), 1) else {
            eprintln!("skipped: no io_uring");
            return;
        };
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "a lent page left");
        let frame = frame_of(stage.pager.address(PAGE));
        stage.pager.relocate(PAGE, TARGET, 1);
        stage.check(TARGET, 8);
        stage.check(PAGE, 0);
        assert_ne!(frame, 0, "frame numbers can be read");
        assert_eq!(frame_of(stage.pager.address(TARGET)), frame, "the device works on another frame now");
    });
}

#[test]
fn neighbours_of_pages_that_a_device_holds_are_served_wherever_those_move() {
    on_both_kernel_paths(|stage| {
        let pages = |first: PageNo| (first.0..first.0 + 3).map(PageNo);
        pages(PAGE).for_each(|page| stage.write(page, page.0.into()));
        let Some(_ring) = lend_to_a_device(stage.pager.address(PAGE), 3) else {
            eprintln!("skipped: no io_uring");
            return;
        };
        let is_served = |page: PageNo| {
            stage.check(page, 0);
            assert_eq!(stage.state(page), State::Resident, "{page} came without the pager");
        };
        stage.pager.relocate(PAGE, TARGET, 3);
        pages(PAGE).zip(pages(TARGET)).for_each(|(from, to)| stage.check(to, from.0.into()));
        is_served(PageNo(TARGET.0 - 1));
        is_served(PageNo(TARGET.0 + 3));
        // Back to where they fit what is around them.
        stage.pager.relocate(TARGET, PAGE, 3);
        pages(PAGE).for_each(|page| stage.check(page, page.0.into()));
        stage.pager.discard(PAGE, 3);
        pages(PAGE).chain(pages(TARGET)).for_each(is_served);
        is_served(PageNo(PAGE.0 - 1));
        is_served(PageNo(PAGE.0 + 3));
    });
}

/// Registers pages as a buffer of io_uring: the kernel pins their frames until the ring is gone.
fn lend_to_a_device(address: usize, pages: usize) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    const REGISTER_BUFFERS: usize = 0;
    let mut parameters = [0u8; 120];
    // SAFETY: room for the parameters (`struct io_uring_params`, 120 bytes).
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4usize, parameters.as_mut_ptr()) };
    // SAFETY: a fresh descriptor that nobody else owns.
    let ring = i32::try_from(ring).ok().filter(|fd| *fd >= 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })?;
    let buffer = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: pages * PAGE_BYTES };
    // SAFETY: one buffer, which the kernel pins.
    let rc = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), REGISTER_BUFFERS, &raw const buffer, 1usize)
    };
    assert_eq!(rc, 0, "a buffer cannot be registered");
    Some(ring)
}

/// The number of the frame behind a page: bits 0 to 54 of its word in /proc/self/pagemap (kernel: admin-guide/mm/pagemap).
fn frame_of(address: usize) -> u64 {
    use std::os::unix::fs::FileExt;
    let mut word = [0u8; 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.read_exact_at(&mut word, (address / hinterland_units::PAGE_BYTES * 8) as u64).unwrap();
    u64::from_le_bytes(word) & ((1 << 55) - 1)
}

/// On one processor: that of the thread that waits, which has a real-time priority, is the one on which the page's owner would run. The page is still
/// mapped, so that a touch of it does not wait.
fn an_urgent_thread_waits_for_a_departure(wait: fn(&Stage)) {
    for path in [FaultPath::Monitor, FaultPath::Inline] {
        let race = move |stage: &Stage| {
            stage.write(PAGE, 1);
            let leaving = stage.hold(Point::Leaving, PAGE);
            let evictor = stage.beside(|s| s.evict(PAGE));
            let leaving = leaving.reached();
            let urgent = stage.beside(move |s| {
                crate::sys::simulated::current().expect("a simulated thread").has_real_time_priority();
                wait(s);
            });
            stage.must_wait(&urgent, For::Owner(PAGE));
            leaving.release();
            evictor.must_end();
            urgent.must_end();
        };
        on_simulated(path, compressed, Arc::new(race));
    }
}

#[test]
fn a_discard_with_a_real_time_priority_lets_the_owner_of_its_page_run() {
    an_urgent_thread_waits_for_a_departure(|stage| stage.pager.discard(PAGE, 1));
}

#[test]
fn a_long_term_pin_with_a_real_time_priority_lets_the_owner_of_its_page_run() {
    an_urgent_thread_waits_for_a_departure(|stage| assert!(stage.pager.pin_long_term(stage.pager.address(PAGE), 8)));
}
