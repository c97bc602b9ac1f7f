/* A pattern that tells for every page and every word what must stand there: half of each page looks random, half
 * repeats, as in the paging bench. `version` makes another pattern of the same place. */
#ifndef PATTERN_H
#define PATTERN_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_WORDS 512

static inline uint64_t pattern_word(uint64_t page, uint64_t word, uint64_t version) {
    uint64_t x = page * 0x9e3779b97f4a7c15u + version * 0xd1342543de82ef95u + 1;
    if (word < PAGE_WORDS / 2) x += word * 0x2545f4914f6cdd1du;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 27);
}

static inline void fill(uint64_t *memory, uint64_t pages, uint64_t version) {
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t word = 0; word < PAGE_WORDS; word++)
            memory[page * PAGE_WORDS + word] = pattern_word(page, word, version);
}

/* Stops the program with 99 at the first wrong word: a wrong byte must never pass. */
static inline void verify(const uint64_t *memory, uint64_t pages, uint64_t version, const char *who) {
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t word = 0; word < PAGE_WORDS; word++)
            if (memory[page * PAGE_WORDS + word] != pattern_word(page, word, version)) {
                fprintf(stderr, "WRONG %s: page %llu word %llu\n", who, (unsigned long long)page, (unsigned long long)word);
                printf("WRONG %s\n", who);
                fflush(stdout);
                _Exit(99);
            }
}

static inline uint64_t *patterned(uint64_t mebibytes, uint64_t version) {
    uint64_t *memory = malloc(mebibytes << 20);
    if (!memory) {
        puts("no memory");
        exit(98);
    }
    fill(memory, mebibytes * 256, version);
    return memory;
}
#endif
