/* A call of mmap in a signal handler that interrupts libc's allocator at each of its instructions, in a child each: the first
 * memory of that child that is large enough for a thread of the pager to start.
 *
 * in_a_handler alone|beside      beside: another thread exists, so the allocator takes its lock
 *
 * Prints how many children were made, and of how many the heap was whole afterwards. */
#define _GNU_SOURCE
#include "pattern.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { BYTES = 24 << 20, OBJECT = 1500, STRIDE = 3, CHILDREN_MAX = 1000, TRAP_FLAG = 0x100 };

static volatile sig_atomic_t until, passed;

static void step(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (++passed != until) return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    uint64_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(3);
    fill(memory, 2, 1);
}

static void *idle(void *unused) {
    (void)unused;
    pause();
    return NULL;
}

/* Each instruction between the two is followed by SIGTRAP. */
static inline void trap(void) { __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc"); }
static inline void go_on(void) { __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc"); }

/* 0: interrupted, and the heap is whole. 4: there were fewer instructions. */
static int child(int beside) {
    pthread_t thread;
    if (beside && pthread_create(&thread, NULL, idle, NULL)) return 5;
    char *objects[64] = {0};
    for (int i = 0; i < 64; i += 2) objects[i] = malloc(OBJECT + 16 * i);
    for (int i = 0; i < 64; i += 4) free(objects[i]), objects[i] = NULL;
    sigaction(SIGTRAP, &(struct sigaction){.sa_sigaction = step, .sa_flags = SA_SIGINFO}, NULL);
    trap();
    objects[1] = malloc(OBJECT);
    go_on();
    for (int i = 0; i < 64; i++) {
        if (objects[i]) continue;
        objects[i] = malloc(OBJECT);
        if (!objects[i]) return 6;
    }
    for (int i = 0; i < 64; i++) memset(objects[i], i, OBJECT);
    for (int i = 0; i < 64; i++)
        for (int at = 0; at < OBJECT; at++)
            if (objects[i][at] != i) return 7;
    for (int i = 0; i < 64; i++) free(objects[i]);
    return passed >= until ? 0 : 4;
}

int main(int count, char **words) {
    if (count != 2) return 2;
    int beside = !strcmp(words[1], "beside"), made = 0, whole = 0;
    for (until = 1; made < CHILDREN_MAX; until += STRIDE, made++) {
        pid_t pid = fork();
        if (pid == 0) _exit(child(beside));
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid) return 8;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 4) break;
        if (status == 0) whole++;
        else printf("at instruction %d: status %#x\n", (int)until, status);
    }
    printf("%s: %d of %d\n", words[1], whole, made);
    return made > 20 && made < CHILDREN_MAX && whole == made ? 0 : 1;
}
