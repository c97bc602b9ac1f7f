#!/usr/bin/env python3
"""What the pages of xDM's workloads do, and how much of their memory can be far: the data of the paper's figures 10, 11 and 15, of stand-ins for its Table V.

Each program is traced once, and `hinterland advise` says of the trace how fragmented, hot, sequential and written to its pages are, and for each slowdown
and kind of far memory the least local memory that keeps it: replays in virtual time, in the processor time that the program takes untraced. Programs whose
Python packages are not installed are left out with the reason. Writes one JSON file."""
import argparse
import importlib.util
import json
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

from granularity import compiled, said, traced
from options import options, those_named
from paper_figures import panel
from workloads import HERE, Bench, Program, Rows, build, graph_words, origin

# What programs in Python need.
PACKAGES = {"kmeans": ("sklearn",), "inference": ("numpy",), "transformer": ("onnxruntime", "onnx")}
# Of a vertex: with few edges nearly every touch of the vertices is a reference of the trace, which takes minutes.
EDGES = 64
# Features that are shares.
OF_PAGES, OF_REFERENCES = ("fragment_ratio", "hot_ratio"), ("sequential_share", "stride_share", "written_share")


def programs(mib: int, directory: Path) -> list[Program]:
    """Table V's kinds, with about so many MiB of data: high-performance computing, graphs, inference."""
    stream, linpack, std_sort, graph = (compiled(directory, source) for source in ("stream.cpp", "linpack.cpp", "std_sort.cpp", "graph.cpp"))
    return [
        Program("stream", [stream, str(mib)]),
        Program("linpack", [linpack, str(mib)]),
        Program("std_sort", [std_sort, str(mib)]),
        Program("pagerank", [graph, "rank", *graph_words(mib, 16, EDGES), "rmat"]),
        Program("search", [graph, "search", *graph_words(mib, 8, EDGES), "rmat"]),
        Program("between", [graph, "between", *graph_words(mib, 32, EDGES), "rmat"]),
        Program("components", [graph, "components", *graph_words(mib, 4, EDGES), "rmat"]),
        *(Program(name, [sys.executable, str(HERE / f"{name}.py"), str(mib)]) for name in PACKAGES if name not in left_out()),
    ]


def left_out() -> dict[str, str]:
    """Programs that cannot run here, and why."""
    lacks = {name: [package for package in packages if importlib.util.find_spec(package) is None] for name, packages in PACKAGES.items()}
    return {name: f"Python has no {' and no '.join(packages)}" for name, packages in lacks.items() if packages}


def processor_seconds(program: Program) -> float:
    """User and system, without Hinterland: the median of three runs."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def once() -> float:
        before = used()
        program.run([])
        return used() - before

    return statistics.median(once() for _ in range(3))


def measure(bench: Bench, program: Program, given: argparse.Namespace) -> dict:
    seconds, trace = processor_seconds(program), traced(bench, program, given.microset)
    advice = {of: said(bench.launcher, "advise", trace, "--slowdown", of, "--cpu-seconds", f"{seconds:.6f}", "--json") for of in given.slowdowns}
    trace.unlink()
    one = next(iter(advice.values()))
    least = {
        backend["name"]: {of: next(row["least_local_bytes"] for row in own["backends"] if row["name"] == backend["name"]) for of, own in advice.items()}
        for backend in one["backends"]
    }
    print(f"{program.name}: {one['features']}, least local memory {least}", file=sys.stderr)
    row = {"program": program.name, "wanted_percent": 100, "cpu_seconds": round(seconds, 3)}
    row |= {name: one[name] for name in ("touched_bytes", "least_size_bytes", "features", "miss_ratios", "sizes_percent")}
    slowdowns = {backend["name"]: backend["slowdowns"] for backend in one["backends"]}
    return row | {"slowdowns": slowdowns, "least_local_bytes": least, "far_share": far_shares(one["touched_bytes"], least)}


def far_shares(touched: int, least: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    """By kind of far memory and slowdown: the share of the memory that need not be local, the paper's offloading ratio."""
    return {name: {of: round(1 - min(local, touched) / touched, 4) for of, local in own.items()} for name, own in least.items()}


def figures(rows: list[dict]) -> list[dict]:
    names, of = [row["program"] for row in rows], lambda name: [row["features"][name] for row in rows]
    shares = lambda which: {name.replace("_", " "): of(name) for name in which}
    panels = [
        panel("10", "Pages in short runs, and the hottest pages that have 90 % of the references", "share of the pages", names, shares(OF_PAGES)),
        panel("11", "References that continue a stream, and those to pages that are written to", "share of the references", names, shares(OF_REFERENCES)),
        panel("11", "The longest sequential run", "pages", names, {"longest run": of("longest_sequential_run_pages")}),
    ]
    for backend in rows[0]["far_share"]:
        series = {slowdown: [row["far_share"][backend][slowdown] for row in rows] for slowdown in rows[0]["far_share"][backend]}
        panels.append(panel("15", f"Memory that need not be local, by slowdown, over {backend}", "share of the memory", names, series))
    return panels


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--size", type=int, default=64, help="data of each program in MiB (default: %(default)s)")
    parser.add_argument("--slowdown", default="1.2,1.4,1.6,1.8", help="slowdowns that are to be kept (default: %(default)s)")
    parser.add_argument("--microset", type=int, default=512, help="pages of a trace's microset (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    given.slowdowns = given.slowdown.split(",")
    # A traced program has one processor, and must ask for memory in the same order as the others.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    launcher = given.target.absolute() / "release/hinterland"
    with tempfile.TemporaryDirectory() as directory:
        chosen = those_named(given.program, programs(given.size, Path(directory)), parser)
        bench = Bench(launcher, "", Path(directory))
        parameters = {name: getattr(given, name) for name in ("size", "slowdown", "microset")}
        lines = Rows(given.output, parameters | {"build": build(launcher)["build"]}, bench)
        lines.measure_natives(chosen)
        for program in chosen:
            if not lines.has(program, 100):
                lines.add(measure(bench, program, given))
    rows = [next(row for row in lines.rows() if row["program"] == program.name) for program in chosen]
    result = {
        "bench": "features",
        "what": "pages of stand-ins for xDM's Table V, and the memory that need not be local within a slowdown: predictions from one trace of each",
        **origin(launcher, "features.py"),
        **({"note": given.note} if given.note else {}),
        "size_mib": given.size,
        "microset_pages": given.microset,
        "left_out": left_out(),
        "programs": rows,
        "figures": figures(rows),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    lines.remove()


if __name__ == "__main__":
    main()
