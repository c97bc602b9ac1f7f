//! Opens what the URLs describe, with the defaults filled in.
//!
//! Defaults: no URL at all means compressed RAM, then a file in `$TMPDIR` (or `/var/tmp`). Compressed RAM without a cap may
//! take half of the RAM that is free now; a file without a size, half of the free disk space.

use crate::decorate::{Delay, Faulty, OverLink, Throttle};
use crate::file::far_file;
use crate::paths::{Opener, PATHS_MAX, Path, as_given};
use crate::url::{BackendUrl, Decoration, Scheme, UrlError, kind, parse};
use crate::{
    AnswerLimit, Backend, Coded, Compressed, FileBackend, FileOptions, LinkCompressed, LinkCompression, LinkModel,
    LinkShare, Membership, NODES_MAX, NodeAddress, NodeError, NodePool, Paths, Recompression, Reference, Sealed,
    Secured, Timing,
};
use hinterland_abi::{PathChange, PlacementName, ROSTER_NODES_MAX, Roster, RunLink};
use hinterland_sys::numa::{self, NumaError};
use hinterland_sys::{Address, SysError};
use hinterland_tls::ClientCredentials;
use hinterland_units::{ByteCount, PAGE_BYTES};
use hinterland_wire::{Endpoint, Protection, nobody_there};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// The smallest capacity that is chosen by default.
const CAPACITY_MIN: u64 = 64 << 20;

/// Why backends cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A URL cannot be read.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The path of a file cannot be used.
    #[error("'{url}': {} cannot be used: {error}", path.display())]
    Path {
        /// The backend.
        url: String,
        /// Which path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file would not fit the disk.
    #[error("'{url}': {} has only {free} free; choose a smaller size or another directory", path.display())]
    Space {
        /// The backend.
        url: String,
        /// Where.
        path: PathBuf,
        /// Free space there.
        free: ByteCount,
    },
    /// Address space or memory is missing.
    #[error("'{url}': memory for its tables is refused: {error}")]
    Memory {
        /// The backend.
        url: String,
        /// Why.
        error: io::Error,
    },
    /// Memory of a NUMA node cannot be had.
    #[error("'{url}': {error}")]
    Numa {
        /// The backend.
        url: String,
        /// Why.
        error: NumaError,
    },
    /// More memory than a NUMA node has.
    #[error("'{url}': NUMA node {node} has only {total} of memory; choose a smaller size")]
    NumaSize {
        /// The backend.
        url: String,
        /// The node.
        node: u32,
        /// All that it has.
        total: ByteCount,
    },
    /// A key cannot be made.
    #[error("'{url}': no key can be made for it: {error}")]
    Key {
        /// The backend.
        url: String,
        /// Why.
        error: SysError,
    },
    /// A memory node cannot be used.
    #[error("the memory node {url} cannot be used: {error}{}", if error.is_nobody() { nobody_there(url) } else { String::new() })]
    Node {
        /// The backend.
        url: String,
        /// Why.
        error: NodeError,
    },
    /// A pool in etcd outside of a run: the launcher reads the directory.
    #[error("'{0}': a pool in etcd needs the launcher; start the program with 'hinterland run'")]
    Directory(String),
    /// A pool with fewer nodes than copies.
    #[error("'{url}': {replicas} replicas need as many nodes, and {nodes} are registered there now")]
    TooFew {
        /// The backend.
        url: String,
        /// Copies that are wanted.
        replicas: usize,
        /// Nodes.
        nodes: usize,
    },
    /// A node under a name that is not resolved.
    #[error("'{0}': the name stands for no address")]
    Name(String),
    /// Too many URLs.
    #[error("{0} backends are too many; {PATHS_MAX} can be composed")]
    TooMany(usize),
}

/// What holds for all backends of a program.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Which of several a page goes to.
    pub placement: PlacementName,
    /// What bytes of far memory cost relative to RAM, by URL or by its kind: what is before the colon; of others that is assumed.
    pub costs: Vec<(String, f64)>,
    /// What was changed of the paths since the run's start, and the version of these changes; 0: nothing.
    pub changes: (u64, Vec<PathChange>),
    /// Pages are encrypted before they leave the process: for files and memory nodes.
    pub encrypt: bool,
    /// What is shown to memory nodes and demanded of them; `None`: nothing, and only sockets of this machine will do.
    pub credentials: Option<ClientCredentials>,
    /// Without credentials loopback addresses will do, too.
    pub insecure_loopback: bool,
    /// The nodes of pools that are kept in directories.
    pub rosters: &'static [Roster],
    /// Modelled links that the processes of the run share; empty: each process has its own.
    pub links: &'static [RunLink],
    /// How long pools of memory nodes wait for what.
    pub timing: Timing,
    /// How long a memory node may leave a request unanswered.
    pub answer_limit: AnswerLimit,
}

