"""usage: kmeans.py MIB [ROUNDS]      k-means of scikit-learn's on a table of MIB, from centres that are drawn anew in each of ROUNDS (3).

Says on standard error when each round is over."""
import sys
import time

import numpy
from sklearn.cluster import KMeans

COLUMNS, CLUSTERS, ITERATIONS = 16, 8, 10
rows, rounds = int(sys.argv[1]) * 2**20 // (COLUMNS * 8), int(sys.argv[2]) if len(sys.argv) > 2 else 3
chance = numpy.random.default_rng(1)
centres = chance.integers(-4, 5, (CLUSTERS, COLUMNS)) * 2.0
table = numpy.empty((rows, COLUMNS))
# Some rows at a time: what makes the table takes no memory worth speaking of.
for first in range(0, rows, 1 << 14):
    some = table[first : first + (1 << 14)]
    some[:] = centres[chance.integers(CLUSTERS, size=len(some))] + chance.integers(-64, 65, some.shape) / 32


def over(count: int) -> None:
    print(f"rounds {count} {time.monotonic():.4f}", file=sys.stderr, flush=True)


over(0)
inertias = []
for turn in range(rounds):
    found = KMeans(CLUSTERS, init="random", n_init=1, max_iter=ITERATIONS, tol=0, copy_x=False, random_state=turn).fit(table)
    inertias.append(found.inertia_)
    over(turn + 1)
print(rows, *(f"{inertia:.6e}" for inertia in (min(inertias), max(inertias), sum(inertias))))
