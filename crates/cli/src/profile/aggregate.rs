//! Makes the file of a profile from the samples of a run's processes: addresses get names, and entries of one name are
//! merged.
//!
//! Where the monitor served faults, a function's are a sample, but all faults on a site's memory were counted and timed. So the time of a
//! site's faults, of each kind, is divided among its functions by their samples: one long fault that happens to be a sample, and would
//! stand for many, changes little. The time of a function is divided among its stacks in the same way.

use super::file::{Call, FORMAT, Function, LineWaits, Lost, Part, ProfileFile, Program, RunPart};
use super::file::{Site, Stack, StackFrame, VERSION, Waits};
use super::names::{FunctionKey, Names, is_allocator};
use crate::encode::hexadecimal;
use hinterland_abi::profile::{self as taken, Profile, SiteKind};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Calls of a site that are kept.
const SITE_CALLS: usize = 4;
/// Fewer faults than this show no pattern.
const PATTERN_FAULTS: u64 = 8;

/// Faults of one kind.
#[derive(Clone, Copy, Default)]
struct OfKind {
    faults: u64,
    ns: u64,
}

/// Fetches, first touches, others.
fn by_kind(of: &taken::Waits) -> [OfKind; 3] {
    [&of.fetches, &of.first_touches, &of.others]
        .map(|kind| OfKind { faults: kind.faults.load(Relaxed), ns: kind.wait_ns.load(Relaxed) })
}

fn waits(of: &taken::Waits) -> Waits {
    let [fetches, first_touches, others] = by_kind(of);
    Waits {
        faults: fetches.faults + first_touches.faults + others.faults,
        fetches: fetches.faults,
        first_touches: first_touches.faults,
        wait_ns: fetches.ns + first_touches.ns + others.ns,
    }
}

/// How long a fault of each kind took, by its site; of samples, the time of all that they stand for.
struct Rates<'a> {
    profile: &'a Profile,
    /// By site, faults that points have of it.
    sampled: HashMap<Option<usize>, [u64; 3]>,
    is_sample: bool,
}

impl Rates<'_> {
    fn of(profile: &Profile) -> Rates<'_> {
        let mut sampled: HashMap<Option<usize>, [u64; 3]> = HashMap::new();
        for (_, point) in profile.points.entries() {
            let faults = sampled.entry(point.site()).or_default();
            faults.iter_mut().zip(by_kind(&point.waits)).for_each(|(sum, kind)| *sum += kind.faults);
        }
        Rates { profile, sampled, is_sample: profile.monitor_one_in.load(Relaxed) > 0 }
    }

    /// A point's faults, with the time that the site's faults took.
    fn corrected(&self, point: &taken::Point) -> Waits {
        let own = waits(&point.waits);
        let site = point.site().and_then(|site| self.profile.sites.get(site));
        let Some((site, sampled)) = site.zip(self.sampled.get(&point.site())).filter(|_| self.is_sample) else {
            return own;
        };
        let parts = by_kind(&site.waits).into_iter().zip(by_kind(&point.waits)).zip(sampled);
        let part = |((all, own), sampled): ((OfKind, OfKind), &u64)| {
            u64::try_from(u128::from(all.ns) * u128::from(own.faults) / u128::from((*sampled).max(1))).unwrap_or(0)
        };
        Waits { wait_ns: parts.map(part).sum(), ..own }
    }
}

/// A function while it is put together.
#[derive(Default)]
struct Gathered {
    symbol: Option<String>,
    waits: Waits,
    /// By file, line, and the function that it was written in, where that was inlined.
    lines: BTreeMap<(String, u32, Option<String>), Waits>,
    sites: BTreeMap<usize, Waits>,
}

/// What is known of the run beside the profile.
pub struct RunFacts<'a> {
    /// The program, as it was called.
    pub name: String,
    /// Its file.
    pub path: &'a Path,
    /// From its start to its end.
    pub wall_ns: u64,
    /// Its budget.
    pub local_bytes: Option<u64>,
    /// Its faults, as its figures have them.
    pub waits: Waits,
}

