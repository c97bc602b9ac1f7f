/* Forks that libc's atfork handlers do not see, or that a library wants to hear of: the child must find every byte.
 * Usage: strange_forks clone | syscall-fork | syscall-clone | clone3 | cleared | cleared-vfork | library | _Fork | WORDS
 * WORDS: the kernel writes numbers to far memory: words-clone | words-syscall | words-clone3 | words-vfork | words-task | words-address
 * Built with the library early.c in front, for "library"; it is harmless to the others. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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

/* A child of `_Fork` is a thread of its own number, which has a list of robust mutexes. */
static int wrong_thread(void) {
    clockid_t clock;
    void *list = NULL;
    size_t bytes;
    if (pthread_getcpuclockid(pthread_self(), &clock) || (pid_t)~(clock >> 3) != syscall(SYS_gettid)) return 6;
    return syscall(SYS_get_robust_list, 0, &list, &bytes) || !list ? 7 : 0;
}

/* Four pages that are far by the time of the call. The kernel writes a number at the beginning of each. */
enum { PIDFD, PARENT, CHILD, CHOSEN, PAGES };
static uint64_t *pages;
static volatile int go, begun;

static uint64_t pattern(size_t i) { return i * 0xd1342543de82ef95ull + 3; }
static int *word(int page) { return (int *)&pages[page * 512]; }
static int untouched(int page) { return pages[page * 512] == pattern(page * 512); }

/* The kernel has written to these pages, and nothing but a word of each. */
static int wrong_pages(void) {
    for (int page = 0; page < PAGES; page++)
        for (size_t i = 1; i < 512; i++)
            if (pages[page * 512 + i] != pattern(page * 512 + i)) return 1;
    return 0;
}

static int wrong_in_child(void) {
    if (*word(CHILD) != syscall(SYS_gettid)) return 8;
    return wrong_pages() || wrong() ? 9 : 0;
}

static int wrong_in_parent(pid_t child, int with_descriptor, int with_parent) {
    if (with_descriptor && (fcntl(*word(PIDFD), F_GETFD) < 0 || close(*word(PIDFD)))) return 2;
    if (with_parent && *word(PARENT) != child) return 3;
    return untouched(CHILD) && !wrong_pages() ? 0 : 4;
}

static int body_with_words(void *unused) {
    (void)unused;
    return wrong_in_child();
}

static void end_with_words(void) { _exit(wrong() || wrong_pages()); }

/* Runs with the first thread's thread-local storage: it may call nothing. */
static int task(void *unused) {
    (void)unused;
    while (!go) {
        long result = SYS_sched_yield;
        __asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
    }
    return 0;
}

static void *names_its_word(void *unused) {
    syscall(SYS_set_tid_address, word(CHILD));
    begun = syscall(SYS_gettid);
    while (!go) usleep(1000);
    return unused;
}

/* A thread that ends while the word that tells of it is long unused: the kernel clears it. */
static int wrong_after(pid_t thread) {
    for (int i = 0; i < 2; i++)
        if (wrong()) return 1;
    go = 1;
    while (syscall(SYS_tgkill, getpid(), thread, 0) == 0) usleep(1000);
    return *word(CHILD) || wrong_pages() ? 5 : 0;
}

/* What is wrong in the parent, and what the child ended with. */
static int with_words(const char *way, int *code) {
    static _Alignas(16) uint64_t stack[65536];
    size_t top = 65534;
    int status = 0;
    long forks = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
    pid_t child;
    *code = 0;
    if (!strcmp(way, "words-task")) {
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        flags |= CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        child = clone(task, &stack[top], flags, NULL, word(PARENT), NULL, word(CHILD));
        return child < 0 ? 1 : *word(PARENT) != child ? 3 : wrong_after(child);
    }
    if (!strcmp(way, "words-address")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, names_its_word, NULL)) return 1;
        while (!begun) usleep(1000);
        return wrong_after(begun);
    }
    if (!strcmp(way, "words-clone")) {
        child = clone(body_with_words, &stack[top], forks | CLONE_PARENT_SETTID, NULL, word(PARENT), NULL, word(CHILD));
    } else if (!strcmp(way, "words-syscall")) {
        child = syscall(SYS_clone, forks | CLONE_PIDFD, 0L, word(PIDFD), word(CHILD), 0L);
    } else {
        uint64_t args[11] = {forks & ~0xffL, (uintptr_t)word(PIDFD), (uintptr_t)word(CHILD), (uintptr_t)word(PARENT), SIGCHLD};
        args[0] |= CLONE_PIDFD | CLONE_PARENT_SETTID;
        /* No process has this number, as the kernel finds when it has read it. */
        args[8] = (uintptr_t)word(CHOSEN), args[9] = 1;
        *word(CHOSEN) = 0;
        if (wrong() || syscall(SYS_clone3, args, sizeof args) >= 0 || errno != EINVAL) return 6;
        args[8] = args[9] = 0;
        if (!strcmp(way, "words-vfork")) {
            stack[top] = (uintptr_t)end_with_words;
            args[0] = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_PARENT_SETTID;
            args[5] = (uintptr_t)stack, args[6] = top * 8;
        }
        child = syscall(SYS_clone3, args, sizeof args);
    }
    if (child == 0) _exit(wrong_in_child());
    if (child < 0) return 1;
    int descriptor = strcmp(way, "words-clone") != 0, parent = strcmp(way, "words-syscall") != 0;
    int result = wrong_in_parent(child, descriptor, parent);
    if (waitpid(child, &status, 0) != child) return 7;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    pages = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < PAGES * 512; i++) pages[i] = pattern(i);
    words = malloc(count * 8);
    for (size_t i = 0; i < count; i++) words[i] = i * 0x9e3779b97f4a7c15ull + 1;
    int argument = 5;
    pid_t child;
    if (!strncmp(way, "words-", 6)) {
        int code, result = with_words(way, &code);
        printf("%s: child %d, parent %d\n", way, code, result ? result : wrong());
        return 0;
    }
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
    } else if (!strcmp(way, "_Fork")) {
        child = _Fork();
        if (child == 0) _exit(wrong_thread() ? wrong_thread() : wrong());
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
