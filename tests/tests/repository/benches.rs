//! What scripts of the benches make of their figures, whatever was measured.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a script answers in Python, with `input` on its standard input.
fn answer(python: &str, input: &str) -> String {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches");
    let mut command = Command::new("python3");
    command.args(["-c", python]).current_dir(benches).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python is there");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{python}");
    String::from_utf8(output.stdout).expect("it writes text")
}

/// A sample of half a second as `perf script` shows it.
fn sample(thread: &str, stack: &[(&str, &str)]) -> String {
    let frames = stack.iter().map(|(function, file)| format!("\t    ffffffff81000000 {function} ({file})\n"));
    format!("{thread} 4711  500000000 \n{}\n", frames.collect::<String>())
}

#[test]
fn each_sample_of_an_account_is_in_one_bucket() {
    const KERNEL: &str = "[kernel.kallsyms]";
    const OURS: &str = "/opt/my programs/libhinterland.so";
    let script = [
        sample("sqlite3", &[("clear_page_erms", KERNEL), ("mfill_atomic_copy", KERNEL), ("userfaultfd_ioctl", KERNEL)]),
        sample("sqlite3", &[("x64_setup_rt_frame", KERNEL), ("asm_exc_page_fault", KERNEL)]),
        sample("sqlite3", &[("vfs_read", KERNEL), ("ksys_read", KERNEL)]),
        sample("sqlite3", &[("LZ4_decompress_safe", OURS), ("<A as hinterland::Backend>::load", OURS)]),
        sample("my thread", &[("sqlite3VdbeExec", "/lib/libsqlite3.so")]),
        sample("sqlite3", &[("_rjem_malloc", OURS)]),
        // Inside of what unmaps: what the other processors are told.
        sample("far-evictor", &[("flush_tlb_mm_range", KERNEL), ("zap_page_range_single", KERNEL)]),
        sample("far-evictor", &[("zap_page_range_single", KERNEL), ("do_madvise", KERNEL)]),
        sample("far-evictor", &[("LZ4_compress_fast_extState", OURS)]),
        sample("far-evictor", &[("__memmove_avx512", "/lib/libc.so.6")]),
        sample("far-ahead", &[]),
        sample("hinterland", &[("smaps_account", KERNEL)]),
    ];
    let python = "import account, json, sys\nprint(json.dumps(account.account(sys.stdin.read()), sort_keys=True))";
    let expected = r#"{"ahead": {"kernel, other": 0.5}, "#.to_owned()
        + r#""evictor": {"TLB shootdown": 0.5, "compression": 0.5, "own code": 0.5, "zap": 0.5}, "#
        + r#""faulting": {"UFFDIO_COPY": 0.5, "allocator": 0.5, "decompression": 0.5, "program": 1.0, "signal delivery": 0.5}, "#
        + r#""launcher": {"all": 0.5}}"#;
    assert_eq!(answer(python, &script.concat()).trim(), expected);
}

