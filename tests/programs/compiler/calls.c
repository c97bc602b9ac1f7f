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
enum { PAGE = 4096, COUNT = 100000, WEIGHTS = 30, ROW = 640, ROWS = 6000, LONG_ROWS = 20, COLUMNS = 265, APART = 1 << 15, NEXT = 3 * PAGE / 8 };

struct item {
    uint64_t key, seen;
    double weights[WEIGHTS];
};

static volatile uint64_t last = COUNT, row = ROW; /* which no callee is compiled for */

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

/* From one place to another. */
CALLEE double between(const double *from, const double *to) {
    double sum = 0;
    for (; from != to; from++) sum += *from;
    return sum;
}

CALLEE double corner(const double *matrix, long rows, long width, long length) {
    double sum = 0;
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < length; j++) sum += matrix[i * width + j];
    return sum;
}

CALLEE void fill(double *row, int count, double with) {
    for (int i = 0; i < count; i++) row[i] = with;
}

/* What it touches it touches in functions of its own. */
CALLEE double both(const double *row, long count) { return add(row, count) - 2 * add(row + count, count); }
CALLEE double edges(const double *row, unsigned long count) { return both(row, (long)(count / 2)) + weigh((const struct item *)(row + count - 2 - WEIGHTS)); }

CALLEE double halves(const double *row, long count) {
    if (count < 16) return add(row, count);
    return halves(row, count / 2) + halves(row + count / 2, count - count / 2);
}

/* Rows that are where loaded numbers say, and as long as others do. */
KERNEL double ragged(const double *values, const int *starts, long rows) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += between(values + starts[i], values + starts[i + 1]);
    return sum;
}

KERNEL double counted(const double *values, const int *starts, const unsigned short *lengths, long rows) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += add(values + starts[i], lengths[i]);
    return sum;
}

KERNEL double corners(const double *matrix, long count, long rows, long width, long length) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += corner(matrix + i * rows * width, rows, width, length);
    return sum;
}

KERNEL void filled(double *matrix, long rows, int length) {
    for (long i = 0; i < rows; i++) fill(matrix + i * length, length, (double)i);
}

KERNEL double through(const double *matrix, long rows, long length) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += edges(matrix + i * length, (unsigned long)length);
    return sum;
}

KERNEL double recursive(const double *matrix, long rows, long length) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += halves(matrix + i * length, length);
    return sum;
}

/* It may be left before the length of a row is read, so where the row begins is fetched. */
KERNEL double until(const double *values, const int *starts, const unsigned short *lengths, long rows) {
    double sum = 0;
    for (long i = 0; i < rows; i++) {
        if (starts[i] < 0) break;
        sum += add(values + starts[i], lengths[i]);
    }
    return sum;
}

/* Each iteration has the whole of it anew. */
KERNEL double again(const double *values, long rows, long length) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum = sum / 2 + add(values, length - i % 2);
    return sum;
}

/* Of rows that are longer than 64 MiB the beginning is fetched. */
CALLEE double column(const double *from, long count, long apart) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += from[i * apart];
    return sum;
}

KERNEL double wide(const double *matrix, long rows, long columns, long apart) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += column(matrix + i * NEXT, columns, apart);
    return sum;
}

KERNEL double wide_loaded(const double *matrix, const int *starts, const unsigned short *lengths, long rows, long apart) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += column(matrix + starts[i], lengths[i], apart);
    return sum;
}

/* But not of such that are not walked in each iteration, or whose length is not there yet. */
KERNEL double wide_chosen(const double *matrix, const int *starts, long rows, long columns, long apart) {
    double sum = 0;
    for (long i = 0; i < rows; i++)
        if (starts[i] % (2 * NEXT) == 0) sum += column(matrix + i * NEXT, columns, apart);
    return sum;
}

KERNEL double wide_written(const double *matrix, int *starts, int *lengths, long rows, long apart) {
    double sum = 0;
    for (long i = 0; i < rows; i++) {
        sum += column(matrix + starts[i], lengths[i], apart);
        lengths[i] = 0;
    }
    return sum;
}

/* A length below 0 is none, whatever it would be as an unsigned one; nor is one of 0, less one. */
KERNEL void wide_empty(double *matrix, long rows, int length) {
    for (long i = 0; i < rows; i++) fill(matrix + i * NEXT, length, 1);
}

CALLEE double every_other(const double *at, unsigned count) {
    double sum = 0;
    for (; count; count--, at += 2) sum += *at;
    return sum;
}

