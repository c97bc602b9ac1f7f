#!/usr/bin/env python3
"""The programs of 3PO's Table 2 at a part of their memory: with a tape, beside no prefetching, Leap, `auto`, and kernel zram swap at equal total RAM.

Each program is traced once, and a tape is planned for each size. Each round runs every system once, in an order that rotates; a ratio is taken
within each round, then the median. Every output is compared with the native run's. A system that does not end in order is reported, and has no time.
The kernel's limit is the one with which it takes as much RAM in all, compressed pages included, as the run with a tape. That rival has no link
(`--link none` has none for the others either), needs root, cgroups and zram, and is left out with the reason where these are not there.
Writes one JSON file; rows of another program, size, share or link that are in it stay."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from options import options
from workloads import HERE, LOCAL_MIN, Program, origin

SYSTEMS = {
    "all-local": [],
    "none": ["--prefetch", "none"],
    "leap": ["--prefetch", "leap", "--read-ahead", "8"],
    "auto": ["--prefetch", "auto"],
    "tape": [],
    "zram": [],
}
COMPUTE_BOUND = ("matmul", "matmul_p", "sparse_mul", "np_matmul")
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


def programs(mib: int, linear: Path, threads: int, data: str) -> list[Program]:
    """Small integers are made 36 % of their size by LZ4; with some random numbers between them 50 %, and random ones alone stay as they are."""
    if data != "small":
        return [Program(name, [str(linear), name, str(mib), str(threads), data]) for name in ("dot_prod", "mvmul", "matmul", "matmul_p")]
    names = ("dot_prod", "mvmul", "matmul", "sparse_mul")
    return [
        *(Program(name, [str(linear), name, str(mib)]) for name in names),
        Program("matmul_p", [str(linear), "matmul_p", str(mib), str(threads)]),
        Program("np_matmul", [sys.executable, str(HERE / "matmul.py"), str(mib)]),
        Program("np_fft", [sys.executable, str(HERE / "fft.py"), str(mib)]),
    ]


class Bench:
    """One program's runs."""

    def __init__(self, given: argparse.Namespace, directory: Path, program: Program) -> None:
        self.given, self.directory, self.program = given, directory, program
        self.launcher = given.target / "release/hinterland"
        _, self.output, self.native_peak = program.run([])
        self.trace = directory / f"{program.name}.trace"
        traced, output, _ = program.run([self.launcher, "trace", "--quiet", "-o", self.trace, "--"])
        self.check(output, "tracing")
        self.traced = {"seconds": round(traced, 3), "bytes": self.trace.stat().st_size}
        self.costs = directory / f"{program.name}.costs.json"
        self.run_for_costs()
        self.rival: dict = {}

    def run_for_costs(self) -> None:
        """A run from which the predictions have what the pager's work costs: without a tape or a link, and with another share than those that are
        measured have."""
        local = max(self.native_peak * COSTS_PERCENT // 100, LOCAL_MIN)
        prefix = [self.launcher, "run", "--quiet", "--fault-path", "inline", "--local", local, "--far", f"compressed:{self.native_peak * 2}"]
        _, output, _ = self.program.run([str(word) for word in [*prefix, "--stats", self.costs, "--"]])
        self.check(output, "the run for costs")

    def check(self, output: str, how: str) -> None:
        if output != self.output:
            raise SystemExit(f"{self.program.name} with {how}: '{output}' instead of '{self.output}'")

    def plan(self, percent: int) -> tuple[Path, int, dict]:
        """The tape for a share of the recorded peak, its local bytes, and what is predicted."""
        tape = self.directory / f"{self.program.name}-{percent}.tape"
        link = ["--link", NO_LINK if self.given.link == "none" else self.given.link]
        words = [self.launcher, "tape", self.trace, "--local", f"{percent}%", *link, "-o", tape, "--json"]
        done = subprocess.run([*words, "--run", self.costs], capture_output=True, text=True)
        if done.returncode != 0:
            # Too few pages came and left in the run for costs, or the like: they are the simulator's then, and `predicted_with` says so.
            print(f"{self.program.name}: {done.stderr.strip()}", file=sys.stderr)
            done = subprocess.run(words, check=True, capture_output=True, text=True)
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
            local = self.native_peak * 2 + (64 << 20)
        link = "" if self.given.link == "none" else f"?link={self.given.link}"
        options = ["--tape", tape] if system == "tape" else SYSTEMS[system]
        prefix = [self.launcher, "run", "--quiet", "--fault-path", "inline", "--local", local, "--far", f"compressed:{self.native_peak * 2}{link}"]
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
        names = ("major_faults", "prefetch_late_faults", "prefetch_long_late_faults", "minor_faults", "processor_seconds", "tape_threads", "tape_threads_without", "tape_left", "tape_beside_faults",
                 "tape_early_faults", "tape_pages", "prefetched_pages", "compression_ratio")
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


def measure(bench: Bench, percent: int, systems: list[str]) -> dict:
    given, name = bench.given, bench.program.name
    tape, local, plan = bench.plan(percent)
    skipped = {}
    if "zram" in systems and (reason := bench.find_rival(local, tape)):
        print(f"{name} {percent} % zram: left out: {reason}", file=sys.stderr)
        skipped, systems = {"zram": reason}, [system for system in systems if system != "zram"]
    runs: dict[str, list[dict]] = {system: [] for system in systems}
    for turn in range(given.repeat):
        for step in range(len(systems)):
            system = systems[(turn + step) % len(systems)]
            runs[system].append(bench.run(system, local, tape))
            print(f"{name} {percent} % {system}: {runs[system][-1]}", file=sys.stderr)
    row = {"program": name, "percent": percent, "size_mib": given.size, "link": given.link, "data": given.data, "local_bytes": local}
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
    if "all-local" in seconds:
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
    return row["program"], row["percent"], row["size_mib"], row["link"], row.get("data", "small")


def earlier(output: Path) -> dict:
    """What the file has from runs before, each row with its link."""
    if not output.exists():
        return {"commands": [], "programs": []}
    found = json.loads(output.read_text())
    return found | {"programs": [{"link": found.get("link"), **row} for row in found["programs"]]}


def target(what: str, reached: float, **bound: float) -> dict:
    met = reached <= bound["at_most"] if "at_most" in bound else reached >= bound["at_least"]
    return {"target": what, **bound, "reached": round(reached, 3), "met": met}


def targets(rows: list[dict]) -> list[dict]:
    """What the project has set itself at 20 %, and what was reached. Rows of earlier builds do not tell delayed hits of more than 2 µs from shorter
    ones: there all count, so no run is better than it is said to be."""
    found = []
    for row in (row for row in rows if row["percent"] == 20):
        name = row["program"]
        faults = row["major_faults"]
        if "tape" in faults and "leap" in faults:
            # Rows of earlier builds have no delayed hits.
            what, late = "major faults", 0
            if kind := next((kind for kind in LATE if kind in row), None):
                what, late = f"major faults and {LATE[kind]}", row[kind]["tape"]
            found.append(target(f"{name}: {what}", faults["tape"] + late, at_most=max(faults["leap"] / 100, 200)))
        if "tape_by_floor" in row:
            bound = 1.10 if name in COMPUTE_BOUND else 1.20
            found.append(target(f"{name}: time by the floor", row["tape_by_floor"], at_most=bound))
            found.append(target(f"{name}: predicted and measured differ by", abs(row["predicted_by_measured"] - 1), at_most=0.15))
        if "leap" in row.get("by_tape", {}):
            found.append(target(f"{name}: leap by the tape", row["by_tape"]["leap"]["median"], at_least=1.3))
        if "zram" in row.get("by_tape", {}):
            found.append(target(f"{name}, {row['data']} numbers, link {row['link']}: zram by the tape", row["by_tape"]["zram"]["median"], at_least=1.3))
    return found


def main() -> None:
    parser = options(__doc__, repeat=3)
    parser.add_argument("--size", type=int, default=400, help="data of each program in MiB (default: 400)")
    parser.add_argument("--threads", type=int, default=max((os.cpu_count() or 2) - 1, 1), help="threads of matmul_p (default: processors - 1)")
    parser.add_argument("--local", default="20", help="percents of the recorded peak that are local, such as 100,60,40,20,10,5 (default: 20)")
    parser.add_argument("--link", default="15us:10Gb/s", help="latency and bandwidth of far memory, or none (default: 15us:10Gb/s)")
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
    result = {
        "bench": "tapes",
        "what": "the programs of 3PO's Table 2 at a part of their recorded peak, inline fault path; the link is added to compressed RAM",
        **origin(given.target / "release/hinterland", "tapes.py"),
        "note": given.note,
        "load": [round(of, 1) for of in os.getloadavg()],
    }
    before = earlier(given.output)
    result["commands"] = list(dict.fromkeys([*before["commands"], *result["commands"]]))
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for program in programs(given.size, linear(Path(directory)), given.threads, given.data):
            if given.program is None or program.name in given.program:
                bench = Bench(given, Path(directory), program)
                origin_of_row = {name: result[name] for name in ("commit", "date")}
                rows += [measure(bench, int(percent), systems) | origin_of_row for percent in given.local.split(",")]
                measured = {where(row) for row in rows}
                all_rows = [row for row in before["programs"] if where(row) not in measured] + rows
                # After each program: what was measured before a later one fails is there.
                given.output.write_text(json.dumps(result | {"programs": all_rows, "targets": targets(all_rows)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
