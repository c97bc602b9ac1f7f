#!/usr/bin/env python3
"""Programs at a part of their memory under every prefetcher, one at a time and all at once, over a link that is not there.

Writes one JSON file. Each round runs every program with every prefetcher, in an order that rotates; a ratio is taken within each
round, then the median. Every output is compared with the native run's."""
import json
import os
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fault_paths import spread
from options import options
from workloads import LOCAL_MIN, Bench, Program, Rows, build, graph, origin, programs

PREFETCHERS = "none,readahead,stride,leap,streams,next-n,auto,auto@1M,auto@4M,auto@32M"
TOGETHER = "none,readahead,auto"
RANDOM = ("search", "sql", "memcached")


def local_bytes(bench: Bench, program: Program, percent: int) -> int:
    return max(bench.native[program.name]["peak_bytes"] * percent // 100, LOCAL_MIN)


def run(bench: Bench, program: Program, percent: int, prefetcher: str) -> dict:
    name, _, cache = prefetcher.partition("@")
    name, _, granularity = name.partition("+")
    bound = ["--prefetch-cache", cache] if cache else []
    by = ["--granularity", granularity] if granularity else []
    seconds, said = bench.run(program, local_bytes(bench, program, percent), ["--prefetch", name, *by, *bound])
    row = {"seconds": seconds, "major_faults": said["major_faults"], "prefetched_pages": said["prefetched_pages"]}
    row |= {"unused_pages": said["prefetch_unused_pages"], "wait_ns_p50": said["prefetch_wait_ns"]["p50"]}
    row |= {of: said[of] for of in ("blocks_asked", "block_pages", "block_used_pages")}
    return row | {"accuracy": said["prefetch_accuracy"], "coverage": said["prefetch_coverage"]}


def one_at_a_time(bench: Bench, program: Program, percent: int, prefetchers: list[str], rounds: int) -> dict:
    runs: dict[str, list[dict]] = {prefetcher: [] for prefetcher in prefetchers}
    for turn in range(rounds):
        for step in range(len(prefetchers)):
            prefetcher = prefetchers[(turn + step) % len(prefetchers)]
            runs[prefetcher].append(run(bench, program, percent, prefetcher))
            print(f"{program.name} {percent} % {prefetcher}: {runs[prefetcher][-1]}", file=sys.stderr)
    local = round(100 * local_bytes(bench, program, percent) / bench.native[program.name]["peak_bytes"])
    row = {"program": program.name, "wanted_percent": percent, "local_percent": local, "native_seconds": bench.native[program.name]["seconds"], "runs": runs}
    seconds = {prefetcher: [run["seconds"] for run in own] for prefetcher, own in runs.items()}

    def ratio(of: str, by: str) -> dict:
        return spread([a / b for a, b in zip(seconds[of], seconds[by])])

    for prefetcher in prefetchers:
        unbounded, _, cache = prefetcher.partition("@")
        if cache and unbounded in seconds:
            row.setdefault("bounded_by_unbounded", {})[prefetcher] = ratio(prefetcher, unbounded)
    for prefetcher in prefetchers:
        pages, _, granularity = prefetcher.partition("+")
        if granularity and pages in seconds:
            row.setdefault("blocks_by_pages", {})[prefetcher] = ratio(prefetcher, pages)
    if "auto" in seconds:
        others = [prefetcher for prefetcher in prefetchers if prefetcher != "auto" and "@" not in prefetcher and "+" not in prefetcher]
        if "readahead" in seconds:
            row["readahead_by_auto"] = ratio("readahead", "auto")
        if others:
            best = min(others, key=lambda prefetcher: statistics.median(seconds[prefetcher]))
            row |= {"best_other": best, "auto_by_best_other": ratio("auto", best)}
    return row


def all_at_once(bench: Bench, chosen: list[Program], percent: int, prefetchers: list[str], rounds: int) -> list[dict]:
    """All programs side by side, beside each one's run alone in the same round and its share of the processors."""
    share = min(1.0, (os.cpu_count() or 1) / len(chosen))
    alone, beside = ({prefetcher: {program.name: [] for program in chosen} for prefetcher in prefetchers} for _ in range(2))
    for turn in range(rounds):
        for step in range(len(prefetchers)):
            prefetcher = prefetchers[(turn + step) % len(prefetchers)]
            for program in chosen:
                alone[prefetcher][program.name].append(run(bench, program, percent, prefetcher)["seconds"])
            with ThreadPoolExecutor(len(chosen)) as together:
                runs = together.map(lambda program: run(bench, program, percent, prefetcher), chosen)
                for program, row in zip(chosen, runs):
                    beside[prefetcher][program.name].append(row["seconds"])
            print(f"all at once, {percent} % {prefetcher}: {beside[prefetcher]}, alone {alone[prefetcher]}", file=sys.stderr)

    def by_share(prefetcher: str, name: str) -> dict:
        rounds = zip(beside[prefetcher][name], alone[prefetcher][name])
        return spread([together * share / alone for together, alone in rounds])

    return [
        {
            "prefetcher": prefetcher,
            "local_percent": percent,
            "share_of_processors": share,
            "alone_seconds": alone[prefetcher],
            "seconds": beside[prefetcher],
            "time_by_alone_and_share": {program.name: by_share(prefetcher, program.name) for program in chosen},
        }
        for prefetcher in prefetchers
    ]


def targets(rows: list[dict], together: list[dict]) -> list[dict]:
    """What the project has set itself, and what was reached."""
    found = []
    for row in rows:
        name = f"{row['program']}, {row['local_percent']} % local"
        if "auto_by_best_other" in row:
            reached = row["auto_by_best_other"]["median"]
            found.append({"target": f"{name}: auto beside the best other", "at_most": 1.0, "reached": reached, "met": reached <= 1.0})
        for prefetcher, ratio in row.get("bounded_by_unbounded", {}).items():
            if row["program"] not in RANDOM:
                reached = ratio["median"]
                found.append({"target": f"{name}: {prefetcher} beside no bound", "at_most": 1.1, "reached": reached, "met": reached <= 1.1})
        for prefetcher, ratio in row.get("blocks_by_pages", {}).items():
            reached = ratio["median"]
            found.append({"target": f"{name}: {prefetcher} beside pages alone", "at_most": 1.02, "reached": reached, "met": reached <= 1.02})
    better = [row for row in rows if row.get("readahead_by_auto", {"median": 0})["median"] >= 1.3]
    names = sorted({row["program"] for row in better})
    found.append({"target": "programs where readahead takes 1.3 x auto's time", "at_least": 2, "reached": len(names), "met": len(names) >= 2})
    ours = [beside for beside in together if beside["prefetcher"] == "auto"]
    for name, ratio in (ratio for beside in ours for ratio in beside["time_by_alone_and_share"].items()):
        reached = ratio["median"]
        found.append({"target": f"{name} beside the others, by its share", "at_most": 1.1, "reached": reached, "met": reached <= 1.1})
    return found


def main() -> None:
    parser = options(__doc__, repeat=3)
    parser.add_argument("--size", type=int, default=128, help="data of each program but PageRank in MiB (default: 128)")
    parser.add_argument("--large-size", type=int, default=1280, help="data of PageRank in MiB (default: 1280)")
    parser.add_argument("--local", default="50,25", help="percents of the native peak that are local (default: 50,25)")
    parser.add_argument("--link", default="15us:10Gb/s", help="latency and bandwidth of far memory (default: 15us:10Gb/s)")
    parser.add_argument("--prefetch", default=PREFETCHERS, help="prefetchers; with +GRANULARITY behind them blocks are asked for, with @SIZE what came ahead has a bound (default: %(default)s)")
    parser.add_argument("--together", default=TOGETHER, help="prefetchers under which all but PageRank run at once; empty: none (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    given = parser.parse_args()
    prefetchers, percents = given.prefetch.split(","), [int(word) for word in given.local.split(",")]
    launcher = given.target / "release/hinterland"
    with tempfile.TemporaryDirectory() as directory:
        every = programs(given.size, given.large_size, graph(Path(directory)))
        chosen = [program for program in every if given.program is None or program.name in given.program]
        bench = Bench(launcher, f"?link={given.link}", Path(directory))
        parameters = {name: getattr(given, name) for name in ("repeat", "size", "large_size", "link", "prefetch")}
        rows = Rows(given.output, parameters | {"build": build(launcher)["build"]}, bench)
        rows.measure_natives(chosen)
        for program, percent in ((program, percent) for program in chosen for percent in percents):
            if not rows.has(program, percent):
                rows.add(one_at_a_time(bench, program, percent, prefetchers, given.repeat))
        alike = [program for program in chosen if program.name != "pagerank"]
        together = []
        if given.together and len(alike) > 1:
            together = all_at_once(bench, alike, percents[0], given.together.split(","), given.repeat)
    measured = [row for row in rows.rows() if row["program"] in {program.name for program in chosen} and row["wanted_percent"] in percents]
    result = {
        "bench": "prefetchers",
        "what": "programs at a part of their native peak of resident memory under each prefetcher, inline fault path; the link is added to compressed RAM",
        **origin(launcher, "prefetchers.py"),
        "link": given.link,
        "size_mib": given.size,
        "large_size_mib": given.large_size,
        "native": {name: {key: of for key, of in native.items() if key != "output"} for name, native in bench.native.items()},
        "programs": measured,
        "all_at_once": together,
        "targets": targets(measured, together),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    rows.remove()


if __name__ == "__main__":
    main()
