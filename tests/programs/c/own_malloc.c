/* A program with an allocator of its own. As mimalloc, jemalloc and tcmalloc do, it keeps what it knows of a thread in memory that it
 * takes by mmap, which is far. It ends the program when a thread that the program did not make asks it for memory.
 * With -DLIBRARY the allocator alone, which takes the place of libc's own names, too, as mimalloc does; with -DPROGRAM the rest. */
#define _GNU_SOURCE
#include "pattern.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PROGRAM
enum { HEADER = 16, CLASSES = 12, CHUNK = 1 << 20, LARGE = 16 << CLASSES };

/* Of one thread: in far memory. */
struct heap {
    void *free[CLASSES];
    char *next, *end;
};

static __thread struct heap *own;

static void whose_call(void) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (strncmp(name, "far-", 4) == 0) {
        static const char text[] = "the allocator was called by ";
        (void)!write(1, text, sizeof text - 1);
        (void)!write(1, name, strlen(name));
        (void)!write(1, "\n", 1);
        _exit(94);
    }
}

static void *pages(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static struct heap *heap(void) {
    if (!own) {
        whose_call();
        own = pages(CHUNK);
        if (!own) _exit(93);
        own->next = (char *)own + 4096;
        own->end = (char *)own + CHUNK;
    }
    return own;
}

static int class_of(size_t bytes) {
    int class = 0;
    while ((size_t)16 << class < bytes) class++;
    return class;
}

/* Under another name: a compiler knows malloc, and makes malloc and memset a call of calloc. */
static void *allocate(size_t bytes) {
    struct heap *mine = heap();
    if (bytes > LARGE / 2) {
        size_t *large = pages(bytes + 4096);
        if (!large) return errno = ENOMEM, NULL;
        *large = bytes + 4096;
        size_t *header = large + 510;
        header[0] = bytes, header[1] = CLASSES;
        return header + 2;
    }
    int class = class_of(bytes);
    size_t *header = mine->free[class];
    if (header) {
        mine->free[class] = *(void **)(header + 2);
    } else {
        size_t whole = HEADER + ((size_t)16 << class);
        if ((size_t)(mine->end - mine->next) < whole) {
            mine->next = pages(CHUNK);
            if (!mine->next) _exit(93);
            mine->end = mine->next + CHUNK;
        }
        header = (size_t *)mine->next;
        mine->next += whole;
    }
    header[0] = bytes, header[1] = (size_t)class;
    return header + 2;
}

void *malloc(size_t bytes) { return allocate(bytes); }

void free(void *memory) {
    if (!memory) return;
    struct heap *mine = heap();
    size_t *header = (size_t *)memory - 2;
    if (header[1] == CLASSES) {
        munmap(header - 510, header[-510]);
    } else if (header[1] < CLASSES) {
        *(void **)memory = mine->free[header[1]];
        mine->free[header[1]] = header;
    }
}

void *calloc(size_t count, size_t bytes) {
    void *memory = allocate(count * bytes);
    return memory ? memset(memory, 0, count * bytes) : NULL;
}

void *realloc(void *old, size_t bytes) {
    void *memory = allocate(bytes);
    if (old && memory) {
        size_t had = ((size_t *)old)[-2];
        memcpy(memory, old, had < bytes ? had : bytes);
        free(old);
    }
    return memory;
}

/* Never freed: aligned objects are rare here. */
void *memalign(size_t alignment, size_t bytes) {
    size_t address = (size_t)allocate(bytes + alignment + HEADER) + HEADER;
    address = (address + alignment - 1) / alignment * alignment;
    ((size_t *)address)[-2] = bytes, ((size_t *)address)[-1] = CLASSES + 1;
    return (void *)address;
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    *memory = memalign(alignment, bytes);
    return 0;
}

#ifdef LIBRARY
void *__libc_malloc(size_t bytes) { return malloc(bytes); }
void __libc_free(void *memory) { free(memory); }
void *__libc_calloc(size_t count, size_t bytes) { return calloc(count, bytes); }
void *__libc_realloc(void *old, size_t bytes) { return realloc(old, bytes); }
void *__libc_memalign(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
#endif
#endif

#ifndef LIBRARY
struct node {
    struct node *next;
    uint64_t number;
    uint64_t rest[5];
};

static struct node *list(uint64_t count, uint64_t seed) {
    struct node *first = NULL;
    for (uint64_t number = 0; number < count; number++) {
        struct node *node = malloc(sizeof *node);
        *node = (struct node){first, number, {pattern_word(number, seed, 1)}};
        first = node;
    }
    return first;
}

static void look(const struct node *node, uint64_t count, uint64_t seed, const char *who) {
    for (uint64_t number = count; number-- > 0; node = node->next)
        if (node->number != number || node->rest[0] != pattern_word(number, seed, 1)) {
            printf("WRONG %s\n", who);
            fflush(stdout);
            _exit(99);
        }
}

static const uint64_t MANY = 400000, SOME = 60000;

static void *work(void *seed) {
    for (int round = 0; round < 3; round++) {
        struct node *nodes = list(SOME, (uint64_t)seed);
        look(nodes, SOME, (uint64_t)seed, "thread");
        while (nodes) {
            struct node *next = nodes->next;
            free(nodes);
            nodes = next;
        }
    }
    return NULL;
}

static void threads(void) {
    pthread_t made[3];
    for (size_t n = 0; n < 3; n++)
        if (pthread_create(&made[n], NULL, work, (void *)(n + 10))) _exit(98);
    for (size_t n = 0; n < 3; n++) pthread_join(made[n], NULL);
}

int main(void) {
    struct node *nodes = list(MANY, 1);
    threads();
    look(nodes, MANY, 1, "parent");
    for (int generation = 0; generation < 3; generation++) {
        pid_t child = fork();
        if (child < 0) return 97;
        if (child == 0) {
            look(nodes, MANY, 1, "child");
            threads();
            if (generation == 2) {
                puts("all right");
                fflush(stdout);
                _exit(0);
            }
            continue;
        }
        int status = -1;
        if (waitpid(child, &status, 0) != child) return 96;
        look(nodes, MANY, 1, "parent");
        return status ? 95 : 0;
    }
    return 0;
}
#endif