/// A cost that a user states: a URL or a kind of one, `=`, and a number above 0, where RAM is 1.
///
/// # Errors
/// It is none, in words.
pub fn stated_cost(written: &str) -> Result<(String, f64), String> {
    let read = written.rsplit_once('=').filter(|(of, _)| !of.is_empty());
    let cost = read.and_then(|(of, cost)| Some((of.to_owned(), cost.parse().ok()?)));
    let cost = cost.filter(|(_, cost): &(String, f64)| *cost > 0.0 && *cost <= 1000.0);
    cost.ok_or_else(|| {
        format!("'{written}' states no cost: write a kind of far memory and a number above 0, such as file=0.05")
    })
}

/// What a byte at `written` costs: the one stated for that URL, for its kind, or that of such far memory. In RAM of this machine bytes are counted, and
/// each of them costs 1.
fn price(written: &str, scheme: &Scheme, costs: &[(String, f64)]) -> f64 {
    let cost_of = |is_it: &dyn Fn(&str) -> bool| costs.iter().find(|(of, _)| is_it(of)).map(|(_, cost)| *cost);
    // Of another URL of the kind, where neither the URL nor the kind is named.
    let stated = || {
        let of_kind = || cost_of(&|of| of == kind(written)).or_else(|| cost_of(&|of| kind(of) == kind(written)));
        cost_of(&|of| of == written).or_else(of_kind)
    };
    let counted = matches!(scheme, Scheme::Compressed { .. } | Scheme::Reference);
    stated().filter(|_| !counted).unwrap_or_else(|| scheme.price())
}

/// As `open_with`, for one who trusts every user of this machine: measurements and tests.
///
/// # Errors
/// As for `open_with`.
pub fn open(urls: &[String]) -> Result<Arc<Paths>, OpenError> {
    open_with(urls, &OpenOptions { insecure_loopback: true, ..OpenOptions::default() })
}

/// Opens the backends in the order given; an empty list opens the default.
///
/// # Errors
/// What cannot be read or used, and why.
pub fn open_with(urls: &[String], options: &OpenOptions) -> Result<Arc<Paths>, OpenError> {
    let mut given = urls.to_vec();
    if given.is_empty() {
        let filled = |url| fill_in(url).map(|url| url.to_string());
        given = default_urls().into_iter().map(filled).collect::<Result<_, _>>()?;
    }
    let (version, changes) = &options.changes;
    let is_default = urls.is_empty();
    let mut now = given.clone();
    PathChange::apply_all(&as_given(is_default, &given, changes), &mut now);
    if now.len() > PATHS_MAX {
        return Err(OpenError::TooMany(now.len()));
    }
    let open_path = |(at, url): (usize, &String)| {
        let before = now[..at].iter().filter(|other| *other == url).count();
        open_url(url, before, options).map(|(backend, price)| Path::new(url.clone(), backend, price))
    };
    let paths = now.iter().enumerate().map(open_path).collect::<Result<Vec<_>, OpenError>>()?;
    let memory = |error| OpenError::Memory { url: urls.join(" "), error };
    let for_others = options.clone();
    let opener: Opener = Box::new(move |url| open_url(url, 0, &for_others).map_err(|error| error.to_string()));
    let paths = Paths::opened(paths, given, options.placement, opener).map_err(memory)?.by_default(is_default);
    if *version > 0 {
        paths.change(*version, changes.clone());
    }
    Ok(Arc::new(paths))
}

/// Opens what a URL describes, and says what a byte there costs. So many before it are described by the same one.
fn open_url(url: &str, before: usize, options: &OpenOptions) -> Result<(Arc<dyn Backend>, f64), OpenError> {
    let (name, written) = (link_name(url, before), url);
    let url = fill_in(parse(url)?)?;
    let price = price(written, &url.scheme, &options.costs);
    Ok((open_one(&url, name, options)?, price))
}

/// The name of a path's link among those of the run, by its URL as it was given: the same in all processes and not 0.
fn link_name(url: &str, before: usize) -> u64 {
    XxHash3_64::oneshot_with_seed(before as u64, url.as_bytes()).max(1)
}

