# Forks with more memory than is local, without and with a second thread: CPython warns of the second fork only.
import os
import threading
import warnings

memory = bytearray(48 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = at >> 12 & 127
total = sum(memory[::4096])


def fork(when):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        child = os.fork()
        if child == 0:
            os._exit(sum(memory[::4096]) == total)
    with open("/proc/self/stat") as stat:
        threads = stat.read().rsplit(")", 1)[1].split()[17]
    if os.waitpid(child, 0)[1] != 1 << 8:
        raise SystemExit("WRONG child")
    print(f"{when}: threads {threads}, warnings {len(caught)}", flush=True)


fork("alone")
end = threading.Event()
other = threading.Thread(target=end.wait)
other.start()
fork("with another")
end.set()
other.join()
