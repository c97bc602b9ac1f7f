//! Backend URLs, as the user writes them with `--far`.
//!
//! ```text
//! compressed[:CAP][?codec=lz4|zstd][&recompress=off|zstd]
//! numa:NODE[:SIZE]
//! file:PATH[?size=SIZE][&io=auto|plain][&direct=on|off][&depth=N][&threads=N]
//! NODE[,NODE …][?size=SIZE][&replicas=N][&erasure=K+M][&link-compression=off|on|auto][&sub-page=off|auto][&share=auto|strict|fixed:P|weighted:P][&lanes=N][&timeout=SECONDS]    with NODE = tcp://HOST:PORT or unix:/PATH
//! etcd://HOST[:PORT][,…]/POOL[?size=SIZE][&replicas=N][&link-compression=…][&sub-page=…][&share=…][&lanes=N][&timeout=SECONDS]    nodes that are listed there; etcds:// over TLS
//! reference[:CAP]
//! every one:  &link=LATENCY:BANDWIDTH[:half] &delay_us=N &jitter_us=N &throttle=BYTES_PER_SECOND &fault=KIND:PROBABILITY|KIND@N[,…] &seed=N
//! ```
//! In a PATH, `%3F` stands for `?`, `%20` for a blank, and so on. Reading a URL opens nothing.

use crate::decorate::{FaultKind, FaultRule, FaultWhen};
use crate::{
    CodecName, DEMAND_LANES_MAX, ErasureCode, FileWidth, IoMethod, LinkCompression, LinkModel, LinkShare, NODES_MAX,
    TIMEOUT_S_MAX,
};
use hinterland_units::{ByteCount, PAGE_BYTES, SizeError};
use hinterland_wire::{Directory, DirectoryError, Endpoint, EndpointError};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// A backend as described by its URL.
#[derive(Clone, PartialEq, Debug)]
pub struct BackendUrl {
    /// Which backend.
    pub scheme: Scheme,
    /// Bytes that it may hold; `None`: to be chosen when it is opened.
    pub capacity: Option<ByteCount>,
    /// What is wrapped around it.
    pub decoration: Decoration,
}

/// The backends and their own parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Compressed RAM.
    Compressed {
        /// How pages are compressed.
        codec: CodecName,
        /// Whether zstd compresses again what stays.
        recompress: bool,
    },
    /// Plain pages in memory of a NUMA node.
    Numa {
        /// The node's number.
        node: u32,
    },
    /// A file.
    File {
        /// A directory, or the name of a file to be.
        path: PathBuf,
        /// How pages travel.
        io: IoMethod,
        /// Whether the page cache is bypassed where possible.
        direct: bool,
        /// How much is under way at once.
        width: FileWidth,
    },
    /// Memory nodes.
    Nodes {
        /// Where they listen.
        endpoints: Vec<Endpoint>,
        /// Nodes that keep each page; `None`: one.
        replicas: Option<usize>,
        /// Stripes with parity instead of replicas.
        erasure: Option<ErasureCode>,
        /// Whether pages are compressed on their way.
        compression: LinkCompression,
        /// Whether what changed of a page is written over its copy, where it pays.
        sub_page: bool,
        /// How links are divided; `None`: as they are by default.
        share: Option<LinkShare>,
        /// Threads that can wait for pages of a node at once; `None`: as many as by default.
        lanes: Option<usize>,
        /// Seconds that a node may leave a request without progress; `None`: as many as by default.
        timeout_s: Option<usize>,
    },
    /// Memory nodes that a directory lists, which come and go.
    Pool {
        /// Where they are listed.
        directory: Directory,
        /// Nodes that keep each page; `None`: one.
        replicas: Option<usize>,
        /// Whether pages are compressed on their way.
        compression: LinkCompression,
        /// Whether what changed of a page is written over its copy, where it pays.
        sub_page: bool,
        /// How links are divided; `None`: as they are by default.
        share: Option<LinkShare>,
        /// Threads that can wait for pages of a node at once; `None`: as many as by default.
        lanes: Option<usize>,
        /// Seconds that a node may leave a request without progress; `None`: as many as by default.
        timeout_s: Option<usize>,
    },
    /// Plain pages in memory.
    Reference,
}

/// Decorators of a backend.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Decoration {
    /// Microseconds that each call takes longer.
    pub delay_us: u64,
    /// Microseconds that each call takes longer at random, at most.
    pub jitter_us: u64,
    /// Bytes that may pass each second.
    pub throttle: Option<ByteCount>,
    /// What it is the far end of.
    pub link: Option<LinkModel>,
    /// Faults.
    pub faults: Vec<FaultRule>,
    /// Seed of jitter and faults.
    pub seed: u64,
}

