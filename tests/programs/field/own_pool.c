/* Has a malloc of its own that reserves its pool at an address of its choice, inside the far range, when it is first called. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static char small[1 << 20];
static size_t used;
static void *pool;

void *malloc(size_t bytes) {
    if (!pool) pool = mmap((void *)0x490000000000, 1ul << 34, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t at = __atomic_fetch_add(&used, (bytes + 15) & ~15ul, __ATOMIC_RELAXED);
    return at + bytes > sizeof small ? NULL : small + at;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void *realloc(void *block, size_t bytes) {
    void *other = malloc(bytes);
    return block && other ? memmove(other, block, bytes) : other;
}

int main(void) {
    const uint64_t mebibytes = 32;
    void *volatile block = malloc(1);
    free(block);
    uint64_t *memory = mmap(NULL, mebibytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(memory, mebibytes * 256, 1);
    verify(memory, mebibytes * 256, 1, "mapped");
    printf("a pool %d\n", pool != MAP_FAILED && pool != NULL);
    return 0;
}
