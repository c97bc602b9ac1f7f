#!/usr/bin/env python3
"""Sweeps of 3PO's evaluation: figures 4, 5, 7, 8 and 11 to 15, and table 3, for the programs of its Table 2.

Each program is traced with microsets of several sizes: tracing is measured, beside a native run. Runs are replayed in virtual time by `hinterland sim`, which has
the runtime's own policies, so they are the same on every machine for the same trace: by the share of the recorded peak that is local, by link, by the microsets of
the trace that a tape was planned from, and by the share that it was planned for. Measured runs are those of `./dev bench tapes`. Shares of less than 16 MiB, the least local
memory, are left out. Writes one JSON file with the rows and, as panels of bars, the paper's figures; rows of another program or size that are in it stay."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paper_figures import panel
from options import options, those_named
from tapes import PAGE_BYTES, linear, programs, target
from workloads import LOCAL_MIN, Program, origin

# As in the paper, in percent and pages.
SHARES = [100, 60, 40, 30, 20, 10, 5]
FAULTS_AT, LINKS_AT = 30, 20
MICROSETS = [256, 1024, 4096, 16384]
MICROSET = 1024
LINKS = {"25 Gb/s": "5us:25Gb/s", "10 Gb/s": "15us:10Gb/s", "SSD": "ssd"}
SYSTEMS = ["none", "leap", "auto", "tape"]
# The evictor's processor time for a page, of which the simulator has it (decision 0011).
EVICT_US = 4.1
# What recording a reference may take with a monitor.
TRACE_US = 4.5


def asked(words: list) -> dict:
    return json.loads(subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout)


def user_seconds() -> float:
    """Of all programs that have ended, without the kernel's part: replays have first touches of their own."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


class Sweep:
    """The traces of one program, and what is asked of them."""

    def __init__(self, launcher: Path, directory: Path, program: Program) -> None:
        self.launcher, self.directory, self.program = launcher, directory, program
        # What it takes natively, by which all replays are: a trace's own clock is far off where pages are touched quickly.
        before = user_seconds()
        self.native, self.output, _ = program.run([])
        self.user_seconds = user_seconds() - before

    def trace(self, microset: int) -> dict:
        path = self.directory / f"{self.program.name}-{microset}.trace"
        seconds, output, _ = self.program.run([str(self.launcher), "trace", "--quiet", "--microset", str(microset), "-o", str(path), "--"])
        if output != self.output:
            raise SystemExit(f"{self.program.name} while it is traced: '{output}' instead of '{self.output}'")
        return {"path": path, "seconds": seconds, "bytes": path.stat().st_size}

    def tape(self, trace: Path, percent: int) -> tuple[Path, dict, float]:
        """A tape for so much of the recorded peak; what the planner says of it, and how long it took."""
        path = self.directory / "planned.tape"
        begin = time.monotonic()
        plan = asked([self.launcher, "tape", trace, "--local", f"{percent}%", "-o", path, "--json"])
        return path, plan, time.monotonic() - begin

    def replay(self, trace: Path, references: int, local_bytes: int, tape: Path, links: list[str], systems: list[str]) -> dict:
        """Rows of the simulator by link and system, with the processor time that the program takes natively."""
        named = [system for system in systems if system != "tape"]
        words = [self.launcher, "sim", trace, "--local", local_bytes, "--prefetch", ",".join(named or ["none"]), "--evict", "s3-fifo",
                 "--link", ",".join(links), "--tape", tape, "--reference-ns", max(round(self.user_seconds * 1e9 / references), 1), "--json"]
        rows: dict = {link: {} for link in links}
        for row in asked(words)["rows"]:
            if row["prefetch"] in systems:
                evicted = row["evicted_dirty_pages"] + row["evicted_clean_pages"]
                rows[row["link"]][row["prefetch"]] = {name: row[name] for name in ("major_faults", "run_seconds", "slowdown")} | {"evicted_pages": evicted}
        return rows


def planned_bytes(plan: dict) -> dict:
    """Bytes that a plan moves, with either eviction."""
    return {of["eviction"]: of["bytes_in"] + of["bytes_out"] for of in (plan["wanted"], plan["other_eviction"])}


