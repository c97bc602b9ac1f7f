/* Loops of which nothing may be read ahead, or promised, that looks as if it might. The case is named on the command line; prints what it computes. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KERNEL __attribute__((noinline)) static
enum { PAGE = 4096, ROWS = 21000, VALUES = 131072, TURNS = 1024, AT_A_TIME = 64 };

/* Memory of whole pages, before and behind which nothing can be touched. */
static void *fenced(size_t bytes) {
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    char *fence = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(fence + PAGE, whole, PROT_READ | PROT_WRITE);
    return fence + PAGE;
}

static double *values_of(size_t count) {
    double *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (double)(i & 3);
    return values;
}

static int *places_of(size_t count) {
    int *places = fenced(count * sizeof *places);
    for (size_t i = 0; i < count; i++) places[i] = (int)(i * 7919 % VALUES);
    return places;
}

/* The lengths of later rows are not those that will be walked. */
KERNEL double counted(long rows, long width, long *lengths, const int *places, const double *values) {
    double sum = 0;
    for (long i = 0; i < rows; i++) {
        for (long j = 0; j < lengths[i]; j++) sum += values[places[i * width + j]];
        lengths[i + 64] = 5;
    }
    return sum;
}

/* Nor is it known which of them will be. */
KERNEL double guarded(long rows, long width, long full, char *open, const int *places, const double *values) {
    double sum = 0;
    for (long i = 0; i < rows; i++) {
        if (open[i]) {
            long j = 0;
            do sum += values[places[i * width + j]];
            while (++j < width);
        }
        open[i + 64] = i % 3 == 0 && i + 64 < full;
    }
    return sum;
}

/* The loop inside ends by its condition or in its middle. */
KERNEL double broken(long rows, const long *from, const long *to, long last, const int *places, const double *values, double *seen) {
    double sum = 0;
    for (long i = 0; i < rows; i++)
        for (long j = from[i]; j < to[i]; j++) {
            seen[j]++;
            if (j == last) break;
            sum += values[places[j]];
        }
    return sum;
}

struct item {
    int at, unused[15];
};

static struct item *items[TURNS];
static atomic_int ready, taken;
static volatile int told;

/* An item is there once its maker has said so. */
KERNEL double acquired(int count, const double *values) {
    double sum = 0;
    for (int i = 0; i < count; i++) {
        while (atomic_load_explicit(&ready, memory_order_acquire) <= i)
            ;
        sum += values[items[i]->at];
        atomic_store_explicit(&taken, i + 1, memory_order_relaxed);
    }
    return sum;
}

KERNEL double waited(int count, const double *values) {
    double sum = 0;
    for (int i = 0; i < count; i++) {
        while (told <= i)
            ;
        sum += values[items[i]->at];
        atomic_store_explicit(&taken, i + 1, memory_order_relaxed);
    }
    return sum;
}

static atomic_int *volatile counts[] = {&ready, &taken}; /* which no function is compiled for */

__attribute__((noinline)) static int is_there(atomic_int *made, atomic_int *used, int item) {
    atomic_store_explicit(used, item, memory_order_relaxed);
    return atomic_load_explicit(made, memory_order_acquire) > item;
}

/* What waits is a function that returns. */
KERNEL double asked(int count, const double *values) {
    atomic_int *made = counts[0], *used = counts[1];
    double sum = 0;
    for (int i = 0; i < count; i++) {
        while (!is_there(made, used, i))
            ;
        sum += values[items[i]->at];
    }
    return sum;
}

static void *make(void *unused) {
    for (int i = 0; i < TURNS; i++) {
        struct item *item = malloc(sizeof *item);
        item->at = i * 7919 % VALUES;
        items[i] = item;
        if (i % AT_A_TIME != AT_A_TIME - 1) continue;
        atomic_store_explicit(&ready, i + 1, memory_order_release);
        told = i + 1;
        while (i + 1 < TURNS && atomic_load(&taken) < i) sched_yield();
    }
    return unused;
}

static double consumed(double (*consume)(int, const double *)) {
    double *values = values_of(VALUES);
    pthread_t maker;
    pthread_create(&maker, NULL, make, NULL);
    double sum = consume(TURNS, values);
    pthread_join(maker, NULL);
    return sum;
}

static sigjmp_buf before;

static void leave(int number) {
    (void)number;
    siglongjmp(before, 1);
}

/* A signal leads out of the loop to where its memory is looked at. */
KERNEL long left(long count, const long *readable) {
    long *written = malloc((size_t)count * sizeof *written), others = 0;
    for (long i = 0; i < count; i++) written[i] = 7;
    if (!sigsetjmp(before, 1))
        for (long i = 0; i < count; i++) written[i] = readable[i] ^ 5;
    for (long i = 0; i < count; i++) others += written[i] != 7 && written[i] != 5;
    free(written);
    return others;
}

