#!/usr/bin/env python3
"""Eviction policies: without prefetching on recorded traces beside the optimum (MIN), and in real runs with a prefetcher or without.

Each program is traced once; the simulator replays the trace with every policy. Then each round runs every program with every policy and
every prefetcher, in an order that rotates. The same local memory for all: a share of the pages in the trace. Writes one JSON file."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from options import options
from workloads import LOCAL_MIN, Bench, Program, Rows, Sort, build, graph, origin, programs

POLICIES = ("fifo", "second-chance", "s3-fifo", "2q")
DEFAULT = "s3-fifo"
PAGE_BYTES = 4096
# Of a vertex: with few edges nearly every touch of PageRank is a reference of the trace, which takes minutes.
EDGES = 64
# Far memory of the replays: faults are counted, and nearly the same over any link.
SIMULATED_LINK = "1us:100Gb/s"


def traced(bench: Bench, program: Program, microset: int) -> Path:
    """The program's trace."""
    trace = bench.directory / "app.trace"
    prefix = [str(bench.launcher), "trace", "--quiet", "-o", str(trace), "--microset", str(microset), "--"]
    seconds, output, _ = program.run(prefix)
    bench.check(program, output, "trace")
    print(f"{program.name}: traced in {seconds:.1f} s", file=sys.stderr)
    return trace


def said(*words: object) -> dict:
    """What a command says in JSON."""
    return json.loads(subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE).stdout)


def simulated(bench: Bench, trace: Path, local: int) -> dict:
    """By policy, LRU and MIN included: misses, those beside MIN's, and the share of the gap between FIFO and MIN that is closed."""
    options = ["--evict", "all", "--prefetch", "none", "--fault-path", "inline", "--link", SIMULATED_LINK, "--json"]
    rows = said(bench.launcher, "sim", trace, "--local", local, *options)["rows"]
    least = next(row["major_faults"] for row in rows if row["evict"] == "min")
    assert all(row["major_faults"] >= least for row in rows), "the optimum is not the optimum"

    def of_row(row: dict) -> dict:
        by_min = round(row["major_faults"] / least, 4) if least else None
        figures = {"misses": row["major_faults"], "minor_faults": row["minor_faults"], "misses_by_min": by_min}
        return figures | {"gap_closed": row["gap_closed"] and round(row["gap_closed"], 4)}

    return {row["evict"]: [of_row(row)] for row in rows}


def real(bench: Bench, program: Program, local: int, given: argparse.Namespace, name: str) -> dict:
    """By prefetcher and policy, one run for each round."""
    policies = given.policies
    runs: dict[str, dict[str, list[dict]]] = {prefetcher: {policy: [] for policy in policies} for prefetcher in given.prefetchers}
    for turn in range(given.repeat):
        for prefetcher, by_policy in runs.items():
            for step in range(len(policies)):
                policy = policies[(turn + step) % len(policies)]
                seconds, stats = bench.run(program, local, ["--prefetch", prefetcher, "--evict", policy])
                figures = {figure: stats[figure] for figure in ("major_faults", "minor_faults", "prefetched_pages")}
                by_policy[policy].append({"seconds": seconds} | figures)
                print(f"{name} {prefetcher} {policy}: {by_policy[policy][-1]}", file=sys.stderr)
    return runs


