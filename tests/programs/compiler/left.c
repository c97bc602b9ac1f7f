/* Loops that can be left in the middle of an iteration: by a check that fails, `break`, `return`, `goto`. Each case is named on the command line, and
 * prints what it computes; under the recorder, what its hints were worth. Behind the page of the last index that a loop reads nothing can be read. */
#include "recorder.h"
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KERNEL __attribute__((noinline)) static
enum { PAGE = 4096, COUNT = 8192, EACH = PAGE / sizeof(double) };

static jmp_buf before;

/* A check that has failed. */
__attribute__((noinline, cold, noreturn)) static void fail(long at) {
    printf("failed at %ld\n", at);
    longjmp(before, 1);
}

KERNEL double checked(const unsigned *places, size_t there, const double *values, size_t count, size_t length) {
    double sum = 0;
    for (size_t i = 0; i < length; i++) {
        if (i >= there) fail((long)i);
        if (places[i] >= count) fail((long)i);
        sum += values[places[i]];
    }
    return sum;
}

KERNEL double until(const int *places, const double *values, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        if (places[i] < 0) break;
        sum += values[places[i]];
    }
    return sum;
}

KERNEL double backwards(const int *places, const double *values, long count, long least) {
    double sum = 0;
    for (long i = count - 1; i >= least; i--) {
        if (places[i] < 0) break;
        sum += values[places[i]];
    }
    return sum;
}

struct edge {
    int to, unused;
    double weight;
};

/* Which way out, and after how much, is used behind the loop. */
KERNEL long walked(const struct edge *edges, const double *values, long count, double most, double *sum) {
    double all = 0;
    for (long i = 0; i < count; i++) {
        if (edges[i].to < 0) return *sum = all, -i;
        all += values[edges[i].to] * edges[i].weight;
        if (all > most) goto enough;
    }
    return *sum = all, count;
enough:
    *sum = all + 1;
    return 1;
}

/* What ends it is found at its end. */
KERNEL long found(const int *places, const double *values, long count, double wanted) {
    long i = 0;
    while (i < count && values[places[i]] != wanted) i++;
    return i;
}

/* Nothing is read ahead: the sum of what is walked. */
KERNEL double stepped(const double *values, long count, double last) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        if (values[i] == last) break;
        sum += values[i];
    }
    return sum;
}

/* Rows, out of whose middle both loops are left. */
KERNEL double rows(const double *values, long count, long width, double last) {
    double sum = 0;
    for (long i = 0; i < count; i++)
        for (long j = 0; j < width; j++) {
            if (values[i * width + j] == last) return sum;
            sum += values[i * width + j] * (double)j;
        }
    return -sum;
}

KERNEL double chosen(const int *places, const double *values, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        switch (places[i] >> 28) {
        case 0: sum += values[places[i]]; break;
        case 1: sum -= 1; break;
        case 2: goto out;
        case 3: goto out;
        default: return sum;
        }
    }
    sum += 7;
out:
    return sum;
}

/* What leads to the index is not read ahead. */
KERNEL double twice(const int *places, const int *others, const double *values, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        if (places[i] < 0) break;
        sum += values[others[places[i]]];
    }
    return sum;
}

/* The indices are gone before the loop is left. */
KERNEL double released(int *places, const double *values, long count, const char *ends, const char *frees) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        if (ends[i]) break;
        int place = places[i];
        if (frees[i]) free(places);
        sum += values[place];
    }
    return sum;
}

/* What the function itself has allocated is written in a loop that is left, so it is not promised to be overwritten. */
KERNEL double written(const double *values, long count, double last) {
    double *copy = malloc((size_t)count * sizeof *copy), sum = 0;
    for (long i = 0; i < count; i++) copy[i] = 3;
    for (long i = 0; i < count; i++) {
        if (values[i] == last) break;
        copy[i] = values[i] + 1;
    }
    for (long i = 0; i < count; i++) sum += copy[i];
    free(copy);
    return sum;
}

/* So many bytes that end where nothing can be touched, or begin there. */
static void *fenced(size_t bytes, int at_end) {
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    char *fence = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(fence + PAGE, whole, PROT_READ | PROT_WRITE);
    return fence + PAGE + (at_end ? whole - bytes : 0);
}