/// Why a URL cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// No such backend.
    #[error("'{url}': there is no backend '{scheme}'; known are compressed, numa, file, tcp, unix, etcd, reference")]
    Scheme {
        /// The whole URL.
        url: String,
        /// What stands before the colon.
        scheme: String,
    },
    /// No such parameter for this backend.
    #[error("'{url}': there is no parameter '{name}'; known are {known}")]
    Parameter {
        /// The whole URL.
        url: String,
        /// What was written.
        name: String,
        /// What may be written.
        known: &'static str,
    },
    /// A parameter's value cannot be read.
    #[error("'{url}': '{value}' is no value for {name}; {wanted}")]
    Value {
        /// The whole URL.
        url: String,
        /// The parameter.
        name: String,
        /// What was written.
        value: String,
        /// What may be written.
        wanted: &'static str,
    },
    /// A size cannot be read.
    #[error("'{url}': {error}")]
    Size {
        /// The whole URL.
        url: String,
        /// Why.
        error: SizeError,
    },
    /// A capacity below one page.
    #[error("'{url}': {}the capacity is smaller than one page; write at least 4K", .size.question_before(ByteCount(PAGE_BYTES as u64)))]
    TooSmall {
        /// The whole URL.
        url: String,
        /// What it says.
        size: ByteCount,
    },
    /// A node's address cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A directory of nodes cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// More copies than nodes.
    #[error("'{url}': {replicas} replicas need {replicas} nodes, and here are {nodes}; name more, separated by commas")]
    Replicas {
        /// The whole URL.
        url: String,
        /// Copies that were asked for.
        replicas: usize,
        /// Nodes that were named.
        nodes: usize,
    },
    /// More units in a stripe than nodes.
    #[error("'{url}': stripes of {code} pages need {} nodes, and here are {nodes}; name more, separated by commas", code.units())]
    Stripes {
        /// The whole URL.
        url: String,
        /// What was asked for.
        code: ErasureCode,
        /// Nodes that were named.
        nodes: usize,
    },
    /// Replicas and stripes.
    #[error("'{url}': pages are kept in stripes with parity or in replicas, not both; leave erasure or replicas out")]
    Both {
        /// The whole URL.
        url: String,
    },
    /// Pages compressed on their way to where that cannot be.
    #[error(
        "'{url}': pages are compressed for links of tcp:// alone, and as whole pages; leave link-compression out with unix: and with erasure"
    )]
    Compression {
        /// The whole URL.
        url: String,
    },
    /// Recompression by the codec that compressed already.
    #[error("'{url}': pages are compressed by zstd at once; leave recompress out")]
    Recompression {
        /// The whole URL.
        url: String,
    },
    /// Operations in flight where there is one at a time.
    #[error("'{url}': io=plain has one operation in flight; leave depth or io=plain out")]
    Depth {
        /// The whole URL.
        url: String,
    },
    /// Too many nodes.
    #[error("'{url}': {nodes} nodes are too many; a pool has at most {NODES_MAX}")]
    Nodes {
        /// The whole URL.
        url: String,
        /// Nodes that were named.
        nodes: usize,
    },
    /// A node twice.
    #[error("'{url}': {node} is named twice; two copies in one node would be lost together")]
    Twice {
        /// The whole URL.
        url: String,
        /// The node.
        node: Endpoint,
    },
    /// A NUMA node without its number.
    #[error("'{url}': '{written}' is no number of a NUMA node; write for example numa:1 or numa:1:16G")]
    NoNumaNode {
        /// The whole URL.
        url: String,
        /// What was written.
        written: String,
    },
    /// A file without a path.
    #[error("'{url}': the path is missing; write for example file:/mnt/ssd/far?size=64G")]
    NoPath {
        /// The whole URL.
        url: String,
    },
}

const COMMON: &str = "link, delay_us, jitter_us, throttle, fault, seed";
const FAULTS: &str = "write for example flip:0.001 or load@100, kinds are load, store, flip; join several with commas";