/// A program of the benches in C++, built.
fn built(source: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.trim_end_matches(".cpp"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/programs");
    let mut command = Command::new("g++");
    command.args(["-O2", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-o"]).arg(&program);
    assert!(command.arg(sources.join(source)).status().expect("g++ is installed").success(), "{source}");
    program
}

/// What a program says to such words, on standard output and on standard error.
fn said(program: &Path, words: &str) -> (String, String) {
    let output = Command::new(program).args(words.split(' ')).output().expect("it starts");
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("it writes text"));
    assert!(output.status.success(), "{} {words}: {out}{err}", program.display());
    (out, err)
}

/// The numbers in a text.
fn numbers(text: &str) -> Vec<f64> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.filter_map(|word| word.trim_matches('.').parse().ok()).collect()
}

#[test]
fn programs_of_high_performance_computing_find_their_results_right() {
    let out = |source: &str, words: &str| said(&built(source), words).0;
    assert!(out("linpack.cpp", "1").starts_with("residual passed, digest "));
    assert!(out("stream.cpp", "1 3").ends_with("\n0 wrong\n"));
    assert!(out("std_sort.cpp", "1").starts_with("131072 sorted, digest "));
}

/// Each vertex between a source and another one on a shortest path, which are one fewer than their distance.
#[test]
fn what_depends_on_vertices_between_is_what_searches_find_and_components_hold_what_is_reached() {
    let graph = built("graph.cpp");
    for kind in ["popular", "rmat"] {
        let (searches, said_so_far) = said(&graph, &format!("search 11 8 {kind} 3"));
        let (between, _) = said(&graph, &format!("between 11 8 {kind} 3"));
        let components = numbers(&said(&graph, &format!("components 11 8 {kind}")).0);
        let [count, largest] = components[..] else { panic!("{components:?}") };
        assert!(count + largest - 1.0 <= 2048.0, "{components:?}");
        for (search, source) in searches.lines().zip(between.lines()) {
            let (&[start, reached, distances], &[from, found, depend]) = (&numbers(search)[..], &numbers(source)[..])
            else {
                panic!("{search}, {source}")
            };
            assert_eq!((start, reached), (from, found));
            assert!((distances - (reached - 1.0) - depend).abs() < 0.01 * reached, "{search}, {source}");
            assert!(reached > 1.0 && reached <= largest, "{search}, {components:?}");
        }
        assert_eq!((searches.lines().count(), between.lines().count()), (3, 4));
        assert_eq!(said_so_far.lines().count(), 4, "{said_so_far}");
    }
}

#[test]
fn a_working_set_says_its_rounds_and_its_halves_differ() {
    let program = built("working_set.cpp");
    let (digest, rounds) = said(&program, "4 6 1 2");
    assert_eq!(said(&program, "4 6 1 2").0, digest);
    assert_ne!(said(&program, "4 6 1 1").0, digest);
    assert_ne!(said(&program, "4 6 1").0, digest);
    let python = "import json, slowdown, sys\nprint(json.dumps(slowdown.when_over(sys.stdin.read())))";
    let times: Vec<f64> = serde_json::from_str(&answer(python, &rounds)).expect("a list");
    assert!(times.len() == 7 && times.is_sorted(), "{times:?}");
}

#[test]
fn a_search_by_hand_finds_the_least_size_and_a_phase_settles_when_it_keeps_its_slowdown_in_little_memory() {
    let python = "
import slowdown
tried = []
keeps = lambda mib: tried.append(mib) or mib >= 100
print(100 <= slowdown.searched(keeps, 15, 400, 9) <= 108, len(tried) <= 6, slowdown.searched(lambda mib: True, 15, 400, 9) <= 17)
print(slowdown.searched(lambda mib: False, 15, 400, 2), slowdown.searched(keeps, 15, 400, 0))
# Rounds of a second, of half a second natively, but for four slow ones after the change; memory falls after ten.
times = [float(at) for at in range(41)]
samples = lambda until: [{'at': at / 2, 'local_bytes': 300 if at < 2 * until else 100} for at in range(81)]
print(slowdown.settled_seconds(times, samples(0), 1.0, 1.25, 5), slowdown.settled_seconds(times, samples(30), 1.0, 1.25, 5))
print(slowdown.settled_seconds(times, samples(0), 0.5, 1.25, 5), slowdown.settled_seconds(times, samples(39), 1.0, 1.25, 5))
slow = times[:21] + [20 + 2.0 * at for at in range(1, 5)] + [28.0 + at for at in range(1, 17)]
print(slowdown.settled_seconds(slow, samples(0), 1.0, 1.25, 5))
";
    assert_eq!(answer(python, ""), "True True True\n400 400\n0.0 8.0\nNone 0.0\n6.0\n");
}

#[test]
fn the_best_written_placement_is_what_auto_is_beside_and_rows_that_lose_are_named() {
    let python = "
import json, placement
paths = placement.sets(32, 'DIR')['near-far']
print(list(placement.placements(paths)))
at = {'near': {'pages_peak': 1}}
def row(program, *auto):
    runs = {'tiers near far': [2, 2, 2], 'spread': [3, 1, 3], 'auto': auto}
    runs = {name: [{'seconds': seconds, 'paths': at} for seconds in own] for name, own in runs.items()}
    best, beside = placement.best_written(runs)
    return {'program': program, 'set': 'near-far', 'best': best, 'auto_by_best': beside[best], 'runs': runs}
rows = [row('fast', 1, 2, 2), row('slow', 4, 4, 2)]
print([(row['best'], row['auto_by_best']['median']) for row in rows], [row['program'] for row in placement.losing(rows)])
print([(target['reached'], target['met']) for target in placement.targets(rows)])
print(json.dumps(placement.figures(rows)[0]['series']))
";
    let expected = "['tiers near far', 'tiers far near', 'spread', 'auto']\n\
        [('tiers near far', 1.0), ('tiers near far', 2.0)] ['slow']\n[(1.4142, False), (2.0, False)]\n\
        {\"tiers near far\": [1.0, 1.0], \"spread\": [1.5, 1.5], \"auto\": [1.0, 2.0]}\n";
    assert_eq!(answer(python, ""), expected);
}

#[test]
fn features_say_which_share_of_memory_can_be_far() {
    let python = "
import features
print(features.far_shares(100, {'ssd': {'1.2': 100, '1.8': 25}, 'node': {'1.2': 120}}))
shares = dict.fromkeys([*features.OF_PAGES, *features.OF_REFERENCES, 'longest_sequential_run_pages'], 0.5)
row = {'program': 'stream', 'features': shares, 'far_share': {'ssd': {'1.2': 0.0, '1.8': 0.75}}}
print([(panel['figure'], len(panel['series'])) for panel in features.figures([row])])
";
    let expected =
        "{'ssd': {'1.2': 0.0, '1.8': 0.75}, 'node': {'1.2': 0.0}}\n[('10', 2), ('11', 3), ('11', 1), ('15', 2)]\n";
    assert_eq!(answer(python, ""), expected);
}

#[test]
fn rounds_go_by_turns_until_a_way_fails_or_the_time_is_up() {
    let python = "
import measured, time, xdm
def way(name, *answers):
    return lambda answers=list(answers): order.append(name) or answers.pop(0)
def rounds(until, **ways):
    order.clear()
    row = measured.interleaved('a row', ways, 3, until)
    print(''.join(order), {name: len(own) for name, own in row['runs'].items()}, row['failed'])
order, later, took = [], time.monotonic() + 100, {'seconds': 1.0}
rounds(later, a=way('a', took, took, took), b=way('b', took, took, took), c=way('c', took, {'failed': 'late'}))
rounds(0, a=way('a', took), b=way('b', took))
left = xdm.Time(100, 2)
print(round(left.of_next_row() - time.monotonic()), round(left.of_next_row() - time.monotonic()))
try:
    xdm.Time(0, 2).of_next_row()
except measured.LeftOut as reason:
    print(reason)
";
    let expected =
        "abcbcaab {'a': 3, 'b': 3} {'c': 'late'}\nab {'a': 1, 'b': 1} {}\n50 100\nthe time was up (--seconds)\n";
    assert_eq!(answer(python, ""), expected);
}

#[test]
fn what_swaps_is_compared_within_rounds_on_the_same_far_memory() {
    let python = "
import argparse, systems
run = lambda seconds, bytes: {'seconds': seconds, 'moved_in_bytes': bytes, 'moved_out_bytes': bytes, 'anonymous_share': 0.75}
runs = {
    'native': [run(1, 0), run(1, 0), run(1, 0)],
    'swap-file': [run(4, 4), run(5, 5), run(2, 2)],
    'file': [run(2, 4), run(2, 4), run(2, 4)],
    'node-plain': [run(3, 3), run(3, 3), run(3, 3)],
    'node': [run(1.01, 2), run(1.5, 3), run(1.5, 3)],
}
speedup, moved = systems.speedups(runs), systems.moved(runs)
print(speedup['disk']['time'], speedup['disk']['swapping'], systems.speedups(runs, ['swap-file'])['disk']['swapping'])
print(list(speedup), speedup['memory node']['time']['median'], speedup['memory node']['swapping'])
print(sorted(moved), moved['file']['bytes_per_second']['median'], moved['file']['by_basis']['median'])
alone = systems.moved({'native': runs['native'], 'node': runs['node']})
print(alone['node'])
row = {'name': 'stream', 'kernel': {'swap-file': {'swaps': True}, 'swap-zram': {'swaps': False}}, 'speedup': speedup, 'moved': moved, 'anonymous_share': systems.anonymous_share(runs)}
summary = systems.summary([row, row | {'name': 'sort', 'speedup': {'disk': {'time': {'median': 8.0}, 'swapping': None}}}])
disk = summary['speedup']['disk, time']
print(disk['programs'], disk['geometric_mean'], disk['least'], disk['greatest'], summary['speedup']['disk, swapping']['paper_greatest'], summary['idle'])
print([(panel['figure'], sorted(panel['series'])) for panel in systems.figures([row])], systems.figures([]))
given = argparse.Namespace(link='15us:10Gb/s', disk='/far', second_disk=None)
over = systems.fars(given, ['tcp://a:1', 'tcp://b:2'], 64)
print(over['node-plain'][0], over['node'][0], over['2-nodes'][0][1], over['file'][0], '2-files' in over)
given.link, given.second_disk = 'none', '/other'
over = systems.fars(given, ['tcp://a:1', 'tcp://b:2'], 64)
print(over['node-plain'][0], over['node'][0], over['2-files'][0][1])
";
    let expected = "{'median': 2.0, 'min': 1.0, 'max': 2.5} {'median': 3.0, 'min': 1.0, 'max': 4.0} None\n\
        ['disk', 'memory node'] 2.0 None\n\
        ['file', 'node', 'node-plain', 'swap-file'] 4.0 2.0\n\
        {'bytes_per_second': {'median': 4.0, 'min': 3.96, 'max': 4.0}}\n\
        2 4.0 {'program': 'stream', 'ratio': 2.0} {'program': 'sort', 'ratio': 8.0} 2.16 \
        {'swap-file': [], 'swap-zram': ['stream', 'sort']}\n\
        [('14', ['file', 'node', 'node-plain', 'swap-file']), \
        ('Table VI', ['compressed RAM', 'disk', 'memory node']), ('Table VI', ['compressed RAM', 'disk', 'memory node'])] []\n\
        ['tcp://a:1?link=15us:10Gb/s'] ['tcp://a:1?link=15us:10Gb/s&sub-page=auto'] \
        tcp://b:2?link=15us:10Gb/s&sub-page=auto ['file:/far?direct=on&size=64M'] False\n\
        ['tcp://a:1'] ['tcp://a:1?sub-page=auto'] file:/other?direct=on&size=64M\n";
    assert_eq!(answer(python, ""), expected);
}

#[test]
fn numa_is_measured_where_there_are_two_nodes() {
    let python = "
import on_node, pathlib, tempfile, xdm
print(on_node.numbers('0-2,5\\n'), on_node.numbers(''))
def refused(nodes, wanted=None):
    try:
        home, measured = xdm.homes(nodes, wanted)
        return home.node, home.processors, measured
    except xdm.LeftOut as reason:
        return str(reason)
with tempfile.TemporaryDirectory() as name:
    there = pathlib.Path(name)
    print(xdm.nodes_of(there))
    (there / 'has_memory').write_text('0-1\\n')
    for node, processors in enumerate(('', '0-3')):
        (there / f'node{node}').mkdir()
        (there / f'node{node}/cpulist').write_text(processors + '\\n')
    nodes = xdm.nodes_of(there)
print(nodes, refused(nodes), refused(nodes, [1]))
print(refused({0: '0-1'}), '|', refused({0: '0-1'}, [0]), '|', refused({0: ''}, [0]), '|', refused({}), '|', refused(nodes, [4]))
";
    let expected = "[0, 1, 2, 5] []\n{}\n{0: '', 1: '0-3'} (1, '0-3', [0, 1]) (1, '0-3', [1])\n\
        one NUMA node | (0, '0-1', [0]) | none of these NUMA nodes has processors | the kernel names no NUMA nodes \
        | no NUMA node 4 with memory\n";
    assert_eq!(answer(python, ""), expected);
}

#[test]
fn a_device_is_full_and_the_cheaper_far_memory_preferred_by_shares_of_rounds() {
    let python = "
import bandwidth, xdm
of = lambda read, write: {'device': bandwidth.rates(2, {'read': 1.0, 'write': 2.0}, {})['device'], 'hinterland': {'read': read << 20, 'write': write << 20}}
shares = bandwidth.shares([of(2, 0), of(1, 0), of(2, 1)])
print({direction: (own['share']['median'], own['is_full']) for direction, own in shares.items()})
run = lambda seconds: {'seconds': seconds}
time = xdm.beside_one({'file': [run(3), run(2)], 'node': [run(2), run(2)]}, 'node')
print(time['file'], xdm.prefers(time), xdm.prefers({'file': {'median': 1.05}, 'node': {}}), xdm.prefers({}), xdm.beside_one({'file': []}, 'node'))
rows = [
    {'part': 'unit', 'name': 'stream', 'by': '4K', 'time': {'4K': {'median': 1.0}, '64K': {'median': 0.5}}},
    {'part': 'unit', 'name': 'search', 'by': '4K', 'time': {'4K': {'median': 1.0}}},
    {'part': 'pages', 'name': '25 %', 'time': time},
    {'part': 'numa', 'name': 'stream', 'time': {'far on 1': {'median': 1.2}}},
    {'part': 'bandwidth', 'name': 'disk', **shares},
]
for panel in xdm.figures(rows):
    print(panel['figure'], panel['groups'], panel['series'])
";
    let expected = "{'read': (1.0, True), 'write': (0.0, False)}\n\
        {'median': 1.25, 'min': 1.0, 'max': 1.5} node file None {}\n\
        5 ['4K', '64K'] {'stream': [1.0, 0.5], 'search': [1.0, None]}\n\
        8 ['25 %'] {'file': [1.25]}\n\
        12 ['stream'] {'far on 1': [1.2]}\n\
        Table VII ['disk'] {'read': [1.0], 'write': [0.0]}\n";
    assert_eq!(answer(python, ""), expected);
}

#[test]
fn pages_of_a_file_are_read_as_those_of_private_memory() {
    let mapped = built("mapped.cpp");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("pages");
    let file = file.to_str().expect("a path in UTF-8");
    let sums = [0, 25, 75, 100].map(|percent| {
        assert_eq!(said(&mapped, &format!("--make 1 {percent} {file}")).0, "");
        assert_eq!(std::fs::metadata(file).expect("written").len(), percent * 1048576 / 100);
        said(&mapped, &format!("1 {percent} {file}")).0
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]) && sums[0].starts_with("sum "), "{sums:?}");
    assert_ne!(said(&mapped, &format!("1 100 {file} 2")).0, sums[0]);
}

#[test]
fn what_a_heap_loses_adds_up_by_size_class() {
    let account = r#"{"active_bytes": 12800, "dirty_bytes": 4096, "cached_bytes": 64, "classes": [
        {"class": "32", "objects": 100, "requested_bytes": 3000, "rounded_bytes": 3200, "unused_bytes": 896},
        {"class": "4352", "objects": 2, "requested_bytes": 6000, "rounded_bytes": 8704, "unused_bytes": 0}]}"#;
    let python = "import density, json, sys\naccount = density.with_sums(json.load(sys.stdin))\n\
                  print([account[name + '_bytes'] for name in ('requested', 'rounded', 'unused', 'lost', 'active', 'dirty')])\n\
                  print([(row['class'], row['lost_bytes']) for row in account['classes']])\n\
                  print(density.account_table('sqlite', account).splitlines()[2].split())";
    let expected = "[9000, 11904, 896, 3800, 12800, 4096]\n[('4352', 2704), ('32', 1096)]\n\
                    ['4352', '2', '0.01', '0.01', '0.00', '0.00']\n";
    assert_eq!(answer(python, account), expected);
}
