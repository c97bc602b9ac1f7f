/* Maps 1 TiB at a fixed address below the far range, as a runtime with a layout of its own does, and works on. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    const uint64_t mebibytes = 32;
    uint64_t *memory = malloc(mebibytes << 20);
    fill(memory, mebibytes * 256, 1);
    void *wished = (void *)0x1f0000000000;
    void *got = mmap(wished, 1ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    printf("%s\n", got == wished ? "there" : "elsewhere");
    fflush(stdout);
    verify(memory, mebibytes * 256, 1, "after it");
    return 0;
}
