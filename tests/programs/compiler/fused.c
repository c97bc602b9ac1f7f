/* Loops that follow one another: some walk the same memory over as many iterations, and some must stay apart. Prints what they compute. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL __attribute__((noinline)) static

/* The second reads what the first has written in the same iteration. */
KERNEL uint64_t joined(const uint64_t *restrict from, uint64_t *restrict one, uint64_t *restrict two, long count) {
    for (long i = 0; i < count; i++) one[i] = from[i] * 3 + 1;
    for (long i = 0; i < count; i++) two[i] = from[i] * 5 + one[i];
    return one[count / 2] ^ two[count - 1];
}

KERNEL double sums(const double *values, long count) {
    double sum = 0, squares = 0;
    for (long i = 0; i < count; i++) sum += values[i];
    for (long i = 0; i < count; i++) squares += values[i] * values[i];
    return sum + squares / 7;
}

/* The second reads what the first writes in a later iteration. */
KERNEL uint64_t shifted(const uint64_t *restrict from, uint64_t *restrict one, uint64_t *restrict two, long count) {
    for (long i = 0; i < count; i++) one[i] = from[i] * 3 + 1;
    for (long i = 0; i < count - 1; i++) two[i] = from[i] * 5 + one[i + 1];
    return one[count / 2] ^ two[count - 2];
}

/* Both write to one place, which the first has read. */
KERNEL uint64_t apart(uint64_t *one, uint64_t *two, long count) {
    for (long i = 0; i < count; i++) one[i] = two[count - 1 - i] + 1;
    for (long i = 0; i < count; i++) two[i] = one[i] * 3;
    return one[count / 3] ^ two[count / 5];
}

/* The plan does not name it. */
KERNEL uint64_t unplanned(const uint64_t *restrict from, uint64_t *restrict one, uint64_t *restrict two, long count) {
    for (long i = 0; i < count; i++) one[i] = from[i] * 9 + 1;
    for (long i = 0; i < count; i++) two[i] = from[i] * 7 + one[i];
    return one[count / 2] ^ two[count - 1];
}

static uint64_t pair(const uint32_t *from) {
    uint64_t both;
    memcpy(&both, from, sizeof both);
    return both;
}

/* The second reads at once what the first writes in two iterations. */
KERNEL uint64_t wider(uint32_t *restrict one, uint64_t *restrict two, long count) {
    for (long i = 0; i < count; i++) one[i] = (uint32_t)i * 2654435761u;
    for (long i = 0; i < count; i++) two[i] = pair(one + i) * 3;
    return two[count / 2] ^ two[count - 1];
}

/* What both access overlaps with what they access in the next iteration. */
KERNEL uint64_t overlapping(uint32_t *restrict one, uint64_t *restrict two, long count) {
    for (long i = 0; i < count; i++) {
        uint64_t both = (uint64_t)i * 0x9e3779b97f4a7c15u;
        memcpy(one + i, &both, sizeof both);
    }
    for (long i = 0; i < count; i++) two[i] = pair(one + i) * 3;
    return two[count / 2] ^ two[count - 1];
}

/* Both come to each place again. */
KERNEL uint64_t returning(uint64_t *restrict one, uint64_t *restrict two, long count) {
    for (long i = 0; i < count; i++) one[i & 63] = (uint64_t)i * 7;
    for (long i = 0; i < count; i++) two[i] = one[i & 63] + 1;
    return two[count / 2] ^ two[count - 1];
}

int main(void) {
    enum { COUNT = 150000 };
    uint64_t *from = malloc(COUNT * sizeof *from), *one = malloc(COUNT * sizeof *one), *two = malloc(COUNT * sizeof *two);
    double *values = malloc(COUNT * sizeof *values);
    for (long i = 0; i < COUNT; i++) from[i] = (uint64_t)i * 2654435761u, values[i] = (double)(i % 97), two[i] = (uint64_t)i * 11;
    printf("%llx\n", (unsigned long long)apart(one, two, COUNT));
    printf("%llx\n", (unsigned long long)apart(from, from, COUNT));
    printf("%llx\n", (unsigned long long)joined(from, one, two, COUNT));
    printf("%llx\n", (unsigned long long)shifted(from, one, two, COUNT));
    printf("%llx\n", (unsigned long long)unplanned(from, one, two, COUNT));
    printf("%.6f\n", sums(values, COUNT));
    uint32_t *pieces = calloc(COUNT + 1, sizeof *pieces);
    printf("%llx\n", (unsigned long long)wider(pieces, two, COUNT));
    printf("%llx\n", (unsigned long long)overlapping(pieces, two, COUNT));
    printf("%llx\n", (unsigned long long)returning(one, two, COUNT));
    uint64_t sum = 0;
    for (long i = 0; i < COUNT; i++) sum = sum * 31 + from[i] + one[i] * 3 + two[i] * 5;
    printf("%llx\n", (unsigned long long)sum);
    free(from), free(one), free(two), free(values), free(pieces);
    return 0;
}
