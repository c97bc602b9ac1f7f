"""Programs over each kind of far memory beside what swaps over the same kind without Hinterland, or without its features: xDM's Table VI and figure 14.

A rival has as much RAM in all as Hinterland has over the same far memory. A memory node's rival is Hinterland itself, as Fastswap works: there is no kernel
that swaps to it."""
import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from fault_paths import spread
from measured import Kernel, LeftOut, Meter, Subject, interleaved
from paper_figures import panel
from workloads import Program

# As Fastswap: Linux's read-ahead and its second chance, page by page.
PLAIN = ["--prefetch", "readahead-vma", "--read-ahead", "8", "--evict", "second-chance", "--granularity", "page"]
FEATURES = ["--granularity", "auto"]
SPREAD = [*FEATURES, "--placement", "spread"]
# Rivals in which the kernel swaps: beside which run of Hinterland's they have equal RAM.
KERNEL = {"swap-file": "file", "swap-zram": "compressed"}
# On the same far memory: the rival, and Hinterland.
PAIRS = {"disk": ("swap-file", "file"), "compressed RAM": ("swap-zram", "compressed"), "memory node": ("node-plain", "node")}
# The paper's, "up to": Table VI by its kind of far memory, and figure 14 beside TMO on one SSD.
PAPER_SPEEDUP = {"disk": 2.16, "compressed RAM": 2.43, "memory node": 3.89}
PAPER_THROUGHPUT = {"2-files": 2.63, "2-nodes": 2.82, "node-file": 2.76}
BASIS = "swap-file"
STANDS_IN = {
    "swap-file": "Linux swap, and TMO's swap to an SSD: the kernel's swap to a file on the same disk",
    "swap-zram": "Fastswap to DRAM: the kernel's swap on compressed RAM",
    "node-plain": "Fastswap over RDMA: Hinterland over one node, with Linux's read-ahead, second chance and single pages",
    "2-files": "xDM-SSD: a file on each of two disks, pages spread over them",
    "2-nodes": "xDM-RDMA: two memory nodes, each behind a link of its own, pages spread over them",
    "node-file": "xDM-Hetero: a memory node and a file on the disk, pages spread over them",
}
# Less than this share of the native time is no time to compare.
NOTHING = 0.02


def fars(given: argparse.Namespace, nodes: list[str], room_mib: int) -> dict[str, tuple[list[str], list[str]]]:
    """By system: the paths to far memory, each with room for so many MiB, and the options."""
    link = "" if given.link == "none" else f"link={given.link}"
    joined = lambda url, *options: url + "?" * any(options) + "&".join(filter(None, options))
    node, other = (joined(url, link, "sub-page=auto") for url in nodes)
    file = f"file:{given.disk}?direct=on&size={room_mib}M"
    found = {
        "file": ([file], FEATURES),
        "compressed": ([f"compressed:{room_mib}M"], FEATURES),
        "node-plain": ([joined(nodes[0], link)], PLAIN),
        "node": ([node], FEATURES),
        "2-nodes": ([node, other], SPREAD),
        "node-file": ([node, file], SPREAD),
    }
    if given.second_disk:
        found["2-files"] = ([file, f"file:{given.second_disk}?direct=on&size={room_mib}M"], SPREAD)
    return found


def compared(meter: Meter, program: Program, given: argparse.Namespace, nodes: list[str], directory: Path, until: float) -> dict:
    subject = Subject(meter, program, given.local, directory)
    over = fars(given, nodes, room_mib(subject.peak))
    managed = {name: lambda far=far, options=options: subject.managed(far, options) for name, (far, options) in over.items()}
    areas = {"swap-file": ["--swap-file", given.disk], "swap-zram": []}
    kernels, left_out = {}, {}
    for rival, ours in KERNEL.items():
        try:
            kernels[rival] = Kernel(subject, areas[rival], managed[ours]())
        except LeftOut as reason:
            left_out[rival] = str(reason)
    ways = {"native": subject.native, **{name: kernel.run for name, kernel in kernels.items()}, **managed}
    measured = interleaved(program.name, ways, given.repeat, until)
    if "native" in measured["failed"]:
        raise LeftOut(measured["failed"]["native"])
    row = {"local_bytes": subject.local, "native_peak_bytes": subject.peak, **measured, "failed": left_out | measured["failed"]}
    row["kernel"] = {name: kernel.told() for name, kernel in kernels.items()}
    idle = [name for name, said in row["kernel"].items() if not said["swaps"]]
    return row | {"speedup": speedups(row["runs"], idle), "moved": moved(row["runs"]), "anonymous_share": anonymous_share(row["runs"])}


