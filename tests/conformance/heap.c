// The malloc family: every form, alignment, sizes at the edges, contents through realloc.
#include "check.h"
#include <malloc.h>

static size_t misaligned(void *p, size_t alignment) { return (uintptr_t)p % alignment; }

static void edges(void) {
    void *volatile zero = malloc(0), *volatile other = malloc(0);
    SHOW(zero != NULL && other != NULL && zero != other);
    free(zero), free(other), free(NULL);
    volatile size_t huge = (size_t)PTRDIFF_MAX + 1, most = PTRDIFF_MAX;
    errno = 0;
    SHOW(malloc(huge) == NULL), SHOW(errno == ENOMEM), errno = 0;
    SHOW(malloc(most) == NULL), SHOW(errno == ENOMEM), errno = 0;
    SHOW(calloc(huge / 4, 16) == NULL), SHOW(errno == ENOMEM), errno = 0;
    SHOW(calloc(0, 0) != NULL), SHOW(calloc(most, 1) == NULL), errno = 0;
    SHOW(reallocarray(NULL, huge / 4, 16) == NULL), SHOW(errno == ENOMEM), errno = 0;
    void *keep = malloc(100);
    memset(keep, 7, 100);
    SHOW(realloc(keep, huge) == NULL), SHOW(errno == ENOMEM), errno = 0;
    SHOW(((char *)keep)[99] == 7);
    SHOW(realloc(keep, 0) == NULL);
    void *from_null = realloc(NULL, 10);
    SHOW(from_null != NULL);
    errno = 1234;
    free(from_null);
    SHOW(errno);
    SHOW(malloc_usable_size(NULL));
}

static void alignments(void) {
    size_t bad = 0;
    for (size_t size = 1; size < 5000; size += 7) {
        void *p = malloc(size), *q = calloc(1, size);
        bad += misaligned(p, 16) + misaligned(q, 16) + (malloc_usable_size(p) < size) + nonzero(q, size);
        memset(p, 1, malloc_usable_size(p));
        free(p), free(q);
    }
    SHOW(bad);
    for (size_t alignment = 8; alignment <= 4 * MIB; alignment *= 2) {
        for (size_t size = 0; size <= 300000; size = size * 3 + 1) {
            void *p = NULL, *q = aligned_alloc(alignment, size), *r = memalign(alignment, size);
            bad += posix_memalign(&p, alignment, size) != 0;
            bad += misaligned(p, alignment) + misaligned(q, alignment) + misaligned(r, alignment);
            bad += malloc_usable_size(p) < size || malloc_usable_size(q) < size;
            memset(p, 2, size), memset(q, 3, size), memset(r, 4, size);
            free(p), free(q), free(r);
        }
    }
    SHOW(bad);
    void *p = valloc(100), *q = pvalloc(5000);
    SHOW(misaligned(p, PAGE) + misaligned(q, PAGE)), SHOW(malloc_usable_size(q) >= 8192);
    free(p), free(q);
    void *out = &bad;
    SHOW(posix_memalign(&out, 3, 10)), SHOW(posix_memalign(&out, 4, 10)), SHOW(posix_memalign(&out, 0, 10));
    SHOW(posix_memalign(&out, 16, PTRDIFF_MAX)), SHOW(out == &bad);
    volatile size_t odd = 48;
    void *r = memalign(odd, 100);
    SHOW(misaligned(r, 64));
    free(r);
    errno = 0;
    SHOW(memalign((size_t)-1, 1) == NULL), SHOW(errno == EINVAL), errno = 0;
    SHOW(memalign(4096, PTRDIFF_MAX) == NULL), SHOW(errno == ENOMEM), errno = 0;
    SHOW(pvalloc((size_t)-5) == NULL), SHOW(errno == ENOMEM);
}

