#!/usr/bin/env python3
"""Blocks around demands (`--granularity`) beside pages alone, on ten programs over a link that is not there.

Virtual time: each program is traced once, and `hinterland sim` replays the trace with each granularity. Real runs: each round runs every
granularity, in an order that rotates; a ratio is taken within each round, then the median. The same local memory for both, a share of the
pages in the trace. Every output is compared with the native run's. Writes one JSON file."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from paper_figures import panel
from options import options, those_named
from workloads import HERE, LOCAL_MIN, Bench, Program, Rows, Sort, build, origin

GRANULARITIES = ("page", "block", "both", "auto")
PAGE_BYTES = 4096
# What the simulator says of a replay, and `--stats` of a run.
SIMULATED = ("slowdown", "run_seconds", "major_faults", "prefetched_pages", "link_bytes")
REAL = ("major_faults", "prefetched_pages")
BLOCKS = ("blocks_asked", "block_pages", "block_used_pages", "block_faults", "block_page_first", "blocks_refused_full", "blocks_refused_unused", "block_size_pages")
# Wanted of `auto` beside `page`: at most, on all programs; and at most, on so many.
NO_SLOWER, FASTER, FASTER_ON = 1.02, 1 / 1.05, 2


class Orders(Program):
    """The sqlite3 shell: a table of orders in memory, an index, groups, joins."""

    def __init__(self, mib: int, directory: Path) -> None:
        script = directory / "orders.sql"
        script.write_text((HERE / "orders.sql").read_text().replace("{rows}", str(mib * 2**20 // 160)))
        super().__init__("orders", ["sqlite3", ":memory:", f".read {script}"])


def compiled(directory: Path, source: str) -> str:
    built = directory / source.partition(".")[0]
    subprocess.run(["g++", "-O2", "-std=c++20", "-o", built, HERE / source], check=True)
    return str(built)


def programs(mib: int, directory: Path) -> list[Program]:
    """Ten programs with about so many MiB of data."""
    walks, graph, columns = (compiled(directory, source) for source in ("walks.cpp", "graph.cpp", "columns.cpp"))
    # 20 bytes for each vertex, and 4 for each of its 16 edges.
    scale = str((mib * 2**20 // 84).bit_length() - 1)
    return [
        Orders(mib, directory),
        Sort(mib, directory),
        Program("tables", [sys.executable, str(HERE / "tables.py"), str(mib * 2**20 // 250)]),
        Program("columns", [columns, "all", str(mib)]),
        *(Program(walk, [walks, walk, str(mib)]) for walk in ("sum", "sparse", "join", "edges")),
        Program("pagerank", [graph, "rank", scale, "16"]),
        Program("search", [graph, "search", scale, "16"]),
    ]


def said(*words: object) -> dict:
    """What a command says in JSON."""
    return json.loads(subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE).stdout)


def traced(bench: Bench, program: Program, microset: int) -> Path:
    trace = bench.directory / "app.trace"
    seconds, output, _ = program.run([str(bench.launcher), "trace", "--quiet", "-o", str(trace), "--microset", str(microset), "--"])
    bench.check(program, output, "trace")
    print(f"{program.name}: traced in {seconds:.1f} s", file=sys.stderr)
    return trace


def simulated(bench: Bench, trace: Path, local: int, given: argparse.Namespace) -> dict:
    """By granularity: what a replay says, and its time beside that of pages alone."""
    words = ["--local", local, "--prefetch", given.prefetch, "--evict", "s3-fifo", "--fault-path", "inline", "--link", given.link, "--json"]
    rows = {of: said(bench.launcher, "sim", trace, *words, "--granularity", of)["rows"][0] for of in given.granularities}
    found = {of: {name: row[name] for name in SIMULATED + BLOCKS} for of, row in rows.items()}
    for figures in found.values():
        figures["by_page"] = round(figures["run_seconds"] / found["page"]["run_seconds"], 4)
    return found


def real(bench: Bench, program: Program, local: int, given: argparse.Namespace) -> dict:
    """By granularity: the runs, and their times beside that of pages alone in the same round."""
    runs: dict[str, list[dict]] = {granularity: [] for granularity in given.granularities}
    for turn in range(given.repeat):
        for step in range(len(runs)):
            granularity = given.granularities[(turn + step) % len(runs)]
            seconds, stats = bench.run(program, local, ["--prefetch", given.prefetch, "--granularity", granularity])
            runs[granularity].append({"seconds": seconds, **{name: stats[name] for name in REAL + BLOCKS}})
            print(f"{program.name} {granularity}: {runs[granularity][-1]}", file=sys.stderr)
    seconds = {granularity: [run["seconds"] for run in own] for granularity, own in runs.items()}
    beside = {granularity: spread([a / b for a, b in zip(own, seconds["page"])]) for granularity, own in seconds.items() if own}
    return {"runs": runs, "by_page": beside}


def measure(bench: Bench, program: Program, given: argparse.Namespace) -> dict:
    trace = traced(bench, program, given.microset)
    shown = said(bench.launcher, "trace", "show", trace, "--json")
    local = max(shown["pages"] * PAGE_BYTES * given.local // 100, LOCAL_MIN)
    row = {"program": program.name, "wanted_percent": given.local, "local_bytes": local, "pages": shown["pages"], "references": shown["references"]}
    row |= {"native_seconds": bench.native[program.name]["seconds"], "simulated": simulated(bench, trace, local, given)}
    trace.unlink()
    return row | {"real": real(bench, program, local, given) if given.repeat else None}


def targets(rows: list[dict]) -> list[dict]:
    """What the project has set itself, and what was reached: in virtual time, and in real runs where there are some."""
    found = []
    for time in ("virtual", "real"):
        if time == "virtual":
            reached = {row["program"]: row["simulated"]["auto"]["by_page"] for row in rows}
        else:
            reached = {row["program"]: row["real"]["by_page"]["auto"]["median"] for row in rows if row["real"]}
        if not reached:
            continue
        worst = max(reached, key=reached.get)
        found.append({"target": f"{time} time: auto beside page, {worst} (the worst of {len(reached)})", "at_most": NO_SLOWER, "reached": reached[worst], "met": reached[worst] <= NO_SLOWER})
        faster = sorted(name for name, ratio in reached.items() if ratio <= FASTER)
        found.append({"target": f"{time} time: programs on which page takes 1.05 times auto's", "at_least": FASTER_ON, "reached": len(faster), "which": faster, "met": len(faster) >= FASTER_ON})
    return found


def figures(rows: list[dict], granularities: list[str]) -> list[dict]:
    names, real = [row["program"] for row in rows], [row for row in rows if row["real"]]
    virtual = {name: [row["simulated"][name]["by_page"] for row in rows] for name in granularities}
    panels = [panel("1", "Time beside pages alone, virtual", "× page", names, virtual)]
    if real:
        measured = {name: [row["real"]["by_page"][name]["median"] for row in real] for name in granularities if name != "page"}
        panels.append(panel("2", "The same in real runs, medians", "× page", [row["program"] for row in real], measured))
    return panels


def main() -> None:
    parser = options(__doc__, repeat=5, repeats="rounds of real runs; 0: replays alone")
    parser.add_argument("--size", type=int, default=48, help="data of each program in MiB (default: 48)")
    parser.add_argument("--local", type=int, default=50, help="percent of the traced pages that is local, 16 MiB at least (default: 50)")
    parser.add_argument("--link", default="15us:10Gb/s", help="latency and bandwidth of far memory (default: 15us:10Gb/s)")
    parser.add_argument("--prefetch", default="auto", help="the prefetcher beside the blocks (default: auto)")
    parser.add_argument("--granularity", default=",".join(GRANULARITIES), help="page and others (default: %(default)s)")
    parser.add_argument("--microset", type=int, default=512, help="pages of a trace's microset (default: 512)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all ten)")
    parser.add_argument("--quick", action="store_true", help="a look: sort, columns and sum with 32 MiB, one round")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    if given.quick:
        given.size, given.repeat, given.program = 32, 1, given.program or ["sort", "columns", "sum"]
    given.granularities = given.granularity.split(",")
    if "page" not in given.granularities or "auto" not in given.granularities:
        parser.error("--granularity: page and auto must be among them")
    # A traced program has one processor, and must ask for memory in the same order as the others.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    launcher = given.target.absolute() / "release/hinterland"
    with tempfile.TemporaryDirectory() as directory:
        chosen = those_named(given.program, programs(given.size, Path(directory)), parser)
        bench = Bench(launcher, f"?link={given.link}", Path(directory))
        parameters = {name: getattr(given, name) for name in ("repeat", "size", "link", "prefetch", "granularity", "microset")}
        rows = Rows(given.output, parameters | {"build": build(launcher)["build"]}, bench)
        rows.measure_natives(chosen)
        for program in chosen:
            if not rows.has(program, given.local):
                rows.add(measure(bench, program, given))
    measured = [row for row in rows.rows() if row["program"] in {program.name for program in chosen} and row["wanted_percent"] == given.local]
    result = {
        "bench": "granularity",
        "what": "blocks around demands beside pages alone: replays of traces in virtual time, and real runs on the inline fault path; the link is added to compressed RAM",
        **origin(launcher, "granularity.py"),
        **({"note": given.note} if given.note else {}),
        "link": given.link,
        "prefetcher": given.prefetch,
        "size_mib": given.size,
        "microset_pages": given.microset,
        "programs": measured,
        "targets": targets(measured),
        "figures": figures(measured, given.granularities),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    rows.remove()


if __name__ == "__main__":
    main()