def room_mib(peak_bytes: int) -> int:
    """Far memory that is never full."""
    return 4 * peak_bytes // 2**20 + 64


def speedups(runs: dict[str, list[dict]], idle: Sequence[str] = ()) -> dict:
    """By kind of far memory: the rival's time by Hinterland's in the same round, and the same of what both take beyond the native run, which is swapping.
    (The paper takes the kernel's time, but Hinterland swaps in the program's.) An idle rival has room for all without swapping."""
    seconds = {name: [run["seconds"] for run in own] for name, own in runs.items()}
    found = {}
    for kind, (rival, ours) in PAIRS.items():
        if not {"native", rival, ours} <= set(seconds):
            continue
        rounds = list(zip(seconds["native"], seconds[rival], seconds[ours], strict=True))
        beyond = [(max(theirs - native, 0), own - native, native) for native, theirs, own in rounds]
        swapping = [theirs / own for theirs, own, native in beyond if own > NOTHING * native]
        found[kind] = {"time": spread([theirs / own for _, theirs, own in rounds])}
        found[kind]["swapping"] = spread(swapping) if len(swapping) == len(rounds) and rival not in idle else None
    return found


def moved(runs: dict[str, list[dict]]) -> dict:
    """By system: bytes that went to far memory and came from there in a second of the run, and by those of the basis in the same round."""
    rates = {name: [(run["moved_in_bytes"] + run["moved_out_bytes"]) / run["seconds"] for run in own] for name, own in runs.items() if name != "native"}
    found = {}
    for name, own in rates.items():
        found[name] = {"bytes_per_second": spread(own)}
        if all(rates.get(BASIS, [0])):
            found[name]["by_basis"] = spread([rate / basis for rate, basis in zip(own, rates[BASIS], strict=True)])
    return found


def anonymous_share(runs: dict[str, list[dict]]) -> float | None:
    """Of the resident memory, as the runs over one node say."""
    said = [run["anonymous_share"] for run in runs.get("node", []) if run["anonymous_share"] is not None]
    return round(statistics.median(said), 4) if said else None


def summary(rows: list[dict]) -> dict:
    """Over the programs: geometric means, the least and the greatest, beside what the paper has at most; and which programs no rival need swap."""

    def over(ratios: dict[str, float], paper: float | None) -> dict:
        values = [max(ratio, 1e-3) for ratio in ratios.values()]
        bounds = {bound: {"program": name, "ratio": ratios[name]} for bound, name in (("least", min(ratios, key=ratios.get)), ("greatest", max(ratios, key=ratios.get)))}
        return {"programs": len(values), "geometric_mean": round(statistics.geometric_mean(values), 3), **bounds, "paper_greatest": paper}

    idle = {rival: [row["name"] for row in rows if not row["kernel"].get(rival, {"swaps": True})["swaps"]] for rival in KERNEL}
    found: dict[str, dict] = {"speedup": {}, "moved_by_basis": {}, "idle": idle}
    for kind in PAIRS:
        for what in ("time", "swapping"):
            ratios = {row["name"]: row["speedup"][kind][what]["median"] for row in rows if row["speedup"].get(kind, {}).get(what)}
            if ratios:
                found["speedup"][f"{kind}, {what}"] = over(ratios, PAPER_SPEEDUP[kind] if what == "swapping" else None)
    for name in sorted({name for row in rows for name in row["moved"]} - {BASIS}):
        ratios = {row["name"]: row["moved"][name]["by_basis"]["median"] for row in rows if "by_basis" in row["moved"].get(name, {})}
        if ratios:
            found["moved_by_basis"][name] = over(ratios, PAPER_THROUGHPUT.get(name))
    return found


def figures(rows: list[dict]) -> list[dict]:
    if not rows:
        return []
    names = [row["name"] for row in rows]
    speedup = lambda what: {kind: [median(row["speedup"].get(kind, {}).get(what)) for row in rows] for kind in PAIRS}
    of_all = list(dict.fromkeys(name for row in rows for name in row["moved"]))
    rates = {name: [median(row["moved"].get(name, {}).get("bytes_per_second"), 2**20) for row in rows] for name in of_all}
    return [
        panel("14", "Bytes that move to and from far memory, medians", "MiB a second", names, rates),
        panel("Table VI", "Run time of the rival on the same far memory, medians", "× Hinterland", names, speedup("time")),
        panel("Table VI", "The same of the time beyond the native run", "× Hinterland", names, speedup("swapping")),
    ]


def median(figure: dict | None, unit: float = 1) -> float | None:
    return figure["median"] / unit if figure else None