// Grows and shrinks across every size class up to 64 MiB; contents are kept each time.
static void resizing(void) {
    size_t bad = 0, size = 8;
    unsigned char *p = malloc(size);
    fill(p, size, 1);
    while (size < 64 * MIB) {
        size_t next = (size + size / 3 + 24) & ~(size_t)7;
        p = realloc(p, next);
        MUST(p);
        bad += wrong(p, size, 1);
        fill(p, next, 1);
        size = next;
    }
    while (size > 16) {
        size_t next = (size - size / 3) & ~(size_t)7;
        p = realloc(p, next);
        bad += wrong(p, next, 1);
        size = next;
    }
    free(p);
    SHOW(bad);
    for (size_t step = 0; step < 64; step++) {
        unsigned char *a = malloc(300 * 1024), *blocker = malloc(300 * 1024);
        fill(a, 300 * 1024, step);
        a = reallocarray(a, 3 * MIB / 8, 8);
        bad += wrong(a, 300 * 1024, step);
        free(a), free(blocker);
    }
    SHOW(bad);
}

// calloc reads as zero whatever was there before.
static void zeroes(void) {
    size_t bad = 0;
    for (int round = 0; round < 6; round++) {
        void *held[40];
        for (int i = 0; i < 40; i++) {
            size_t size = 1000 + (mix(round * 40 + i) % (2 * MIB));
            held[i] = calloc(size, 1);
            bad += nonzero(held[i], size);
            memset(held[i], 0xaa, malloc_usable_size(held[i]));
        }
        for (int i = 0; i < 40; i++) free(held[(i * 7) % 40]);
        if (round == 3) malloc_trim(0);
    }
    SHOW(bad);
}

// A table of many blocks of many sizes, each with its pattern, churned and verified.
static void churn(void) {
    enum { SLOTS = 20000 };
    static struct { uint64_t *at; size_t bytes; uint64_t seed; } slots[SLOTS];
    size_t bad = 0;
    for (uint64_t step = 0; step < 160000; step++) {
        uint64_t r = mix(step);
        int i = r % SLOTS;
        if (slots[i].at) bad += wrong(slots[i].at, slots[i].bytes, slots[i].seed);
        size_t bytes = ((r >> 20) % 100 == 0 ? (r >> 32) % 200000 : (r >> 32) % 1500) & ~(size_t)7;
        if (r >> 63) {
            free(slots[i].at);
            slots[i].at = malloc(bytes);
        } else {
            size_t kept = bytes < slots[i].bytes ? bytes : slots[i].bytes;
            slots[i].at = realloc(slots[i].at, bytes ? bytes : 8);
            bad += wrong(slots[i].at, slots[i].at ? kept : 0, slots[i].seed);
        }
        slots[i].bytes = bytes, slots[i].seed = r;
        fill(slots[i].at, bytes, r);
    }
    for (int i = 0; i < SLOTS; i++) bad += wrong(slots[i].at, slots[i].bytes, slots[i].seed), free(slots[i].at);
    SHOW(bad);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Memory that libc allocates and the program frees or resizes, and the other way round.
static void shared_with_libc(void) {
    char *text = strdup("a text"), *part = strndup("another text", 7);
    printf("%s|%s\n", text, part);
    text = realloc(text, 100000), part = realloc(part, 3);
    SHOW(strcmp(text, "a text")), SHOW(memcmp(part, "ano", 3));
    free(text), free(part);
    char *printed = NULL;
    SHOW(asprintf(&printed, "%d-%s", 42, "x"));
    printed = realloc(printed, 5 * MIB);
    SHOW(strcmp(printed, "42-x"));
    free(printed);
    char *memory = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&memory, &bytes);
    for (int i = 0; i < 300000; i++) fprintf(stream, "%d ", i);
    fclose(stream);
    SHOW(bytes), SHOW(memcmp(memory + bytes - 7, "299999 ", 7));
    FILE *reader = fmemopen(memory, bytes, "r");
    char *line = malloc(10); // The program's buffer, which libc resizes.
    size_t room = 10;
    SHOW(getdelim(&line, &room, 'z', reader)), SHOW(line[1000]);
    fclose(reader), free(line), free(memory);
    size_t count = 1000000;
    uint64_t *numbers = malloc(count * 8);
    fill(numbers, count * 8, 5);
    qsort(numbers, count, 8, by_value);
    size_t bad = 0;
    for (size_t i = 1; i < count; i++) bad += numbers[i - 1] > numbers[i];
    SHOW(bad);
    free(numbers);
    char *path = realpath("/proc/../usr", NULL);
    puts(path), free(path);
}

int main(void) {
    edges();
    alignments();
    resizing();
    zeroes();
    churn();
    shared_with_libc();
}
