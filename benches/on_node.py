"""usage: on_node.py PROCESSORS NODE|- COMMAND…      runs a command on the processors of a list (0-3,8), with its memory on a NUMA node, or anywhere."""
import ctypes
import os
import sys

MPOL_BIND, LONG_BITS = 2, 64
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}


def numbers(text: str) -> list[int]:
    """What a list of the kernel's names: `0-2,5`."""
    ends = (part.partition("-") for part in text.split(",") if part.strip())
    return [number for first, _, last in ends for number in range(int(first), int(last or first) + 1)]


def bind_memory(node: int) -> None:
    mask = (ctypes.c_ulong * (node // LONG_BITS + 1))()
    mask[node // LONG_BITS] = 1 << node % LONG_BITS
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SET_MEMPOLICY[os.uname().machine], MPOL_BIND, mask, len(mask) * LONG_BITS + 1) != 0:
        sys.exit(f"on_node.py: memory of node {node}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    processors, memory, *command = sys.argv[1:]
    os.sched_setaffinity(0, numbers(processors))
    if memory != "-":
        bind_memory(int(memory))
    os.execvp(command[0], command)
