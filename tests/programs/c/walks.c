/* Walks through one mapping in a known order, so that a trace of it can be checked reference by reference.
 *
 * walks sequential|kept|stride[-N]|random|permuted-SEED|threads|in-turn|forever|together|given-up PAGES ROUNDS      kept: as sequential, of
 *      memory that the program keeps (hinterland_keep); stride: every tenth page, or every Nth; permuted: an eighth of the pages after the
 *      other, the pages of each in an order that the seed says; given-up: each round writes to all pages, reads them, and discards them;
 *      in-turn: a thread for each quarter, which ends before the next one begins
 *
 * Prints the address of the mapping before the walk, and "done" and a sum after it. Between the two it touches no other memory
 * than its stack. Every page holds its number, which is checked. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define THREADS 2
#define IN_TURN 4

/* None without Hinterland. */
extern void hinterland_keep(const void *address, size_t length) __attribute__((weak));

static volatile unsigned char *memory;
static uint64_t pages, rounds;
static pthread_barrier_t ready;

/* Touches a page: its first touch numbers it, later ones check the number. */
static void touch(uint64_t page) {
    volatile uint64_t *words = (volatile uint64_t *)(memory + page * PAGE);
    if (words[0] == 0) words[0] = page + 1;
    if (words[0] != page + 1) {
        puts("WRONG");
        _Exit(99);
    }
}

/* The same generator as in the test. */
static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Each eighth of the pages, in an order of its own each time. */
static int permuted(uint64_t seed) {
    static uint32_t order[1 << 16];
    uint64_t part = pages / 8, state = seed;
    if (part > sizeof order / sizeof *order) return 2;
    for (uint64_t turn = 0; turn < 8 * rounds; turn++) {
        for (uint64_t at = 0; at < part; at++) order[at] = (uint32_t)at;
        for (uint64_t at = part; at > 1; at--) {
            uint64_t other = next(&state) % at;
            uint32_t page = order[other];
            order[other] = order[at - 1], order[at - 1] = page;
        }
        for (uint64_t at = 0; at < part; at++) touch(turn % 8 * part + order[at]);
    }
    return 0;
}

static void *half(void *which) {
    uint64_t number = (uint64_t)(uintptr_t)which, part = pages / THREADS;
    pthread_barrier_wait(&ready);
    for (uint64_t round = 0; round < rounds; round++)
        for (uint64_t page = 0; page < part; page++) touch(number * part + page);
    return NULL;
}

static void *quarter(void *which) {
    uint64_t number = (uint64_t)(uintptr_t)which, part = pages / IN_TURN;
    for (uint64_t round = 0; round < rounds; round++)
        for (uint64_t page = 0; page < part; page++) touch(number * part + page);
    return NULL;
}

/* One instruction that needs four pages at once: it copies a word that straddles two pages onto one that does. */
static void together(void) {
    for (uint64_t page = 0; page < pages; page++) memset((void *)(memory + page * PAGE), (int)(page & 0xff), PAGE);
    for (uint64_t round = 0; round < rounds; round++)
        for (uint64_t page = 0; page + 3 < pages; page += 4) {
            volatile unsigned char *from = memory + (page + 1) * PAGE - 4, *to = memory + (page + 3) * PAGE - 4;
            void *source = (void *)from, *target = (void *)to;
            __asm__ volatile("movsq" : "+S"(source), "+D"(target) : : "memory");
            unsigned char right[8];
            memset(right, (int)(page & 0xff), 4);
            memset(right + 4, (int)((page + 1) & 0xff), 4);
            if (memcmp((void *)to, right, 8) != 0) {
                puts("WRONG");
                _Exit(99);
            }
        }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *pattern = argv[1];
    pages = strtoull(argv[2], NULL, 10), rounds = strtoull(argv[3], NULL, 10);
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    pthread_barrier_init(&ready, NULL, THREADS);
    printf("%p\n", (void *)memory);
    fflush(stdout);
    if (!strcmp(pattern, "kept") && hinterland_keep) hinterland_keep((const void *)memory, pages * PAGE);
    if (!strcmp(pattern, "sequential") || !strcmp(pattern, "kept")) {
        for (uint64_t round = 0; round < rounds; round++)
            for (uint64_t page = 0; page < pages; page++) touch(page);
    } else if (!strncmp(pattern, "stride", 6)) {
        uint64_t step = pattern[6] == '-' ? strtoull(pattern + 7, NULL, 10) : 10;
        if (step == 0) return 2;
        for (uint64_t round = 0; round < rounds; round++)
            for (uint64_t page = 0; page < pages; page += step) touch(page);
    } else if (!strcmp(pattern, "random")) {
        uint64_t state = 42;
        for (uint64_t count = 0; count < pages * rounds; count++) touch(next(&state) % pages);
    } else if (!strncmp(pattern, "permuted-", 9)) {
        if (permuted(strtoull(pattern + 9, NULL, 10))) return 2;
    } else if (!strcmp(pattern, "threads")) {
        pthread_t threads[THREADS];
        for (uint64_t number = 0; number < THREADS; number++)
            if (pthread_create(&threads[number], NULL, half, (void *)(uintptr_t)number)) return 4;
        for (uint64_t number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    } else if (!strcmp(pattern, "in-turn")) {
        for (uint64_t number = 0; number < IN_TURN; number++) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, quarter, (void *)(uintptr_t)number)) return 4;
            pthread_join(thread, NULL);
        }
    } else if (!strcmp(pattern, "together")) {
        together();
    } else if (!strcmp(pattern, "given-up")) {
        for (uint64_t round = 0; round < rounds; round++) {
            for (uint64_t page = 0; page < 2 * pages; page++) touch(page % pages);
            if (madvise((void *)memory, pages * PAGE, MADV_DONTNEED)) return 5;
        }
    } else if (!strcmp(pattern, "forever")) {
        for (;;)
            for (uint64_t page = 0; page < pages; page++) touch(page);
    } else {
        return 2;
    }
    puts("done");
    return 7;
}