/// Reads a backend's URL; opens nothing.
///
/// # Errors
/// What cannot be read, and what may be written instead.
pub fn parse(url: &str) -> Result<BackendUrl, UrlError> {
    let (head, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = head.split_once(':').map_or((head, None), |(scheme, rest)| (scheme, Some(rest)));
    let mut capacity = None;
    let mut read_capacity = |text: &str| -> Result<(), UrlError> {
        capacity = Some(size(url, text)?);
        Ok(())
    };
    let mut scheme = match scheme {
        "compressed" | "reference" => {
            rest.map(&mut read_capacity).transpose()?;
            match scheme {
                "compressed" => Scheme::Compressed { codec: CodecName::default(), recompress: false },
                _ => Scheme::Reference,
            }
        }
        "numa" => {
            let (node, size) = rest.map_or(("", None), |rest| {
                rest.split_once(':').map_or((rest, None), |(node, size)| (node, Some(size)))
            });
            size.map(&mut read_capacity).transpose()?;
            let no_node = |_| UrlError::NoNumaNode { url: url.into(), written: node.into() };
            Scheme::Numa { node: node.parse().map_err(no_node)? }
        }
        "file" => {
            let path = rest.filter(|path| !path.is_empty()).ok_or_else(|| UrlError::NoPath { url: url.into() })?;
            Scheme::File {
                path: unescape(url, path)?,
                io: IoMethod::default(),
                direct: true,
                width: FileWidth::default(),
            }
        }
        _ if Directory::is_named_by(head) => Scheme::Pool {
            directory: head.parse()?,
            replicas: None,
            compression: LinkCompression::Off,
            sub_page: false,
            share: None,
            lanes: None,
            timeout_s: None,
        },
        _ if names_nodes(head) => Scheme::Nodes {
            endpoints: endpoints(url, head)?,
            replicas: None,
            erasure: None,
            compression: LinkCompression::Off,
            sub_page: false,
            share: None,
            lanes: None,
            timeout_s: None,
        },
        _ => return Err(UrlError::Scheme { url: url.into(), scheme: scheme.into() }),
    };
    let mut decoration = Decoration::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if name == "size" && scheme.leaves_process() {
            capacity = Some(size(url, value)?);
        } else if !read_own(url, &mut scheme, name, value)? && !decoration.read(url, name, value)? {
            return Err(UrlError::Parameter { url: url.into(), name: name.into(), known: scheme.known() });
        }
    }
    if let Some(size) = capacity.filter(|size| size.0 < PAGE_BYTES as u64) {
        return Err(UrlError::TooSmall { url: url.into(), size });
    }
    check_replicas(url, &scheme)?;
    if matches!(scheme, Scheme::Compressed { codec: CodecName::Zstd, recompress: true }) {
        return Err(UrlError::Recompression { url: url.into() });
    }
    if matches!(scheme, Scheme::File { io: IoMethod::Plain, width, .. } if width.depth != FileWidth::default().depth) {
        return Err(UrlError::Depth { url: url.into() });
    }
    Ok(BackendUrl { scheme, capacity, decoration })
}

/// What a URL, which need not be right, says before its colon.
pub fn kind(url: &str) -> &str {
    url.split_once(':').map_or(url, |(kind, _)| kind)
}

/// Schemes of memory nodes.
const NODES: [&str; 2] = ["tcp", "unix"];

/// Whether a URL, which need not be right, is one of memory nodes.
pub fn names_nodes(url: &str) -> bool {
    Directory::is_named_by(url) || url.split_once(':').is_some_and(|(scheme, _)| NODES.contains(&scheme))
}

/// The nodes of a pool.
fn endpoints(url: &str, head: &str) -> Result<Vec<Endpoint>, UrlError> {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for text in head.split(',') {
        let endpoint: Endpoint = text.parse()?;
        if endpoints.contains(&endpoint) {
            return Err(UrlError::Twice { url: url.into(), node: endpoint });
        }
        endpoints.push(endpoint);
    }
    if endpoints.len() > NODES_MAX {
        return Err(UrlError::Nodes { url: url.into(), nodes: endpoints.len() });
    }
    Ok(endpoints)
}

fn check_replicas(url: &str, scheme: &Scheme) -> Result<(), UrlError> {
    match scheme {
        Scheme::Nodes { replicas: Some(2..), erasure: Some(_), .. } => Err(UrlError::Both { url: url.into() }),
        Scheme::Nodes { endpoints, replicas: Some(replicas), .. } if *replicas > endpoints.len() => {
            Err(UrlError::Replicas { url: url.into(), replicas: *replicas, nodes: endpoints.len() })
        }
        Scheme::Nodes { endpoints, erasure: Some(code), .. } if code.units() > endpoints.len() => {
            Err(UrlError::Stripes { url: url.into(), code: *code, nodes: endpoints.len() })
        }
        Scheme::Nodes { compression: LinkCompression::On, .. } if !scheme.may_compress() => {
            Err(UrlError::Compression { url: url.into() })
        }
        _ => Ok(()),
    }
}

