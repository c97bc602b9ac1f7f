//! `hinterland top`: the runs of this user, live.
//!
//! ```text
//! looker (a thread) ── figures, every interval ──► view ──► terminal, or lines in a pipe
//!                                                   ▲ keys
//! setter (a thread for each change) ── what came of it
//! ```
//! Launchers are asked in threads: one that is stopped does not answer, and keys are taken all the same.

mod rates;
mod view;

#[cfg(test)]
pub use rates::tests::run as run_of_test;

use super::client::Launcher;
use super::message::{Request, Status};
use super::process;
use super::ps::{answering, running};
use super::set::ceiling;
use crate::error::{EXIT_REFUSED, complain};
use crate::print::{self, Reader};
use crate::report::bytes;
use clap::Args;
use hinterland_units::whole_number;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{event, execute};
use rates::{Rates, Row};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use view::{View, Wish};

/// Between two looks for keys and news.
const TICK: Duration = Duration::from_millis(50);
/// Between two looks whether the terminal is there, in milliseconds: not every terminal wakes one that waits for its
/// end alone.
const TERMINAL_LOOK: u16 = 500;

/// `hinterland top`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// This run alone: its launcher's PID, or that of any process in it
    #[arg(value_name = "PID", value_parser = process)]
    pid: Option<i32>,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Number of updates. Default: until q or Ctrl-C
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1.., "--count 12"))]
    count: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  hinterland top
  hinterland top 4711
  hinterland top --interval 5 --count 12 > runs.txt

On a terminal, the keys: up and down (or k and j) choose a run, + and - change its local budget by an eighth (of a run with \
--slowdown, the ceiling of that), b asks for a budget as `hinterland set --local` takes it, q ends, Ctrl-Z suspends. Where standard output is no terminal, each update \
prints a line for each run and below it one for each of its paths to far memory (PID path URL …).

Exit code: 0; 125 when the terminal cannot be used or standard output cannot be written.";

