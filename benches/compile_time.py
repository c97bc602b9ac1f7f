#!/usr/bin/env python3
"""What the compiler's plugin adds to the time of a compilation, and to the code: a generated C program of many functions, some of which have loops
over memory of the heap, and zstd's library where cargo has its source.

Writes one JSON file. Each round compiles every source with clang alone, with the plugin, and, the generated program, with a plan that names all of its
functions, in an order that rotates; a difference is taken within each round, then the median. Seconds are those of the processor."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fault_paths import spread
from options import options
from workloads import origin

# Targets: seconds beyond clang's own for 30,000 lines, and the text beside clang's.
BEYOND_SECONDS_MAX = 10
TEXT_MAX = 1.3

PRELUDE = """#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct item { struct item *next; uint64_t key, count; double weight, rest[4]; };
struct table { struct item *items, **slots; uint32_t *order; double *values; uint64_t *rows; uint64_t count, mask; };
"""

# A loop over memory of the heap, or none: N is the function's number, A and B are numbers of its own.
FUNCTIONS = (
    """double gather_N(const struct table *t, uint64_t count) {
    double sum = A;
    for (uint64_t i = 0; i < count; i++) {
        const struct item *item = &t->items[t->order[i]];
        if (item->key % B == 1)
            sum += item->weight;
        else
            sum -= item->rest[i & 3];
    }
    return sum;
}
""",
    """uint64_t find_N(const struct table *t, uint64_t key) {
    for (uint64_t i = 0; i < t->count; i++) {
        if (t->items[i].key == key)
            return i;
        if (t->items[i].count > A)
            break;
    }
    return t->count + B;
}
""",
    """void rows_N(struct table *t, double *restrict to, const double *restrict from) {
    for (uint64_t row = 0; row < t->count; row++) {
        double sum = 0;
        for (uint64_t at = t->rows[row]; at < t->rows[row + 1]; at++)
            sum += from[t->order[at]] * t->values[at];
        to[row] = sum * A;
    }
}
""",
    """uint64_t insert_N(struct table *t, struct item *item) {
    uint64_t hash = item->key * UINT64_C(0x9e3779b97f4a7c15) >> A;
    struct item **slot = &t->slots[hash & t->mask];
    for (struct item *other = *slot; other; other = other->next)
        if (other->key == item->key) {
            other->count += B;
            return 0;
        }
    item->next = *slot;
    *slot = item;
    t->count++;
    return 1;
}
""",
    """int parse_N(const char *text, long *value) {
    long number = 0, sign = 1;
    switch (*text) {
    case '-': sign = -1; text++; break;
    case '+': text++; break;
    case 'x': number = A; text++; break;
    default: break;
    }
    while (*text >= '0' && *text <= '9') {
        if (number > (INT64_MAX - 9) / 10)
            return -1;
        number = number * 10 + (*text++ - '0');
    }
    if (*text && *text != ',')
        return B;
    *value = number * sign;
    return 0;
}
""",
    """int compare_N(const void *one, const void *other) {
    const struct item *a = one, *b = other;
    if (a->weight != b->weight)
        return a->weight < b->weight ? -1 : 1;
    if (a->key / A != b->key / A)
        return a->key < b->key ? -1 : 1;
    if (a->count != b->count)
        return a->count % B < b->count % B ? -1 : 1;
    return 0;
}
""",
    """struct table *make_N(uint64_t count) {
    struct table *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->items = malloc(count * sizeof *t->items);
    t->order = malloc(count * sizeof *t->order);
    if (!t->items || !t->order) {
        free(t->items);
        free(t->order);
        free(t);
        return NULL;
    }
    memset(t->items, 0, count * sizeof *t->items);
    t->count = count / A;
    t->mask = B;
    return t;
}
""",
    """uint64_t mix_N(uint64_t a, uint64_t b, struct item *item) {
    a ^= b >> A % 60;
    b += a * B;
    if (a > b) {
        item->count = a - b;
        a ^= item->key;
    } else if (a & 1) {
        item->key = b;
        b = b << 7 | b >> 57;
    }
    item->weight += (double)(a & 255);
    return a + b;
}
""",
)


def generate(lines: int) -> tuple[str, list[str]]:
    """A program of so many lines, or a few more, and the names of its functions."""
    draws, text, names, written = random.Random(1), [PRELUDE], [], PRELUDE.count("\n")
    while written < lines:
        number = len(names)
        function = FUNCTIONS[number % len(FUNCTIONS)]
        for word, value in (("A", draws.randrange(3, 50)), ("B", draws.randrange(3, 1000))):
            function = re.sub(rf"\b{word}\b", str(value), function)
        function = function.replace("_N", f"_{number}")
        names.append(function.split("(")[0].split()[-1].lstrip("*"))
        text.append(function + "\n")
        written += text[-1].count("\n")
    return "".join(text), names


def zstd() -> list[Path]:
    """The sources of zstd's library, if cargo has them."""
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry/src"
    found = sorted(registry.glob("*/zstd-sys-*/zstd/lib"))
    return sorted(source for part in ("common", "compress", "decompress", "dictBuilder") for source in (found[-1] / part).glob("*.c")) if found else []