/* Each page once, in an order that jumps. */
static int place_of(long i) { return (int)(i * 2477 % COUNT * EACH); }

static int *places_of(long count, int at_end) {
    int *places = fenced((size_t)count * sizeof *places, at_end);
    for (long i = 0; i < count; i++) places[i] = place_of(i);
    return places;
}

static double *watched(void) {
    double *values = aligned_alloc(PAGE, (size_t)COUNT * PAGE);
    for (long i = 0; i < (long)COUNT * EACH; i++) values[i] = (double)(i % 1009);
    if (recorder_watch) recorder_watch("values", values, (size_t)COUNT * PAGE);
    return values;
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    volatile long more = 1l << 30, count = COUNT, width = 300; /* which no kernel is compiled for */
    double *values = watched(), sum = 0;
    if (!strcmp(which, "checked")) {
        int *places = places_of(count, 1);
        sum = checked((unsigned *)places, (size_t)count, values, (size_t)COUNT * EACH, (size_t)count);
    } else if (!strcmp(which, "failed")) {
        int *places = places_of(count, 1);
        if (!setjmp(before)) sum = checked((unsigned *)places, (size_t)count, values, (size_t)COUNT * EACH, (size_t)more);
        places[count - 1] = -1;
        if (!setjmp(before)) sum = checked((unsigned *)places, (size_t)more, values, (size_t)COUNT * EACH, (size_t)more);
    } else if (!strcmp(which, "until")) {
        int *places = places_of(count, 1);
        places[count - 1] = -1;
        sum = until(places, values, more);
    } else if (!strcmp(which, "backwards")) {
        int *places = places_of(count, 0);
        places[0] = -1;
        sum = backwards(places, values, count, -more);
    } else if (!strcmp(which, "walked")) {
        struct edge *edges = fenced(COUNT * sizeof *edges, 1);
        for (long i = 0; i < COUNT; i++) edges[i] = (struct edge){place_of(i), 0, 0.5};
        edges[COUNT - 1].to = -1;
        double all = 0, enough = 0;
        long ends = walked(edges, values, more, 1e30, &all), earlier = walked(edges, values, more, all / 2, &enough);
        printf("%ld %ld %.1f\n", ends, earlier, enough);
        sum = all;
    } else if (!strcmp(which, "found")) {
        int *places = places_of(count, 1);
        values[places[count - 1]] = -1;
        sum = (double)found(places, values, more, -1);
    } else if (!strcmp(which, "stepped")) {
        values[(COUNT - 3l) * EACH] = -1;
        sum = stepped(values, more, -1);
    } else if (!strcmp(which, "early")) {
        values[EACH / 2] = -1;
        sum = stepped(values, more, -1);
    } else if (!strcmp(which, "rows")) {
        values[(COUNT - 300l) * EACH] = -1;
        sum = rows(values, more, width, -1);
    } else if (!strcmp(which, "chosen")) {
        int *places = places_of(count, 1);
        places[5] = 1 << 28;
        for (int last = 2; last < 5; last++) {
            places[count - 1] = (int)((unsigned)last << 28);
            sum += chosen(places, values, more);
        }
    } else if (!strcmp(which, "twice")) {
        int *places = fenced(COUNT * sizeof *places, 1), *others = places_of(COUNT, 1);
        for (long i = 0; i < COUNT; i++) places[i] = (int)(i * 31 % COUNT);
        places[COUNT - 1] = -1;
        sum = twice(places, others, values, more);
    } else if (!strcmp(which, "released")) {
        char *ends = calloc(COUNT, 1), *frees = calloc(COUNT, 1);
        int *places = malloc(300000); /* which free gives back to the kernel */
        for (long i = 0; i < COUNT; i++) places[i] = place_of(i);
        /* The last one of a chunk. */
        frees[127] = ends[128] = 1;
        sum = released(places, values, more, ends, frees);
    } else if (!strcmp(which, "written")) {
        values[COUNT * EACH / 2] = -1;
        sum = written(values, (long)COUNT * EACH, -1);
    } else {
        return 2;
    }
    printf("%s %.1f\n", which, sum);
    fflush(stdout);
    if (recorder_report) recorder_report();
    return 0;
}
