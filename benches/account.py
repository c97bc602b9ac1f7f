#!/usr/bin/env python3
"""Where the time goes that a program takes longer with half of its memory local than natively: an account by perf.

Samples of the processors' clock are sorted into buckets by what their stacks name (BUCKETS, the first that fits), apart for threads of the program, which
fault, and for the pager's own. What a thread waits is its reported stall less what its faults take of a processor. Writes one JSON file; without perf it
says so and writes none."""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from density import SQL
from options import options, those_named
from workloads import HERE, LOCAL_MIN, Program, origin

# What a sample is of: the first of these of which a function of its stack begins with one of the names. Kernel names are those of 6.1 to 6.18.
BUCKETS: dict[str, tuple[str, ...]] = {
    "TLB shootdown": ("flush_tlb_", "native_flush_tlb", "smp_call_function_", "on_each_cpu_", "arch_tlbbatch_flush"),
    "compression": ("LZ4_compress", "LZ4_", "ZSTD_compress", "ZSTD_", "HUF_", "FSE_"),
    "hash": ("twox_hash::",),
    "UFFDIO_COPY": ("mfill_atomic", "mcopy_atomic", "__mcopy_atomic"),
    "UFFDIO_ZEROPAGE": ("mfill_zeropage",),
    "move": ("move_pages", "userfaultfd_move"),
    "write-protect": ("mwriteprotect_range", "uffd_wp_range"),
    "reading": ("process_vm_rw",),
    "making pages exclusive": ("faultin_page_range",),
    "zap": ("zap_page_range", "vector_madvise", "do_madvise", "unmap_page_range"),
    "census": ("show_smap", "smaps_"),
    "signal delivery": ("force_sig", "arch_do_signal_or_restart", "x64_setup_rt_frame", "get_signal", "__x64_sys_rt_sig", "__do_sys_rt_sigreturn"),
    "fault entry": ("exc_page_fault", "asm_exc_page_fault", "handle_mm_fault"),
    "filter of system calls": ("__seccomp_filter", "syscall_trace_enter"),
    "sleeping and waking": ("do_futex", "__x64_sys_futex", "__schedule", "schedule", "try_to_wake_up"),
}
# What is part of a compressor's name but decompresses.
DECOMPRESSION = ("LZ4_decompress", "ZSTD_decompress", "HUF_decompress", "FSE_decompress")
ALLOCATOR = ("_rjem_", "arena_", "tcache_", "ticker_", "dlmalloc::")
LIBRARY = "libhinterland.so"
OWN_THREADS = "far-"
LAUNCHER = "hinterland"
# Of the program's threads: what is no work of a fault's, and what comes before the pager's clock begins.
PROGRAM = ("program", "allocator", "filter of system calls")
BEFORE_THE_CLOCK = ("signal delivery", "fault entry")
HERTZ = 997


def is_kernel(where: str) -> bool:
    return where.startswith("[") or where.endswith(".ko")


def bucket(stack: list[tuple[str, str]], is_own: bool) -> str:
    """Which bucket a sample belongs to, by its functions and their files, the innermost first."""
    names = [name for name, _ in stack]
    if any(name.startswith(DECOMPRESSION) for name in names):
        return "decompression"
    for found, begins in BUCKETS.items():
        if any(name.startswith(begins) for name in names):
            return found
    if not stack or is_kernel(stack[0][1]):
        return "kernel, other" if is_own else "program"
    if stack[0][1].endswith(LIBRARY):
        return "allocator" if names[0].startswith(ALLOCATOR) else "own code"
    return "own code" if is_own else "program"


def samples(script: str):
    """What `perf script -F comm,tid,period,ip,sym,dso` says: of each sample the thread's name, nanoseconds, functions with their files."""
    for block in script.strip().split("\n\n"):
        head, *lines = block.splitlines()
        said = re.match(r"\s*(.+?)\s+\d+\s+(\d+)\s*:?\s*$", head)
        if said is None:
            raise SystemExit(f"perf says of a sample: {head!r}")
        frames = [re.match(r"\s*[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \((.*)\)$", line) for line in lines]
        yield said[1], int(said[2]), [(frame[1], frame[2]) for frame in frames if frame]


def account(script: str) -> dict[str, dict[str, float]]:
    """Seconds of processors by bucket: of the program's threads, which fault, of the pager's own by name, of the launcher."""
    sums: dict[str, Counter] = defaultdict(Counter)
    for thread, period, stack in samples(script):
        if thread == LAUNCHER:
            sums["launcher"]["all"] += period
        elif thread.startswith(OWN_THREADS):
            sums[thread.removeprefix(OWN_THREADS)][bucket(stack, True)] += period
        else:
            sums["faulting"][bucket(stack, False)] += period
    return {threads: {name: round(ns / 1e9, 3) for name, ns in found.most_common()} for threads, found in sums.items()}


