/* Addresses that a runtime with a layout of its own insists on, or reserves more of than it uses.
 *   below   it maps 1 TiB with MAP_FIXED that ends where the far range begins
 *   across  it reserves 2 TiB across the beginning of the far range, opens a part there, drops some and gives all back
 *   end     the same across its end
 *   insist  it reserves memory where it wishes, and takes nothing else, as the JVM's ZGC does
 *   reserve it reserves 8 TiB and opens parts, as MariaDB does
 *   huge    the same with 64 TiB, as engines of WebAssembly do
 *   page    it reserves low addresses, where Hinterland makes its calls, then maps memory there
 * usage: addresses below|across|end|insist|reserve|huge|page */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, read_write = PROT_READ | PROT_WRITE;
static char *const far_base = (char *)0x480000000000, *const far_end = (char *)0x540000000000; /* FAR_BASE, and FAR_PAGES above */
static const size_t TIB = (size_t)1 << 40, MIB = 1 << 20;

static void *insist(size_t bytes) {
    for (int shift = 42; shift < 46; shift++) {
        void *wished = (void *)(1ul << shift), *got = mmap(wished, bytes, PROT_NONE, reservation, -1, 0);
        if (got == wished) return got;
        munmap(got, bytes);
    }
    return NULL;
}

/* Opens a part of a reservation across a border of the far range, and drops some of it. */
static int open_across(char *border) {
    char *open = border - 24 * MIB;
    if (mprotect(open, 48 * MIB, read_write)) return 0;
    fill((uint64_t *)open, 48 * 256, 2);
    verify((uint64_t *)open, 48 * 256, 2, "across");
    if (madvise(border - MIB, 2 * MIB, MADV_DONTNEED)) return 0;
    for (char *at = border - MIB; at < border + MIB; at += 4096)
        if (*at) puts("WRONG dropped");
    verify((uint64_t *)open, 23 * 256, 2, "below what was dropped");
    return 1;
}

static int across(char *border, char *reserved, size_t bytes) {
    if (mmap(reserved, bytes, PROT_NONE, reservation | MAP_FIXED_NOREPLACE, -1, 0) != reserved) return 0;
    return open_across(border) && !munmap(reserved, bytes);
}

static int reserve(size_t bytes) {
    char *pool = mmap(NULL, bytes, PROT_NONE, reservation, -1, 0), *middle = pool + bytes / 8 * 5;
    if (pool == MAP_FAILED || mmap(pool, 24 * MIB, read_write, reservation | MAP_FIXED, -1, 0) != pool) return 0;
    if (mprotect(middle, 24 * MIB, read_write)) return 0;
    fill((uint64_t *)pool, 24 * 256, 2);
    fill((uint64_t *)middle, 24 * 256, 3);
    verify((uint64_t *)pool, 24 * 256, 2, "at the beginning");
    verify((uint64_t *)middle, 24 * 256, 3, "in the middle");
    return !munmap(pool, bytes);
}

int main(int count, char **words) {
    if (count < 2) return 98;
    const uint64_t mebibytes = 32;
    uint64_t *memory = malloc(mebibytes << 20);
    fill(memory, mebibytes * 256, 1);
    if (!strcmp(words[1], "below")) {
        void *wished = far_base - TIB;
        printf("there %d\n", mmap(wished, TIB, PROT_NONE, reservation | MAP_FIXED, -1, 0) == wished);
    } else if (!strcmp(words[1], "across")) {
        printf("there %d\n", across(far_base, far_base + TIB / 32 - 2 * TIB, 2 * TIB));
    } else if (!strcmp(words[1], "end")) {
        printf("there %d\n", across(far_end, far_end - TIB / 32, TIB));
    } else if (!strcmp(words[1], "page")) {
        char *low = (char *)0x10000, *page = (char *)0x17000;
        printf("there %d\n", mmap(low, MIB, PROT_NONE, reservation | MAP_FIXED, -1, 0) == low);
        fflush(stdout);
        verify(memory, mebibytes * 256, 1, "after the reservation");
        /* What a pool says of addresses that it has reserved; and a child that does not get them. */
        printf("advised %d\n", madvise(low, MIB, MADV_DONTNEED) == 0 && madvise(low, MIB, MADV_DONTFORK) == 0);
        fflush(stdout);
        if (fork() == 0) {
            verify(memory, mebibytes * 256, 1, "the child");
            _exit(0);
        }
        int status = -1;
        printf("child %d\n", wait(&status) > 0 ? status : -1);
        printf("closed %d\n", mprotect(low, MIB, PROT_NONE) == 0);
        printf("open %d\n", mprotect(low, MIB, read_write) == 0);
        void *other = mmap(NULL, 8192, read_write, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("moved %d\n", mremap(other, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
        printf("there %d\n", mmap(page, 8192, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    } else if (!strcmp(words[1], "reserve")) {
        printf("there %d\n", reserve(8 * TIB));
    } else if (!strcmp(words[1], "huge")) {
        printf("there %d\n", reserve(64 * TIB));
    } else {
        printf("there %d\n", insist(5ul << 30) != NULL);
    }
    fflush(stdout);
    verify(memory, mebibytes * 256, 1, "after it");
    return 0;
}
