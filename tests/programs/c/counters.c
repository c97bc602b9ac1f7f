/* Counts in memory: each round adds one to a word of each page, and verifies all of them.
 * usage: counters MEBIBYTES ROUNDS      0 rounds: without end. Says "ready" after the second.
 * Pages of even numbers are those of pattern.h, of which half can be compressed; all of the others looks random. */
#include "pattern.h"

static uint64_t counts[PAGE_WORDS];

static uint64_t word_of(uint64_t page, uint64_t word) {
    return counts[word] + (page % 2 ? pattern_word(page * PAGE_WORDS + word, 0, 1) : pattern_word(page, word, 1));
}

int main(int argc, char **argv) {
    uint64_t pages = argc > 2 ? strtoull(argv[1], NULL, 10) * 256 : 0, rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t *memory = malloc(pages * PAGE_WORDS * sizeof *memory);
    if (!pages || !memory) return 2;
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t word = 0; word < PAGE_WORDS; word++) memory[page * PAGE_WORDS + word] = word_of(page, word);
    for (uint64_t round = 0; rounds == 0 || round < rounds; round++) {
        const uint64_t counted = round * 37 % PAGE_WORDS;
        for (uint64_t page = 0; page < pages; page++) memory[page * PAGE_WORDS + counted]++;
        counts[counted]++;
        for (uint64_t page = 0; page < pages; page++)
            for (uint64_t word = 0; word < PAGE_WORDS; word++)
                if (memory[page * PAGE_WORDS + word] != word_of(page, word)) {
                    printf("WRONG: page %llu word %llu\n", (unsigned long long)page, (unsigned long long)word);
                    fflush(stdout);
                    _Exit(99);
                }
        if (round == 1) {
            puts("ready");
            fflush(stdout);
        }
    }
    puts("done");
    return 0;
}
