#!/usr/bin/env python3
"""Programs that permute their pages, at a quarter of their memory: with an unordered tape, beside no prefetching and `auto`.

Two runs with seeds of their own are traced, and an unordered tape is made of both; a third seed is measured. Each round runs every system
once, in an order that rotates; a ratio is taken within each round, then the median. Every output is compared with the native run's. Writes
one JSON file."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from options import options
from workloads import HERE, Program, origin

SYSTEMS = {"none": ["--prefetch", "none"], "auto": ["--prefetch", "auto"], "sets": ["--prefetch", "auto", "--tape"]}
PROGRAMS = ("lookups", "join")
LINKS = ("none", "15us:10Gb/s")
PAGE_BYTES = 4096
# Of the runs that are traced, and of the one that is measured.
SEEDS = (1, 2, 3)
# Wanted: so many times as fast as `auto`.
WANTED = 1.15


class Bench:
    """One program and the tape of its first two seeds."""

    def __init__(self, launcher: Path, directory: Path, name: str, percent: int) -> None:
        self.launcher, self.directory = launcher, directory
        words = [str(directory / "sets"), name]
        *traced, self.program = (Program(name, [*words, str(seed)]) for seed in SEEDS)
        self.seconds, self.output, _ = self.program.run([])
        traces = [directory / f"{name}.{number}.trace" for number in range(len(traced))]
        for program, trace in zip(traced, traces):
            program.run([str(launcher), "trace", "--quiet", "-o", str(trace), "--"])
        self.tape = directory / f"{name}.tape"
        words = [str(launcher), "tape", *map(str, traces), "--local", f"{percent}%", "-o", str(self.tape), "--json"]
        self.comparison = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    def run(self, system: str, link: str) -> dict:
        stats = self.directory / "stats.json"
        far = "compressed:2G" + ("" if link == "none" else f"?link={link}")
        # That of the comparison, a percentage of the recorded peak: all systems have the same bytes.
        tape = [str(self.tape)] if system == "sets" else []
        local = self.comparison["local_pages"] * PAGE_BYTES
        prefix = [str(self.launcher), "run", "--quiet", "--fault-path", "inline", "--local", str(local), "--far", far]
        seconds, output, _ = self.program.run([*prefix, *SYSTEMS[system], *tape, "--stats", str(stats), "--"])
        if output != self.output:
            raise SystemExit(f"{self.program.name} with {system}: '{output}' instead of '{self.output}'")
        said = json.loads(stats.read_text())
        names = ("major_faults", "prefetched_pages", "tape_phases", "tape_phases_begun", "tape_phases_given_up")
        return {"seconds": round(seconds, 3), **{name: said[name] for name in names}}


def measure(bench: Bench, percent: int, link: str, rounds: int) -> dict:
    systems, runs = list(SYSTEMS), {system: [] for system in SYSTEMS}
    for turn in range(rounds):
        for step in range(len(systems)):
            system = systems[(turn + step) % len(systems)]
            runs[system].append(bench.run(system, link))
            print(f"{bench.program.name}, link {link}, {system}: {runs[system][-1]}", file=sys.stderr)
    seconds = {system: [run["seconds"] for run in own] for system, own in runs.items()}
    return {
        "program": bench.program.name,
        "percent": percent,
        "link": link,
        "native_seconds": round(bench.seconds, 3),
        "verdict": bench.comparison["verdict"],
        "seconds": {system: spread(own) for system, own in seconds.items()},
        "by_sets": {system: spread([a / b for a, b in zip(own, seconds["sets"])]) for system, own in seconds.items() if system != "sets"},
        "major_faults": {system: statistics.median(run["major_faults"] for run in own) for system, own in runs.items()},
        "runs": runs,
    }


def target(row: dict) -> dict:
    reached = row["by_sets"]["auto"]["median"]
    what = f"{row['program']}, link {row['link']}: auto by the unordered tape"
    return {"target": what, "at_least": WANTED, "reached": reached, "met": reached >= WANTED}


def main() -> None:
    parser = options(__doc__, repeat=5)
    parser.add_argument("--local", type=int, default=25, help="percent of the recorded peak that is local (default: 25)")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    launcher = given.target.absolute() / "release/hinterland"
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        flags = ["-O2", "-o", f"{directory}/sets", str(HERE / "sets.c")]
        subprocess.run(["gcc", *flags], check=True)
        for name in PROGRAMS:
            bench = Bench(launcher, Path(directory), name, given.local)
            rows += [measure(bench, given.local, link, given.repeat) for link in LINKS]
    result = {
        "bench": "sets",
        "what": "programs that permute their pages, with the sets of two other runs; inline path, compressed RAM, without a link and with one",
        **origin(launcher, "sets.py"),
        "note": given.note,
        "load": [round(of, 1) for of in os.getloadavg()],
        "rows": rows,
        "targets": [target(row) for row in rows],
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
