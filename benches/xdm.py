#!/usr/bin/env python3
"""Figures and tables of xDM's evaluation that no other bench has: 5, 8, 12 and 14, and the tables VI and VII.

Programs are those of `features`, stand-ins for the paper's Table V, with a share of their memory local, inline path. Parts:

  bandwidth   Table VII: what of a device's bandwidth backends reach, reading and writing: the disk, the loopback device, a link of a rate
  unit        figure 5 (a): run times by the size of blocks that come from a memory node, without prefetching
  width       figure 5 (b): run times by how much is under way at once on a file
  pages       figure 8: a file beside a memory node, for a program some of whose pages are copies of a file's (`mapped.cpp`)
  numa        figure 12: local and far memory on the program's own NUMA node, and on others; needs two
  backends    Table VI and figure 14: each kind of far memory beside the kernel's swap with as much RAM in all, and several at once

Memory nodes are on this machine, behind links that are not there. Rounds are interleaved, in an order that rotates; ratios are taken within rounds, then
the median. Outputs are compared with the native run's. Begun again with the same parameters, the bench goes on where it was cut off. Writes one JSON file."""
import argparse
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bandwidth
import systems
from fault_paths import spread
from features import left_out, programs
from granularity import compiled
from measured import LeftOut, Meter, Subject, interleaved
from on_node import numbers
from options import options, those_named
from paper_figures import panel
from sub_page import Node
from workloads import Lines, Program, build, origin

# Of figures 5 and 12: one that streams, two kinds of graph processing, inference.
OF_SWEEPS = ("stream", "pagerank", "search", "inference")
UNITS = {"4K": 4 << 10, "16K": 16 << 10, "64K": 64 << 10, "256K": 256 << 10, "1M": 1 << 20, "2M": 2 << 20}
# A block is bounded to this part of local memory.
UNIT_PART = 64
# Operations of one load, and threads that wait at once.
WIDTHS = {"1 × 1": (1, 1), "4 × 2": (4, 2), "16 × 4": (16, 4), "64 × 8": (64, 8)}
# Percent of a program's pages that are copies of a file's.
SHARES = (0, 25, 50, 75)
# What a group needs beyond what was measured without a limit.
SLACK_BYTES = 2 << 20
# Far memory that is slower by no more than this is preferred where it is cheaper.
SIMILAR = 1.1
# What a node has room for beside the programs' data.
NODE_MIB = 1024
PARTS = ("bandwidth", "unit", "width", "pages", "numa", "backends")
NUMA = Path("/sys/devices/system/node")


class Time:
    """The time of the bench, evenly divided among the rows that are to come."""

    def __init__(self, seconds: float, rows: int) -> None:
        self.end, self.rows = time.monotonic() + seconds, rows

    def of_next_row(self) -> float:
        """Until when it begins further rounds."""
        now = time.monotonic()
        if now >= self.end:
            raise LeftOut("the time was up (--seconds)")
        self.rows -= 1
        return now + (self.end - now) / (self.rows + 1)