/// The file of a profile.
pub fn aggregate(profile: &Profile, run: &RunFacts<'_>) -> ProfileFile {
    let path = std::fs::canonicalize(run.path).unwrap_or_else(|_| run.path.into());
    let mut names = Names::of(profile);
    let (mut sites, numbers) = sites(profile, &mut names, run.waits.wait_ns);
    let rates = Rates::of(profile);
    let mut functions: BTreeMap<FunctionKey, Gathered> = BTreeMap::new();
    for (_, point) in profile.points.entries() {
        let frame = point.frame();
        let named = names.name(frame);
        let key = names.function(frame);
        let function = functions.entry(key).or_default();
        let waits = rates.corrected(point);
        function.waits.add(waits);
        function.symbol = function.symbol.take().or_else(|| named.symbol.clone());
        if let Some(line) = named.lines.first().filter(|line| line.line != 0) {
            let inlined = (named.lines.len() > 1).then(|| line.function.clone());
            function.lines.entry((line.file.clone(), line.line, inlined)).or_default().add(waits);
        }
        if let Some(site) = point.site().and_then(|site| numbers.get(&site)) {
            function.sites.entry(*site).or_default().add(waits);
        }
    }
    let mut functions: Vec<(FunctionKey, Gathered)> = functions.into_iter().collect();
    functions.sort_by_key(|(_, function)| std::cmp::Reverse((function.waits.wait_ns, function.waits.faults)));
    let times = functions.iter().map(|(key, function)| (key.clone(), function.waits.wait_ns)).collect();
    let (frames, stacks) = stacks(profile, &mut names, &times);
    // Of samples the sum is an estimate.
    let all_ns: u64 = functions.iter().map(|(_, function)| function.waits.wait_ns).sum();
    let all_ns = all_ns.max(run.waits.wait_ns);
    for (index, (_, function)) in functions.iter().enumerate() {
        for (site, waits) in &function.sites {
            sites[*site].functions.push(Part { index, waits: *waits });
        }
    }
    ProfileFile {
        format: FORMAT.into(),
        version: VERSION,
        program: Program {
            name: run.name.clone(),
            path: path.to_string_lossy().into_owned(),
            build_id: program_id(profile, &path),
        },
        run: RunPart {
            wall_ns: run.wall_ns,
            local_bytes: run.local_bytes,
            waits: run.waits,
            one_in: Some(profile.monitor_one_in.load(Relaxed)).filter(|one_in| *one_in > 0),
            lost: Lost {
                faults: profile.points_without_room.load(Relaxed),
                stacks: profile.stacks_without_room.load(Relaxed),
                allocations: profile.sites_without_room.load(Relaxed),
                lives: profile.lives_without_room.load(Relaxed),
                unplaced: profile.unplaced.load(Relaxed),
            },
        },
        functions: functions.into_iter().map(|(key, function)| finished(key, function, all_ns)).collect(),
        sites,
        frames,
        stacks,
        modules: names.modules(),
        others: serde_json::Map::new(),
    }
}

/// The build-id of the program's own file; empty: none of its code was seen, or it has none.
fn program_id(profile: &Profile, path: &Path) -> String {
    let own = profile.modules.entries().find(|(_, module)| Path::new(&module.path.get()) == path);
    own.map_or(String::new(), |(_, module)| hexadecimal(&module.build_id()))
}

/// A part of a whole, which may be nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn finished(key: FunctionKey, function: Gathered, all_ns: u64) -> Function {
    let line = |((file, line, inlined), waits)| LineWaits { file, line, inlined, waits };
    let mut lines: Vec<LineWaits> = function.lines.into_iter().map(line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.waits.wait_ns));
    Function {
        name: key.name,
        symbol: function.symbol,
        module: key.module,
        file: Some(key.file).filter(|file| !file.is_empty()),
        waits: function.waits,
        wait_share: share(function.waits.wait_ns, all_ns),
        lines,
        sites: function.sites.into_iter().map(|(index, waits)| Part { index, waits }).collect(),
    }
}

