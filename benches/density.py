#!/usr/bin/env python3
"""How many pages programs fill under Hinterland's allocator beside glibc's, with everything local: at the peak, and five seconds after they freed it.

Far pages are the pager's own count (resident_managed_peak_bytes), and at rest what the kernel says of the far range; native pages are
anonymous memory outside stacks and files' mappings. Pages with content are those of a run that maps no zeros ahead of first touches
(--read-ahead 0); what the default maps stands beside them. Nothing here is a time. Writes one JSON file.

--classes: what the far heap holds by size class at its peak instead, by a library that counts it (the feature heap-account)."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workloads import origin

HERE = Path(__file__).parent
PAGE_BYTES = 4096
RATIO_MAX = 1.03
NEAR_BYTES_MAX = 20 << 20
FAR = range(0x4800_0000_0000, 0x5400_0000_0000)
# Classes in the table for people: those that lose most.
CLASSES_SHOWN = 12
SQL = (HERE / "programs/orders.sql").read_text() + ".open :memory:\n.shell sleep 5\n"


def programs(python: str, sql: Path) -> dict[str, list[str]]:
    held = str(HERE / "programs/held.py")
    sql.write_text(SQL.format(rows=600000))
    return {
        "sqlite": ["sqlite3", ":memory:", f".read {sql}"],
        "dictionaries": [python, held, "dictionaries", "400000"],
        "fft": [python, held, "fft", "1500"],
        "frames": [python, held, "frames", "700000"],
    }


def anonymous_kib(pid: int) -> tuple[int, int, int]:
    """KiB of anonymous memory in the far range, in other mappings without a file, and in stacks and files' mappings."""
    found, kind = [0, 0, 0], 2
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            name = rest[4] if len(rest) > 4 else ""
            far = int(first.split("-")[0], 16) in FAR
            kind = 0 if far else 1 if name in ("", "[heap]") or name.startswith("[anon") else 2
        elif first == "Anonymous:":
            found[kind] += int(rest[0])
    return tuple(found)


def resident_kib(pid: int) -> int:
    """RssAnon: one file, cheap enough to be read all the time."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0])


def child_of(pid: int) -> int | None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def watch(command: list[str], managed: bool) -> tuple[str, int, tuple[int, int, int]]:
    """The command's output, its peak of RssAnon in KiB, and its anonymous memory at rest, before it ended."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)
        peak, rest, rested = 0, (0, 0, 0), 0.0
        while process.poll() is None:
            try:
                pid = child_of(process.pid) if managed else process.pid
                if pid is not None:
                    peak = max(peak, resident_kib(pid))
                    if time.monotonic() > rested + 0.2:
                        rest, rested = anonymous_kib(pid), time.monotonic()
            except (FileNotFoundError, ProcessLookupError, KeyError):
                pass
            time.sleep(0.003)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
        output.seek(0)
        return output.read(), peak, rest


