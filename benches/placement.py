#!/usr/bin/env python3
"""`--placement auto` beside the placements that a user can write, on ten programs and three sets of two paths to far memory.

The sets: two links alike, a near and small one with a far one, compressed RAM with a file on the disk; links are not there, their time is added to
compressed RAM. Written placements are `tiers` in each order, and `spread`; `auto` gets the paths in the first order. All paths cost alike (`--costs
file=1`), so that `auto`, too, goes by time and by the bytes that pages take. Each round runs every placement, in an order that rotates; a ratio is taken
within each round, then the median. The same local memory for all, a share of the native peak. Every output is compared with the native run's. Writes one
JSON file."""
import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from granularity import compiled, programs as of_granularity
from options import options, those_named
from paper_figures import panel
from prefetchers import local_bytes
from workloads import Bench, Program, Rows, build, graph_words, origin

# Wanted of `auto` beside the best written placement, at most: the geometric mean, and each row.
MEAN, EACH = 1.05, 1.15
REAL = ("major_faults", "prefetched_pages", "stall_seconds")
PATH = ("tier", "tier_changes", "pages_peak", "bytes_in", "bytes_out", "promoted_pages", "demoted_pages")


def programs(mib: int, directory: Path) -> list[Program]:
    """Ten programs with about so many MiB of data."""
    stream, linpack, std_sort, graph = (compiled(directory, source) for source in ("stream.cpp", "linpack.cpp", "std_sort.cpp", "graph.cpp"))
    others = ("orders", "tables", "columns", "join", "edges")
    return [
        *(program for program in of_granularity(mib, directory) if program.name in others),
        Program("stream", [stream, str(mib)]),
        Program("linpack", [linpack, str(mib)]),
        Program("std_sort", [std_sort, str(mib)]),
        Program("pagerank", [graph, "rank", *graph_words(mib, 16), "rmat"]),
        Program("components", [graph, "components", *graph_words(mib, 4), "rmat"]),
    ]


