//! The node's log: text or JSON on standard error. What clients cause is at most `LINES_MAX` lines a second; how many were left out is
//! said once a second. What the command itself says is always there.

use super::LogFormat;
use hinterland_units::{Foreign, ForeignJson};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Lines a second that clients cause, at most.
const LINES_MAX: u64 = 10;
/// Of those, lines that are no warnings: connections that come and go hide none.
const PLAIN_MAX: u64 = 5;
/// Where lines come from that are always written: this command.
const OURS: &str = "hinterland_cli";

/// Begins to log. Who ends calls `tell` once more.
pub fn start(format: LogFormat, verbose: bool) -> io::Result<Arc<Lines>> {
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let lines = Arc::new(Lines::default());
    let admits = {
        let (lines, begun) = (Arc::clone(&lines), Instant::now());
        // Before a line is made: one that is left out costs nothing.
        move |event: &Metadata<'_>| {
            event.target().starts_with(OURS)
                || lines.admit(begun.elapsed().as_secs(), *event.level() <= tracing::Level::WARN)
        }
    };
    let filter = dynamic_filter_fn(move |event, _| *event.level() <= level && admits(event)).with_max_level_hint(level);
    let json = matches!(format, LogFormat::Json);
    let log = tracing_subscriber::fmt::layer().with_writer(move || Line { json }).with_target(false);
    let log = match format {
        LogFormat::Text => log.with_ansi(false).with_filter(filter).boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(log).init();
    let told = Arc::clone(&lines);
    let tell = move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            told.tell();
        }
    };
    Builder::new().name("log".into()).spawn(tell)?;
    Ok(lines)
}

/// How many lines there were.
#[derive(Default)]
pub struct Lines {
    /// The second, times 2^32, and the lines of that second.
    state: AtomicU64,
    left_out: AtomicU64,
}

impl Lines {
    /// Says how many lines were left out since it was said last.
    pub fn tell(&self) {
        let count = self.left_out.swap(0, Relaxed);
        if count > 0 {
            tracing::info!(count, "lines about clients were left out of the log: more than {LINES_MAX} a second");
        }
    }

    /// Whether one more line is written in this second.
    fn admit(&self, second: u64, is_warning: bool) -> bool {
        let most = if is_warning { LINES_MAX } else { PLAIN_MAX };
        let count = |state: u64| {
            let of_this_second = if state >> 32 == second { state & u64::from(u32::MAX) } else { 0 };
            (of_this_second < most).then_some((second << 32) + of_this_second + 1)
        };
        let admitted = self.state.fetch_update(Relaxed, Relaxed, count).is_ok();
        if !admitted {
            self.left_out.fetch_add(1, Relaxed);
        }
        admitted
    }
}

/// Writes an event, which is one line, to standard error: names and words of clients, and what etcd says, are escaped.
struct Line {
    json: bool,
}

impl Write for Line {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let event_text = String::from_utf8_lossy(event);
        let line = event_text.strip_suffix('\n').unwrap_or(&event_text);
        let shown = if self.json { ForeignJson(line).to_string() } else { Foreign(line).to_string() };
        io::stderr().write_all((shown + "\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_lines_and_the_rest_is_counted() {
        let lines = Lines::default();
        for second in [0, 1, 5] {
            let written = |is_warning| (0..100).filter(|_| lines.admit(second, is_warning)).count() as u64;
            assert_eq!(written(false), PLAIN_MAX, "second {second}");
            assert_eq!(written(true), LINES_MAX - PLAIN_MAX, "second {second}: warnings have their part");
            assert_eq!(lines.left_out.swap(0, Relaxed), 200 - LINES_MAX, "second {second}");
        }
    }
}
