# Byte strings of coroutines on stacks that gevent copies to the heap and back, visited in random order. usage: greenlets.py MEBIBYTES
import os
import sys

import gevent
from gevent.event import Event

count = (int(sys.argv[1]) << 20) // 70000
turn = [Event() for _ in range(count)]
done = [Event() for _ in range(count)]
sums = [0] * count


def record(i):
    return b"%09d" % i * 28


def deep(i, depth):
    # Frames in between: what is copied when another coroutine runs.
    return sum(map(lambda _: serve(i) if depth == 0 else deep(i, depth - 1), range(1)))


def serve(i):
    held = [record(i * 100 + n) for n in range(100)]
    while True:
        turn[i].wait()
        turn[i].clear()
        x = sums[i]
        if x < 0:
            return len(held)
        at = (x >> 4) % 100
        sums[i] = held[at][x % 252]
        held[at] = record(x)
        done[i].set()


def visit():
    x, total = 1, 0
    for _ in range(24000):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        i = (x >> 4) % count
        sums[i] = x
        turn[i].set()
        done[i].wait()
        done[i].clear()
        total = (total * 31 + sums[i]) & 0xFFFFFFFF
    return total


coroutines = [gevent.spawn(deep, i, 20) for i in range(count)]
gevent.sleep(0)
total = visit()
print(f"{count} coroutines, sum {total}", flush=True)
os._exit(0)