/// Checks, before a run has the backend, that it could be opened: that a file's directory exists, can be written and has room for its size;
/// that memory of a NUMA node can be had. Changes nothing.
///
/// # Errors
/// What is wrong.
pub fn check(url: &BackendUrl) -> Result<(), OpenError> {
    match &url.scheme {
        Scheme::File { path, .. } => check_room(url, path),
        Scheme::Numa { node } => check_node(url, *node),
        _ => Ok(()),
    }
}

fn check_node(url: &BackendUrl, node: u32) -> Result<(), OpenError> {
    numa::check(node).map_err(|error| OpenError::Numa { url: url.to_string(), error })?;
    let total = numa::memory(node).map_or(u64::MAX, |memory| memory.total_bytes);
    match url.capacity {
        Some(size) if size.0 > total => {
            Err(OpenError::NumaSize { url: url.to_string(), node, total: ByteCount(total) })
        }
        _ => Ok(()),
    }
}

fn check_room(url: &BackendUrl, path: &std::path::Path) -> Result<(), OpenError> {
    let directory = check_writable(url, path)?;
    let unusable = |error| OpenError::Path { url: url.to_string(), path: path.to_owned(), error };
    let free = far_file::free_bytes(&directory).map_err(unusable)?;
    if free < url.capacity.map_or(PAGE_BYTES as u64, |size| size.0) {
        return Err(OpenError::Space { url: url.to_string(), path: directory, free: ByteCount(free) });
    }
    Ok(())
}

/// The directory that a file is made in, which exists and can be written.
fn check_writable(url: &BackendUrl, path: &std::path::Path) -> Result<PathBuf, OpenError> {
    let unusable = |error| OpenError::Path { url: url.to_string(), path: path.to_owned(), error };
    let directory = far_file::directory_of(path).map_err(unusable)?;
    let name = CString::new(directory.as_os_str().as_bytes()).map_err(|error| unusable(error.into()))?;
    // SAFETY: the path is a C string that outlives the call.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        return Err(unusable(io::Error::last_os_error()));
    }
    Ok(directory)
}

/// What an empty list stands for: compressed RAM, then a file. The file is left out where none can be made.
fn default_urls() -> Vec<BackendUrl> {
    let compressed = BackendUrl {
        scheme: Scheme::Compressed { codec: crate::CodecName::default(), recompress: false },
        capacity: None,
        decoration: Decoration::default(),
    };
    std::iter::once(compressed).chain(default_file().ok()).collect()
}

/// The file in an empty list: in `$TMPDIR`, or `/var/tmp`.
///
/// # Errors
/// None can be made there.
pub fn default_file() -> Result<BackendUrl, OpenError> {
    let directory =
        std::env::var_os("TMPDIR").filter(|value| !value.is_empty()).map_or("/var/tmp".into(), PathBuf::from);
    let directory = std::path::absolute(&directory).unwrap_or(directory);
    let file = BackendUrl {
        scheme: Scheme::File {
            path: directory,
            io: crate::IoMethod::default(),
            direct: true,
            width: crate::FileWidth::default(),
        },
        capacity: None,
        decoration: Decoration::default(),
    };
    check(&file).map(|()| file)
}

/// Chooses what the URL left open.
fn fill_in(mut url: BackendUrl) -> Result<BackendUrl, OpenError> {
    // What a node leaves open the node decides.
    if url.capacity.is_none() && !url.scheme.is_nodes() {
        let mut most = u64::MAX;
        let bytes = match &url.scheme {
            Scheme::File { path, .. } => {
                most = far_file::length_limit_bytes() & !(PAGE_BYTES as u64 - 1);
                let unusable = |error| OpenError::Path { url: url.to_string(), path: path.clone(), error };
                let directory = far_file::directory_of(path).map_err(unusable)?;
                far_file::free_bytes(&directory).map_err(unusable)? / 2
            }
            Scheme::Numa { node } => {
                let free = numa::memory(*node).map_or_else(free_ram_bytes, |memory| memory.free_bytes);
                free.min(cgroup_free_bytes().unwrap_or(u64::MAX)) / 2
            }
            _ => (free_ram_bytes() / 2).max(CAPACITY_MIN),
        };
        // Whole mebibytes, so that the URL stays readable.
        url.capacity = Some(ByteCount(((bytes >> 20).max(1) << 20).min(most)));
    }
    Ok(url)
}

