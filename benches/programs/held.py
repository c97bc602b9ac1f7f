"""usage: held.py dictionaries|fft|frames N [SEED [SECONDS]]     builds N of something, works on it, prints what came out, frees it and rests."""
import random
import sys
import time


def dictionaries(count: int, seed: int) -> object:
    chance = random.Random(seed)
    people = {f"key {i * 7919 % 1000003}": {"id": i, "name": f"name {i}", "tags": [i, i + 1, str(i)]} for i in range(count)}
    keys = list(people)
    chance.shuffle(keys)
    return sum(people[key]["id"] for key in keys[::2])


def fft(rows: int, seed: int) -> object:
    import numpy

    picture = numpy.random.default_rng(seed).standard_normal((rows, 1777))
    total = 0.0
    for _ in range(3):
        spectrum = numpy.fft.fft2(picture)
        total += float(abs(numpy.fft.ifft2(spectrum * spectrum.conj()).real).sum())
    return f"{total:.6e}"


def frames(count: int, seed: int) -> object:
    import numpy
    import pandas

    chance = numpy.random.default_rng(seed)
    sales = pandas.DataFrame(
        {
            "shop": chance.integers(0, 50000, count),
            "amount": chance.standard_normal(count),
            "words": [f"row {i % 9973}" for i in range(count)],
        }
    )
    shops = sales.groupby("shop").agg({"amount": "sum", "words": "nunique"})
    joined = sales.merge(shops, left_on="shop", right_index=True).sort_values("amount_y")
    return len(joined), round(float(joined["amount_y"].sum()), 3)


if __name__ == "__main__":
    what, count, seed, seconds = (*sys.argv[1:], *("1", "5")[len(sys.argv) - 3 :])
    print({"dictionaries": dictionaries, "fft": fft, "frames": frames}[what](int(count), int(seed)), flush=True)
    # What was freed decays meanwhile.
    time.sleep(float(seconds))