def compile_all(command: list, sources: list[Path], directory: Path) -> tuple[float, int]:
    """Seconds of the processor, and bytes of text."""
    seconds, objects = 0.0, []
    for number, source in enumerate(sources):
        objects.append(directory / f"{number}.o")
        process = subprocess.Popen([*command, "-O2", "-w", "-c", source, "-o", objects[-1]])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{command} {source} ended with {process.returncode}")
        seconds += usage.ru_utime + usage.ru_stime
    said = subprocess.run(["size", *objects], check=True, capture_output=True, text=True).stdout
    return seconds, sum(int(line.split()[0]) for line in said.splitlines()[1:])


def measure(name: str, sources: list[Path], variants: dict[str, list], directory: Path, rounds: int) -> dict:
    seconds: dict[str, list[float]] = {variant: [] for variant in variants}
    text = {}
    for turn in range(rounds):
        for step in range(len(variants)):
            variant = list(variants)[(turn + step) % len(variants)]
            taken, text[variant] = compile_all(variants[variant], sources, directory)
            seconds[variant].append(round(taken, 3))
            print(f"{name} {variant}: {taken:.2f} s, {text[variant]} bytes of text", file=sys.stderr)
    others = [variant for variant in variants if variant != "clang"]
    return {
        "sources": name,
        "files": len(sources),
        "lines": sum(source.read_text(errors="replace").count("\n") for source in sources),
        "seconds": seconds,
        "beyond_clang": {variant: spread([a - b for a, b in zip(seconds[variant], seconds["clang"])]) for variant in others},
        "text_bytes": text,
        "text_by_clang": {variant: round(text[variant] / text["clang"], 3) for variant in others},
    }


def main() -> None:
    parser = options(__doc__, repeat=3)
    parser.add_argument("--lines", type=int, default=30_000, help="lines of the generated program (default: %(default)s)")
    given = parser.parse_args()
    launcher = given.target / "release/hinterland"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program, names = generate(given.lines)
        source, plan = directory / "generated.c", directory / "generated.plan"
        source.write_text(program)
        plan.write_text("hinterland-plan = 1\n" + "".join(f'\n[[function]]\nname = "{function}"\n' for function in names))
        plain = {"clang": ["clang-22"], "plugin": [launcher, "cc"]}
        rows = [measure("generated", [source], plain | {"plan of all": [launcher, "cc", "--far-plan", plan]}, directory, given.repeat)]
        if library := zstd():
            rows.append(measure("zstd", library, plain, directory, given.repeat))
        else:
            print("zstd is left out: cargo has no source of it", file=sys.stderr)
    generated = rows[0]
    beyond, text = generated["beyond_clang"]["plugin"]["median"], generated["text_by_clang"]["plugin"]
    result = {
        "bench": "compile-time",
        "what": "processor seconds of clang -O2 with the compiler's plugin beyond clang's own, and bytes of text beside clang's",
        **origin(launcher, "compile_time.py"),
        "rows": rows,
        "targets": [
            {"target": f"seconds beyond clang for {generated['lines']} lines", "at_most": BEYOND_SECONDS_MAX, "reached": beyond, "met": beyond <= BEYOND_SECONDS_MAX},
            {"target": "text by clang's", "at_most": TEXT_MAX, "reached": text, "met": text <= TEXT_MAX},
        ],
    }
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