def sets(mib: int, disk: Path) -> dict[str, dict[str, str]]:
    """Paths by name, for programs with so many MiB. A small one has room for an eighth of these after compression, the others for more than all."""
    small, large = max(mib // 8, 1), 4 * mib
    return {
        "alike": {"one": f"compressed:{large}M?link=15us:10Gb/s", "other": f"compressed:{large + 1}M?link=15us:10Gb/s"},
        "near-far": {"near": f"compressed:{small}M?link=5us:25Gb/s", "far": f"compressed:{large}M?link=90us:4Gb/s"},
        "ram-disk": {"ram": f"compressed:{small}M", "disk": f"file:{disk}?size={large}M"},
    }


def placements(paths: dict[str, str]) -> dict[str, tuple[list[str], list[str]]]:
    """By name: the paths in their order, and the options."""
    tiers = {f"tiers {' '.join(order)}": (list(order), ["--placement", "tiers"]) for order in itertools.permutations(paths)}
    return tiers | {"spread": (list(paths), ["--placement", "spread"]), "auto": (list(paths), ["--placement", "auto", "--costs", "file=1"])}


def best_written(runs: dict[str, list[dict]]) -> tuple[str, dict[str, dict]]:
    """The best placement but `auto`, and `auto`'s times by those of each other one in the same round."""
    seconds = {name: [run["seconds"] for run in own] for name, own in runs.items()}
    others = [name for name in runs if name != "auto"]
    beside = {name: spread([auto / other for auto, other in zip(seconds["auto"], seconds[name], strict=True)]) for name in others}
    return min(others, key=lambda name: statistics.median(seconds[name])), beside


def measure(bench: Bench, program: Program, name: str, paths: dict[str, str], given: argparse.Namespace) -> dict:
    local, every = local_bytes(bench, program, given.local), placements(paths)
    runs: dict[str, list[dict]] = {placement: [] for placement in every}
    for turn in range(given.repeat):
        for step in range(len(every)):
            placement = list(every)[(turn + step) % len(every)]
            order, words = every[placement]
            seconds, stats = bench.run_over(program, local, [paths[path] for path in order], words)
            there = {path: {of: backend[of] for of in PATH} for path, backend in zip(order, stats["backends"], strict=True)}
            runs[placement].append({"seconds": seconds, **{of: stats[of] for of in REAL}, "paths": there})
            print(f"{program.name}, {name}, {placement}: {runs[placement][-1]}", file=sys.stderr)
    best, beside = best_written(runs)
    row = {"program": program.name, "set": name, "wanted_percent": given.local, "local_bytes": local, "native_seconds": bench.native[program.name]["seconds"]}
    return row | {"best": best, "auto_by_best": beside[best], "auto_by": beside, "runs": runs}


def targets(rows: list[dict]) -> list[dict]:
    """What the project has set itself, and what was reached."""
    reached = {f"{row['program']}, {row['set']}": row["auto_by_best"]["median"] for row in rows}
    mean, worst = round(statistics.geometric_mean(reached.values()), 4), max(reached, key=reached.get)
    found = [(f"geometric mean of {len(reached)}", mean, MEAN), (f"{worst} (the worst of {len(reached)})", reached[worst], EACH)]
    beside = "auto beside the best written placement"
    return [{"target": f"{beside}, {what}", "at_most": most, "reached": ratio, "met": ratio <= most} for what, ratio, most in found]


def losing(rows: list[dict]) -> list[dict]:
    """Rows in which `auto` takes longer than is wanted of each, the worst first: by how much, beside what, and where both had pages."""
    found = []
    for row in sorted(rows, key=lambda row: -row["auto_by_best"]["median"]):
        if row["auto_by_best"]["median"] > EACH:
            last = {placement: row["runs"][placement][-1]["paths"] for placement in (row["best"], "auto")}
            found.append({name: row[name] for name in ("program", "set", "best", "auto_by_best")} | {"paths_of_the_last_runs": last})
    return found


def figures(rows: list[dict]) -> list[dict]:
    """A panel for each set: the time with each placement by the best written one's, medians."""
    panels = []
    for number, name in enumerate(dict.fromkeys(row["set"] for row in rows), 1):
        own = [row for row in rows if row["set"] == name]
        median = lambda row, placement: statistics.median(run["seconds"] for run in row["runs"][placement])
        series = {placement: [median(row, placement) / median(row, row["best"]) for row in own] for placement in own[0]["runs"]}
        panels.append(panel(str(number), f"Placements over {name}", "× the best written", [row["program"] for row in own], series))
    return panels


def main() -> None:
    parser = options(__doc__, repeat=5)
    parser.add_argument("--size", type=int, default=32, help="data of each program in MiB (default: %(default)s)")
    parser.add_argument("--local", type=int, default=50, help="percent of the native peak that is local, 16 MiB at least (default: %(default)s)")
    parser.add_argument("--disk", default=".", help="the directory of the file (default: here)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all ten)")
    parser.add_argument("--set", action="append", help="one set of paths; may be repeated (default: all three)")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    every = sets(given.size, Path(given.disk).absolute())
    if unknown := set(given.set or ()) - set(every):
        parser.error(f"--set: {', '.join(sorted(unknown))} is none of {', '.join(every)}")
    launcher = given.target.absolute() / "release/hinterland"
    with tempfile.TemporaryDirectory() as directory:
        chosen = those_named(given.program, programs(given.size, Path(directory)), parser)
        bench = Bench(launcher, "", Path(directory))
        parameters = {name: getattr(given, name) for name in ("repeat", "size", "local", "disk")}
        lines = Rows(given.output, parameters | {"build": build(launcher)["build"]}, bench)
        lines.measure_natives(chosen)
        wanted = [(program, name) for name in given.set or every for program in chosen]
        row_of = lambda program, of: next((row for row in lines.rows() if (row["program"], row["set"]) == (program.name, of)), None)
        for program, name in wanted:
            if row_of(program, name) is None:
                lines.add(measure(bench, program, name, every[name], given))
        rows = [row_of(program, name) for program, name in wanted]
    result = {
        "bench": "placement",
        "what": "--placement auto beside tiers in each order and spread, inline fault path; links are added to compressed RAM",
        **origin(launcher, "placement.py"),
        **({"note": given.note} if given.note else {}),
        "size_mib": given.size,
        "local_percent": given.local,
        "sets": {name: sets(given.size, Path("DIR"))[name] for name in given.set or every},
        "programs": rows,
        "targets": targets(rows),
        "losing": losing(rows),
        "figures": figures(rows),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    lines.remove()


if __name__ == "__main__":
    main()