class Bench:
    """What the parts share."""

    def __init__(self, given: argparse.Namespace, directory: Path, nodes: list[str]) -> None:
        self.given, self.directory, self.nodes = given, directory, nodes
        self.launcher, self.example = (given.target / name for name in ("release/hinterland", "release/examples/switches"))
        self.meter = Meter(self.launcher, given.seconds_max)

    def rows(self, chosen: list[Program]) -> list[tuple[str, str, Callable[[float], dict]]]:
        """Of the parts that are asked for: part, name, and what measures it until a time."""
        of_sweeps = [program for program in chosen if program.name in OF_SWEEPS]
        named = lambda of, own: [(program.name, functools.partial(of, program)) for program in own]
        rate = f"{self.given.rate} over TCP"
        devices = {"disk": self.disk, "loopback": self.loopback, rate: self.shaped}
        every = {
            "bandwidth": [(name, functools.partial(self.bandwidth, name, one)) for name, one in devices.items()],
            "unit": named(self.unit, of_sweeps),
            "width": named(self.width, of_sweeps),
            "pages": [(f"{percent} % of a file", functools.partial(self.pages, percent)) for percent in SHARES],
            "numa": named(self.numa, of_sweeps),
            "backends": named(self.backends, chosen),
        }
        return [(part, name, measure) for part in self.given.part or PARTS for name, measure in every[part]]

    def subject(self, program: Program) -> Subject:
        return Subject(self.meter, program, self.given.local, self.directory)

    def disk(self) -> dict:
        return bandwidth.disk_round(self.given.disk, self.given.bandwidth_size, self.example)

    def loopback(self) -> dict:
        return bandwidth.link_round(self.given.bandwidth_size, self.launcher, self.example)

    def shaped(self) -> dict:
        return bandwidth.shaped_round(self.given.rate, self.launcher, self.example)

    def bandwidth(self, name: str, device: Callable[[], dict], until: float) -> dict:
        rounds: list[dict] = []
        for turn in range(self.given.repeat):
            if turn == 0 or time.monotonic() < until:
                rounds.append(device())
                print(f"bandwidth, {name}, round {turn + 1}: {rounds[-1]}", file=sys.stderr)
        return {"rounds": rounds, **bandwidth.shares(rounds)}

    def unit(self, program: Program, until: float) -> dict:
        subject = self.subject(program)
        [url], _ = systems.fars(self.given, self.nodes, systems.room_mib(subject.peak))["node-plain"]
        fits = {name: size_bytes <= subject.local // UNIT_PART for name, size_bytes in UNITS.items()}
        options = lambda size: ["--prefetch", "none", *(["--granularity", "page"] if size == "4K" else ["--granularity", "block", "--block", size])]
        ways = {size: functools.partial(subject.managed, [url], options(size)) for size, fit in fits.items() if fit}
        row = self.swept(f"unit, {program.name}", ways, "4K", until) | {"local_bytes": subject.local}
        too_large = [size for size, fit in fits.items() if not fit]
        return row | {"failed": row["failed"] | dict.fromkeys(too_large, f"a block is at most a {UNIT_PART}th of local memory")}

    def width(self, program: Program, until: float) -> dict:
        subject = self.subject(program)
        url = systems.fars(self.given, self.nodes, systems.room_mib(subject.peak))["file"][0][0]
        ways = {name: functools.partial(subject.managed, [f"{url}&depth={depth}&threads={threads}"], []) for name, (depth, threads) in WIDTHS.items()}
        return self.swept(f"width, {program.name}", ways, next(iter(WIDTHS)), until) | {"local_bytes": subject.local}

    def swept(self, what: str, ways: dict[str, Callable[[], dict]], beside: str, until: float) -> dict:
        """Rounds of all ways, and their times by that of one of them."""
        row = interleaved(what, ways, self.given.repeat, until)
        return row | {"by": beside, "time": beside_one(row["runs"], beside)}

    def pages(self, percent: int, until: float) -> dict:
        """With twice the memory of other programs: the part of a file's copies that has room is to be more than the slack."""
        mib, file = 2 * self.given.size, self.given.disk / f".hinterland-bench-mapped-{os.getpid()}"
        built = compiled(self.directory, "mapped.cpp")
        try:
            subprocess.run([built, "--make", str(mib), str(percent), file], check=True)
            subject = Subject(self.meter, Program("mapped", [built, str(mib), str(percent), str(file)]), self.given.local, self.directory)
            over = systems.fars(self.given, self.nodes, systems.room_mib(mib << 20))
            ways = {name: functools.partial(uncached, file, functools.partial(subject.managed, *over[name])) for name in ("file", "node")}
            bound = self.bound(file.stat().st_size, ways)
            ways = {name: functools.partial(way, ["--bound", bound] if bound else []) for name, way in ways.items()}
            row = self.swept(f"pages, {percent} % of a file", ways, "node", until)
        finally:
            file.unlink(missing_ok=True)
        return row | {"size_mib": mib, "file_percent": percent, "local_bytes": subject.local, "bound_bytes": bound, "prefers": prefers(row["time"])}

    def bound(self, file_bytes: int, ways: dict[str, Callable]) -> int | None:
        """The limit of a group in which as large a share of the file's copies has room as of all else; none where there are no groups."""
        if self.meter.refusal:
            return None
        without = [way([]) for way in ways.values()]
        if failed := [run["failed"] for run in without if "failed" in run]:
            raise LeftOut(failed[0])
        return max(run["total_ram_peak_bytes"] for run in without) + file_bytes * self.given.local // 100 + SLACK_BYTES

    def numa(self, program: Program, until: float) -> dict:
        home, others = homes(nodes_of(NUMA), self.given.numa)
        subject = self.subject(program)
        on = lambda memory: [sys.executable, Path(__file__).absolute().with_name("on_node.py"), home.processors, memory]
        native = {f"local on {node}": functools.partial(subject.native, on(node)) for node in others}
        far = {f"far on {node}": functools.partial(subject.managed, [f"numa:{node}:{systems.room_mib(subject.peak)}M"], [], prefix=on("-")) for node in others}
        row = interleaved(f"numa, {program.name}", native | far, self.given.repeat, until)
        times = {kind: beside_one({name: own for name, own in row["runs"].items() if name.startswith(kind)}, f"{kind} on {home.node}") for kind in ("local", "far")}
        return row | {"home": home.node, "local_bytes": subject.local, "time": times["local"] | times["far"]}

    def backends(self, program: Program, until: float) -> dict:
        return systems.compared(self.meter, program, self.given, self.nodes, self.directory, until)


class Home:
    """The node that a program runs on."""

    def __init__(self, node: int, processors: str) -> None:
        self.node, self.processors = node, processors


def uncached(file: Path, way: Callable, limits: list) -> dict:
    """A run in whose beginning the page cache has no copy of the file: those that are read are charged to the run's group."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return way(limits=limits)


def nodes_of(directory: Path) -> dict[int, str]:
    """NUMA nodes that have memory, and the processors of each."""
    has_memory = directory / "has_memory"
    nodes = numbers(has_memory.read_text()) if has_memory.exists() else []
    return {node: (directory / f"node{node}/cpulist").read_text().strip() for node in nodes}


def homes(nodes: dict[int, str], wanted: list[int] | None) -> tuple[Home, list[int]]:
    """The first node with processors, and those that are measured, it among them."""
    measured = wanted or sorted(nodes)
    if unknown := [node for node in measured if node not in nodes]:
        raise LeftOut(f"no NUMA node {unknown[0]} with memory")
    if len(measured) < 2 and not wanted:
        raise LeftOut("one NUMA node" if measured else "the kernel names no NUMA nodes")
    home = next((node for node in measured if nodes[node]), None)
    if home is None:
        raise LeftOut("none of these NUMA nodes has processors")
    return Home(home, nodes[home]), measured


def beside_one(runs: dict[str, list[dict]], beside: str) -> dict:
    """The time of each way by that of one of them in the same round."""
    if beside not in runs:
        return {}
    seconds = {name: [run["seconds"] for run in own] for name, own in runs.items()}
    return {name: spread([mine / other for mine, other in zip(own, seconds[beside], strict=True)]) for name, own in seconds.items()}


def prefers(time: dict) -> str | None:
    """The cheaper file where it takes as long as the node, or nearly so."""
    if not {"file", "node"} <= set(time):
        return None
    return "file" if time["file"]["median"] <= SIMILAR else "node"


def preferences(rows: list[dict]) -> list[dict]:
    """Figure 8 of the programs that were compared: the share of their memory that is anonymous, and the far memory that suits them."""
    found = []
    for row in rows:
        time = beside_one({name: row["runs"][name] for name in ("file", "node") if name in row["runs"]}, "node")
        found.append({"program": row["name"], "anonymous_share": row["anonymous_share"], "time": time, "prefers": prefers(time)})
    return found


def figures(rows: list[dict]) -> list[dict]:
    of_part = lambda part: [row for row in rows if row["part"] == part]
    medians = lambda own, name: [systems.median(row["time"].get(name)) for row in own]
    panels = []
    for part, figure, caption in (("unit", "5", "(a) Run time by the size of blocks from a memory node"), ("width", "5", "(b) Run time by operations × threads on a file")):
        if own := of_part(part):
            names = list(dict.fromkeys(name for row in own for name in row["time"]))
            series = {row["name"]: [systems.median(row["time"].get(name)) for name in names] for row in own}
            panels.append(panel(figure, f"{caption}, medians", f"× {own[0]['by']}", names, series))
    if own := of_part("pages"):
        panels.append(panel("8", "A program of whose pages some are copies of a file's: far memory in a file", "× a memory node", [row["name"] for row in own], {"file": medians(own, "file")}))
    if own := [row for row in preferences(of_part("backends")) if row["time"]]:
        series = {"time": medians(own, "file"), "anonymous share": [row["anonymous_share"] for row in own]}
        panels.append(panel("8", "Far memory in a file by a memory node, and the share of memory that is anonymous", "× a memory node; share", [row["program"] for row in own], series))
    if own := of_part("numa"):
        names = list(dict.fromkeys(name for row in own for name in row["time"]))
        panels.append(panel("12", "Memory on NUMA nodes, medians", "× on the program's", [row["name"] for row in own], {name: medians(own, name) for name in names}))
    panels += systems.figures(of_part("backends"))
    if own := of_part("bandwidth"):
        series = {direction: [row[direction]["share"]["median"] for row in own] for direction in ("read", "write")}
        panels.append(panel("Table VII", "Bandwidth that backends reach, medians", "of the device's own", [row["name"] for row in own], series))
    return panels


def measured(bench: Bench, chosen: list[Program], lines: Lines) -> tuple[list[dict], dict[str, str]]:
    """The rows, those of an earlier run that was cut off among them, and what was left out."""
    wanted, skipped = bench.rows(chosen), {}
    row_of = lambda part, name: next((line for line in lines.lines if (line.get("part"), line.get("name")) == (part, name)), None)
    left = Time(bench.given.seconds, sum(row_of(part, name) is None for part, name, _ in wanted))
    for part, name, measure in wanted:
        if row_of(part, name) is not None:
            continue
        try:
            lines.add({"part": part, "name": name, **measure(left.of_next_row())})
        except LeftOut as reason:
            skipped[f"{part}, {name}"] = str(reason)
            print(f"{part}, {name}: skipped: {reason}", file=sys.stderr)
    return [row for row in (row_of(part, name) for part, name, _ in wanted) if row is not None], skipped


def parsed() -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = options(__doc__.partition("\n")[0], repeat=3)
    parser.epilog, parser.formatter_class = __doc__.partition("\n\n")[2], argparse.RawDescriptionHelpFormatter
    parser.add_argument("--part", action="append", choices=PARTS, help="one part; may be repeated (default: all)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    parser.add_argument("--size", type=int, default=64, help="data of each program in MiB (default: %(default)s)")
    parser.add_argument("--local", type=int, default=50, help="percent of the native peak that is local, 16 MiB at least (default: %(default)s)")
    parser.add_argument("--link", default="15us:10Gb/s", help="latency and bandwidth of each memory node, or none (default: %(default)s)")
    parser.add_argument("--rate", default="1gbit", help="rate of the link of Table VII, in tc's words (default: %(default)s)")
    parser.add_argument("--bandwidth-size", type=int, default=256, metavar="MIB", help="what Table VII moves each way (default: %(default)s)")
    parser.add_argument("--disk", type=Path, default=".", help="the directory of files, swap files among them (default: here)")
    parser.add_argument("--second-disk", type=Path, help="a directory on another disk, for two files at once (default: none)")
    parser.add_argument("--numa", type=int, action="append", metavar="NODE", help="a NUMA node; may be repeated (default: all that have memory)")
    parser.add_argument("--seconds", type=float, default=1080, help="after so many no row is begun, and none has further rounds after its part of them (default: %(default)s)")
    parser.add_argument("--seconds-max", type=int, default=20, help="the longest that a run may take (default: %(default)s)")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    given.target, given.disk = given.target.absolute(), given.disk.absolute()
    given.second_disk = given.second_disk and given.second_disk.absolute()
    return given, parser


def main() -> None:
    given, parser = parsed()
    # Ended from outside, it ends what it has started, and the files that it has made.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        launcher = given.target / "release/hinterland"
        chosen = those_named(given.program, programs(given.size, directory), parser)
        nodes = [stack.enter_context(Node(launcher, 16 * given.size + NODE_MIB)).url for _ in range(2)]
        bench = Bench(given, directory, nodes)
        names = ("repeat", "size", "local", "link", "rate", "bandwidth_size", "seconds_max", "numa")
        parameters = {name: getattr(given, name) for name in names}
        places = {"disk": str(given.disk), "second_disk": str(given.second_disk)}
        lines = Lines(given.output, parameters | places | {"build": build(launcher)["build"]})
        rows, skipped = measured(bench, chosen, lines)
    if not given.second_disk:
        skipped["backends, 2-files"] = "one disk (--second-disk names none)"
    backends = [row for row in rows if row["part"] == "backends"]
    result = {
        "bench": "xdm",
        "what": "figures 5, 8, 12 and 14 and tables VI and VII of xDM, of stand-ins for its programs and baselines; inline fault path",
        **origin(launcher, "xdm.py"),
        **({"note": given.note} if given.note else {}),
        **parameters,
        "stands_in": systems.STANDS_IN,
        "without_groups": bench.meter.refusal,
        "left_out": left_out() | skipped,
        "load": [round(of, 1) for of in os.getloadavg()],
        "summary": systems.summary(backends),
        "preferences": preferences(backends),
        "rows": rows,
        "figures": figures(rows),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    lines.remove()


if __name__ == "__main__":
    main()
