/* What GCL saves as a program (Maxima is one): an executable at low addresses, with an allocator of its own that `main` sets up. Before that it
 * hands out memory, and takes nothing back. Then maps 24 MiB, writes them, and reads them again. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int is_set_up;

void *malloc(size_t bytes) {
    size_t *block = sbrk((long)(bytes + 31 & ~15ul));
    if (block == (void *)-1) return NULL;
    *block = bytes;
    return block + 2;
}

void free(void *block) {
    if (block && !is_set_up) __builtin_trap();
}

void *calloc(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    return block ? memset(block, 0, count * bytes) : NULL;
}

void *realloc(void *old, size_t bytes) {
    void *block = malloc(bytes);
    if (!block || !old) return block;
    size_t had = ((size_t *)old)[-2];
    return memcpy(block, old, had < bytes ? had : bytes);
}

int main(void) {
    is_set_up = 1;
    size_t bytes = 24 << 20, sum = 0;
    unsigned *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < bytes / 4; at += 64) memory[at] = (unsigned)(at * 2654435761u);
    for (size_t at = 0; at < bytes / 4; at += 64) sum += memory[at] ^ at;
    printf("sum %zu\n", sum);
    return 0;
}
