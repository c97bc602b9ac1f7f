"""NumPy on arrays that are larger than the budget.

usage: arrays.py matmul SIDE | fft POINTS | fromfile PATH
Output: a SHA-256 of the resulting bytes; matmul works on small integers, so its result is exact whatever the order.
"""
import hashlib
import sys

import numpy as np


def show(name: str, array: np.ndarray) -> None:
    """Prints the digest of the array's bytes, without another copy of it."""
    print(name, array.shape, array.dtype, hashlib.sha256(np.ascontiguousarray(array).data).hexdigest())


def matmul(side: int) -> None:
    row = np.arange(side, dtype=np.float64)
    a = np.empty((side, side))
    b = np.empty((side, side))
    for i in range(side):
        a[i] = (row * (i + 3)) % 31
        b[i] = (row + i * 5) % 29
    c = a @ b
    show("product", c)
    print("trace", int(np.trace(c)), "max", int(c.max()))


def fft(points: int) -> None:
    rng = np.random.default_rng(2)
    signal = rng.standard_normal(points)
    spectrum = np.fft.rfft(signal)
    show("spectrum", spectrum)
    back = np.fft.irfft(spectrum, points)
    show("back", back)
    print("close", bool(np.allclose(back, signal)))


def fromfile(path: str) -> None:
    data = np.fromfile(path, dtype=np.int64)
    print("sum", int(data.sum()), "min", int(data.min()), "max", int(data.max()))
    data ^= 0x5555
    show("changed", data)
    data.tofile("changed.bin")
    view = data[::-1].reshape(-1, 512)
    print("columns", int(view.sum(axis=0).max()), int(view.sum(axis=1).min()))


{"matmul": lambda x: matmul(int(x)), "fft": lambda x: fft(int(x)), "fromfile": fromfile}[sys.argv[1]](sys.argv[2])
