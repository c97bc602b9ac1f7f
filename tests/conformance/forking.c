// What a forked child sees: a copy, nothing, or zeros; and what it changes stays its own.
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static void in_child(void (*body)(void)) {
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        body();
        fflush(stdout);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    SHOW(status);
}

static char *heap, *plain, *left_out, *wiped, *shared;
static const size_t bytes = 8 * MIB;

static void look(void) {
    SHOW(wrong(heap, bytes, 1)), SHOW(wrong(plain, bytes, 2)), SHOW(probe(left_out, 'r')), SHOW(nonzero(wiped, bytes));
    SHOW(wrong(shared, bytes, 5));
    fill(heap, bytes, 11), fill(plain, bytes, 12), fill(shared, bytes, 15);
    char *more = malloc(bytes);
    fill(more, bytes, 3);
    heap = realloc(heap, 2 * bytes);
    SHOW(wrong(heap, bytes, 11)), SHOW(wrong(more, bytes, 3)), SHOW(wrong(plain, bytes, 12));
    free(heap), free(more);
    SHOW(munmap(plain, bytes)), SHOW(probe(plain, 'r'));
}

static void look_again(void) {
    SHOW(wrong(left_out, bytes, 3)), SHOW(wrong(wiped, bytes, 4));
}

static void look_at_rules(void) { SHOW(nonzero(wiped, bytes)), SHOW(probe(left_out, 'r')); }

// Advice on what a child gets and on what it finds are two things.
static void rules(void) {
    CALL(madvise(wiped, bytes, MADV_WIPEONFORK)), CALL(madvise(wiped, bytes, MADV_DONTFORK)), CALL(madvise(wiped, bytes, MADV_DOFORK));
    CALL(madvise(left_out, bytes, MADV_DONTFORK)), CALL(madvise(left_out, bytes, MADV_KEEPONFORK));
    in_child(look_at_rules);
    CALL(madvise(wiped, bytes, MADV_KEEPONFORK)), CALL(madvise(left_out, bytes, MADV_DOFORK));
}

static void drop_locked(void) { CALL(madvise(wiped, PAGE, MADV_DONTNEED)), SHOW(nonzero(wiped, PAGE)), CALL(madvise(wiped, PAGE, MADV_FREE)); }

// A lock is not the child's.
static void locks(void) {
    CALL(mlock(wiped, 8 * PAGE)), CALL(madvise(wiped, PAGE, MADV_DONTNEED));
    in_child(drop_locked);
    CALL(munlock(wiped, 8 * PAGE));
}

// Rules go along with a mapping that moves, also to where shared memory was.
static void rules_of_what_moves(void) {
    char *to = mmap(NULL, 2 * bytes, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CALL(madvise(wiped, bytes, MADV_WIPEONFORK)), CALL(madvise(left_out, bytes, MADV_DONTFORK));
    SHOW(mremap(wiped, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to), wiped = to;
    SHOW(mremap(left_out, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to + bytes) == to + bytes), left_out = to + bytes;
    in_child(look_at_rules);
    SHOW(wrong(wiped, bytes, 4)), SHOW(wrong(left_out, bytes, 3));
}

static volatile int ending, stopped, go_on;

static void stop(int signal) {
    stopped = 1;
    while (!go_on) usleep(100);
    stopped = 0;
}

// Allocates in all sizes, and through the kernel.
static void *allocate(void *unused) {
    void *kept[64] = {0};
    for (uint64_t i = 0; !ending; i++) {
        uint64_t r = mix(i);
        kept[r % 64] = realloc(kept[r % 64], r >> 8 & 1 ? (r >> 16) % 4000 : (r >> 16) % 600000);
        if (kept[r % 64]) *(char *)kept[r % 64] = 1;
        if (r >> 40 & 1) free(kept[(r >> 41) % 64]), kept[(r >> 41) % 64] = NULL;
    }
    for (int i = 0; i < 64; i++) free(kept[i]);
    return NULL;
}

static void *release(void *unused) {
    usleep(1500);
    go_on = 1;
    return NULL;
}

// A thread is stopped anywhere in the allocator; while it stays there the process forks, and the child allocates.
static void forks_beside_malloc(void) {
    pthread_t allocator, releaser;
    signal(SIGUSR1, stop);
    MUST(!pthread_create(&allocator, NULL, allocate, NULL));
    int bad = 0;
    for (int round = 0; round < 60; round++) {
        usleep(mix(round) % 700);
        go_on = 0;
        MUST(!pthread_kill(allocator, SIGUSR1));
        while (!stopped) usleep(20);
        MUST(!pthread_create(&releaser, NULL, release, NULL));
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            alarm(20);
            for (int i = 0; i < 60; i++) {
                size_t size = mix(i) % 200000;
                char *at = malloc(size);
                fill(at, size, i);
                if (wrong(at, size, i)) _exit(1);
                if (i % 3) free(at);
            }
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        bad += status != 0;
        MUST(!pthread_join(releaser, NULL));
        while (stopped) usleep(20);
    }
    ending = 1;
    MUST(!pthread_join(allocator, NULL));
    signal(SIGUSR1, SIG_DFL);
    SHOW(bad);
}

int main(void) {
    heap = malloc(bytes);
    plain = mmap(NULL, bytes, RW, ANON, -1, 0), left_out = mmap(NULL, bytes, RW, ANON, -1, 0);
    wiped = mmap(NULL, bytes, RW, ANON, -1, 0), shared = mmap(NULL, bytes, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(heap, bytes, 1), fill(plain, bytes, 2), fill(left_out, bytes, 3), fill(wiped, bytes, 4), fill(shared, bytes, 5);
    CALL(madvise(left_out, bytes, MADV_DONTFORK)), CALL(madvise(wiped, bytes, MADV_WIPEONFORK));
    in_child(look);
    SHOW(wrong(heap, bytes, 1)), SHOW(wrong(plain, bytes, 2)), SHOW(wrong(left_out, bytes, 3)), SHOW(wrong(wiped, bytes, 4));
    SHOW(wrong(shared, bytes, 15));
    CALL(madvise(left_out, bytes, MADV_DOFORK)), CALL(madvise(wiped, bytes, MADV_KEEPONFORK));
    in_child(look_again);
    rules();
    locks();
    rules_of_what_moves();
    forks_beside_malloc();
}
