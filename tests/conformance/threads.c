// Threads that come and go, allocate for each other, and end with thread-specific data still allocated.
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

static pthread_key_t key;
static size_t bad;

// Runs after the allocator's own thread-specific data is gone, in one of its rounds.
static void late(void *value) {
    uint64_t *words = value;
    __atomic_fetch_add(&bad, wrong(words, 4000, 9), __ATOMIC_RELAXED);
    free(words);
    static __thread int rounds;
    void *more = malloc(50000);
    fill(more, 50000, 9);
    if (rounds++ < 3) pthread_setspecific(key, more);
    else free(more);
}

static void *short_life(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    void *mine = malloc(4000 + seed % 1000);
    fill(mine, 4000, 9);
    pthread_setspecific(key, mine);
    void *kept = NULL;
    for (int i = 0; i < 60; i++) {
        size_t bytes = mix(seed * 64 + i) % 30000 & ~(size_t)7;
        void *p = malloc(bytes);
        fill(p, bytes, i);
        __atomic_fetch_add(&bad, wrong(p, bytes, i), __ATOMIC_RELAXED);
        if (i == 30) kept = realloc(p, 8192), fill(kept, 8192, seed);
        else free(p);
    }
    return kept;
}

static void come_and_go(void) {
    for (uintptr_t round = 0; round < 250; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) MUST(!pthread_create(&threads[i], NULL, short_life, (void *)(round * 4 + i)));
        for (int i = 0; i < 4; i++) {
            void *kept;
            MUST(!pthread_join(threads[i], &kept));
            bad += wrong(kept, 8192, round * 4 + i);
            free(kept);
        }
    }
    SHOW(bad);
}

enum { BOXES = 512 };
static struct { pthread_mutex_t lock; void *at; size_t bytes; uint64_t seed; } boxes[BOXES];

static void *trade(void *argument) {
    uint64_t me = (uintptr_t)argument;
    for (uint64_t i = 0; i < 40000; i++) {
        uint64_t r = mix(me << 32 | i);
        int b = r % BOXES;
        pthread_mutex_lock(&boxes[b].lock);
        __atomic_fetch_add(&bad, wrong(boxes[b].at, boxes[b].bytes, boxes[b].seed), __ATOMIC_RELAXED);
        free(boxes[b].at);
        boxes[b].bytes = (r >> 16) % 40 == 0 ? (r >> 24) % 300000 & ~(size_t)7 : (r >> 24) % 2000 & ~(size_t)7;
        boxes[b].at = r & 1 ? malloc(boxes[b].bytes) : calloc(1, boxes[b].bytes);
        boxes[b].seed = r;
        fill(boxes[b].at, boxes[b].bytes, r);
        pthread_mutex_unlock(&boxes[b].lock);
    }
    return NULL;
}

static void trading(void) {
    for (int i = 0; i < BOXES; i++) pthread_mutex_init(&boxes[i].lock, NULL);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) MUST(!pthread_create(&threads[i], NULL, trade, (void *)(i + 1)));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < BOXES; i++) bad += wrong(boxes[i].at, boxes[i].bytes, boxes[i].seed), free(boxes[i].at);
    SHOW(bad);
}

static int dive(int depth) {
    volatile char frame[2000];
    memset((void *)frame, depth, sizeof frame);
    int below = depth ? dive(depth - 1) : 0;
    return below + (frame[1000] == (char)depth);
}

static void *deep(void *argument) { return (void *)(intptr_t)dive((intptr_t)argument); }

// Stacks: the kernel's default, a small one, and one that the program maps or allocates itself.
static void stacks(void) {
    size_t bytes = 4 * MIB;
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    void *plain = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *allocated = NULL;
    MUST(!posix_memalign(&allocated, PAGE, bytes));
    void *own[] = {NULL, mapped, plain, allocated};
    for (int i = 0; i < 4; i++) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        if (own[i]) MUST(!pthread_attr_setstack(&attributes, own[i], bytes));
        pthread_t thread;
        void *result;
        MUST(!pthread_create(&thread, &attributes, deep, (void *)1500));
        pthread_join(thread, &result);
        SHOW((intptr_t)result);
    }
    munmap(mapped, bytes), munmap(plain, bytes), free(allocated);
}

