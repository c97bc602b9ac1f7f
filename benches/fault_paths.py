#!/usr/bin/env python3
"""Whole programs on the inline path beside the monitor path of the same build, and small system calls beside native.

Writes one JSON file. Each round runs every program on both paths, by turns; a ratio is taken within each round, then the median."""
import datetime
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

from options import options

PATHS = ("monitor", "inline")
DD = ["dd", "if=/dev/zero", "of=/dev/null", "bs=512", "count=2000000"]
DD_HEAPS = ("all", "large")


def last_row(rows: Path) -> dict:
    """The row of the run that has just ended."""
    return json.loads(rows.read_text().splitlines()[-1])


def whole_runs(programs: Path, rows: Path, name: str, size_mib: int, rounds: int) -> dict:
    """Wall seconds of one program at a quarter of its memory on each path."""
    seconds = {path: [] for path in PATHS}
    for turn in range(rounds):
        for path in PATHS if turn % 2 == 0 else reversed(PATHS):
            subprocess.run([programs, "run", "--path", path, "--size", str(size_mib), name], check=True)
            row = last_row(rows)
            assert row["program"] == name and row["path"] == path and row["ended"] == "ok", row
            seconds[path].append(round(row["seconds"], 3))
    ratios = [monitor / inline for monitor, inline in zip(seconds["monitor"], seconds["inline"])]
    return {
        "program": name,
        "size_mib": size_mib,
        "local": "25 % of the native peak",
        "seconds": seconds,
        "monitor_by_inline": spread(ratios),
    }


def spread(ratios: list[float]) -> dict:
    return {name: round(of(ratios), 3) for name, of in (("median", statistics.median), ("min", min), ("max", max))}


def dd(launcher: Path, rounds: int) -> dict:
    """Milliseconds of 2,000,000 reads and writes of 512 bytes with everything local, and their ratios to native."""
    commands = {"native": DD}
    for path in PATHS:
        for heap in DD_HEAPS:
            run = [launcher, "run", "--quiet", "--local", "256M", "--fault-path", path, "--heap", heap, "--"]
            commands[f"{path}_heap_{heap}"] = run + DD
    milliseconds = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            begin = time.monotonic()
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            milliseconds[name].append(round((time.monotonic() - begin) * 1000))
    natives = milliseconds["native"]
    ratios = {
        name: spread([mine / native for mine, native in zip(own, natives)])
        for name, own in milliseconds.items()
        if name != "native"
    }
    return {"dd_milliseconds": milliseconds, "dd_by_native": ratios}


def machine() -> dict:
    cpus = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": cpus[0] if cpus else "unknown", "cores": os.cpu_count(), "ram_bytes": ram, "kernel": platform.release()}


def main() -> None:
    parser = options(__doc__, repeat=3)
    parser.add_argument("--size", type=int, default=112, help="peak of anonymous memory to aim at, in MiB (default: 112)")
    parser.add_argument(
        "--program", action="append", help="a program; may be repeated (default: NumPy, sort, Python objects, redis)"
    )
    given = parser.parse_args()
    names = given.program or ["numpy-matmul", "sort", "cpython-objects", "redis"]
    programs, rows = given.target / "debug/programs", given.target / "tests/results.jsonl"
    result = {
        "what": "the inline fault path beside the monitor path of the same build (whole runs), and beside native with everything local (dd)",
        "commands": [
            f"programs run --path monitor|inline --size {given.size} NAME ({given.repeat} rounds, by turns)",
            f"{' '.join(DD)}, natively and by hinterland run --local 256M --fault-path inline|monitor --heap all|large "
            f"({given.repeat + 2} rounds, by turns)",
        ],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine(),
        "programs": [whole_runs(programs, rows, name, given.size, given.repeat) for name in names],
        **dd(given.target / "release/hinterland", given.repeat + 2),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
