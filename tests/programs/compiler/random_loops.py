#!/usr/bin/env python3
"""random_loops.py SEED [KERNELS [ONLY]]: a random C program of loops that the compiler's plugin may hint; ONLY is the number of its one kernel that is kept.
random_loops.py --plan SEED: a plan for it.

Each program is well defined whatever it computes: an index is a loop's own, masked, clamped, or comes from an array that holds only indices;
arithmetic is unsigned. Arrays begin and end at pages that cannot be accessed, so that one load too many ends the program. What it prints is a
sum for each call of a kernel. Compiled with -DPART=1 and -DPART=2 it is two files; its argument is the number of elements, a power of two, at most 131072.
"""
import random
import sys

PRELUDE = r"""
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
enum { PAGE = 4096 };
#ifndef PART
#define KERNEL __attribute__((noinline)) static
#define SHARED static
#else
#define KERNEL
#define SHARED extern
#endif
struct node { struct node *next; i64 value; struct node *other; i32 at; i32 unused[9]; };
SHARED u64 calls, left_with;
SHARED jmp_buf way_out;
u64 seen(u64 value), leave_at(i64 i, i64 stop, u64 sum);
void release(void *memory);
#if !defined PART || PART == 2
#ifdef PART
u64 calls, left_with;
jmp_buf way_out;
#endif
__attribute__((noinline)) u64 seen(u64 value) { return calls = calls * 3 + value; }
__attribute__((noinline)) u64 leave_at(i64 i, i64 stop, u64 sum) {
  if (i >= stop) { left_with = sum; longjmp(way_out, 1); }
  return sum ^ 1;
}
static u64 state_of_random;
static u64 next(void) { state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u; return state_of_random >> 33; }
/* Exactly so many bytes, whose end or beginning is that of the pages that can be accessed. */
static void *fenced(size_t bytes, int ends) {
  size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
  char *memory = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || (whole && mprotect(memory + PAGE, whole, PROT_READ | PROT_WRITE))) exit(3);
  return memory + PAGE + (ends ? whole - bytes : 0);
}
static void unfenced(void *array, size_t bytes) {
  size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
  munmap((char *)((uintptr_t)array / PAGE * PAGE) - PAGE, whole + 2 * PAGE);
}
/* Each of its own pages, at their end, so that nothing behind it can be read, nor it when it is released. */
__attribute__((noinline)) void release(void *memory) { munmap((void *)((uintptr_t)memory / PAGE * PAGE), PAGE); }
static struct node *list(i64 count, i64 mask, int released) {
  struct node *head = NULL;
  char *room = released || !count ? NULL : fenced(count * sizeof *head, 1);
  for (i64 i = 0; i < count; i++) {
    struct node *one = released ? (struct node *)((char *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + PAGE - sizeof *one) : (struct node *)room + i * 7 % count;
    if (released && (char *)one + sizeof *one - PAGE == MAP_FAILED) exit(3);
    if (!released && count % 7 == 0) one = (struct node *)room + i;
    one->next = head; one->other = head && next() % 2 ? head->next : NULL; one->value = next(); one->at = next() & mask;
    head = one;
  }
  return head;
}
#endif
"""

INDEX_TYPES = ["i32", "u32", "i64", "u64", "u16", "u8"]
VALUE_TYPES = ["u8", "i8", "i16", "u16", "i32", "u32", "i64", "u64", "double", "i64", "i32"]
# What an array holds, by its name's first letter: I indices, A values, W values of rows, X indices of rows, L lengths of rows, E their ends, S short.
LENGTHS = {"I": "size", "A": "size", "P": "size + 64", "W": "size * w", "X": "size * w", "L": "size + 64", "E": "size + 1", "S": "stop"}


class Array:
    def __init__(self, name, kind, type, storage, rng):
        self.name, self.kind, self.type, self.storage = name, kind, type, storage
        self.shared = None
        self.ends = rng.random() < 0.6
        self.written = False


