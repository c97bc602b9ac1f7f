#!/usr/bin/env python3
"""What a profile costs: programs under `hinterland profile` beside the same under `hinterland run`, in pairs, by turns first.

Judged is the program's own time, from its start to its end, as both commands count it: a ratio within each pair, the median of the pairs, and an
interval that holds the true median with 95 % certainty at least. The whole command's time, with names found and the profile written, stands
beside it. Every output is compared with the native run's. Writes one JSON file."""
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

from granularity import compiled
from options import options, those_named
from workloads import LOCAL_MIN, Program, origin

# Wanted of the median, at most.
OVERHEAD = 1.01
CERTAINTY = 0.95
PATHS = ("inline", "monitor")


def programs(mib: int, directory: Path) -> list[Program]:
    """Edges, a hash join, a column store, a hash table, ranks of PageRank: with about so many MiB of data."""
    walks, columns, updates, graph = (compiled(directory, source) for source in ("walks.cpp", "columns.cpp", "updates.cpp", "graph.cpp"))
    scale = (mib * 2**20 // 24).bit_length() - 1
    return [
        Program("edges", [walks, "edges", str(mib)]),
        Program("join", [walks, "join", str(mib)]),
        Program("columns", [columns, "all", str(mib)]),
        Program("hash", [updates, "hash", str(mib)]),
        Program("pagerank", [graph, "rank", str(scale), "2"]),
    ]


def interval(values: list[float]) -> dict:
    """The median, and the closest order statistics between which the true one lies with the certainty, whatever the distribution."""
    ordered, count = sorted(values), len(values)
    # So many of the least and of the greatest are left out: each with a chance of the binomial distribution's tail.
    out = 0
    while 2 * sum(math.comb(count, most) for most in range(out + 1)) <= (1 - CERTAINTY) * 2**count:
        out += 1
    known = {} if out == 0 else {"from": round(ordered[out - 1], 4), "to": round(ordered[count - out], 4)}
    return {"median": round(statistics.median(ordered), 4), **known}


def measure(launcher: Path, directory: Path, program: Program, native: tuple[str, int], path: str, given) -> dict:
    expected, peak = native
    local, stats = max(peak * given.local // 100, LOCAL_MIN), directory / "stats.json"
    commands = {"run": ["run"], "profile": ["profile", "-o", directory / "profile"]}
    runs: dict[str, list[dict]] = {kind: [] for kind in commands}
    for turn in range(given.repeat):
        for kind in sorted(commands, reverse=turn % 2 == 0):
            words = [launcher, *commands[kind], "--quiet", "--fault-path", path, "--local", local, "--stats", stats, "--"]
            seconds, output, _ = program.run([*map(str, words)])
            if output != expected:
                raise SystemExit(f"{program.name}, {path}, {kind}: '{output}' instead of '{expected}'")
            said = json.loads(stats.read_text())
            runs[kind].append({"seconds": said["wall_seconds"], "command_seconds": round(seconds, 4), "major_faults": said["major_faults"]})
            print(f"{program.name}, {path}, {kind}: {runs[kind][-1]}", file=sys.stderr)

    def ratio(of: str) -> dict:
        return interval([profiled[of] / plain[of] for profiled, plain in zip(runs["profile"], runs["run"])])

    return {
        "program": program.name,
        "fault_path": path,
        "local_bytes": local,
        "runs": runs,
        "profile_by_run": ratio("seconds"),
        "command_profile_by_run": ratio("command_seconds"),
    }


def main() -> None:
    parser = options(__doc__, repeat=11, repeats="pairs")
    parser.add_argument("--size", type=int, default=64, help="data of each program in MiB (default: 64)")
    parser.add_argument("--local", type=int, default=50, help="percent of the native peak of resident memory that is local (default: 50)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all five)")
    given = parser.parse_args()
    launcher, rows = given.target.absolute() / "release/hinterland", []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        chosen = those_named(given.program, programs(given.size, directory), parser)
        for program in chosen:
            _, output, peak = program.run([])
            rows.extend(measure(launcher, directory, program, (output, peak), path, given) for path in PATHS)
    reached = [(f"{row['program']}, {row['fault_path']}", row["profile_by_run"]["median"]) for row in rows]
    result = {
        "bench": "profiles",
        "what": "time of programs under `hinterland profile` by that under `hinterland run`, in interleaved pairs; compressed RAM",
        **origin(launcher, "profiles.py"),
        "size_mib": given.size,
        "programs": rows,
        "targets": [{"target": name, "at_most": OVERHEAD, "reached": ratio, "met": ratio <= OVERHEAD} for name, ratio in reached],
    }
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
