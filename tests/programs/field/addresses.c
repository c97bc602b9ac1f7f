/* Addresses that a runtime with a layout of its own insists on. "below": it maps 1 TiB with MAP_FIXED that ends where the far range begins.
 * "insist": it reserves memory where it wishes, and takes nothing else, as the JVM's ZGC does. usage: addresses below|insist */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

static void *insist(size_t bytes) {
    for (int shift = 42; shift < 46; shift++) {
        void *wished = (void *)(1ul << shift), *got = mmap(wished, bytes, PROT_NONE, reservation, -1, 0);
        if (got == wished) return got;
        munmap(got, bytes);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 2) return 98;
    const uint64_t mebibytes = 32;
    uint64_t *memory = malloc(mebibytes << 20);
    fill(memory, mebibytes * 256, 1);
    if (!strcmp(words[1], "below")) {
        void *wished = (void *)0x1f0000000000;
        printf("there %d\n", mmap(wished, 1ul << 40, PROT_NONE, reservation | MAP_FIXED, -1, 0) == wished);
    } else {
        printf("there %d\n", insist(5ul << 30) != NULL);
    }
    fflush(stdout);
    verify(memory, mebibytes * 256, 1, "after it");
    return 0;
}