def measure(sweep: Sweep, size: int) -> dict:
    """All sweeps of one program."""
    name, say = sweep.program.name, lambda what: print(f"{sweep.program.name}: {what}", file=sys.stderr)
    traces = {microset: sweep.trace(microset) for microset in MICROSETS}
    say({microset: round(traced["seconds"], 2) for microset, traced in traces.items()})
    main = traces[MICROSET]["path"]
    tape, plan, _ = sweep.tape(main, 100)
    peak, references = plan["pages"] * PAGE_BYTES, plan["references"]
    local = lambda percent: peak * percent // 100 // PAGE_BYTES * PAGE_BYTES
    shares = [percent for percent in SHARES if local(percent) >= LOCAL_MIN]
    row = {"program": name, "size_mib": size, "native_seconds": round(sweep.native, 3), "peak_bytes": peak, "references": plan["references"],
           "cpu_seconds": round(sweep.user_seconds, 3), "traced_cpu_seconds": plan["cpu_seconds"], "links": LINKS, "shares": {}, "planned_bytes": {}, "microsets": {},
           "planned_for": {}}
    link = LINKS["25 Gb/s"]
    row["all_local_seconds"] = sweep.replay(main, references, peak * 2, tape, [link], ["none"])[link]["none"]["run_seconds"]
    for percent in shares:
        tape, plan, _ = sweep.tape(main, percent)
        row["planned_bytes"][percent] = planned_bytes(plan)
        row["shares"][percent] = sweep.replay(main, references, local(percent), tape, list(LINKS.values()), SYSTEMS)
        say(f"{percent} % local")
    # All tapes of other microsets are followed in the trace of the smallest ones.
    smallest = traces[min(MICROSETS)]["path"]
    _, plan, _ = sweep.tape(smallest, 100)
    of_smallest = plan["references"]
    for microset, traced in traces.items():
        tape, plan, seconds = sweep.tape(traced["path"], LINKS_AT)
        replayed = sweep.replay(smallest, of_smallest, local(LINKS_AT), tape, [link], ["tape"])[link]
        row["microsets"][microset] = {
            "trace_seconds": round(traced["seconds"], 3), "trace_bytes": traced["bytes"], "references": plan["references"],
            "plan_seconds": round(seconds, 3), "tape_bytes": plan["tape_bytes"], **replayed["tape"],
        }
    for percent in (percent for percent in shares if percent <= FAULTS_AT):
        tape, *_ = sweep.tape(main, percent)
        row["planned_for"][percent] = sweep.replay(main, references, local(FAULTS_AT), tape, [link], ["tape"])[link]["tape"]
    say("done")
    return row


def keyed(rows: list[dict]) -> list[dict]:
    """With numbers for keys, which JSON has as words."""
    number = lambda table: {int(key): value for key, value in table.items()}
    return [row | {name: number(row[name]) for name in ("shares", "planned_bytes", "microsets", "planned_for") if name in row} for row in rows]


def by_all_local(row: dict, run: dict) -> float:
    """A run beside one in which nothing is evicted; of rows of earlier builds, beside the processor time in the trace."""
    return run["run_seconds"] / row["all_local_seconds"] if "all_local_seconds" in row else run["slowdown"]


