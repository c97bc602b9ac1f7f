#!/usr/bin/env python3
"""Programs at a part of their memory under every prefetcher, one at a time and all at once, over a link that is not there.

Writes one JSON file. Each round runs every program with every prefetcher, in an order that rotates; a ratio is taken within each
round, then the median. Every output is compared with the native run's."""
import argparse
import datetime
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fault_paths import machine, spread

HERE = Path(__file__).parent / "programs"
PREFETCHERS = ("none", "readahead", "stride", "leap", "streams", "auto")
VALUE_BYTES = 1000
BATCH = 32


class Program:
    """A command whose standard output is its result."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name, self.command = name, command

    def run(self, prefix: list[str]) -> tuple[float, str, int]:
        """Wall seconds, the output, and the peak resident size in bytes, of the command behind `prefix`."""
        begin = time.monotonic()
        process = subprocess.Popen([*prefix, *self.command], stdout=subprocess.PIPE, text=True)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{self.name}: {' '.join(prefix)} ended with {process.returncode}")
        return time.monotonic() - begin, output, usage.ru_maxrss * 1024


class Memcached(Program):
    """memcached under a client that fills it and then asks for keys by Zipf's law; the client is not managed."""

    def __init__(self, mib: int) -> None:
        super().__init__("memcached", ["memcached", "-u", "root", "-t", "1", "-l", "127.0.0.1", "-m", str(mib * 2)])
        self.keys = mib * 2**20 // (VALUE_BYTES + 100)

    def run(self, prefix: list[str]) -> tuple[float, str, int]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([*prefix, *self.command, "-p", str(port)])
        try:
            connection = connect(port, process)
            begin = time.monotonic()
            output = self.ask(connection)
            seconds = time.monotonic() - begin
        finally:
            process.terminate()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        return seconds, output, usage.ru_maxrss * 1024

    def ask(self, connection: socket.socket) -> str:
        replies = connection.makefile("rb")
        order = list(range(self.keys))
        random.Random(1).shuffle(order)
        for first in range(0, self.keys, BATCH):
            some = order[first : first + BATCH]
            connection.sendall(b"".join(b"set k%d 0 0 %d\r\n%s\r\n" % (key, VALUE_BYTES, value(key)) for key in some))
            for _ in some:
                if replies.readline() != b"STORED\r\n":
                    raise SystemExit("memcached did not store a value")
        # Zipf with the exponent 1 by its inverse: rank r for r = n ** u, u uniform; ranks are keys in a shuffled order.
        chance, found = random.Random(2), 0
        for _ in range(2 * self.keys // BATCH):
            some = [order[int(self.keys ** chance.random()) - 1] for _ in range(BATCH)]
            connection.sendall(b"get " + b" ".join(b"k%d" % key for key in some) + b"\r\n")
            for key in some:
                line = replies.readline()
                if not line.startswith(b"VALUE k%d " % key) or replies.read(VALUE_BYTES + 2)[:-2] != value(key):
                    raise SystemExit(f"memcached answered otherwise for k{key}: {line}")
                found += 1
            replies.readline()
        return f"{found} found"


def value(key: int) -> bytes:
    return (b"%d," % key * VALUE_BYTES)[:VALUE_BYTES]


def connect(port: int, process: subprocess.Popen) -> socket.socket:
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if process.poll() is not None:
                break
            time.sleep(0.02)
    raise SystemExit("memcached does not listen")


def programs(mib: int, graph: Path) -> list[Program]:
    """All of them with about `mib` MiB of data."""
    scale = max(16, (mib * 2**20 // 84).bit_length() - 1)
    return [
        Program("matmul", [sys.executable, str(HERE / "matmul.py"), str(mib)]),
        Program("graph", [str(graph), str(scale), "16"]),
        Program("sql", [sys.executable, str(HERE / "tables.py"), str(mib * 2**20 // 250)]),
        Memcached(mib),
    ]


class Bench:
    """What all runs have in common."""

    def __init__(self, launcher: Path, link: str, rows: Path) -> None:
        self.launcher, self.link, self.rows = launcher, link, rows
        self.native: dict[str, dict] = {}

    def measure_native(self, program: Program) -> None:
        seconds, output, peak = program.run([])
        self.native[program.name] = {"seconds": round(seconds, 3), "peak_bytes": peak, "output": output}

    def run(self, program: Program, percent: int, prefetcher: str) -> dict:
        """One managed run; its output must be the native one."""
        native = self.native[program.name]
        local = native["peak_bytes"] * percent // 100
        stats = self.rows / f"{program.name}.json"
        far = f"compressed:{native['peak_bytes'] * 2}?link={self.link}"
        prefix = [str(self.launcher), "run", "--quiet", "--fault-path", "inline", "--local", str(local), "--far", far]
        seconds, output, _ = program.run([*prefix, "--prefetch", prefetcher, "--stats", str(stats), "--"])
        if output != native["output"]:
            raise SystemExit(f"{program.name} with {prefetcher}: '{output}' instead of '{native['output']}'")
        said = json.loads(stats.read_text())
        row = {"seconds": round(seconds, 3), "major_faults": said["major_faults"]}
        return row | {"accuracy": said["prefetch_accuracy"], "coverage": said["prefetch_coverage"]}


def one_at_a_time(bench: Bench, program: Program, percent: int, prefetchers: list[str], rounds: int) -> dict:
    runs: dict[str, list[dict]] = {prefetcher: [] for prefetcher in prefetchers}
    for turn in range(rounds):
        for step in range(len(prefetchers)):
            prefetcher = prefetchers[(turn + step) % len(prefetchers)]
            runs[prefetcher].append(bench.run(program, percent, prefetcher))
            print(f"{program.name} {percent} % {prefetcher}: {runs[prefetcher][-1]}", file=sys.stderr)
    row = {"program": program.name, "local_percent": percent, "native_seconds": bench.native[program.name]["seconds"], "runs": runs}
    seconds = {prefetcher: [run["seconds"] for run in own] for prefetcher, own in runs.items()}

    def ratio(of: str, by: str) -> dict:
        return spread([a / b for a, b in zip(seconds[of], seconds[by])])

    if "auto" in seconds:
        others = [prefetcher for prefetcher in prefetchers if prefetcher != "auto"]
        if "readahead" in seconds:
            row["readahead_by_auto"] = ratio("readahead", "auto")
        if others:
            best = min(others, key=lambda prefetcher: statistics.median(seconds[prefetcher]))
            row |= {"best_other": best, "auto_by_best_other": ratio("auto", best)}
    return row


def all_at_once(bench: Bench, chosen: list[Program], percent: int, prefetcher: str, rounds: int, alone: dict[str, float]) -> dict:
    """All programs side by side, beside each one's run alone and its share of the processors."""
    cores, seconds = os.cpu_count() or 1, {program.name: [] for program in chosen}
    for _ in range(rounds):
        with ThreadPoolExecutor(len(chosen)) as together:
            runs = together.map(lambda program: bench.run(program, percent, prefetcher), chosen)
            for program, run in zip(chosen, runs):
                seconds[program.name].append(run["seconds"])
    share = min(1.0, cores / len(chosen))
    beside = {name: spread([one * share / alone[name] for one in own]) for name, own in seconds.items()}
    return {
        "prefetcher": prefetcher,
        "local_percent": percent,
        "share_of_processors": share,
        "alone_seconds": alone,
        "seconds": seconds,
        "time_by_alone_and_share": beside,
    }


def targets(rows: list[dict], together: dict | None) -> list[dict]:
    """What the project has set itself, and what was reached."""
    found = []
    for row in rows:
        name = f"{row['program']}, {row['local_percent']} % local"
        if "auto_by_best_other" in row:
            reached = row["auto_by_best_other"]["median"]
            found.append({"target": f"{name}: auto beside the best other", "at_most": 1.0, "reached": reached, "met": reached <= 1.0})
    better = [row for row in rows if row.get("readahead_by_auto", {"median": 0})["median"] >= 1.3]
    names = sorted({row["program"] for row in better})
    found.append({"target": "programs where readahead takes 1.3 x auto's time", "at_least": 2, "reached": len(names), "met": len(names) >= 2})
    for name, ratio in (together or {"time_by_alone_and_share": {}})["time_by_alone_and_share"].items():
        reached = ratio["median"]
        found.append({"target": f"{name} beside the others, by its share", "at_most": 1.1, "reached": reached, "met": reached <= 1.1})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default="target", help="the build directory (default: target)")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--size", type=int, default=1024, help="data of each program in MiB (default: 1024)")
    parser.add_argument("--local", default="50,25", help="percents of the native peak that are local (default: 50,25)")
    parser.add_argument("--link", default="15us:10Gb/s", help="latency and bandwidth of far memory (default: 15us:10Gb/s)")
    parser.add_argument("--prefetch", default=",".join(PREFETCHERS), help="prefetchers (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    given = parser.parse_args()
    prefetchers, percents = given.prefetch.split(","), [int(word) for word in given.local.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        graph = Path(directory) / "graph"
        subprocess.run(["g++", "-O2", "-o", graph, HERE / "graph.cpp"], check=True)
        chosen = [program for program in programs(given.size, graph) if given.program is None or program.name in given.program]
        bench = Bench(given.target / "release/hinterland", given.link, Path(directory))
        for program in chosen:
            bench.measure_native(program)
        rows = [one_at_a_time(bench, program, percent, prefetchers, given.repeat) for program in chosen for percent in percents]
        together = None
        if "auto" in prefetchers and len(chosen) > 1:
            lowest = [row for row in rows if row["local_percent"] == percents[-1]]
            alone = {row["program"]: statistics.median(run["seconds"] for run in row["runs"]["auto"]) for row in lowest}
            together = all_at_once(bench, chosen, percents[-1], "auto", given.repeat, alone)
    result = {
        "what": "programs at a part of their native peak of resident memory under each prefetcher, inline fault path; the link is added to compressed RAM",
        "commands": ["benches/prefetchers.py " + " ".join(word for word in sys.argv[1:] if not word.startswith("/"))],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine(),
        "link": given.link,
        "size_mib": given.size,
        "native": {name: {key: of for key, of in native.items() if key != "output"} for name, native in bench.native.items()},
        "programs": rows,
        "all_at_once": together,
        "targets": targets(rows, together),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
