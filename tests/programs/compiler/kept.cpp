// Loops that come to memory again, which is to be kept while they run. Prints what they compute; under the recorder, what was kept of the object that
// a kernel expects to be, how often, and whether all of it was released. With the argument `far` one of them, beside more memory than it is run in.
extern "C" {
#include "recorder.h"
}
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using Sum = unsigned long;

#define KERNEL __attribute__((noinline)) static
#define INLINE __attribute__((always_inline)) static inline

static struct {
    const void *object;
    size_t bytes;
} expected;

__attribute__((noinline)) static void expect(const void *object, size_t bytes) { expected = {object, bytes}; }

static void report(const char *kernel, Sum sum) {
    printf("%s %lu\n", kernel, sum);
    if (recorder_kept) recorder_kept(kernel, expected.object, expected.bytes);
    expected = {};
}

// Inlined, so that a kernel sees how large they are.
INLINE long *numbers(long count) {
    long *all = static_cast<long *>(malloc(static_cast<size_t>(count) * sizeof *all));
    for (long i = 0; i < count; i++) all[i] = i * 31 % 1009;
    return all;
}

KERNEL Sum gathered(const int *places, long count, long size) {
    long *values = numbers(size);
    Sum sum = 0;
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
    free(values);
    return sum;
}

KERNEL Sum cleared(const int *places, long count, size_t size) {
    int *values = static_cast<int *>(calloc(size, sizeof *values));
    expect(values, size * sizeof *values);
    for (long i = 0; i < count; i++) values[places[i]] += static_cast<int>(i);
    Sum sum = static_cast<Sum>(values[0] + values[size / 2]);
    free(values);
    return sum;
}

KERNEL Sum created(const int *places, long count, size_t size) {
    long *values = new long[size];
    expect(values, size * sizeof *values);
    for (size_t i = 0; i < size; i++) values[i] = static_cast<long>(i);
    Sum sum = 0;
    for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
    delete[] values;
    return sum;
}

// It ends in its middle.
KERNEL Sum until(const int *places, long count, long size, int last) {
    long *values = numbers(size);
    Sum sum = 0;
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long i = 0; i < count; i++) {
        if (places[i] == last) break;
        sum = sum * 3 + values[places[i]];
    }
    free(values);
    return sum;
}

KERNEL Sum found(const int *places, long count, long size, long wanted) {
    long *values = numbers(size);
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long i = 0; i < count; i++)
        if (values[places[i]] == wanted) {
            free(values);
            return i;
        }
    free(values);
    return -1;
}

KERNEL Sum thrown(const int *places, long count, long size, int last) {
    long *values = numbers(size);
    Sum sum = 0;
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long i = 0; i < count; i++) {
        if (places[i] == last) throw sum;
        sum = sum * 3 + values[places[i]];
    }
    free(values);
    return sum;
}

struct Guard {
    long *values;
    ~Guard() { free(values); }
};

[[noreturn]] __attribute__((noinline, cold)) static void fail(Sum sum) { throw sum; }

// The function has something to do when what was thrown passes it.
KERNEL Sum checked(const int *places, long count, long size, int last) {
    Guard guard{numbers(size)};
    Sum sum = 0;
    expect(guard.values, static_cast<size_t>(size) * sizeof *guard.values);
    for (long i = 0; i < count; i++) {
        if (places[i] == last) fail(sum);
        sum = sum * 3 + guard.values[places[i]];
    }
    return sum;
}

// Once for all rounds.
KERNEL Sum rounds(const int *places, long count, long size, long times) {
    long *values = numbers(size);
    Sum sum = 0;
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long round = 0; round < times; round++)
        for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]] * round;
    free(values);
    return sum;
}

// Out of both loops at once, in the second round.
KERNEL Sum out(const int *places, long count, long size, Sum *sums) {
    long *values = numbers(size);
    Sum sum = 0;
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long round = 0; round < count; round++) {
        for (long i = 0; i < count; i++) {
            sum = sum * 3 + values[places[i]];
            if (round == 1 && places[i] == size - 1) return sum;
        }
        sums[round] = sum;
    }
    return sum;
}

// Each round has its own.
KERNEL Sum own(const int *places, long count, long size, long times) {
    Sum sum = 0;
    for (long round = 0; round < times; round++) {
        long *values = numbers(size);
        for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
        free(values);
    }
    return sum;
}

// What is walked is an argument: from where to where scalar evolution tells.
KERNEL Sum rewalked(const long *table, long times, long from, long to) {
    Sum sum = 0;
    for (long round = 0; round < times; round++)
        for (long i = from; i < to; i++) sum = sum * 3 + table[i];
    return sum;
}

KERNEL Sum backwards(const long *table, int times, int count) {
    Sum sum = 0;
    for (int round = 0; round < times; round++)
        for (int i = count - 1; i >= 0; i--) sum = sum * 3 + table[i];
    return sum;
}