def native(command: list[str]) -> tuple[str, dict]:
    output, peak, (_, held, others) = watch(command, False)
    return output, {"peak_pages": (peak - others) * 1024 // PAGE_BYTES, "rest_pages": held * 1024 // PAGE_BYTES}


def managed(launcher: Path, command: list[str], options: list[str]) -> tuple[str, dict]:
    with tempfile.NamedTemporaryFile() as statistics_file:
        run = [str(launcher), "run", "--quiet", "--local", "2G", "--stats", statistics_file.name, *options, "--", *command]
        output, _, (far, near, _) = watch(run, True)
        figures = json.loads(Path(statistics_file.name).read_text())
    return output, {
        "peak_pages": figures["resident_managed_peak_bytes"] // PAGE_BYTES,
        "rest_pages": far * 1024 // PAGE_BYTES,
        "near_bytes": near * 1024,
        "touched_pages": figures["touched_pages"],
        "first_touch_faults": figures["first_touch_faults"],
    }


def heap_account(launcher: Path, library: Path, command: list[str]) -> dict:
    """The far heap of a run with everything local, by size class, when most of it was active."""
    with tempfile.TemporaryDirectory() as folder:
        run = [str(launcher), "run", "--quiet", "--local", "2G", "--read-ahead", "0", "--", *command]
        environment = os.environ | {"HINTERLAND_LIBRARY": str(library.absolute()), "HINTERLAND_TEST_HEAP_ACCOUNT": folder}
        subprocess.run(run, check=True, env=environment, stdout=subprocess.DEVNULL)
        accounts = [json.loads(file.read_text()) for file in Path(folder).iterdir()]
    if not accounts:
        raise SystemExit(f"{library}: no account was written; is it built with the feature heap-account?")
    return max(accounts, key=lambda account: account["active_bytes"])


def with_sums(account: dict) -> dict:
    """The account with sums over all classes, and what each class loses by rounding and in slabs; those that lose most come first."""
    rows = [row | {"lost_bytes": row["rounded_bytes"] - row["requested_bytes"] + row["unused_bytes"]} for row in account["classes"]]
    rows.sort(key=lambda row: -row["lost_bytes"])
    names = ("requested_bytes", "rounded_bytes", "unused_bytes", "lost_bytes")
    return {**{name: sum(row[name] for row in rows) for name in names}, **account, "classes": rows}


def account_table(name: str, account: dict) -> str:
    """The account for people."""

    def mib(count: int) -> str:
        return f"{count / 2**20:9.2f}"

    columns = ("requested", "rounded", "unused", "lost")
    whole = ("active", *columns, "dirty", "cached")
    lines = [f"{name}, MiB: " + ", ".join(f"{word} {mib(account[f'{word}_bytes']).strip()}" for word in whole)]
    lines.append(" ".join(f"{word:>9}" for word in ("class", "objects", *columns)))
    for row in account["classes"][:CLASSES_SHOWN]:
        lines.append(f"{row['class']:>9} {row['objects']:9} " + " ".join(mib(row[f"{word}_bytes"]) for word in columns))
    return "\n".join(lines)


def classes(given: argparse.Namespace) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for name, command in programs(given.python, Path(directory) / "sqlite.sql").items():
            if given.only in (None, name):
                account = with_sums(heap_account(given.launcher, given.heap_account, command))
                rows.append({"program": name, **account})
                print(account_table(name, account), flush=True)
    result = {
        "bench": "density-classes",
        "what": "the far heap by size class when most of it was active, everything local; requested: the share that was requested of all that "
                "the class gave",
        **origin(given.launcher, "density.py"),
        "programs": rows,
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


def median(rows: list[dict]) -> dict:
    return {key: round(statistics.median(row[key] for row in rows)) for key in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", type=Path, default="target/release/hinterland", help="the build that is measured")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each program and allocator; their median counts (default: 3)")
    parser.add_argument("--python", default=".venv/bin/python" if os.path.exists(".venv/bin/python") else sys.executable)
    parser.add_argument("--only", help="one program")
    parser.add_argument("--classes", action="store_true", help="the far heap by size class instead")
    parser.add_argument("--heap-account", type=Path, default="target/heap-account/release/libhinterland.so", help="the library for --classes")
    given = parser.parse_args()
    if given.classes:
        classes(given)
        return
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for name, command in programs(given.python, Path(directory) / "sqlite.sql").items():
            if given.only and name != given.only:
                continue
            found: tuple[list[dict], ...] = ([], [], [])
            for _ in range(given.repeat):
                theirs, plain = native(command)
                ours, far = managed(given.launcher, command, ["--read-ahead", "0"])
                by_default, resident = managed(given.launcher, command, [])
                if {ours, by_default} != {theirs}:
                    raise SystemExit(f"{name}: {ours!r} and {by_default!r} instead of {theirs!r}")
                for rows_of, figures in zip(found, (plain, far, resident)):
                    rows_of.append(figures)
            plain, far, resident = (median(figures) for figures in found)
            row = {"program": name, "native": plain, "content": far, "default": resident}
            row["peak_ratio"] = round(far["peak_pages"] / plain["peak_pages"], 3)
            row["default_peak_ratio"] = round(resident["peak_pages"] / plain["peak_pages"], 3)
            row["rest_ratio"] = round(far["rest_pages"] / plain["rest_pages"], 3)
            row["met"] = max(row["peak_ratio"], row["rest_ratio"]) <= RATIO_MAX and far["near_bytes"] <= NEAR_BYTES_MAX
            rows.append(row)
            print(f"{name:14} peak {plain['peak_pages']:7} → {far['peak_pages']:7} pages, {row['peak_ratio']:.3f} ×, {row['default_peak_ratio']:.3f} × "
                  f"with zeros ahead; at rest {plain['rest_pages']:6} → {far['rest_pages']:6}; near {far['near_bytes'] / 2**20:.1f} MiB", flush=True)
    result = {
        "bench": "density",
        "what": f"pages with content, everything local, beside glibc's: medians of {given.repeat} runs; "
                f"target: at most {RATIO_MAX} × at the peak and at rest, near memory at most {NEAR_BYTES_MAX >> 20} MiB",
        **origin(given.launcher, "density.py"),
        "programs": rows,
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
