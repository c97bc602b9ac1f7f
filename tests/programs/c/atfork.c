/* Handlers of the program's own around its forks work on far memory: three sets of them, in the order that POSIX gives, each
 * with memory that has left long ago, while other threads fault. Child, grandchild and parent find every byte.
 * usage: atfork FORKS */
#define _GNU_SOURCE
#include "pattern.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SETS = 3, SET_MEBIBYTES = 4, COLD_MEBIBYTES = 40, SLICE_PAGES = 64 };

static uint64_t *sets[SETS], *cold, forks_made, children_made;
/* On the heap, and so far: which handlers ran, in order. */
static char *order;
static atomic_int stop;

static void note(char what, int set) {
    size_t length = strlen(order);
    order[length] = what;
    order[length + 1] = '0' + set;
    order[length + 2] = 0;
}

/* Each handler reads all of its memory, and leaves its next version there; it allocates and frees, as handlers do. */
static void step(char what, int set, uint64_t version) {
    verify(sets[set], SET_MEBIBYTES * 256, version, "handler");
    fill(sets[set], SET_MEBIBYTES * 256, version + 1);
    uint64_t *more = malloc(300000);
    more[0] = more[37000] = version;
    free(more);
    note(what, set);
}

/* Versions: 3 n at rest after n forks, 3 n + 1 after prepare, 3 n + 3 after the handler of parent or child. */
#define HANDLERS(set)                                                                   \
    static void prepare##set(void) { step('p', set, 3 * forks_made); }                  \
    static void after##set(char what) {                                                 \
        step(what, set, 3 * forks_made + 1);                                            \
        fill(sets[set], SET_MEBIBYTES * 256, 3 * forks_made + 3);                       \
        if (set == SETS - 1) forks_made++, children_made += what == 'c';                \
    }                                                                                   \
    static void parent##set(void) { after##set('P'); }                                  \
    static void child##set(void) { after##set('c'); }
HANDLERS(0)
HANDLERS(1)
HANDLERS(2)

static void expect_order(const char *right) {
    if (strcmp(order, right)) {
        printf("WRONG order: %s instead of %s\n", order, right);
        fflush(stdout);
        _Exit(99);
    }
    order[0] = 0;
}

/* Reads and writes its own memory all the time. */
static void *busy(void *unused) {
    uint64_t *memory = patterned(8, 7);
    for (uint64_t version = 7; !atomic_load(&stop); version++) {
        verify(memory, 8 * 256, version, "thread");
        fill(memory, 8 * 256, version + 1);
    }
    free(memory);
    return unused;
}

static int waited(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect_memory(const char *who) {
    for (int set = 0; set < SETS; set++) verify(sets[set], SET_MEBIBYTES * 256, 3 * forks_made, who);
}

int main(int argc, char **argv) {
    uint64_t forks = argc > 1 ? strtoull(argv[1], NULL, 10) : 10, good = 0;
    order = calloc(1, 4096);
    for (int set = 0; set < SETS; set++) sets[set] = patterned(SET_MEBIBYTES, 0);
    cold = patterned(COLD_MEBIBYTES, 1);
    pthread_atfork(prepare0, parent0, child0);
    pthread_atfork(prepare1, parent1, child1);
    pthread_atfork(prepare2, parent2, child2);
    pthread_t threads[2];
    for (int thread = 0; thread < 2; thread++) pthread_create(&threads[thread], NULL, busy, NULL);
    for (uint64_t i = 0; i < forks; i++) {
        /* What the handlers need leaves. */
        verify(cold, COLD_MEBIBYTES * 256, 1, "cold");
        pid_t pid = fork();
        if (pid == 0) {
            expect_order("p2p1p0c0c1c2");
            expect_memory("child");
            if (forks_made != i + 1 || children_made != 1) _exit(96);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                expect_order("p2p1p0c0c1c2");
                expect_memory("grandchild");
                _exit(forks_made == i + 2 && children_made == 2 ? 0 : 96);
            }
            expect_order("p2p1p0P0P1P2");
            expect_memory("child that forked");
            _exit(waited(grandchild));
        }
        expect_order("p2p1p0P0P1P2");
        expect_memory("parent");
        good += waited(pid) == 0;
    }
    atomic_store(&stop, 1);
    for (int thread = 0; thread < 2; thread++) pthread_join(threads[thread], NULL);
    expect_memory("parent at last");
    printf("%llu of %llu forks right, handlers ran %llu times\n", (unsigned long long)good, (unsigned long long)forks,
           (unsigned long long)forks_made);
    return children_made != 0;
}
