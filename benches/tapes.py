#!/usr/bin/env python3
"""The programs of 3PO's Table 2, a random forest and a transformer at a part of their memory: with a tape, beside no prefetching, Linux's read-ahead, Leap,
`auto`, and kernel zram swap at equal total RAM.

Each program is traced once, and a tape is planned for each size. Each round runs every system once, in an order that rotates; a ratio is taken
within each round, then the median. Every output is compared with the native run's. A system that does not end in order is reported, and has no time.
The kernel's limit is the one with which it takes as much RAM in all, compressed pages included, as the run with a tape. That rival has no link
(`--link none` has none for the others either), needs root, cgroups and zram, and is left out with the reason where these are not there. So are programs whose
Python packages are not installed. `--far node` has far memory in a memory node of this bench's own, over TCP on this machine, and the link is added to that.
Writes one JSON file, with a panel for each row of where its time goes (figures 9 and 10); rows of another program, size, share, link or far memory that are in it stay."""
import argparse
import contextlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from paper_figures import panel
from options import options, those_named
from sub_page import Node
from workloads import HERE, LOCAL_MIN, Program, origin

SYSTEMS = {
    "all-local": [],
    "none": ["--prefetch", "none"],
    "read-ahead": ["--prefetch", "readahead", "--read-ahead", "8"],
    "leap": ["--prefetch", "leap", "--read-ahead", "8"],
    "auto": ["--prefetch", "auto"],
    "tape": [],
    "zram": [],
}
COMPUTE_BOUND = ("matmul", "matmul_p", "sparse_mul", "np_matmul", "transformer")
# Tracing takes a minute for a quarter of what the others have.
SMALLER = {"sparse_mul": 4}
# What programs in Python need beside NumPy.
PACKAGES = {"forest": ("sklearn",), "transformer": ("onnxruntime", "onnx")}
# Processor time of fetching or evicting a page.
PAGE_US = 1.3
PAGE_BYTES = 4096
# As fast as a link that is predicted for can be.
NO_LINK = "1ns:10000Gb/s"
# What is local, in percent of the native peak, in the run that says what the pager's work costs.
COSTS_PERCENT = 30
# Delayed hits, as rows have them.
LATE = {"prefetch_long_late_faults": "delayed hits of more than 2 µs", "prefetch_late_faults": "delayed hits"}


def linear(directory: Path) -> Path:
    """The C++ programs, built."""
    built = directory / "linear"
    flags = ["-O2", "-march=x86-64-v3", "-fopenmp", "-DEIGEN_DONT_PARALLELIZE", "-isystem", "/usr/include/eigen3"]
    subprocess.run(["g++", *flags, "-o", built, HERE / "linear.cpp"], check=True)
    return built


def size_of(name: str, mib: int) -> int:
    """Data of a program, in MiB."""
    return mib // SMALLER.get(name, 1)


def missing() -> dict[str, str]:
    """Programs that cannot run here, and why."""
    lacks = {name: [package for package in packages if importlib.util.find_spec(package) is None] for name, packages in PACKAGES.items()}
    return {name: f"Python has no {' and no '.join(packages)}" for name, packages in lacks.items() if packages}


def programs(mib: int, linear: Path, threads: int, data: str) -> list[Program]:
    """Small integers are made 36 % of their size by LZ4; with some random numbers between them 50 %, and random ones alone stay as they are."""
    if data != "small":
        return [Program(name, [str(linear), name, str(mib), str(threads), data]) for name in ("dot_prod", "mvmul", "matmul", "matmul_p")]
    names = ("dot_prod", "mvmul", "matmul", "sparse_mul")
    return [
        *(Program(name, [str(linear), name, str(size_of(name, mib))]) for name in names),
        Program("matmul_p", [str(linear), "matmul_p", str(mib), str(threads)]),
        Program("np_matmul", [sys.executable, str(HERE / "matmul.py"), str(mib)]),
        Program("np_fft", [sys.executable, str(HERE / "fft.py"), str(mib)]),
        *(Program(name, [sys.executable, str(HERE / f"{name}.py"), str(mib)]) for name in PACKAGES if name not in missing()),
    ]


