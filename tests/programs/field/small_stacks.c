/* Threads on stacks of the least size that POSIX allows, as the D runtime's collector has them, which use of those what they can natively: in calls
 * on far memory, in the allocator, in mappings, in a handler. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <threads.h>
#include <unistd.h>

enum { BYTES = 32 << 20, PAGE = 4096, THREADS = 8, ROUNDS = 24, USED = 7 << 10 };

static unsigned char *memory;
static int file;

static void on_signal(int signal) {
    (void)signal;
    free(malloc(100));
}

/* Leaves a little of the stack, and calls what needs some. */
static __attribute__((noinline)) long deep(long thread, long round) {
    volatile unsigned char used[USED];
    for (int at = 0; at < USED; at += 64) used[at] = (unsigned char)(thread + round);
    unsigned char *part = memory + thread * (BYTES / THREADS);
    size_t offset = (size_t)round * PAGE * 16;
    struct iovec pieces[2] = {{part + offset, 100}, {part + offset + 5 * PAGE, 100}};
    if (pread(file, part + offset, 3 * PAGE, 0) != 3 * PAGE || pwritev(file, pieces, 2, (thread + 1) * PAGE * 4) != 200) return -1;
    char *block = realloc(malloc(50), 100000 + round);
    char *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!block || mapped == MAP_FAILED) return -1;
    memset(block, 1, 100000);
    mapped[round] = 1;
    madvise(mapped, 1 << 20, MADV_DONTNEED);
    long sum = mapped[round] + part[offset + 7] + part[offset + 9 * PAGE];
    munmap(mapped, 1 << 20);
    free(block);
    for (int at = 0; at < USED; at += 64)
        if (used[at] != (unsigned char)(thread + round)) return -1;
    return sum;
}

static void *work(void *thread) {
    long sum = 0;
    for (long round = 0; round < ROUNDS; round++) {
        long part = deep((long)thread, round);
        if (part < 0) return (void *)-1l;
        sum += part;
        raise(SIGUSR1);
    }
    return (void *)sum;
}

static int work_of_c11(void *thread) {
    return (int)(long)work(thread);
}

/* The sum of what eight threads find; the process ends where one cannot be started. */
static long of_pthreads(const pthread_attr_t *attributes) {
    pthread_t threads[THREADS];
    long sum = 0;
    for (long thread = 0; thread < THREADS; thread++)
        if (pthread_create(&threads[thread], attributes, work, (void *)thread)) _exit(5);
    for (int thread = 0; thread < THREADS; thread++) {
        void *part;
        pthread_join(threads[thread], &part);
        if ((long)part < 0) _exit(6);
        sum += (long)part;
    }
    return sum;
}

static long of_c11_threads(void) {
    thrd_t threads[THREADS];
    long sum = 0;
    for (long thread = 0; thread < THREADS; thread++)
        if (thrd_create(&threads[thread], work_of_c11, (void *)thread) != thrd_success) _exit(5);
    for (int thread = 0; thread < THREADS; thread++) {
        int part;
        thrd_join(threads[thread], &part);
        if (part < 0) _exit(6);
        sum += part;
    }
    return sum;
}

int main(void) {
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < BYTES; at += PAGE) memory[at] = (unsigned char)(at / PAGE);
    file = fileno(tmpfile());
    static unsigned char page[3 * PAGE];
    memset(page, 3, sizeof page);
    if (pwrite(file, page, sizeof page, 0) != sizeof page) return 2;
    signal(SIGUSR1, on_signal);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN), set;
    if (pthread_attr_setstacksize(&attributes, least)) return 3;
    long sum = of_pthreads(&attributes);
    if (pthread_setattr_default_np(&attributes)) return 4;
    sum += of_pthreads(NULL) + of_c11_threads();
    pthread_attr_getstacksize(&attributes, &set);
    printf("sum %ld, stacks as they were set: %d\n", sum, set == least);
    return 0;
}
