/* Reserves so many TiB, as databases do for a buffer pool that may grow, and uses the beginning. Heap beside it. Then it wants a mapping
   across the end of the far range. usage: beyond TIB */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t BYTES = (size_t)48 << 20;

static unsigned use(unsigned char *at) {
    unsigned sum = 0;
    for (size_t i = 0; i < BYTES; i += 64) at[i] = (unsigned char)(i >> 12);
    for (size_t i = 0; i < BYTES; i += 64) sum = sum * 31 + at[i];
    return sum;
}

int main(int argc, char **argv) {
    size_t reserved = strtoull(argv[argc - 1], NULL, 10) << 40;
    unsigned char *pool = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) return perror("reserve"), 1;
    if (mmap(pool, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != pool) return 2;
    printf("%u and %u\n", use(pool), use(malloc(BYTES)));
    void *end = (void *)0x53ff00000000;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    printf("across the end: %s\n", mmap(end, (size_t)8 << 30, PROT_NONE, flags, -1, 0) == end ? "there" : strerror(errno));
    return munmap(pool, reserved);
}