def figures(rows: list[dict]) -> list[dict]:
    """The paper's, as panels."""
    names = [row["program"] for row in rows]
    panels = []
    for row in rows:
        for link in ("25 Gb/s", "10 Gb/s"):
            values = {system: [by_all_local(row, of[LINKS[link]][system]) for of in row["shares"].values()] for system in SYSTEMS}
            caption = f"{row['program']} by the share that is local (of 100 % too the evictor keeps a reserve), {link}"
            panels.append(panel("4, 5", caption, "× all local" if "all_local_seconds" in row else "× traced", [f"{share} %" for share in row["shares"]], values))

    def at(share: int, link: str, system: str, value: str) -> list[float | None]:
        return [row["shares"][share][LINKS[link]][system][value] if share in row["shares"] else None for row in rows]

    def gain(link: str) -> list[float | None]:
        pairs = zip(at(LINKS_AT, link, "none", "run_seconds"), at(LINKS_AT, link, "tape", "run_seconds"))
        return [none / tape if none is not None else None for none, tape in pairs]

    faults = {system: [value / 1000 if value is not None else None for value in at(FAULTS_AT, "25 Gb/s", system, "major_faults")] for system in SYSTEMS}
    panels.append(panel("7", f"Major faults with {FAULTS_AT} % local, 25 Gb/s", "thousands", names, faults))
    panels.append(panel("8", f"The tape beside no prefetching with {LINKS_AT} % local", "times as fast", names, {link: gain(link) for link in LINKS}))
    cores = {}
    for share in (60, 40, 20):
        tapes = zip(at(share, "25 Gb/s", "tape", "run_seconds"), at(share, "25 Gb/s", "tape", "evicted_pages"))
        cores[f"{share} % local"] = [seconds / (pages * EVICT_US * 1e-6) if pages else None for seconds, pages in tapes]
    panels.append(panel("11", f"Programs whose pages one processor evicts, {EVICT_US} µs each, 25 Gb/s", "programs", names, cores))
    by_microset = lambda value: {str(microset): [value(row, row["microsets"][microset]) for row in rows] for microset in MICROSETS}
    panels.append(panel("12", "Tracing by pages in a microset", "× native", names, by_microset(lambda row, of: of["trace_seconds"] / row["native_seconds"])))
    panels.append(panel("13", f"Tapes for {LINKS_AT} % by pages in a microset", "MiB", names, by_microset(lambda _, of: of["tape_bytes"] / 2**20)))
    # Beside one another: times of a trace of small microsets are mostly those of tracing.
    beside = lambda row, of: of["run_seconds"] / row["microsets"][min(MICROSETS)]["run_seconds"]
    panels.append(panel("14", f"Runs with those tapes, {LINKS_AT} % local, 25 Gb/s", f"× that of {min(MICROSETS)}", names, by_microset(beside)))
    planned = {f"for {share} %": [row["planned_for"][share]["major_faults"] if share in row["planned_for"] else None for row in rows] for share in (30, 20, 10)}
    planned = {name: values for name, values in planned.items() if any(value is not None for value in values)}
    panels.append(panel("15", f"Tapes planned for less, {FAULTS_AT} % local", "major faults", names, planned))
    return panels


def table(rows: list[dict]) -> list[dict]:
    """Table 3: what a tape costs before it is followed."""
    usual = lambda row: row["microsets"][MICROSET]
    names = ("trace_seconds", "trace_bytes", "plan_seconds", "references")
    return [{"program": row["program"], **{name: usual(row)[name] for name in names},
             "us_per_reference": round((usual(row)["trace_seconds"] - row["native_seconds"]) * 1e6 / usual(row)["references"], 2),
             "bytes_per_reference": round(usual(row)["trace_bytes"] / usual(row)["references"], 2)} for row in rows]


def targets(rows: list[dict]) -> list[dict]:
    """What the project has set itself, and what was reached: tracing on the monitor path, and eviction by the next use beside LRU."""
    found = [target(f"{row['program']}: µs of tracing for a reference", row["us_per_reference"], at_most=TRACE_US) for row in table(rows)]
    for row in rows:
        for percent, planned in row.get("planned_bytes", {}).items():
            what = f"{row['program']}, {percent} % local: bytes moved, planned by next use beside LRU"
            found.append(target(what, planned["min"] / max(planned["lru"], 1), at_most=1.0))
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--size", type=int, default=192, help="data of each program in MiB (default: 192)")
    parser.add_argument("--threads", type=int, default=max((os.cpu_count() or 2) - 1, 1), help="threads of matmul_p (default: processors - 1)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    given = parser.parse_args()
    launcher = (given.target / "release/hinterland").absolute()
    os.environ["PYTHONHASHSEED"] = "0"
    before = json.loads(given.output.read_text()) if given.output.exists() else {"commands": [], "programs": []}
    result = {
        "bench": "tape-sweeps",
        "what": "Sweeps of 3PO's evaluation: runs in the simulator's virtual time, tracing as measured",
        **origin(launcher, "tape_sweeps.py"),
    }
    result["commands"] = list(dict.fromkeys([*before["commands"], *result["commands"]]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        measured = []
        for program in those_named(given.program, programs(given.size, linear(directory), given.threads, "small"), parser):
            measured.append(measure(Sweep(launcher, directory, program), given.size))
            done = {row["program"] for row in measured}
            rows = keyed([row for row in before["programs"] if row["program"] not in done]) + measured
            text = result | {"table_3": table(rows), "targets": targets(rows), "figures": figures(rows), "programs": rows}
            given.output.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