/* No array has what the first row begins with. */
KERNEL double carried(long rows, const long *ends, const double *values) {
    double sum = 0;
    long from = 0;
    for (long i = 0; i < rows; i++) {
        for (long j = from; j < ends[i]; j++) sum += values[j];
        from = ends[i];
    }
    return sum;
}

/* What is apart in one iteration is not apart in two. */
__attribute__((always_inline)) static inline double row(const long *restrict length, long *restrict later, const int *places, const double *values) {
    double sum = 0;
    for (long j = 0; j < *length; j++) sum += values[places[j]];
    *later = 5;
    return sum;
}

KERNEL double inlined(long rows, long width, long *lengths, const int *places, const double *values) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += row(&lengths[i], &lengths[i + 64], places + i * width, values);
    return sum;
}

__attribute__((always_inline)) static inline double open_row(const char *restrict open, char *restrict later, int opens, long width, const int *places, const double *values) {
    double sum = 0;
    if (*open) {
        long j = 0;
        do sum += values[places[j]];
        while (++j < width);
    }
    *later = opens;
    return sum;
}

KERNEL double opened(long rows, long width, long full, char *open, const int *places, const double *values) {
    double sum = 0;
    for (long i = 0; i < rows; i++) sum += open_row(&open[i], &open[i + 64], i % 3 == 0 && i + 64 < full, width, places + i * width, values);
    return sum;
}

struct large {
    long place;
    char rest[200000]; /* which free gives back to the kernel */
};

/* What the iteration before has read is there no more. */
KERNEL double released(long count, struct large *restrict *restrict blocks, const double *restrict values) {
    double sum = 0;
    long place = 0;
    for (long i = 0; i < count; i++) {
        sum += values[place];
        struct large *block = blocks[i];
        place = block->place;
        free(block);
    }
    return sum;
}

KERNEL double released_rows(long count, struct large *restrict *restrict blocks, const double *restrict values) {
    double sum = 0;
    long place = 0;
    for (long i = 0; i < count; i++) {
        for (long j = place; j < place + 64; j++) sum += values[j];
        struct large *block = blocks[i];
        place = block->place;
        free(block);
    }
    return sum;
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    double result = 0;
    volatile long width = 6; /* which no kernel is compiled for */
    if (!strcmp(which, "counted") || !strcmp(which, "inlined")) {
        long *lengths = malloc((ROWS + 64) * sizeof *lengths);
        for (long i = 0; i < ROWS + 64; i++) lengths[i] = i < 64 ? 5 : 1l << 40;
        result = (which[0] == 'c' ? counted : inlined)(ROWS, width, lengths, places_of(ROWS * 6), values_of(VALUES));
    } else if (!strcmp(which, "guarded") || !strcmp(which, "opened")) {
        char *open = malloc(ROWS + 64);
        memset(open, 1, ROWS + 64);
        result = (which[0] == 'g' ? guarded : opened)(ROWS, width, PAGE, open, places_of((size_t)(PAGE * width)), values_of(VALUES));
    } else if (!strcmp(which, "broken")) {
        long last = PAGE * 10, *from = malloc(ROWS * sizeof *from), *to = malloc(ROWS * sizeof *to);
        for (long i = 0; i < ROWS; i++) from[i] = i * 2 % last, to[i] = from[i] + 8;
        result = broken(ROWS, from, to, last, places_of((size_t)last), values_of(VALUES), calloc((size_t)last + 8, sizeof(double)));
    } else if (!strcmp(which, "acquired")) {
        result = consumed(acquired);
    } else if (!strcmp(which, "asked")) {
        result = consumed(asked);
    } else if (!strcmp(which, "waited")) {
        result = consumed(waited);
    } else if (!strcmp(which, "carried")) {
        long rows = PAGE, *ends = fenced((size_t)rows * sizeof *ends);
        for (long i = 0; i < rows; i++) ends[i] = (i + 1) * (VALUES / rows);
        result = carried(rows, ends, values_of(VALUES));
    } else if (!strncmp(which, "released", 8)) {
        struct large **blocks = fenced(TURNS * sizeof *blocks);
        for (long i = 0; i < TURNS; i++) {
            blocks[i] = malloc(sizeof **blocks);
            blocks[i]->place = i * 7919 % (VALUES - 64);
        }
        result = (which[8] ? released_rows : released)(TURNS, blocks, values_of(VALUES));
    } else if (!strcmp(which, "left")) {
        signal(SIGSEGV, leave);
        signal(SIGBUS, leave);
        long *readable = fenced(PAGE * sizeof *readable);
        result = (double)left(1 << 20, readable);
    } else {
        return 2;
    }
    printf("%s %.0f\n", which, result);
    return 0;
}