/// What tells sites apart: module, function and place of each call; and the kind. The place is a line and column, or an offset.
type SiteKey = (Vec<(String, String, [Option<u64>; 3])>, &'static str);

/// Sites that are one in the source.
struct Alike<'a> {
    calls: Vec<Call>,
    kind: &'static str,
    parts: Vec<(usize, &'a taken::Site)>,
}

/// The sites, that which was waited for longest first, and the place of each of the segment's in this list; `run_ns`: the time in which
/// all faults were served, also on memory that no site is known of.
fn sites(profile: &Profile, names: &mut Names<'_>, run_ns: u64) -> (Vec<Site>, HashMap<usize, usize>) {
    let mut aggregated: Vec<Alike<'_>> = Vec::new();
    let mut known: HashMap<SiteKey, usize> = HashMap::new();
    for (number, site) in profile.sites.entries() {
        let all: Vec<Call> = site.frames.get().flat_map(|frame| names.calls(frame)).collect();
        let begin = all.iter().position(|call| !is_allocator(call)).unwrap_or(all.len());
        let is_start = |call: &Call| call.function.starts_with("__libc_start") || call.function == "_start";
        let calls: Vec<Call> =
            all.into_iter().skip(begin).take_while(|call| !is_start(call)).take(SITE_CALLS).collect();
        let kind = match site.kind() {
            SiteKind::Heap => "heap",
            SiteKind::Mapping => "mapping",
        };
        let place = |call: &Call| [call.line.map(u64::from), call.column.map(u64::from), call.offset];
        let key = calls.iter().map(|call| (call.module.clone(), call.function.clone(), place(call))).collect();
        let index = *known.entry((key, kind)).or_insert(aggregated.len());
        if index == aggregated.len() {
            aggregated.push(Alike { calls, kind, parts: Vec::new() });
        }
        aggregated[index].parts.push((number, site));
    }
    let mut sites: Vec<(Site, Vec<usize>)> = aggregated
        .into_iter()
        .map(|Alike { calls, kind, parts }| {
            let numbers = parts.iter().map(|(number, _)| *number).collect();
            let parts: Vec<&taken::Site> = parts.into_iter().map(|(_, site)| site).collect();
            (site(calls, kind, &parts), numbers)
        })
        .collect();
    sites.sort_by_key(|(site, _)| std::cmp::Reverse((site.waits.wait_ns, site.held_bytes_max)));
    let all_ns = sites.iter().map(|(site, _)| site.waits.wait_ns).sum::<u64>().max(run_ns);
    let mut places = HashMap::new();
    for (index, (site, numbers)) in sites.iter_mut().enumerate() {
        site.wait_share = share(site.waits.wait_ns, all_ns);
        places.extend(numbers.iter().map(|number| (*number, index)));
    }
    (sites.into_iter().map(|(site, _)| site).collect(), places)
}

/// One site of those parts.
fn site(calls: Vec<Call>, kind: &str, parts: &[&taken::Site]) -> Site {
    let sum = |of: fn(&taken::Site) -> &hinterland_abi::Counter| -> u64 {
        parts.iter().map(|site| of(site).load(Relaxed)).sum()
    };
    let (lives, life_ns) = (sum(|site| &site.lives), sum(|site| &site.life_ns));
    let mut all = Waits::default();
    parts.iter().for_each(|site| all.add(waits(&site.waits)));
    let (sequential, strided, irregular) =
        (sum(|site| &site.sequential), sum(|site| &site.strided), sum(|site| &site.irregular));
    Site {
        calls,
        kind: kind.into(),
        allocations: sum(|site| &site.allocations),
        bytes: sum(|site| &site.bytes),
        bytes_max: parts.iter().map(|site| site.bytes_max.load(Relaxed)).max().unwrap_or(0),
        held_bytes_max: sum(|site| &site.held_bytes_max),
        life_ns: life_ns.checked_div(lives),
        waits: all,
        wait_share: 0.0,
        pattern: pattern(sequential, strided, irregular).into(),
        sequential,
        strided,
        irregular,
        fetched_pages: sum(|site| &site.fetched_pages),
        functions: Vec::new(),
    }
}

fn pattern(sequential: u64, strided: u64, irregular: u64) -> &'static str {
    let all = sequential + strided + irregular;
    match all {
        0..PATTERN_FAULTS => "once",
        _ if sequential * 2 > all => "sequential",
        _ if strided * 2 > all => "strided",
        // A walk over a few arrays at once is near, or far by the same, most of the time.
        _ if (sequential + strided) * 4 > all * 3 => "strided",
        _ => "random",
    }
}

