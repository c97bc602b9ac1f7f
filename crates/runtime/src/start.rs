//! The constructor: makes an unmodified program a managed one, or leaves it alone and says why.

use crate::{
    caller, census, confine, descriptors, exit, fork, fork_group, heap, inline, instrumenter, ledger, libc_heap,
    memory_limit, parent_death, profile, region_map, smaps, tape, thread_processor, trace,
};
use hinterland_abi::{DATA_BYTES_NEEDED, FaultPathName, PlacementName, ProcessRow, Settings, variables};
use hinterland_backend::{Backend, OpenError, OpenOptions};
use hinterland_pager::{Config, Decisions, FAR_BASE, FAR_PAGES, FaultPath, Kernel, Pager};
use hinterland_policy::Arbiter;
use hinterland_sys::mem::OwnMemory;
use hinterland_sys::processors::Processors;
use hinterland_sys::{
    FeatureSet, Features, Mapping, Privilege, SysError, Uffd, last_thread, seccomp, thread, thread::SignalsBlocked,
};
use hinterland_tls::{ClientCredentials, CredentialError, Hiding, Sources};
use hinterland_units::{Budget, ByteCount, Foreign, PAGE_BYTES};
use inline::syscall_sites::{RedirectError, Redirects, go_object, newer_hints};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};

static PAGER: OnceLock<Pager> = OnceLock::new();
/// Faults are served: memory may be far.
static READY: AtomicBool = AtomicBool::new(false);

/// The pager, once the library is ready; `None` before and when the process is not managed.
pub(crate) fn pager() -> Option<&'static Pager> {
    if READY.load(Acquire) { PAGER.get() } else { None }
}

/// The pager, for a fault: that may be the very first touch, before the library is ready.
pub(crate) fn pager_of_faults() -> Option<&'static Pager> {
    PAGER.get()
}

