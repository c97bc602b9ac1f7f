"""Programs that benches run, natively and managed, and what all such benches have in common.

A program's standard output is its result: a managed run must print what the native one does."""
import datetime
import hashlib
import json
import math
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

from fault_paths import machine

HERE = Path(__file__).absolute().parent / "programs"
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


class Sort(Program):
    """GNU sort in memory, in one thread; its result is a digest of the file that it writes."""

    def __init__(self, mib: int, directory: Path) -> None:
        self.input, self.sorted = directory / "lines", directory / "sorted"
        chance = random.Random(3)
        # A line takes its 401 bytes and 32 of sort's own. Written one by one: the peak of a child is at least what this process has.
        with self.input.open("w") as lines:
            for _ in range(mib * 2**20 // 433):
                lines.write(f"{chance.getrandbits(64):020}" * 20 + "\n")
        super().__init__("sort", ["sort", "--parallel=1", "-S", f"{mib * 8}M", "-o", str(self.sorted), str(self.input)])

    def run(self, prefix: list[str]) -> tuple[float, str, int]:
        seconds, _, peak = super().run(prefix)
        with self.sorted.open("rb") as lines:
            digest = hashlib.file_digest(lines, "sha256").hexdigest()
        self.sorted.unlink()
        return seconds, digest, peak


def graph(directory: Path) -> Path:
    """The graph program, built."""
    built = directory / "graph"
    subprocess.run(["g++", "-O2", "-o", built, HERE / "graph.cpp"], check=True)
    return built


def graph_words(mib: int, vertex_bytes: int, edges: int = 16) -> list[str]:
    """SCALE and EDGES of a graph of so many MiB, with so many edges of a vertex, or more: 8 bytes for each vertex, 4 for each edge, and what the work has of
    a vertex."""
    scale = (mib * 2**20 // (8 + 4 * edges + vertex_bytes)).bit_length() - 1
    return [str(scale), str(((mib * 2**20 >> scale) - 8 - vertex_bytes) // 4)]


def programs(mib: int, large_mib: int, graph: Path, edges: int = 16) -> list[Program]:
    """All of them with about `mib` MiB of data; PageRank, which goes through its edges in order, with `large_mib`."""

    def scale(mib: int) -> str:
        """The graph has 4 bytes for each edge, and 20 for each vertex."""
        return str(max(14, round(math.log2(mib * 2**20 / (20 + 4 * edges)))))

    return [
        Program("pagerank", [str(graph), "rank", scale(large_mib), str(edges)]),
        Program("matmul", [sys.executable, str(HERE / "matmul.py"), str(mib)]),
        Program("search", [str(graph), "search", scale(mib), str(edges)]),
        Program("sql", [sys.executable, str(HERE / "tables.py"), str(mib * 2**20 // 250)]),
        Memcached(mib),
    ]


class Bench:
    """Native and managed runs."""

    def __init__(self, launcher: Path, far: str, directory: Path) -> None:
        self.launcher, self.far, self.directory = launcher, far, directory
        self.native: dict[str, dict] = {}

    def measure_native(self, program: Program) -> None:
        seconds, output, peak = program.run([])
        self.native[program.name] = {"seconds": round(seconds, 3), "peak_bytes": peak, "output": output}

    def run(self, program: Program, local: int, options: list[str]) -> tuple[float, dict]:
        """Seconds and `--stats` of a run on the inline path; its output must be the native one."""
        return self.run_over(program, local, [f"compressed:{self.native[program.name]['peak_bytes'] * 2}{self.far}"], options)

    def run_over(self, program: Program, local: int, paths: list[str], options: list[str]) -> tuple[float, dict]:
        """The same over several paths to far memory."""
        stats = self.directory / f"{program.name}.json"
        far = [word for path in paths for word in ("--far", path)]
        prefix = [str(self.launcher), "run", "--quiet", "--fault-path", "inline", "--local", str(local), *far]
        seconds, output, _ = program.run([*prefix, *options, "--stats", str(stats), "--"])
        self.check(program, output, " ".join([*far, *options]))
        return round(seconds, 3), json.loads(stats.read_text())

    def check(self, program: Program, output: str, how: str) -> None:
        native = self.native[program.name]["output"]
        if output != native:
            raise SystemExit(f"{program.name} with {how}: '{output}' instead of '{native}'")


class Lines:
    """What was measured before a later run failed, in a file beside the result: a bench that is begun again with the same parameters
    goes on there. The first line has the parameters; with others the file is ignored."""

    def __init__(self, output: Path, parameters: dict) -> None:
        self.path = output.with_suffix(".rows")
        self.lines: list[dict] = [parameters]
        there = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        if there[:1] == self.lines:
            self.lines = there

    def add(self, line: dict) -> None:
        self.lines.append(line)
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class Rows(Lines):
    """Rows of programs at parts of their memory."""

    def __init__(self, output: Path, parameters: dict, bench: Bench) -> None:
        super().__init__(output, parameters)
        self.bench = bench
        for line in self.lines[1:]:
            bench.native |= line.get("native", {})

    def rows(self) -> list[dict]:
        return [line for line in self.lines if "wanted_percent" in line]

    def has(self, program: Program, percent: int) -> bool:
        return any((row["program"], row["wanted_percent"]) == (program.name, percent) for row in self.rows())

    def measure_natives(self, programs: list[Program]) -> None:
        """Those that are not there yet. They belong to the rows, which are compared with them."""
        for program in programs:
            if program.name not in self.bench.native:
                self.bench.measure_native(program)
                self.add({"native": {program.name: self.bench.native[program.name]}})


def build(launcher: Path) -> dict:
    """Which Hinterland is measured: its version, the commit of this directory, and a digest of the program and its library."""
    digest = hashlib.sha256()
    for path in (launcher, launcher.with_name("libhinterland.so")):
        # In pieces: the peak of a child, which decides how much is local, is at least that of this process.
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return {**version(launcher), "build": digest.hexdigest()[:16]}


def version(program: Path) -> dict:
    """The version that a program says, and the commit of this directory."""
    words = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()
    said = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True)
    return {"version": words[-1], "commit": said.stdout.strip() or None}


def when_and_where() -> dict:
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": machine()}


def origin(launcher: Path, script: str) -> dict:
    """Where a result is from."""
    words = (word for word in sys.argv[1:] if not word.startswith("/"))
    return {
        "commands": [" ".join([f"benches/{script}", *words])],
        **build(launcher),
        **when_and_where(),
    }


def origin_of_model(model: Path, commands: list[str]) -> dict:
    """Where figures of `hinterland-model` are from."""
    return {"commands": commands, **version(model), "build": hashlib.sha256(model.read_bytes()).hexdigest()[:16], **when_and_where()}
