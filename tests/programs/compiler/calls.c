/* Loops whose memory is touched in functions that they call, and that stay functions. Each case is named on the command line, and prints what it
 * computes; under the recorder, what its hints were worth. */
#include "recorder.h"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#define KERNEL __attribute__((noinline)) static
#define CALLEE __attribute__((noinline)) static
enum { PAGE = 4096, COUNT = 100000, WEIGHTS = 30, ROW = 640 };

struct item {
    uint64_t key, seen;
    double weights[WEIGHTS];
};

static volatile uint64_t last = COUNT; /* which no callee is compiled for */

CALLEE double weigh(const struct item *item) {
    double sum = 0;
    for (int i = 0; i < WEIGHTS; i++) sum = sum / 2 + item->weights[i];
    return sum;
}

static void stop(int signal) {
    (void)signal;
    puts("stopped");
    fflush(stdout);
    if (recorder_report) recorder_report();
    _Exit(0);
}

/* They may not come back. */
CALLEE double weigh_or_stop(const struct item *item, uint64_t key) {
    if (item->key == key) stop(0);
    return weigh(item);
}

CALLEE double weigh_or_spin(const struct item *item, uint64_t key) {
    double sum = weigh(item);
    if (item->key == key)
        for (;;) {}
    return sum;
}

CALLEE void mark(struct item *item, uint64_t by) {
    for (int i = 0; i < 3; i++) item->seen = item->seen * 31 + by;
    item->weights[0] += 1;
}

/* How much of it is not known here. */
CALLEE double add(const double *row, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += row[i];
    return sum;
}

CALLEE double around(const double *middle) {
    double sum = 0;
    for (int i = -4; i <= 4; i++) sum = sum / 2 + middle[i];
    return sum;
}

KERNEL double each(const struct item *items, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += weigh(&items[i]);
    return sum;
}

KERNEL double some(const struct item *items, const int *places, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += weigh(&items[places[i]]);
    return sum;
}

KERNEL double pointed(struct item *const *pointers, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += weigh(pointers[i]);
    return sum;
}

KERNEL uint64_t marked(struct item *items, const int *places, long count) {
    for (long i = 0; i < count; i++) mark(&items[places[i]], (uint64_t)i);
    return items[places[7]].seen;
}

KERNEL double stopped(const struct item *items, const int *places, long count, uint64_t key) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += weigh_or_stop(&items[places[i]], key);
    return sum;
}

KERNEL double stuck(const struct item *items, const int *places, long count, uint64_t key) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += weigh_or_spin(&items[places[i]], key);
    return sum;
}

KERNEL double lines(const double *matrix, long rows, long length) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += add(matrix + i * length, length);
    return sum;
}

KERNEL double smooth(const double *values, long count) {
    double sum = 0;
    for (long i = 4; i < count - 4; i++) sum += around(values + i);
    return sum;
}

static void *pages(size_t bytes) {
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    void *object = aligned_alloc(PAGE, whole);
    memset(object, 0, whole);
    return object;
}

static void watch(const char *name, void *object, size_t bytes) {
    if (recorder_watch) recorder_watch(name, object, (bytes + PAGE - 1) / PAGE * PAGE);
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    struct item *items = pages(COUNT * sizeof *items);
    int *places = pages(COUNT * sizeof *places);
    struct item **pointers = pages(COUNT * sizeof *pointers);
    for (long i = 0; i < COUNT; i++) {
        items[i].key = (uint64_t)i;
        for (int at = 0; at < WEIGHTS; at++) items[i].weights[at] = (double)((i * 7 + at) % 13);
        places[i] = (int)(i * 7919 % COUNT);
        pointers[i] = &items[places[i]];
    }
    double sum = 0;
    if (strcmp(which, "lines") && strcmp(which, "smooth")) watch("items", items, COUNT * sizeof *items);
    if (!strcmp(which, "each")) {
        sum = each(items, COUNT);
    } else if (!strcmp(which, "some")) {
        sum = some(items, places, COUNT);
    } else if (!strcmp(which, "pointed")) {
        sum = pointed(pointers, COUNT);
    } else if (!strcmp(which, "marked")) {
        sum = (double)(marked(items, places, COUNT) % 1000003);
    } else if (!strcmp(which, "stopped") || !strcmp(which, "stuck")) {
        /* Behind the page of the last index that is used none can be read. */
        places[2047] = 77;
        mprotect((char *)places + 2 * PAGE, PAGE, PROT_NONE);
        /* Of its own time. */
        signal(SIGPROF, stop);
        setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 500000}}, NULL);
        sum = (which[3] == 'p' ? stopped : stuck)(items, places, (long)last, 77);
    } else if (!strcmp(which, "lines")) {
        double *matrix = pages(sizeof *matrix * ROW * 2000);
        for (long i = 0; i < ROW * 2000l; i++) matrix[i] = (double)(i % 17);
        watch("matrix", matrix, sizeof *matrix * ROW * 2000);
        sum = lines(matrix, 2000, ROW);
    } else if (!strcmp(which, "smooth")) {
        double *values = pages(sizeof *values * COUNT);
        for (long i = 0; i < COUNT; i++) values[i] = (double)(i % 17);
        watch("values", values, sizeof *values * COUNT);
        sum = smooth(values, COUNT);
    } else {
        return 2;
    }
    printf("%s %.1f\n", which, sum);
    fflush(stdout);
    if (recorder_report) recorder_report();
    return 0;
}
