/* Forks from a stack in far memory, while another thread pushes everything out; and a clone whose parent waits for its exec.
 * `thread`: from a thread whose descriptor, which the kernel writes (rseq), lies in far memory, too.
 * Usage: far_stack_fork stack | thread | vfork */
#define _GNU_SOURCE
#include "pattern.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static const uint64_t MEBIBYTES = 48;
static uint64_t *memory;
static ucontext_t outside, inside;
static volatile int done, handled;
static uint64_t *pressure;

static void handle(int number) { handled++; }

static void *scan(void *nothing) {
    while (!done) verify(memory, MEBIBYTES * 256, 1, "scan");
    return nothing;
}

static int waited(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void forks(void) {
    char room[32 << 10];
    for (int i = 0; i < 12; i++) {
        memset(room, i, sizeof room);
        pid_t pid = fork();
        if (!pid) {
            for (unsigned at = 0; at < sizeof room; at++)
                if (room[at] != i) _exit(98);
            verify(memory, MEBIBYTES * 16, 1, "child");
            _exit(0);
        }
        int code = waited(pid);
        if (code) printf("child %d ended with %d\n", i, code);
        for (unsigned at = 0; at < sizeof room; at++)
            if (room[at] != i) puts("WRONG stack");
    }
}

static void *forks_in_thread(void *nothing) {
    for (int i = 0; i < 60; i++) {
        /* Above its budget at the fork: the child's evictor has work at once. */
        for (uint64_t at = 0; at < MEBIBYTES << 17; at += 512) pressure[at]++;
        pid_t pid = fork();
        if (!pid) raise(SIGUSR1), _exit(handled != 1);
        int code = waited(pid);
        if (code) printf("child %d ended with %d\n", i, code);
    }
    return nothing;
}

int main(int argc, char **argv) {
    memory = patterned(MEBIBYTES, 1);
    pthread_t scanner;
    pthread_create(&scanner, NULL, scan, NULL);
    if (argc > 1 && !strcmp(argv[1], "vfork")) {
        /* The scanner needs far memory served while this thread waits for the child's exit. */
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        pid_t pid = syscall(SYS_clone, (long)(SIGCHLD | CLONE_VFORK), 0L, 0L, 0L, 0L);
        if (!pid) {
            usleep(300000);
            verify(memory, MEBIBYTES * 256, 1, "child");
            _exit(0);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        double waited_s = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
        printf("%s, child %d\n", waited_s > 0.29 ? "waited" : "did not wait", waited(pid));
    } else if (argc > 1 && !strcmp(argv[1], "thread")) {
        size_t bytes = 256 << 10;
        done = 1;
        signal(SIGUSR1, handle);
        pressure = malloc(MEBIBYTES << 20);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, aligned_alloc(4096, bytes), bytes);
        pthread_t thread;
        pthread_create(&thread, &attributes, forks_in_thread, NULL);
        pthread_join(thread, NULL);
    } else {
        size_t bytes = 256 << 10;
        char *stack = malloc(bytes);
        getcontext(&inside);
        inside.uc_stack.ss_sp = stack, inside.uc_stack.ss_size = bytes, inside.uc_link = &outside;
        makecontext(&inside, forks, 0);
        swapcontext(&outside, &inside);
    }
    done = 1;
    pthread_join(scanner, NULL);
    verify(memory, MEBIBYTES * 256, 1, "after");
    puts("parent ok");
    return 0;
}