fn open_one(url: &BackendUrl, link_name: u64, options: &OpenOptions) -> Result<Arc<dyn Backend>, OpenError> {
    let patient = url.scheme.timeout().map(|limit| OpenOptions { answer_limit: limit.into(), ..options.clone() });
    let options = patient.as_ref().unwrap_or(options);
    let name = url.to_string();
    let capacity_bytes = url.capacity.map_or(0, |bytes| bytes.0);
    let memory = |error| OpenError::Memory { url: name.clone(), error };
    let sub_page = url.scheme.sub_page() || options.timing.sub_page;
    let (share, lanes) = (url.scheme.share(), url.scheme.lanes());
    let timing = Timing {
        share: share.unwrap_or(options.timing.share),
        lanes: lanes.unwrap_or(options.timing.lanes),
        sub_page,
        ..options.timing
    };
    let backend: Arc<dyn Backend> = match &url.scheme {
        Scheme::Reference => Arc::new(Reference::new(name.clone(), capacity_bytes).map_err(memory)?),
        Scheme::Numa { node } => {
            check(url)?;
            Arc::new(Reference::on_node(name.clone(), capacity_bytes, *node).map_err(memory)?)
        }
        Scheme::Compressed { codec, recompress } => {
            let store = Compressed::new(name.clone(), *codec, capacity_bytes).map_err(memory)?;
            Arc::new(if *recompress { store.recompressing(Recompression::default()) } else { store })
        }
        Scheme::Nodes { endpoints, replicas, erasure, .. } => {
            let node = |endpoint| node_address(endpoint, options, &name);
            let nodes = endpoints.iter().map(node).collect::<Result<Vec<_>, OpenError>>()?;
            let unusable = |(url, error)| OpenError::Node { url, error };
            match erasure {
                None => {
                    let pool = NodePool::new(name.clone(), nodes, capacity_bytes, replicas.unwrap_or(1), timing);
                    Arc::new(pool.map_err(unusable)?)
                }
                Some(code) => {
                    let shard = |node| NodePool::one_of_several(node, capacity_bytes, timing).map_err(unusable);
                    let shards = nodes.into_iter().map(shard).collect::<Result<Vec<_>, OpenError>>()?;
                    Arc::new(Coded::new(name.clone(), shards, *code, timing))
                }
            }
        }
        Scheme::Pool { directory, replicas, .. } => {
            let directory = directory.to_string();
            let roster = options.rosters.iter().find(|roster| roster.directory.get() == directory);
            let roster = roster.ok_or_else(|| OpenError::Directory(name.clone()))?;
            let membership = Listed { roster, options: options.clone() };
            let known = membership.changed_since(0).unwrap_or_default();
            let (nodes, replicas) = (known.1.len(), replicas.unwrap_or(1));
            if nodes < replicas {
                return Err(OpenError::TooFew { url: name, replicas, nodes });
            }
            let pool = NodePool::following(name.clone(), Box::new(membership), known, capacity_bytes, replicas, timing);
            Arc::new(pool.map_err(|(url, error)| OpenError::Node { url, error })?)
        }
        Scheme::File { path, io, direct, width } => {
            // Not its room: what is free now is what the run's other processes have left of it.
            check_writable(url, path)?;
            let options = FileOptions { path: path.clone(), capacity_bytes, io: *io, direct: *direct, width: *width };
            let unusable = |error| OpenError::Path { url: name.clone(), path: path.clone(), error };
            Arc::new(FileBackend::new(name.clone(), options).map_err(unusable)?)
        }
    };
    let link = url.decoration.link.as_ref().and_then(|_| RunLink::of(options.links, link_name));
    let mut backend = decorate(backend, name.clone(), &url.decoration, url.scheme.share(), link);
    if options.encrypt && url.scheme.leaves_process() {
        // Around everything that may go wrong on the way.
        let sealed = Sealed::new(backend, name.clone());
        backend = Arc::new(sealed.map_err(|error| OpenError::Key { url: name.clone(), error })?);
    }
    // What is sealed does not shrink any more.
    Ok(match url.scheme.link_compression() {
        LinkCompression::Off => backend,
        mode => Arc::new(LinkCompressed::new(backend, name, mode)),
    })
}

