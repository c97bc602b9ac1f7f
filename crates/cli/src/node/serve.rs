//! The node's life: start, log, end by a signal.

use super::{LogFormat, NodeError, ServeArgs};
use hinterland_node::{Listening, Options};
use hinterland_units::ByteCount;
use hinterland_wire::Endpoint;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;

/// Serves until a signal ends it.
pub fn run(args: &ServeArgs) -> Result<(), NodeError> {
    let size = |flag, text: &Option<String>| {
        let read = |text: &String| text.parse().map(|bytes: ByteCount| bytes.0);
        text.as_ref().map(read).transpose().map_err(|error| NodeError::Flag { flag, why: error.to_string() })
    };
    let endpoint: Endpoint = args.listen.parse()?;
    let capacity_bytes = size("--capacity", &args.capacity)?.unwrap_or(0);
    let mut options = Options::new(capacity_bytes);
    options.quota_bytes = size("--quota", &args.quota)?.unwrap_or(capacity_bytes).min(capacity_bytes);
    start_log(args);
    hinterland_node::raise_descriptor_limit();
    // Before the first connection: a signal that comes early must not be lost.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let listening = Listening::start(&endpoint, options)?;
    let (node, lends) = (listening.endpoint(), ByteCount(listening.node().figures().capacity_bytes));
    let quota = ByteCount(options.quota_bytes);
    tracing::info!(%node, capacity = %lends, quota = %quota, pid = std::process::id(), "listening");
    writeln!(std::io::stdout(), "listening on {node}, lending {lends}")?;
    if let Some(signal) = signals.forever().next() {
        let figures = listening.node().figures();
        tracing::info!(
            signal,
            sessions = figures.sessions,
            used = %ByteCount(figures.used_bytes),
            read = %ByteCount(figures.read_bytes),
            written = %ByteCount(figures.written_bytes),
            "ending"
        );
    }
    listening.stop();
    tracing::info!("ended");
    Ok(())
}

fn start_log(args: &ServeArgs) {
    let level = if args.verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    match args.log {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
