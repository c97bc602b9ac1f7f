/* A process that shares its parent's memory (clone(2) with CLONE_VM, or vfork(2)) works on evicted pages ("old"), on pages that nobody
 * has touched ("new"), or on a mapping that it makes ("own"). Or
 * many do, one after the other, whose own stack is in far memory and deep ("far"). usage: tasks old|new|own clone|vfork|far */
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

static long deep(int depth) {
    volatile char frame[3000];
    frame[0] = depth;
    return depth ? deep(depth - 1) + frame[0] : 0;
}

static int deep_task(void *argument) {
    if (deep(100) != 5050) return 4;
    return task(argument);
}

/* The last one's status. */
static int far_tasks(void) {
    int status = 0;
    for (int round = 0; round < 20 && status == 0; round++) {
        uint64_t *stack = map(0);
        pid_t pid = clone(deep_task, (char *)stack + (1 << 20), CLONE_VM | SIGCHLD, NULL);
        waitpid(pid, &status, 0);
        if (status == 3 << 8 && round < 19) status = 0;
        munmap(stack, mebibytes << 20);
    }
    return status;
}

int main(int count, char **words) {
    if (count < 3) return 98;
    what = words[1];
    memory = map(0);
    if (!strcmp(what, "old")) fill(memory, mebibytes * 256, 1);
    pid_t pid;
    if (!strcmp(words[2], "far")) {
        printf("task %#x\n", far_tasks());
        verify(memory, mebibytes * 256, 1, "after the tasks");
        return 0;
    }
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
