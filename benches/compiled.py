#!/usr/bin/env python3
"""Programs that are compiled with the compiler's plugin, beside the same programs without it, at a part of their memory over links.

Writes one JSON file. Seconds are those of the program's loops, without what fills their memory. Each round runs every variant, in an order
that rotates; a ratio is taken within each round, then the median. Every output is compared with the plain native run's."""
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, NamedTuple

from fault_paths import spread
from options import options
from tapes import PAGE_BYTES, PAGE_US
from workloads import HERE, LOCAL_MIN, origin


class Program(NamedTuple):
    """A source of `programs/`, with a plan of the same name."""

    source: str
    # Behind the compiler's name and before the source.
    flags: tuple[str, ...]
    # The program's arguments, for so many MiB.
    words: Callable[[int], list[str]]
    # What else the machine must have: a package, by a file of it.
    needs: str = ""
    # The part of the size without Hinterland that it runs with: its time grows faster than its data.
    alone_part: int = 1


def part_of(source: str, part: str) -> Program:
    """A part of a program, which is its first argument."""
    return Program(source, ("-O2",), lambda mib: [part, str(mib)])


PROGRAMS = {
    **{walk: part_of("walks.cpp", walk) for walk in ("edges", "sum", "sparse", "join")},
    # Left in the middle, walked in calls, and with checks of bounds.
    **{walk: part_of("searches.cpp", walk) for walk in ("find", "rank")},
    "checked": Program("checked.rs", ("-O",), lambda mib: [str(mib)]),
    "columns": Program("columns.cpp", ("-O2",), lambda mib: ["all", str(mib)]),
    "flow": Program("flow.cpp", ("-O2",), lambda mib: [str(mib)], "/usr/include/lemon/network_simplex.h", 8),
    "pagerank": Program("pagerank.rs", ("-O",), lambda mib: [str(mib)]),
    # 21 MiB of weights, and keys and values that fill the rest.
    "gpt2": Program("gpt2.c", ("-O3", "-march=native"), lambda mib: ["small", str(max(mib - 21, 8) * 2), "64"]),
}
# Which build runs, and under which prefetcher.
VARIANTS = ("plain/auto", "plain/leap", "plain/readahead", "hinted/auto")


def compiler(source: str, launcher: Path, hinted: bool) -> list[str]:
    kind = source.rsplit(".", 1)[1]
    if kind == "rs":
        return [launcher, "rustc"] if hinted else ["rustc", "-Clinker-plugin-lto", "-Clinker=clang-22", "-Clink-arg=-fuse-ld=lld"]
    plain, own = ("clang-22", "cc") if kind == "c" else ("clang++-22", "c++")
    return [launcher, own] if hinted else [plain]


def compile_both(launcher: Path, directory: Path, program: Program) -> None:
    source, ends = HERE / program.source, ["-lm"] if program.source.endswith(".c") else []
    ends = [*ends, "-llemon"] if program.needs else ends
    for kind, extra in (("plain", []), ("hinted", ["--far-plan", source.with_suffix(".plan")])):
        command = [*compiler(program.source, launcher, kind == "hinted"), *program.flags, *extra, source, "-o", directory / f"{source.stem}-{kind}", *ends]
        subprocess.run(command, check=True)


def built(directory: Path, program: Program, kind: str) -> Path:
    return directory / f"{Path(program.source).stem}-{kind}"


def text_bytes(program: Path) -> int:
    said = subprocess.run(["size", program], check=True, capture_output=True, text=True).stdout
    return int(said.splitlines()[1].split()[0])


def run(command: list, words: list[str]) -> tuple[float, str]:
    done = subprocess.run([*map(str, command), *words], check=True, capture_output=True, text=True)
    return float(re.search(r"^seconds (\S+)$", done.stderr, re.MULTILINE)[1]), done.stdout


def alone(directory: Path, walk: str, mib: int, rounds: int) -> dict:
    """Without Hinterland: what the versions of loops cost. Each round runs both builds, by turns first."""
    mib //= PROGRAMS[walk].alone_part
    seconds: dict[str, list[float]] = {"plain": [], "hinted": []}
    for turn in range(rounds):
        for kind in sorted(seconds, reverse=turn % 2 == 0):
            seconds[kind].append(run([built(directory, PROGRAMS[walk], kind)], PROGRAMS[walk].words(mib))[0])
    return {"walk": walk, "mib": mib, "seconds": seconds, "hinted_by_plain": spread([a / b for a, b in zip(seconds["hinted"], seconds["plain"])])}


def ceilings(native: float, link: str, moved: dict) -> dict:
    """What the hinted program cannot be quicker than, as it moves these bytes: by itself, by the link in the direction that carries more, and by
    the processors that it leaves to the pager."""
    gigabits = math.inf if link == "none" else float(link.split(":")[1].removesuffix("Gb/s"))
    free = max((os.cpu_count() or 1) - 1, 1)
    terms = {
        "native_seconds": native,
        "link_seconds": max(moved.values()) * 8 / (gigabits * 1e9),
        "pager_seconds": sum(moved.values()) / PAGE_BYTES * PAGE_US * 1e-6 / free,
    }
    return {name: round(seconds, 3) for name, seconds in terms.items()} | moved