enum { ROBUST = 24 };
static pthread_mutex_t *robust[ROBUST];
static int gate[2];

static long raw(long number, long first, long second, long third) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return result;
}

// Locks what it is told to, waits until everything was pushed out, and is gone without another look at its memory.
static void *end_at_once(void *argument) {
    for (int i = 0; i < ROBUST; i++)
        if (i % 3 == (intptr_t)argument) MUST(!pthread_mutex_lock(robust[i]));
    static char byte;
    raw(0 /* read */, gate[0], (long)&byte, 1);
    raw(60 /* exit */, 0, 0, 0);
    return NULL;
}

// Robust mutexes all over the heap, whose owners end: on stacks of the kernel's, and on one from malloc.
static void owners_end(void) {
    pthread_mutexattr_t attributes;
    MUST(!pthread_mutexattr_init(&attributes) && !pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    char *cold = malloc(28 * MIB), *stack = NULL;
    MUST(!pipe(gate) && !posix_memalign((void **)&stack, PAGE, MIB));
    for (int i = 0; i < ROBUST; i++) {
        robust[i] = (void *)(cold + i * MIB + (i & 1 ? PAGE - 16 : 64));
        MUST(!pthread_mutex_init(robust[i], &attributes));
    }
    for (int round = 0; round < 3; round++) {
        pthread_t threads[3];
        for (intptr_t i = 0; i < 3; i++) {
            pthread_attr_t with;
            MUST(!pthread_attr_init(&with));
            if (i == 2) MUST(!pthread_attr_setstack(&with, stack, MIB));
            MUST(!pthread_create(&threads[i], &with, end_at_once, (void *)i));
        }
        usleep(20000);
        for (int again = 0; again < 2; again++)
            for (size_t at = 0; at < 28 * MIB; at += PAGE)
                if (at % MIB > PAGE) cold[at + 2048]++;
        MUST(write(gate[1], "123", 3) == 3);
        for (int i = 0; i < 3; i++) MUST(!pthread_join(threads[i], NULL));
        int died = 0;
        for (int i = 0; i < ROBUST; i++) {
            died += pthread_mutex_lock(robust[i]) == EOWNERDEAD;
            MUST(!pthread_mutex_consistent(robust[i]) && !pthread_mutex_unlock(robust[i]));
        }
        SHOW(died);
    }
    for (int i = 0; i < ROBUST; i++) MUST(!pthread_mutex_destroy(robust[i]));
    free(cold), free(stack);
}

static volatile int handled;
static void handle_it(int signal) { handled++; }
static char *pressure;

// Handlers, a long write, a fork and a change of ids, on a stack from malloc in whose process everything else is pushed out.
static void *live_far(void *argument) {
    int sink = open("/dev/null", O_WRONLY);
    uint64_t mine[500];
    fill(mine, sizeof mine, 3);
    for (int round = 0; round < 3; round++) {
        for (size_t at = 0; at < 28 * MIB; at += PAGE) pressure[at]++;
        raise(SIGUSR1);
        MUST(write(sink, pressure, 60000) == 60000);
        for (size_t at = 0; at < 28 * MIB; at += PAGE) pressure[at]++;
        pid_t child = fork();
        if (!child) alarm(20), raise(SIGUSR1), _exit(handled != 1 + 2 * round + 1 || wrong(mine, sizeof mine, 3));
        int status;
        MUST(child > 0 && waitpid(child, &status, 0) == child);
        SHOW(status);
        raise(SIGUSR1);
    }
    close(sink);
    SHOW(wrong(mine, sizeof mine, 3));
    return NULL;
}

static void *wait_there(void *argument) {
    char byte;
    MUST(read(gate[0], &byte, 1) == 1);
    return NULL;
}

static void on_far_stacks(void) {
    enum { MANY = 300, EACH = 128 << 10 };
    static pthread_t threads[MANY];
    pthread_attr_t with;
    MUST(!pthread_attr_init(&with));
    signal(SIGUSR1, handle_it);
    pressure = malloc(28 * MIB);
    char *stacks = aligned_alloc(PAGE, (size_t)MANY * EACH);
    MUST(!pthread_attr_setstack(&with, stacks, 512 << 10) && !pthread_create(&threads[0], &with, live_far, NULL));
    MUST(!pthread_join(threads[0], NULL));
    for (int i = 0; i < MANY; i++) {
        MUST(!pthread_attr_setstack(&with, stacks + (size_t)i * EACH, EACH));
        MUST(!pthread_create(&threads[i], &with, wait_there, NULL));
    }
    // Every thread takes part in this, by a signal of libc's own.
    CALL(setgid(getgid()));
    for (int i = 0; i < MANY; i++) MUST(!pthread_kill(threads[i], SIGUSR1));
    for (int i = 0; i < MANY; i++) MUST(write(gate[1], "x", 1) == 1);
    for (int i = 0; i < MANY; i++) MUST(!pthread_join(threads[i], NULL));
    signal(SIGUSR1, SIG_DFL);
    SHOW(handled > 6);
    free(pressure), free(stacks);
}

static void *add_one(void *argument) { return (char *)argument + 1; }

static void *beside_another(void *argument) {
    enum { EACH = 64 << 10 };
    pthread_attr_t with;
    MUST(!pthread_attr_init(&with));
    for (int round = 0; round < 300; round++) {
        pthread_t thread;
        void *result;
        char *stack = mmap(NULL, EACH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(!pthread_attr_setstack(&with, stack, EACH) && !pthread_create(&thread, &with, add_one, argument));
        MUST(!pthread_join(thread, &result) && result == (char *)argument + 1 && !munmap(stack, EACH));
    }
    return NULL;
}

// What lies behind a far stack is never touched: neither what may not be written, nor another thread's stack that comes and goes.
static void behind_far_stacks(void) {
    enum { EACH = 64 << 10, THREADS = 4 };
    pthread_attr_t with;
    pthread_t threads[THREADS];
    char *stack = mmap(NULL, 2 * EACH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(!pthread_attr_init(&with) && !mprotect(stack + EACH, EACH, PROT_READ) && !pthread_attr_setstack(&with, stack, EACH));
    MUST(!pthread_create(&threads[0], &with, add_one, NULL) && !pthread_join(threads[0], NULL));
    SHOW(nonzero(stack + EACH, EACH)), CALL(munmap(stack, 2 * EACH));
    for (int i = 0; i < THREADS; i++) MUST(!pthread_create(&threads[i], NULL, beside_another, &threads[i]));
    for (int i = 0; i < THREADS; i++) MUST(!pthread_join(threads[i], NULL));
}

static volatile long elsewhere;
static volatile int ender;

static void look_where(int signal) {
    char here;
    if ((uintptr_t)pthread_self() - (uintptr_t)&here > 9 * MIB) elsewhere++;
}

static void *end_under_fire(void *argument) {
    ender = gettid();
    return NULL;
}

// A thread is sent signals until it is gone: its handlers run on its stack.
static void ends_under_fire(void) {
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = look_where, .sa_flags = SA_RESTART}, NULL);
    for (int round = 0; round < 500; round++) {
        pthread_t thread;
        ender = 0;
        MUST(!pthread_create(&thread, NULL, end_under_fire, NULL));
        while (!ender) sched_yield();
        while (!tgkill(getpid(), ender, SIGUSR1))
            for (volatile int pause = mix(round) % 6000; pause; pause--) {}
        MUST(!pthread_join(thread, NULL));
    }
    signal(SIGUSR1, SIG_DFL);
    SHOW(elsewhere);
}

int main(void) {
    pthread_key_create(&key, late);
    come_and_go();
    trading();
    stacks();
    owners_end();
    on_far_stacks();
    behind_far_stacks();
    ends_under_fire();
}