/// How a node is reached. `name` is what the backend is called.
fn node_address(endpoint: &Endpoint, options: &OpenOptions, name: &str) -> Result<NodeAddress, OpenError> {
    let credentials = options.credentials.as_ref();
    let protection = Protection::of(credentials.is_some(), options.insecure_loopback);
    endpoint.check_reach(protection).map_err(UrlError::from)?;
    let (address, secured) = match endpoint {
        // Only the same user can connect.
        Endpoint::Unix { path } => (Address::Unix(path.clone()), None),
        Endpoint::Tcp { host, .. } => {
            let address = endpoint.address().ok_or_else(|| OpenError::Name(name.to_owned()))?;
            let secured =
                |credentials: &ClientCredentials| Secured { credentials: credentials.clone(), name: host.clone() };
            (address.into(), credentials.map(secured))
        }
    };
    Ok(NodeAddress { url: endpoint.to_string(), address, secured, limit: options.answer_limit.clone() })
}

/// The nodes that a directory lists.
struct Listed {
    roster: &'static Roster,
    options: OpenOptions,
}

impl Membership for Listed {
    fn changed_since(&self, seen: u64) -> Option<(u64, Vec<NodeAddress>)> {
        if self.roster.version() == seen {
            return None;
        }
        let (version, nodes) = self.roster.get()?;
        // Who writes the roster leaves out what cannot be used.
        let address = |node: &String| node_address(&node.parse().ok()?, &self.options, node).ok();
        Some((version, nodes.iter().filter_map(address).collect()))
    }
}

const _: () = assert!(ROSTER_NODES_MAX == NODES_MAX, "a roster is as long as a pool is large");

/// Wraps the decorators around a backend: faults nearest to it, then the link.
/// A link is divided as the URL says, or has demands come first.
fn decorate(
    mut backend: Arc<dyn Backend>,
    url: String,
    decoration: &Decoration,
    share: Option<LinkShare>,
    shared: Option<&'static RunLink>,
) -> Arc<dyn Backend> {
    let Decoration { delay_us, jitter_us, throttle, link, faults, seed } = decoration;
    if !faults.is_empty() {
        backend = Arc::new(Faulty::new(backend, url, faults.clone(), *seed));
    }
    if let Some(rate) = throttle {
        backend = Arc::new(Throttle::new(backend, rate.0));
    }
    if let Some(model) = link {
        let model = LinkModel { share: share.unwrap_or(model.share), ..model.clone() };
        backend = Arc::new(OverLink::new(backend, model, shared));
    }
    if *delay_us > 0 || *jitter_us > 0 {
        backend = Arc::new(Delay::new(backend, *delay_us, *jitter_us, *seed));
    }
    backend
}

/// RAM that can be had now: what the kernel calls available, within the control group's limit.
fn free_ram_bytes() -> u64 {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
    });
    available.unwrap_or(CAPACITY_MIN * 2).min(cgroup_free_bytes().unwrap_or(u64::MAX))
}

