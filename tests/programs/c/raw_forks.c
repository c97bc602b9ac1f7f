/* Forks by an instruction of the program's own, which nobody sees: the child must not find zeros where its memory was.
 * Usage: raw_forks read | write | heap | heaps | busy | stack | exit | grandchild | settls
 * Natively every child ends with 7. */
#define _GNU_SOURCE
#include "pattern.h"
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MEBIBYTES = 64;
static uint64_t *memory;

static long raw(long number, long a) {
    long result;
    register long none __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(0), "d"(0), "r"(none) : "rcx", "r11", "memory");
    return result;
}

static void leave(long code) { raw(SYS_exit_group, code); }

/* What the child does with memory that is far by now. */
static void child(const char *way) {
    if (!strcmp(way, "read"))
        for (uint64_t i = 0; i < MEBIBYTES * 256; i++)
            if (!memory[i * 512]) leave(99);
    if (!strcmp(way, "write") && write(1, memory, 0) == 0) {
        int pipes[2];
        if (pipe(pipes) || write(pipes[1], memory + 512, 4096) != 4096) leave(6);
        char local[4096];
        if (read(pipes[0], local, sizeof local) != 4096) leave(5);
        for (unsigned i = 0; i < sizeof local; i += 8)
            if (!*(uint64_t *)(local + i)) leave(99);
    }
    if (!strcmp(way, "heap")) memset(malloc(1 << 20), 1, 1 << 20);
    if (!strcmp(way, "exit")) _exit(7);
    leave(7);
}

/* Takes and gives back memory all the time: the locks of the allocator are in use. */
static void *allocates(void *unused) {
    for (;;) free(memset(malloc(300000), 1, 300000));
    return unused;
}

static void report(const char *who, pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) printf("%s: no child\n", who);
    else if (WIFSIGNALED(status)) printf("%s: signal %d\n", who, WTERMSIG(status));
    else printf("%s: code %d\n", who, WEXITSTATUS(status));
    fflush(stdout);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    memory = patterned(MEBIBYTES, 1);
    verify(memory, MEBIBYTES * 256, 1, "before");
    pid_t pid;
    if (!strcmp(way, "grandchild")) {
        /* The same in a child that was made properly. */
        if (!(pid = fork())) {
            verify(memory, MEBIBYTES * 256, 1, "child");
            if (!(pid = raw(SYS_clone, SIGCHLD))) child("read");
            report("grandchild", pid);
            verify(memory, MEBIBYTES * 256, 1, "child");
            _exit(0);
        }
        report("child", pid);
        way = "read";
    }
    /* Many, each while threads of the library may be at work: none of them may wait for a lock that one of those had. */
    pthread_t thread;
    for (int i = 0; i < 6 && !strcmp(way, "busy"); i++)
        if (pthread_create(&thread, NULL, allocates, NULL)) return 3;
    for (int i = 0; i < 150 && (!strcmp(way, "heaps") || !strcmp(way, "busy")); i++) {
        int status = -1;
        for (uint64_t page = 0; page < 256; page++)
            (void)*(volatile uint64_t *)&memory[((uint64_t)i * 256 + page) % (MEBIBYTES * 256) * 512];
        if (!(pid = raw(SYS_clone, SIGCHLD))) child("heap");
        if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
        if (!WIFSIGNALED(status) && !(WIFEXITED(status) && WEXITSTATUS(status) == 125)) return 2;
    }
    if (!(pid = raw(SYS_clone, SIGCHLD))) child(way);
    report(way, pid);
    verify(memory, MEBIBYTES * 256, 1, "after");
    puts("parent ok");
    return 0;
}