fn interval(written: &str) -> Result<Duration, String> {
    let wanted = written.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let allowed = |interval: &Duration| (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(interval);
    wanted.filter(allowed).ok_or_else(|| "not a time from 0.1 to 86400 seconds; write for example --interval 5".into())
}

/// What the threads have found out.
enum News {
    /// The runs, and what is said of launchers that do not answer.
    Runs(Vec<Status>, Vec<String>),
    /// What came of a change.
    Said(String),
}

/// Shows runs until it is told to end.
pub fn run(args: &TopArgs) -> ExitCode {
    let is_screen = io::stdout().is_terminal() && io::stdin().is_terminal();
    let can_draw = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    let only = match args.pid.map(Launcher::of).transpose() {
        Ok(launcher) => launcher.map(|launcher| launcher.pid),
        Err(error) => {
            complain(error);
            return ExitCode::from(EXIT_REFUSED);
        }
    };
    let outcome = if is_screen && can_draw { screen(args, only) } else { lines(args, only) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("top: {error}"));
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// Looks again and again, until its output is closed; `only`: at the run of this launcher.
fn look(interval: Duration, count: Option<u64>, only: Option<i32>, found: &Sender<News>) {
    let mut due = Instant::now();
    for number in 0..count.unwrap_or(u64::MAX) {
        if number > 0 {
            due = (due + interval).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let (runs, silent) = only.map_or_else(running, |pid| answering(&[pid]));
        if found.send(News::Runs(runs, silent.iter().map(ToString::to_string).collect())).is_err() {
            return;
        }
    }
}

fn begin_looking(args: &TopArgs, only: Option<i32>, found: Sender<News>) -> io::Result<()> {
    let (interval, count) = (args.interval, args.count);
    std::thread::Builder::new().name("looker".into()).spawn(move || look(interval, count, only, &found)).map(drop)
}

/// Commands a budget, and tells what came of it without waiting for the run's processes.
fn set(pid: i32, local: &str) -> String {
    let request = Request { local: Some(local.to_owned()), ..Request::set(0) };
    let asked = Launcher::of(pid).and_then(|mut launcher| launcher.ask(&request, Duration::ZERO));
    match asked.map(|answer| answer.set) {
        Ok(Some(change)) => {
            format!("{pid}: the local budget is {} now{}", bytes(change.local_budget_bytes), ceiling(&change))
        }
        Ok(None) => format!("{pid}: nothing was said of a change"),
        Err(error) => format!("{pid}: {error}"),
    }
}

fn lines(args: &TopArgs, only: Option<i32>) -> io::Result<()> {
    let (sender, news) = channel();
    begin_looking(args, only, sender)?;
    let (mut rates, begun) = (Rates::default(), Instant::now());
    if print::text(&rates::head())? == Reader::Gone {
        return Ok(());
    }
    for found in news {
        let News::Runs(runs, silent) = found else { continue };
        silent.iter().for_each(complain);
        let now = Instant::now();
        let rows = rates.rows(runs, now);
        let seconds = now.duration_since(begun).as_secs_f64();
        let text = match rows.is_empty() {
            true => format!("{seconds:>8.1}  no program runs\n"),
            false => {
                let lines = rows.iter().flat_map(|row| row.lines());
                lines.map(|line| format!("{seconds:>8.1}  {line}\n")).collect()
            }
        };
        if print::text(&text)? == Reader::Gone {
            return Ok(());
        }
    }
    Ok(())
}

/// Leaves the terminal as it was, however the view ends.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What signals ask for. In raw mode the keys of a terminal (Ctrl-C, Ctrl-\, Ctrl-Z) send none; other processes do.
struct Signals {
    ends: Arc<AtomicBool>,
    /// It is to stop.
    stops: Arc<AtomicBool>,
    /// It was stopped, also by SIGSTOP, and the terminal was another program's meanwhile.
    goes_on: Arc<AtomicBool>,
}

impl Signals {
    fn take() -> io::Result<Signals> {
        let flag = |signals: &[i32]| {
            let flag = Arc::new(AtomicBool::new(false));
            signals.iter().try_for_each(|signal| signal_hook::flag::register(*signal, Arc::clone(&flag)).map(drop))?;
            Ok::<_, io::Error>(flag)
        };
        Ok(Signals {
            ends: flag(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT])?,
            stops: flag(&[libc::SIGTSTP])?,
            goes_on: flag(&[libc::SIGCONT])?,
        })
    }

    /// Stops if that is asked for, with the terminal as it was before, and takes the terminal after a stop: whether it did.
    fn follow(&self, terminal: &mut ratatui::DefaultTerminal) -> io::Result<bool> {
        if self.stops.swap(false, Relaxed) {
            ratatui::restore();
            stop_job()?;
            // Also where it was not stopped, and no SIGCONT comes.
            self.goes_on.store(true, Relaxed);
        }
        let goes_on = self.goes_on.swap(false, Relaxed);
        if goes_on {
            // Its modes are those of the shell now.
            disable_raw_mode()?;
            enable_raw_mode()?;
            execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
            // Another one knows of nothing on the screen; `Terminal::clear` would ask the terminal where its cursor is, and wait for the answer.
            *terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        }
        Ok(goes_on)
    }
}

/// Stops the process group, the shell's job, as the terminal's Ctrl-Z does; comes back when it goes on. In an orphaned group, which no shell
/// would continue, the kernel ignores the signal. Source: `get_signal`, `kernel/signal.c`.
fn stop_job() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this program.
    let handler = unsafe { sigaction(Signal::SIGTSTP, &default) }?;
    let stopped = kill(Pid::from_raw(0), Signal::SIGTSTP);
    // SAFETY: this handler was there before.
    unsafe { sigaction(Signal::SIGTSTP, &handler) }?;
    Ok(stopped?)
}

/// Ends the process when its terminal is gone: what takes the keys would read its end again and again, and hear no
/// signal.
fn end_with_terminal() -> io::Result<()> {
    let is_there = || {
        let stdin = io::stdin();
        let mut terminal = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        matches!(poll(&mut terminal, PollTimeout::from(TERMINAL_LOOK)), Ok(0) | Err(_))
    };
    let wait = move || {
        while is_there() {}
        std::process::exit(0)
    };
    std::thread::Builder::new().name("terminal".into()).spawn(wait).map(drop)
}

fn screen(args: &TopArgs, only: Option<i32>) -> io::Result<()> {
    let signals = Signals::take()?;
    end_with_terminal()?;
    let (sender, news) = channel();
    begin_looking(args, only, sender.clone())?;
    let terminal = ratatui::try_init()?;
    let _restored = Restored;
    show(terminal, &sender, &news, &signals, args.count)
}

fn show(
    mut terminal: ratatui::DefaultTerminal,
    sender: &Sender<News>,
    news: &Receiver<News>,
    signals: &Signals,
    count: Option<u64>,
) -> io::Result<()> {
    let (mut view, mut rates, mut looks) = (View::default(), Rates::default(), 0);
    terminal.draw(|frame| view.draw(frame))?;
    while !signals.ends.load(Relaxed) {
        let mut changed = signals.follow(&mut terminal)?;
        for found in news.try_iter() {
            changed = true;
            match found {
                News::Runs(runs, silent) => {
                    looks += 1;
                    let rows: Vec<Row> = rates.rows(runs, Instant::now());
                    view.see(rows, &silent);
                }
                News::Said(words) => view.say(words),
            }
        }
        if event::poll(TICK)? {
            changed = true;
            if let event::Event::Key(key) = event::read()? {
                match view.key(key) {
                    Wish::Nothing => {}
                    Wish::End => return Ok(()),
                    Wish::Stop => signals.stops.store(true, Relaxed),
                    Wish::Set { pid, local } => {
                        let sender = sender.clone();
                        let setter = move || drop(sender.send(News::Said(set(pid, &local))));
                        std::thread::Builder::new().name("setter".into()).spawn(setter)?;
                    }
                }
            }
        }
        if changed {
            terminal.draw(|frame| view.draw(frame))?;
        }
        if count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
    }
    Ok(())
}
