#!/usr/bin/env python3
"""What `hinterland run -- true` costs above `true`, step by step, on both fault paths.

The starts are interleaved: each round starts every command once. Steps are differences between commands that go one step further each:
loading the launcher (--version), running a program without the library (--allow-unmanaged where userfaultfd is switched off), loading the
library (LD_PRELOAD alone, which changes nothing), and taking the memory over. Writes one JSON file. Wants an idle machine."""
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from options import options
from workloads import origin

# Milliseconds above `true`, the median.
COST_MS_MAX = {"inline": 3.5, "monitor": 2.5}
# Rounds before those that count: caches are warm then.
WARM_UP = 5
SYSTEM_CALL = re.compile(r"^\d+ +\w+\(")


def commands(target: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Name to command and variables; `true` by its path, so that nobody searches for it."""
    true = shutil.which("true") or "/bin/true"
    launcher = str(target / "hinterland")
    managed = [launcher, "run", "--quiet", "--local", "64M"]
    return {
        "true": ([true], {}),
        "version": ([launcher, "--version"], {}),
        "unmanaged": ([*managed, "--features", "no-uffd", "--allow-unmanaged", "--", true], {}),
        "preloaded": ([true], {"LD_PRELOAD": str(target / "libhinterland.so")}),
        "monitor": ([*managed, "--fault-path", "monitor", "--", true], {}),
        "inline": ([*managed, "--fault-path", "inline", "--", true], {}),
    }


def start(command: list[str], variables: dict[str, str]) -> tuple[float, float, int]:
    """Milliseconds, processor milliseconds of all processes, and page faults of one start."""
    nothing = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in range(3)]
    begun = time.perf_counter_ns()
    pid = os.posix_spawn(command[0], command, {**os.environ, **variables}, file_actions=nothing)
    _, status, usage = os.wait4(pid, 0)
    took = time.perf_counter_ns() - begun
    if status:
        raise SystemExit(f"{' '.join(command)}: ended with {os.waitstatus_to_exitcode(status)}")
    return took / 1e6, (usage.ru_utime + usage.ru_stime) * 1e3, usage.ru_minflt


def system_calls(command: list[str], variables: dict[str, str]) -> int | None:
    """How many system calls all processes of a start make; None without strace."""
    if not shutil.which("strace"):
        return None
    with tempfile.NamedTemporaryFile() as log:
        words = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        subprocess.run(["strace", "-f", "-o", log.name, *words, *command], check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return sum(bool(SYSTEM_CALL.match(line)) for line in Path(log.name).read_text(errors="replace").splitlines())


def steps(ms: dict[str, float]) -> list[dict]:
    """What each step adds to the start, in milliseconds."""
    preloading = ms["preloaded"] - ms["true"]
    rows = [
        ("the launcher is loaded and reads its command line", ms["version"] - ms["true"]),
        ("it checks the program, starts it, watches it, and ends", ms["unmanaged"] - ms["version"]),
        ("the loader maps and relocates the library", preloading),
        ("the library takes the memory over, and reports at the end (monitor)", ms["monitor"] - ms["unmanaged"] - preloading),
        ("handlers, libc's call sites, the filter (inline)", ms["inline"] - ms["monitor"]),
    ]
    return [{"step": step, "ms": round(cost, 3)} for step, cost in rows]


def main() -> None:
    parser = options(__doc__, repeat=200, repeats="starts of each command")
    given = parser.parse_args()
    every = commands(given.target.resolve() / "release")
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in every}
    for round_number in range(WARM_UP + given.repeat):
        for name, (command, variables) in every.items():
            figures = start(command, variables)
            if round_number >= WARM_UP:
                found[name].append(figures)
    rows = {}
    for name, (command, variables) in every.items():
        ms, processor_ms, faults = (list(figures) for figures in zip(*found[name]))
        rows[name] = {
            "ms": {"median": round(statistics.median(ms), 3), "p10": round(sorted(ms)[len(ms) // 10], 3)},
            "processor_ms": round(statistics.mean(processor_ms), 3),
            "page_faults": round(statistics.median(faults)),
            "system_calls": system_calls(command, variables),
        }
    median = {name: row["ms"]["median"] for name, row in rows.items()}
    targets = []
    for path, bound in COST_MS_MAX.items():
        cost = round(median[path] - median["true"], 3)
        targets.append({"target": f"{path}: ms above true", "at_most": bound, "reached": cost, "met": cost <= bound})
    result = {
        "bench": "start-up",
        "what": f"hinterland run --local 64M -- true beside true: medians of {given.repeat} interleaved starts",
        **origin(given.target / "release/hinterland", "start_up.py"),
        "starts": rows,
        "steps": steps(median),
        "targets": targets,
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    for row in result["steps"]:
        print(f"{row['ms']:7.3f} ms  {row['step']}")
    for target in targets:
        print(f"{target['reached']:7.3f} ms  {target['target']} (at most {target['at_most']}: {'met' if target['met'] else 'not met'})")


if __name__ == "__main__":
    main()
