/* A library whose constructor, which runs before that of a preloaded library, registers atfork handlers that look at the
 * program's memory, and that allocate: more than a thread's cache holds, and larger than what is cached. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

uint64_t *early_words;
size_t early_count, early_wrong;

static void allocate(void) {
    static uint64_t *blocks[512];
    for (size_t i = 0; i < 512; i++) {
        size_t bytes = i % 64 ? 1000 : 300000;
        blocks[i] = malloc(bytes);
        blocks[i][0] = blocks[i][bytes / 8 - 1] = i;
    }
    for (size_t i = 0; i < 512; i++) {
        early_wrong += blocks[i][0] != i;
        free(blocks[i]);
    }
}

static void look(void) {
    if (!early_words) return;
    for (size_t i = 0; i < early_count; i += 512)
        if (early_words[i] != i * 0x9e3779b97f4a7c15ull + 1) early_wrong++;
    allocate();
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(look, look, look); }
