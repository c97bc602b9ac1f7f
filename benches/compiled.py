#!/usr/bin/env python3
"""Programs that are compiled with the compiler's plugin, beside the same programs without it, at a part of their memory over links.

Writes one JSON file. Seconds are those of the program's loops, without what fills their memory. Each round runs every variant, in an order
that rotates; a ratio is taken within each round, then the median. Every output is compared with the plain native run's."""
import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from workloads import HERE, LOCAL_MIN, origin

WALKS = ("edges", "sum", "sparse", "join")
# Which build runs, and under which prefetcher.
VARIANTS = ("plain/auto", "plain/leap", "plain/readahead", "hinted/auto")


def compile_both(launcher: Path, directory: Path) -> None:
    source, plan = HERE / "walks.cpp", HERE / "walks.plan"
    subprocess.run(["clang++-22", "-O2", source, "-o", directory / "plain"], check=True)
    subprocess.run([launcher, "c++", "-O2", "--far-plan", plan, source, "-o", directory / "hinted"], check=True)


def text_bytes(program: Path) -> int:
    said = subprocess.run(["size", program], check=True, capture_output=True, text=True).stdout
    return int(said.splitlines()[1].split()[0])


def run(command: list, walk: str, mib: int) -> tuple[float, str]:
    done = subprocess.run([*map(str, command), walk, str(mib)], check=True, capture_output=True, text=True)
    return float(re.search(r"^seconds (\S+)$", done.stderr, re.MULTILINE)[1]), done.stdout


def alone(directory: Path, walk: str, mib: int, rounds: int) -> dict:
    """Without Hinterland: what the versions of loops cost. Each round runs both builds, by turns first."""
    seconds: dict[str, list[float]] = {"plain": [], "hinted": []}
    for turn in range(rounds):
        for kind in sorted(seconds, reverse=turn % 2 == 0):
            seconds[kind].append(run([directory / kind], walk, mib)[0])
    return {"walk": walk, "mib": mib, "seconds": seconds, "hinted_by_plain": spread([a / b for a, b in zip(seconds["hinted"], seconds["plain"])])}


def far(launcher: Path, directory: Path, walk: str, mib: int, local: int, link: str, rounds: int) -> dict:
    expected = run([directory / "plain"], walk, mib)[1]
    stats = directory / "stats.json"
    runs: dict[str, list[dict]] = {variant: [] for variant in VARIANTS}
    for turn in range(rounds):
        for step in range(len(VARIANTS)):
            variant = VARIANTS[(turn + step) % len(VARIANTS)]
            kind, prefetch = variant.split("/")
            url = f"compressed:{mib * 4}M" + (f"?link={link}" if link != "none" else "")
            prefix = [launcher, "run", "--quiet", "--fault-path", "inline", "--local", local, "--far", url, "--prefetch", prefetch, "--stats", stats, "--"]
            seconds, output = run([*prefix, directory / kind], walk, mib)
            if output != expected:
                raise SystemExit(f"{walk} as {variant}: '{output}' instead of '{expected}'")
            said = json.loads(stats.read_text())
            figures = ("major_faults", "prefetched_pages", "prefetch_unused_pages", "hint_fetched_pages", "hint_used_pages", "hint_evicted_pages")
            runs[variant].append({"seconds": seconds} | {name: said[name] for name in figures})
            print(f"{walk} {link} {variant}: {runs[variant][-1]}", file=sys.stderr)
    seconds = {variant: [run["seconds"] for run in own] for variant, own in runs.items()}
    others = [variant for variant in VARIANTS if variant.startswith("plain")]
    best = min(others, key=lambda variant: statistics.median(seconds[variant]))
    ratios = {variant: spread([a / b for a, b in zip(seconds[variant], seconds["hinted/auto"])]) for variant in others}
    faults = {variant: statistics.median(run["major_faults"] for run in own) for variant, own in runs.items()}
    return {"walk": walk, "link": link, "local_bytes": local, "runs": runs, "by_hinted": ratios, "best_without": best, "major_faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default="target", help="the build directory (default: target)")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--repeat", type=int, default=3, help="rounds over links (default: 3)")
    parser.add_argument("--repeat-alone", type=int, default=9, help="rounds without Hinterland (default: 9)")
    parser.add_argument("--size", type=int, default=64, help="data of each program in MiB; a quarter is local (default: 64)")
    parser.add_argument("--size-alone", type=int, default=512, help="data without Hinterland in MiB (default: 512)")
    parser.add_argument("--link", default="none,5us:25Gb/s,15us:10Gb/s", help="links; none: compressed RAM (default: %(default)s)")
    parser.add_argument("--walk", default=",".join(WALKS), help="programs (default: %(default)s)")
    given = parser.parse_args()
    launcher, walks = given.target / "release/hinterland", given.walk.split(",")
    local = max(given.size * 2**20 // 4, LOCAL_MIN)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        compile_both(launcher, directory)
        text = {kind: text_bytes(directory / kind) for kind in ("plain", "hinted")}
        result = {
            "bench": "compiled",
            "what": "loops of walks.cpp, compiled by clang 22 with the compiler's plugin and a plan, and without, on the inline fault path",
            **origin(launcher, "compiled.py"),
            "size_mib": given.size,
            "text_bytes": text,
            "alone": [alone(directory, walk, given.size_alone, given.repeat_alone) for walk in walks],
            "far": [far(launcher, directory, walk, given.size, local, link, given.repeat) for link in given.link.split(",") for walk in walks],
        }
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
