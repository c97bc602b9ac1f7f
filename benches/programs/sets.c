// usage: sets lookups|join SEED      programs that touch the same pages in every run, in an order that the seed says
//
// lookups: the rows of 16 tables of 6 MiB are summed in any order, table after table, in four epochs: training over shuffled shards.
// join: a hash table of 4 MiB is built for each of 16 partitions, of keys in any order; then all are probed, three times.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLES = 16, ROWS = 24576, WIDE = 64, EPOCHS = 4 };
enum { PARTS = 16, KEYS = 160000, SLOTS = 1 << 18, QUERIES = 3, LARGEST = 10000000 };

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static double lookups(uint64_t seed) {
    static uint32_t order[ROWS];
    uint64_t fixed = 7;
    double sum = 0;
    float *tables[TABLES];
    for (int table = 0; table < TABLES; table++) {
        tables[table] = malloc(sizeof(float) * ROWS * WIDE);
        for (int at = 0; at < ROWS * WIDE; at++)
            tables[table][at] = next(&fixed) % 1000;
    }
    for (int turn = 0; turn < EPOCHS * TABLES; turn++) {
        for (uint32_t row = 0; row < ROWS; row++)
            order[row] = row;
        for (uint32_t row = ROWS; row > 1; row--) {
            uint32_t other = next(&seed) % row, known = order[other];
            order[other] = order[row - 1];
            order[row - 1] = known;
        }
        for (int row = 0; row < ROWS; row++)
            for (int column = 0; column < WIDE; column++)
                sum += tables[turn % TABLES][(size_t)order[row] * WIDE + column];
    }
    return sum;
}

typedef struct {
    uint64_t key, value;
} entry;

// The entry of a key, or the free one where it would be.
static entry *find(entry *table, uint64_t key) {
    uint64_t at = key;
    at ^= at >> 33;
    at *= 0xff51afd7ed558ccdu;
    at ^= at >> 33;
    for (at %= SLOTS; table[at].key != 0 && table[at].key != key; at = (at + 1) % SLOTS) {}
    return &table[at];
}

static double join(uint64_t seed) {
    double found = 0;
    entry *tables[PARTS];
    for (int part = 0; part < PARTS; part++) {
        tables[part] = calloc(SLOTS, sizeof(entry));
        for (int count = 0; count < KEYS; count++) {
            uint64_t key = 1 + next(&seed) % LARGEST;
            entry *place = find(tables[part], key);
            place->key = key;
            place->value += count;
        }
    }
    for (int turn = 0; turn < QUERIES * PARTS; turn++)
        for (int count = 0; count < KEYS / 2; count++)
            found += find(tables[turn % PARTS], 1 + next(&seed) % LARGEST)->value;
    return found;
}

int main(int argc, char **argv) {
    if (argc != 3 || (strcmp(argv[1], "lookups") != 0 && strcmp(argv[1], "join") != 0)) {
        fprintf(stderr, "usage: sets lookups|join SEED\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[2], NULL, 10);
    printf("%.0f\n", strcmp(argv[1], "join") == 0 ? join(seed) : lookups(seed));
    return 0;
}