def programs(python: str, directory: Path, scale: float) -> list[Program]:
    held, sql = str(HERE / "held.py"), directory / "sqlite.sql"
    sql.write_text(SQL.split(".shell")[0].format(rows=round(600_000 * scale)))
    sizes = {"dictionaries": 400_000, "fft": 1_500, "frames": 700_000}
    of_python = [Program(name, [python, held, name, str(round(size * scale)), "1", "0"]) for name, size in sizes.items()]
    return [Program("sqlite", ["sqlite3", ":memory:", f".read {sql}"]), *of_python]


def recorded(directory: Path, program: Program, run: list[str], expected: str) -> dict[str, dict[str, float]]:
    """The account of a run of the program under `perf record`, behind the command `run`."""
    data = directory / "perf.data"
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-g", "-o", str(data), "--"]
    _, output, _ = program.run([*record, *run])
    if output != expected:
        raise SystemExit(f"{program.name}: '{output}' instead of '{expected}'")
    fields = ["perf", "script", "--no-inline", "-F", "comm,tid,period,ip,sym,dso", "-i", str(data)]
    return account(subprocess.run(fields, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout)


def measure(launcher: Path, directory: Path, program: Program, percent: int) -> dict:
    native_seconds, expected, peak = program.run([])
    native = recorded(directory, program, [], expected).get("faulting", {})
    local, stats = max(peak * percent // 100, LOCAL_MIN), directory / "stats.json"
    run = [str(launcher), "run", "--quiet", "--local", str(local), "--stats", str(stats), "--"]
    threads = recorded(directory, program, run, expected)
    figures = json.loads(stats.read_text())
    faulting = Counter(threads.get("faulting", {}))
    # The program has system calls, first touches and an end natively, too.
    faulting.subtract(native)
    in_faults = sum(seconds for name, seconds in faulting.items() if name not in PROGRAM + BEFORE_THE_CLOCK)
    before = sum(faulting[name] for name in BEFORE_THE_CLOCK)
    slower = sum(faulting[name] for name in PROGRAM)
    waiting = max(figures["stall_seconds"] - in_faults, 0)
    extra = figures["wall_seconds"] - native_seconds
    return {
        "program": program.name,
        "local_bytes": local,
        "major_faults": figures["major_faults"],
        "native_seconds": round(native_seconds, 3),
        "native_cpu_seconds": round(sum(native.values()), 3),
        "managed_seconds": figures["wall_seconds"],
        "extra_seconds": round(extra, 3),
        "stall_seconds": figures["stall_seconds"],
        "extra": {
            "work in faults": round(in_faults, 3),
            "signals and fault entry": round(before, 3),
            "waiting in faults": round(waiting, 3),
            "program slower than natively": round(slower, 3),
            "not accounted for": round(extra - in_faults - before - waiting - slower, 3),
        },
        "threads": threads,
        "native": native,
    }


def table(row: dict) -> str:
    """What is measured of a program, as text."""
    lines = [f"{row['program']}: {row['managed_seconds']:.2f} s, {row['extra_seconds']:.2f} more than natively; {row['major_faults']} major faults"]
    lines += [f"  {name:34} {seconds:8.2f} s  {100 * seconds / (row['extra_seconds'] or 1):5.1f} %" for name, seconds in row["extra"].items()]
    for threads, found in row["threads"].items():
        of_all = sum(found.values())
        lines.append(f"  {threads}: {of_all:.2f} s of processors")
        lines += [f"    {name:32} {seconds:8.2f} s  {100 * seconds / of_all:5.1f} %" for name, seconds in found.items()]
    return "\n".join(lines)


def obstacle() -> str | None:
    """Why perf cannot be used."""
    if shutil.which("perf") is None:
        return "perf is not installed (linux-perf, linux-tools)"
    with tempfile.NamedTemporaryFile() as data:
        tried = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-o", data.name, "--", "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"perf cannot record: {(tried.stderr.strip().splitlines() or ['no reason given'])[0]}"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--local", type=int, default=50, help="percent of the native peak of resident memory that is local (default: 50)")
    parser.add_argument("--scale", type=float, default=1, help="size of the programs beside that of density's (default: 1)")
    parser.add_argument("--program", action="append", help="one program; may be repeated (default: all)")
    given = parser.parse_args()
    why_not = obstacle()
    if why_not is not None:
        print(f"account is left out: {why_not}", file=sys.stderr)
        return
    launcher, rows = given.target.absolute() / "release/hinterland", []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for program in those_named(given.program, programs(sys.executable, directory, given.scale), parser):
            rows.append(measure(launcher, directory, program, given.local))
            print(table(rows[-1]), flush=True)
    result = {
        "bench": "account",
        "what": f"where the time goes that programs take longer with {given.local} % of their native peak local; seconds of one run under perf, "
        "samples by what their stacks name",
        **origin(launcher, "account.py"),
        "buckets": BUCKETS,
        "programs": rows,
    }
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
