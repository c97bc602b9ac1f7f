#!/usr/bin/env python3
"""DaeMon's model beside its paper: all workloads on links of 1/2, 1/4 and 1/8 with 100 and 400 ns, by measured and by the paper's compression.

Writes one JSON file: speedups over Remote, access costs and hit ratios of each scheme, and the paper's anchors with what the model has. The
model is deterministic: any machine writes the same figures."""
import json
import math
import re
import subprocess

from options import options
from workloads import origin_of_model

BANDWIDTHS = ["1/2", "1/4", "1/8"]
SWITCHES = [100, 400]
# Of the paper's class that the workload belongs to (§6.1).
CLASSES = {
    "poor locality: PQ > BP > Remote": (["kc", "tr", "pr", "nw"], lambda s: s["pq"] > s["bp"] > 1),
    "medium locality: LC and PQ both help": (["bf", "bc", "ts"], lambda s: s["lc"] > 1 and s["pq"] > 1),
    "high locality: BP < Remote": (["sp", "sl", "hp", "pf", "dr", "rs"], lambda s: s["bp"] < 1),
    "high locality: PQ within 10 % of Remote": (["sp", "sl", "hp", "pf", "dr", "rs"], lambda s: 0.9 <= s["pq"] <= 1.1),
    "compressible: LC helps": (["sp", "sl", "hp", "pf"], lambda s: s["lc"] > 1),
    "incompressible: DaeMon at most 1.1": (["dr", "rs"], lambda s: s["daemon"] <= 1.1),
}


def mean(values: list[float]) -> float:
    """Geometric."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


class Rows:
    """What one run of the model said."""

    def __init__(self, report: dict):
        self.rows, self.programs = report["rows"], report["programs"]

    def figures(self, scheme: str, figure: str, bandwidth: str | None = None, switch: int | None = None) -> list[float]:
        rows = (row for row in self.rows if row["scheme"] == scheme)
        rows = (row for row in rows if bandwidth in (None, row["bandwidth"]) and switch in (None, row["switch_ns"]))
        return [row[figure] for row in rows]

    def speedups(self) -> dict[str, dict[str, float]]:
        """Of each workload and scheme, the geometric mean over all links."""
        names, schemes = [program["name"] for program in self.programs], {row["scheme"]: None for row in self.rows}
        of = lambda name, scheme: [row["speedup"] for row in self.rows if (row["workload"], row["scheme"]) == (name, scheme)]
        return {name: {scheme: mean(of(name, scheme)) for scheme in schemes} for name in names}

    def anchors(self) -> list[dict]:
        """What the paper says, and the model has."""
        speedup = lambda scheme, **where: mean(self.figures(scheme, "speedup", **where))
        at_quarter = [
            ("Local over Remote (§2.2)", 3.86, speedup("local", bandwidth="1/4")),
            ("cache-line+page over Remote (§2.2)", 1.11, speedup("cache-line-page", bandwidth="1/4")),
            ("DaeMon over Remote (§2.2)", 2.38, speedup("daemon", bandwidth="1/4")),
        ]
        by_bandwidth = [
            (f"DaeMon over Remote, {bandwidth} (§6.1)", paper, speedup("daemon", bandwidth=bandwidth))
            for bandwidth, paper in zip(BANDWIDTHS, [1.85, 2.36, 2.97])
        ]
        overall = [
            ("PQ over Remote, 100 ns (§6.1)", 1.60, speedup("pq", switch=100)),
            ("PQ over Remote, 400 ns (§6.1)", 1.51, speedup("pq", switch=400)),
            ("access cost, LC (§6.2)", 2.12, mean(self.figures("lc", "access_gain"))),
            ("access cost, PQ (§6.2)", 2.06, mean(self.figures("pq", "access_gain"))),
            ("access cost, DaeMon (§6.2)", 3.06, mean(self.figures("daemon", "access_gain"))),
            ("hit ratio of Remote, % (§6.3)", 97.7, 100 * sum(hits := self.figures("remote", "hit_ratio")) / len(hits)),
        ]
        line = lambda what, paper, model: {
            "what": what,
            "paper": paper,
            "model": round(model, 2),
            "within_20_percent": abs(model / paper - 1) <= 0.2,
        }
        return [line(*anchor) for anchor in at_quarter + by_bandwidth + overall]

    def classes(self) -> list[dict]:
        speedups = self.speedups()
        return [
            {"class": name, "holds_for": [w for w in members if rule(speedups[w])], "of": members}
            for name, (members, rule) in CLASSES.items()
        ]

    def table(self) -> dict[str, dict[str, list[float]]]:
        """Speedups over Remote of each workload and scheme, in the order of the links."""
        table: dict[str, dict[str, list[float]]] = {}
        for row in self.rows:
            table.setdefault(row["workload"], {}).setdefault(row["scheme"], []).append(round(row["speedup"], 2))
        return table

    def hits(self) -> dict[str, float]:
        remote = [row for row in self.rows if row["scheme"] == "remote"]
        ratios = {name: [r["hit_ratio"] for r in remote if r["workload"] == name] for name in (p["name"] for p in self.programs)}
        return {name: round(sum(values) / len(values), 3) for name, values in ratios.items()}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--references", type=int, default=20_000_000, help="measured, after as many of warm-up (default: 20000000)")
    given = parser.parse_args()
    model = given.target / "release/hinterland-model"
    switches = ",".join(f"{switch}ns" for switch in SWITCHES)
    words = ["daemon", "all", "--bandwidth", ",".join(BANDWIDTHS), "--switch", switches, "--references", str(given.references)]
    words += ["--warm-up", str(given.references), "--json"]
    commands = {"measured": words, "paper": [*words, "--ratio", "paper", "--scheme", "remote,lc,daemon"]}
    result = {
        "bench": "daemon",
        "what": "speedups over Remote in the order of links; anchors of the paper (DaeMon, SIGMETRICS 2023) beside the model's figures",
        **origin_of_model(model, [f"hinterland-model {' '.join(command)}" for command in commands.values()]),
        "links": [f"{bandwidth}, {switch} ns" for bandwidth in BANDWIDTHS for switch in SWITCHES],
    }
    report: dict = {}
    for ratio, command in commands.items():
        output = json.loads(subprocess.run([model, *command], check=True, stdout=subprocess.PIPE).stdout)
        # The ratio changes compressing schemes alone: the others' rows stay.
        changed = {row["scheme"] for row in output["rows"]}
        output["rows"] += [row for row in report.get("rows", []) if row["scheme"] not in changed]
        report = report or output
        rows = Rows(output)
        result.setdefault("programs", rows.programs)
        result.setdefault("remote_hit_ratios", rows.hits())
        result[ratio] = {"anchors": rows.anchors(), "classes": rows.classes(), "speedups": rows.table()}
    # The figures of the six links stand on one line.
    text = re.sub(r"\[\s+((?:[\d.]+,\s+)*[\d.]+)\s+\]", lambda list: f"[{' '.join(list[1].split())}]", json.dumps(result, indent=1))
    given.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
