//! The tape that the program follows: bytes that the launcher has checked and keeps in a memfd, read before the program starts.
//!
//! Each program of a run takes the tape that is of it from the run's table ([`hinterland_abi::TapeTable`]); one that a process calls exec for takes
//! one anew, from its beginning. A child of a fork takes its own, too: that of the process which came by the same forks from the program of the
//! tape that its parent follows ([`path`]). It begins at the fork, with its parent's pages wherever they are.

use crate::fork::path;
use crate::{build_id, handover, ledger};
use hinterland_abi::{HandoverFile, Ledger, ProcessRow, Settings, TapePlace, TapeTaker};
use hinterland_pager::FAR_PAGES;
use hinterland_policy::tape::{
    PageSet, SetSource, TapeArrival, TapeDeparture, TapeLookahead, TapeSource, Tapes, ThreadTape,
};
use hinterland_sys::{confinement, thread};
use hinterland_tape::tape::{Order, PageRange, Tape};
use hinterland_tape::{Head, program_key};
use hinterland_units::PageNo;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// What the children of this process need to take tapes of their own.
struct Run {
    settings: Settings,
    /// This process, as a child is known beside it; the arguments are those of its tape, which may be another run's.
    taker: TapeTaker,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// The tape, if there is one for this process.
pub fn begin(settings: &Settings, row: &ProcessRow) -> Option<Tapes> {
    let ledger = ledger::get().filter(|_| !settings.tape_memory.is_empty())?;
    let taker = taker();
    let taken = take(settings, taker, ledger, row);
    row.tape_processes_without.store(taken.is_none().into(), Relaxed);
    let arguments = taken.as_ref().map_or(taker.arguments, |(_, place)| place.arguments);
    let _ = RUN.set(Run { settings: settings.clone(), taker: TapeTaker { arguments, ..taker } });
    taken.map(|(tapes, _)| tapes)
}

/// The tape of this process, which was forked just now.
pub fn begin_child(row: &ProcessRow) -> Option<Tapes> {
    let (run, ledger) = (RUN.get()?, ledger::get()?);
    let pid = i32::try_from(thread::process()).unwrap_or(0);
    let taken = path::of_process().key().and_then(|forks| {
        let taker = TapeTaker { forks, pid, ..run.taker };
        // A confined process cannot open the tapes: it goes on without.
        confinement::with_files(|| take(&run.settings, taker, ledger, row))?
    });
    row.tape_processes_without.store(taken.is_none().into(), Relaxed);
    taken.map(|(tapes, _)| tapes)
}

/// The tape that `taker` takes, and what the table says of it. One that cannot be had is none: the process is managed all the same.
fn take(settings: &Settings, taker: TapeTaker, ledger: &Ledger, row: &ProcessRow) -> Option<(Tapes, TapePlace)> {
    let (number, place) = ledger.tapes.take(taker)?;
    let read = |file: &File| Tape::open(read(file, place).ok()?.leak()).ok();
    let tape = handover::open(settings, &settings.tape_memory, HandoverFile::Tapes, read);
    // As long as the process lives.
    let tape: &'static Tape<'static> = Box::leak(Box::new(tape?));
    row.tape.store(u32::try_from(number + 1).unwrap_or(0), Relaxed);
    row.tape_processes.store(1, Relaxed);
    let lookahead =
        TapeLookahead { batch_pages: settings.tape_batch_pages, lookahead_pages: settings.tape_lookahead_pages };
    let tapes: Tapes = match tape.head().order {
        Order::Ordered => {
            let threads = u32::try_from(tape.threads().len()).unwrap_or(u32::MAX);
            TapeSource::new((0..threads).map(|thread| of_thread(tape, thread)), lookahead).into()
        }
        Order::Sets => SetSource::new(tape.phases().iter().map(|phase| of_phase(phase))).into(),
    };
    Some((if tape.head().has_intervals { tapes.of_intervals() } else { tapes }, place))
}

/// Whose program this is: by its build-id, or else, and for tapes that know none, by the name of its file.
fn taker() -> TapeTaker {
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let program = program.to_string_lossy();
    TapeTaker {
        programs: [program_key(&build_id::of_program(), &program), program_key("", &program)],
        arguments: command_and_digest().1,
        forks: 0,
        pid: i32::try_from(thread::process()).unwrap_or(0),
    }
}

/// A tape, out of the memory that has all of them.
fn read(memory: &File, place: TapePlace) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(place.bytes).unwrap_or(0)];
    memory.read_exact_at(&mut bytes, place.offset)?;
    Ok(bytes)
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
