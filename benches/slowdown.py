#!/usr/bin/env python3
"""What `--slowdown` holds: the slowdown of programs whose local memory follows it, and that memory beside the least that a search by hand finds.

Each program has rounds of the same work, and says when each is over; it gets as many as take `--seconds` natively. Native runs and runs with `--slowdown`
take turns, first by turns; a ratio is taken within each round, then the median. Local memory and the stated slowdown are what `hinterland ps --json` says
twice a second. The search runs the program with a fixed `--local`, bisected for the least with which the second half keeps the slowdown. What the controller
takes is the launcher's processor time, less what it takes in the runs of the search. A program of two phases has settled when, for ten seconds, it keeps its
slowdown in about the memory in which it ends. Every output is compared with the native run's. Writes one JSON file."""
import argparse
import importlib.util
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, NamedTuple

from fault_paths import spread
from granularity import compiled
from options import options, those_named
from paper_figures import panel
from workloads import HERE, LOCAL_MIN, Lines, build, graph_words, origin

# Wanted at most, of runs that take so many seconds natively: the slowdown of the second half and of the whole, local memory by the least, the stated slowdown
# beside the real one, seconds until a phase has settled, and the share of a processor that the controller takes.
WANTED_SECONDS, SECOND_HALF, WHOLE, LOCAL, STATED, SETTLED_SECONDS, CONTROLLER = 120, 1.25, 1.30, 1.25, 0.10, 20.0, 0.01
# The slowdown that these are wanted for, and the ceiling of the budget by the native peak.
DEFAULT, CEILING = 1.2, 1.25
SAMPLE_SECONDS, LOOK_SECONDS = 0.5, 0.02
# A phase has settled when it has kept its slowdown for so long, in memory within this factor of that in its last half.
SETTLED_FOR_SECONDS, SETTLED_WITHIN = 10.0, 1.25
# A search ends where a size that is too small is so near below; its runs are ended at so many times the native time and the slowdown.
FINE, PATIENCE = 1.08, 2.0
ROUNDS_MIN = 8
COURSE_PARTS = 10


class Program(NamedTuple):
    """A program of rounds."""

    name: str
    # The command with so many rounds.
    command: Callable[[int], list[str]]
    # Its second half is another phase.
    has_phases: bool = False


