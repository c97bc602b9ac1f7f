//! Victims that leave by copy, against threads that write to them or beside them. The inline path only.

use super::{For, Stage, on};
use crate::blocked::TestThread;
use crate::points::Point;
use crate::sys::mem;
use crate::sys::thread::SignalsBlocked;
use crate::{FaultPath, NotReplaced, PinAccess, State};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Scattered pages of one block.
const VICTIMS: [PageNo; 8] =
    [PageNo(300), PageNo(305), PageNo(310), PageNo(315), PageNo(320), PageNo(325), PageNo(330), PageNo(335)];
/// A page among them that stays.
const SURVIVOR: PageNo = PageNo(307);
/// Where that moves to.
const TARGET: PageNo = PageNo(219);

/// Runs a race where victims leave by copy.
fn with_copies(race: impl Fn(&Stage)) {
    on(FaultPath::Inline, |stage| {
        if !stage.pager.copy_out.is_possible() {
            eprintln!("skipped: this kernel drops no scattered pages with one call (Linux 6.13)");
            return;
        }
        VICTIMS.iter().zip(1..).for_each(|(page, seed)| stage.write(*page, seed));
        stage.write(SURVIVOR, 50);
        race(stage);
    });
}

fn copied(stage: &Stage) -> u64 {
    stage.pager.row().copied_out_pages.load(Relaxed)
}

#[test]
fn scattered_victims_leave_by_copy_and_come_back() {
    with_copies(|stage| {
        stage.reclaim(&VICTIMS);
        assert_eq!(copied(stage), VICTIMS.len() as u64);
        assert!(VICTIMS.iter().all(|page| stage.state(*page) == State::SwapCached));
        assert_eq!(stage.state(SURVIVOR), State::Resident);
        stage.write(SURVIVOR, 51);
        stage.check(VICTIMS[0], 1);
        stage.reclaim(&[]);
        assert!(VICTIMS[1..].iter().all(|page| stage.state(*page) == State::Remote));
        VICTIMS.iter().zip(1..).for_each(|(page, seed)| stage.check(*page, seed));
        stage.check(SURVIVOR, 51);
    });
}

#[test]
fn a_write_to_a_copied_victim_waits_and_is_not_lost() {
    with_copies(|stage| {
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        let writer = stage.beside(|s| s.write(VICTIMS[3], 60));
        stage.must_wait(&writer, For::Page(VICTIMS[3]));
        copied.release();
        evictor.must_end();
        writer.must_end();
        stage.check(VICTIMS[3], 60);
        stage.check(VICTIMS[4], 5);
    });
}

#[test]
fn a_write_beside_copied_victims_goes_on() {
    with_copies(|stage| {
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        stage.beside(|s| s.write(SURVIVOR, 61)).must_end();
        copied.release();
        evictor.must_end();
        stage.check(SURVIVOR, 61);
    });
}

#[test]
fn the_end_of_a_protected_range_opens_no_other() {
    const BETWEEN: [PageNo; 7] =
        [PageNo(302), PageNo(307), PageNo(312), PageNo(317), PageNo(322), PageNo(327), PageNo(332)];
    with_copies(|stage| {
        BETWEEN.iter().zip(70..).for_each(|(page, seed)| stage.write(*page, seed));
        let first = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let first = first.reached();
        // Would begin and end within the first.
        let other = stage.beside(|s| s.reclaim(&BETWEEN));
        stage.must_wait(&other, For::WpRange);
        let writer = stage.beside(|s| s.write(VICTIMS[3], 65));
        stage.must_wait(&writer, For::Page(VICTIMS[3]));
        first.release();
        evictor.must_end();
        other.must_end();
        writer.must_end();
        stage.check(VICTIMS[3], 65);
        BETWEEN.iter().zip(70..).for_each(|(page, seed)| stage.check(*page, seed));
    });
}

