#!/usr/bin/env python3
"""What a switch of far memory takes: `hinterland set PID --add-far NEW --drop-far OLD` for each pair of paths.

Paths are compressed RAM, a file on the disk, and memory nodes of this bench's own over TCP and over a Unix socket. One program sleeps and another checks random pages
(`programs/switches.cpp`), both on the inline path; the far memory of each goes from path to path, in an order in which most switches begin where the last one ended. The *bound* of a switch is the slower of loading its pages from
the one path and storing them at the other, each by itself in one thread (`examples/switches`), or 4 µs a page if that is more. Writes one JSON file."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import permutations
from pathlib import Path

from fault_paths import spread
from granularity import compiled
from options import options
from sub_page import Node
from workloads import Lines, build, origin

PAGE_BYTES, PAGE_SECONDS = 4096, 4e-6
# Wanted at most: an idle switch by its bound; a busy one, the time of a check in it by the slower of those before and after, and its longest one by the longest of those, or this.
IDLE, BUSY, SLOWER, LONGEST, LONGEST_SECONDS = 1.2, 3.0, 1.3, 2.0, 0.020
# Any switch takes less than its bound and so many seconds.
BEYOND_SECONDS = 5.0


class Run:
    """A program under Hinterland whose far memory is at one path."""

    def __init__(self, given, directory: Path, program: str, mode: str, urls: dict[str, str], at: str) -> None:
        self.launcher, self.urls, self.at = given.target.absolute() / "release/hinterland", urls, at
        self.environment = os.environ | {"XDG_RUNTIME_DIR": str(directory)}
        words = [self.launcher, "run", "--quiet", "--insecure-loopback", "--fault-path", "inline", "--local", f"{given.local}M", "--far", urls[at]]
        words += ["--", program, str(given.size + given.local), mode]
        self.process = subprocess.Popen(words, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")

    def expect(self, word: str) -> None:
        said = self.process.stdout.readline().strip()
        if said != word:
            raise SystemExit(f"the program at {self.at}: '{said}' instead of '{word}'")

    def checks(self) -> tuple[int, float, float]:
        """How many the program has made since the last call, in how many seconds, and the longest seconds of one."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        count, seconds, longest = self.process.stdout.readline().split()
        return int(count), float(seconds), float(longest)

    def control(self, *words: str) -> str:
        done = subprocess.run([self.launcher, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"hinterland {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def switch(self, to: str) -> tuple[float, int]:
        """Seconds of the command, and pages that were to move."""
        # What the launcher tells is as old as the process's last figures.
        time.sleep(0.5)
        [run] = [run for run in json.loads(self.control("ps", "--json"))["runs"] if run["pid"] == self.process.pid]
        begun = time.monotonic()
        self.control("set", str(self.process.pid), "--add-far", self.urls[to], "--drop-far", self.urls[self.at], "--wait", "120")
        self.at = to
        return time.monotonic() - begun, sum(path["far_bytes"] for path in run["paths"]) // PAGE_BYTES

    def end(self) -> None:
        self.process.stdin.close()
        self.expect("right")
        if self.process.wait() != 0:
            raise SystemExit(f"the program ended with {self.process.returncode}")


def sides(given, urls: dict[str, str]) -> dict[str, dict[str, float]]:
    """Seconds in which each path stores a page, and loads one."""
    words = [given.target.absolute() / "release/examples/switches", "--sides", str(given.size), *urls.values()]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    pages = given.size * 2**20 // PAGE_BYTES
    found = {}
    for name, line in zip(urls, lines, strict=True):
        _, stored, loaded = line.split("\t")
        found[name] = {word: float(text.split()[1]) / pages for word, text in (("stored", stored), ("loaded", loaded))}
    return found


def in_order(pairs: list[tuple[str, str]], at: str):
    """The pairs, each of which begins where the last one ended if one does."""
    left = list(pairs)
    while left:
        # Where most begin that are left, so that the way does not end before all are done.
        there = [pair for pair in left if pair[0] == at] or left
        pair = max(there, key=lambda pair: sum(other[0] == pair[1] for other in left))
        left.remove(pair)
        at = pair[1]
        yield pair


def measure(given, run: Run, pair: tuple[str, str], busy: bool, path_sides: dict) -> dict:
    before = after = None
    if busy:
        run.checks()
        time.sleep(given.seconds)
        before = run.checks()
    seconds, pages = run.switch(pair[1])
    meanwhile = run.checks() if busy else None
    if busy:
        time.sleep(given.seconds)
        after = run.checks()
    bound = pages * max(path_sides[pair[0]]["loaded"], path_sides[pair[1]]["stored"], PAGE_SECONDS)
    row = {"from": pair[0], "to": pair[1], "busy": busy, "pages": pages, "seconds": round(seconds, 3), "bound_seconds": round(bound, 3), "by_bound": round(seconds / bound, 3)}
    if busy:
        times = [spent / max(count, 1) for count, spent, _ in (before, meanwhile, after)]
        row |= {
            "check_us": [round(of * 1e6, 2) for of in times],
            "slower": round(times[1] / max(times[0], times[2]), 3),
            "longest_ms": [round(longest * 1e3, 1) for _, _, longest in (before, meanwhile, after)],
        }
    return row


def summary(rows: list[dict]) -> list[dict]:
    """The rounds of each pair together."""
    found = []
    for key in dict.fromkeys((row["busy"], row["from"], row["to"]) for row in rows):
        own = [row for row in rows if (row["busy"], row["from"], row["to"]) == key]
        line = {"from": key[1], "to": key[2], "busy": key[0], "by_bound": spread([row["by_bound"] for row in own])}
        line |= {name: statistics.median(row[name] for row in own) for name in ("pages", "seconds", "bound_seconds")}
        if key[0]:
            line["slower"] = spread([row["slower"] for row in own])
            line["longest_ms"] = statistics.median(row["longest_ms"][1] for row in own)
            line["longest_without_ms"] = statistics.median(max(row["longest_ms"][0], row["longest_ms"][2]) for row in own)
        found.append(line)
    return found


def targets(lines: list[dict]) -> list[dict]:
    """What the project has set itself, and what was reached."""
    found = []
    for line in lines:
        pair, most = f"{line['from']} to {line['to']}", BUSY if line["busy"] else IDLE
        figures = [("seconds, by the bound and five", line["seconds"], round(line["bound_seconds"] + BEYOND_SECONDS, 3))]
        figures += [("busy, seconds by bound" if line["busy"] else "idle, seconds by bound", line["by_bound"]["median"], most)]
        if line["busy"]:
            figures.append(("busy, time of a check by without", line["slower"]["median"], SLOWER))
            figures.append(("busy, longest check, ms", line["longest_ms"], max(LONGEST_SECONDS * 1e3, LONGEST * line["longest_without_ms"])))
        found += [{"target": f"{pair}: {what}", "at_most": most, "reached": reached, "met": reached <= most} for what, reached, most in figures]
    return found


def main() -> None:
    parser = options(__doc__, repeat=2)
    parser.add_argument("--size", type=int, default=1024, help="MiB that are switched (default: 1024)")
    parser.add_argument("--local", type=int, default=256, help="MiB that are local beside these (default: 256)")
    parser.add_argument("--seconds", type=float, default=2, help="seconds for which a busy program is watched before and after each switch (default: 2)")
    parser.add_argument("--path", default="compressed,file,tcp,unix", help="paths (default: %(default)s)")
    parser.add_argument("--disk", default=".", help="the directory of the file (default: here)")
    parser.add_argument("--only", choices=("idle", "busy"), help="one of both programs alone")
    parser.add_argument("--note", help="what a reader should know, such as what else ran on the machine")
    given = parser.parse_args()
    launcher, room = given.target.absolute() / "release/hinterland", 2 * (given.size + given.local)
    with tempfile.TemporaryDirectory() as name, Node(launcher, room) as tcp, Node(launcher, room, f"unix:{name}/node.sock") as unix:
        directory = Path(name)
        every = {"compressed": f"compressed:{room}M", "file": f"file:{Path(given.disk).absolute()}?size={room}M", "tcp": tcp.url, "unix": unix.url}
        urls = {path: every[path] for path in given.path.split(",")}
        program = compiled(directory, "switches.cpp")
        parameters = {key: getattr(given, key) for key in ("repeat", "size", "local", "seconds", "path", "disk")}
        lines = Lines(given.output, {**parameters, "build": build(launcher)["build"]})
        if not any("sides" in line for line in lines.lines):
            lines.add({"sides": sides(given, urls)})
        path_sides = next(line["sides"] for line in lines.lines if "sides" in line)
        pairs = list(permutations(urls, 2))
        for busy in (mode == "busy" for mode in (["idle", "busy"] if given.only is None else [given.only])):
            rows = lambda: [line for line in lines.lines if line.get("busy") is busy]
            times = lambda pair: sum((row["from"], row["to"]) == pair for row in rows())
            if all(times(pair) >= given.repeat for pair in pairs):
                continue
            start = lambda at: Run(given, directory, program, "busy" if busy else "idle", urls, at)
            run = start(pairs[0][0])
            for turn in range(given.repeat):
                for pair in in_order([pair for pair in pairs if times(pair) <= turn], run.at):
                    if run.at != pair[0]:
                        run.end()
                        run = start(pair[0])
                    lines.add(measure(given, run, pair, busy, path_sides))
                    print(lines.lines[-1], file=sys.stderr)
            run.end()
    lines_of_pairs = summary([line for line in lines.lines if "from" in line])
    result = {
        "bench": "switches",
        "what": "far memory of one process moves from a path to another while it runs, inline path; nodes on the same machine; pages of which half is random",
        **origin(launcher, "switches.py"),
        **({"note": given.note} if given.note else {}),
        "size_mib": given.size,
        "local_mib": given.local,
        "seconds_for_a_page_alone": path_sides,
        "pairs": lines_of_pairs,
        "rounds": [line for line in lines.lines if "from" in line],
        "targets": targets(lines_of_pairs),
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    lines.remove()


if __name__ == "__main__":
    main()
