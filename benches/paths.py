#!/usr/bin/env python3
"""What two and three equal paths to far memory bring against one, by the example `paths` of `backend`: plain memory behind modelled links.

Writes one JSON file: of each figure the median, least and greatest of the rounds, each of which is a median of five itself. Wants an idle machine."""
import json

from costs import example, rounds_together
from fault_paths import spread
from options import options
from workloads import origin

# Pages a second of two and three paths by those of one, wanted at least.
BATCHES, SCATTERED, WAITS = [1.9, 2.7], [1.7, 2.3], [0.97, 0.97]
WANTED = {"stored": BATCHES, "loaded": BATCHES, "8 threads": SCATTERED, "one waits": WAITS}


def main() -> None:
    parser = options(__doc__, repeat=3)
    given = parser.parse_args()
    rounds = [example("hinterland-backend", "paths") for _ in range(given.repeat)]
    targets = []
    for link, works in rounds[0]["pages_per_second"].items():
        for work in works:
            for paths, least in zip((2, 3), WANTED[work], strict=True):
                of_round = lambda one: one["pages_per_second"][link][work]
                reached = spread([of_round(one)[paths - 1] / of_round(one)[0] for one in rounds])["median"]
                targets.append({"target": f"{link}, {paths} paths by one: {work}", "at_least": least, "reached": reached, "met": reached >= least})
    result = {
        "bench": "paths",
        "what": "pages a second over one, two and three paths; processor ns of a page with a backend alone, and with the table of pages before it",
        **origin(given.target / "release/hinterland", "paths.py"),
        **rounds_together(rounds),
        "targets": targets,
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
