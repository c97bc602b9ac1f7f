#!/usr/bin/env python3
"""Bytes written back with sub-page write-back and without, for programs that change a few words of a page and one that changes all.

A memory node over TCP on this machine, behind links that are not there. Each round runs every program with `sub-page=off` and `auto`, by
turns first; a ratio is taken within each round, then the median. Every output is compared with the native run's. Writes one JSON file."""
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from granularity import compiled
from options import options, those_named
from workloads import LOCAL_MIN, Program, origin

PAGE_BYTES = 4096
MODES = ("off", "auto")
# The programs that change all of a page.
DENSE = ("pagerank",)
# Wanted of `auto` beside `off`, at most: bytes and time of sparse writers, and both of dense ones.
BYTES, TIME, OF_DENSE = 0.4, 1.0, 1.02


def programs(mib: int, directory: Path) -> list[Program]:
    """A hash table, a B-tree, labels of breadth-first searches, ranks of PageRank: with about so many MiB of data."""
    updates, graph = (compiled(directory, source) for source in ("updates.cpp", "graph.cpp"))
    # 24 to 28 bytes for each vertex of a graph with two edges for each: labels and ranks are much of its memory. Searches fault at nearly every edge.
    scale = (mib * 2**20 // 24).bit_length() - 1
    return [
        Program("hash", [updates, "hash", str(mib)]),
        Program("tree", [updates, "tree", str(mib)]),
        Program("labels", [graph, "search", str(scale - 1), "2"]),
        Program("pagerank", [graph, "rank", str(scale), "2"]),
    ]


class Node:
    """A memory node of this bench's own."""

    def __init__(self, launcher: Path, mib: int, listen: str = "tcp://127.0.0.1:0") -> None:
        words = [str(launcher), "node", "--capacity", f"{mib}M", "--insecure-loopback", "--listen", listen]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = self.process.stdout.readline()
        if not said.startswith("listening on "):
            raise SystemExit(f"the memory node does not listen: '{said}'")
        self.url = said.removeprefix("listening on ").partition(",")[0].strip()

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


def run(launcher: Path, program: Program, local: int, far: str, stats: Path, expected: str) -> dict:
    """Seconds of the command and what was written back; its output must be the native one."""
    prefix = [str(launcher), "run", "--quiet", "--insecure-loopback", "--fault-path", "inline", "--local", str(local), "--far", far, "--stats", str(stats), "--"]
    seconds, output, _ = program.run(prefix)
    if output != expected:
        raise SystemExit(f"{program.name} with {far}: '{output}' instead of '{expected}'")
    said = json.loads(stats.read_text())
    written, patched = said["evicted_dirty_pages"], said["patched_pages"]
    return {
        "seconds": round(seconds, 3),
        "written_bytes": (written - patched) * PAGE_BYTES + said["patched_bytes"],
        "written_pages": written,
        "patched_pages": patched,
        "patched_bytes": said["patched_bytes"],
        "major_faults": said["major_faults"],
    }


def measure(launcher: Path, directory: Path, node: Node, program: Program, native: dict, link: str, given) -> dict:
    runs: dict[str, list[dict]] = {mode: [] for mode in MODES}
    local = max(native["peak_bytes"] * given.local // 100, LOCAL_MIN)
    for turn in range(given.repeat):
        for mode in MODES if turn % 2 == 0 else reversed(MODES):
            far = f"{node.url}?sub-page={mode}&link={link}"
            runs[mode].append(run(launcher, program, local, far, directory / "stats.json", native["output"]))
            print(f"{program.name}, {link}, {mode}: {runs[mode][-1]}", file=sys.stderr)
    # A page is written as a whole the first time, whatever its updates are.
    first = min(own["written_pages"] for of in runs.values() for own in of)
    first = min(first, native["peak_bytes"] // PAGE_BYTES) * PAGE_BYTES

    def ratio(of) -> dict:
        return spread([of(auto) / max(of(off), 1e-9) for off, auto in zip(runs["off"], runs["auto"])])

    return {
        "program": program.name,
        "link": link,
        "local_bytes": local,
        "runs": runs,
        "first_bytes": first,
        "bytes_auto_by_off": ratio(lambda one: one["written_bytes"]),
        "later_bytes_auto_by_off": ratio(lambda one: max(one["written_bytes"] - first, 1)),
        "seconds_auto_by_off": ratio(lambda one: one["seconds"]),
        "seconds": {mode: statistics.median(one["seconds"] for one in own) for mode, own in runs.items()},
    }


def targets(row: dict) -> list[dict]:
    """What the project has set itself, and what was reached."""
    dense = row["program"] in DENSE
    figures = [("bytes", "bytes_auto_by_off", OF_DENSE if dense else BYTES)]
    if not dense:
        figures.append(("bytes after the first time", "later_bytes_auto_by_off", BYTES))
    figures.append(("seconds", "seconds_auto_by_off", OF_DENSE if dense else TIME))
    found = []
    for what, name, most in figures:
        reached = row[name]["median"]
        found.append({"target": f"{row['program']}, {row['link']}: {what}, auto by off", "at_most": most, "reached": reached, "met": reached <= most})
    return found


def main() -> None:
    parser = options(__doc__, repeat=5)
    parser.add_argument("--size", type=int, default=64, help="data of each program in MiB (default: 64)")
    parser.add_argument("--local", type=int, default=50, help="percent of the native peak of resident memory that is local (default: 50)")
    parser.add_argument("--link", default="50us:1Gb/s,15us:10Gb/s", help="links (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all four)")
    parser.add_argument("--quick", action="store_true", help="a look: hash, tree and pagerank with 48 MiB, the link of 10 Gb/s, one round")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    if given.quick:
        given.size, given.link, given.repeat, given.program = 48, "15us:10Gb/s", 1, given.program or ["hash", "tree", "pagerank"]
    launcher, rows = given.target.absolute() / "release/hinterland", []
    with tempfile.TemporaryDirectory() as name, Node(launcher, given.size * 4) as node:
        directory = Path(name)
        chosen = those_named(given.program, programs(given.size, directory), parser)
        for program in chosen:
            seconds, output, peak = program.run([])
            native = {"seconds": seconds, "output": output, "peak_bytes": peak}
            for link in given.link.split(","):
                row = measure(launcher, directory, node, program, native, link, given)
                rows.append({"native_seconds": round(seconds, 3), "peak_bytes": peak, **row})
    result = {
        "bench": "sub-page",
        "what": "bytes written back with sub-page write-back (auto) and without (off); a memory node over TCP on the same machine, the link is added to it",
        **origin(launcher, "sub_page.py"),
        **({"note": given.note} if given.note else {}),
        "size_mib": given.size,
        "programs": rows,
        "targets": [target for row in rows for target in targets(row)],
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