/// Has every pool among `urls` that does not say how many replicas it keeps keep `replicas`.
///
/// # Errors
/// A URL that cannot be read; a pool with fewer nodes.
pub fn set_replicas(urls: &mut [String], replicas: usize) -> Result<(), UrlError> {
    for url in urls {
        let mut parsed = parse(url)?;
        if let Scheme::Nodes { replicas: wanted @ None, .. } | Scheme::Pool { replicas: wanted @ None, .. } =
            &mut parsed.scheme
        {
            *wanted = Some(replicas);
            check_replicas(url, &parsed.scheme)?;
            *url = parsed.to_string();
        }
    }
    Ok(())
}

/// Reads a parameter that belongs to one backend; `false` if it is not one.
fn read_own(url: &str, scheme: &mut Scheme, name: &str, value: &str) -> Result<bool, UrlError> {
    match (scheme, name) {
        (Scheme::Compressed { codec, .. }, "codec") => {
            *codec = value.parse().map_err(|()| bad_value(url, name, value, "write lz4 or zstd"))?;
        }
        (Scheme::Compressed { recompress, .. }, "recompress") => {
            *recompress = match value {
                "off" => false,
                "zstd" => true,
                _ => return Err(bad_value(url, name, value, "write off or zstd")),
            };
        }
        (Scheme::File { io, .. }, "io") => {
            *io = match value {
                "auto" => IoMethod::Auto,
                "plain" => IoMethod::Plain,
                _ => return Err(bad_value(url, name, value, "write auto or plain")),
            };
        }
        (Scheme::File { direct, .. }, "direct") => {
            *direct = match value {
                "on" => true,
                "off" => false,
                _ => return Err(bad_value(url, name, value, "write on or off")),
            };
        }
        (Scheme::File { width, .. }, "depth") => {
            width.depth =
                number_to(FileWidth::MAX, url, name, value, "write operations in flight of one load, 1 to 64")?;
        }
        (Scheme::File { width, .. }, "threads") => {
            width.threads =
                number_to(FileWidth::MAX, url, name, value, "write threads that can wait for pages at once, 1 to 64")?;
        }
        (Scheme::Nodes { lanes, .. } | Scheme::Pool { lanes, .. }, "lanes") => {
            let wanted = "write threads that can wait for pages of a node at once, 1 to 32";
            *lanes = Some(number_to(DEMAND_LANES_MAX, url, name, value, wanted)?);
        }
        (Scheme::Nodes { timeout_s, .. } | Scheme::Pool { timeout_s, .. }, "timeout") => {
            let wanted = "write seconds that a node may leave a request without progress, 1 to 600";
            *timeout_s = Some(number_to(TIMEOUT_S_MAX, url, name, value, wanted)?);
        }
        (Scheme::Nodes { replicas, .. } | Scheme::Pool { replicas, .. }, "replicas") => {
            let number = value.parse().ok().filter(|number| (1..=NODES_MAX).contains(number));
            *replicas = Some(number.ok_or_else(|| bad_value(url, name, value, "write how many nodes keep each page"))?);
        }
        (Scheme::Nodes { compression, .. } | Scheme::Pool { compression, .. }, "link-compression") => {
            *compression = value.parse().map_err(|()| bad_value(url, name, value, "write off, on or auto"))?;
        }
        (Scheme::Nodes { sub_page, .. } | Scheme::Pool { sub_page, .. }, "sub-page") => {
            *sub_page = match value {
                "off" => false,
                "auto" => true,
                _ => return Err(bad_value(url, name, value, "write off or auto")),
            };
        }
        (Scheme::Nodes { share, .. } | Scheme::Pool { share, .. }, "share") => {
            let wanted = "write auto, strict, fixed:PERCENT or weighted:PERCENT, for what the program waits for";
            *share = Some(value.parse().map_err(|()| bad_value(url, name, value, wanted))?);
        }
        (Scheme::Nodes { erasure, .. }, "erasure") => {
            let wanted = "write data pages and parity pages of a stripe, eight at most, for example 4+2";
            *erasure = Some(value.parse().map_err(|()| bad_value(url, name, value, wanted))?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

impl Scheme {
    /// Whether pages go to memory nodes.
    pub(crate) fn is_nodes(&self) -> bool {
        matches!(self, Scheme::Nodes { .. } | Scheme::Pool { .. })
    }

    /// The price of a byte there, relative to RAM of this machine: memory that another machine or a NUMA node has to spare half, a disk a
    /// twentieth.
    pub(crate) fn price(&self) -> f64 {
        match self {
            Scheme::Compressed { .. } | Scheme::Reference => 1.0,
            Scheme::Nodes { .. } | Scheme::Pool { .. } | Scheme::Numa { .. } => 0.5,
            Scheme::File { .. } => 0.05,
        }
    }

    /// Whether pages go over links for which they can be compressed.
    fn may_compress(&self) -> bool {
        match self {
            Scheme::Nodes { endpoints, erasure, .. } => {
                erasure.is_none() && endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Tcp { .. }))
            }
            Scheme::Pool { .. } => true,
            _ => false,
        }
    }

    /// How pages are compressed on their way.
    pub(crate) fn link_compression(&self) -> LinkCompression {
        match self {
            Scheme::Nodes { compression, .. } | Scheme::Pool { compression, .. } if self.may_compress() => *compression,
            _ => LinkCompression::Off,
        }
    }

    /// Whether what changed of a page is written over its copy. Not with stripes, whose units are not overwritten.
    pub(crate) fn sub_page(&self) -> bool {
        match self {
            Scheme::Nodes { sub_page, erasure, .. } => *sub_page && erasure.is_none(),
            Scheme::Pool { sub_page, .. } => *sub_page,
            _ => false,
        }
    }

    /// How links are to be divided.
    pub(crate) fn share(&self) -> Option<LinkShare> {
        match self {
            Scheme::Nodes { share, .. } | Scheme::Pool { share, .. } => *share,
            _ => None,
        }
    }

    /// Threads that can wait for pages of a node at once.
    pub(crate) fn lanes(&self) -> Option<usize> {
        match self {
            Scheme::Nodes { lanes, .. } | Scheme::Pool { lanes, .. } => *lanes,
            _ => None,
        }
    }

    /// How long a node may leave a request without progress.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        match self {
            Scheme::Nodes { timeout_s, .. } | Scheme::Pool { timeout_s, .. } => {
                timeout_s.map(|seconds| Duration::from_secs(seconds as u64))
            }
            _ => None,
        }
    }

    /// Whether pages leave the process. Of these the capacity is a parameter.
    pub(crate) fn leaves_process(&self) -> bool {
        self.is_nodes() || matches!(self, Scheme::File { .. })
    }

    fn known(&self) -> &'static str {
        match self {
            Scheme::Compressed { .. } => "codec, recompress, link, delay_us, jitter_us, throttle, fault, seed",
            Scheme::File { .. } => "size, io, direct, depth, threads, link, delay_us, jitter_us, throttle, fault, seed",
            Scheme::Nodes { .. } => {
                "size, replicas, erasure, link-compression, sub-page, share, lanes, timeout, link, delay_us, jitter_us, throttle, fault, seed"
            }
            Scheme::Pool { .. } => {
                "size, replicas, link-compression, sub-page, share, lanes, timeout, link, delay_us, jitter_us, throttle, fault, seed"
            }
            Scheme::Reference | Scheme::Numa { .. } => COMMON,
        }
    }
}