def programs(mib: int, directory: Path) -> list[Program]:
    """With about so many MiB of data: a hot set, two that change (a larger one, a smaller one), PageRank and, where it is installed, scikit-learn's k-means."""
    working_set, graph = (compiled(directory, source) for source in ("working_set.cpp", "graph.cpp"))

    def works_in(*sixteenths: int) -> Callable[[int], list[str]]:
        return lambda rounds: [working_set, str(mib), str(rounds), *(str(mib * part // 16) for part in sixteenths)]

    found = [
        Program("hot", works_in(6)),
        Program("grow", works_in(3, 9), True),
        Program("shrink", works_in(9, 3), True),
        Program("pagerank", lambda rounds: [graph, "rank", *graph_words(mib, 16), "popular", str(rounds)]),
        Program("kmeans", lambda rounds: [sys.executable, str(HERE / "kmeans.py"), str(mib), str(rounds)]),
    ]
    return found if importlib.util.find_spec("sklearn") else found[:-1]


class Ran(NamedTuple):
    """A run that ended."""

    seconds: float
    output: str
    peak_bytes: int
    # When rounds were over, by the monotonic clock: begins with the first one's start.
    times: list[float]
    # What `ps` said of the run, with the time by the same clock.
    samples: list[dict]
    # The command's own process, without the program under it.
    launcher_seconds: float

    def round_seconds(self) -> float:
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)

    def halves(self) -> tuple[float, float]:
        middle = self.times[len(self.times) // 2]
        return middle - self.times[0], self.times[-1] - middle

    def local_of_second_half(self) -> float:
        """The median of local memory."""
        middle = self.times[len(self.times) // 2]
        own = [sample["local_bytes"] for sample in self.samples if middle <= sample["at"] <= self.times[-1]]
        if not own:
            raise SystemExit("no sample of the second half: `hinterland ps` did not show the run, or --seconds are too few")
        return statistics.median(own)


def when_over(said: str) -> list[float]:
    """The times of the rounds that a program says are over, without what else it says."""
    return [float(line.split()[2]) for line in said.splitlines() if line.startswith("rounds ")]


def processor_seconds(pid: int) -> float:
    """Of a process and its threads, also those that have ended, without its children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """Runs of one launcher, which sees no runs but its own: those of others would have a share of the machine."""

    def __init__(self, given: argparse.Namespace, directory: Path) -> None:
        self.given, self.directory = given, directory
        self.launcher = given.target.absolute() / "release/hinterland"
        self.environment = os.environ | {"XDG_RUNTIME_DIR": str(directory)}

    def prefix(self, local: int, peak: int, *more: str) -> list[str]:
        far = f"compressed:{2 * peak}" + ("" if self.given.link == "none" else f"?link={self.given.link}")
        return [str(self.launcher), "run", "--quiet", "--fault-path", self.given.fault_path, "--local", str(local), "--far", far, *more, "--"]

    def sample(self, pid: int) -> list[dict]:
        at = time.monotonic()
        said = subprocess.run([self.launcher, "ps", "--json"], env=self.environment, capture_output=True, text=True)
        # A launcher that is about to end may not answer.
        runs = json.loads(said.stdout)["runs"] if said.returncode == 0 else []
        names = ("local_bytes", "local_budget_bytes", "slowdown")
        return [{"at": at, **{name: run[name] for name in names}} for run in runs if run["pid"] == pid]

    def run(self, command: list[str], is_managed: bool, patience: float = math.inf) -> Ran | None:
        """None: it had not ended after so many seconds."""
        out, said = self.directory / "out", self.directory / "said"
        with out.open("w") as output, said.open("w") as errors:
            begin = time.monotonic()
            process = subprocess.Popen(command, stdout=output, stderr=errors, env=self.environment, start_new_session=True)
        samples, due, ended = [], begin + SAMPLE_SECONDS, None
        try:
            # Left to be waited for: its processor time can be read until then.
            while ended is None and time.monotonic() < begin + patience:
                if is_managed and time.monotonic() >= due:
                    samples += self.sample(process.pid)
                    due = time.monotonic() + SAMPLE_SECONDS
                time.sleep(LOOK_SECONDS)
                ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            seconds, own = time.monotonic() - begin, processor_seconds(process.pid)
        finally:
            if ended is None:
                os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if ended is None:
            return None
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {said.read_text()[-2000:]}")
        return Ran(seconds, out.read_text(), usage.ru_maxrss * 1024, when_over(said.read_text()), samples, own)

    def checked(self, ran: Ran | None, native: Ran, how: str) -> Ran | None:
        if ran is not None and ran.output != native.output:
            raise SystemExit(f"{how}: '{ran.output}' instead of '{native.output}'")
        return ran


def even(rounds: float) -> int:
    return max(ROUNDS_MIN, math.ceil(rounds / 2) * 2)


def settled_seconds(times: list[float], samples: list[dict], native_round_seconds: float, bound: float, lasts: float = SETTLED_FOR_SECONDS) -> float | None:
    """From the middle of the rounds to the first moment from which on, for `lasts` seconds, the slowdown is within the bound and local memory near that of the
    last half of what follows; None: there is none."""
    middle = len(times) // 2
    after = [sample for sample in samples if times[middle] <= sample["at"] <= times[-1]]
    late = [sample["local_bytes"] for sample in after if sample["at"] >= (times[middle] + times[-1]) / 2]
    if not late:
        return None
    aim = statistics.median(late)
    for first in range(middle, len(times)):
        last = next((at for at in range(first + 1, len(times)) if times[at] >= times[first] + lasts), None)
        if last is None:
            return None
        local = [sample["local_bytes"] for sample in after if times[first] <= sample["at"] <= times[last]]
        is_near = bool(local) and aim / SETTLED_WITHIN <= statistics.median(local) <= aim * SETTLED_WITHIN
        if is_near and times[last] - times[first] <= bound * native_round_seconds * (last - first):
            return round(times[first] - times[middle], 2)
    return None


def searched(keeps: Callable[[int], bool], too_small: int, enough: int, runs: int) -> int:
    """The least size in MiB that keeps the slowdown, between one that is too small and one that is enough, after so many runs at most."""
    while runs > 0 and enough > too_small * FINE and enough - too_small > 1:
        size = min(max(round(math.sqrt(too_small * enough)), too_small + 1), enough - 1)
        too_small, enough = (too_small, size) if keeps(size) else (size, enough)
        runs -= 1
    return enough


def search(bench: Bench, program: Program, native: Ran) -> dict:
    """The least fixed local memory that keeps the slowdown in the second half, in runs of as many rounds as `native`; and the launcher's share of a processor
    meanwhile."""
    given, tried, shares = bench.given, [], []
    peak, command = native.peak_bytes, program.command(len(native.times) - 1)

    def keeps(mib: int) -> bool:
        ran = bench.run([*bench.prefix(mib << 20, peak), *command], True, PATIENCE * given.slowdown * native.seconds + 5)
        bench.checked(ran, native, f"{program.name} with {mib} MiB")
        slowdown = ran and ran.halves()[1] / native.halves()[1]
        if ran:
            shares.append(ran.launcher_seconds / ran.seconds)
        tried.append({"local_mib": mib, "slowdown": slowdown and round(slowdown, 3)})
        print(f"{program.name}, fixed: {tried[-1]}", file=sys.stderr)
        return slowdown is not None and slowdown <= given.slowdown

    # Below the smallest budget: that is tried, too, where all above it keep the slowdown.
    least = searched(keeps, (LOCAL_MIN >> 20) - 1, peak >> 20, given.sweeps)
    return {"least_bytes": least << 20, "tried": tried, "launcher_share": round(statistics.median(shares), 5) if shares else 0.0}


def course(ran: Ran) -> list[dict]:
    """Local memory and the stated slowdown in the parts of the rounds' time: medians, or nothing where there was no sample."""
    begin, part = ran.times[0], (ran.times[-1] - ran.times[0]) / COURSE_PARTS
    found = []
    for number in range(COURSE_PARTS):
        own = [sample for sample in ran.samples if begin + number * part <= sample["at"] < begin + (number + 1) * part]
        local, stated = ([sample[name] for sample in own if sample[name] is not None] for name in ("local_bytes", "slowdown"))
        row = {"to_seconds": round((number + 1) * part, 1), "local_mib": round(statistics.median(local) / 2**20, 1) if local else None}
        found.append(row | {"stated": round(statistics.median(stated), 3) if stated else None})
    return found


def beside_native(program: Program, native: Ran, held: Ran, said: dict, without: float, bound: float) -> dict:
    """A round's figures; `said` is the summary's, `without` the launcher's share of a processor in runs that follow no slowdown."""
    row = {
        "native_seconds": round(native.seconds, 3),
        "native_second_half_seconds": round(native.halves()[1], 3),
        "seconds": round(held.seconds, 3),
        "whole": round(held.seconds / native.seconds, 4),
        "first_half": round(held.halves()[0] / native.halves()[0], 4),
        "second_half": round(held.halves()[1] / native.halves()[1], 4),
        "stated": round(said["slowdown"], 4),
        "local_bytes_of_second_half": held.local_of_second_half(),
        "local_mean_bytes": said["local_mean_bytes"],
        "controller_share": round(held.launcher_seconds / held.seconds - without, 5),
    }
    if program.has_phases:
        lasts = min(SETTLED_FOR_SECONDS, held.halves()[1] / 4)
        row["settled_seconds"] = settled_seconds(held.times, held.samples, native.halves()[1] / (len(native.times) // 2), bound, lasts)
    return row


def measure(bench: Bench, program: Program) -> dict:
    given, stats = bench.given, bench.directory / "stats.json"
    # As many rounds as a few of them let expect, twice: the longer runs say better what a round takes.
    few = bench.run(program.command(ROUNDS_MIN), False)
    some = bench.run(program.command(even(given.sweep_seconds / few.round_seconds())), False)
    peak, command = some.peak_bytes, program.command(even(given.seconds / some.round_seconds()))
    ceiling = math.ceil(peak * CEILING) >> 20 << 20
    found = search(bench, program, some)
    rows: list[dict] = []
    for turn in range(given.repeat):
        ran: dict[bool, Ran] = {}
        for is_managed in (False, True) if turn % 2 == 0 else (True, False):
            prefix = bench.prefix(ceiling, peak, "--slowdown", str(given.slowdown), "--stats", str(stats)) if is_managed else []
            ran[is_managed] = bench.run([*prefix, *command], is_managed)
        native, held = ran[False], bench.checked(ran[True], ran[False], program.name)
        bound = SECOND_HALF + given.slowdown - DEFAULT
        row = beside_native(program, native, held, json.loads(stats.read_text())["service_level"], found["launcher_share"], bound)
        print(f"{program.name}, {given.slowdown}: {row}", file=sys.stderr)
        rows.append(row | {"course": course(held)})
    summary = {name: spread([row[name] for row in rows]) for name in ("whole", "second_half", "controller_share")}
    summary["stated_beside_real"] = spread([abs(row["stated"] - row["whole"]) for row in rows])
    summary["local_by_least"] = spread([row["local_bytes_of_second_half"] / found["least_bytes"] for row in rows])
    sizes = {"rounds_of_work": len(native.times) - 1, "peak_bytes": peak, "ceiling_bytes": ceiling}
    return {"program": program.name, **sizes, "fixed": found, **summary, "rounds": rows}


def targets(rows: list[dict], slowdown: float) -> list[dict]:
    """What the project has set itself, and what was reached. Bounds on the slowdown are as far above another one."""
    found, beyond = [], slowdown - DEFAULT
    bounds = {
        "slowdown of the second half": ("second_half", SECOND_HALF + beyond),
        "slowdown of the whole": ("whole", WHOLE + beyond),
        "local memory of the second half by the least": ("local_by_least", LOCAL),
        "stated slowdown beside the real one": ("stated_beside_real", STATED),
        "share of a processor for the controller": ("controller_share", CONTROLLER),
    }
    for row in rows:
        for what, (name, most) in bounds.items():
            reached = row[name]["median"]
            found.append({"target": f"{row['program']}: {what}", "at_most": round(most, 3), "reached": reached, "met": reached <= most})
        if "settled_seconds" in row["rounds"][0]:
            seconds, name = [of["settled_seconds"] for of in row["rounds"]], f"{row['program']}: seconds until the second phase has settled, the longest"
            worst = None if None in seconds else max(seconds)
            found.append({"target": name, "at_most": SETTLED_SECONDS, "reached": worst, "met": worst is not None and worst <= SETTLED_SECONDS})
    return found


def figures(rows: list[dict]) -> list[dict]:
    names, mib = [row["program"] for row in rows], lambda number: number / 2**20
    medians = lambda name: [statistics.median(of[name] for of in row["rounds"]) for row in rows]
    slowdowns = {"second half": medians("second_half"), "whole": medians("whole"), "stated": medians("stated")}
    memory = {
        "median of the second half": [mib(of) for of in medians("local_bytes_of_second_half")],
        "least by hand": [mib(row["fixed"]["least_bytes"]) for row in rows],
        "native peak": [mib(row["peak_bytes"]) for row in rows],
    }
    parts = [f"{(part + 1) * 100 // COURSE_PARTS} %" for part in range(COURSE_PARTS)]
    over_time = {row["program"]: [of["local_mib"] for of in row["rounds"][0]["course"]] for row in rows}
    return [
        panel("1", "Slowdowns, medians", "× native", names, slowdowns),
        panel("2", "Local memory", "MiB", names, memory),
        panel("3", "Local memory over the time of the rounds, the first run of each", "MiB", parts, over_time),
    ]


def main() -> None:
    parser = options(__doc__, repeat=3)
    parser.add_argument("--seconds", type=float, default=WANTED_SECONDS, help="what the rounds of a program take natively (default: %(default)s)")
    parser.add_argument("--sweep-seconds", type=float, help="the same in the runs of the search (default: a quarter)")
    parser.add_argument("--sweeps", type=int, default=6, help="runs of a search at most (default: %(default)s)")
    parser.add_argument("--slowdown", type=float, default=DEFAULT, help="what is asked for (default: %(default)s)")
    parser.add_argument("--size", type=int, default=256, help="data of each program in MiB (default: %(default)s)")
    parser.add_argument("--fault-path", default="inline", choices=("inline", "monitor"), help="(default: %(default)s)")
    parser.add_argument("--link", default="none", help="latency and bandwidth that are added to compressed RAM (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    given.sweep_seconds = given.sweep_seconds or given.seconds / 4
    # One thread, and memory that is asked for in the same order in every run.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(given, Path(name))
        chosen = those_named(given.program, programs(given.size, Path(name)), parser)
        parameters = {of: getattr(given, of) for of in ("repeat", "seconds", "sweep_seconds", "sweeps", "slowdown", "size", "fault_path", "link")}
        lines = Lines(given.output, parameters | {"build": build(bench.launcher)["build"]})
        for program in chosen:
            if not any(line.get("program") == program.name for line in lines.lines):
                lines.add(measure(bench, program))
    measured = [line for line in lines.lines if line.get("program") in {program.name for program in chosen}]
    result = {
        "bench": "slowdown",
        "what": f"programs whose local memory follows --slowdown {given.slowdown}, beside native runs and the least fixed local memory; compressed RAM",
        **origin(bench.launcher, "slowdown.py"),
        **({"note": given.note} if given.note else {}),
        **parameters,
        "seconds_wanted_of_a_verdict": WANTED_SECONDS,
        "programs": measured,
        "targets": targets(measured, given.slowdown),
        "figures": figures(measured),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    lines.remove()


if __name__ == "__main__":
    main()
