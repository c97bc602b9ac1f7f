/* A process that shares its parent's memory (clone(2) with CLONE_VM, or vfork(2)) works on evicted pages ("old"), on pages that nobody
 * has touched ("new"), or on a mapping that it makes ("own"). usage: tasks old|new|own clone|vfork */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t mebibytes = 32;
static uint64_t *memory;
static const char *what;

static uint64_t *map(int flags) {
    return mmap(NULL, mebibytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static int task(void *unused) {
    (void)unused;
    if (!strcmp(what, "own")) memory = map(0);
    if (strcmp(what, "old")) fill(memory, mebibytes * 256, 1);
    verify(memory, mebibytes * 256, 1, "task");
    return 3;
}

int main(int count, char **words) {
    if (count < 3) return 98;
    what = words[1];
    memory = map(0);
    if (!strcmp(what, "old")) fill(memory, mebibytes * 256, 1);
    pid_t pid;
    if (!strcmp(words[2], "vfork")) {
        pid = vfork();
        if (pid == 0) _exit(task(NULL));
    } else {
        char *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        pid = clone(task, stack + (1 << 20), CLONE_VM | SIGCHLD, NULL);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    verify(memory, mebibytes * 256, 1, "after the task");
    printf("task %#x\n", status);
    return 0;
}
