/* Loops of each pattern over heap objects. Prints what they compute; under the recorder, what their hints were worth. */
#include "recorder.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WATCH(object, bytes) (recorder_watch ? recorder_watch(#object, object, whole(bytes)) : (void)0)
#define REPORT() (recorder_report ? recorder_report() : (void)0)
#define KERNEL __attribute__((noinline)) static

static size_t whole(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

static void *pages(size_t bytes) {
    void *object = aligned_alloc(4096, whole(bytes));
    memset(object, 0, whole(bytes));
    return object;
}

static uint64_t state = 1;

static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

KERNEL double forwards(const double *restrict values, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += values[i];
    return sum;
}

KERNEL uint64_t backwards(const int *values, int count) {
    uint64_t sum = 0;
    for (int i = count - 1; i >= 0; i--) sum = sum * 31 + values[i];
    return sum;
}

struct record {
    uint32_t key, unused;
    double value, more[4];
};

KERNEL double strided(const struct record *records, unsigned count) {
    double sum = 0;
    for (unsigned i = 0; i < count; i++)
        if (records[i].key % 3) sum += records[i].value;
    return sum;
}

struct edge {
    uint32_t from, to;
    double weight;
};

struct node {
    double weight;
    uint64_t degree, rest[14];
};

KERNEL void traverse(const struct edge *edges, struct node *nodes, long count) {
    for (long i = 0; i < count; i++) {
        nodes[edges[i].from].weight += edges[i].weight;
        nodes[edges[i].to].degree++;
    }
}

KERNEL void multiply(const long *rows, const int *columns, const double *values, const double *from, double *to, long count) {
    for (long row = 0; row < count; row++) {
        double sum = 0;
        for (long at = rows[row]; at < rows[row + 1]; at++) sum += values[at] * from[columns[at]];
        to[row] = sum;
    }
}

KERNEL void scale(double *matrix, long rows, long columns) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) matrix[i * columns + j] = matrix[i * columns + j] * 2 + j;
}

KERNEL double column(const double *matrix, long rows, long columns) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += matrix[i * columns];
    return sum;
}

KERNEL uint64_t look_up(const uint64_t *keys, const uint32_t *table, uint64_t mask, long count) {
    uint64_t sum = 0;
    for (long i = 0; i < count; i++) {
        uint64_t hash = keys[i] * 0x9e3779b97f4a7c15u, slot = (hash ^ hash >> 32) & mask;
        while (table[slot] % 8 == 7) slot = (slot + 1) & mask;
        sum += table[slot];
    }
    return sum;
}

struct item {
    struct item *next;
    uint64_t key, rest[62];
};

KERNEL uint64_t follow(const struct item *item) {
    uint64_t sum = 0;
    for (; item; item = item->next) sum = sum * 7 + item->key;
    return sum;
}

/* What a later iteration reads must not be read ahead beyond the page that the loop has read from: it is not there if the loop ends before. */
KERNEL double until(const int *places, const double *values, long count, int last) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        if (places[i] == last) break;
        sum += values[places[i]];
    }
    return sum;
}

KERNEL double chosen(const int *places, const double *values, const char *wanted, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++)
        if (wanted[i]) sum += values[places[i]];
    return sum;
}

static void go_on(long i) { (void)i; }

static void stop_at_1000(long i) {
    if (i < 1000) return;
    puts("stopped");
    exit(0);
}

KERNEL double called(const int *places, const double *values, long count, void (*each)(long)) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        each(i);
        sum += values[places[i]];
    }
    return sum;
}

/* Rows of memory of the loop's own, which only where they ascend are walked for the last time. */
KERNEL double own_rows(long rows, long columns) {
    double *matrix = malloc((size_t)(rows * columns) * sizeof *matrix), sum = 0;
    for (long i = 0; i < rows * columns; i++) matrix[i] = (double)(i % 7);
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) sum += matrix[i * columns + j];
    free(matrix);
    return sum;
}

KERNEL double sliding_rows(long count, long width) {
    double *numbers = malloc((size_t)(count + width) * sizeof *numbers), sum = 0;
    for (long i = 0; i < count + width; i++) numbers[i] = (double)(i % 7);
    for (long i = 0; i < count; i++)
        for (long j = 0; j < width; j++) sum += numbers[i + j];
    free(numbers);
    return sum;
}

KERNEL double scattered_rows(const int *starts, long count, long width) {
    double *numbers = malloc((size_t)(count + width) * sizeof *numbers), sum = 0;
    for (long i = 0; i < count + width; i++) numbers[i] = (double)(i % 7);
    for (long i = 0; i < count; i++) {
        long j = 0;
        do sum += numbers[starts[i] + j];
        while (++j < width);
    }
    free(numbers);
    return sum;
}

