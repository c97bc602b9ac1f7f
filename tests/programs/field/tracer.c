/* A debugger's start: a child of vfork asks to be traced, reads all memory, and becomes a program, which is run to its end. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static const size_t BYTES = (size_t)48 << 20;

static long fill(unsigned char *at) {
    long sum = 0;
    for (size_t i = 0; i < BYTES; i += 4096) at[i] = (i >> 12) % 251;
    for (size_t i = 0; i < BYTES; i += 4096) sum += at[i];
    return sum;
}

int main(int argc, char **argv) {
    unsigned char *memory = malloc(BYTES);
    long sum = fill(memory), seen = 0;
    int status = 0, started = 0;
    printf("%s %ld\n", argc > 1 ? "traced" : "tracer", sum);
    fflush(stdout);
    if (argc > 1) return 7;
    pid_t child = vfork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        for (size_t i = 0; i < BYTES; i += 4096) seen += memory[i];
        if (seen == sum) execl("/proc/self/exe", argv[0], "traced", NULL);
        _exit(99);
    }
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        int passed = WSTOPSIG(status);
        if (passed == SIGTRAP && !started++) printf("the program begins\n");
        if (ptrace(PTRACE_CONT, child, NULL, (void *)(long)(passed == SIGTRAP ? 0 : passed))) return 1;
    }
    printf("ended with %d, still %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, fill(memory));
    return 0;
}
