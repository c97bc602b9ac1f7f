#!/usr/bin/env python3
"""What policies, prefetchers, the simulator and tapes cost the processor, by the examples `ns_per_op` of `policy`, `rate` of `sim`, `plan_rate` and `decode_rate` of
`tape`.

Writes one JSON file: of each figure the median, least and greatest of the rounds. Runs one thing at a time; wants an idle machine."""
import json
import subprocess
from pathlib import Path

from fault_paths import spread
from options import options
from workloads import origin

PREFETCHER_NS_MAX = 150
REFERENCES_MILLIONS_MIN = 20
# References a second that come out of a trace, and that a tape is planned from with each eviction, in millions.
DECODED_MILLIONS_MIN = 20
PLANNED_MILLIONS_MIN = {"lru": 5, "min": 2}


def example(package: str, name: str) -> dict | list:
    """What the example says."""
    command = ["cargo", "run", "--quiet", "--release", "-p", package, "--example", name, "--", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent).stdout)


def rounds_together(rounds: list) -> dict | list | str | float:
    """Rounds of the same shape as one of spreads."""
    first = rounds[0]
    if isinstance(first, dict):
        return {key: rounds_together([one[key] for one in rounds]) for key in first}
    if isinstance(first, list):
        return [rounds_together(list(ones)) for ones in zip(*rounds)]
    return first if isinstance(first, str) else spread(rounds)


def main() -> None:
    parser = options(__doc__, repeat=3)
    given = parser.parse_args()
    examples = (("hinterland-policy", "ns_per_op"), ("hinterland-sim", "rate"), ("hinterland-tape", "decode_rate"), ("hinterland-tape", "plan_rate"))
    rounds = [[example(*of) for of in examples] for _ in range(given.repeat)]
    operations, replays, decoded, planned = (rounds_together(list(of)) for of in zip(*rounds))
    targets = []
    for name, patterns in operations["prefetchers"].items():
        worst = max(figure["median"] for figure in patterns.values())
        targets.append({"target": f"{name}: ns for a fault", "at_most": PREFETCHER_NS_MAX, "reached": worst, "met": worst <= PREFETCHER_NS_MAX})
    hits = next(row for row in replays if (row["workload"], row["evict"], row["prefetch"]) == ("all local, scattered", "s3-fifo", "none"))
    rate = hits["millions_per_second"]["median"]
    targets.append({"target": "millions of resident references replayed in a second", "at_least": REFERENCES_MILLIONS_MIN, "reached": rate, "met": rate >= REFERENCES_MILLIONS_MIN})
    for row in decoded:
        rate = row["millions_per_second"]["median"]
        targets.append({"target": f"millions of references of a {row['trace']} trace decoded in a second", "at_least": DECODED_MILLIONS_MIN, "reached": rate, "met": rate >= DECODED_MILLIONS_MIN})
    for row in planned:
        rate, least = row["millions_per_second"]["median"], PLANNED_MILLIONS_MIN[row["evict"]]
        targets.append({"target": f"millions of references planned in a second, {row['evict']}, {row['trace']}", "at_least": least, "reached": rate, "met": rate >= least})
    result = {
        "bench": "costs",
        "what": "eviction policies: ns for an operation; prefetchers: ns for a major fault, none of which they foresaw; replays, traces that are decoded and tapes that are planned: millions of references a second",
        **origin(given.target / "release/hinterland", "costs.py"),
        **operations,
        "replays": replays,
        "decoded": decoded,
        "planned": planned,
        "targets": targets,
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
