/* Forks that libc's atfork handlers do not see, or that a library wants to hear of: the child must find every byte.
 * Usage: strange_forks clone | syscall-fork | syscall-clone | clone3 | cleared | cleared-vfork | library
 * Built with the library early.c in front, for "library"; it is harmless to the others. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern uint64_t *early_words;
extern size_t early_count, early_wrong;

/* CLONE_CLEAR_SIGHAND, which older headers lack. */
#define CLEARS_HANDLERS (1ull << 32)

static uint64_t *words;
static const size_t count = (64 << 20) / 8;

static int wrong(void) {
    for (size_t i = 0; i < count; i++)
        if (words[i] != i * 0x9e3779b97f4a7c15ull + 1) return 1;
    return 0;
}

static int body(void *argument) { return *(int *)argument == 5 ? wrong() : 2; }

static void handler(int signal) { (void)signal; }

static void *action_of(int signal) {
    struct sigaction action;
    return sigaction(signal, NULL, &action) ? (void *)-1 : (void *)action.sa_handler;
}

static void end_of_child(void) { _exit(wrong()); }

/* CLONE_CLEAR_SIGHAND: handlers are gone in the child, ignored signals stay ignored. */
static pid_t clone_cleared(void) {
    signal(SIGUSR1, handler);
    signal(SIGILL, handler);
    signal(SIGUSR2, SIG_IGN);
    uint64_t args[8] = {CLEARS_HANDLERS, [4] = SIGCHLD};
    pid_t child = syscall(SYS_clone3, args, sizeof args);
    if (child == 0)
        _exit(wrong() ? 1 : action_of(SIGUSR1) != SIG_DFL ? 6 : action_of(SIGILL) != SIG_DFL ? 7 : action_of(SIGUSR2) != SIG_IGN ? 8 : 0);
    return child;
}

/* The same with the parent's memory and a stack of its own, on which `syscall` returns to `end_of_child`. As libc does, another way is
 * taken where the flag is refused, as by kernels that lack it. */
static pid_t clone_cleared_shared(void) {
    static _Alignas(16) uint64_t stack[8192];
    size_t top = 8190;
    stack[top] = (uintptr_t)end_of_child;
    uint64_t args[8] = {CLEARS_HANDLERS | CLONE_VM | CLONE_VFORK, [4] = SIGCHLD, [5] = (uintptr_t)stack, [6] = top * 8};
    pid_t child = syscall(SYS_clone3, args, sizeof args);
    if (child >= 0 || errno != EINVAL) return child;
    child = vfork();
    if (child == 0) _exit(wrong());
    return child;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    words = malloc(count * 8);
    for (size_t i = 0; i < count; i++) words[i] = i * 0x9e3779b97f4a7c15ull + 1;
    int argument = 5;
    pid_t child;
    if (!strcmp(way, "clone")) {
        size_t bytes = 1 << 20;
        char *stack = malloc(bytes);
        child = clone(body, stack + bytes, SIGCHLD, &argument);
    } else if (!strcmp(way, "syscall-fork")) {
        child = syscall(SYS_fork);
    } else if (!strcmp(way, "syscall-clone")) {
        child = syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
    } else if (!strcmp(way, "clone3")) {
        uint64_t args[8] = {0};
        args[4] = SIGCHLD;
        child = syscall(SYS_clone3, args, sizeof args);
    } else if (!strcmp(way, "cleared")) {
        child = clone_cleared();
    } else if (!strcmp(way, "cleared-vfork")) {
        child = clone_cleared_shared();
    } else {
        early_words = words;
        early_count = count;
        child = fork();
    }
    if (child == 0) _exit(early_wrong ? 3 : wrong());
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) return 4;
    printf("%s: child %d, parent %d\n", way, WIFEXITED(status) ? WEXITSTATUS(status) : -1, wrong() || early_wrong);
    return 0;
}
