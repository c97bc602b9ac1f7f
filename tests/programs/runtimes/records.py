# Byte strings in a list, visited and replaced in random order. usage: records.py MEBIBYTES
import os
import sys

count = (int(sys.argv[1]) << 20) // 300


def record(i):
    return b"%09d" % i * 28


records = [record(i) for i in range(count)]
x, total = 1, 0
for visit in range(1, 24001):
    x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    at = (x >> 4) % count
    total = (total * 31 + records[at][x % 252]) & 0xFFFFFFFF
    if visit % 4 == 0:
        records[at] = record(x)
print(f"{count} records, sum {total}", flush=True)
os._exit(0)  # The records need not be freed one by one.