KERNEL double wide_none(const double *matrix, long rows, unsigned length) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += every_other(matrix + i * NEXT, length);
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
    static const char *const of_rows[] = {"lines", "ragged", "counted", "corners", "filled", "through", "recursive", "until", "again"};
    int is_row = 0;
    for (size_t i = 0; i < sizeof of_rows / sizeof *of_rows; i++) is_row |= !strcmp(which, of_rows[i]);
    int is_long = !strncmp(which, "wide", 4);
    long count = is_row || is_long ? 0 : COUNT;
    struct item *items = pages((size_t)count * sizeof *items);
    int *places = pages((size_t)count * sizeof *places);
    struct item **pointers = pages((size_t)count * sizeof *pointers);
    for (long i = 0; i < count; i++) {
        items[i].key = (uint64_t)i;
        for (int at = 0; at < WEIGHTS; at++) items[i].weights[at] = (double)((i * 7 + at) % 13);
        places[i] = (int)(i * 7919 % COUNT);
        pointers[i] = &items[places[i]];
    }
    double sum = 0;
    if (!is_row && !is_long && strcmp(which, "smooth")) watch("items", items, COUNT * sizeof *items);
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
    } else if (is_row) {
        long length = (long)row;
        double *matrix = pages(sizeof *matrix * ROW * ROWS);
        for (long i = 0; i < ROW * (long)ROWS; i++) matrix[i] = (double)(i % 17);
        /* In an order that jumps, each row with something behind it that is in none; or one behind the other. */
        int *starts = pages(sizeof *starts * (ROWS + 1));
        unsigned short *lengths = pages(sizeof *lengths * ROWS);
        for (long i = 0; i < ROWS; i++) {
            lengths[i] = (unsigned short)(length / 2 + i % (length / 4));
            starts[i] = (int)(strcmp(which, "ragged") ? i * 1021 % ROWS * length : i * length - i % 5);
        }
        starts[ROWS] = (int)(ROWS * length);
        if (!strcmp(which, "until")) starts[ROWS - 1] = -1;
        watch("matrix", matrix, sizeof *matrix * ROW * ROWS);
        if (!strcmp(which, "lines")) sum = lines(matrix, ROWS, length);
        if (!strcmp(which, "ragged")) sum = ragged(matrix, starts, ROWS);
        if (!strcmp(which, "counted")) sum = counted(matrix, starts, lengths, ROWS);
        if (!strcmp(which, "corners")) sum = corners(matrix, ROWS / 4, length / 160, length, length / 3);
        if (!strcmp(which, "filled")) filled(matrix, ROWS, (int)length), sum = matrix[7 * length];
        if (!strcmp(which, "through")) sum = through(matrix, ROWS, length);
        if (!strcmp(which, "recursive")) sum = recursive(matrix, ROWS, length);
        if (!strcmp(which, "until")) sum = until(matrix, starts, lengths, ROWS);
        if (!strcmp(which, "again")) sum = again(matrix, length / 10, length * ROWS / 50);
    } else if (is_long) {
        volatile long rows = LONG_ROWS, columns = COLUMNS, apart = APART;
        volatile int below = -1, none = 0;
        size_t bytes = sizeof(double) * COLUMNS * APART;
        double *matrix = aligned_alloc(PAGE, bytes);
        int *starts = pages(sizeof *starts * LONG_ROWS), *written = pages(sizeof *written * LONG_ROWS);
        unsigned short *lengths = pages(sizeof *lengths * LONG_ROWS);
        for (long i = 0; i < LONG_ROWS; i++) {
            starts[i] = (int)(i * 7 % LONG_ROWS * NEXT);
            lengths[i] = (unsigned short)columns;
            written[i] = (int)columns;
            for (long j = 0; j < COLUMNS; j++) matrix[i * NEXT + j * APART] = (double)((i + j) % 17);
        }
        watch("matrix", matrix, bytes);
        if (!strcmp(which, "wide")) sum = wide(matrix, rows, columns, apart);
        if (!strcmp(which, "wide_loaded")) sum = wide_loaded(matrix, starts, lengths, rows, apart);
        if (!strcmp(which, "wide_chosen")) sum = wide_chosen(matrix, starts, rows, columns, apart);
        if (!strcmp(which, "wide_written")) sum = wide_written(matrix, starts, written, rows, apart);
        if (!strcmp(which, "wide_empty")) wide_empty(matrix, rows, below);
        if (!strcmp(which, "wide_none")) sum = wide_none(matrix, rows, (unsigned)none);
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
