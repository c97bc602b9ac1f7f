"""usage: inference.py MIB      batches go through the layers of a network whose weights take MIB, again and again."""
import sys

import numpy as np

BATCHES, BATCH, SIDE = 12, 192, 1024
random = np.random.default_rng(1)
layers = [random.integers(-1, 2, (SIDE, SIDE)).astype(np.float32) for _ in range(int(sys.argv[1]) * 2**20 // (4 * SIDE * SIDE))]
total = 0
for batch in range(BATCHES):
    values = random.integers(0, 3, (BATCH, SIDE)).astype(np.float32)
    for layer in layers:
        # Small integers: sums are exact, in whatever order they are made.
        values = np.maximum(values @ layer, 0) % 3
    total += int(values.sum())
print(total)
