//! The tape that the program follows: bytes that the launcher has checked and keeps in a memfd, read before the program starts.
//!
//! One process of a run follows it: the first that runs the program which the tape is of; with `--tape auto`, with the same arguments.
//! When it calls exec, the new program follows it from the beginning, if it is of that, too. Children of a fork follow none, and programs that they start find it taken.

use crate::ledger;
use hinterland_abi::Settings;
use hinterland_pager::FAR_PAGES;
use hinterland_policy::tape::{
    PageSet, SetSource, TapeArrival, TapeDeparture, TapePace, TapeSource, Tapes, ThreadTape,
};
use hinterland_sys::thread;
use hinterland_tape::Head;
use hinterland_tape::tape::{Order, PageRange, Tape, TapeHead};
use hinterland_units::PageNo;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// The tape, if there is one and this is the process that follows it.
///
/// # Errors
/// It cannot be read, in words: the launcher could.
pub fn begin(settings: &Settings) -> Result<Option<Tapes>, String> {
    let Some(ledger) = ledger::get().filter(|_| !settings.tape_memory.is_empty()) else { return Ok(None) };
    let pid = i32::try_from(thread::process()).unwrap_or(0);
    // Most processes of a run are not the one: they need not read it.
    if ![0, pid].contains(&ledger.tape_pid.load(Acquire)) {
        return Ok(None);
    }
    let arguments = ledger.tape_arguments.load(Acquire);
    if arguments != 0 && arguments != command_and_digest().1 {
        return Ok(None);
    }
    let bytes = std::fs::read(&settings.tape_memory).map_err(|error| error.to_string())?;
    if !is_of_this_program(Tape::open(&bytes).map_err(|error| error.to_string())?.head()) {
        return Ok(None);
    }
    match ledger.tape_pid.compare_exchange(0, pid, AcqRel, Acquire) {
        Err(follows) if follows != pid => return Ok(None),
        _ => {}
    }
    let pace = TapePace { batch_pages: settings.tape_batch_pages, lookahead_pages: settings.tape_lookahead_pages };
    // As long as the process lives.
    let tape: &'static Tape<'static> =
        Box::leak(Box::new(Tape::open(bytes.leak()).map_err(|error| error.to_string())?));
    let tapes: Tapes = match tape.head().order {
        Order::Ordered => {
            let threads = u32::try_from(tape.threads().len()).unwrap_or(u32::MAX);
            TapeSource::new((0..threads).map(|thread| of_thread(tape, thread)), pace).into()
        }
        Order::Sets => SetSource::new(tape.phases().iter().map(|phase| of_phase(phase))).into(),
    };
    Ok(Some(if tape.head().has_intervals { tapes.of_intervals() } else { tapes }))
}

/// Whether a tape is of the program that runs here: by the name of its file, because files move. A tape of an imported trace does not know.
fn is_of_this_program(head: &TapeHead) -> bool {
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    head.program.is_empty() || Path::new(&head.program).file_name() == program.file_name()
}

/// The words of the process's command, with a zero byte between them; and the digest of all but the first.
pub fn command_and_digest() -> (Vec<u8>, u64) {
    let mut command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    command.pop_if(|last| *last == 0);
    let digest = Head::digest(command.split(|byte| *byte == 0).skip(1));
    (command, digest)
}

/// The far range begins at the same address in every run, and is the only region of a program's trace.
fn is_far(region: u32, page: u32) -> bool {
    region == 0 && page < FAR_PAGES
}

fn of_phase(phase: &[PageRange]) -> PageSet {
    let far = phase.iter().filter(|range| is_far(range.region, range.first_page));
    PageSet::of(far.map(|range| (PageNo(range.first_page), range.pages.min(FAR_PAGES - range.first_page))))
}

fn of_thread(tape: &'static Tape<'static>, thread: u32) -> ThreadTape {
    let arrivals = tape
        .arrivals(thread)
        .filter(move |arrival| is_far(arrival.region, arrival.page))
        .map(|a| TapeArrival { position: a.position, page: PageNo(a.page), own: a.own, interval: a.interval });
    // Within a microset the trace does not show when a page was used last.
    let more = tape.head().microset_pages.saturating_sub(1);
    let departures =
        tape.departures(thread).filter(move |departure| is_far(departure.region, departure.page)).map(move |d| {
            TapeDeparture {
                position: d.position,
                page: PageNo(d.page),
                used_until: d.last_use.saturating_add(more).min(d.position),
                next_use: d.next_use,
            }
        });
    let ahead_pages = u32::try_from(tape.threads()[thread as usize].ahead_pages).unwrap_or(u32::MAX);
    ThreadTape { arrivals: Box::new(arrivals), departures: Box::new(departures), ahead_pages }
}
