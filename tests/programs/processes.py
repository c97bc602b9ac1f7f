"""Python's multiprocessing: a forked child, a pool, shared memory. Prints what they have worked out. At the end, parent and
children keep what they have until there is a file "enough" in the working directory."""
import hashlib
import multiprocessing
import os
import random
import time
from multiprocessing import shared_memory

WORDS = [f"word {i} of the parent" for i in range(300_000)]


def digest(words):
    sha = hashlib.sha256()
    for word in words:
        sha.update(word.encode())
    return sha.hexdigest()[:16]


def sort(seed):
    numbers = random.Random(seed)
    data = [numbers.random() for _ in range(150_000)]
    data.sort()
    return round(sum(data[::100]), 6)


def child(queue):
    own = [word.upper() for word in WORDS[:100_000]]
    queue.put((digest(WORDS), digest(own)))


def writer(name, part):
    memory = shared_memory.SharedMemory(name)
    size = len(memory.buf) // 4
    memory.buf[part * size : (part + 1) * size] = bytes([part + 1]) * size
    memory.close()


def rest(queue):
    queue.put(digest([word.lower() for word in WORDS]))
    while not os.path.exists("enough"):
        time.sleep(0.01)


def main():
    multiprocessing.set_start_method("fork")
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=child, args=(queue,))
    process.start()
    print("forked", *queue.get())
    process.join()
    with multiprocessing.Pool(3) as pool:
        print("pool", pool.map(sort, range(9)))
    memory = shared_memory.SharedMemory(create=True, size=8 << 20)
    writers = [multiprocessing.Process(target=writer, args=(memory.name, part)) for part in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    print("shared", hashlib.sha256(memory.buf).hexdigest()[:16], [process.exitcode for process in writers])
    memory.close()
    memory.unlink()
    resters = [multiprocessing.Process(target=rest, args=(queue,)) for _ in range(3)]
    for process in resters:
        process.start()
    print("at rest", [queue.get() for _ in resters], digest(WORDS), flush=True)
    for process in resters:
        process.join()


if __name__ == "__main__":
    main()
