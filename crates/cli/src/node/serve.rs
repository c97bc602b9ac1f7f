//! The node's life: start, log, end by a signal.

use super::renewal::Renewal;
use super::{NodeError, ServeArgs};
use super::{default_url, drain_and_exit, log, metrics, register};
use crate::host::Host;
use crate::print;
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_tls::{CredentialError, NodeCredentials};
use hinterland_units::ByteCount;
use hinterland_wire::Endpoint;
use nix::sys::signal::{SigHandler, Signal, signal};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Serves until a signal ends it.
pub fn run(args: &ServeArgs) -> Result<(), NodeError> {
    let size = |flag, text: &Option<String>| {
        let read = |text: &String| text.parse().map(|bytes: ByteCount| bytes.0);
        text.as_ref().map(read).transpose().map_err(|error| NodeError::Flag { flag, why: error.to_string() })
    };
    let capacity_bytes = size("--capacity", &args.capacity)?.unwrap_or(0);
    // Before anything is opened, which would get the number of a socket that is not there.
    let inherited = inherited()?;
    let mut options = Options::new(capacity_bytes);
    options.there_bytes = Host::here().there_bytes().unwrap_or(u64::MAX);
    options.quota_bytes = size("--quota", &args.quota)?.unwrap_or(u64::MAX);
    if options.quota_bytes < SLAB_BYTES {
        let (quota, slab) = (ByteCount(options.quota_bytes), ByteCount(SLAB_BYTES));
        let why =
            format!("{}{quota} is less than one slab, {slab}: no client could get any", quota.question_before(slab));
        return Err(NodeError::Flag { flag: "--quota", why });
    }
    options.link_bits_per_second = args.link;
    let metrics = args.metrics.as_deref().map(metrics::address).transpose()?;
    let lines = log::start(args.log_format, args.verbose)?;
    hinterland_node::raise_descriptor_limit();
    refuse_long_files()?;
    // Before the first connection: a signal that comes early must not be lost.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let renewal = Renewal::take()?;
    let credentials = credentials(args)?;
    let (listening, entry) = listen(args, inherited, options, credentials)?;
    let (node, lends) = (listening.endpoint(), ByteCount(listening.node().figures().capacity_bytes));
    let quota = ByteCount(options.quota_bytes.min(capacity_bytes));
    tracing::info!(%node, capacity = %lends, quota = %quota, pid = std::process::id(), "listening");
    print::text(&format!("listening on {node}, lending {lends}\n"))?;
    listening.node().warn_of_what_is_not_there();
    if matches!(node, Endpoint::Tcp { .. }) && options.link_bits_per_second.is_none() {
        tracing::info!(
            "replies go out as they come: what one program streams holds others' faults up; --link RATE has them take turns"
        );
    }
    renewal.begin(Arc::clone(listening.node()))?;
    if let Some(address) = metrics {
        let address = metrics::serve(address, Arc::clone(listening.node()))?;
        print::text(&format!("figures at http://{address}/metrics\n"))?;
    }
    let registration = entry.map(|entry| entry.take(&listening)).transpose()?;
    tell_systemd(NotifyState::Ready);
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
    tell_systemd(NotifyState::Stopping);
    drain_and_exit::drain(listening.node(), &mut signals, Duration::from_secs(args.drain_seconds.into()));
    if let Some(registration) = registration {
        registration.end();
    }
    listening.stop();
    lines.tell();
    tracing::info!("ended");
    Ok(())
}

/// Listens where it was said, on what a service manager has handed over, or in the usual place; and the place in a
/// pool that the node is to have.
fn listen(
    args: &ServeArgs,
    inherited: Option<OwnedFd>,
    options: Options,
    credentials: Option<NodeCredentials>,
) -> Result<(Listening, Option<register::PoolEntry>), NodeError> {
    let insecure_loopback = args.identity.is_insecure_loopback();
    if let (None, Some(socket)) = (&args.listen, inherited) {
        let listening = Listening::start_inherited(socket, options, credentials, insecure_loopback)?;
        let entry = register::PoolEntry::of(args, &listening.endpoint())?;
        return Ok((listening, entry));
    }
    let endpoint: Endpoint = default_url::or_default(args.listen.as_deref())?.parse()?;
    let entry = register::PoolEntry::of(args, &endpoint)?;
    Ok((Listening::start_with(&endpoint, options, credentials, insecure_loopback)?, entry))
}

/// The socket that a service manager hands over, if one does (sd_listen_fds(3)).
fn inherited() -> Result<Option<OwnedFd>, NodeError> {
    let refused = |why: std::io::Error| NodeError::Flag { flag: "LISTEN_FDS", why: why.to_string() };
    let mut numbers = sd_notify::listen_fds().map_err(refused)?;
    if numbers.len() > 1 {
        return Err(NodeError::Sockets(numbers.len()));
    }
    // SAFETY: the service manager has made the descriptor for this process, and nothing else here uses it.
    Ok(numbers.next().map(|number| unsafe { OwnedFd::from_raw_fd(number) }))
}

/// What the node shows and demands.
fn credentials(args: &ServeArgs) -> Result<Option<NodeCredentials>, CredentialError> {
    let operators = args.operators.as_deref();
    match args.identity().sources()? {
        Some(sources) => NodeCredentials::read(&sources, operators).map(Some),
        None if operators.is_some() => Err(CredentialError::NoOperators),
        None => Ok(None),
    }
}

/// A slab that would be longer than files may be is an error, which costs that slab its sharing, and no signal, which would end the
/// node with all slabs.
fn refuse_long_files() -> std::io::Result<()> {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
    Ok(())
}

/// Says how far we are, if a service manager wants to know.
fn tell_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