impl Decoration {
    /// Reads a parameter that every backend has; `false` if it is not one.
    fn read(&mut self, url: &str, name: &str, value: &str) -> Result<bool, UrlError> {
        let number = || value.parse().map_err(|_| bad_value(url, name, value, "write a whole number"));
        match name {
            "delay_us" => self.delay_us = number()?,
            "jitter_us" => self.jitter_us = number()?,
            "seed" => self.seed = number()?,
            "link" => {
                let wanted = "write LATENCY:BANDWIDTH, for example 5us:25Gb/s";
                self.link = Some(value.parse().map_err(|_| bad_value(url, name, value, wanted))?);
            }
            "throttle" => {
                let rate = size(url, value)?;
                if rate.0 == 0 {
                    return Err(bad_value(url, name, value, "write bytes per second, for example 100M"));
                }
                self.throttle = Some(rate);
            }
            "fault" => {
                for text in value.split(',') {
                    self.faults.push(text.parse().map_err(|()| bad_value(url, name, text, FAULTS))?);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl FromStr for FaultRule {
    type Err = ();

    fn from_str(text: &str) -> Result<FaultRule, ()> {
        let at = text.find([':', '@']).ok_or(())?;
        let (kind, when) = (&text[..at], &text[at + 1..]);
        let kind = match kind {
            "load" => FaultKind::Load,
            "store" => FaultKind::Store,
            "flip" => FaultKind::Flip,
            _ => return Err(()),
        };
        let when = if text.as_bytes()[at] == b'@' {
            FaultWhen::At(when.parse().map_err(|_| ())?)
        } else {
            let probability: f64 = when.parse().map_err(|_| ())?;
            FaultWhen::Probability(Some(probability).filter(|p| (0.0..=1.0).contains(p)).ok_or(())?)
        };
        Ok(FaultRule { kind, when })
    }
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FaultKind::Load => "load",
            FaultKind::Store => "store",
            FaultKind::Flip => "flip",
        };
        match self.when {
            FaultWhen::At(at) => write!(f, "{kind}@{at}"),
            FaultWhen::Probability(probability) => write!(f, "{kind}:{probability}"),
        }
    }
}

impl fmt::Display for BackendUrl {
    /// Writes the URL so that it can be read back exactly; parameters at their defaults are left out, except the codec.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parameters: Vec<String> = Vec::new();
        let capacity = self.capacity.map(exact);
        if self.scheme.leaves_process() {
            parameters.extend(capacity.as_ref().map(|capacity| format!("size={capacity}")));
        }
        match &self.scheme {
            Scheme::Compressed { codec, recompress } => {
                f.write_str("compressed")?;
                parameters.push(format!("codec={codec}"));
                parameters.extend(recompress.then(|| "recompress=zstd".to_owned()));
            }
            Scheme::Reference => f.write_str("reference")?,
            Scheme::Numa { node } => write!(f, "numa:{node}")?,
            Scheme::Nodes { endpoints, replicas, erasure, compression, sub_page, share, lanes, timeout_s } => {
                let names: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
                f.write_str(&names.join(","))?;
                parameters.extend(replicas.map(|replicas| format!("replicas={replicas}")));
                parameters.extend(erasure.map(|code| format!("erasure={code}")));
                parameters.extend(link_compression(*compression));
                parameters.extend(sub_page.then(|| "sub-page=auto".to_owned()));
                parameters.extend(share.map(|share| format!("share={share}")));
                parameters.extend(lanes.map(|lanes| format!("lanes={lanes}")));
                parameters.extend(timeout_s.map(|seconds| format!("timeout={seconds}")));
            }
            Scheme::Pool { directory, replicas, compression, sub_page, share, lanes, timeout_s } => {
                write!(f, "{directory}")?;
                parameters.extend(replicas.map(|replicas| format!("replicas={replicas}")));
                parameters.extend(link_compression(*compression));
                parameters.extend(sub_page.then(|| "sub-page=auto".to_owned()));
                parameters.extend(share.map(|share| format!("share={share}")));
                parameters.extend(lanes.map(|lanes| format!("lanes={lanes}")));
                parameters.extend(timeout_s.map(|seconds| format!("timeout={seconds}")));
            }
            Scheme::File { path, io, direct, width } => {
                write!(f, "file:{}", escape(path))?;
                parameters.extend((*io == IoMethod::Plain).then(|| "io=plain".to_owned()));
                parameters.extend((!direct).then(|| "direct=off".to_owned()));
                let FileWidth { depth, threads } = FileWidth::default();
                parameters.extend((width.depth != depth).then(|| format!("depth={}", width.depth)));
                parameters.extend((width.threads != threads).then(|| format!("threads={}", width.threads)));
            }
        }
        if let (Some(capacity), false) = (capacity, self.scheme.leaves_process()) {
            write!(f, ":{capacity}")?;
        }
        let Decoration { delay_us, jitter_us, throttle, link, faults, seed } = &self.decoration;
        parameters.extend(link.as_ref().map(|link| format!("link={link}")));
        for (name, number) in [("delay_us", delay_us), ("jitter_us", jitter_us), ("seed", seed)] {
            parameters.extend((*number != 0).then(|| format!("{name}={number}")));
        }
        parameters.extend(throttle.map(|rate| format!("throttle={}", exact(rate))));
        if !faults.is_empty() {
            let rules: Vec<String> = faults.iter().map(FaultRule::to_string).collect();
            parameters.push(format!("fault={}", rules.join(",")));
        }
        if parameters.is_empty() { Ok(()) } else { write!(f, "?{}", parameters.join("&")) }
    }
}

fn link_compression(mode: LinkCompression) -> Option<String> {
    (mode != LinkCompression::Off).then(|| format!("link-compression={mode}"))
}

/// A number from 1 on.
fn number_to(most: usize, url: &str, name: &str, value: &str, wanted: &'static str) -> Result<usize, UrlError> {
    let number = value.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| bad_value(url, name, value, wanted))
}

fn bad_value(url: &str, name: &str, value: &str, wanted: &'static str) -> UrlError {
    UrlError::Value { url: url.into(), name: name.into(), value: value.into(), wanted }
}

fn size(url: &str, text: &str) -> Result<ByteCount, UrlError> {
    text.parse().map_err(|error| UrlError::Size { url: url.into(), error })
}

/// A size in the largest unit that divides it.
fn exact(bytes: ByteCount) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes.0 != 0 && bytes.0.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", bytes.0 >> shift),
        None => bytes.0.to_string(),
    }
}

