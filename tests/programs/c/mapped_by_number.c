// Maps memory as language runtimes without libc's wrappers do, by `syscall(SYS_mmap, …)`; fills it, reads it back, drops half of it and
// looks at all of it. What is printed is the same natively.

#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const size_t BYTES = 64 << 20, HALF = 32 << 20, PAGE = 4096;
static unsigned char *at;

static unsigned char pattern(size_t offset) { return offset / PAGE % 251 + 3; }

// Pages from `start` to `end` that hold neither the pattern nor, where it was dropped, zero.
static size_t wrong(size_t start, size_t end, int dropped) {
    size_t found = 0;
    for (size_t i = start; i < end; i += PAGE) found += at[i] != (dropped ? 0 : pattern(i));
    return found;
}

int main(void) {
    at = (unsigned char *)syscall(SYS_mmap, NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    if (at == MAP_FAILED) return 2;
    for (size_t i = 0; i < BYTES; i += PAGE) at[i] = pattern(i);
    size_t first = wrong(0, BYTES, 0);
    long dropped = syscall(SYS_madvise, at, HALF, MADV_DONTNEED);
    size_t zero = wrong(0, HALF, 1), kept = wrong(HALF, BYTES, 0);
    long unmapped = syscall(SYS_munmap, at, BYTES);
    printf("wrong %zu, dropped %ld: %zu not zero, %zu lost; unmapped %ld\n", first, dropped, zero, kept, unmapped);
    return 0;
}