class Kernel:
    def __init__(self, seed, number):
        self.r = random.Random(f"{seed}:{number}")
        self.number, self.arrays, self.names = number, [], 0
        self.i = "i"
        self.rows = []      # variables that are in a row: below w
        self.walks = []     # variables that are below size * w
        self.carried = None
        self.storages = self.r.choice([["param"], ["restrict"], ["restrict", "restrict", "param"], ["param", "global"], ["restrict", "global", "own"], ["own", "restrict"], ["pointer", "param"]])

    def chance(self, p):
        return self.r.random() < p

    def fresh(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def array(self, kind):
        those = [a for a in self.arrays if a.kind == kind]
        if those and (self.chance(0.6) or len(self.arrays) > 7):
            return self.r.choice(those)
        type = self.r.choice(INDEX_TYPES if kind in "IX" else ["i32", "u32", "i64", "u8", "u16"] if kind == "L" else ["i32", "u32", "i64"] if kind == "E" else INDEX_TYPES if kind == "S" else VALUE_TYPES)
        storage = self.r.choice(self.storages)
        if kind in "SE" and storage in ("own", "global"):
            storage = "param"
        if storage == "own" and kind not in "AP":
            storage = "restrict"
        new = Array(f"{kind}{len(self.arrays)}", kind, type, storage, self.r)
        if storage == "param" and not kind == "S":
            twins = [a for a in self.arrays if a.kind == kind and a.storage == "param" and a.shared is None]
            if twins and self.chance(0.5):
                new.shared = twins[0]
                new.type = twins[0].type
        self.arrays.append(new)
        return new

    # In [0, size).
    def index(self, depth):
        r, i = self.r, self.i
        pick = r.randrange(18) if depth else r.randrange(5)
        if pick in (0, 1, 2): return i
        if pick == 3: return f"({i} / 2)"
        if pick == 4: return self.carried or i
        if pick == 5: return f"((u64){i} * {r.choice([3, 7, 64, 513, 7919])} + {r.randrange(99)} & mask)"
        if pick == 6: return f"((u32)((u32){i} * 2654435761u) >> {r.choice([3, 7, 11])} & mask)"
        if pick in (7, 8, 9, 10): return f"{self.array('I').name}[{self.index(depth - 1)}]"
        if pick == 11: return f"((u64){self.array('I').name}[{self.index(depth - 1)}] {r.choice(['+', '^', '*'])} (u64){self.index(depth - 1)} & mask)"
        if pick == 12:
            return f"clamp((i64)({self.value(depth - 1)} & {r.choice([1023, 0xffffff])}) - {r.choice([0, 5, 500])}, size)"
        if pick == 13: return f"less({self.index(depth - 1)}, {self.index(depth - 1)})"
        if pick == 14: return f"({r.choice(['i32', 'u32', 'i64', 'u64'])}){self.index(depth - 1)}"
        if pick == 15: return f"({self.condition(depth - 1)} ? {self.index(depth - 1)} : {self.index(depth - 1)})"
        if pick == 16 and self.walks: return f"{self.array('X').name}[{r.choice(self.walks)}]"
        return f"({i} ^ {i} >> 1)" if pick == 17 else i

    def element(self, depth):
        kinds = ["A", "A", "A", "P", "I"]
        if self.rows: kinds += ["W", "W", "W"]
        if self.walks: kinds += ["V", "V", "V"]
        kind = self.r.choice(kinds)
        if kind == "P":
            array = self.array("P")
            return array, f"{array.name}[{self.index(depth)} + {self.r.choice([0, 1, 2, 8, 63, 64])}]"
        if kind == "W":
            array = self.array(self.r.choice("WX"))
            at = self.r.choice([f"{self.index(0)} * w + {self.r.choice(self.rows)}", f"{self.index(depth)} * (i64)w + {self.r.choice(self.rows)}"])
            return array, f"{array.name}[{at}]"
        if kind == "V":
            array = self.array(self.r.choice("WX"))
            return array, f"{array.name}[{self.r.choice(self.walks)}]"
        array = self.array(kind)
        return array, f"{array.name}[{self.index(depth)}]"

    def read(self, depth):
        array, text = self.element(depth)
        return f"(u64)(i64){text}" if array.type == "double" else f"(u64){text}"

    def value(self, depth):
        pick = self.r.randrange(10) if depth > 0 else self.r.randrange(5)
        if pick < 2: return self.read(max(depth, 0))
        if pick == 2: return "s"
        if pick == 3: return f"(u64){self.i}"
        if pick == 4: return self.r.choice(["x", f"{self.r.randrange(1000)}u"])
        if pick == 9: return f"({self.value(depth - 1)} >> {self.r.randrange(1, 9)})"
        return f"({self.value(depth - 1)} {self.r.choice('+-*^&|')} {self.value(depth - 1)})"

    def condition(self, depth):
        return self.r.choice([
            lambda: f"({self.value(depth)} & {self.r.choice([1, 3, 64])}) {self.r.choice(['==', '!='])} 0",
            lambda: f"{self.value(depth)} < {self.value(depth)}",
            lambda: f"{self.read(depth)} > {self.r.randrange(300)}u",
        ])()

    def rare(self):
        return self.r.choice([lambda: f"(i64){self.i} == stop", lambda: f"{self.read(1)} == {self.r.randrange(1 << 20)}u", lambda: f"({self.value(1)} & 1023) == {self.r.randrange(1024)}"])()

    def store(self, depth):
        array, place = self.element(depth)
        array.written = True
        value = self.value(depth)
        if array.kind in "IX": value = f"{value} & mask"
        if array.type == "double": value = f"(double)({value} & 1023)"
        return f"{place} = ({array.type})({value});"

    def statement(self, depth):
        r = self.r
        pick = r.randrange(24)
        if pick < 6: return f"s += {self.value(2)};"
        if pick < 8: return f"s = s * 31 + {self.read(2)};"
        if pick < 9: return f"x ^= {self.value(2)};"
        if pick < 12: return self.store(1)
        if pick == 12 and self.carried: return f"{self.carried} = {self.index(2)};"
        if pick == 13: return f"if ({self.condition(1)}) {{ {self.statement(depth)} }}"
        if pick == 14:
            array = self.array("L")
            if self.chance(0.5):
                array.written = True
                return f"{array.name}[{self.index(0)} + {r.choice([1, 2, 64])}] = ({array.type})({self.value(1)} & w - 1);"
        if pick == 15:
            array = self.array("P")
            if array.type != "double":
                array.written = True
                return f"helped_{array.type}(&{array.name}[{self.i}], &{array.name}[{self.i} + {r.choice([1, 2, 64])}], &s);"
        if pick in (19, 20):
            array = self.array("P")
            if array.type != "double":
                meddles = self.chance(0.3)
                array.written |= meddles
                return f"s = s * 3 + {'meddled' if meddles else 'peeked'}_{array.type}(&{array.name}[{self.index(1)}]);"
        if pick in (21, 22, 23):
            array = self.array("W")
            if array.type != "double":
                row = f"&{array.name}[{self.index(1)} * (i64)w]"
                length = r.choice(["w", "w", "w - 1", "w / 2", f"(i64){self.array('L').name}[{self.i}]"])
                if self.chance(0.3):
                    array.written = True
                    return f"painted_{array.type}({row}, {length}, s);"
                return r.choice([f"s = s * 3 + walked_{array.type}({row}, {length});", f"s = s * 3 + handed_{array.type}({row}, {length});",
                                 f"{{ const {array.type} *row = {row}; s = s * 3 + spanned_{array.type}(row, row + {length}); }}"])
        if pick == 16: return f"s ^= seen({self.value(1)});" if self.chance(0.4) else "s++;"
        if pick == 17 and self.chance(0.4): return r.choice(["__atomic_fetch_add(&calls, s, __ATOMIC_RELAXED);", "s += *(volatile u64 *)&calls;", "__atomic_signal_fence(__ATOMIC_SEQ_CST);"])
        if pick == 18 and self.chance(0.5): return f"if ({self.rare()}) {r.choice(['break', 'continue', 'return s ^ x'])};"
        if depth: return self.inside(depth - 1)
        return f"s += {self.value(2)};"

    def block(self, depth, least=1):
        return " ".join(self.statement(depth) for _ in range(self.r.randrange(least, 4)))

    def inside(self, depth):
        r, j = self.r, self.fresh("j")
        type = r.choice(["int", "long", "u32", "u64", "i16", "i64", "i64"])
        form = r.randrange(13)
        row = lambda: self.scoped(self.rows, j, depth)
        if form < 2: return f"for ({type} {j} = 0; {j} < ({type})w; {j}++) {{ {row()} }}"
        if form == 2: return f"for ({type} {j} = ({type})w - 1; {j} > 0; {j}--) {{ {row()} }}"
        if form in (3, 4):
            length = self.array("L")
            return f"for ({type} {j} = 0; {j} < ({type}){length.name}[{self.index(1)}]; {j}++) {{ {row()} }}"
        if form == 5: return f"{{ {type} {j} = 0; do {{ {row()} }} while (++{j} < ({type})w); }}"
        if form == 6:
            ends = self.array("E")
            return f"for ({ends.type} {j} = {ends.name}[{self.i}]; {j} < {ends.name}[{self.i} + 1]; {j}++) {{ {self.scoped(self.walks, j, depth)} }}"
        if form in (7, 8):
            ends, begin = self.array("E"), self.fresh("from")
            self.before.append(f"{ends.type} {begin} = 0;")
            return f"for ({ends.type} {j} = {begin}; {j} < {ends.name}[{self.i}]; {j}++) {{ {self.scoped(self.walks, j, depth)} }} {begin} = {ends.name}[{self.i}];"
        if form == 9:
            lengths = self.array("L")
            return f"for (i64 {j} = 0, end = {lengths.name}[{self.i} + {r.choice([0, 1, 64])}]; {j} != end; {j}++) {{ {row()} }}"
        if form == 10: return f"for ({type} {j} = 0; {j} < ({type})w && {self.read(1)} != {r.randrange(256)}u; {j}++) {{ {row()} }}"
        if form == 11: return f"if ({self.condition(1)}) for (i64 {j} = 0; {j} < w; {j}++) {{ {row()} }}"
        return f"for (i64 {j} = {self.i} & 3; {j} < w; {j} += {r.choice([1, 2, 3])}) {{ {row()} }}"

    def scoped(self, variables, name, depth):
        variables.append(name)
        text = self.block(depth)
        variables.remove(name)
        return text

    def loop(self):
        r = self.r
        self.before = []
        if self.chance(0.3): self.carried = self.fresh("c")
        if self.carried: self.before.append(f"{r.choice(['int', 'u32', 'i64', 'u64'])} {self.carried} = 0;")
        body = self.block(r.choice([0, 0, 1])) if self.chance(0.5) else self.inside(r.choice([0, 0, 1])) + (" " + self.block(0) if self.chance(0.6) else "")
        pre = ""
        if self.chance(0.25):
            short = self.array("S")
            read = f"{short.name}[i]"
            use = r.choice([f"s += {read};", f"s += (u64){self.array('I').name}[{read}];", f"for (i64 k = 0; k < ({read} & 7); k++) s += k * x;"])
            pre = r.choice([f"if ((i64)i >= stop) break; {use}", f"if ((i64)i < stop) {{ {use} }}", f"s ^= leave_at(i, stop, s); {use}", f"if ((i64)i < stop) {{ {use} }} else if (s & 1) {{ x++; }}"])
        if self.carried and self.chance(0.7): body += f" {self.carried} = {self.index(2)};"
        body = pre + body
        t = r.choice(["i64", "i64", "u64", "i32", "u32", "int", "size_t", "u8", "i16"])
        count = f"({t})(n < 200 ? n : 200)" if t in ("u8",) else f"({t})(n < 30000 ? n : 30000)" if t == "i16" else f"({t})n"
        form = r.randrange(9)
        if form < 4: head = f"for ({t} i = 0; i < {count}; i++) {{ {body} }}"
        elif form == 4: head = f"for ({t} i = {count}; i-- > 0;) {{ {body} }}"
        elif form == 5: head = f"for (i64 i = n - 1; i >= 0; i--) {{ {body} }}"
        elif form == 6: head = f"for (i64 i = {r.randrange(3)}; i < n; i += {r.choice([1, 2, 3, 5])}) {{ {body} }}"
        elif form == 7: head = f"if (n > 0) {{ i64 i = 0; do {{ {body} }} while (++i < n); }}"
        else: head = f"{{ i64 last = n; for ({t} i = 0; i != ({t}){'last' if t not in ('u8', 'i16') else 'less(last, 100)'}; ++i) {{ {body} }} }}"
        text = " ".join(self.before) + "\n  " + head
        if self.carried: text += f"\n  s += {self.carried};"
        self.carried = None
        return "{ " + text + " }"

    def chain(self):
        """A walk along nodes; `Q` is the list, nodes of which are released one by one or all together."""
        r = self.r
        self.i = "p->at"
        self.before = []
        released = self.chance(0.4)
        use = self.block(0)
        form = r.randrange(6)
        if released:
            ahead = r.choice(["struct node *q = p->next; {use} release(p); p = q;", "{use} struct node *q = p; p = p->next; release(q);"]).replace("{use}", use)
            # Leaving in the middle would only leak.
            text = f"struct node *p = Q; while (p) {{ {ahead.replace('continue;', 's++;')} }}"
        else:
            step = r.choice(["p = p->next", "p = p->next", "p = p->other ? p->other : p->next", "p = s & 1 && p->next ? p->next->next : p->next"])
            text = [f"for (struct node *p = Q; p; {step}) {{ s += p->value; {use} }}",
                    f"struct node *p = Q; while (p) {{ {use.replace('continue;', 's++;')} p->value ^= x; {step}; }}",
                    f"if (Q) {{ struct node *p = Q; do {{ {use.replace('continue;', 's++;')} {step}; }} while (p && p->value != 77); }}",
                    f"for (struct node *p = Q; p && p->next; p = p->next) {{ {use} s ^= p->next->value; }}",
                    f"struct node *p = Q; for (i64 k = 0; k < n && p; k++, p = p->next) {{ {use} }}",
                    f"for (struct node *p = Q, *q; p; p = q) {{ q = p->next; {use} p->next = s & 2 ? q : NULL; }}"][form]
        self.i = "i"
        return "{ " + text + " }", released

    def make(self):
        r = self.r
        loops, self.nodes, self.released = [], False, False
        kind = r.randrange(10)
        if kind < 2:
            text, self.released = self.chain()
            self.nodes = True
            loops.append(text)
            if self.chance(0.3) : loops.append(self.loop())
        elif kind == 2:
            loops = [self.pointers()]
        elif kind == 4:
            loops = [self.memory()]
            if self.chance(0.5): loops.append(self.loop())
        elif kind == 3:
            loops = [self.together()]
            if self.chance(0.5): loops.insert(0, self.loop())
        else:
            loops = [self.loop() for _ in range(r.choice([1, 1, 2, 3]))]
        self.text = "\n  ".join(loops)

    def together(self):
        """Loops that follow one another over as many iterations, which may be fused."""
        r = self.r
        self.before = []
        t, first = r.choice(["i64", "i64", "int", "u32", "u64"]), r.choice(["0", "0", "1"])
        inside = self.chance(0.3)

        def element():
            kind = r.choice("PPPAWW")
            array = self.array(kind)
            if kind == "W": return array, r.choice(["2 * i", "2 * i + 1", "w * i", "w * i + 1", "i", "i + 1"] + (["i * w + j", "j * n + i", "i * w + w - 1 - j"] * 2 if inside else []))
            if kind == "A": return array, r.choice(["i", "i", "n - 1 - i"])
            return array, r.choice(["i", "i", "i", "i + 1", "i + 2", "i + 64", "n - 1 - i", "n - i"] + (["i - 1"] if first == "1" else []))

        def at():
            array, index = element()
            return f"(u64)(i64){array.name}[{index}]"

        def step():
            array, index = element()
            value = r.choice([f"{at()} * 3 + i", f"{at()} ^ {at()}", "s", f"{at()} + x", "x + i"])
            array.written = True
            cast = f"({array.type})(({value}) & 1023)" if array.type == "double" else f"({array.type})({value})"
            text = f"{array.name}[{index}] = {cast};"
            if self.chance(0.15): text = f"if ({at()} & 1) {text}"
            return r.choice([text, text, text, text, f"s += {at()};", f"s = s * 5 + {at()};"])

        loops = []
        for _ in range(r.choice([2, 2, 3, 4])):
            body = " ".join(step() for _ in range(r.choice([1, 1, 2])))
            if inside: body = f"for (i64 j = 0; j < w; j++) {{ {body} }}"
            loops.append(f"for ({t} i = {first}; i < ({t})n; i++) {{ {body} }}")
            if self.chance(0.3): loops.append(r.choice(["x += 3;", "s ^= x;", "if (x & 1) s++;", "s += seen(s);"]))
        return "{ " + "\n  ".join(loops) + " }"

    def memory(self):
        """Memory of the function's own: filled, grown, handed on, given back, some of it not before the loop itself has."""
        r, values = self.r, self.array("A").name
        count, type = r.choice(["n", "n", "n + 1", "size"]), r.choice(["i64", "u64", "u32", "i32", "u16"])
        read = f"(u64)(i64){values}[i]"
        fill = r.choice([f"o[i] = ({type})({read} * 3);", f"o[i] = ({type})i; o[i] = ({type})(o[i] + {read});", f"if ({read} & 1) o[i] = 1; else o[i] = ({type})({read});",
                         f"o[i] = ({type})(i ? o[i - 1] + {read} : x);", f"o[i] = ({type})o[n - 1 - i] + 1;", f"s += o[i]; o[i] = ({type})s;", f"o[i] = ({type})seen(i);"])
        sums = f"for (i64 i = 0; i < n; i++) s = s * 31 + (u64)o[{r.choice(['i', 'n - 1 - i'])}];"
        whole = f"{type} *o = {r.choice([f'calloc({count} + 1, sizeof *o)', f'malloc(({count} + 1) * sizeof *o); memset(o, 7, ({count} + 1) * sizeof *o)'])};"
        return "{ " + r.choice([
            lambda: f"{whole} for (i64 i = 0; i < n; i++) {{ {fill} }} {sums} free(o);",
            lambda: f"{whole} for (i64 t = 0; t < 3; t++) {{ for (i64 i = 0; i < n; i++) {{ {fill} }} {sums} }} free(o);",
            lambda: f"{type} *o = NULL; i64 room = 0; for (i64 i = 0; i < n; i++) {{ if (i == room) {{ room = room * 2 + 8; o = realloc(o, room * sizeof *o); }} o[i] = ({type})({read}); s += (u64)o[i / 2]; }} {sums} free(o);",
            lambda: f"for (i64 k = 0; k < n / 64; k++) {{ {type} *o = malloc(1024 * sizeof *o); for (i64 i = 0; i < 1024; i++) o[i] = ({type})(i * k + x); s = s * 3 + (u64)o[s & 1023]; free(o); }}",
            lambda: f"{type} *o = malloc((n + 1) * sizeof *o); o[0] = 3; for (i64 i = 0; i < n; i++) {{ for (i64 k = 0; k < (i64)(o[i] & w - 1); k++) s += (u64){self.array('W').name}[i * w + k]; o[i + 1] = ({type})({read} & w - 1); }} free(o);",
            lambda: f"{type} *o = malloc((n + 1) * sizeof *o); o[0] = 0; for (i64 i = 0; i < n; i++) {{ s += (u64)(i64){values}[o[i]]; o[i + 1] = ({type})((u64)i * 7 & mask & 65535); }} free(o);",
            lambda: f"{type} *o = malloc((n + 1) * w * sizeof *o); for (i64 i = 0; i < n; i++) {{ for (i64 k = 0; k < w; k++) o[i * w + k] = ({type})({read} + k); memcpy(o + (i + 1) * w, o + i * w, w * sizeof *o); }} for (i64 i = 0; i < n * w; i++) s = s * 31 + (u64)o[i]; free(o);",
            lambda: f"struct pair {{ {type} *to; u64 value; }} *o = calloc(n + 1, sizeof *o); {type} *t = calloc(n + 1, sizeof *t); for (i64 i = 0; i < n; i++) {{ o[i].to = t + ({read} & mask) % (n + 1); o[i].value = i; }} for (i64 i = 0; i < n; i++) {{ s += *o[i].to + o[i].value; *o[i].to += 3; }} free(o); free(t);",
            lambda: f"unsigned __int128 *o = malloc((n + 1) * sizeof *o); for (i64 i = 0; i < n; i++) o[i] = (unsigned __int128)({read}) * x; for (i64 i = 0; i < n; i++) s += (u64)(o[i] >> 60) + (u64){values}[(u64)o[i] & mask]; free(o);",
            lambda: f"{whole} for (i64 i = 0; i < n; i++) switch ({read} & 3) {{ case 0: o[i] = 1; break; case 1: s += o[i]; case 2: s ^= (u64)(i64){self.array('A').name}[{self.array('I').name}[i]]; break; default: o[n - 1 - i]++; }} {sums} free(o);",
        ])() + " }"

    def pointers(self):
        """Each iteration follows a pointer of its own, to what it may release."""
        r = self.r
        self.before = []
        self.nodes, self.released = "array", self.chance(0.5)
        body = self.block(0)
        carried = self.fresh("c")
        after = r.choice([f"{carried} = p->at;", f"{carried} = p->at & {self.index(0)};", ""])
        free = r.choice(["Q[i] = NULL; release(p);", "release(p);"]) if self.released else r.choice(["", "p->value += s;", "Q[i] = Q[i / 2];"])
        body = body.replace("continue;", "s++;").replace("break;", "s++;") if self.released else body
        body = body.replace("return s ^ x;", "s++;") if self.released else body
        use = r.choice([f"s += {self.array('A').name}[{carried}];", f"s += {self.array('A').name}[p->at];", f"for (i64 k = {carried} & 7; k < (p->at & 15); k++) s += k * {self.array('W').name}[i * w + (k & w - 1)];", "s += p->value;"])
        return f"int {carried} = 0; for (i64 i = 0; i < n; i++) {{ struct node *p = Q[i]; {use} {body} {after} {free} }} s += {carried};"

    def parameters(self):
        words = ["i64 n", "i64 size", "u64 mask", "i64 w", "i64 stop", "u64 x"]
        if self.nodes: words.append("struct node *%sQ" % ("*" if self.nodes == "array" else ""))
        for a in self.arrays:
            if a.storage in ("param", "restrict"):
                words.append(f"{'' if a.written or a.shared or self.shares(a) else self.r.choice(['', 'const '])}{a.type} *{'restrict ' if a.storage == 'restrict' else ''}{a.name}")
        return ", ".join(words)

    def shares(self, array):
        return any(a.shared is array for a in self.arrays)

    def file_scope(self):
        lines = []
        for a in self.arrays:
            name = f"{a.name}_{self.number}"
            if a.storage == "global": lines.append(f"SHARED {a.type} {name}[{GLOBAL.get(a.kind)}];")
            if a.storage == "pointer": lines.append(f"SHARED {a.type} *{name};")
        return lines

    def definition(self):
        text = self.text
        head = [f"#define {a.name} {a.name}_{self.number}" for a in self.arrays if a.storage in ("global", "pointer")]
        tail = [f"#undef {a.name}" for a in self.arrays if a.storage in ("global", "pointer")]
        own = [a for a in self.arrays if a.storage == "own"]
        lines = head + [f"KERNEL u64 kernel{self.number}({self.signature}) {{", "  u64 s = 1; (void)size; (void)mask; (void)w; (void)stop;"]
        for a in own:
            count = LENGTHS[a.kind]
            fill = "i & 1023" if a.type in ("double", "i64", "u64") else "i & 127"
            lines.append(f"  {a.type} *{a.name} = malloc(({count}) * sizeof *{a.name}); for (i64 i = 0; i < {count}; i++) {a.name}[i] = ({a.type})({fill});")
        lines.append("  " + (text.replace("return s ^ x", "goto out") if own else text))
        if own: lines.append("out:")
        for a in own:
            if self.r.random() < 0.5: lines.append(f"  for (i64 i = 0; i < {LENGTHS[a.kind]}; i++) s = s * 7 + (u64){'(i64)' if a.type == 'double' else ''}{a.name}[i];")
            lines.append(f"  free({a.name});")
        return "\n".join(lines + ["  return s;", "}"] + tail)

    def driver(self):
        k = self.number
        real = [a for a in self.arrays if a.storage != "own" and a.shared is None]
        lines = [f"static void drive{k}(i64 n, i64 size, i64 w, i64 stop, int round) {{", "  u64 mask = size - 1, s; (void)mask;"]
        if self.nodes and self.released: lines.append("  if (n > 4096) n = 4096; /* a page each */")
        for a in real:
            count, name = LENGTHS[a.kind], a.name if a.storage not in ("global", "pointer") else f"{a.name}_{k}"
            if a.storage != "global": lines.append(f"  {'' if a.storage == 'pointer' else a.type + ' *'}{name} = fenced(({count}) * sizeof *{name}, {int(a.ends)});")
            fill = {"I": "next() & mask", "X": "next() & mask", "L": "next() & w - 1", "S": "next() & mask", "E": "EACH"}.get(a.kind, "next() & 1023" if a.type == "double" else "next()")
            if a.kind == "E":
                fill = self.r.choice(["i * w", "i * w - (i > 0 && i < size ? (i64)(next() & w - 1) : 0)", "i * w > 64 ? i * w - (i64)(next() & 63) : 0"])
            lines.append(f"  for (i64 i = 0; i < ({count}); i++) {name}[i] = ({a.type})({fill});")
        if self.nodes == "array":
            lines.append("  struct node **Q = fenced(n * sizeof *Q, 1); struct node *every = list(n, mask, %d); { i64 i = 0; for (struct node *p = every; p; p = p->next) Q[i++] = p; }" % self.released)
            if not self.released: lines.append("  (void)every;")
        elif self.nodes:
            lines.append(f"  struct node *Q = list(n, mask, {int(self.released)});")
        words = ["n", "size", "mask", "w", "stop", "next() | 1"] + (["Q"] if self.nodes else [])
        words += [a.shared.name if a.shared else a.name for a in self.arrays if a.storage in ("param", "restrict")]
        lines.append(f"  if (!setjmp(way_out)) s = kernel{k}({', '.join(words)}); else s = left_with;")
        lines.append(f"  printf(\"{k}.%d %llx\", round, (unsigned long long)s);")
        lines.append("  s = 0;")
        for a in real:
            count, name = LENGTHS[a.kind], a.name if a.storage not in ("global", "pointer") else f"{a.name}_{k}"
            if a.written: lines.append(f"  for (i64 i = 0; i < ({count}); i++) s = s * 1000003 + (u64){'(i64)' if a.type == 'double' else ''}{name}[i];")
            if a.storage != "global": lines.append(f"  unfenced({name}, ({count}) * sizeof *{name});")
        lines.append("  printf(\" %llx\\n\", (unsigned long long)s);\n}")
        return "\n".join(lines)


GLOBAL = {"I": "1 << 17", "A": "1 << 17", "P": "(1 << 17) + 64", "W": "1 << 20", "X": "1 << 20", "L": "(1 << 17) + 64"}


def plan(seed):
    r = random.Random(f"plan {seed}")
    text = ["hinterland-plan = 1"]
    for k in range(12):
        text += ["", "[[function]]", f'name = "kernel{k}"']
        if r.random() < 0.6: text.append(f'evict = "{r.choice(["never", "soon", "now", "last", "last", "last"])}"')
        if r.random() < 0.1: text.append(f'patterns = ["{r.choice(["sequential", "strided", "nest", "indirect", "chain"])}"]')
    return "\n".join(text)


def program(seed, count, only):
    kernels = []
    for number in range(count):
        if only is not None and number != only: continue
        kernel = Kernel(seed, number)
        kernel.make()
        kernel.signature = kernel.parameters()
        kernels.append(kernel)
    parts = [PRELUDE]
    parts.append("static inline i64 clamp(i64 value, i64 size) { return value < 0 ? 0 : value >= size ? size - 1 : value; }")
    parts.append("static inline i64 less(i64 left, i64 right) { return left < right ? left : right; }")
    for type in ("u8", "i8", "i16", "u16", "i32", "u32", "i64", "u64"):
        parts.append(f"static inline void helped_{type}({type} *restrict from, {type} *restrict to, u64 *restrict sum) {{ *to = ({type})((u64)*from * 3 + 1); *sum += (u64)*from; }}")
        # Functions that stay functions, and touch what is at an argument and behind it.
        parts.append(f"__attribute__((noinline)) static u64 peeked_{type}(const {type} *at) {{ u64 sum = 1; for (int k = 0; k < 64; k++) {{ sum = sum * 3 + (u64)at[k]; if (sum % 1024 == 7) break; }} return sum; }}")
        parts.append(f"__attribute__((noinline)) static u64 meddled_{type}({type} *at) {{ u64 sum = (u64)at[1]; for (int k = 0; k < (int)(sum & 31); k++) at[k] = ({type})(at[k] + 1); return sum; }}")
        # Rows as long as an argument says, or as far as another pointer.
        parts.append(f"__attribute__((noinline)) static u64 walked_{type}(const {type} *at, i64 count) {{ u64 sum = 1; for (i64 k = 0; k < count; k++) sum = sum * 3 + (u64)at[k]; return sum; }}")
        parts.append(f"__attribute__((noinline)) static u64 spanned_{type}(const {type} *from, const {type} *to) {{ u64 sum = 1; for (; from < to; from++) sum = sum * 5 + (u64)*from; return sum; }}")
        parts.append(f"__attribute__((noinline)) static u64 handed_{type}(const {type} *at, i64 count) {{ i64 half = (i64)((u64)count / 2); return walked_{type}(at, half) * 7 + spanned_{type}(at + half, at + count); }}")
        parts.append(f"__attribute__((noinline)) static void painted_{type}({type} *at, int count, u64 with) {{ for (int k = count - 1; k >= 0; k--) at[k] = ({type})(with + (u64)k); }}")
    for k in kernels:
        parts += k.file_scope()
    parts.append("#if defined PART")
    parts += [f"u64 kernel{k.number}({k.signature});" for k in kernels]
    parts.append("#endif\n#if !defined PART || PART == 1")
    parts += [k.definition() for k in kernels]
    parts.append("#endif\n#if !defined PART || PART == 2")
    if any(k.file_scope() for k in kernels):
        parts.append("#ifdef PART")
        parts += [line.replace("SHARED ", "") for k in kernels for line in k.file_scope()]
        parts.append("#endif")
    parts += [k.driver() for k in kernels]
    w = random.Random(f"width {seed}").choice([4, 8, 8, 2])
    calls = "\n".join(f"    state_of_random = {seed} * 977 + {k.number} + round; drive{k.number}(n, size, {w}, stop, round);" for k in kernels)
    parts.append(f"""int main(int count, char **words) {{
  i64 size = count > 1 ? strtol(words[1], NULL, 10) : 2048;
  const i64 ns[] = {{size, 0, 1, size - 1, 300, 17, size / 2 + 3}};
  for (int round = 0; round < 7; round++) {{
    i64 n = ns[round], stop = round == 0 ? size / 2 + 1 : round % 2 ? n : n / 3;
{calls}
  }}
}}
#endif""")
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1] == "--plan":
        print(plan(sys.argv[2]))
    else:
        words = [int(word) for word in sys.argv[1:]]
        print(program(words[0], words[1] if len(words) > 1 else 8, words[2] if len(words) > 2 else None))