/* Of rows that are longer than what is fetched at once the beginning is. */
KERNEL double far_apart(const double *elements, long rows, long columns, long apart) {
    double sum = 0;
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) sum += elements[i * 512 + j * apart];
    return sum;
}

/* A chain where the plan wants other patterns, and a loop of which it says no more than where it is. */
KERNEL uint64_t follow_plainly(const struct item *item) {
    uint64_t sum = 0;
    for (; item; item = item->next) sum = sum * 5 + item->key;
    return sum;
}

KERNEL double plainly(const double *values, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += values[i];
    return sum;
}

/* Rows of which the loop inside ends with a number of 32 bits, that is below 0 in the last ones. */
KERNEL double triangle(const double *elements, int rows, int columns) {
    double sum = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns - i; j++) sum += elements[i * 512L + j];
    return sum;
}

/* Rows that ascend where their numbers say so, which are known when the loop runs. */
KERNEL double own_int_rows(int rows, int columns) {
    double *matrix = malloc((size_t)rows * columns * sizeof *matrix), sum = 0;
    for (int i = 0; i < rows * columns; i++) matrix[i] = (double)(i % 7);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) sum += matrix[(size_t)i * columns + j];
    free(matrix);
    return sum;
}

KERNEL double own_halves(long rows, long columns) {
    double *matrix = malloc((size_t)(rows * columns) * sizeof *matrix), sum = 0;
    for (long i = 0; i < rows * columns; i++) matrix[i] = (double)(i % 7);
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j += 2) sum += matrix[i * columns + j];
    free(matrix);
    return sum;
}

KERNEL double own_padded_rows(long rows, long columns, long apart) {
    double *matrix = malloc((size_t)(rows * apart + columns) * sizeof *matrix), sum = 0;
    for (long i = 0; i < rows * apart + columns; i++) matrix[i] = (double)(i % 7);
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) sum += matrix[i * apart + j];
    free(matrix);
    return sum;
}

KERNEL double own_planes(long planes, long rows, long columns) {
    double *matrix = malloc((size_t)(planes * rows * columns) * sizeof *matrix), sum = 0;
    for (long i = 0; i < planes * rows * columns; i++) matrix[i] = (double)(i % 7);
    for (long i = 0; i < planes; i++)
        for (long j = 0; j < rows; j++)
            for (long k = 0; k < columns; k++) sum += matrix[(i * rows + j) * columns + k];
    free(matrix);
    return sum;
}

/* What a kernel computes whose memory is not watched; with the recorder, how much it evicts. */
static void unwatched(const char *kernel, double sum) {
    printf("%s %.0f\n", kernel, sum);
    if (recorder_evicted) recorder_evicted(kernel);
}

