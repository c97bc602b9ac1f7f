#!/usr/bin/env python3
"""Two programs on one memory node whose link is narrow, by the example `isolation` of `node`: what one's demands take beside the other's flood, and
how two that flood divide the link (xDM, figure 17).

The link is the loopback device of a network namespace of its own, with frames of 1500 bytes and a token bucket of the rate. Writes one JSON file:
of each way of sharing the link the median, least and greatest of the rounds. Needs `tc` (iproute2) and user namespaces, or root; wants an idle machine."""
import json
import subprocess
from pathlib import Path

from costs import rounds_together
from fault_paths import spread
from options import options
from workloads import origin

MEAN, P99, PART = 1.3, 2.0, (45.0, 55.0)
# The loopback device of a namespace, at a rate.
LINK = "ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate {rate} burst 8kb latency 50ms"
SHAPED = LINK + " && exec {example} {rounds} {written} --json"


def measure(given) -> dict[str, list[dict[str, float]]]:
    build = ["cargo", "build", "--quiet", "--release", "-p", "hinterland-node", "--example", "isolation"]
    subprocess.run(build, check=True, cwd=Path(__file__).parent.parent)
    example = given.target.absolute() / "release/examples/isolation"
    # tc's bits are without a slash, and a second.
    rate = given.rate.lower().removesuffix("b/s") + "bit"
    command = SHAPED.format(rate=rate, example=example, rounds=given.repeat, written=given.rate)
    return json.loads(subprocess.run(["unshare", "-rn", "sh", "-c", command], check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    parser = options(__doc__, repeat=15)
    parser.add_argument("--rate", default="1Gb/s", help="what the link carries (default: 1Gb/s)")
    given = parser.parse_args()
    ways = measure(given)
    for rounds in ways.values():
        for one in rounds:
            one["mean_by_alone"] = one["beside_mean_us"] / one["alone_mean_us"]
            one["p99_by_alone"] = one["beside_p99_us"] / one["alone_p99_us"]
    turns = ways["turns"]
    reached = {name: spread([one[name] for one in turns])["median"] for name in ("mean_by_alone", "p99_by_alone", "part_percent")}
    result = {
        "bench": "isolation",
        "what": "demands of a program on a node alone and beside another program's flood, and the part of the link of one of two that flood; turns: the node knows its link's rate",
        **origin(given.target / "release/hinterland", "isolation.py"),
        "rate": given.rate,
        "ways": {way: rounds_together(rounds) for way, rounds in ways.items()},
        "targets": [
            {"target": "mean beside a flood by alone", "at_most": MEAN, "reached": reached["mean_by_alone"], "met": reached["mean_by_alone"] <= MEAN},
            {"target": "p99 beside a flood by alone", "at_most": P99, "reached": reached["p99_by_alone"], "met": reached["p99_by_alone"] <= P99},
            {"target": "percent of the link for one of two", "from": PART[0], "to": PART[1], "reached": reached["part_percent"], "met": PART[0] <= reached["part_percent"] <= PART[1]},
        ],
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