/// The stacks; `times`: how long each function waited.
fn stacks(
    profile: &Profile,
    names: &mut Names<'_>,
    times: &HashMap<FunctionKey, u64>,
) -> (Vec<StackFrame>, Vec<Stack>) {
    let mut sampled: HashMap<FunctionKey, u64> = HashMap::new();
    for (_, stack) in profile.stacks.entries() {
        *sampled.entry(names.function(stack.point())).or_default() += stack.faults.load(Relaxed);
    }
    let mut list: Vec<StackFrame> = Vec::new();
    let mut numbers: HashMap<StackFrame, usize> = HashMap::new();
    let mut stacks: BTreeMap<Vec<usize>, (u64, u64)> = BTreeMap::new();
    for (_, stack) in profile.stacks.entries() {
        let calls: Vec<Call> = stack.frames.get().flat_map(|frame| names.calls(frame)).collect();
        let number = |call: Call| {
            let frame = StackFrame { function: call.function, module: call.module };
            *numbers.entry(frame).or_insert_with_key(|frame| {
                list.push(frame.clone());
                list.len() - 1
            })
        };
        let all = stacks.entry(calls.into_iter().rev().map(number).collect()).or_default();
        let (faults, function) = (stack.faults.load(Relaxed), names.function(stack.point()));
        let (time, of) = (times.get(&function).copied().unwrap_or(0), sampled.get(&function).copied().unwrap_or(1));
        all.0 += faults;
        all.1 += u64::try_from(u128::from(time) * u128::from(faults) / u128::from(of.max(1))).unwrap_or(0);
    }
    let stack = |(frames, (faults, wait_ns))| Stack { frames, faults, wait_ns };
    let mut stacks: Vec<Stack> = stacks.into_iter().map(stack).collect();
    stacks.sort_by_key(|stack| std::cmp::Reverse(stack.wait_ns));
    (list, stacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_abi::profile::{Frame, key_of_frames};

    #[test]
    fn a_pattern_needs_a_majority_of_enough_faults() {
        assert_eq!(pattern(3, 0, 0), "once");
        assert_eq!(pattern(90, 5, 5), "sequential");
        assert_eq!(pattern(5, 90, 5), "strided");
        assert_eq!(pattern(45, 45, 10), "strided");
        assert_eq!(pattern(10, 10, 80), "random");
    }

    /// There under this name, whatever is inlined.
    #[inline(never)]
    fn function_with_a_name() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn what_has_one_name_is_one_function_and_lists_begin_with_the_worst() {
        // SAFETY: a profile consists of atomics, which are valid when zero.
        let profile = unsafe { Box::<Profile>::new_zeroed().assume_init() };
        let program = std::env::current_exe().unwrap();
        let path = program.to_string_lossy().into_owned();
        let (module, _) = profile.modules.entry(1, |module| module.path.set(&path)).unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        use object::{Object, ObjectSymbol};
        let code = |name: &str| {
            let symbol = file.symbols().find(|symbol| symbol.name().is_ok_and(|symbol| symbol.contains(name)));
            usize::try_from(symbol.unwrap().address()).unwrap()
        };
        let place = code("function_with_a_name");
        assert_eq!(std::hint::black_box(function_with_a_name as fn() -> u32)(), 7);
        let site_frames = [Frame::new(Some(module), place + 9)];
        let (site, _) =
            profile.sites.entry(5, |site| site.identify(SiteKind::Heap, &site_frames)).expect("there is room");
        for (key, frame, ns) in [
            (1, Frame::new(Some(module), place + 1), 10),
            (2, Frame::new(Some(module), place + 2), 30),
            (3, Frame::new(None, 0x1234), 15),
        ] {
            let (_, point) = profile.points.entry(key, |point| point.identify(frame, Some(site))).unwrap();
            point.waits.others.add(ns, 1);
        }
        let frames = [Frame::new(Some(module), place + 1), Frame::new(None, 0x1234)];
        let (_, stack) = profile
            .stacks
            .entry(key_of_frames(&frames), |stack| stack.identify(frames[0], &frames))
            .expect("there is room");
        stack.faults.store(64, Relaxed);
        let run =
            RunFacts { name: "./app".into(), path: &program, wall_ns: 100, local_bytes: None, waits: Waits::default() };
        let file = aggregate(&profile, &run);
        let shown: Vec<(u64, u64)> = file.functions.iter().map(|f| (f.waits.faults, f.waits.wait_ns)).collect();
        assert_eq!(shown, [(2, 40), (1, 15)]);
        assert!(file.functions[0].name.contains("function_with_a_name"), "{:?}", file.functions[0].name);
        assert_eq!(file.functions[1].name, "(code of no file)");
        assert!((file.functions[0].wait_share - 40.0 / 55.0).abs() < 1e-9);
        assert_eq!(
            file.functions[0].sites,
            [Part { index: 0, waits: Waits { faults: 2, wait_ns: 40, ..Waits::default() } }]
        );
        assert_eq!(file.sites[0].functions.len(), 2);
        let outermost = file.stacks[0].frames.first().map(|frame| file.frames[*frame].function.as_str());
        assert_eq!(outermost, Some("(code of no file)"));
        assert_eq!((file.stacks[0].faults, file.stacks[0].wait_ns), (64, 40), "the time of the function");
    }

    #[test]
    fn a_sample_that_took_long_does_not_stand_for_many() {
        // SAFETY: as above.
        let profile = unsafe { Box::<Profile>::new_zeroed().assume_init() };
        profile.monitor_one_in.store(64, Relaxed);
        let (site, entry) = profile.sites.entry(5, |site| site.identify(SiteKind::Heap, &[])).unwrap();
        entry.waits.fetches.add(20, 320);
        for (key, frame, samples, ns) in [(1, 0x1000, 64, 10_000), (2, 0x2000, 192, 10)] {
            let frame = Frame::new(None, frame);
            let (_, point) = profile.points.entry(key, |point| point.identify(frame, Some(site))).unwrap();
            point.waits.fetches.add(ns, samples);
        }
        let rates = Rates::of(&profile);
        let times: Vec<u64> = profile.points.entries().map(|(_, point)| rates.corrected(point).wait_ns).collect();
        assert_eq!(times, [1600, 4800], "all 6400 of the site, by the number of samples");
    }
}
