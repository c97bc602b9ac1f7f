// A loop whose only access far away is in another file, with CALLEE: it is hinted where the link inlines that.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t entry(const uint64_t *table, uint32_t key);

#ifdef CALLEE
uint64_t entry(const uint64_t *table, uint32_t key) { return table[key]; }
#else
enum { ENTRIES = 1 << 16, KEYS = 1 << 14 };

__attribute__((noinline)) uint64_t look_up(const uint64_t *table, const uint32_t *keys, uint64_t count) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += entry(table, keys[i]);
    return sum;
}

int main(void) {
    uint64_t *table = malloc(ENTRIES * sizeof *table);
    uint32_t *keys = malloc(KEYS * sizeof *keys);
    for (uint32_t i = 0; i < ENTRIES; i++) table[i] = i * 2654435761u;
    for (uint32_t i = 0; i < KEYS; i++) keys[i] = i * 40503u % ENTRIES;
    printf("%lu\n", look_up(table, keys, KEYS));
    return 0;
}
#endif
