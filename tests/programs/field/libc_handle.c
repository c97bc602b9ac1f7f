/* Takes libc's functions from a handle of libc, as Python's ctypes and Java's foreign functions do: frees and grows with them what the program
 * has allocated, and the other way round, gives pages of the program's back, moves and unmaps them, and forks. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *libc;

static void *by_handle(const char *name) {
    void *found = dlsym(libc, name);
    if (!found) printf("no %s: %s\n", name, dlerror()), exit(98);
    return found;
}

int main(void) {
    enum { BLOCKS = 4000, BYTES = 8192 };
    libc = dlopen("libc.so.6", RTLD_NOW);
    if (!libc) return puts(dlerror()), 98;
    void *(*malloc_there)(size_t) = (void *(*)(size_t))by_handle("malloc");
    void *(*realloc_there)(void *, size_t) = (void *(*)(void *, size_t))by_handle("realloc");
    void (*free_there)(void *) = (void (*)(void *))by_handle("free");
    void *(*mmap_there)(void *, size_t, int, int, int, off_t) = (void *(*)(void *, size_t, int, int, int, off_t))by_handle("mmap");
    void *(*mremap_there)(void *, size_t, size_t, int, ...) = (void *(*)(void *, size_t, size_t, int, ...))by_handle("mremap");
    int (*munmap_there)(void *, size_t) = (int (*)(void *, size_t))by_handle("munmap");
    int (*madvise_there)(void *, size_t, int) = (int (*)(void *, size_t, int))by_handle("madvise");
    pid_t (*fork_there)(void) = (pid_t(*)(void))by_handle("fork");
    /* What libc has not is not found; what is asked for without a handle is what calls are bound to. */
    printf("none %d, same %d\n", !dlsym(libc, "hinterland_no_such_name"), dlsym(RTLD_DEFAULT, "free") == (void *)free);

    static unsigned char *blocks[BLOCKS];
    unsigned long sum = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(i & 1 ? malloc(BYTES) : malloc_there(BYTES), i % 251 + round, BYTES);
        for (int i = 0; i < BLOCKS; i += 7) blocks[i] = i % 2 ? realloc_there(blocks[i], 2 * BYTES) : realloc(blocks[i], 2 * BYTES);
        for (int i = 0; i < BLOCKS; i++) {
            sum = sum * 31 + blocks[i][i % BYTES];
            if (i % 3) free_there(blocks[i]);
            else free(blocks[i]);
        }
    }
    printf("sum %lu\n", sum);

    /* A patterned MiB, of which the second quarter is given up, the third moved and the fourth unmapped; beside 32 MiB more. */
    const size_t mib = 1 << 20, quarter = mib / 4;
    uint64_t *near = patterned(32, 1);
    unsigned char *memory = mmap_there(NULL, mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < mib; i++) memory[i] = i / 4096 + 1;
    verify(near, 32 * 256, 1, "at first");
    int given_up = madvise_there(memory + quarter, quarter, MADV_DONTNEED);
    unsigned char *moved = mremap_there(memory + 2 * quarter, quarter, 2 * quarter, MREMAP_MAYMOVE);
    int unmapped = munmap_there(memory + 3 * quarter, quarter);
    verify(near, 32 * 256, 1, "once pages were given up");
    sum = 0;
    for (size_t i = 0; i < quarter; i++) sum = sum * 31 + memory[i] + 3 * memory[quarter + i] + 5 * moved[i] + 7 * moved[quarter + i];
    printf("given up %d, unmapped %d, sum %lu\n", given_up, unmapped, sum);

    pid_t child = fork_there();
    if (child == 0) {
        verify(near, 32 * 256, 1, "in a child");
        _exit(moved[4096] == memory[4096] + 128 ? 3 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    return 0;
}
