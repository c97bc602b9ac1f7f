"""usage: matmul.py MIB      a product of two matrices of doubles; three matrices of MIB together, all in memory."""
import sys

import numpy as np

side = int((int(sys.argv[1]) * 2**20 / 24) ** 0.5)
random = np.random.default_rng(1)
left, right = (random.integers(-8, 8, (side, side)).astype(np.float64) for _ in range(2))
# Small integers: sums are exact, in whatever order they are made.
print(side, int((left @ right).sum()), int((right @ left).max()))