int main(void) {
    enum { COUNT = 200000, ROWS = 20000, NODES = 20000, ITEMS = 4000 };
    double *values = pages(COUNT * sizeof *values);
    for (long i = 0; i < COUNT; i++) values[i] = (double)(next() % 1000);
    WATCH(values, COUNT * sizeof *values);
    printf("%.0f\n", forwards(values, COUNT));
    REPORT();

    int *numbers = pages(COUNT * sizeof *numbers);
    for (long i = 0; i < COUNT; i++) numbers[i] = (int)next();
    WATCH(numbers, COUNT * sizeof *numbers);
    printf("%lu\n", backwards(numbers, COUNT));
    REPORT();

    struct record *records = pages(COUNT * sizeof *records);
    for (long i = 0; i < COUNT; i++) records[i].key = (uint32_t)next(), records[i].value = (double)(next() % 10);
    WATCH(records, COUNT * sizeof *records);
    printf("%.0f\n", strided(records, COUNT));
    REPORT();

    struct edge *edges = pages(COUNT * sizeof *edges);
    struct node *nodes = pages(NODES * sizeof *nodes);
    for (long i = 0; i < COUNT; i++) edges[i] = (struct edge){(uint32_t)(next() % NODES), (uint32_t)(next() % NODES), (double)(next() % 100)};
    WATCH(edges, COUNT * sizeof *edges);
    WATCH(nodes, NODES * sizeof *nodes);
    traverse(edges, nodes, COUNT);
    REPORT();
    double sum = 0;
    for (long i = 0; i < NODES; i++) sum += nodes[i].weight * (double)(i % 7) + (double)nodes[i].degree;
    printf("%.0f\n", sum);

    long *rows = pages((ROWS + 1) * sizeof *rows);
    for (long row = 0; row < ROWS; row++) rows[row + 1] = rows[row] + (long)(next() % 12);
    long filled = rows[ROWS];
    int *columns = pages((size_t)filled * sizeof *columns);
    double *matrix = pages((size_t)filled * sizeof *matrix), *from = pages(COUNT * sizeof *from), *to = pages(ROWS * sizeof *to);
    for (long i = 0; i < filled; i++) columns[i] = (int)(next() % COUNT), matrix[i] = (double)(next() % 10);
    for (long i = 0; i < COUNT; i++) from[i] = (double)(next() % 10);
    WATCH(rows, (ROWS + 1) * sizeof *rows);
    WATCH(columns, (size_t)filled * sizeof *columns);
    WATCH(matrix, (size_t)filled * sizeof *matrix);
    WATCH(from, COUNT * sizeof *from);
    WATCH(to, ROWS * sizeof *to);
    multiply(rows, columns, matrix, from, to, ROWS);
    REPORT();
    sum = 0;
    for (long i = 0; i < ROWS; i++) sum += to[i] * (double)(i % 13);
    printf("%.0f\n", sum);

    double *square = pages(512 * 512 * sizeof *square);
    WATCH(square, 512 * 512 * sizeof *square);
    scale(square, 512, 512);
    REPORT();
    double *tall = pages(2000 * 600 * sizeof *tall);
    for (long i = 0; i < 2000 * 600; i++) tall[i] = (double)(i % 11);
    WATCH(tall, 2000 * 600 * sizeof *tall);
    sum = column(tall, 2000, 600);
    REPORT();
    printf("%.0f %.0f\n", forwards(square, 512 * 512), sum);

    uint64_t *keys = pages(COUNT * sizeof *keys);
    uint32_t *table = pages(65536 * 4 * sizeof *table);
    for (long i = 0; i < COUNT; i++) keys[i] = next();
    for (long i = 0; i < 65536 * 4; i++) table[i] = (uint32_t)next();
    WATCH(keys, COUNT * sizeof *keys);
    WATCH(table, 65536 * 4 * sizeof *table);
    printf("%lu\n", look_up(keys, table, 65536 * 4 - 1, COUNT));
    REPORT();

    struct item *items = pages(ITEMS * sizeof *items);
    for (long i = 0; i < ITEMS; i++) items[i].key = next();
    /* In one chain, in an order that jumps. */
    for (long i = 0, at = 0; i < ITEMS; i++, at = (at + 1237) % ITEMS) items[at].next = i + 1 < ITEMS ? &items[(at + 1237) % ITEMS] : NULL;
    WATCH(items, ITEMS * sizeof *items);
    printf("%lu\n", follow(items));
    REPORT();
    printf("%lu %.0f\n", follow_plainly(items), plainly(values, COUNT));

    int *starts = pages(COUNT * sizeof *starts);
    for (long i = 0; i < COUNT; i++) starts[i] = (int)(next() % COUNT);
    volatile long width = 100, few = 20, side = 512; /* which no kernel is compiled for */
    long columns_apart = 265, apart = 1 << 15;
    double *long_rows = aligned_alloc(4096, (size_t)(columns_apart * apart) * sizeof *long_rows);
    WATCH(long_rows, (size_t)(columns_apart * apart) * sizeof *long_rows);
    sum = far_apart(long_rows, few, columns_apart, apart);
    REPORT();
    printf("%.0f %.0f\n", sum, scattered_rows(starts, COUNT, width));
    unwatched("own_rows", own_rows(side, side));
    unwatched("own_int_rows", own_int_rows((int)side, (int)side));
    unwatched("own_halves", own_halves(side, side));
    unwatched("own_padded_rows", own_padded_rows(side, side - 9, side));
    unwatched("own_planes", own_planes(few, side, width));
    unwatched("overlapping_rows", own_padded_rows(side, side, side - 9));
    unwatched("sliding_rows", sliding_rows(COUNT, width));
    double *rows_of_less = pages(200 * 512 * sizeof *rows_of_less);
    WATCH(rows_of_less, 200 * 512 * sizeof *rows_of_less);
    printf("%.0f\n", triangle(rows_of_less, 200, (int)width));
    REPORT();

    int *places = pages(COUNT * sizeof *places);
    char *wanted = pages(COUNT);
    for (long i = 0; i < COUNT; i++) places[i] = (int)(next() % COUNT), wanted[i] = next() % 2;
    printf("%.0f %.0f\n", chosen(places, values, wanted, COUNT), called(places, values, COUNT, go_on));
    /* No place behind the first 1024 can be read: the loops end before. */
    mprotect(places + 1024, whole(COUNT * sizeof *places) - 4096, PROT_NONE);
    places[1001] = -1;
    printf("%.0f\n", until(places, values, COUNT, -1));
    fflush(stdout);
    called(places, values, COUNT, stop_at_1000);
    return 1;
}
