"""CPython's small-object heap: dictionaries, lists, tuples and strings.

usage: objects.py RECORDS
Output: checksums of what was built, read, changed and deleted.
"""
import sys
import zlib


def main(records: int) -> None:
    table = {}
    for i in range(records):
        key = f"key-{i * 2654435761 % 4294967296:08x}"
        table[key] = [i, (i * 7, str(i)), {"n": i % 1000, "name": key[4:]}]
    print("built", len(table))

    total = sum(row[0] + row[1][0] + row[2]["n"] for row in table.values())
    print("sum", total)

    # Lookups at a stride, in an order unlike the one of construction.
    probe = 0
    for i in range(0, records, 61):
        row = table[f"key-{i * 2654435761 % 4294967296:08x}"]
        probe = zlib.crc32(row[1][1].encode(), probe)
    print("probe", probe)

    for key in [key for key in table if key.endswith("7")]:
        del table[key]
    table.update((f"new-{i}", [i]) for i in range(records // 10))
    print("changed", len(table))

    digest = 0
    for key, row in table.items():
        digest = zlib.crc32(key.encode(), digest)
        digest = zlib.crc32(repr(row).encode(), digest)
    print("digest", digest)

    # The order of the keys scatters the records over the whole heap.
    for key in sorted(key for key in table if key.endswith("3"))[::4]:
        digest = zlib.crc32(repr(table[key]).encode(), digest)
    print("sorted digest", digest)


main(int(sys.argv[1]))