#[test]
fn a_victim_that_becomes_unreadable_leaves_another_way() {
    with_copies(|stage| {
        let raw = |protection| mem::protect(stage.pager.address(VICTIMS[3]), PAGE_BYTES, protection);
        let leaving = stage.hold(Point::Leaving, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let leaving = leaving.reached();
        raw(libc::PROT_NONE).unwrap();
        leaving.release();
        evictor.must_end();
        assert_eq!(copied(stage), 3, "those before it");
        assert!(VICTIMS.iter().all(|page| stage.state(*page) == State::SwapCached));
        raw(libc::PROT_READ | libc::PROT_WRITE).unwrap();
        VICTIMS.iter().zip(1..).for_each(|(page, seed)| stage.check(*page, seed));
    });
}

#[test]
fn a_victim_that_is_dropped_behind_us_is_given_up() {
    with_copies(|stage| {
        let leaving = stage.hold(Point::Leaving, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let leaving = leaving.reached();
        // SAFETY: a page of this test, whose content it gives up.
        unsafe { mem::drop_pages(stage.pager.address(VICTIMS[3]), PAGE_BYTES) }.unwrap();
        leaving.release();
        evictor.must_end();
        assert_eq!((copied(stage), stage.state(VICTIMS[3])), (3, State::Untouched));
        VICTIMS.iter().zip([1, 2, 3, 0, 5, 6, 7, 8]).for_each(|(page, seed)| stage.check(*page, seed));
    });
}

/// Has the kernel swap pages out; false where it cannot, as without swap space.
fn swapped_out(stage: &Stage, pages: &[PageNo]) -> bool {
    const TRIES: usize = 1000;
    for _ in 0..TRIES {
        let out = |page: &PageNo| {
            let address = stage.pager.address(*page);
            let _ = mem::advise(address, PAGE_BYTES, libc::MADV_PAGEOUT);
            !mem::is_in_memory(address)
        };
        if pages.iter().all(out) {
            return true;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    eprintln!("skipped: the kernel swaps nothing out");
    false
}

#[test]
fn victims_that_the_kernel_has_swapped_out_keep_their_content() {
    with_copies(|stage| {
        let out = [VICTIMS[0], VICTIMS[3], VICTIMS[7]];
        let leaving = stage.hold(Point::Leaving, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let leaving = leaving.reached();
        swapped_out(stage, &out);
        leaving.release();
        evictor.must_end();
        assert!(VICTIMS.iter().all(|page| stage.state(*page) == State::SwapCached));
        VICTIMS.iter().zip(1..).for_each(|(page, seed)| stage.check(*page, seed));
    });
}

#[test]
fn a_page_that_is_refused_by_move_and_swapped_out_keeps_its_content() {
    super::on_both_paths(|stage| {
        const PAGE: PageNo = PageNo(400);
        stage.write(PAGE, 80);
        // MOVE refuses other protections.
        stage.pager.protect(PAGE, 1, libc::PROT_READ).unwrap();
        let leaving = stage.hold(Point::Leaving, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let leaving = leaving.reached();
        swapped_out(stage, &[PAGE]);
        leaving.release();
        evictor.must_end();
        assert_eq!(stage.state(PAGE), State::SwapCached);
        stage.check(PAGE, 80);
    });
}

#[test]
fn a_discard_waits_for_a_victim_only() {
    with_copies(|stage| {
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        stage.beside(|s| s.pager.discard(SURVIVOR, 1)).must_end();
        stage.beside(|s| s.write(SURVIVOR, 66)).must_end();
        let discard = stage.beside(|s| s.pager.discard(VICTIMS[3], 1));
        stage.must_wait(&discard, For::Owner(VICTIMS[3]));
        copied.release();
        evictor.must_end();
        discard.must_end();
        VICTIMS.iter().zip([1, 2, 3, 0, 5, 6, 7, 8]).for_each(|(page, seed)| stage.check(*page, seed));
        stage.check(SURVIVOR, 66);
    });
}

#[test]
fn protection_is_lifted_around_a_mapping_that_came_meanwhile() {
    const BEHIND: PageNo = PageNo(334);
    with_copies(|stage| {
        stage.write(BEHIND, 51);
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        stage.pager.give_up(SURVIVOR, 1, || Ok::<(), NotReplaced<()>>(())).unwrap();
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let (at, rights) = (stage.pager.address(SURVIVOR), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the page was given up.
        let mapped = unsafe { libc::mmap(at as *mut libc::c_void, PAGE_BYTES, rights, flags, -1, 0) };
        assert_eq!(mapped.addr(), at);
        copied.release();
        evictor.must_end();
        let _signals = SignalsBlocked::new();
        let _pin = stage.pager.pin(stage.pager.address(BEHIND), PAGE_BYTES, PinAccess::Write);
        write_by_kernel(stage, BEHIND, 67);
        stage.check(BEHIND, 67);
        VICTIMS.iter().zip(1..).for_each(|(page, seed)| {
            stage.pager.pin(stage.pager.address(*page), PAGE_BYTES, PinAccess::Read);
            stage.check(*page, seed);
        });
        stage.pager.take_back(SURVIVOR, 1).unwrap();
    });
}

#[test]
fn a_fork_waits_for_a_departure_by_copy() {
    with_copies(|stage| {
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        let parent = stage.beside(|s| {
            let child = s.fork(|s| {
                s.write(SURVIVOR, 68);
                s.check(SURVIVOR, 68);
                VICTIMS.iter().zip(1..).for_each(|(page, seed)| s.check(*page, seed));
            });
            child.must_be_well();
        });
        stage.must_wait(&parent, For::Gate);
        copied.release();
        evictor.must_end();
        parent.must_end();
        VICTIMS.iter().zip(1..).for_each(|(page, seed)| stage.check(*page, seed));
        stage.check(SURVIVOR, 50);
    });
}

/// The kernel writes `seed` to a page that is pinned for it.
fn write_by_kernel(stage: &Stage, page: PageNo, seed: u64) {
    let words: Vec<u64> = (0..super::WORDS).map(|index| super::word(seed, index)).collect();
    // SAFETY: the name is a C string; the descriptor is new; the page is read-write far memory that no other thread
    // uses.
    unsafe {
        let file = OwnedFd::from_raw_fd(libc::memfd_create(c"page".as_ptr(), libc::MFD_CLOEXEC));
        assert_eq!(libc::pwrite(file.as_raw_fd(), words.as_ptr().cast(), PAGE_BYTES, 0), 4096);
        let done = libc::pread(file.as_raw_fd(), stage.words(page).cast(), PAGE_BYTES, 0);
        assert_eq!(done, 4096, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn a_call_on_a_page_beside_copied_victims_waits() {
    with_copies(|stage| {
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        let caller = stage.beside(|s| {
            let _signals = SignalsBlocked::new();
            assert!(
                s.pager.pin_local(s.pager.address(SURVIVOR), PAGE_BYTES).is_none(),
                "a quick pin in a protected range"
            );
            let _pin = s.pager.pin(s.pager.address(SURVIVOR), PAGE_BYTES, PinAccess::Write);
            write_by_kernel(s, SURVIVOR, 62);
        });
        stage.must_wait(&caller, For::WpRange);
        copied.release();
        evictor.must_end();
        caller.must_end();
        stage.check(SURVIVOR, 62);
    });
}

#[test]
fn a_move_of_a_page_beside_copied_victims_waits() {
    with_copies(|stage| {
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        let mover = stage.beside(|s| s.pager.relocate(SURVIVOR, TARGET, 1));
        stage.must_wait(&mover, For::WpRange);
        copied.release();
        evictor.must_end();
        mover.must_end();
        stage.check(TARGET, 50);
        stage.check(SURVIVOR, 0);
    });
}

#[test]
fn victims_beside_a_pinned_page_leave_by_move() {
    with_copies(|stage| {
        let pinned = stage.hold(Point::Pinned, SURVIVOR);
        let caller = stage.beside(|s| {
            let _signals = SignalsBlocked::new();
            let _pin = s.pager.pin(s.pager.address(SURVIVOR), PAGE_BYTES, PinAccess::Write);
            write_by_kernel(s, SURVIVOR, 63);
        });
        let pinned = pinned.reached();
        stage.reclaim(&VICTIMS);
        assert_eq!(copied(stage), 0, "a pinned page was protected");
        assert!(VICTIMS.iter().all(|page| stage.state(*page) == State::SwapCached));
        pinned.release();
        caller.must_end();
        stage.check(SURVIVOR, 63);
    });
}

#[test]
fn victims_beside_a_long_term_pin_leave_by_move() {
    with_copies(|stage| {
        assert!(stage.pager.pin_long_term(stage.pager.address(SURVIVOR), 40));
        stage.reclaim(&VICTIMS);
        assert_eq!(copied(stage), 0, "a page pinned long-term was protected");
        assert!(VICTIMS.iter().all(|page| stage.state(*page) == State::SwapCached));
    });
}

#[test]
fn a_locked_victim_stays_and_the_others_leave() {
    with_copies(|stage| {
        if stage.pager.lock(VICTIMS[2], 1, false).is_err() {
            eprintln!("skipped: no memory may be locked");
            return;
        }
        stage.reclaim(&VICTIMS);
        assert_eq!(stage.state(VICTIMS[2]), State::Resident);
        stage.write(VICTIMS[2], 64);
        stage.reclaim(&[]);
        VICTIMS
            .iter()
            .zip(1..)
            .filter(|(page, _)| **page != VICTIMS[2])
            .for_each(|(page, seed)| stage.check(*page, seed));
        stage.check(VICTIMS[2], 64);
    });
}

#[test]
fn a_program_with_devices_gets_no_copies() {
    with_copies(|stage| {
        stage.pager.departs_by_move_only();
        stage.reclaim(&VICTIMS);
        assert_eq!(copied(stage), 0);
        assert!(VICTIMS.iter().all(|page| stage.state(*page) == State::SwapCached));
    });
}

#[test]
fn copies_have_ended_when_any_caller_that_ends_them_is_back() {
    with_copies(|stage| {
        let copied = stage.hold(Point::Copied, VICTIMS[0]);
        let evictor = stage.beside(|s| s.reclaim(&VICTIMS));
        let copied = copied.reached();
        let callers = [(); 2].map(|()| {
            let caller = stage.beside(|s| s.pager.departs_by_move_only());
            stage.must_wait(&caller, For::Gate);
            caller
        });
        copied.release();
        evictor.must_end();
        callers.into_iter().for_each(TestThread::must_end);
    });
}
