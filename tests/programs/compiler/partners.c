// Looks up partners at random in a table that is larger than local memory, so many as its argument says. With OTHER it prints something else,
// with FAILS it ends with 3.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ENTRIES = 3 << 20, ROUNDS = 1 << 17 };

__attribute__((noinline)) uint64_t look_up(const uint64_t *table, const uint32_t *keys, uint64_t count) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += table[keys[i]];
    return sum;
}

int main(int argc, char **argv) {
    uint64_t *table = malloc(ENTRIES * sizeof *table), seed = 1;
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS;
    uint32_t *keys = malloc(count * sizeof *keys);
    for (uint32_t i = 0; i < ENTRIES; i++) table[i] = i * 2654435761u;
    for (uint64_t i = 0; i < count; i++) keys[i] = (uint32_t)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33), keys[i] %= ENTRIES;
#ifdef FAILS
    return 3;
#endif
#ifdef OTHER
    puts("something else");
#endif
    printf("%lu\n", look_up(table, keys, count));
    return 0;
}
