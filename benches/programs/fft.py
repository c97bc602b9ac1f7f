"""usage: fft.py MIB      a discrete Fourier transform (3PO's np_fft); input, output and what NumPy needs between take MIB together."""
import gc
import sys

import numpy as np

# Otherwise its collections, and what they touch, come at other times in each run (3PO, section 4).
gc.disable()
most = int(sys.argv[1]) * 2**20 // 48
# Lengths of small factors only: others take a multiple of the memory.
length = max(factor << power for factor in (1, 3, 5, 9) for power in range(40) if factor << power <= most)
signal = np.random.default_rng(1).integers(-8, 8, length).astype(np.complex128)
transformed = np.fft.fft(signal)
# The energy is the same before and after, by Parseval.
before, after = np.vdot(signal, signal).real, np.vdot(transformed, transformed).real / length
if abs(before - after) > 1e-9 * before:
    sys.exit(f"the energy was {before} and is {after}")
print(length, int(before), round(float(abs(transformed[1:64]).sum()), 3))