class Bench:
    """One program's runs."""

    def __init__(self, given: argparse.Namespace, directory: Path, program: Program, node: Node | None) -> None:
        self.given, self.directory, self.program, self.node = given, directory, program, node
        self.launcher = given.target / "release/hinterland"
        _, self.output, self.native_peak = program.run([])
        self.trace = directory / f"{program.name}.trace"
        traced, output, _ = program.run([self.launcher, "trace", "--quiet", "-o", self.trace, "--"])
        self.check(output, "tracing")
        self.traced = {"seconds": round(traced, 3), "bytes": self.trace.stat().st_size}
        self.costs, self.untraced = (directory / f"{program.name}.{what}.json" for what in ("costs", "untraced"))
        self.run_for_predictions()
        self.rival: dict = {}

    def run_for_predictions(self) -> None:
        """Runs without a tape or a link: one from which the predictions have what the pager's work costs, with another share than those that are measured
        have, and one with all local, from which they have what the program takes untraced."""
        for local, stats in ((max(self.native_peak * COSTS_PERCENT // 100, LOCAL_MIN), self.costs), (self.all_local(), self.untraced)):
            prefix = [self.launcher, "run", "--quiet", "--fault-path", "inline", "--local", local, *self.far("none"), "--stats", stats, "--"]
            _, output, _ = self.program.run([str(word) for word in prefix])
            self.check(output, "a run for predictions")

    def all_local(self) -> int:
        return self.native_peak * 2 + (64 << 20)

    def far(self, link: str) -> list[str]:
        """Far memory behind a link, or none."""
        place = self.node.url if self.node else f"compressed:{self.native_peak * 2}"
        url = place if link == "none" else f"{place}?link={link}"
        return [*(["--insecure-loopback"] if self.node else []), "--far", url]

    def check(self, output: str, how: str) -> None:
        if output != self.output:
            raise SystemExit(f"{self.program.name} with {how}: '{output}' instead of '{self.output}'")

    def plan(self, percent: int) -> tuple[Path, int, dict]:
        """The tape for a share of the recorded peak, its local bytes, and what is predicted."""
        tape = self.directory / f"{self.program.name}-{percent}.tape"
        link = ["--link", NO_LINK if self.given.link == "none" else self.given.link]
        words = [self.launcher, "tape", self.trace, "--local", f"{percent}%", *link, "-o", tape, "--json"]
        both = ["--run", self.costs, "--untraced", self.untraced]
        # Too few pages came and left in the run for costs, or the like: they are the simulator's then, and `predicted_with` says so.
        for figures in (both, both[:2], []):
            done = subprocess.run([*words, *figures], capture_output=True, text=True)
            if done.returncode == 0:
                break
            print(f"{self.program.name}: {done.stderr.strip()}", file=sys.stderr)
        done.check_returncode()
        plan = json.loads(done.stdout)
        return tape, max(plan["wanted"]["local_pages"] * PAGE_BYTES, LOCAL_MIN), plan

    def measured(self, options: list, command: list[str]) -> dict:
        """A command in a memory cgroup, as `hinterland bench programs` measures its own."""
        words = [self.launcher, "bench", "measure", *options, "--", *command]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if done.returncode != 0:
            return {"failed": done.stderr.strip()}
        return json.loads(done.stdout)

    def find_rival(self, local: int, tape: Path) -> str | None:
        """The limit of the kernel's swap with which it takes as much RAM in all as the run with a tape; or why there is none."""
        ours = self.measured([], [*self.prefix("tape", local, tape), *self.program.command])
        if ours["failed"]:
            return ours["failed"]
        self.rival = self.measured(["--ram", ours["run"]["total_ram_peak_bytes"]], self.program.command)
        self.rival["wanted_bytes"] = ours["run"]["total_ram_peak_bytes"]
        return self.rival["failed"]

    def run_rival(self) -> dict:
        limit, peak = self.rival["chosen"]["limit_bytes"], self.rival["native"]["anonymous_peak_bytes"]
        said = self.measured(["--limit", limit, "--peak", peak], self.program.command)
        if said["failed"] or said["digest"] != self.rival["digest"]:
            return {"failed": said["failed"] or "its output differs from the native output"}
        names = ("seconds", "major_faults", "total_ram_peak_bytes", "zram_peak_bytes")
        return {name: said["run"][name] for name in names}

    def prefix(self, system: str, local: int, tape: Path) -> list[str]:
        if system == "all-local":
            local = self.all_local()
        options = ["--tape", tape] if system == "tape" else SYSTEMS[system]
        prefix = [self.launcher, "run", "--quiet", "--fault-path", "inline", "--local", local, *self.far(self.given.link)]
        return [str(word) for word in [*prefix, *options, "--stats", self.directory / "stats.json", "--"]]

    def run(self, system: str, local: int, tape: Path) -> dict:
        if system == "zram":
            return self.run_rival()
        stats = self.directory / "stats.json"
        try:
            seconds, output, _ = self.program.run(self.prefix(system, local, tape))
        except SystemExit as failed:
            if system in ("all-local", "tape"):
                raise
            return {"failed": str(failed)}
        self.check(output, system)
        said = json.loads(stats.read_text())
        names = ("major_faults", "prefetch_late_faults", "prefetch_long_late_faults", "minor_faults", "first_touch_faults", "processor_seconds", "stall_seconds", "tape_threads",
                 "tape_threads_without", "tape_left", "tape_beside_faults", "tape_early_faults", "tape_pages", "prefetched_pages", "compression_ratio")
        return {"seconds": round(seconds, 3), **{name: said[name] for name in names}}


def floor(all_local: float, size: dict, link: str, threads: int) -> dict:
    """The time below which no run can be: all three terms."""
    gigabits = math.inf if link == "none" else float(link.split(":")[1].removesuffix("Gb/s"))
    free = max((os.cpu_count() or 1) - threads, 1)
    moved = size["bytes_in"] + size["bytes_out"]
    terms = {
        "all_local_seconds": round(all_local, 3),
        "link_seconds": round(moved * 8 / (gigabits * 1e9), 3),
        "pages_seconds": round(moved / PAGE_BYTES * PAGE_US * 1e-6 / free, 3),
    }
    return terms | {"seconds": max(terms.values())}


def breakdown(runs: dict[str, list[dict]], threads: int) -> dict:
    """Where the time of each system goes, in seconds (3PO, figures 9 and 10): what the program takes with all local; waiting in faults, of one thread; what is left,
    in which threads run slower beside the pager, or for caches that it has emptied. Beside these, processor time beyond that with all local, most of
    which is the pager's: it evicts, fetches and compresses on other processors or on the program's. How long faults of each kind took is not told apart: they are counted."""
    middle = lambda system, name: statistics.median(run[name] for run in runs[system])
    base, processor = middle("all-local", "seconds"), middle("all-local", "processor_seconds")
    found = {}
    for system in (system for system in runs if system not in ("all-local", "zram")):
        waiting = middle(system, "stall_seconds") / threads
        found[system] = {"all local": base, "waiting": waiting, "slower beside it": max(middle(system, "seconds") - base - waiting, 0),
                         "processors beyond all local": max(middle(system, "processor_seconds") - processor, 0)}
    return {system: {term: round(seconds, 3) for term, seconds in terms.items()} for system, terms in found.items()}


def measure(bench: Bench, percent: int, systems: list[str]) -> dict:
    given, name = bench.given, bench.program.name
    tape, local, plan = bench.plan(percent)
    skipped = {}
    if "zram" in systems and bench.node:
        skipped, systems = {"zram": "it has no memory node"}, [system for system in systems if system != "zram"]
    if "zram" in systems and (reason := bench.find_rival(local, tape)):
        print(f"{name} {percent} % zram: left out: {reason}", file=sys.stderr)
        skipped, systems = {"zram": reason}, [system for system in systems if system != "zram"]
    runs: dict[str, list[dict]] = {system: [] for system in systems}
    for turn in range(given.repeat):
        for step in range(len(systems)):
            system = systems[(turn + step) % len(systems)]
            runs[system].append(bench.run(system, local, tape))
            print(f"{name} {percent} % {system}: {runs[system][-1]}", file=sys.stderr)
    row = {"program": name, "percent": percent, "size_mib": size_of(name, given.size), "far": given.far, "link": given.link, "data": given.data, "local_bytes": local}
    row |= {"traced": bench.traced, "runs": runs}
    row["skipped"] = skipped
    if "zram" in systems:
        row["zram"] = {"wanted_bytes": bench.rival["wanted_bytes"], **bench.rival["chosen"]}
    row["failed"] = {system: own for system, own in runs.items() if any("failed" in run for run in own)}
    runs = {system: own for system, own in runs.items() if system not in row["failed"]}
    seconds = {system: [run["seconds"] for run in own] for system, own in runs.items()}
    row["seconds"] = {system: spread(own) for system, own in seconds.items()}
    size = plan["wanted"]
    optimum = size if size["eviction"] == "min" else plan["other_eviction"]
    threads = given.threads if name == "matmul_p" else 1
    # The same plan with both evictions: bytes that move.
    other = plan["other_eviction"]
    row["planned_bytes"] = {of["eviction"]: of["bytes_in"] + of["bytes_out"] for of in (size, other)}
    if "all-local" in seconds:
        row["breakdown"] = breakdown(runs, threads)
        row["floor"] = floor(statistics.median(seconds["all-local"]), optimum, given.link, threads)
    if "tape" in seconds:
        tape_seconds = row["seconds"]["tape"]["median"]
        row["predicted_seconds"] = size["run_seconds"]
        row["predicted_with"] = plan["costs"]
        row["predicted_by_measured"] = round(size["run_seconds"] / tape_seconds, 3)
        row["by_tape"] = {system: spread([a / b for a, b in zip(own, seconds["tape"])]) for system, own in seconds.items() if system != "tape"}
        if "floor" in row:
            row["tape_by_floor"] = round(tape_seconds / row["floor"]["seconds"], 3)
    for kind in ("major_faults", "prefetch_late_faults", "prefetch_long_late_faults"):
        row[kind] = {system: statistics.median(run[kind] for run in own) for system, own in runs.items() if kind in own[0]}
    return row


def where(row: dict) -> tuple:
    """What a row is of."""
    return row["program"], row["percent"], row["size_mib"], row.get("far", "compressed"), row["link"], row.get("data", "small")


def earlier(output: Path) -> dict:
    """What the file has from runs before, each row with its link."""
    if not output.exists():
        return {"commands": [], "programs": []}
    found = json.loads(output.read_text())
    return found | {"programs": [{"link": found.get("link"), **row} for row in found["programs"]]}


def told(row: dict) -> str:
    """A row's program, and what tells it from other rows of that program."""
    far = "node, " if row.get("far") == "node" else ""
    return f"{row['program']} ({row['size_mib']} MiB of {row.get('data', 'small')} numbers, {far}link {row['link']})"


def target(what: str, reached: float, **bound: float) -> dict:
    met = reached <= bound["at_most"] if "at_most" in bound else reached >= bound["at_least"]
    return {"target": what, **bound, "reached": round(reached, 3), "met": met}


def targets(rows: list[dict]) -> list[dict]:
    """What the project has set itself at 20 %, and what was reached. Rows of earlier builds do not tell delayed hits of more than 2 µs from shorter
    ones: there all count, so no run is better than it is said to be."""
    found = []
    for row in (row for row in rows if row["percent"] == 20):
        name = told(row)
        faults = row["major_faults"]
        if "tape" in faults and "leap" in faults:
            # Rows of earlier builds have no delayed hits.
            what, late = "major faults", 0
            if kind := next((kind for kind in LATE if kind in row), None):
                what, late = f"major faults and {LATE[kind]}", row[kind]["tape"]
            found.append(target(f"{name}: {what}", faults["tape"] + late, at_most=max(faults["leap"] / 100, 200)))
        if "tape_by_floor" in row:
            bound = 1.10 if row["program"] in COMPUTE_BOUND else 1.20
            found.append(target(f"{name}: time by the floor", row["tape_by_floor"], at_most=bound))
            found.append(target(f"{name}: predicted and measured differ by", abs(row["predicted_by_measured"] - 1), at_most=0.15))
        if "leap" in row.get("by_tape", {}):
            found.append(target(f"{name}: leap by the tape", row["by_tape"]["leap"]["median"], at_least=1.3))
        if "zram" in row.get("by_tape", {}):
            found.append(target(f"{name}: zram by the tape", row["by_tape"]["zram"]["median"], at_least=1.3))
        if "planned_bytes" in row:
            planned = row["planned_bytes"]
            found.append(target(f"{name}: bytes moved, planned by next use beside LRU", planned["min"] / max(planned["lru"], 1), at_most=1.0))
    return found


def figures(rows: list[dict]) -> list[dict]:
    """Where time goes, a panel for each row."""
    panels = []
    for row in (row for row in rows if row.get("breakdown")):
        systems = list(row["breakdown"])
        terms = {term: [row["breakdown"][system][term] for system in systems] for term in row["breakdown"][systems[0]]}
        panels.append(panel("9, 10", f"{told(row)}, {row['percent']} % local", "seconds", systems, terms))
    return panels


def main() -> None:
    parser = options(__doc__, repeat=3)
    parser.add_argument("--size", type=int, default=400, help="data of each program in MiB (default: 400)")
    parser.add_argument("--threads", type=int, default=max((os.cpu_count() or 2) - 1, 1), help="threads of matmul_p (default: processors - 1)")
    parser.add_argument("--local", default="20", help="percents of the recorded peak that are local, such as 100,60,40,20,10,5 (default: 20)")
    parser.add_argument("--link", default="15us:10Gb/s", help="latency and bandwidth of far memory, or none (default: 15us:10Gb/s)")
    parser.add_argument("--far", choices=("compressed", "node"), default="compressed", help="far memory: compressed RAM, or a memory node over TCP on this machine (default: %(default)s)")
    parser.add_argument("--data", choices=("small", "half", "random"), default="small",
                        help="numbers: small integers, with random ones between them so that LZ4 makes 2:1, or random ones (default: %(default)s)")
    parser.add_argument("--system", default=",".join(SYSTEMS), help="what runs them (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    given.target = given.target.absolute()
    # Otherwise the interpreter's own pages are others in each run.
    os.environ["PYTHONHASHSEED"] = "0"
    systems = given.system.split(",")
    left_out = missing() if given.data == "small" else {}
    for name, reason in left_out.items():
        print(f"{name}: left out: {reason}", file=sys.stderr)
    result = {
        "bench": "tapes",
        "what": "the programs of 3PO's Table 2 and two more at a part of their recorded peak, inline fault path; the link is added to far memory",
        **origin(given.target / "release/hinterland", "tapes.py"),
        "note": given.note,
        "load": [round(of, 1) for of in os.getloadavg()],
        "left_out": left_out,
    }
    before = earlier(given.output)
    result["commands"] = list(dict.fromkeys([*before["commands"], *result["commands"]]))
    rows = []
    launcher = given.target / "release/hinterland"
    node = Node(launcher, given.size * 4) if given.far == "node" else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as directory, node as own_node:
        chosen = those_named(given.program, programs(given.size, linear(Path(directory)), given.threads, given.data), parser)
        for program in chosen:
            bench = Bench(given, Path(directory), program, own_node)
            origin_of_row = {name: result[name] for name in ("commit", "date")}
            rows += [measure(bench, int(percent), systems) | origin_of_row for percent in given.local.split(",")]
            measured = {where(row) for row in rows}
            all_rows = [row for row in before["programs"] if where(row) not in measured] + rows
            text = result | {"targets": targets(all_rows), "figures": figures(all_rows), "programs": all_rows}
            # After each program: what was measured before a later one fails is there.
            given.output.write_text(json.dumps(text, indent=2) + "\n")


if __name__ == "__main__":
    main()
