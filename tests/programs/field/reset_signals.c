/* A forked child takes every signal's action back, as browsers do for the programs that they start, works on evicted pages, and calls exec.
 * usage: reset_signals function|number */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include "kernel_action.h"
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void handle(int signal) { (void)signal; }

static long reset(int signal, int by_number) {
    struct action none = {0};
    return by_number ? syscall(SYS_rt_sigaction, signal, &none, NULL, 8L) : sigaction(signal, &(struct sigaction){0}, NULL);
}

int main(int count, char **words) {
    if (count < 2) return 98;
    const uint64_t mebibytes = 32;
    uint64_t *memory = patterned(mebibytes, 1);
    const int by_number = !strcmp(words[1], "number"), handled[] = {SIGUSR1, SIGBUS, SIGSYS, SIGILL};
    for (unsigned index = 0; index < sizeof handled / sizeof *handled; index++) signal(handled[index], handle);
    pid_t pid = fork();
    if (pid == 0) {
        for (int signal = 1; signal <= 64; signal++)
            if (signal != SIGKILL && signal != SIGSTOP && signal != 32 && signal != 33 && reset(signal, by_number)) _exit(97);
        verify(memory, mebibytes * 256, 1, "the child");
        fill(memory, mebibytes * 256, 2);
        verify(memory, mebibytes * 256, 2, "what the child wrote");
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        execl("/bin/echo", "echo", "started", NULL);
        _exit(96);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    printf("child %#x\n", status);
    for (unsigned index = 0; index < sizeof handled / sizeof *handled; index++) raise(handled[index]);
    verify(memory, mebibytes * 256, 1, "after the child");
    return 0;
}
