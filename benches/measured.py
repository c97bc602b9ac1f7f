"""Programs in memory cgroups, by `hinterland bench measure`: natively, under Hinterland, and under the kernel's swap with as much RAM in all.

Where there can be no such group (no root, no memory controller, swap in use), runs are measured without: their RAM is not known then, and the kernel's
swap is left out."""
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from workloads import LOCAL_MIN, Program

# Values of vm.page-cluster that the kernel's swap is tried with: no read-ahead, and the default of 2^3 pages.
PAGE_CLUSTERS = "0,3"
# A swap area that held no more than this has swapped nothing (crates/bench/src/programs/trials.rs).
EMPTY_BYTES = 256 << 10


class LeftOut(Exception):
    """Why something is not measured here."""


class Meter:
    """What commands take; a run has so many seconds at most."""

    def __init__(self, launcher: Path, seconds_max: int) -> None:
        self.launcher, self.seconds_max = launcher, seconds_max
        # Why there can be no groups.
        self.refusal: str | None = self.said([], ["true"])["failed"]

    def said(self, options: list, command: list) -> dict:
        words = [self.launcher, "bench", "measure", "--seconds-max", self.seconds_max, *options, "--", *command]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        # What stays on the machine is to be seen, whatever else is said.
        print(*(f"{line}\n" for line in done.stderr.splitlines() if "cannot take back" in line), sep="", end="", file=sys.stderr)
        return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip()}

    def run(self, command: list, *options: object) -> dict:
        """The figures of a run and the digest of its output, or why it `failed`."""
        if self.refusal and options:
            return {"failed": self.refusal}
        if self.refusal:
            return self.plain([str(word) for word in command])
        said = self.said(list(options), command)
        return {"failed": said["failed"]} if said["failed"] else {**said["run"], "digest": said["digest"]}

    def plain(self, command: list[str]) -> dict:
        """The same without a group."""
        before, begun = processor_seconds(), time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                code = process.wait(self.seconds_max)
            except subprocess.TimeoutExpired:
                return {"failed": f"not finished within {self.seconds_max} s"}
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if code:
                return {"failed": f"ended with {code}"}
            seconds = time.monotonic() - begun
            output.seek(0)
            digest = hashlib.file_digest(output, "sha256").hexdigest()
        return {"seconds": seconds, "cpu_seconds": processor_seconds() - before, "digest": digest}


def processor_seconds() -> float:
    """Of all children that have ended, and theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Subject:
    """A program whose runs are compared, with a share of its native memory local."""

    def __init__(self, meter: Meter, program: Program, local_percent: int, directory: Path) -> None:
        self.meter, self.program, self.stats = meter, program, directory / "stats.json"
        native = meter.run(program.command)
        if "failed" in native:
            raise LeftOut(f"natively: {native['failed']}")
        self.digest = native["digest"]
        self.peak = native.get("anonymous_peak_bytes") or program.run([])[2]
        self.local = max(self.peak * local_percent // 100, LOCAL_MIN)

    def native(self, prefix: Sequence = ()) -> dict:
        return self.checked(self.meter.run([*prefix, *self.program.command]), "natively")

    def managed(self, far: list[str], options: list[str], limits: Sequence = (), prefix: Sequence = ()) -> dict:
        """A run under Hinterland: with what its paths to far memory moved, and how much of its memory was anonymous."""
        self.stats.unlink(missing_ok=True)
        words = [self.meter.launcher, "run", "--quiet", "--insecure-loopback", "--fault-path", "inline", "--local", self.local]
        words += [word for url in far for word in ("--far", url)]
        run = self.meter.run([*prefix, *words, *options, "--stats", self.stats, "--", *self.program.command], *limits)
        run = self.checked(run, " ".join([*far, *options]))
        return run if "failed" in run else run | of_statistics(json.loads(self.stats.read_text()))

    def checked(self, run: dict, how: str) -> dict:
        """A run of Hinterland's, or a native one, that prints something else ends the bench."""
        if "failed" not in run and run.pop("digest") != self.digest:
            raise SystemExit(f"{self.program.name} {how}: its output differs from that of the first native run")
        return run


def of_statistics(said: dict) -> dict:
    ratio = said["features"]["anonymous_file_ratio"]
    return {
        "moved_in_bytes": sum(path["bytes_out"] for path in said["backends"]),
        "moved_out_bytes": sum(path["bytes_in"] for path in said["backends"]),
        "major_faults": said["major_faults"],
        "anonymous_share": None if ratio is None else ratio / (1 + ratio),
        "block_pages": said["block_size_pages"],
    }


class Kernel:
    """The kernel's swap, with the limit at which it takes as much RAM in all as a managed run did, and the better page cluster."""

    def __init__(self, subject: Subject, area: list, ours: dict) -> None:
        self.subject, self.area = subject, area
        if subject.meter.refusal or "failed" in ours:
            raise LeftOut(subject.meter.refusal or f"Hinterland's run failed: {ours['failed']}")
        self.wanted = ours["total_ram_peak_bytes"]
        self.found = subject.meter.said([*area, "--page-cluster", PAGE_CLUSTERS, "--ram", self.wanted], subject.program.command)
        if self.found["failed"]:
            raise LeftOut(self.found["failed"])
        print(f"{subject.program.name}, {' '.join(map(str, area)) or 'zram'}: {self.told()}", file=sys.stderr)

    def run(self) -> dict:
        chosen, peak = self.found["chosen"], self.found["native"]["anonymous_peak_bytes"]
        limits = ["--limit", chosen["limit_bytes"], "--peak", peak, "--page-cluster", chosen["page_cluster"]]
        run = self.subject.meter.run(self.subject.program.command, *self.area, *limits)
        if "failed" not in run and run.pop("digest") != self.subject.digest:
            return {"failed": "its output differs from that of the first native run"}
        moved = {} if "failed" in run else {"moved_in_bytes": run["swapped_in_bytes"], "moved_out_bytes": run["swapped_out_bytes"]}
        return run | moved

    def told(self) -> dict:
        chosen = self.found["chosen"]
        return {"wanted_bytes": self.wanted, **chosen, "swaps": chosen["swap_peak_bytes"] > EMPTY_BYTES}


def interleaved(what: str, ways: dict[str, Callable[[], dict]], repeat: int, until: float) -> dict:
    """Rounds of all ways, in an order that rotates: `runs` by way, and of those that `failed` why. After `until` no further round begins."""
    names, runs = list(ways), {name: [] for name in ways}
    failed: dict[str, str] = {}
    for turn in range(repeat):
        if turn and time.monotonic() > until:
            break
        for step in range(len(names)):
            name = names[(turn + step) % len(names)]
            if name in failed:
                continue
            run = ways[name]()
            runs[name].append(run)
            if "failed" in run:
                failed[name] = run["failed"]
            print(f"{what}, round {turn + 1}, {name}: {told(run)}", file=sys.stderr)
    return {"runs": {name: own for name, own in runs.items() if name not in failed}, "failed": failed}


def told(run: dict) -> str:
    """A run in a line of progress."""
    return run["failed"] if "failed" in run else f"{run['seconds']:.2f} s"
