/* Touches pages in an order that tests/tests/lifecycle/simulated.rs computes as well.
 * usage: walker PAGES ORDER TOUCHES      ORDER: sequential, stride, random, skewed
 * All pages are written once, in order; then TOUCHES of them are read and written. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t state = 88172645463325252u;

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003), its upper half */
static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 32;
}

/* PAGES is a power of two. */
static uint64_t page_of(const char *order, uint64_t touch, uint64_t pages) {
    if (strcmp(order, "sequential") == 0) return touch % pages;
    if (strcmp(order, "stride") == 0) {
        uint64_t column = pages / 10, at = touch % (column * 10);
        return at % column * 10 + at / column;
    }
    uint64_t random = next_random();
    if (strcmp(order, "random") == 0) return random % pages;
    /* The third power of a uniform share: half of the touches go to an eighth of the pages, which are scattered. */
    uint64_t cube = ((random * random) >> 32) * random >> 32;
    return (cube * pages >> 32) * 7919 % pages;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    uint64_t pages = strtoull(argv[1], NULL, 10), touches = strtoull(argv[3], NULL, 10), sum = 0;
    uint64_t *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (uint64_t page = 0; page < pages; page++) memory[page * 512] = page + 1;
    for (uint64_t touch = 0; touch < touches; touch++) {
        uint64_t *word = memory + page_of(argv[2], touch, pages) * 512;
        *word += 1;
    }
    for (uint64_t page = 0; page < pages; page++) sum += memory[page * 512] - page - 1;
    if (sum != touches) {
        printf("WRONG: %llu touches are counted\n", (unsigned long long)sum);
        return 99;
    }
    puts("done");
    return 0;
}
