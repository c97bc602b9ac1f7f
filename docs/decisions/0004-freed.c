// How many pages of 400,000 objects does freeing all of them write to? A sum over each page before and after tells.
//
//   gcc -O1 -w -o freed 0004-freed.c
//   MALLOC_TRIM_THRESHOLD_=100000000000 ./freed 200                              glibc, trimming off
//   MALLOC_CONF=dirty_decay_ms:-1 LD_PRELOAD=libjemalloc.so.2 ./freed 200        jemalloc, decay off
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OBJECTS = 400000, PAGES_MAX = 1 << 20 };
static void *object[OBJECTS];
static unsigned char seen[PAGES_MAX];
static uintptr_t page[OBJECTS];
static uint64_t before[OBJECTS];

static uint64_t sum(uintptr_t number) {
    const uint64_t *words = (const uint64_t *)(number << 12);
    uint64_t hash = 0;
    for (int i = 0; i < 512; i++) hash = hash * 1099511628211u + words[i];
    return hash;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 200;
    uintptr_t lowest = UINTPTR_MAX;
    for (int i = 0; i < OBJECTS; i++) {
        object[i] = malloc(bytes);
        memset(object[i], 1, bytes);
        if ((uintptr_t)object[i] >> 12 < lowest) lowest = (uintptr_t)object[i] >> 12;
    }
    size_t pages = 0;
    for (int i = 0; i < OBJECTS; i++) {
        uintptr_t number = (uintptr_t)object[i] >> 12;
        if (number - lowest >= PAGES_MAX || seen[number - lowest]) continue;
        seen[number - lowest] = 1;
        page[pages++] = number;
    }
    for (size_t i = 0; i < pages; i++) before[i] = sum(page[i]);
    for (int i = 0; i < OBJECTS; i++) free(object[i]);
    int map = open("/proc/self/pagemap", O_RDONLY);
    size_t written = 0, given_back = 0;
    for (size_t i = 0; i < pages; i++) {
        uint64_t entry = 0;
        pread(map, &entry, 8, (off_t)page[i] * 8);
        if (entry >> 63)
            written += sum(page[i]) != before[i];
        else
            given_back++;
    }
    printf("%zu bytes: %zu pages, %zu written by free, %zu given back\n", bytes, pages, written, given_back);
}
