#!/usr/bin/env python3
"""Programs at a part of their memory under every prefetcher, one at a time and all at once, over a link that is not there.

Writes one JSON file. Each round runs every program with every prefetcher, in an order that rotates; a ratio is taken within each
round, then the median. Every output is compared with the native run's."""
import argparse
import datetime
import json
import math
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
PREFETCHERS = ("none", "readahead", "stride", "leap", "streams", "auto", "auto@4M")
RANDOM = ("search", "sql", "memcached")
LOCAL_MIN = 16 << 20
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


def programs(mib: int, large_mib: int, graph: Path) -> list[Program]:
    """All of them with about `mib` MiB of data; PageRank, which goes through its edges in order, with `large_mib`."""

    def scale(mib: int) -> str:
        """The graph has 84 bytes for each vertex with 16 edges."""
        return str(max(16, round(math.log2(mib * 2**20 / 84))))

    return [
        Program("pagerank", [str(graph), "rank", scale(large_mib), "16"]),
        Program("matmul", [sys.executable, str(HERE / "matmul.py"), str(mib)]),
        Program("search", [str(graph), "search", scale(mib), "16"]),
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

    def local_bytes(self, program: Program, percent: int) -> int:
        return max(self.native[program.name]["peak_bytes"] * percent // 100, LOCAL_MIN)

    def run(self, program: Program, percent: int, prefetcher: str) -> dict:
        """One managed run; its output must be the native one."""
        native = self.native[program.name]
        local = self.local_bytes(program, percent)
        stats = self.rows / f"{program.name}.json"
        far = f"compressed:{native['peak_bytes'] * 2}?link={self.link}"
        prefix = [str(self.launcher), "run", "--quiet", "--fault-path", "inline", "--local", str(local), "--far", far]
        name, _, cache = prefetcher.partition("@")
        bound = ["--prefetch-cache", cache] if cache else []
        seconds, output, _ = program.run([*prefix, "--prefetch", name, *bound, "--stats", str(stats), "--"])
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
    local = round(100 * bench.local_bytes(program, percent) / bench.native[program.name]["peak_bytes"])
    row = {"program": program.name, "wanted_percent": percent, "local_percent": local, "native_seconds": bench.native[program.name]["seconds"], "runs": runs}
    seconds = {prefetcher: [run["seconds"] for run in own] for prefetcher, own in runs.items()}

    def ratio(of: str, by: str) -> dict:
        return spread([a / b for a, b in zip(seconds[of], seconds[by])])

    for prefetcher in prefetchers:
        unbounded, _, cache = prefetcher.partition("@")
        if cache and unbounded in seconds:
            row.setdefault("bounded_by_unbounded", {})[prefetcher] = ratio(prefetcher, unbounded)
    if "auto" in seconds:
        others = [prefetcher for prefetcher in prefetchers if prefetcher != "auto" and "@" not in prefetcher]
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
        "alone_seconds": {name: alone[name] for name in seconds},
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
        for prefetcher, ratio in row.get("bounded_by_unbounded", {}).items():
            if row["program"] not in RANDOM:
                reached = ratio["median"]
                found.append({"target": f"{name}: {prefetcher} beside no bound", "at_most": 1.1, "reached": reached, "met": reached <= 1.1})
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
    parser.add_argument("--size", type=int, default=128, help="data of each program but PageRank in MiB (default: 128)")
    parser.add_argument("--large-size", type=int, default=1280, help="data of PageRank in MiB (default: 1280)")
    parser.add_argument("--local", default="50,25", help="percents of the native peak that are local (default: 50,25)")
    parser.add_argument("--link", default="15us:10Gb/s", help="latency and bandwidth of far memory (default: 15us:10Gb/s)")
    parser.add_argument("--prefetch", default=",".join(PREFETCHERS), help="prefetchers, with @SIZE behind a bound on what came ahead (default: %(default)s)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    given = parser.parse_args()
    prefetchers, percents = given.prefetch.split(","), [int(word) for word in given.local.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        graph = Path(directory) / "graph"
        subprocess.run(["g++", "-O2", "-o", graph, HERE / "graph.cpp"], check=True)
        every = programs(given.size, given.large_size, graph)
        chosen = [program for program in every if given.program is None or program.name in given.program]
        bench = Bench(given.target / "release/hinterland", given.link, Path(directory))
        for program in chosen:
            bench.measure_native(program)
        # What was measured is kept when a later run fails, and a bench that is begun again goes on there.
        path = given.output.with_suffix(".rows")
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        there = {(row["program"], row["wanted_percent"]) for row in rows}
        for program, percent in ((program, percent) for program in chosen for percent in percents):
            if (program.name, percent) not in there:
                rows.append(one_at_a_time(bench, program, percent, prefetchers, given.repeat))
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        together = None
        alike = [program for program in chosen if program.name != "pagerank"]
        if "auto" in prefetchers and len(alike) > 1:
            first = [row for row in rows if row["wanted_percent"] == percents[0]]
            alone = {row["program"]: statistics.median(run["seconds"] for run in row["runs"]["auto"]) for row in first}
            together = all_at_once(bench, alike, percents[0], "auto", given.repeat, alone)
    result = {
        "bench": "prefetchers",
        "what": "programs at a part of their native peak of resident memory under each prefetcher, inline fault path; the link is added to compressed RAM",
        "commands": ["benches/prefetchers.py " + " ".join(word for word in sys.argv[1:] if not word.startswith("/"))],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine(),
        "link": given.link,
        "size_mib": given.size,
        "large_size_mib": given.large_size,
        "native": {name: {key: of for key, of in native.items() if key != "output"} for name, native in bench.native.items()},
        "programs": rows,
        "all_at_once": together,
        "targets": targets(rows, together),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
