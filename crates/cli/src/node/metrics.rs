//! A node's figures for Prometheus: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.
//!
//! Nothing is counted here: every scrape asks the node.

use super::NodeError;
use super::http::{self, Page};
use hinterland_node::{BUCKETS, Histogram, Node, SAMPLED_ONE_IN, SessionStatistics, Work};
use hinterland_units::Foreign;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Sessions that are told apart, the largest ones: each makes some time series.
const SESSIONS_MAX: usize = 32;

fn refused(why: String) -> NodeError {
    NodeError::Flag { flag: "--metrics", why }
}

/// The address of `place`: `HOST:PORT`, or a port on loopback.
///
/// # Errors
/// It cannot be read.
pub fn address(place: &str) -> Result<SocketAddr, NodeError> {
    let full = if place.parse::<u16>().is_ok() { format!("127.0.0.1:{place}") } else { place.to_owned() };
    let found = full.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    let wrong = || refused(format!("'{place}' is not HOST:PORT; write for example 127.0.0.1:9440"));
    found.ok_or_else(wrong)
}

/// Answers scrapes at `address`.
///
/// # Errors
/// It cannot be listened on.
pub fn serve(address: SocketAddr, node: Arc<Node>) -> Result<SocketAddr, NodeError> {
    let mut registry = Registry::with_prefix("hinterland_node");
    registry.register_collector(Box::new(NodeCollector(node.clone())));
    let page = move |path: &str| match path {
        "/metrics" => {
            let mut body = String::new();
            text::encode(&mut body, &registry).ok()?;
            Some(Page { content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8", body })
        }
        "/healthz" => {
            let body = if node.is_draining() { "draining\n" } else { "ok\n" };
            Some(Page { content_type: "text/plain; charset=utf-8", body: body.into() })
        }
        _ => None,
    };
    http::serve(address, page).map_err(|error| refused(format!("cannot listen on {address}: {error}")))
}

/// What is scraped.
struct NodeCollector(Arc<Node>);

impl fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeCollector")
    }
}

/// Name, what it says, unit, value.
type Row<'a> = (&'a str, &'a str, Option<Unit>, u64);

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let node = self.0.figures();
        let bytes = Some(Unit::Bytes);
        let copies = self.0.copies(Instant::now());
        let gauges: [Row<'_>; 11] = [
            ("capacity", "Memory that the node lends at most", bytes.clone(), node.capacity_bytes),
            ("used", "Memory that is leased", bytes.clone(), node.used_bytes),
            ("uptime", "Time since the node started", Some(Unit::Seconds), node.uptime_ms / 1000),
            ("sessions", "Sessions now", None, node.sessions),
            ("connections", "Connections now", None, node.lanes),
            (
                "request_buffers",
                "Memory for long requests that are not served yet",
                bytes.clone(),
                self.0.buffer_bytes(),
            ),
            ("draining", "1 when the node leases no more memory", None, node.draining),
            ("removable", "1 when no page of a program would be lost with the node", None, copies.removable.into()),
            ("unknown_sessions", "Sessions of which that is not known", None, copies.unknown_sessions),
            ("lacking_pages", "Pages that have fewer copies than are wanted", None, copies.sums.lacking_pages),
            ("last_pages", "Pages that would be lost with the node", None, copies.sums.last_pages),
        ];
        for (name, help, unit, value) in gauges {
            let into = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            gauge(value).encode(into)?;
        }
        let help = "Pages that are copied to the node or away from it in a second, over the last ten";
        let into = encoder.encode_descriptor("copied_pages_per_second", help, None, MetricType::Gauge)?;
        ConstGauge::new(copies.sums.copied_pages as f64 / 10.0).encode(into)?;
        let counters: [Row<'_>; 6] = [
            ("reads", "Ranges read", None, node.reads),
            ("read", "Bytes read", bytes.clone(), node.read_bytes),
            ("writes", "Ranges written", None, node.writes),
            ("written", "Bytes written", bytes, node.written_bytes),
            ("copied_slabs", "Slabs copied because a fork's other side writes", None, node.copied_slabs),
            ("refusals", "Requests refused, and connections ended for what they sent", None, node.refused),
        ];
        for (name, help, unit, value) in counters {
            let into = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            ConstCounter::new(value).encode(into)?;
        }
        self.certificates(&mut encoder)?;
        self.latencies(&mut encoder)?;
        self.sessions(&mut encoder)
    }
}

impl NodeCollector {
    fn certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(credentials) = self.0.credentials() else { return Ok(()) };
        let (certificates, now) = (credentials.certificates(), SystemTime::now());
        if certificates.is_empty() {
            return Ok(());
        }
        let help = "Time for which a certificate is still good: the node's own (those that lead to its CA, too) or the CA of programs";
        let unit = Some(&Unit::Seconds);
        let mut into = encoder.encode_descriptor("certificate_left", help, unit, MetricType::Gauge)?;
        for (number, certificate) in certificates.iter().enumerate() {
            let kind = if certificate.is_ca { "ca" } else { "own" };
            // Two may be for the same: an old one and a new one.
            let labels = [
                ("kind", kind.to_owned()),
                ("number", number.to_string()),
                ("subject", Foreign(&certificate.subject).to_string()),
            ];
            ConstGauge::new(certificate.left_seconds(now)).encode(into.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        const _: () = assert!(SAMPLED_ONE_IN == 16, "the text says so");
        let help = "Time that the node takes for a request, without the way; of reads and writes one in 16 is timed";
        let unit = Some(&Unit::Seconds);
        let mut into = encoder.encode_descriptor("request_duration", help, unit, MetricType::Histogram)?;
        for work in Work::ALL {
            let kind = match work {
                Work::Read => "read",
                Work::Write => "write",
                Work::Other => "other",
            };
            let all = self.0.latency(work);
            // The encoder adds them up, and wants the last bound as the largest number.
            let buckets: Vec<(f64, u64)> =
                (0..=BUCKETS).map(|at| (Histogram::bound_seconds(at), all.buckets[at])).collect();
            let labels = [("kind", kind)];
            let sum = all.sum_ns as f64 / 1e9;
            into.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, all.count(), &buckets, None)?;
        }
        Ok(())
    }

    fn sessions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sessions = self.0.largest_sessions(SESSIONS_MAX);
        type Value = fn(&SessionStatistics) -> u64;
        let bytes = || Some(Unit::Bytes);
        let rows: [(&str, &str, Option<Unit>, MetricType, Value); 5] = [
            ("session_held", "Memory of a session, of the largest ones", bytes(), MetricType::Gauge, |session| {
                u64::from(session.slabs) * hinterland_node::SLAB_BYTES
            }),
            ("session_quota", "What a session may hold with its clones", bytes(), MetricType::Gauge, |session| {
                session.quota_bytes
            }),
            ("session_connections", "Connections of a session", None, MetricType::Gauge, |session| {
                session.lanes.into()
            }),
            ("session_read", "Bytes that a session read", bytes(), MetricType::Counter, |session| session.read_bytes),
            ("session_written", "Bytes that a session wrote", bytes(), MetricType::Counter, |session| {
                session.written_bytes
            }),
        ];
        for (name, help, unit, kind, value) in rows {
            let is_counter = matches!(kind, MetricType::Counter);
            let mut into = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for session in &sessions {
                let labels = [("session", session.session.to_string()), ("name", Foreign(&session.name).to_string())];
                let into = into.encode_family(&labels)?;
                let value = value(session);
                if is_counter { ConstCounter::new(value).encode(into)? } else { gauge(value).encode(into)? }
            }
        }
        Ok(())
    }
}

/// Gauges are signed in the library.
fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