/// What this process's control group may still use, if it has a limit.
fn cgroup_free_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, group) = (fields.next()?, fields.next()?.trim_start_matches('/'));
            let (root, limit, used) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
                _ => return None,
            };
            let read = |name| -> Option<u64> {
                // Inside a container the group's path is that of the host: its files are at the root.
                let path =
                    [std::path::Path::new(root).join(group), PathBuf::from(root)].map(|directory| directory.join(name));
                path.iter().find_map(|path| std::fs::read_to_string(path).ok())?.trim().parse().ok()
            };
            Some(read(limit)?.saturating_sub(read(used)?))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendUsage, Location, Priority};

    fn rows(urls: &[&str]) -> Vec<BackendUsage> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let backend = open(&urls).unwrap_or_else(|error| panic!("{error}"));
        let mut out = [Ok(Location(0))];
        backend.store(&[&[7; PAGE_BYTES]], Priority::WriteBack, &mut out);
        assert!(out[0].is_ok());
        let mut rows = Vec::new();
        backend.usage(&mut rows);
        rows
    }

    #[test]
    fn what_far_memory_costs_is_what_is_stated_of_it_or_of_its_kind() {
        let stated = |words: &[&str]| words.iter().map(|word| stated_cost(word)).collect::<Result<Vec<_>, _>>();
        let costs = stated(&["tcp://a:7440?size=1G=0.3", "tcp=0.2", "file:/var/tmp?size=64G=0.01", "compressed=7"]);
        let costs = costs.expect("costs");
        for (url, price_of) in [
            ("tcp://a:7440?size=1G", 0.3),
            ("tcp://b:7440", 0.2),
            ("file:/mnt/other", 0.01),
            ("unix:/node.sock", 0.5),
            ("compressed:1G", 1.0),
        ] {
            let scheme = parse(url).expect("a URL").scheme;
            assert_eq!(price(url, &scheme, &costs), price_of, "{url}");
        }
        for nonsense in ["file", "file=", "file=0", "file=-1", "file=NaN", "file=1001", "=0.5", ""] {
            let why = stated_cost(nonsense).expect_err(nonsense);
            assert!(why.contains("states no cost: write a kind of far memory and a number above 0"), "{why}");
        }
    }

    #[test]
    fn opens_what_is_described_in_order() {
        let rows = rows(&["compressed:64M?seed=3", "reference:1M?jitter_us=1", "file:/tmp?size=1M"]);
        let urls: Vec<&str> = rows.iter().map(|row| row.url.as_str()).collect();
        assert_eq!(urls, ["compressed:64M?codec=lz4&seed=3", "reference:1M?jitter_us=1", "file:/tmp?size=1M"]);
        assert_eq!(rows[0].capacity_bytes, 64 << 20);
        assert_eq!(rows[0].pages, 1);
    }

    /// Whatever is wrapped around it: else a batch over several paths would take as long as all of them one after another.
    #[test]
    fn what_waits_lets_other_paths_be_asked_meanwhile() {
        let io_uring = io_uring::IoUring::new(1).is_ok();
        for url in [
            "reference:1M?link=1us:1Gb/s",
            "reference:1M?throttle=1G",
            "reference:1M?delay_us=1",
            "reference:1M?link=1us:1Gb/s&fault=load@9",
            "file:/tmp?size=1M",
            "file:/tmp?size=1M&fault=load@9",
        ] {
            let options = OpenOptions { encrypt: true, ..OpenOptions::default() };
            let backend = open_one(&parse(url).unwrap(), 1, &options).unwrap();
            let (mut stored, mut loaded) = (0, 0);
            let (mut out, mut into) = ([Ok(Location(0))], [0; PAGE_BYTES]);
            backend.store_while(&[&[7; PAGE_BYTES]], None, Priority::WriteBack, &mut out, &mut || stored += 1);
            let location = out[0].clone().expect("room");
            let items = &mut [crate::LoadItem { location, into: &mut into }];
            backend.load_while(items, Priority::Prefetch, &mut |_, page| assert!(page.is_ok()), &mut || loaded += 1);
            assert_eq!(into, [7; PAGE_BYTES], "{url}");
            let waits = io_uring || !url.starts_with("file");
            assert_eq!((stored > 0, loaded > 0), (waits, waits), "{url}");
        }
    }

    #[test]
    fn demands_have_as_many_lanes_as_all_paths_that_wait() {
        let width = |urls: &[&str]| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            open(&urls).unwrap_or_else(|error| panic!("{error}")).demand_width()
        };
        assert_eq!(width(&["compressed:4M", "reference:4M?link=1us:1Gb/s"]), 0, "threads wait there by themselves");
        assert_eq!(width(&["file:/tmp?size=1M"]), 8);
        let narrow = "file:/tmp?size=1M&threads=3&delay_us=1";
        assert_eq!(width(&["compressed:4M", narrow, "file:/tmp?size=1M&threads=2"]), 5);
    }

    #[test]
    fn nothing_means_compressed_ram_and_a_file() {
        let rows = rows(&[]);
        assert!(rows[0].url.starts_with("compressed:"), "{}", rows[0].url);
        assert!(rows[0].capacity_bytes >= CAPACITY_MIN);
        assert!(rows[1].url.starts_with("file:"), "{}", rows[1].url);
        assert!(rows[1].capacity_bytes > 0);
    }

    #[test]
    fn paths_that_cannot_be_used_are_named() {
        let far = std::env::temp_dir().join(format!("hinterland-far-{}", std::process::id()));
        for (url, words) in [
            ("file:/no/such/dir/far", "/no/such/dir/far cannot be used: its directory /no/such/dir"),
            ("file:/proc/self/status", "never overwritten"),
            (&format!("file:{}?size=9000T", far.display()), " has only "),
            ("numa:1000", "NUMA node"),
        ] {
            let parsed = parse(url).expect("well-formed");
            let message = check(&parsed).expect_err(url).to_string();
            assert!(message.contains(words), "{message}");
            // A run's processes open what was checked for the run, whatever has become of the room.
            if words != " has only " {
                let message = open(&[url.to_owned()]).err().map(|error| error.to_string()).expect(url);
                assert!(message.contains(words), "{message}");
            }
        }
        let many = vec!["reference:1M".to_owned(); 17];
        assert!(matches!(open(&many), Err(OpenError::TooMany(17))));
    }
}