def far(launcher: Path, directory: Path, walk: str, mib: int, local: int, link: str, rounds: int) -> dict:
    program = PROGRAMS[walk]
    words, expected = program.words(mib), run([built(directory, program, "plain")], program.words(mib))[1]
    native = statistics.median(run([built(directory, program, "hinted")], words)[0] for _ in range(rounds))
    stats = directory / "stats.json"
    runs: dict[str, list[dict]] = {variant: [] for variant in VARIANTS}
    for turn in range(rounds):
        for step in range(len(VARIANTS)):
            variant = VARIANTS[(turn + step) % len(VARIANTS)]
            kind, prefetch = variant.split("/")
            url = f"compressed:{mib * 4}M" + (f"?link={link}" if link != "none" else "")
            prefix = [launcher, "run", "--quiet", "--fault-path", "inline", "--local", local, "--far", url, "--prefetch", prefetch, "--stats", stats, "--"]
            seconds, output = run([*prefix, built(directory, program, kind)], words)
            if output != expected:
                raise SystemExit(f"{walk} as {variant}: '{output}' instead of '{expected}'")
            said = json.loads(stats.read_text())
            figures = ("major_faults", "prefetched_pages", "prefetch_unused_pages", "hint_fetched_pages", "hint_used_pages", "hint_evicted_pages", "hint_overwritten_pages", "stall_seconds")
            moved = {name: said["backends"][0][name] for name in ("bytes_in", "bytes_out")}
            runs[variant].append({"seconds": seconds} | {name: said[name] for name in figures} | moved)
            print(f"{walk} {link} {variant}: {runs[variant][-1]}", file=sys.stderr)
    seconds = {variant: [run["seconds"] for run in own] for variant, own in runs.items()}
    others = [variant for variant in VARIANTS if variant.startswith("plain")]
    best = min(others, key=lambda variant: statistics.median(seconds[variant]))
    ratios = {variant: spread([a / b for a, b in zip(seconds[variant], seconds["hinted/auto"])]) for variant in others}
    faults = {variant: statistics.median(run["major_faults"] for run in own) for variant, own in runs.items()}
    bound = ceilings(native, link, {name: statistics.median(run[name] for run in runs["hinted/auto"]) for name in ("bytes_in", "bytes_out")})
    reached = max(bound[name] for name in bound if name.endswith("_seconds")) / statistics.median(seconds["hinted/auto"])
    print(f"{walk} {link}: {bound}; {reached:.2f} of the highest of them", file=sys.stderr)
    return {"walk": walk, "link": link, "local_bytes": local, "runs": runs, "by_hinted": ratios, "best_without": best, "major_faults": faults,
            "ceilings": bound, "of_ceiling": round(reached, 3)}


def main() -> None:
    parser = options(__doc__, repeat=3, repeats="rounds over links")
    parser.add_argument("--repeat-alone", type=int, default=9, help="rounds without Hinterland (default: 9)")
    parser.add_argument("--size", type=int, default=64, help="data of each program in MiB (default: 64)")
    parser.add_argument("--local", default="25", help="parts of it that are local, in percent (default: %(default)s)")
    parser.add_argument("--size-alone", type=int, default=512, help="data without Hinterland in MiB (default: 512)")
    parser.add_argument("--link", default="none,5us:25Gb/s,15us:10Gb/s", help="links; none: compressed RAM (default: %(default)s)")
    parser.add_argument("--walk", default=",".join(PROGRAMS), help="programs (default: %(default)s)")
    given = parser.parse_args()
    launcher, walks = given.target / "release/hinterland", given.walk.split(",")
    # What is too little to run in is taken once.
    locals_bytes = list(dict.fromkeys(max(given.size * 2**20 * int(part) // 100, LOCAL_MIN) for part in given.local.split(",")))
    for walk in [walk for walk in walks if PROGRAMS[walk].needs and not Path(PROGRAMS[walk].needs).exists()]:
        print(f"{walk} is left out: {PROGRAMS[walk].needs} is not there", file=sys.stderr)
        walks.remove(walk)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sources = {program.source: program for program in (PROGRAMS[walk] for walk in walks)}
        for program in sources.values():
            compile_both(launcher, directory, program)
        text = {source: {kind: text_bytes(built(directory, program, kind)) for kind in ("plain", "hinted")} for source, program in sources.items()}
        result = {
            "bench": "compiled",
            "what": "programs compiled by clang 22, or rustc and lld 22, with the compiler's plugin and a plan, and without, on the inline fault path",
            **origin(launcher, "compiled.py"),
            "size_mib": given.size,
            "text_bytes": text,
            "alone": [alone(directory, walk, given.size_alone, given.repeat_alone) for walk in walks],
            "far": [
                far(launcher, directory, walk, given.size, local, link, given.repeat)
                for local in locals_bytes
                for link in given.link.split(",")
                for walk in walks
            ],
        }
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