/// Why a process is not managed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}: {1}")]
    Setting(&'static str, String),
    #[error("userfaultfd cannot be used here; `hinterland doctor` names the remedy")]
    Privilege,
    #[error("no address space for far memory ({0}); raise or lift the limit on it (ulimit -v)")]
    AddressSpace(SysError),
    #[error(
        "private writable memory is limited to {0} (ulimit -d), and far memory needs {needed} of it beside the program's own; raise or lift the limit",
        needed = ByteCount(DATA_BYTES_NEEDED)
    )]
    WritableMemory(ByteCount),
    #[error(
        "the addresses of far memory ({FAR_BASE:#x} to {FAR_END:#x}) are taken: before the library started, something was mapped at {0}"
    )]
    Taken(String),
    #[error(transparent)]
    Backend(#[from] OpenError),
    #[error(transparent)]
    System(#[from] SysError),
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(
        "it was started under a filter of system calls that a program of the run has installed for itself (a sandbox), \
         under which Hinterland cannot begin"
    )]
    Confined,
    #[error("it runs under Valgrind, which emulates its instructions and knows no userfaultfd")]
    Valgrind,
    #[error("{0} {1}")]
    Instrumenter(String, &'static str),
    #[error(
        "{0} {1}, and the program that started it is on the inline path, whose filter of system calls its guests would die of; \
         --fault-path monitor starts them"
    )]
    InstrumenterInFilter(String, &'static str),
    #[error(
        "the page at {at:#x}, where Hinterland makes its calls, cannot be mapped ({0}), and the program that started it is on the inline path, whose \
         filter of system calls it inherits; --fault-path monitor starts both",
        at = hinterland_sys::trampoline::ADDRESS
    )]
    Covered(SysError),
    #[error(
        "the program that started it is on the inline path of another version of Hinterland, whose filter of system calls it inherits"
    )]
    OtherVersion,
    #[error("a descriptor cannot be kept: {0}")]
    Descriptor(#[from] std::io::Error),
    #[error("the inline fault path cannot be taken: {0}")]
    Inline(inline::eligibility::Ineligible),
    #[error(
        "there is no safe fault path: inline, {0}; the monitor is not allowed here (`hinterland doctor` names the remedy)"
    )]
    NoPath(inline::eligibility::Ineligible),
    #[error(
        "it was started by a program on the inline path, whose filter of system calls it inherits; it cannot take the monitor path{0}"
    )]
    Inherited(String),
    #[error(transparent)]
    Redirect(#[from] RedirectError),
    #[error(transparent)]
    Activate(#[from] inline::ActivateError),
    #[error(transparent)]
    Heap(#[from] crate::jemalloc::ArenaError),
}

/// Early among the library's own constructors: jemalloc's begins only after this one has chosen its options.
#[used]
#[unsafe(link_section = ".init_array.00099")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    // No handler of the program's exists yet; so the library's allocator need not ask the kernel each time.
    let _signals = SignalsBlocked::already();
    // Nothing to do unless somebody asked: a library that is preloaded by accident changes nothing.
    let settings = match Settings::from_env(|name| std::env::var(name).ok()) {
        Ok(settings) if settings.local.is_none() && settings.ram.is_none() => return,
        other => other,
    };
    thread::end_process_on_panic();
    let has_launcher = settings.as_ref().is_ok_and(|settings| !settings.ledger.is_empty());
    let traced = settings.as_ref().is_ok_and(|settings| !settings.trace.is_empty());
    let row = ledger::open(settings.as_ref().ok());
    parent_death::begin();
    let begun = settings
        .map_err(|(name, error)| Refusal::Setting(name, error.to_string()))
        .and_then(|settings| begin(&settings, row));
    match begun {
        Ok(path) => row.fault_path.set(name_of(path)),
        Err(refusal) => {
            // Run unmanaged, it could start nothing.
            let is_of_no_use = matches!(refusal, Refusal::InstrumenterInFilter(..));
            let refusal = Foreign(&refusal.to_string()).to_string();
            row.reason.set(&refusal);
            if !has_launcher {
                thread::write_stderr(&format!("hinterland: not managed: {refusal}\n"));
            }
            if ledger::must_be_managed() || is_of_no_use {
                let way_round =
                    if traced || is_of_no_use { "" } else { "; --allow-unmanaged runs it without Hinterland" };
                row.fatal.set(&format!("not started: {refusal}{way_round}"));
                thread::exit_now(hinterland_pager::FATAL_EXIT_CODE);
            }
        }
    }
}

/// A budget as the launcher hands it over: it makes a size of every share.
fn in_bytes(variable: &'static str, budget: Option<Budget>) -> Result<Option<ByteCount>, Refusal> {
    match budget {
        None => Ok(None),
        Some(Budget::Bytes(bytes)) => Ok(Some(bytes)),
        Some(share) => {
            Err(Refusal::Setting(variable, format!("{share} is no size; start the program with `hinterland run`")))
        }
    }
}

/// Takes hold of the program's memory.
fn begin(settings: &Settings, row: &'static ProcessRow) -> Result<FaultPath, Refusal> {
    if hinterland_sys::valgrind::is_running() {
        return Err(Refusal::Valgrind);
    }
    if let Some((name, why)) = instrumenter::of_this_process() {
        instrumenter::leave_guest_alone();
        let dies = seccomp::in_force() && instrumenter::dies_of_filters(&name);
        return Err(if dies { Refusal::InstrumenterInFilter(name, why) } else { Refusal::Instrumenter(name, why) });
    }
    if confine::is_inherited(settings.filters) {
        return Err(Refusal::Confined);
    }
    // First, because a filter that this process inherited traps calls that name the far range, except those made there; also on the monitor
    // path: the program may confine itself later, when calls of ours that are under way would begin again elsewhere. Without such a filter, the choice of
    // the path reports what else lies there.
    let mapped = hinterland_sys::trampoline::map();
    if seccomp::in_force() {
        mapped.map_err(Refusal::Covered)?;
        if !inline::is_filter_in_force() {
            return Err(Refusal::OtherVersion);
        }
    }
    let counted = memory_limit::count_before_ours();
    if let Some(limit) = memory_limit::too_low(counted) {
        return Err(Refusal::WritableMemory(limit));
    }
    // Before anything that could call an allocator of the program's: it may map its memory at addresses of its choice.
    let range = reserve_far_range()?;
    let begun = begin_in_range(settings, row);
    memory_limit::begin(counted, row);
    if begun.is_err() && PAGER.get().is_none() {
        // SAFETY: nothing was mapped in it.
        unsafe { range.end() };
    }
    begun
}

fn begin_in_range(settings: &Settings, row: &'static ProcessRow) -> Result<FaultPath, Refusal> {
    let set: FeatureSet = settings.features.parse().map_err(|e| Refusal::Setting(variables::FEATURES, e))?;
    let features = Features::probe(set);
    let Chosen { path, ready, redirects, why } = choose_path(settings.fault_path, &features)?;
    hinterland_sys::descriptor::hide_with(descriptors::protect, descriptors::expose);
    hinterland_sys::uffd::keep_device();
    let mut far = settings.far.clone();
    if let Some(replicas) = settings.replicas {
        hinterland_backend::set_replicas(&mut far, replicas).map_err(OpenError::from)?;
    }
    let (rosters, links) =
        ledger::get().map_or_else(Default::default, |ledger| (&ledger.rosters[..], &ledger.links[..]));
    let costs = settings.costs.iter().filter(|_| settings.placement == PlacementName::Auto);
    let costs = costs.map(|cost| hinterland_backend::stated_cost(cost)).collect::<Result<_, _>>();
    let options = OpenOptions {
        placement: settings.placement,
        costs: costs.map_err(|why| Refusal::Setting(variables::COSTS, why))?,
        changes: ledger::get().and_then(|ledger| ledger.commands.path_changes()).unwrap_or_default(),
        encrypt: settings.encrypt,
        credentials: credentials(settings)?,
        insecure_loopback: settings.insecure_loopback,
        rosters,
        links,
        ..OpenOptions::default()
    };
    let paths = hinterland_backend::open_with(&far, &options)?;
    let backend: Arc<dyn Backend> = paths.clone();
    let waits = |url: &String| url.starts_with("file:") || hinterland_backend::names_nodes(url);
    let is_node = |url: &String| url.starts_with("numa:");
    let slow = settings.far.iter().any(waits) || !backend.copies_cost_ram() && !settings.far.iter().all(is_node);
    let policy = hinterland_policy::make(&settings.evict.to_string(), 4096)
        .ok_or_else(|| Refusal::Setting(hinterland_abi::variables::EVICT, "unknown policy".into()))?;
    let mut prefetcher = hinterland_policy::make_prefetcher(&settings.prefetch.to_string(), settings.read_ahead_pages)
        .ok_or_else(|| Refusal::Setting(hinterland_abi::variables::PREFETCH, "unknown prefetcher".into()))?;
    prefetcher.has_processors(allowed_processors());
    let (uffd, memory) = open_kernel(&features, path)?;
    let trace = trace::begin(settings, path).map_err(|e| Refusal::Setting(hinterland_abi::variables::TRACE, e))?;
    let tape = tape::begin(settings, row);
    let has_tapes = !settings.tape_memory.is_empty();
    let decisions = if trace.is_none() && !has_tapes { decisions(settings, path)? } else { Decisions::default() };
    let (arbiter, policy) = match tape {
        Some(tapes) => Arbiter::following(prefetcher, policy, tapes),
        None if has_tapes => Arbiter::able_to_follow(prefetcher, policy),
        None => (Arbiter::new(prefetcher), policy),
    };
    let granularity = hinterland_policy::Granularity::named(settings.granularity.name())
        .ok_or_else(|| Refusal::Setting(variables::GRANULARITY, "unknown granularity".into()))?;
    let blocks = hinterland_policy::Blocks { granularity, pages: block_pages(settings) };
    let watch = profile::begin(settings);
    let config = Config {
        path,
        base: FAR_BASE,
        pages: FAR_PAGES,
        local: in_bytes(variables::LOCAL, settings.local)?,
        ram: in_bytes(variables::RAM, settings.ram)?,
        backend,
        paths: Some(paths),
        copies: settings.copies,
        policy,
        arbiter: arbiter.with_blocks(blocks),
        prefetch_cache_pages: prefetch_cache_pages(settings),
        row,
        monitors: if slow && trace.is_none() { MONITORS_SLOW } else { 1 },
        cpus: settings.cpus,
        census: census::take,
        processor_of: thread_processor::processor,
        housekeeping,
        ledger: ledger::get(),
        shared: fork_group::look,
        trace,
        watch,
        decisions,
    };
    let pager = Pager::new(config, Kernel::new(features, uffd, memory))?;
    let departure = if features.move_pages { "pages move" } else { "pages are copied: the kernel has no UFFDIO_MOVE" };
    row.reason.set(&format!("{departure}{why}"));
    let pager = PAGER.get_or_init(|| pager);
    smaps::open();
    // Before handlers of the program's: ours must be the innermost around the fork.
    fork::init();
    caller::init();
    crate::loaded_file::init();
    crate::interpose::next_symbol::look_all_up();
    crate::interpose::thread_exit::begin();
    region_map::init();
    if let Some(ready) = ready {
        inline::activate(ready)?;
    }
    redirects.apply()?;
    say_what_is_newer();
    last_thread::prepare();
    last_thread::before_the_end(exit::finish);
    pager.start()?;
    // Not before: without a monitor, the first touch of far memory would wait for ever.
    READY.store(true, Release);
    pager.begin_trace(trace::fault_cost);
    profile::heap_begins();
    // A trace is of another run than the one that follows its tape.
    let repeats = !settings.trace.is_empty() || has_tapes;
    heap::init(settings.heap, repeats)?;
    if heap::is_managed() {
        crate::interpose::loading::bind_to_ours();
    }
    if !heap::is_managed() || libc_heap::is_replaced() {
        pager.start_all()?;
    }
    Ok(path)
}

/// Processors on which the process may run when it starts; where the kernel does not say, as many as can be named.
fn allowed_processors() -> usize {
    Processors::allowed().unwrap_or(Processors::ALL).count()
}

/// Where the decisions of this process are noted, if a test says so.
#[cfg(debug_assertions)]
fn decisions(settings: &Settings, path: FaultPath) -> Result<Decisions, Refusal> {
    const VARIABLE: &str = "HINTERLAND_TEST_DECISIONS";
    let Some(folder) = std::env::var_os(VARIABLE) else { return Ok(Decisions::default()) };
    let with = hinterland_paging::Begin {
        is_inline: path == FaultPath::Inline,
        eviction: settings.evict.to_string(),
        prefetcher: settings.prefetch.to_string(),
        processors: u32::try_from(allowed_processors()).unwrap_or(u32::MAX),
        window_pages_max: settings.read_ahead_pages,
        prefetch_cache_pages: prefetch_cache_pages(settings),
        granularity: settings.granularity.to_string(),
        block_pages: block_pages(settings),
    };
    Decisions::create(folder.as_ref(), with).map_err(|error| Refusal::Setting(VARIABLE, error.to_string()))
}

/// They are not noted in a build that is shipped.
#[cfg(not(debug_assertions))]
fn decisions(_: &Settings, _: FaultPath) -> Result<Decisions, Refusal> {
    Ok(Decisions::default())
}

fn prefetch_cache_pages(settings: &Settings) -> Option<u32> {
    settings.prefetch_cache.map(|size| u32::try_from(size.0 / PAGE_BYTES as u64).unwrap_or(u32::MAX))
}

fn block_pages(settings: &Settings) -> Option<u32> {
    settings.block.map(|size| u32::try_from(size.0 / PAGE_BYTES as u64).unwrap_or(u32::MAX))
}

/// Of code that was compiled for a newer version of the hints' interface, hints have no effect.
fn say_what_is_newer() {
    use crate::interpose::hints::VERSION;
    for (object, version) in newer_hints(VERSION) {
        thread::write_stderr(&format!(
            "hinterland: {} was compiled to give hints by version {version} of their interface, and this library knows version \
             {VERSION}: its hints have no effect; use the hinterland that it was compiled with, or a newer one\n",
            Foreign(&object)
        ));
    }
}

/// What the maintenance thread does for this crate, now and then.
fn housekeeping() {
    heap::give_back_freed();
    inline::stacks::tasks::look_for_gone();
}

const FAR_BYTES: usize = FAR_PAGES as usize * PAGE_BYTES;
const FAR_END: usize = FAR_BASE + FAR_BYTES;

fn reserve_far_range() -> Result<Mapping, Refusal> {
    Mapping::reserve_at(FAR_BASE, FAR_BYTES).map_err(|error| match error.errno {
        libc::EEXIST => Refusal::Taken(
            first_mapping_of_others(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
                .unwrap_or_else(|| "an unknown place".into()),
        ),
        _ => Refusal::AddressSpace(error),
    })
}

/// The first mapping in the far range, as /proc/self/maps, whose format this is, tells it: addresses, and what it is of.
fn first_mapping_of_others(maps: &str) -> Option<String> {
    maps.lines().find_map(|line| {
        let Range { start, end } = smaps::addresses(line)?;
        let name = line.split_ascii_whitespace().nth(5).unwrap_or("anonymous memory");
        (start < FAR_END && end > FAR_BASE).then(|| format!("{start:#x} to {end:#x} ({name})"))
    })
}

/// What memory nodes are shown, and what is demanded of them.
fn credentials(settings: &Settings) -> Result<Option<ClientCredentials>, CredentialError> {
    let sources = Sources::new(&settings.tls, &settings.tls_ca, &settings.key_file)?;
    // They are read again while the program runs.
    let hiding = Hiding { hide: hinterland_sys::descriptor::hide_file, close: hinterland_sys::descriptor::close_file };
    sources.as_ref().map(|sources| ClientCredentials::read_hidden(sources, hiding)).transpose()
}

/// The fault path for this process.
struct Chosen {
    path: FaultPath,
    /// For the inline path.
    ready: Option<inline::eligibility::Eligible>,
    /// For the monitor path.
    redirects: Redirects,
    /// Why, for the user; empty when the user has said it.
    why: String,
}

impl Chosen {
    fn inline(ready: inline::eligibility::Eligible, why: &str) -> Chosen {
        Chosen { path: FaultPath::Inline, ready: Some(ready), redirects: Redirects::default(), why: why.into() }
    }

    /// The monitor, unless calls on far memory are trapped in this process: nobody would answer. Memory calls that do not come through
    /// libc must be redirected, or pages would keep content that was dropped.
    fn monitor(mut why: String) -> Result<Chosen, Refusal> {
        if seccomp::in_force() {
            return Err(Refusal::Inherited(why));
        }
        let redirects = Redirects::plan()?;
        if redirects.count() > 0 {
            why.push_str(&format!("; its own system calls in {} places are redirected", redirects.count()));
        }
        Ok(Chosen { path: FaultPath::Monitor, ready: None, redirects, why })
    }
}

/// Chooses before anything is changed: what cannot be taken any more is never tried.
fn choose_path(name: FaultPathName, features: &Features) -> Result<Chosen, Refusal> {
    use inline::eligibility::{can, suits};
    match (name, features.privilege) {
        (_, Privilege::None(_)) | (FaultPathName::Monitor, Privilege::UserOnly) => Err(Refusal::Privilege),
        (FaultPathName::Monitor, Privilege::Kernel) => Chosen::monitor(String::new()),
        // Go blocks all signals by calls of its own, and dies of the next fault.
        (FaultPathName::Inline, _) if let Some(go) = go_object() => {
            Err(Refusal::Inline(inline::eligibility::Ineligible::DirectSyscalls(go)))
        }
        (FaultPathName::Inline, _) => Ok(Chosen::inline(can(features).map_err(Refusal::Inline)?, "")),
        (FaultPathName::Auto, Privilege::Kernel) => match can(features).and_then(|ready| suits(ready, true)) {
            Ok(ready) => Ok(Chosen::inline(ready, "; the program was found fit for it")),
            Err(doubt) => Chosen::monitor(format!("; not inline: {doubt}")),
        },
        (FaultPathName::Auto, Privilege::UserOnly) => {
            let ready = can(features).and_then(|ready| suits(ready, false)).map_err(Refusal::NoPath)?;
            Ok(Chosen::inline(ready, "; the monitor is not allowed here"))
        }
    }
}

/// The name that figures and users know a path by.
pub(crate) fn name_of(path: FaultPath) -> &'static str {
    match path {
        FaultPath::Monitor => "monitor",
        FaultPath::Inline => "inline",
    }
}

/// Monitors when a backend waits for a device or a node: others are served meanwhile.
const MONITORS_SLOW: usize = 4;

/// Opens what the pager needs of the kernel, under numbers that survive programs which close everything.
pub(crate) fn open_kernel(features: &Features, path: FaultPath) -> Result<(Uffd, OwnMemory), KernelError> {
    let uffd = match path {
        FaultPath::Monitor => Uffd::open(features.monitor_bits()),
        FaultPath::Inline => Uffd::open_user_only(features.inline_bits()),
    }?;
    let fd = descriptors::protect(uffd.fd())?;
    let uffd = uffd.taken_as(fd);
    // Without it, pages that the program made inaccessible stay local.
    let Ok(memory) = OwnMemory::open() else { return Ok((uffd, OwnMemory::none())) };
    let fd = descriptors::protect(memory.fd())?;
    Ok((uffd, memory.taken_as(fd)))
}

/// Why the kernel's files cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error(transparent)]
    System(#[from] SysError),
    #[error("a descriptor cannot be kept: {0}")]
    Descriptor(#[from] std::io::Error),
}

impl From<KernelError> for Refusal {
    fn from(error: KernelError) -> Refusal {
        match error {
            KernelError::System(e) => Refusal::System(e),
            KernelError::Descriptor(e) => Refusal::Descriptor(e),
        }
    }
}
