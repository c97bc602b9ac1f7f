/* Says which of its walks are to be recorded, or to follow a tape.
 *
 * intervals record|prefetch|auto PAGES ROUNDS
 *
 * Touches one mapping before the first interval, and another one in it and after it; in the interval some pages of the first one, too. Prints their
 * addresses and what the calls returned, and "done". Every page holds its number, which is checked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <hinterland.h>

#define PAGE 4096

static uint64_t pages;

static volatile unsigned char *map(void) {
    void *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(3);
    return memory;
}

static void walk(volatile unsigned char *memory, uint64_t step) {
    for (uint64_t page = 0; page < pages; page += step) {
        volatile uint64_t *words = (volatile uint64_t *)(memory + page * PAGE);
        if (words[0] == 0) words[0] = page + 1;
        if (words[0] != page + 1) {
            puts("WRONG");
            _Exit(99);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int mode = !strcmp(argv[1], "record") ? HINTERLAND_RECORD : !strcmp(argv[1], "prefetch") ? HINTERLAND_PREFETCH : HINTERLAND_AUTO;
    pages = strtoull(argv[2], NULL, 10);
    uint64_t rounds = strtoull(argv[3], NULL, 10);
    volatile unsigned char *before = map();
    walk(before, 1);
    int began = hinterland_begin(mode);
    volatile unsigned char *inside = map();
    for (uint64_t round = 0; round < rounds; round++) walk(inside, 1);
    walk(before, 1024);
    int nested = hinterland_begin(HINTERLAND_AUTO);
    walk(inside, 1);
    int nested_ended = hinterland_end();
    int ended = hinterland_end();
    walk(inside, 1);
    walk(before, 1);
    int again = hinterland_begin(mode);
    walk(inside, 2);
    hinterland_end();
    int more = hinterland_end();
    int unknown = hinterland_begin(99);
    int refused = unknown == -1 && errno == EINVAL;
    printf("%p\n%p\nbegan %d %d %d, ended %d %d %d, refused %d\ndone\n", (void *)inside, (void *)before, began, nested, again, nested_ended,
           ended, more, refused);
    return 7;
}
