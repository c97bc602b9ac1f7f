/* Loops that overwrite memory of their own, and loops that only seem to. Prints what they compute, in ROUNDS rounds over MIB MiB:
 *
 *     overwrites MIB ROUNDS */
#include "recorder.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KERNEL __attribute__((noinline)) static

static long rounds;

struct pair {
    uint32_t low, high;
};

struct gap {
    uint32_t low, high;
    uint64_t kept;
};

/* Every byte is written before one is read. Not aligned to pages. */
KERNEL uint64_t filled(long count) {
    uint64_t sum = 0, *own = (uint64_t *)malloc(count * sizeof *own + 40) + 5;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) own[i] = (uint64_t)i * 2654435761u + round;
        for (long i = 0; i < count; i++) sum = sum * 31 + own[i * 3 % count];
    }
    free(own - 5);
    return sum;
}

KERNEL uint64_t pairs(long count) {
    uint64_t sum = 0;
    struct pair *own = malloc(count * sizeof *own);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) {
            own[i].high = (uint32_t)(i * 77 + round);
            own[i].low = (uint32_t)(i ^ 99);
        }
        for (long i = 0; i < count; i++) sum = sum * 31 + own[i * 3 % count].low * 3 + own[i].high;
    }
    free(own);
    return sum;
}

/* The rest of each element stays what it was. */
KERNEL uint64_t gaps(long count) {
    uint64_t sum = 0;
    struct gap *own = malloc(count * sizeof *own);
    for (long i = 0; i < count; i++) own[i].kept = (uint64_t)i * 5;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) {
            own[i].low = (uint32_t)(i * 7 + round);
            own[i].high = (uint32_t)i;
        }
        for (long i = 0; i < count; i++) sum = sum * 31 + own[i * 3 % count].kept + own[i].low;
    }
    free(own);
    return sum;
}

/* What is written was read before, elsewhere in the object. */
KERNEL uint64_t mirrored(long count) {
    uint64_t sum = 0, *own = malloc(count * sizeof *own);
    for (long i = 0; i < count; i++) own[i] = (uint64_t)i;
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < count; i++) own[i] = own[count - 1 - i] * 3 + round;
    for (long i = 0; i < count; i++) sum = sum * 31 + own[i];
    free(own);
    return sum;
}

/* Some elements stay what they were. */
KERNEL uint64_t some(const char *wanted, long count) {
    uint64_t sum = 0, *own = malloc(count * sizeof *own);
    for (long i = 0; i < count; i++) own[i] = (uint64_t)i;
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < count; i++)
            if (wanted[i]) own[i] = sum += (uint64_t)i * round;
    for (long i = 0; i < count; i++) sum = sum * 31 + own[i];
    free(own);
    return sum;
}

static void (*each)(long);

static void ends(long i) {
    if (i < 0) exit(0);
}

static void goes_on(long i) { (void)i; }

/* A call may not come back. */
KERNEL uint64_t calls(long count) {
    uint64_t sum = 0, *own = malloc(count * sizeof *own);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) {
            each(i);
            own[i] = (uint64_t)i * round;
        }
        for (long i = 0; i < count; i++) sum = sum * 31 + own[i];
    }
    free(own);
    return sum;
}

static uint64_t *shared;

/* Others know where it is. */
KERNEL uint64_t seen(long count) {
    uint64_t sum = 0;
    shared = malloc(count * sizeof *shared);
    uint64_t *own = shared;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) own[i] = (uint64_t)i * round;
        for (long i = 0; i < count; i++) sum = sum * 31 + own[i * 3 % count];
    }
    free(shared);
    return sum;
}

/* Between two batches of addresses less than a page is written. */
KERNEL uint64_t gathered(const uint64_t *from, const uint32_t *places, long count) {
    uint64_t sum = 0, *own = malloc(count * sizeof *own);
    for (long i = 0; i < count; i++) own[i] = from[places[i]];
    for (long i = 0; i < count; i++) sum = sum * 31 + own[i * 3 % count];
    free(own);
    return sum;
}

int main(int argc, char **argv) {
    long mib = argc > 1 ? atol(argv[1]) : 1, words = mib * 1024 * 1024 / 8 - 3;
    rounds = argc > 2 ? atol(argv[2]) : 3;
    each = argc > 3 ? ends : goes_on;
    char *wanted = malloc(words);
    for (long i = 0; i < words; i++) wanted[i] = (char)(i % 3 == 1);
    printf("%llx\n", (unsigned long long)filled(words));
    printf("%llx\n", (unsigned long long)pairs(words));
    if (recorder_report) recorder_report();
    printf("%llx\n", (unsigned long long)gaps(words / 2));
    printf("%llx\n", (unsigned long long)mirrored(words));
    printf("%llx\n", (unsigned long long)some(wanted, words));
    printf("%llx\n", (unsigned long long)calls(words));
    printf("%llx\n", (unsigned long long)seen(words));
    long few = words < 65536 ? words : 65536; /* at random: in little memory each is waited for */
    uint64_t *from = malloc(few * sizeof *from);
    uint32_t *places = malloc(few * sizeof *places);
    for (long i = 0; i < few; i++) from[i] = (uint64_t)i * i, places[i] = (uint32_t)(i * 7919 % few);
    printf("%llx\n", (unsigned long long)gathered(from, places, few));
    if (recorder_report) recorder_report();
    free(places);
    free(from);
    free(wanted);
    return 0;
}