/// A path as a URL has it: what would end it there, and what is not UTF-8, as `%` and two digits.
fn escape(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '%' | '?' | ' ' | '\t' | '\n' => text.push_str(&format!("%{:02X}", u32::from(character))),
                _ => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
    }
    text
}

fn unescape(url: &str, text: &str) -> Result<PathBuf, UrlError> {
    use std::os::unix::ffi::OsStringExt;
    let bad = || bad_value(url, "the path", text, "after % two hexadecimal digits follow");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(bad)?, rest.next().ok_or_else(bad)?];
        let digits = std::str::from_utf8(&digits).map_err(|_| bad())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        for url in [
            "compressed?codec=lz4",
            "compressed:4G?codec=zstd",
            "compressed:4G?codec=lz4&recompress=zstd&seed=3",
            "compressed:1G?codec=lz4&delay_us=50&jitter_us=7&seed=7&throttle=100M&fault=flip:0.001,load@3",
            "file:/mnt/ssd/far?size=64G",
            "file:/a%20b?size=5000&io=plain&direct=off",
            "file:/%FF/ä%E2%82?size=5000",
            "numa:0",
            "numa:1:16G?delay_us=3",
            "file:/a?size=1G&depth=4&threads=16",
            "file:/a?io=plain&threads=1",
            "tcp://127.0.0.1:1?share=strict&lanes=2&timeout=30&delay_us=1",
            "etcd://127.0.0.1:2379/pool?replicas=2&lanes=32&timeout=600",
            "reference",
            "reference:1M?link=5us:25Gb/s&fault=store:0.5",
            "tcp://127.0.0.1:7440",
            "tcp://[::1]:99?size=8G&delay_us=5",
            "tcp://127.0.0.1:1,tcp://127.0.0.1:2,tcp://[::1]:2?size=8G&replicas=2&fault=flip:0.1,load@3",
            "unix:/run/hinterland.sock",
            "unix:/a.sock,tcp://127.0.0.1:1,unix:/b?replicas=2",
            "unix:/a.sock,tcp://127.0.0.1:1,unix:/b?size=8G&erasure=2+1",
            "tcp://127.0.0.1:1?link-compression=auto",
            "tcp://127.0.0.1:1,tcp://127.0.0.1:2?replicas=2&link-compression=on&link=5us:1Gb/s:half",
            "unix:/a.sock?link-compression=auto&share=auto",
            "tcp://127.0.0.1:1?share=fixed:25",
            "etcd://127.0.0.1:2379/pool?sub-page=auto&share=strict",
            "tcp://127.0.0.1:1?link-compression=auto&sub-page=auto",
            "etcd://127.0.0.1:2379/pool?link-compression=on",
            "etcd://127.0.0.1:2379/pool",
            "etcds://a:2379,b:1/pool?size=8G&replicas=3&link=5us:25Gb/s",
        ] {
            assert_eq!(parse(url).map(|read| read.to_string()), Ok(url.to_owned()));
        }
        let Ok(BackendUrl { scheme: Scheme::File { path, .. }, .. }) = parse("file:/a%20b%3f") else {
            panic!("a file")
        };
        assert_eq!(path, PathBuf::from("/a b?"));
    }

    #[test]
    fn pages_are_compressed_for_links_alone() {
        for (url, mode) in [
            ("tcp://127.0.0.1:1", LinkCompression::Off),
            ("tcp://127.0.0.1:1?link-compression=auto", LinkCompression::Auto),
            ("etcd://127.0.0.1:2379/pool?link-compression=on", LinkCompression::On),
            ("unix:/a?link-compression=auto", LinkCompression::Off),
            ("tcp://a:1,tcp://b:1,tcp://c:1?erasure=2+1&link-compression=auto", LinkCompression::Off),
            ("reference", LinkCompression::Off),
        ] {
            assert_eq!(parse(url).expect(url).scheme.link_compression(), mode, "{url}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (url, words) in [
            ("tape:/dev/st0", "no backend 'tape'; known are compressed, numa, file, tcp, unix, etcd, reference"),
            ("", "no backend ''"),
            ("numa", "'' is no number of a NUMA node; write for example numa:1"),
            ("numa:one", "'one' is no number of a NUMA node"),
            ("numa:-1", "'-1' is no number of a NUMA node"),
            ("numa:1:lots", "'lots' is not a size"),
            ("numa:1:12", "smaller than one page"),
            ("numa:1?codec=lz4", "no parameter 'codec'; known are link"),
            ("compressed:lots", "'lots' is not a size"),
            ("compressed:12", "smaller than one page"),
            ("compressed?code=lz4", "no parameter 'code'; known are codec, recompress, link"),
            ("compressed?recompress=lz4", "'lz4' is no value for recompress; write off or zstd"),
            ("compressed?codec=zstd&recompress=zstd", "compressed by zstd at once; leave recompress out"),
            ("compressed?codec=gzip", "'gzip' is no value for codec; write lz4 or zstd"),
            ("compressed?size=1G", "no parameter 'size'"),
            ("tcp://127.0.0.1:x", "is not tcp://HOST:PORT or unix:/PATH"),
            ("unix:far.sock", "needs an absolute path"),
            ("unix:/a,unix:/a", "is named twice"),
            ("unix:/a?codec=lz4", "known are size, replicas, erasure, link"),
            ("etcd://127.0.0.1:2379", "is not etcd://HOST:PORT/POOL"),
            ("etcd://127.0.0.1:2379/pool?codec=lz4", "no parameter 'codec'; known are size, replicas, link"),
            ("tcp://127.0.0.1:1?codec=lz4", "no parameter 'codec'; known are size, replicas, erasure, link"),
            ("tcp://127.0.0.1:1?erasure=4", "for example 4+2"),
            ("tcp://127.0.0.1:1,tcp://127.0.0.1:2?erasure=2+1", "stripes of 2+1 pages need 3 nodes, and here are 2"),
            ("tcp://127.0.0.1:1,unix:/a,unix:/b?erasure=2+1&replicas=2", "leave erasure or replicas out"),
            ("etcd://127.0.0.1:2379/pool?erasure=2+1", "no parameter 'erasure'"),
            ("tcp://127.0.0.1:1,tcp://127.0.0.1:2?replicas=3", "3 replicas need 3 nodes, and here are 2"),
            ("tcp://127.0.0.1:1?replicas=0", "how many nodes"),
            ("tcp://127.0.0.1:1,compressed", "'compressed' is not tcp://HOST:PORT"),
            ("tcp://127.0.0.1:1,tcp://127.0.0.1:1", "is named twice"),
            ("tcp://127.0.0.1:1?link-compression=yes", "no value for link-compression; write off, on or auto"),
            ("unix:/a?link-compression=on", "for links of tcp:// alone"),
            ("tcp://127.0.0.1:1,unix:/a,unix:/b?erasure=2+1&link-compression=on", "for links of tcp:// alone"),
            ("reference?link-compression=on", "no parameter 'link-compression'"),
            ("tcp://127.0.0.1:1?sub-page=on", "no value for sub-page; write off or auto"),
            ("compressed:1G?sub-page=auto", "no parameter 'sub-page'"),
            ("tcp://127.0.0.1:1?share=fixed:0", "'fixed:0' is no value for share; write auto, strict"),
            ("reference?share=auto", "no parameter 'share'"),
            ("file:", "the path is missing"),
            ("file", "the path is missing"),
            ("file:/x?io=fast", "write auto or plain"),
            ("file:/x?depth=0", "'0' is no value for depth; write operations in flight of one load, 1 to 64"),
            ("file:/x?threads=65", "write threads that can wait for pages at once, 1 to 64"),
            ("file:/x?io=plain&depth=4", "io=plain has one operation in flight"),
            ("file:/x?lanes=4", "no parameter 'lanes'; known are size, io, direct, depth, threads"),
            ("tcp://127.0.0.1:1?lanes=0", "'0' is no value for lanes"),
            ("tcp://127.0.0.1:1?timeout=0", "'0' is no value for timeout"),
            ("tcp://127.0.0.1:1?timeout=601", "1 to 600"),
            ("file:/x?timeout=4", "no parameter 'timeout'"),
            ("tcp://127.0.0.1:1?lanes=33", "1 to 32"),
            ("unix:/a?depth=4", "no parameter 'depth'"),
            ("file:/x%2", "two hexadecimal digits"),
            ("reference?fault=flip", "kinds are load, store, flip"),
            ("reference?fault=flip:2", "kinds are load, store, flip"),
            ("reference?throttle=0", "bytes per second"),
            ("reference?link=5us", "write LATENCY:BANDWIDTH, for example 5us:25Gb/s"),
            ("reference?delay_us=-1", "write a whole number"),
        ] {
            let message = parse(url).expect_err(url).to_string();
            assert!(message.contains(words), "{url}: {message}");
            let named = url.split(['?', ',']).any(|head| message.contains(&format!("'{head}")));
            assert!(named, "{message} does not name the URL");
        }
    }
}
