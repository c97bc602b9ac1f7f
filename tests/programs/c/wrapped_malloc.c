/* A library before Hinterland's that keeps a book of all allocations, under a lock, and passes them on (-DLIBRARY), as heaptrack's does. And a program
 * for it: threads that allocate, a mapping that does not fit, a fork. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY

enum { ENTRIES = 1 << 21 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void **book;
static size_t entry;
static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);

/* The loader's look-up allocates before there is a next one. */
static char first[4096];
static size_t first_used;

static void *early(size_t bytes) {
    void *block = first + first_used;
    first_used += (bytes + 15) & ~15ul;
    return block;
}

static int is_ready(void) {
    static int is_begun;
    if (!is_begun) {
        is_begun = 1;
        next_malloc = dlsym(RTLD_NEXT, "malloc");
        next_realloc = dlsym(RTLD_NEXT, "realloc");
        next_free = dlsym(RTLD_NEXT, "free");
        next_calloc = dlsym(RTLD_NEXT, "calloc");
    }
    return next_calloc != NULL;
}

static void *noted(void *block) {
    pthread_mutex_lock(&lock);
    if (!book) book = next_calloc(ENTRIES, sizeof *book);
    /* Each entry on another page, which has left since it was written last. */
    book[entry++ * 513 % ENTRIES] = block;
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t bytes) {
    return is_ready() ? noted(next_malloc(bytes)) : early(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return is_ready() ? noted(next_calloc(count, bytes)) : early(count * bytes);
}

long reallocs;

void *realloc(void *old, size_t bytes) {
    __atomic_add_fetch(&reallocs, 1, __ATOMIC_RELAXED);
    if (is_ready() && !((char *)old >= first && (char *)old < first + sizeof first)) return noted(next_realloc(old, bytes));
    void *block = malloc(bytes);
    return block && old ? memcpy(block, old, bytes) : block;
}

void free(void *block) {
    if ((char *)block >= first && (char *)block < first + sizeof first) return;
    noted(block);
    next_free(block);
}

#else

#include "pattern.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 2, BLOCKS = 2000 };
static const uint64_t mebibytes = 48;

static void *allocate(void *seed) {
    unsigned char *blocks[BLOCKS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < BLOCKS; at++) {
            size_t bytes = 100 + (size_t)(at * 37 % 5000);
            blocks[at] = realloc(blocks[at], bytes);
            if (!blocks[at]) return (void *)1;
            memset(blocks[at], (int)(long)seed + at, bytes);
        }
        for (int at = 0; at < BLOCKS; at++)
            if (blocks[at][99] != (unsigned char)((long)seed + at)) return (void *)2;
    }
    for (int at = 0; at < BLOCKS; at++) free(blocks[at]);
    return NULL;
}

static void threads(void) {
    pthread_t all[THREADS];
    for (long thread = 0; thread < THREADS; thread++) pthread_create(&all[thread], NULL, allocate, (void *)thread);
    for (int thread = 0; thread < THREADS; thread++) {
        void *wrong;
        pthread_join(all[thread], &wrong);
        if (!wrong) continue;
        puts("WRONG block");
        fflush(stdout);
        _exit(99);
    }
}

int main(void) {
    uint64_t *memory = mmap(NULL, mebibytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(memory, mebibytes * 256, 1);
    /* In order, so that pages are read ahead, by threads that are started for it. */
    verify(memory, mebibytes * 256, 1, "the parent before its threads");
    threads();
    /* libc's reallocarray calls realloc by its name. */
    long *reallocs = dlsym(RTLD_DEFAULT, "reallocs"), before = reallocs ? *reallocs : 0;
    free(reallocarray(malloc(100), 50, 50));
    if (reallocs && *reallocs == before) {
        puts("WRONG: reallocarray goes past the library");
        return 98;
    }
    verify(memory, mebibytes * 256, 1, "the parent");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        threads();
        verify(memory, mebibytes * 256, 1, "the child");
        fflush(stdout);
        _exit(3);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    verify(memory, mebibytes * 256, 1, "after the child");
    printf("child %#x\n", status);
    return 0;
}

#endif
