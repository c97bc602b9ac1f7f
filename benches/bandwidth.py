#!/usr/bin/env python3
"""What of a device's bandwidth Hinterland's backends reach (xDM, Table VII), reading and writing, one thread with a thousand pages at a time.

A disk's own bandwidth is that of blocks of 1 MiB which eight threads read and write past the page cache; a link's is that of one stream over TCP.

usage: bandwidth.py MIB LAUNCHER EXAMPLE      one round over the loopback device as it is, in JSON; xdm.py starts it behind a link of a rate."""
import json
import mmap
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fault_paths import spread
from isolation import LINK
from measured import LeftOut
from sub_page import Node

BLOCK, THREADS = 1 << 20, 8
# The device counts as full from this share on.
FULL = 0.9
# What goes over the link that is shaped: half a second at 1 Gb/s.
LINK_MIB = 64


def sides(example: Path, mib: int, url: str) -> dict[str, float]:
    """Seconds in which a backend stores so many MiB, and loads them."""
    done = subprocess.run([example, "--sides", str(mib), url], capture_output=True, text=True)
    if done.returncode != 0:
        raise LeftOut(done.stderr.strip())
    _, stored, loaded = done.stdout.strip().split("\t")
    return {"write": float(stored.split()[1]), "read": float(loaded.split()[1])}


def disk_alone(directory: Path, mib: int) -> dict[str, float]:
    """Seconds in which the disk writes so many MiB, and reads them. The file has no name, so nothing is left of it."""
    try:
        file = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError as error:
        raise LeftOut(f"no file past the page cache in {directory}: {error.strerror}") from error
    try:
        # Blocks of the file exist from the first time on.
        blocks(file, os.pwritev, mib)
        return {"write": blocks(file, os.pwritev, mib), "read": blocks(file, os.preadv, mib)}
    finally:
        os.close(file)


def blocks(file: int, move: Callable, mib: int) -> float:
    """Seconds for all blocks, each thread's in their order."""
    # Where direct I/O wants them; random, so that nothing beneath can spare them.
    rooms = [mmap.mmap(-1, BLOCK) for _ in range(THREADS)]
    for room in rooms:
        room[:] = os.urandom(BLOCK)

    def share(number: int) -> None:
        for block in range(number, mib, THREADS):
            if move(file, [rooms[number]], block * BLOCK) != BLOCK:
                raise LeftOut("a block is moved in part only")

    with ThreadPoolExecutor(THREADS) as pool:
        begun = time.monotonic()
        list(pool.map(share, range(THREADS)))
        return time.monotonic() - begun


def stream_alone(mib: int) -> float:
    """Seconds in which a stream over TCP brings so many MiB, until all have come."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            with socket.create_connection(server.getsockname()) as out:
                data = bytes(BLOCK)
                for _ in range(mib):
                    out.sendall(data)

        begun = time.monotonic()
        sender = threading.Thread(target=send)
        sender.start()
        came, room = 0, bytearray(BLOCK)
        with server.accept()[0] as into:
            while count := into.recv_into(room):
                came += count
        sender.join()
    if came != mib * BLOCK:
        raise LeftOut(f"{came} bytes of {mib * BLOCK} came")
    return time.monotonic() - begun


def disk_round(directory: Path, mib: int, example: Path) -> dict:
    device = disk_alone(directory, mib)
    return rates(mib, device, sides(example, mib, f"file:{directory}?direct=on&size={2 * mib}M"))


def link_round(mib: int, launcher: Path, example: Path) -> dict:
    with Node(launcher, 2 * mib) as node:
        alone = stream_alone(mib)
        return rates(mib, {"write": alone, "read": alone}, sides(example, mib, node.url))


def shaped_round(rate: str, launcher: Path, example: Path) -> dict:
    """The same in a network namespace whose loopback device has this rate, in tc's words."""
    words = [sys.executable, Path(__file__).absolute(), LINK_MIB, launcher, example]
    inside = f"{LINK.format(rate=rate)} && exec {shlex.join(map(str, words))}"
    done = subprocess.run(["unshare", "-rn", "sh", "-c", inside], capture_output=True, text=True)
    if done.returncode != 0:
        raise LeftOut(f"no link of {rate}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def rates(mib: int, device: dict[str, float], ours: dict[str, float]) -> dict:
    """Bytes a second of the device and of the backend, by direction."""
    figures = {"device": device, "hinterland": ours}
    return {whose: {direction: round(mib * BLOCK / seconds) for direction, seconds in own.items()} for whose, own in figures.items()}


def shares(rounds: list[dict]) -> dict:
    """By direction: bytes a second of both, medians and spread, the share of the device's, and whether the device is full."""
    found = {}
    for direction in ("read", "write"):
        of = lambda whose: [one[whose][direction] for one in rounds]
        share = spread([ours / device for ours, device in zip(of("hinterland"), of("device"), strict=True)])
        found[direction] = {"device_bytes_per_second": spread(of("device")), "bytes_per_second": spread(of("hinterland")), "share": share}
        found[direction]["is_full"] = share["median"] >= FULL
    return found


if __name__ == "__main__":
    mib, launcher, example = sys.argv[1:]
    print(json.dumps(link_round(int(mib), Path(launcher), Path(example))))