def measure(bench: Bench, program: Program, rows: Rows, given: argparse.Namespace) -> None:
    percents = [percent for percent in given.percents if not rows.has(program, percent)]
    if not percents:
        return
    trace = traced(bench, program, given.microset)
    shown = said(bench.launcher, "trace", "show", trace, "--json")
    size = shown["pages"] * PAGE_BYTES
    for percent in percents:
        local = max(size * percent // 100, LOCAL_MIN)
        reached = round(100 * local / size)
        row = {"program": program.name, "wanted_percent": percent, "local_percent": reached, "local_bytes": local}
        row |= {"trace": {"references": shown["references"], "pages": shown["pages"]}}
        row |= {"native_seconds": bench.native[program.name]["seconds"], "simulated": simulated(bench, trace, local)}
        row["runs"] = real(bench, program, local, given, f"{program.name} {percent} %")
        rows.add(row | {"beside_default": {prefetcher: beside_default(runs) for prefetcher, runs in row["runs"].items()}})
    trace.unlink()


def beside_default(runs: dict) -> dict:
    """Each policy beside the default, in each round."""

    def ratios(policy: str, figure: str) -> dict:
        pairs = zip(runs[policy], runs[DEFAULT])
        return spread([own[figure] / max(default[figure], 1e-9) for own, default in pairs])

    others = [policy for policy in runs if policy != DEFAULT] if DEFAULT in runs else []
    return {f"{name}_by_default": {policy: ratios(policy, figure) for policy in others} for name, figure in (("time", "seconds"), ("faults", "major_faults"))}


def summary(rows: list[dict], given: argparse.Namespace) -> dict:
    """Geometric means over programs and shares: misses beside MIN's, and medians of the rounds beside the best policy's. Of the share of the
    gap between FIFO and MIN that is closed, the mean and the least."""

    def mean(ratios: list[float]) -> float | None:
        return round(statistics.geometric_mean(ratios), 3) if ratios else None

    def misses(policy: str) -> list[float]:
        replays = (row["simulated"][policy][0] for row in rows)
        return [replay["misses_by_min"] for replay in replays if replay["misses_by_min"]]

    def closed(policy: str) -> dict:
        shares = [row["simulated"][policy][0]["gap_closed"] for row in rows]
        shares = [share for share in shares if share is not None]
        return {"mean": round(statistics.mean(shares), 3), "least": min(shares)} if shares else {}

    def by_best(prefetcher: str, policy: str, figure: str) -> list[float]:
        every = [row["runs"][prefetcher] for row in rows]
        medians = [{name: statistics.median(run[figure] for run in runs) for name, runs in of.items()} for of in every]
        return [row[policy] / min(row.values()) for row in medians if min(row.values()) > 0]

    def means(prefetcher: str, figure: str) -> dict:
        return {policy: mean(by_best(prefetcher, policy, figure)) for policy in given.policies}

    return {
        "misses_by_min": {policy: mean(misses(policy)) for policy in (*POLICIES, "lru")},
        "gap_closed": {policy: closed(policy) for policy in (*POLICIES, "lru")},
        "faults_by_best": {prefetcher: means(prefetcher, "major_faults") for prefetcher in given.prefetchers},
        "time_by_best": {prefetcher: means(prefetcher, "seconds") for prefetcher in given.prefetchers},
    }


def main() -> None:
    parser = options(__doc__, repeat=2)
    parser.add_argument("--size", type=int, default=64, help="data of each program in MiB (default: 64)")
    parser.add_argument("--local", default="50,25", help="percents of the traced pages that are local, 16 MiB at least (default: 50,25)")
    parser.add_argument("--microset", type=int, default=512, help="pages of a trace's microset (default: 512)")
    parser.add_argument("--link", help="latency and bandwidth of far memory in real runs (default: compressed RAM as it is)")
    parser.add_argument("--evict", default=",".join(POLICIES), help="policies of real runs (default: %(default)s)")
    parser.add_argument("--prefetch", default="none,auto", help="prefetchers of real runs (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    given = parser.parse_args()
    given.policies, given.prefetchers = given.evict.split(","), given.prefetch.split(",")
    given.percents = [int(word) for word in given.local.split(",")]
    # A traced program has one processor, and must ask for memory in the same order as the others.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    launcher = given.target / "release/hinterland"
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        every = [*programs(given.size, given.size, graph(place), EDGES), Sort(given.size, place)]
        chosen = [program for program in every if given.program is None or program.name in given.program]
        bench = Bench(launcher, f"?link={given.link}" if given.link else "", place)
        parameters = {name: getattr(given, name) for name in ("repeat", "size", "microset", "link", "evict", "prefetch")}
        rows = Rows(given.output, parameters | {"build": build(launcher)["build"]}, bench)
        rows.measure_natives(chosen)
        for program in chosen:
            measure(bench, program, rows, given)
    wanted = {program.name for program in chosen}
    measured = [row for row in rows.rows() if row["program"] in wanted and row["wanted_percent"] in given.percents]
    result = {
        "bench": "evictions",
        "what": "eviction policies: misses of replayed traces beside the optimum, without prefetching, and real runs on the inline fault path",
        **origin(launcher, "evictions.py"),
        "link": given.link,
        "size_mib": given.size,
        "microset_pages": given.microset,
        "native": {name: {key: of for key, of in native.items() if key != "output"} for name, native in bench.native.items()},
        "programs": measured,
        "summary": summary(measured, given),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    rows.remove()


if __name__ == "__main__":
    main()
