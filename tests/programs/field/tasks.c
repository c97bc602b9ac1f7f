/* A process that shares its parent's memory (clone(2) with CLONE_VM, or vfork(2)) works on evicted pages ("old"), on pages that nobody
 * has touched ("new"), or on a mapping that it makes ("own"). Or
 * many do, one after the other, whose own stack is in far memory and deep ("far"). Or it and its parent copy evicted pages from each other
 * ("peer"), which is the same memory. usage: tasks old|new|own clone|vfork|far; tasks old peer */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
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

/* Both directions of a conversation. */
static int to_task[2], to_parent[2];

/* Reads all of the memory of another process, and writes it back. */
static void copy_from(pid_t other, const char *place) {
    static uint64_t part[8192];
    for (uint64_t at = 0; at < mebibytes << 20; at += sizeof part) {
        struct iovec here = {part, sizeof part}, there = {(char *)memory + at, sizeof part};
        if (process_vm_readv(other, &here, 1, &there, 1, 0) != sizeof part || memcmp(part, there.iov_base, sizeof part) ||
            process_vm_writev(other, &here, 1, &there, 1, 0) != sizeof part) {
            printf("WRONG: %s cannot copy at %lu\n", place, at);
            return;
        }
    }
}

/* The same in one piece, which is larger than the budget. */
static void copy_all_from(pid_t other, const char *place) {
    uint64_t *all = map(0);
    struct iovec here = {all, mebibytes << 20}, there = {memory, mebibytes << 20};
    if (process_vm_readv(other, &here, 1, &there, 1, 0) != (ssize_t)(mebibytes << 20)) printf("WRONG: %s cannot copy all\n", place);
    verify(all, mebibytes * 256, 1, place);
    munmap(all, mebibytes << 20);
}

static int peer(void *unused) {
    (void)unused;
    char byte = 0;
    copy_from(getppid(), "the task");
    if (write(to_parent[1], &byte, 1) != 1 || read(to_task[0], &byte, 1) != 1) return 4;
    return 3;
}

static void talk(pid_t pid) {
    char byte = 0;
    if (read(to_parent[0], &byte, 1) != 1) return;
    copy_from(pid, "the parent");
    copy_all_from(pid, "the parent");
    copy_all_from(getpid(), "itself");
    if (write(to_task[1], &byte, 1) != 1) puts("WRONG: no answer");
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
        int peers = !strcmp(words[2], "peer");
        if (pipe(to_task) || pipe(to_parent)) return 97;
        pid = clone(peers ? peer : task, stack + (1 << 20), CLONE_VM | SIGCHLD, NULL);
        if (peers) talk(pid);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    verify(memory, mebibytes * 256, 1, "after the task");
    printf("task %#x\n", status);
    return 0;
}