// Which table is walked again is known in each iteration alone.
KERNEL Sum several(const long *tables, long count, long width, long times) {
    Sum sum = 0;
    for (long i = 0; i < count; i++)
        for (long round = 0; round < times; round++)
            for (long j = 0; j < width; j++) sum = sum * 3 + tables[i * width + j];
    return sum;
}

// By the word for the place where it is allocated, of a function without one.
KERNEL Sum sited(const int *places, long count, long size) {
    long *values = static_cast<long *>(malloc(static_cast<size_t>(size) * sizeof *values));
    Sum sum = 0;
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long i = 0; i < size; i++) values[i] = i % 7;
    for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
    free(values);
    return sum;
}

// By the word for one of two loops.
KERNEL Sum one(const int *places, long count, long size) {
    long *values = numbers(size);
    Sum sum = 0;
    expect(values, static_cast<size_t>(size) * sizeof *values);
    for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
    for (long i = 0; i < count; i++) sum = sum * 5 + values[places[count - 1 - i]];
    free(values);
    return sum;
}

// What is not kept: it is walked once; nothing tells how large it is; a call may throw or jump; the plan wants no hints; a jump comes back.
KERNEL Sum once(long size) {
    long *values = numbers(size);
    Sum sum = 0;
    for (long i = 0; i < size; i++) sum = sum * 3 + values[i];
    free(values);
    return sum;
}

KERNEL Sum unsized(const int *places, const long *values, long count) {
    Sum sum = 0;
    for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
    return sum;
}

KERNEL Sum called(const int *places, long count, long size, void (*each)(Sum)) {
    long *values = numbers(size);
    Sum sum = 0;
    for (long i = 0; i < count; i++) {
        sum = sum * 3 + values[places[i]];
        each(sum);
    }
    free(values);
    return sum;
}

KERNEL Sum unhinted(const int *places, long count, long size) {
    long *values = numbers(size);
    Sum sum = 0;
    for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
    free(values);
    return sum;
}

static jmp_buf before;

KERNEL Sum jumped(const int *places, long count, long size) {
    long *values = numbers(size);
    volatile Sum sum = 0;
    if (!setjmp(before))
        for (long i = 0; i < count; i++) sum = sum * 3 + values[places[i]];
    free(values);
    return sum;
}

static void throw_at_0(Sum sum) {
    if (sum == 0) throw sum;
}

template <class Function> static Sum caught(Function function) {
    try {
        return function();
    } catch (Sum sum) {
        return -sum;
    }
}

int main(int argc, char **argv) {
    void (*volatile thrower)(Sum) = throw_at_0;
    volatile long counts[] = {200000, 30000, 3, 0}; // which no kernel is compiled for
    const long count = counts[0], size = counts[1], few = counts[2], none = counts[3];
    int *places = static_cast<int *>(malloc(static_cast<size_t>(count) * 128));
    if (argc > 1 && !strcmp(argv[1], "far")) {
        // 24 MiB of indices beside 2 MiB, all of which it comes to again and again.
        for (long i = 0; i < count * 32; i++) places[i] = static_cast<int>(i * 7919 % (1 << 18));
        for (long round = 0; round < few; round++) printf("%lu\n", gathered(places, count * 32, 1 << 18));
        free(places);
        return 0;
    }
    for (long i = 0; i < count; i++) places[i] = static_cast<int>(i * 7919 % size);
    const int last = places[count / 2];
    report("gathered", gathered(places, count, size));
    report("cleared", cleared(places, count, static_cast<size_t>(size)));
    report("created", created(places, count, static_cast<size_t>(size)));
    report("until", until(places, count, size, last));
    report("found", found(places, count, size, last * 31l % 1009));
    report("thrown", caught([&] { return thrown(places, count, size, last); }));
    report("checked", caught([&] { return checked(places, count, size, last); }));
    report("unchecked", caught([&] { return checked(places, count, size, -1); }));
    report("rounds", rounds(places, count, size, few));
    Sum sums[8];
    report("out", out(places, count, size, sums) + sums[0]);
    report("own", own(places, count, size, few));
    long *table = numbers(size);
    expect(table + 5, static_cast<size_t>(size - 9) * sizeof *table);
    report("rewalked", rewalked(table, few, 5, size - 4));
    report("unwalked", rewalked(table, few, none, none));
    expect(table, static_cast<size_t>(size) * sizeof *table);
    report("backwards", backwards(table, static_cast<int>(few), static_cast<int>(size)));
    report("empty", backwards(table, static_cast<int>(few), static_cast<int>(none)));
    expect(table + size / few * 2, static_cast<size_t>(size / few) * sizeof *table);
    report("several", several(table, few, size / few, few));
    report("sited", sited(places, count, size));
    report("one", one(places, count, size));
    report("once", once(size));
    report("unsized", unsized(places, table, count));
    report("called", caught([&] { return called(places, count, size, thrower); }));
    report("unhinted", unhinted(places, count, size));
    report("jumped", jumped(places, count, size));
    free(table);
    free(places);
    return 0;
}
